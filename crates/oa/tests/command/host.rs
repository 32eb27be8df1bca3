//! What needs no device: wrong calls, missing files, missing drivers.

use crate::place::{Ended, Place};

#[test]
fn wrong_calls_end_with_2() {
    let place = Place::new();
    let refused = place.run(&["train", "--hiden", "3"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("unexpected argument '--hiden'"), "{}", refused.err);
    place.fail(
        &["train", "--arch", "rnn", "--heads", "2"],
        2,
        "error: cannot start this run\n\
         cause: --arch rnn has no use for --heads\n\
         to do: leave it out; its sizes are --width, --layers, --hidden, --context\n",
    );
    place.fail(
        &["train", "--resume"],
        2,
        "error: cannot resume\n\
         cause: neither --resume nor --out names a run\n\
         to do: give the run's folder: `oa train --resume FOLDER`\n",
    );
    place.fail(
        &["train", "--resume", "runs/a", "--lr", "0.1"],
        2,
        "error: cannot resume with these flags\n\
         cause: the checkpoint decides --lr\n\
         to do: leave it out, or start a new run without --resume\n",
    );
}

#[test]
fn missing_files_end_with_1() {
    let place = Place::new();
    place.fail(
        &["inspect", "a.oam"],
        1,
        "error: cannot open a.oam\n\
         cause: No such file or directory (os error 2)\n\
         to do: check the path\n",
    );
    place.fail(
        &["inspect", "."],
        1,
        "error: cannot find a checkpoint in .\n\
         cause: the folder holds no .oam file\n\
         to do: give the folder of a run, or a file\n",
    );
    place.fail(
        &["train", "--data", "no.txt"],
        1,
        "error: cannot read the text no.txt\n\
         cause: No such file or directory (os error 2)\n\
         to do: check the path\n",
    );
    std::fs::write(place.at("a.oam"), b"no model").unwrap();
    place.fail(
        &["inspect", "a.oam"],
        1,
        "error: cannot load a.oam\n\
         cause: it does not begin with the bytes of an .oam file\n\
         to do: give a file that was saved by OA\n",
    );
}

#[test]
fn bad_texts_end_with_1_before_a_device_is_opened() {
    let place = Place::new();
    std::fs::write(place.at("empty.txt"), b"").unwrap();
    place.fail(
        &["train", "--data", "empty.txt"],
        1,
        "error: cannot use this text\n\
         cause: the corpus is empty: it has no token\n\
         to do: give a text that is not empty with --data\n",
    );
    std::fs::write(place.at("short.txt"), b"too short").unwrap();
    place.fail(
        &["train", "--data", "short.txt"],
        1,
        "error: cannot train on this text\n\
         cause: the corpus has 8 tokens, but a sequence length of 64 needs at least 65\n\
         to do: give a longer text with --data, a smaller --context, or --whole to use all of the \
         text for training and evaluation\n",
    );
}

#[test]
fn texts_that_are_no_files_are_refused() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let place = Place::new();
    place.fail(
        &["train", "--data", "/dev/zero"],
        1,
        "error: cannot read the text /dev/zero\n\
         cause: it is a device, a pipe or a socket, not a file\n\
         to do: give a file or a folder with --data\n",
    );
    let made = std::process::Command::new("mkfifo").arg(place.at("pipe")).status();
    assert!(made.unwrap().success());
    for flags in [&["--data", "pipe"][..], &["--data", "pipe", "--stream"]] {
        let ended = place.run(&[&["train"], flags].concat());
        assert_eq!(ended.code, Some(1));
        let cause = "is a device, a pipe or a socket, not a file\n";
        assert!(ended.err.contains(cause), "{}", ended.err);
    }
}

#[test]
fn files_that_a_run_would_replace_are_refused() {
    let place = Place::new();
    for name in ["settings.toml", "metrics.csv", "best", "loss.svg"] {
        let folder = format!("of-{name}");
        std::fs::create_dir(place.at(&folder)).unwrap();
        std::fs::write(place.at(&folder).join(name), "mine").unwrap();
        let err = |out: &str| {
            format!(
                "error: cannot start a run in {out}\n\
                 cause: it holds {name} and no checkpoint; the run would replace that\n\
                 to do: move it away, or choose another --out\n"
            )
        };
        place.fail(&["train", "--out", &folder], 2, &err(&folder));
        let mut command = place.command(&["train", "--out", "."]);
        let ended = Ended::of(&command.current_dir(place.at(&folder)).output().unwrap());
        assert_eq!((ended.code, ended.err), (Some(2), err(".")));
        std::fs::write(place.at("step-00000001.oam"), "never read").unwrap();
        place.fail(&["train", "--resume", ".", "--out", &folder], 2, &err(&folder));
        let text = std::fs::read_to_string(place.at(&folder).join(name)).unwrap();
        assert_eq!(text, "mine");
    }
}

