//! The machine's apt sources, read and re-written for a private apt.
//!
//! Exists because the newer Mesa lies in the distribution's backports, which a bare machine does not
//! list: the entry is derived from the machine's own (same address, same key), so that a mirror keeps
//! working and the system's configuration stays untouched. Pure text: runs nothing.

/// One apt source entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Address of the archive.
    pub uri: String,
    /// Suites, e.g. `bookworm bookworm-updates`.
    pub suites: Vec<String>,
    /// Components, e.g. `main`.
    pub components: Vec<String>,
    /// Value of `Signed-By` with its continuation lines, when the entry names its key.
    pub signed_by: Option<String>,
}

/// Reads the one-line form (`deb [signed-by=…] URI suite component…`). Other lines are passed over.
pub fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let mut rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let mut signed_by = None;
    if let Some(inner) = rest.strip_prefix('[') {
        let (options, after) = inner.split_once(']')?;
        signed_by = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .map(|key| key.replace(',', " "));
        rest = after.trim_start();
    }
    let mut words = rest.split_whitespace().map(str::to_string);
    let (uri, suite) = (words.next()?, words.next()?);
    Some(Source { uri, suites: vec![suite], components: words.collect(), signed_by })
}

/// Reads the stanza form (`Types: deb`, `URIs: …`). Source-code and disabled stanzas are passed over.
pub fn parse_stanzas(text: &str) -> Vec<Source> {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanzas = without_comments.split(|line| line.trim().is_empty());
    stanzas.flat_map(|lines| parse_stanza(&fields(lines))).collect()
}

/// Field names in lower case with their values; continuation lines are kept as they are.
fn fields(lines: &[&str]) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line.trim_end());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    fields
}

fn parse_stanza(fields: &[(String, String)]) -> Vec<Source> {
    let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str());
    let words = |name: &str| -> Vec<String> {
        field(name).unwrap_or("").split_whitespace().map(str::to_string).collect()
    };
    if !words("types").iter().any(|kind| kind == "deb") || field("enabled") == Some("no") {
        return Vec::new();
    }
    let source = |uri: String| Source {
        uri,
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").map(str::to_string),
    };
    words("uris").into_iter().map(source).collect()
}

/// The entries of the distribution itself for one of its suites, the most likely first.
///
/// Other vendors name their suites after the distribution's too; theirs come last, so that the first
/// entry is right on every machine that lists the distribution at all.
pub fn of_suite(sources: &[Source], suite: &str) -> Vec<Source> {
    let mut found: Vec<Source> = sources
        .iter()
        .filter(|source| source.components.iter().any(|component| component == "main"))
        .filter(|source| source.suites.iter().any(|name| name == suite))
        .map(|source| only_main(source, suite))
        .collect();
    found.sort_by_key(|source| !source.uri.contains("/debian"));
    found
}

/// The backports entry that belongs to the distribution's entry for `codename`.
pub fn backports(sources: &[Source], codename: &str) -> Option<Source> {
    let base = of_suite(sources, codename).into_iter().next()?;
    Some(only_main(&base, &backports_suite(codename)))
}

/// The suite that holds the backports of a release.
pub fn backports_suite(codename: &str) -> String {
    format!("{codename}-backports")
}

fn only_main(source: &Source, suite: &str) -> Source {
    Source {
        suites: vec![suite.to_string()],
        components: vec!["main".to_string()],
        ..source.clone()
    }
}

/// The entries in stanza form.
pub fn render(sources: &[Source]) -> String {
    let stanza = |source: &Source| {
        let signed = match &source.signed_by {
            Some(key) => format!("Signed-By: {key}\n"),
            None => String::new(),
        };
        let (suites, components) = (source.suites.join(" "), source.components.join(" "));
        let uri = &source.uri;
        format!("Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: {components}\n{signed}")
    };
    sources.iter().map(stanza).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "\
Types: deb
# a comment inside
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://vendor.example/apt
Suites: bookworm
Components: main
";

    #[test]
    fn stanzas_are_read_and_comments_source_and_disabled_ones_passed_over() {
        let sources = parse_stanzas(STANZAS);
        let uris: Vec<&str> = sources.iter().map(|source| source.uri.as_str()).collect();
        assert_eq!(uris, ["http://mirror.example/debian", "http://vendor.example/apt"]);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/usr/share/keyrings/archive.gpg"));
        assert_eq!(sources[1].signed_by, None);
    }

    #[test]
    fn single_lines_are_read_with_their_options() {
        let text = "# nothing\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm \
                    main contrib # note\ndeb-src http://a.example/debian bookworm main\n";
        let sources = parse_list(text);
        assert_eq!(sources.len(), 1);
        assert_eq!(sources[0].uri, "http://a.example/debian");
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/k.gpg"));
    }

    #[test]
    fn backports_come_from_the_distribution_not_from_a_vendor() {
        let mut sources = parse_stanzas(STANZAS);
        sources.reverse();
        let text = render(&[backports(&sources, "bookworm").unwrap()]);
        assert_eq!(
            text,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
             Components: main\nSigned-By: /usr/share/keyrings/archive.gpg\n"
        );
        assert_eq!(backports(&sources, "trixie"), None);
    }

    #[test]
    fn an_embedded_key_survives_the_round_trip() {
        let text = "Types: deb\nURIs: http://a.example/debian\nSuites: s\nComponents: main\n\
                    Signed-By:\n -----BEGIN-----\n .\n abc\n";
        let sources = parse_stanzas(text);
        assert_eq!(parse_stanzas(&render(&sources)), sources);
        assert!(sources[0].signed_by.as_deref().unwrap().ends_with(" .\n abc"));
    }
}
