//! Tokenizers through the command: learned, imported, refused.

use crate::place::{Place, device};
use std::path::PathBuf;

/// A tokenizer file of the repository.
fn fixture(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tokenizers");
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_text_is_cut_into_tokens() {
    let place = Place::new();
    let file = fixture("llama3.json");
    let text = "We'll leading <mask>\u{e9}\n";
    let cut = place.succeed(&["tokenize", &file, text, "--json"]).json();
    assert_eq!((&cut["tokenizer"], &cut["vocabulary"]), (&"bpe".into(), &531.into()));
    let pieces = cut["pieces"].as_array().unwrap();
    assert_eq!(pieces.len(), cut["ids"].as_array().unwrap().len());
    let whole: String = pieces.iter().map(|piece| piece.as_str().unwrap()).collect();
    // This tokenizer's mask takes the space before it along.
    assert_eq!(whole, "We\\'ll leading<mask>\\xc3\\xa9\\n");
    let shown = place.succeed(&["tokenize", &file, "leading"]).out;
    assert!(shown.ends_with(" tokens, bpe of 531 token ids\n"), "{shown}");
}

#[test]
fn wrong_tokenizers_are_refused_before_a_device_is_opened() {
    let place = Place::new();
    place.fail(
        &["train", "--tokenizer", "words"],
        2,
        "error: cannot start this run\n\
         cause: there is no tokenizer `words`\n\
         to do: give byte, char, bpe, bpe:N, a tokenizer.json or an .oam file\n",
    );
    place.fail(
        &["train", "--tokenizer", "bpe:200"],
        2,
        "error: cannot learn the tokenizer\n\
         cause: a vocabulary of 200 tokens has no room for 256 bytes and the special tokens: at \
         least 256\n\
         to do: change --tokenizer\n",
    );
    std::fs::write(place.at("latin.txt"), b"na\xefve").unwrap();
    place.fail(
        &["train", "--tokenizer", "char", "--data", "latin.txt"],
        1,
        "error: cannot learn the tokenizer\n\
         cause: the byte 0xef at 2 belongs to no UTF-8 character\n\
         to do: use a text of these characters, or a model of --tokenizer byte or bpe, which take \
         anything\n",
    );
    let whole = std::fs::read(fixture("gpt2.json")).unwrap();
    std::fs::write(place.at("cut.json"), &whole[..5000]).unwrap();
    let refused = place.run(&["train", "--tokenizer", "cut.json"]);
    assert_eq!(refused.code, Some(1));
    let start = "error: cannot load cut.json\ncause: it is no tokenizer file: EOF while parsing";
    assert!(refused.err.starts_with(start), "{}", refused.err);
}

#[test]
fn the_contract_knows_its_families_and_tokenizers() {
    let place = Place::new();
    let refused = place.run(&["contract", "rnn", "lstm"]);
    assert_eq!(refused.code, Some(2));
    let cause = "error: there is no family `lstm`\ncause: the families are rnn, gru, ";
    assert!(refused.err.starts_with(cause), "{}", refused.err);
    place.fail(
        &["contract", "rnn", "--tokenizer", "byte,word"],
        2,
        "error: there is no tokenizer `word`\n\
         cause: the tokenizers are byte, char, bpe\n\
         to do: name some of these, or none for all\n",
    );
}

/// Trains a small network with a tokenizer.
fn train(place: &Place, out: &str, tokenizer: &str) {
    let sizes = ["--width", "16", "--batch", "4", "--context", "12", "--steps", "8"];
    let begin = ["train", "--arch", "rnn", "--eval-batches", "2", "--json", "--out", out];
    let arguments: Vec<&str> =
        begin.iter().chain(&sizes).chain(&["--tokenizer", tokenizer]).copied().collect();
    let started = place.succeed(&arguments).events("start");
    let kind = tokenizer.split(':').next().unwrap();
    assert_eq!(started[0]["tokenizer"], if kind.ends_with("json") { "bpe" } else { kind });
}

#[test]
fn a_model_keeps_the_tokenizer_that_it_was_trained_with() {
    if !device() {
        return;
    }
    let place = Place::new();
    train(&place, "char", "char");
    let measured = place.succeed(&["eval", "char", "--json"]).json();
    let number = |key: &str| measured[key].as_f64().unwrap();
    assert!((number("bits_per_byte") - number("bits")).abs() < 1e-9, "{measured}");
    let generate = ["generate", "char", "--tokens", "5", "--prompt"];
    let with = |prompt| generate.iter().copied().chain([prompt]).collect::<Vec<&str>>();
    let text = place.succeed(&with("kite")).out;
    assert_eq!(text.trim_end_matches('\n').len(), 9, "{text:?}");
    place.fail(
        &with("Kite"),
        1,
        "error: cannot use this prompt\n\
         cause: the character 'K' (U+004B) at byte 0 is not among the 27 of the alphabet\n\
         to do: use a text of these characters, or a model of --tokenizer byte or bpe, which take \
         anything\n",
    );
    assert_eq!(place.run(&with("")).code, Some(2));
    place.fail(
        &["train", "--resume", "char", "--tokenizer", "bpe:300"],
        1,
        "error: cannot resume from char/step-00000008.oam\n\
         cause: the model has 27 token ids, its tokenizer has 300\n\
         to do: use the tokenizer that the model was trained with\n",
    );
    let resumed = ["train", "--resume", "char", "--tokenizer", "char", "--steps", "10", "--json"];
    assert_eq!(place.succeed(&resumed).events("done").len(), 1);
}

#[test]
fn learned_and_imported_tokens_train_too() {
    if !device() {
        return;
    }
    let place = Place::new();
    for (out, tokenizer, vocab) in
        [("bpe", "bpe:300".to_owned(), 300), ("gpt2", fixture("gpt2.json"), 521)]
    {
        train(&place, out, &tokenizer);
        let summary = place.succeed(&["inspect", out, "--verify", "--json"]).json();
        assert_eq!(summary["tokenizer"]["tokens"], vocab);
        assert_eq!(summary["model"]["vocab"], vocab);
        let measured = place.succeed(&["eval", out, "--json"]).json();
        let number = |key: &str| measured[key].as_f64().unwrap();
        assert!(number("bytes") > number("predictions"), "{measured}");
        let total = number("bits") * number("predictions");
        assert!((number("bits_per_byte") * number("bytes") / total - 1.0).abs() < 1e-9);
        place.succeed(&["generate", out, "--tokens", "5", "--prompt", "a kite"]);
        let cut = place.succeed(&["tokenize", out, "kite", "--json"]).json();
        assert_eq!(cut["vocabulary"], vocab);
    }
}
