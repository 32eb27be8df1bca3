//! Numbers and names that no run can have: refused before a device is opened, never a panic.

use crate::place::{Ended, Place};

/// Numbers that overflow one product or another, or that no memory could hold.
const HUGE: [&str; 3] = ["18446744073709551615", "4294967296", "1000000000"];

fn refused(place: &Place, arguments: &[&str]) -> Ended {
    let ended = place.run(arguments);
    assert_eq!(ended.code, Some(2), "oa {arguments:?}:\n{}{}", ended.out, ended.err);
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    ended
}

#[test]
fn huge_counts_are_refused_with_the_setting_and_its_limit() {
    let place = Place::new();
    let check = |arguments: &[&str], flag: &str, value: &str| {
        let arguments: Vec<&str> = arguments.iter().chain(&[flag, value]).copied().collect();
        let ended = refused(&place, &arguments);
        // What does not fit the type of a flag is refused where flags are read.
        let read = ended.err.contains(&format!("'{flag} <N>': it must be at most 4096"));
        let limit = ended.err.contains(&format!("{flag} is {value}\nto do: it must be at most "));
        assert!(read || limit, "{arguments:?}: {}", ended.err);
    };
    let common =
        ["--batch", "--context", "--layers", "--accumulation", "--steps", "--eval-batches"];
    for value in HUGE {
        for flag in ["--width", "--ff", "--heads", "--kv-heads", "--head-dim"].iter().chain(&common)
        {
            if ["--steps", "--eval-batches"].contains(flag) && value != HUGE[0] {
                continue;
            }
            check(&["train"], flag, value);
        }
        for flag in ["--width", "--hidden", "--layers"] {
            check(&["train", "--arch", "rnn"], flag, value);
        }
        for flag in ["--state", "--groups", "--rank", "--head-dim", "--heads"] {
            check(&["train", "--arch", "mamba3"], flag, value);
        }
        for flag in ["--experts", "--top-k"] {
            check(&["train", "--arch", "moe"], flag, value);
        }
        for flag in ["--batch", "--context"] {
            check(&["eval", "none"], flag, value);
            check(&["plan", "gru"], flag, value);
        }
    }
    check(&["eval", "none"], "--batches", HUGE[0]);
    let ended = refused(&place, &["train", "--batch", "65536", "--context", "65536"]);
    let cause = "cause: --batch 65536 of --context 65536 are 4294967296 tokens\n\
                 to do: a batch has at most 67108864\n";
    assert!(ended.err.contains(cause), "{}", ended.err);
    let step = ["train", "--batch", "65536", "--context", "1024", "--accumulation", "4096"];
    let ended = refused(&place, &step);
    assert!(ended.err.contains("a step has at most 268435456"), "{}", ended.err);
    let whole = ["train", "--width", "1048576", "--head-dim", "128", "--ff", "1048576"];
    let ended = refused(&place, &whole);
    assert!(ended.err.contains("the number of parameters is "), "{}", ended.err);
    assert!(ended.err.contains(", at most 8589934592 is supported"), "{}", ended.err);
}

#[test]
fn counts_of_0_are_refused_by_every_task() {
    let place = Place::new();
    for arguments in [
        ["eval", "none", "--batch", "0"],
        ["eval", "none", "--context", "0"],
        ["eval", "none", "--batches", "0"],
        ["plan", "gru", "--batch", "0"],
        ["plan", "gru", "--context", "0"],
    ] {
        let ended = refused(&place, &arguments);
        let cause = format!("cause: {} is 0\nto do: it must be at least 1\n", arguments[2]);
        assert!(ended.err.contains(&cause), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn numbers_below_0_reach_what_says_why_not() {
    let place = Place::new();
    let ended = refused(&place, &["train", "--lr", "-1"]);
    assert!(ended.err.contains("lr is -1, it must be finite and not negative"), "{}", ended.err);
    let ended = refused(&place, &["train", "--clip", "-0.5"]);
    assert!(ended.err.contains("--clip is -0.5"), "{}", ended.err);
    let ended = refused(&place, &["train", "--layers", "-1"]);
    assert!(ended.err.contains("invalid value '-1' for '--layers <N>'"), "{}", ended.err);
    let ended = refused(&place, &["train", "--rope-base", "-2"]);
    assert!(ended.err.contains("a rotary base is -2, it must be positive"), "{}", ended.err);
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf_8_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    for flag in ["--out", "--data"] {
        let mut command = place.command(&["train", flag]);
        command.arg(OsStr::from_bytes(b"oam/o\xff"));
        let ended = Ended::of(&command.output().unwrap());
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        let cause = format!("cause: {flag} is oam/o\u{fffd}, a name that is not UTF-8\n");
        assert!(ended.err.contains(&cause), "{}", ended.err);
    }
}

#[test]
fn reports_are_not_written_over_models_or_each_other() {
    let place = Place::new();
    std::fs::write(place.at("a.oam"), "a model").unwrap();
    std::fs::write(place.at("a.json"), "a report").unwrap();
    let twice = "cause: this call names that file twice\n";
    let saved = "cause: its name ends in .oam, as that of a saved model\n";
    for (arguments, cause) in [
        (&["plan", "gru", "--html", "x", "--report", "./x"][..], twice),
        (&["report", "html", "a.json", "./a.json"], twice),
        (&["plan", "gru", "--report", "a.oam"], saved),
        (&["plan", "gru", "--html", "a.oam"], saved),
        (&["report", "html", "a.json", "a.oam"], saved),
        (&["contract", "--report", "a.oam"], saved),
    ] {
        let ended = refused(&place, arguments);
        assert!(ended.err.contains(cause), "{arguments:?}: {}", ended.err);
    }
    assert_eq!(std::fs::read_to_string(place.at("a.oam")).unwrap(), "a model");
    assert_eq!(std::fs::read_to_string(place.at("a.json")).unwrap(), "a report");
}

#[test]
fn calls_that_are_none_are_json_too_where_it_is_asked_for() {
    let place = Place::new();
    let ended = refused(&place, &["train", "--hiden", "3", "--json"]);
    let error = ended.json();
    assert_eq!(error["event"], "error");
    assert_eq!(error["exit_code"], 2);
    assert_eq!(error["error"], "unexpected argument '--hiden' found");
    assert!(ended.err.contains("unexpected argument '--hiden'"), "{}", ended.err);
    let help = place.succeed(&["train", "--help", "--json"]);
    assert!(help.out.contains("Usage: oa train"), "{}", help.out);
}

#[test]
fn the_doctor_does_not_send_to_the_doctor() {
    let place = Place::new();
    let mut command = place.command(&["doctor"]);
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        command.env(name, "/nowhere/driver.json");
    }
    command.env_remove("OA_DEVICE").env_remove("OA_VALIDATION");
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(!ended.out.contains("oa doctor") && !ended.err.contains("oa doctor"), "{}", ended.err);
    let mut command = place.command(&["doctor"]);
    command.env("OA_VULKAN_LIBRARY", "/nowhere/libvulkan.so.1");
    let ended = Ended::of(&command.output().unwrap());
    assert!(ended.err.ends_with("to do: install it\n"), "{}", ended.err);
}