#[test]
fn bad_streams_end_with_1_before_a_device_is_opened() {
    let place = Place::new();
    std::fs::create_dir(place.at("empty")).unwrap();
    place.fail(
        &["train", "--data", "empty"],
        1,
        "error: cannot use this text\n\
         cause: the folder empty holds no file that ends in .txt, .md, .jsonl, .ndjson\n\
         to do: name other endings with --extensions\n",
    );
    std::fs::write(place.at("a.jsonl"), "{\"text\": \"one\"}\n{\"body\": \"two\"}\n").unwrap();
    place.fail(
        &["train", "--data", "a.jsonl"],
        1,
        "error: cannot use this text\n\
         cause: a.jsonl, line 2: the object has no field `text`\n\
         to do: mend that line, name the --field, or leave such lines out with --skip-bad-lines\n",
    );
    std::fs::write(place.at("a.jsonl"), b"{\"text\": \"\xff\"}\n").unwrap();
    let ended = place.run(&["train", "--data", "a.jsonl"]);
    assert!(
        ended.err.contains("a.jsonl, line 1: byte 11 of the line is not UTF-8"),
        "{}",
        ended.err
    );
    std::fs::write(place.at("a.jsonl"), "one\n\ntwo\n").unwrap();
    place.fail(
        &["train", "--data", "a.jsonl", "--skip-bad-lines"],
        1,
        "error: cannot use this text\n\
         cause: no document is left: 2 bad lines are left out\n\
         to do: name the --field, or give another text with --data\n",
    );
    std::fs::write(place.at("short.txt"), b"too short").unwrap();
    place.fail(
        &["train", "--data", "short.txt", "--stream"],
        1,
        "error: cannot use this text\n\
         cause: of 1 documents 0 are held back for validation; both sides need one\n\
         to do: give more documents with --data, or a smaller --validate-one-in\n",
    );
    place.fail(
        &["train", "--data", "short.txt", "--field", "body"],
        2,
        "error: cannot start this run\n\
         cause: a text in memory has no use for --field\n\
         to do: leave it out, or add --stream\n",
    );
    place.fail(
        &["train", "--stream"],
        2,
        "error: cannot start this run\n\
         cause: the built-in corpus has no use for --stream\n\
         to do: leave it out, or give a text with --data\n",
    );
    let ended = place.run(&["train", "--data", "empty", "--whole"]);
    assert!(ended.err.contains("cause: a streamed text has no use for --whole\n"), "{}", ended.err);
    let ended = place.run(&["train", "--patience", "0"]);
    assert!(ended.err.contains("cause: --patience is 0\n"), "{}", ended.err);
}

#[test]
fn bad_requests_for_text_are_refused_before_a_device_is_opened() {
    let place = Place::new();
    place.fail(
        &["generate", "run", "--stop", ""],
        2,
        "error: cannot generate\n\
         cause: --stop is empty: it would end every text before it begins\n\
         to do: give the text to stop at\n",
    );
    std::fs::write(place.at("prompts.txt"), "one\n\nthree\n").unwrap();
    place.fail(
        &["generate", "run", "--prompts", "prompts.txt"],
        1,
        "error: cannot generate\n\
         cause: line 2 of prompts.txt is empty\n\
         to do: give a prompt on each line\n",
    );
    let ended = place.run(&["generate", "run", "--prompts", "prompts.txt", "--batch", "0"]);
    assert!(ended.err.contains("cause: --batch is 0\n"), "{}", ended.err);
    let ended = place.run(&["generate", "run", "--prompts", "none.txt"]);
    assert!(ended.err.starts_with("error: cannot read none.txt\n"), "{}", ended.err);
    let ended = place.run(&["generate", "run", "--prompts", "prompts.txt", "--prompt", "a"]);
    assert_eq!(ended.code, Some(2));
}

#[test]
fn errors_are_json_where_it_is_asked_for() {
    let place = Place::new();
    let ended = place.run(&["inspect", "a.oam", "--json"]);
    let error = ended.json();
    assert_eq!(error["event"], "error");
    assert_eq!(error["error"], "cannot open a.oam");
    assert_eq!(error["exit_code"], 1);
}

#[test]
fn a_missing_loader_ends_with_3() {
    let place = Place::new();
    let mut command = place.command(&["devices"]);
    command.env("OA_VULKAN_LIBRARY", "/nowhere/libvulkan.so.1");
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!(ended.code, Some(3));
    assert_eq!(
        ended.err,
        "error: cannot list the Vulkan devices\n\
         cause: no Vulkan loader: install libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora) or \
         vulkan-icd-loader (Arch); tried /nowhere/libvulkan.so.1\n\
         to do: install it, then run `oa doctor`\n"
    );
}

#[test]
fn a_missing_driver_ends_with_3() {
    let place = Place::new();
    let mut command = place.command(&["train"]);
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        command.env(name, "/nowhere/driver.json");
    }
    command.env_remove("OA_DEVICE").env_remove("OA_VALIDATION");
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(ended.err.starts_with("error: cannot open a Vulkan device\ncause: no Vulkan "));
}
