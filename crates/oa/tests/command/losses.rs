//! Steps, files and answers that must not be lost: output that nobody reads, signals during an
//! evaluation, two runs in one folder.

use crate::device::{RUN, check_same, train};
use crate::place::{Ended, Place, device};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The run with some of its flags changed.
fn changed<'a>(out: &'a str, changes: &[(&str, &'a str)]) -> Vec<&'a str> {
    let mut run: Vec<&str> = RUN.to_vec();
    for (flag, value) in changes {
        let at = run.iter().position(|word| word == flag).unwrap();
        run[at + 1] = value;
    }
    [&run[..], &["--out", out]].concat()
}

/// Starts a command and returns it once it has told an event.
fn start_until(place: &Place, arguments: &[&str], event: &str) -> Child {
    let mut command = place.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let told =
        lines.any(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["event"] == event);
    assert!(told, "{:?}", child.wait());
    child
}

#[test]
fn a_run_whose_output_nobody_reads_is_saved_and_resumes_to_the_same_bits() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "whole", &[]);
    let mut child = start_until(&place, &changed("unread", &[]), "start");
    drop(child.stdout.take());
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let told = ["error: cannot write the output\n", "; continue with `oa train --resume unread`\n"];
    assert!(ended.err.contains(told[0]) && ended.err.ends_with(told[1]), "{}", ended.err);
    place.succeed(&["train", "--resume", "unread", "--json"]);
    check_same(&place, "whole", "unread");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_an_evaluation_and_the_run_is_saved() {
    if !device() {
        return;
    }
    let place = Place::new();
    let changes = [("--eval-every", "1"), ("--eval-batches", "100000000")];
    let child = start_until(&place, &changed("run", &changes), "step");
    std::thread::sleep(Duration::from_millis(500));
    let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(signalled.unwrap().success());
    let began = Instant::now();
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let told = ended.events("interrupted").remove(0);
    assert_eq!((&told["step"], &told["validation_loss"]), (&1.into(), &Value::Null), "{told}");
    assert!(place.at("run/step-00000001.oam").exists());
    assert!(ended.events("evaluation").is_empty());
}

#[cfg(unix)]
#[test]
fn a_folder_is_of_one_run_at_a_time() {
    if !device() {
        return;
    }
    let place = Place::new();
    let changes = [("--steps", "1000000"), ("--checkpoint-every", "1")];
    let mut child = start_until(&place, &changed("run", &changes), "checkpoint");
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let second = place.run(&["train", "--resume", "run"]);
    let alive = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap().unwrap();
    assert!(alive, "the first run was there all the time");
    assert_eq!(second.code, Some(1), "{}", second.err);
    let told = "error: cannot train in run\n\
                cause: another run is writing to this folder\n\
                to do: wait for its end, or choose another --out\n";
    assert!(second.err.ends_with(told), "{}", second.err);
    let newest = oa::io::CheckpointFolder::newest(place.at("run")).unwrap();
    let step = oa::io::load(newest).unwrap().training.unwrap().step.to_string();
    place.succeed(&["train", "--resume", "run", "--steps", &step]);
}

#[test]
fn a_run_is_measured_on_the_windows_of_an_evaluation() {
    if !device() {
        return;
    }
    let place = Place::new();
    let ended = train(&place, "run", &[]);
    let of_run = ended.events("evaluation").pop().unwrap();
    let sizes = ["--part", "whole", "--batches", "2", "--batch", "4", "--context", "12"];
    let measured = place.succeed(&[&["eval", "run", "--json"], &sizes[..]].concat()).json();
    assert_eq!(of_run["loss"], measured["loss"]);
}
