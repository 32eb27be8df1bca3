//! A disk that fills up under the `oa` command. Part of the suite `errors`.
//!
//! The command's other errors are tested beside it; this one needs a file system of its own, so it
//! lives where a skip can be told from a pass. The last good checkpoint must survive.

use crate::context::{Context, Outcome, trial};
use crate::errors::says;
use crate::process::{Ended, Scratch, oa};
use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use oa_tests::case::Checks;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// Room for one checkpoint of the contract's recurrent network (380 kB), not for a second one
/// beside it.
const SIZE: &str = "size=600k";

/// One trial.
pub fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![trial(context, "errors/disk_full", disk_full)]
}

fn disk_full(context: &Context, checks: &mut Checks) -> Result<Outcome> {
    let scratch = Scratch::new("full")?;
    let disk = match SmallDisk::mount(scratch.join("disk"))? {
        Ok(disk) => disk,
        Err(reason) => {
            let reason = format!("a small tmpfs cannot be mounted here: {reason}");
            eprintln!("    WARNING: {reason}");
            return Ok(Outcome::Skipped(reason));
        }
    };
    let run = disk.folder.join("run");
    let mut train = Command::new(oa()?);
    train.args(["train", "--arch", "contract-rnn", "--steps", "4", "--checkpoint-every", "2"]);
    train.args(["--eval-every", "0", "--eval-batches", "1", "--out"]).arg(&run);
    if let Some(device) = &context.lab.selector {
        train.args(["--device", device]);
    }
    let ended = Ended::from(train.output().context("running oa train")?);
    ensure!(ended.code == Some(1), "oa train ended with {:?}: {}", ended.code, ended.errors);
    let report = ended.errors.find("error: ").map_or("", |start| &ended.errors[start..]);
    let wanted = format!(
        "error: cannot save to {}\n\
         cause: No space left on device (os error 28)\n\
         to do: free some space or save elsewhere; the file of that name is as it was\n",
        run.join("step-00000004.oam").display()
    );
    says(checks, "disk full", report, wanted);
    let kept = oa_io::load(run.join("step-00000002.oam"))?;
    let step = kept.training.context("a checkpoint of a run")?.step;
    checks.exact("kept", "step of the last checkpoint", &[step], &[2]);
    let names =
        std::fs::read_dir(&run)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let halves: Vec<String> =
        names.filter(|name| name.contains("step-00000004") || name.ends_with(".tmp")).collect();
    checks.exact("kept", "files left half-written", &halves, &[]);
    Ok(Outcome::Checked)
}

/// A file system of a few hundred kilobytes, unmounted when it is dropped.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts it; the inner error says why the system does not allow it.
    fn mount(folder: PathBuf) -> Result<Result<SmallDisk, String>> {
        std::fs::create_dir(&folder)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&folder);
        Ok(match mount.output() {
            Ok(output) if output.status.success() => Ok(SmallDisk { folder }),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that stays is the system's to clean: the trial is over.
        let _left = Command::new("umount").arg(&self.folder).status();
    }
}
