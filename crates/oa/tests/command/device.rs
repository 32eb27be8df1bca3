//! Runs on a device: killed, interrupted, resumed, measured, used.

use crate::place::{Ended, Place, device, digests};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A run of 24 small steps on the built-in corpus.
pub const RUN: &[&str] = &[
    "train",
    "--arch",
    "rnn",
    "--width",
    "16",
    "--batch",
    "4",
    "--context",
    "12",
    "--steps",
    "24",
    "--checkpoint-every",
    "8",
    "--eval-every",
    "12",
    "--eval-batches",
    "2",
    "--lr",
    "0.01",
    "--json",
];

pub fn train(place: &Place, out: &str, more: &[&str]) -> Ended {
    let arguments: Vec<&str> = RUN.iter().chain(&["--out", out]).chain(more).copied().collect();
    place.succeed(&arguments)
}

/// Starts the run and returns it once its checkpoint of step 8 is saved.
fn start_until_saved(place: &Place, out: &str) -> Child {
    let arguments: Vec<&str> = RUN.iter().chain(&["--out", out]).copied().collect();
    let mut command = place.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let saved = events.find(|event| event["event"] == "checkpoint");
    assert_eq!(saved.map(|event| event["step"].clone()), Some(8.into()), "{:?}", child.wait());
    child
}

/// Step, loss, gradient norm and learning rate of every line of a run's metrics.
fn measured(place: &Place, out: &str) -> Vec<String> {
    let text = std::fs::read_to_string(place.at(out).join("metrics.csv")).unwrap();
    let cells = |line: &str| line.split(',').take(4).collect::<Vec<_>>().join(",");
    text.lines().map(cells).collect()
}

pub fn check_same(place: &Place, one: &str, other: &str) {
    let last = |out: &str| digests(place, &place.at(out).join("step-00000024.oam"));
    assert_eq!(last(one), last(other));
    assert_eq!(measured(place, one), measured(place, other));
}

#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "whole", &[]);
    let mut child = start_until_saved(&place, "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.at("killed").join("step-00000024.oam").exists(), "it was killed in the middle");
    let resumed = place.succeed(&["train", "--resume", "killed", "--json"]);
    assert_eq!(resumed.events("done").len(), 1);
    check_same(&place, "whole", "killed");
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_saves_says_how_to_go_on_and_resumes_to_the_same_bits() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "whole", &[]);
    let child = start_until_saved(&place, "interrupted");
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signalled.unwrap().success());
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0));
    let told = ended.events("interrupted");
    if told.is_empty() {
        // The signal came after the last step: nothing is left to resume.
        assert_eq!(ended.events("done").len(), 1);
    } else {
        assert_eq!(told[0]["resume"], "oa train --resume interrupted");
        place.succeed(&["train", "--resume", "interrupted", "--eager"]);
    }
    check_same(&place, "whole", "interrupted");
}

#[test]
fn a_run_with_muon_and_frozen_parameters_resumes_to_the_same_bits() {
    if !device() {
        return;
    }
    let place = Place::new();
    let more = ["--optimizer", "muon", "--momentum", "0.9", "--freeze", "embed", "--keep", "9"];
    train(&place, "whole", &more);
    let parameters = |step: &str| oa::io::load(place.at("whole").join(step)).unwrap();
    let (early, late) = (parameters("step-00000008.oam"), parameters("step-00000024.oam"));
    let stays = |name: &str| {
        let of = |checkpoint: &oa::ml::Checkpoint| {
            checkpoint.tensors.iter().find(|tensor| tensor.name == name).unwrap().clone()
        };
        of(&early) == of(&late)
    };
    assert!(stays("embed") && !stays("head"));
    std::fs::create_dir(place.at("half")).unwrap();
    let half = "step-00000008.oam";
    std::fs::copy(place.at("whole").join(half), place.at("half").join(half)).unwrap();
    place.succeed(&["train", "--resume", "half", "--json"]);
    let last = |out: &str| digests(&place, &place.at(out).join("step-00000024.oam"));
    assert_eq!(last("whole"), last("half"));
}

