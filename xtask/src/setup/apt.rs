//! apt: installing packages into the system, and fetching single packages without touching it.
//!
//! Exists so that a bare machine becomes able to build and test with one command. Installing needs
//! the administrator; fetching does not: it runs on folders of its own, with sources that are derived
//! from the machine's.

use super::source::{self, Source};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A package of the distribution and why it is needed.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Package name.
    pub package: &'static str,
    /// What for, as the end of a sentence.
    pub why: &'static str,
}

/// True where the machine has apt.
pub fn present() -> bool {
    shell::works("apt-get", &["--version"])
}

/// Installs packages, with the list refreshed first. Says what and why before it starts.
pub fn install(needs: &[Need]) -> Result<()> {
    if needs.is_empty() {
        return Ok(());
    }
    println!("set-up installs through apt:");
    for need in needs {
        println!("  {:<24} {}", need.package, need.why);
    }
    let names: Vec<&str> = needs.iter().map(|need| need.package).collect();
    let as_root = administrator().with_context(|| refusal(&names))?;
    let apt = |args: &[&str]| {
        let mut words = as_root.clone();
        words.extend(["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0"].map(str::to_string));
        words.extend(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"].map(Into::into));
        words.extend(args.iter().map(|arg| (*arg).to_string()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command
    };
    shell::capture(&mut apt(&["update"])).with_context(|| refusal(&names))?;
    let mut install = apt(&["install", "--no-install-recommends"]);
    install.args(&names);
    shell::capture(&mut install).with_context(|| refusal(&names))?;
    println!("set-up installed them");
    Ok(())
}

fn refusal(names: &[&str]) -> String {
    format!(
        "set-up could not install {0}; an administrator can: apt-get install {0}",
        names.join(" ")
    )
}

/// The words that go before a command so that it runs as the administrator without a question.
fn administrator() -> Result<Vec<String>> {
    let env = ["env".to_string(), "DEBIAN_FRONTEND=noninteractive".to_string()];
    if is_root() {
        return Ok(env.to_vec());
    }
    let quiet = !std::io::stdin().is_terminal();
    if !shell::works("sudo", &["--version"]) || (quiet && !shell::works("sudo", &["-n", "true"])) {
        bail!("this account is not root and cannot become root through sudo");
    }
    Ok(std::iter::once("sudo".to_string()).chain(env).collect())
}

fn is_root() -> bool {
    shell::capture(Command::new("id").arg("-u")).is_ok_and(|text| text.trim() == "0")
}

/// The machine's apt sources, in the order of their files.
pub fn sources() -> Vec<Source> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
        let mut more: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.append(&mut more);
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        match path.extension()?.to_str()? {
            "list" => Some(source::parse_list(&text)),
            "sources" => Some(source::parse_stanzas(&text)),
            _ => None,
        }
    };
    files.iter().filter_map(read).flatten().collect()
}

/// Fetches `package` from `sources` into `folder` and unpacks it to `folder/unpacked`, which is
/// returned. Nothing outside the folder changes.
pub fn unpack(package: &str, sources: &[Source], folder: &Path) -> Result<PathBuf> {
    for part in ["state/lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    let list = folder.join("private.sources");
    std::fs::write(&list, source::render(sources))?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.current_dir(folder).arg("-qq");
        for option in private_options(folder, &list) {
            command.arg("-o").arg(option);
        }
        command
    };
    let said = |error: anyhow::Error| {
        let text = error.to_string();
        anyhow::anyhow!("apt says: {}", text.lines().last().unwrap_or("nothing"))
    };
    shell::capture(apt().arg("update")).map_err(said)?;
    shell::capture(apt().arg("download").arg(package)).map_err(said)?;
    let archive = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get downloaded no archive of {package}"))?;
    let unpacked = folder.join("unpacked");
    shell::capture(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
    Ok(unpacked)
}

fn private_options(folder: &Path, list: &Path) -> Vec<String> {
    let mut options = vec![
        format!("Dir::Etc::sourcelist={}", list.display()),
        "Dir::Etc::sourceparts=-".to_string(),
        format!("Dir::State={}/state", folder.display()),
        "Dir::State::status=/var/lib/dpkg/status".to_string(),
        format!("Dir::Cache={}/cache", folder.display()),
        "Acquire::Languages=none".to_string(),
        "Acquire::Retries=3".to_string(),
    ];
    if is_root() {
        // The folder may lie where apt's own unprivileged user cannot write.
        options.push("APT::Sandbox::User=root".to_string());
    }
    options
}

/// Version of an installed package, by the package manager's word; `None` when it is not installed.
pub fn installed_version(package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status} ${Version}", package]);
    let text = shell::capture(&mut query).ok()?;
    text.strip_prefix("installed ").map(str::to_string)
}

/// The distribution's identifier and release name, e.g. `("debian", "bookworm")`.
pub fn release() -> Option<(String, String)> {
    release_of(&std::fs::read_to_string("/etc/os-release").ok()?)
}

fn release_of(text: &str) -> Option<(String, String)> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_string())
    };
    Some((field("ID")?, field("VERSION_CODENAME")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_with_and_without_quotes() {
        let text = "NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=\"debian\"\n";
        assert_eq!(release_of(text), Some(("debian".into(), "bookworm".into())));
        assert_eq!(release_of("ID=arch\n"), None);
    }

    #[test]
    fn nothing_to_install_runs_nothing() {
        assert!(install(&[]).is_ok());
    }

    #[test]
    fn a_refusal_lists_every_package() {
        let text = refusal(&["g++", "libvulkan1"]);
        assert!(text.ends_with("apt-get install g++ libvulkan1"), "{text}");
    }

    #[test]
    fn the_private_apt_names_only_its_own_folder_and_the_package_database() {
        let options = private_options(Path::new("/w"), Path::new("/w/private.sources"));
        let outside = |text: &&String| text.contains("=/") && !text.contains("=/w");
        let outside: Vec<&String> = options.iter().filter(outside).collect();
        assert_eq!(outside, ["Dir::State::status=/var/lib/dpkg/status"]);
    }
}
