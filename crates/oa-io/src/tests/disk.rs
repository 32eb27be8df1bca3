//! A disk that is full or not writable, and what stays behind.

use super::fixture::{self, Folder, bits};
use crate::CheckpointFolder;
use crate::error::{Action, Broken, Error};
use crate::{load, save, writer};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

/// Says past the capture of the test harness that something could not be tested.
fn say_skipped(what: &str) {
    let line = format!("SKIPPED oa-io: {what}\n");
    match OpenOptions::new().append(true).open("/dev/stderr") {
        Ok(mut console) => console.write_all(line.as_bytes()).unwrap(),
        Err(_) => eprint!("{line}"),
    }
}

fn write_error(error: &Error) -> ErrorKind {
    match error {
        Error::Io { action: Action::Write, source, .. } => source.kind(),
        other => panic!("{other:?}"),
    }
}

/// A small file system in memory, gone at the end.
struct SmallDisk(Folder);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let folder = Folder::new();
        let mount = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"];
        let status = Command::new("mount").args(mount).arg(&folder.0).output();
        status.is_ok_and(|output| output.status.success()).then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0.0).status();
        assert!(status.is_ok_and(|status| status.success()), "the test's file system is unmounted");
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_and_no_litter() {
    let Some(disk) = SmallDisk::mount() else {
        return say_skipped("a full disk: a small tmpfs cannot be mounted here (needs root)");
    };
    let path = disk.0.0.join("a.oam");
    save(&path, &fixture::rnn()).unwrap();
    let before = fs::read(&path).unwrap();
    let mut large = fixture::rnn();
    large.tensors[0].shape = vec![1 << 16];
    large.tensors[0].data = vec![0.5; 1 << 16];
    let error = save(&path, &large).unwrap_err();
    assert_eq!(write_error(&error), ErrorKind::StorageFull);
    assert_eq!(
        error.to_string(),
        format!(
            "cannot save to {}: No space left on device (os error 28); \
             free some space or save elsewhere; the file of that name is as it was",
            path.display()
        )
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(disk.0.names(), ["a.oam"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_told_as_such() {
    let mut file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    match writer::write(&mut file, &fixture::rnn()) {
        Err(Broken::Io(error)) => assert_eq!(error.kind(), ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_folder_and_a_file_as_a_folder_are_told() {
    let folder = Folder::new();
    let error = save(folder.0.join("no/a.oam"), &fixture::rnn()).unwrap_err();
    assert_eq!(write_error(&error), ErrorKind::NotFound);
    assert_eq!(error.advice(), "make the folder first or save elsewhere");
    fs::write(folder.0.join("plain"), b"x").unwrap();
    let error = save(folder.0.join("plain/a.oam"), &fixture::rnn()).unwrap_err();
    assert_eq!(write_error(&error), ErrorKind::NotADirectory);
    fs::create_dir(folder.0.join("a.oam")).unwrap();
    let error = save(folder.0.join("a.oam"), &fixture::rnn()).unwrap_err();
    assert_eq!(write_error(&error), ErrorKind::IsADirectory);
    assert_eq!(folder.names(), ["a.oam", "plain"]);
}

#[cfg(unix)]
#[test]
fn an_unwritable_folder_leaves_the_old_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.0.join("a.oam");
    save(&path, &fixture::rnn()).unwrap();
    let before = fs::read(&path).unwrap();
    let mode = |bits| fs::set_permissions(&folder.0, fs::Permissions::from_mode(bits)).unwrap();
    mode(0o555);
    let outcome = save(&path, &fixture::transformer());
    mode(0o755);
    match outcome {
        // The superuser may write everywhere; the read-only file system below stands in.
        Ok(_) => assert_eq!(bits(&load(&path).unwrap()), bits(&fixture::transformer())),
        Err(error) => {
            assert_eq!(write_error(&error), ErrorKind::PermissionDenied);
            assert_eq!(fs::read(&path).unwrap(), before);
            assert_eq!(folder.names(), ["a.oam"]);
        }
    }
}

#[test]
fn a_read_only_file_system_leaves_the_old_file() {
    let Some(disk) = SmallDisk::mount() else {
        return say_skipped("a read-only disk: a small tmpfs cannot be mounted here (needs root)");
    };
    let path = disk.0.0.join("a.oam");
    save(&path, &fixture::rnn()).unwrap();
    let before = fs::read(&path).unwrap();
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0.0).status();
    assert!(remount.unwrap().success());
    let error = save(&path, &fixture::transformer()).unwrap_err();
    assert_eq!(write_error(&error), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(
        error.to_string(),
        format!(
            "cannot save to {}: Read-only file system (os error 30); make the folder writable \
             or save elsewhere; the file of that name is as it was",
            path.display()
        )
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(disk.0.names(), ["a.oam"]);
}

#[test]
fn litter_of_a_killed_writer_goes_and_that_of_a_living_one_stays() {
    let folder = Folder::new();
    let (dead, living) = (folder.0.join(".a.oam.1-0.tmp"), folder.0.join(".a.oam.2-0.tmp"));
    fs::write(&dead, b"half").unwrap();
    let held = File::create(&living).unwrap();
    held.lock().unwrap();
    save(folder.0.join("a.oam"), &fixture::rnn()).unwrap();
    assert_eq!(folder.names(), [".a.oam.2-0.tmp", "a.oam"]);
}

#[test]
fn the_checkpoint_before_a_bad_one_is_found() {
    let folder = Folder::new();
    let [one, two, three] =
        [3, 50, 9_000_000].map(|step| folder.0.join(format!("step-{step:08}.oam")));
    save(&one, &fixture::rnn()).unwrap();
    save(&two, &fixture::rnn()).unwrap();
    fs::write(&three, b"").unwrap();
    assert_eq!(CheckpointFolder::before(&three), Some(two.clone()));
    fs::write(&two, b"no model").unwrap();
    assert_eq!(CheckpointFolder::before(&three), Some(one.clone()));
    assert_eq!(CheckpointFolder::before(&one), None);
    assert_eq!(CheckpointFolder::before(folder.0.join("a.oam")), None);
}

#[test]
fn what_cannot_be_read_is_told_at_once() {
    let folder = Folder::new();
    let check = |path: &Path, cause: &str, advice: &str| {
        let error = load(path).unwrap_err();
        assert_eq!((error.cause().as_str(), error.advice()), (cause, advice));
    };
    let missing = folder.0.join("a.oam");
    check(&missing, "No such file or directory (os error 2)", "check the path");
    check(&folder.0, "is a directory", "give a file of this folder");
    if cfg!(target_os = "linux") {
        let cause = "it is a device, a pipe or a socket, not a file";
        let advice = "check the disk, or use another copy of the file";
        check(Path::new("/dev/zero"), cause, advice);
    }
    fs::write(&missing, b"").unwrap();
    let cause = "it does not begin with the bytes of an .oam file";
    check(&missing, cause, "give a file that was saved by OA");
}

#[test]
fn saving_over_a_file_replaces_it() {
    let folder = Folder::new();
    let path = folder.0.join("a.oam");
    save(&path, &fixture::transformer()).unwrap();
    save(&path, &fixture::rnn()).unwrap();
    assert_eq!(bits(&load(&path).unwrap()), bits(&fixture::rnn()));
    assert_eq!(folder.names(), ["a.oam"]);
}
