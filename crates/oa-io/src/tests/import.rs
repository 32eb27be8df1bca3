//! Tokenizer files: the ids that the program which wrote them gives, and every lie refused.

use crate::import::tokenizer;
use oa_ml::data::tokenizer::TokenizerConfig;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokenizers")
}

/// Compares a tokenizer with the ids that lie beside its file; returns how many texts there were.
fn check(path: &Path) -> usize {
    let tokenizer = crate::load_tokenizer(path).unwrap().build();
    let expected = std::fs::read_to_string(path.with_extension("ids.jsonl")).unwrap();
    for line in expected.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text.as_bytes()).unwrap(), ids, "{}: {text:?}", path.display());
    }
    expected.lines().count()
}

#[test]
fn ids_are_those_of_the_program_that_wrote_the_file() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        assert!(check(&file) >= 200, "{}", file.display());
    }
}

#[test]
fn only_normalisation_changes_what_comes_back() {
    let text =
        "caf\u{e9} cafe\u{301} <|endoftext|> \u{1f469}\u{200d}\u{1f680}\r\n \u{a0}x".as_bytes();
    for (name, same) in [("gpt2", true), ("llama3", true), ("qwen2", false)] {
        let path = folder().join(name).with_extension("json");
        let tokenizer = crate::load_tokenizer(&path).unwrap().build();
        let again = tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap();
        assert_eq!(again == text, same, "{name}");
        let bytes: Vec<u8> = (0..=255).rev().chain(*b"\xe2\x82 \xff").collect();
        assert_eq!(tokenizer.decode(&tokenizer.encode(&bytes).unwrap()).unwrap(), bytes);
    }
}

