//! Links between the pages of the repository lead somewhere.
//!
//! Exists so that a moved page is noticed by its neighbours. Looks at links to files only; addresses
//! of the web and anchors are left alone.

use super::{File, Finding};
use std::collections::BTreeSet;

/// Every relative link of a Markdown file names a file or a folder of the repository.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut places: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        places.insert(&file.path);
        places.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in file.text.lines().enumerate() {
            for link in links(line) {
                let target = resolve(&file.path, link);
                if !places.contains(target.as_str()) {
                    let message = format!("the link `{link}` leads nowhere");
                    findings.push(Finding::new(&file.path, number + 1, message));
                }
            }
        }
    }
    findings
}

/// Targets of the line's links to files, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, mark)| {
        let inside = line[at + mark.len()..].split(')').next()?;
        let target = inside.split('#').next()?.trim();
        (!target.is_empty() && !target.contains(':')).then_some(target)
    })
}

fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn a_dead_link_is_found() {
        let files =
            [file("docs/a.md", "x\n[b](b.md) and [c](../README.md)\n"), file("README.md", "")];
        assert_eq!(said(check(&files)), ["docs/a.md:2: the link `b.md` leads nowhere"]);
    }

    #[test]
    fn living_links_anchors_folders_and_the_web_pass() {
        let text = "[a](docs/a.md#part) [b](#here) [c](https://example.org) [d](docs/)\n";
        let files = [file("README.md", text), file("docs/a.md", "")];
        assert!(check(&files).is_empty());
    }
}
