//! A folder to run the command in, and what running it gave.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end.
pub struct Place {
    path: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("oa-command-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place { path }
    }

    /// A path in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The command, in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oa"));
        command.args(arguments).current_dir(&self.path).env_remove("OA_LOG");
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.command(arguments).output().unwrap())
    }

    /// Runs the command, which must succeed.
    pub fn succeed(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "oa {arguments:?}:\n{}{}", ended.out, ended.err);
        ended
    }

    /// Runs the command, which must fail with that code and that text.
    pub fn fail(&self, arguments: &[&str], code: i32, err: &str) {
        let ended = self.run(arguments);
        assert_eq!((ended.err.as_str(), ended.code), (err, Some(code)), "oa {arguments:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _litter = std::fs::remove_dir_all(&self.path);
    }
}

/// A command that ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(output: &Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The output as one JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// The events of a JSON output that have a name.
    pub fn events(&self, name: &str) -> Vec<Value> {
        let events = self.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == name).collect()
    }
}

/// False, and loud, where no device can be used.
pub fn device() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = oa::Engine::new();
        let required = std::env::var_os("OA_REQUIRE_DEVICE").is_some();
        match found {
            Ok(_) => true,
            Err(error) if required => panic!("OA_REQUIRE_DEVICE is set, but: {error}"),
            Err(error) => {
                let line = format!("SKIPPED tests of the oa command that need a device: {error}\n");
                match std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
                    Ok(mut console) => console.write_all(line.as_bytes()).unwrap(),
                    Err(_) => eprint!("{line}"),
                }
                false
            }
        }
    })
}

/// Digests of the tensors that a checkpoint holds.
pub fn digests(place: &Place, file: &Path) -> Vec<Value> {
    let summary = place.succeed(&["inspect", "--verify", "--json", file.to_str().unwrap()]).json();
    let sections = summary["sections"].as_array().unwrap();
    let tensors = sections.iter().filter(|section| section["kind"] != "manifest");
    tensors.map(|section| section["digest"].clone()).collect()
}