#[test]
fn patterns_without_a_parameter_start_nothing() {
    if !device() {
        return;
    }
    let place = Place::new();
    let refuse = |patterns: &[&str], cause: &str| {
        let arguments: Vec<&str> =
            RUN.iter().chain(&["--out", "none", "--freeze"]).chain(patterns).copied().collect();
        let ended = place.run(&arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        assert!(ended.err.contains(cause), "{}", ended.err);
        assert!(!place.at("none").exists());
    };
    refuse(&["head", "b0.*"], "pattern `b0.*` matches none of the 7 parameters");
    refuse(&["*"], "all 7 parameters are frozen: nothing is left to train");
}

#[test]
fn a_finished_run_can_be_made_longer() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "whole", &[]);
    let mut shorter = RUN.to_vec();
    let steps = shorter.iter().position(|word| *word == "24").unwrap();
    shorter[steps] = "8";
    place.succeed(&[&shorter[..], &["--out", "longer"]].concat());
    place.succeed(&["train", "--resume", "longer", "--steps", "24"]);
    check_same(&place, "whole", "longer");
    let ended = place.run(&["train", "--resume", "longer", "--steps", "23"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("cause: it has done 24 steps, --steps is 23\n"), "{}", ended.err);
}

#[test]
fn eager_steps_give_the_bits_of_captured_ones() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "captured", &[]);
    train(&place, "eager", &["--eager", "--accumulation", "1"]);
    check_same(&place, "captured", "eager");
}