/// A small file that is right.
fn good() -> Value {
    let path = folder().join("gpt2.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn refuse(spoil: impl FnOnce(&mut Value), expected: &str) {
    let mut file = good();
    spoil(&mut file);
    let error = tokenizer(&serde_json::to_vec(&file).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn files_that_are_no_tokenizers_are_refused() {
    let whole = serde_json::to_vec(&good()).unwrap();
    for length in (0..whole.len()).step_by(97) {
        let error = tokenizer(&whole[..length]).unwrap_err().to_string();
        assert!(error.starts_with("it is no tokenizer file: EOF while parsing"), "{error}");
    }
    let refuse = |text: &str, expected: &str| {
        let error = tokenizer(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    refuse("[]", "it is no tokenizer file: ");
    refuse("{}", "it is no tokenizer file: missing field `model`");
    refuse("\u{1}", "it is no tokenizer file: expected value");
    refuse(&"[".repeat(1 << 16), "it is no tokenizer file: ");
    let nested = format!("{{\"model\":{}", "{\"vocab\":".repeat(1 << 12));
    refuse(&nested, "it is no tokenizer file: ");
    refuse(
        r#"{"model":{"vocab":{"a":4294967296},"merges":[]}}"#,
        "it is no tokenizer file: invalid value: integer `4294967296`",
    );
}

#[test]
fn values_of_wrong_kinds_are_refused() {
    let json = "it is no tokenizer file: ";
    refuse(|file| file["model"]["vocab"] = json!([1, 2]), &format!("{json}invalid type: sequence"));
    refuse(|file| file["model"]["vocab"]["a"] = json!("b"), &format!("{json}invalid type: string"));
    refuse(
        |file| file["model"]["vocab"]["a"] = json!(-1),
        &format!("{json}invalid value: integer"),
    );
    refuse(|file| file["model"]["merges"] = json!({}), &format!("{json}invalid type: map"));
    refuse(|file| file["model"]["merges"][0] = json!(7), &format!("{json}data did not match"));
    refuse(|file| file["added_tokens"][0]["id"] = json!(1.5), &format!("{json}invalid type"));
    refuse(|file| file["pre_tokenizer"] = json!(3), &format!("{json}invalid type: integer"));
}

#[test]
fn merges_that_lie_are_refused() {
    refuse(
        |file| file["model"]["merges"][2] = json!("qq a"),
        "merge 2 names the token `qq`, which the vocabulary does not have",
    );
    refuse(|file| file["model"]["merges"][2] = json!("abc"), "merge 2 is not two tokens");
    refuse(|file| file["model"]["merges"][2] = json!("a b c"), "merge 2 is not two tokens");
    refuse(
        |file| file["model"]["merges"][2] = json!(["!", "\""]),
        "its tokenizer is none: merge 2 of tokens 0 and 1 gives no token of the vocabulary",
    );
    refuse(
        |file| file["model"]["merges"][2] = file["model"]["merges"][0].clone(),
        "its tokenizer is none: merge 2 repeats merge 0",
    );
}

#[test]
fn ids_that_lie_are_refused() {
    refuse(
        |file| file["model"]["vocab"]["a"] = json!(0),
        "the tokens `!` and `a` both have the id 0",
    );
    refuse(
        |file| file["model"]["vocab"]["a"] = json!(100_000_000),
        "the token `a` has the id 100000000, but there are 521 tokens: ids have holes",
    );
    refuse(
        |file| drop(file["model"]["vocab"].as_object_mut().unwrap().remove("!")),
        "the token `<word>` has the id 520, but there are 520 tokens: ids have holes",
    );
    refuse(
        |file| file["added_tokens"][1]["content"] = json!("a"),
        "the added token `a` has the id 520, in the vocabulary 64",
    );
    refuse(
        |file| file["model"]["vocab"]["\u{4f60}"] = json!(521),
        "the token `\u{4f60}` is not written in the alphabet of byte-level tokenizers",
    );
    let twice =
        serde_json::to_string(&good()).unwrap().replace("\"vocab\":{", "\"vocab\":{\"a\":1,");
    let error = tokenizer(twice.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "the token `a` is in the vocabulary twice");
    refuse(
        |file| {
            let vocab = file["model"]["vocab"].as_object_mut().unwrap();
            let id = vocab.remove("\u{100}").unwrap();
            vocab.insert("!!!!!!".into(), id);
        },
        "its tokenizer is none: the byte 0x00 has no token of its own",
    );
}

#[test]
fn what_would_give_other_ids_is_refused_by_name() {
    let refuse = |spoil: &dyn Fn(&mut Value), expected: &str| {
        refuse(spoil, &format!("{expected}, which this release does not have"));
    };
    refuse(&|file| file["model"]["type"] = json!("Unigram"), "its model is `Unigram`");
    refuse(&|file| file["model"]["dropout"] = json!(0.1), "its dropout of merges is `0.1`");
    refuse(
        &|file| file["model"]["end_of_word_suffix"] = json!("</w>"),
        "its suffix of last tokens is `</w>`",
    );
    refuse(
        &|file| file["model"]["continuing_subword_prefix"] = json!("##"),
        "its prefix of continuing tokens is `##`",
    );
    refuse(&|file| file["normalizer"] = json!({"type": "NFKC"}), "its normaliser is `NFKC`");
    let cut = |file: &mut Value, step: Value| file["pre_tokenizer"] = step;
    refuse(&|file| cut(file, Value::Null), "its pre-tokenizer is `none`");
    refuse(
        &|file| cut(file, json!({"type": "Metaspace", "replacement": "_"})),
        "its pre-tokenizer is `Metaspace`",
    );
    refuse(
        &|file| cut(file, json!({"type": "ByteLevel", "add_prefix_space": true})),
        "its pre-tokenizer is `ByteLevel with add_prefix_space`",
    );
    let split = |pattern: Value, behavior: &str| {
        let split = json!({"type": "Split", "pattern": pattern, "behavior": behavior});
        let bytes = json!({"type": "ByteLevel", "use_regex": false});
        json!({"type": "Sequence", "pretokenizers": [split, bytes]})
    };
    refuse(
        &|file| cut(file, split(json!({"Regex": "\\w+"}), "Isolated")),
        "its expression to cut by is `\\w+`",
    );
    refuse(
        &|file| cut(file, split(json!({"String": " "}), "Isolated")),
        "its text to cut by is ` `",
    );
    refuse(
        &|file| cut(file, split(json!({"Regex": "\\w+"}), "Removed")),
        "its behaviour of a cut is `Removed`",
    );
}

#[test]
fn a_file_that_claims_too_much_is_not_read() {
    let folder = super::fixture::Folder::new();
    let path = folder.0.join("tokenizer.json");
    std::fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    let error = crate::load_tokenizer(&path).unwrap_err();
    assert_eq!(
        error.cause(),
        "104857600 bytes of a tokenizer file are more than the 67108864 that the format allows"
    );
    let error = crate::load_tokenizer(folder.0.join("none.json")).unwrap_err();
    assert!(error.subject().starts_with("cannot open "), "{error}");
    assert!(crate::load_tokenizer(&folder.0).is_err());
}

#[test]
fn an_imported_tokenizer_is_kept_whole() {
    for name in ["gpt2", "qwen2", "llama3"] {
        let config = crate::load_tokenizer(folder().join(name).with_extension("json")).unwrap();
        let TokenizerConfig::Bpe(table) = &config else { panic!("{config:?}") };
        let mut checkpoint = super::fixture::bare();
        checkpoint.tokenizer = config.clone();
        let loaded = super::fixture::load(&super::fixture::file_of(&checkpoint)).unwrap();
        assert_eq!(loaded.tokenizer, config, "{name}");
        assert_eq!(table.parts().ignore_merges, name == "llama3");
    }
}