#[test]
fn a_run_leaves_its_files_and_its_model_can_be_used() {
    if !device() {
        return;
    }
    let place = Place::new();
    let ended = train(&place, "run", &["--keep", "2"]);
    assert_eq!(ended.events("step").len(), 24);
    let losses: Vec<f64> =
        ended.events("step").iter().map(|event| event["loss"].as_f64().unwrap()).collect();
    assert!(losses[23] < losses[0], "it learns: {losses:?}");
    let mut names: Vec<_> = std::fs::read_dir(place.at("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "best",
        "loss.svg",
        "metrics.csv",
        "settings.toml",
        "step-00000016.oam",
        "step-00000024.oam",
    ];
    assert_eq!(names, expected);

    let measured = place.succeed(&["eval", "run", "--context", "12", "--json"]).json();
    assert!(measured["loss"].as_f64().unwrap() < losses[0]);
    assert_eq!(measured["predictions"], 575);

    let generate = ["generate", "run", "--prompt", "my ", "--tokens", "9", "--temperature", "0"];
    let text = place.succeed(&generate).out;
    assert!(text.starts_with("my ") && text.len() == 12, "{text:?}");
    assert_eq!(place.succeed(&generate).out, text);

    let stopped = [&generate[..], &["--stop", &text[6..8]]].concat();
    let cut = 3 + text[3..].find(&text[6..8]).unwrap();
    assert_eq!(place.succeed(&stopped).out, text[..cut]);
    let kept = place.succeed(&[&stopped[..], &["--keep-stop"]].concat()).out;
    assert_eq!(kept, text[..cut + 2]);
    std::fs::write(place.at("prompts.txt"), "my \nuncle built\na\n").unwrap();
    let many = ["generate", "run", "--tokens", "9", "--json"];
    let several =
        place.succeed(&[&many[..], &["--prompts", "prompts.txt", "--batch", "2"]].concat());
    let rows = several.events("generation");
    assert_eq!(rows.len(), 3);
    for (number, prompt) in ["my ", "uncle built", "a"].into_iter().enumerate() {
        let seed = number.to_string();
        let alone = place.succeed(&[&many[..], &["--prompt", prompt, "--seed", &seed]].concat());
        assert_eq!(rows[number]["tokens"], alone.json()["tokens"], "{prompt}");
        assert_eq!(
            (&rows[number]["number"], &rows[number]["end"]),
            (&number.into(), &"length".into())
        );
    }

    let used = place.run(&["train", "--out", "run"]);
    assert_eq!(used.code, Some(2));
    assert!(used.err.contains("continue it with `oa train --resume run`"), "{}", used.err);
}

/// Two files of text and one of JSONL with a bad line, in a folder.
fn library(place: &Place) {
    std::fs::create_dir_all(place.at("texts/more")).unwrap();
    let lines = |word: &str| {
        let line = |number: u32| format!("{{\"text\": \"{word} number {number} of many\"}}\n");
        (0..40).map(line).collect::<String>()
    };
    std::fs::write(place.at("texts/a.jsonl"), lines("cat")).unwrap();
    std::fs::write(place.at("texts/more/b.jsonl"), lines("dog") + "no document\n").unwrap();
    std::fs::write(place.at("texts/c.txt"), "a text of its own").unwrap();
    std::fs::write(place.at("texts/d.rs"), "fn none() {}").unwrap();
}

#[test]
fn a_streamed_run_resumes_in_the_middle_of_an_epoch_to_the_same_bits() {
    if !device() {
        return;
    }
    let place = Place::new();
    library(&place);
    let flags = ["--data", "texts", "--skip-bad-lines", "--separator", "10"];
    let started = train(&place, "whole", &flags).events("start").remove(0);
    assert_eq!(started["documents"]["train"].as_u64().unwrap() + 8, 81, "{started}");
    assert_eq!((&started["skipped_lines"], &started["files"]), (&1.into(), &3.into()));
    let mut shorter = RUN.to_vec();
    let steps = shorter.iter().position(|word| *word == "24").unwrap();
    shorter[steps] = "13";
    place.succeed(&[&shorter[..], &flags, &["--out", "halves"]].concat());
    place.succeed(&["train", "--resume", "halves", "--steps", "24", "--eager"]);
    check_same(&place, "whole", "halves");
    let measured =
        place.succeed(&["eval", "whole", "--data", "texts", "--context", "12", "--json"]);
    assert!(measured.json()["predictions"].as_u64().unwrap() > 100, "{}", measured.out);
    let part = ["eval", "whole", "--data", "texts", "--context", "12", "--json", "--part", "whole"];
    let whole = place.succeed(&part).json()["predictions"].as_u64().unwrap();
    // Every byte but the first of each of the 81 documents, and their separators.
    let bytes: usize = (0..40).map(|n: usize| 2 * (19 + n.to_string().len())).sum::<usize>() + 17;
    assert_eq!(whole, bytes as u64, "predictions of the whole text");
    for (tokenizer, vocabulary) in [("bpe:280", 280), ("char", 29)] {
        let flags = ["--data", "texts", "--skip-bad-lines", "--tokenizer", tokenizer];
        let started = train(&place, &tokenizer[..3], &flags).events("start").remove(0);
        assert_eq!(started["vocabulary"], vocabulary, "{started}");
        let measured = ["eval", &tokenizer[..3], "--data", "texts", "--context", "12", "--json"];
        let measured = place.succeed(&measured).json();
        assert!(measured["bits_per_byte"].as_f64().unwrap() > 0.0, "{measured}");
    }
    let other = train(&place, "straight", &["--data", "texts/a.jsonl", "--seed", "7"]);
    let losses =
        |ended: &Ended| ended.events("step").iter().map(|e| e["loss"].clone()).collect::<Vec<_>>();
    assert_eq!(losses(&other).len(), 24);
    std::fs::write(place.at("texts/c.txt"), "another text").unwrap();
    let ended = place.run(&["train", "--resume", "halves", "--steps", "30"]);
    assert!(ended.err.contains("texts is not the text that the run began with"), "{}", ended.err);
}

#[test]
fn a_run_that_no_longer_learns_stops_early_and_keeps_its_best() {
    if !device() {
        return;
    }
    let place = Place::new();
    let early = ["--eval-every", "1", "--patience", "2", "--min-delta", "0.5", "--keep", "1"];
    let mut run: Vec<&str> = RUN.to_vec();
    for (flag, value) in [("--eval-every", "1"), ("--lr", "0.3"), ("--steps", "60")] {
        let at = run.iter().position(|word| *word == flag).unwrap();
        run[at + 1] = value;
    }
    let ended = place.succeed(&[&run[..], &early[2..], &["--out", "run"]].concat());
    let done = ended.events("done").remove(0);
    assert_eq!(done["stopped_early"], true, "{done}");
    let step = done["step"].as_u64().unwrap();
    assert!(step < 60, "{done}");
    let evaluations = ended.events("evaluation");
    let losses: Vec<f64> = evaluations.iter().map(|e| e["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len() as u64, step);
    let lowest = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    let best = format!("run/step-{:08}.oam", lowest.0 + 1);
    assert_eq!(done["best_file"], best.as_str());
    assert!(place.at(&best).exists());
    let kept = std::fs::read_dir(place.at("run")).unwrap();
    let kept =
        kept.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "oam"));
    assert_eq!(kept.count(), if lowest.0 as u64 + 1 == step { 1 } else { 2 });
}

#[test]
fn a_changed_text_is_not_resumed() {
    if !device() {
        return;
    }
    let place = Place::new();
    let text = "the cat sat on the mat and the dog ate the hat ".repeat(20);
    std::fs::write(place.at("text.txt"), &text).unwrap();
    train(&place, "run", &["--data", "text.txt"]);
    std::fs::write(place.at("text.txt"), text.replace("cat", "cow")).unwrap();
    let ended = place.run(&["train", "--resume", "run"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("text.txt is not the text that the run began with"),
        "{}",
        ended.err
    );
}

#[test]
fn damaged_files_and_unwritable_folders_are_told() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "run", &[]);
    let file = place.at("run").join("step-00000024.oam");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let ended = place.run(&["generate", "run"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("changed after it was written: its checksum"), "{}", ended.err);
    std::fs::write(&file, &bytes[..middle]).unwrap();
    let ended = place.run(&["train", "--resume", "run"]);
    let cause = format!("cause: it ends after {middle} bytes of {}\n", bytes.len());
    assert!(ended.err.contains(&cause), "{}", ended.err);
    for bytes in [&b""[..], b"no model"] {
        std::fs::write(&file, bytes).unwrap();
        for command in [&["train", "--resume", "run"][..], &["generate", "run"]] {
            let ended = place.run(command);
            assert_eq!(ended.code, Some(1));
            let older = "; run/step-00000016.oam is the checkpoint before it\n";
            assert!(ended.err.ends_with(older), "{}", ended.err);
        }
    }
    if Path::new("/proc").exists() {
        let ended = place.run(&["train", "--out", "/proc/oa"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.contains("error: cannot make the folder /proc/oa\n"), "{}", ended.err);
    }
}

#[test]
fn a_loss_that_is_no_number_stops_with_its_step_and_tensor() {
    if !device() {
        return;
    }
    let place = Place::new();
    let arguments: Vec<&str> =
        RUN.iter().chain(&["--out", "run", "--lr", "1e38"]).copied().collect();
    let arguments: Vec<&str> = match arguments.iter().position(|word| *word == "0.01") {
        Some(at) => [&arguments[..at - 1], &arguments[at + 1..]].concat(),
        None => arguments,
    };
    let ended = place.run(&arguments);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(
        ended.err.contains("error: the training stopped\ncause: training stopped: "),
        "{}",
        ended.err
    );
    assert!(ended.err.contains(" at step "), "{}", ended.err);
    let saved = std::fs::read_dir(place.at("run")).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_some_and(|ending| ending == "oam")
    });
    let remedy = match saved {
        true => "to do: lower --lr or raise --warmup; the last checkpoint is still good\n",
        false => {
            "to do: lower --lr or raise --warmup, and start again with another --out: no \
             checkpoint was saved\n"
        }
    };
    assert!(ended.err.ends_with(remedy), "{}", ended.err);
}

#[test]
fn an_unknown_device_ends_with_3() {
    if !device() {
        return;
    }
    let place = Place::new();
    let ended = place.run(&["train", "--device", "no such device"]);
    assert_eq!(ended.code, Some(3));
    let start = "error: cannot open a Vulkan device\n\
                 cause: no Vulkan device matches \"no such device\"; there are:\n  0: ";
    assert!(ended.err.starts_with(start), "{}", ended.err);
}

#[test]
fn devices_and_doctor_tell_people_and_programs() {
    if !device() {
        return;
    }
    let place = Place::new();
    let devices = place.succeed(&["devices", "--json"]).json();
    let devices = devices["devices"].as_array().unwrap();
    assert!(devices.iter().any(|device| device["usable"] == true && device["chosen"] == true));
    let name = devices[0]["name"].as_str().unwrap();
    assert!(place.succeed(&["devices"]).out.contains(name));
    let doctor = place.succeed(&["doctor", "--json"]).json();
    assert_eq!(doctor["usable"], true);
    assert!(place.succeed(&["doctor"]).out.contains("a thousand sums are right"));
}

#[test]
fn a_text_too_short_to_measure_is_told_what_eval_takes() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "run", &[]);
    std::fs::write(place.at("short.txt"), "too short").unwrap();
    let ended = place.run(&["eval", "run", "--data", "short.txt"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.ends_with(
            "error: cannot evaluate\n\
         cause: the corpus has 1 tokens, but a sequence length of 64 needs at least 65\n\
         to do: give a longer text with --data, a smaller --context, or --part whole\n"
        ),
        "{}",
        ended.err
    );
}

#[test]
fn reports_are_json_where_it_is_asked_for() {
    if !device() {
        return;
    }
    let place = Place::new();
    place.succeed(&["plan", "rnn", "--batch", "2", "--profile", "0", "--report", "a.json"]);
    let written = std::fs::read_to_string(place.at("a.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(place.succeed(&["report", "show", "a.json", "--json"]).json(), written);
    let whole = place.succeed(&["report", "diff", "a.json", "a.json", "--json"]).json();
    assert_eq!(whole["before"], "a.json");
    assert_eq!(whole["lines"][0], "both plans have the same steps");
}
