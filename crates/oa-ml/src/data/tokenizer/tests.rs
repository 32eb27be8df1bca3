//! Round trips of any bytes, merges against the plain definition, cost by counting, hostile tables.

use super::*;
use crate::data::contract_corpus;
use proptest::prelude::*;

const CUTS: [PreTokenizer; 4] =
    [PreTokenizer::Whole, PreTokenizer::Gpt2, PreTokenizer::Qwen2, PreTokenizer::Llama3];

fn trained(corpus: &[u8], vocab: usize, pre_tokenizer: PreTokenizer) -> BpeTokenizer {
    let trainer = BpeTrainer { vocab, pre_tokenizer, special: vec!["<|end|>".into()] };
    BpeTokenizer::new(Arc::new(trainer.train(corpus).unwrap()))
}

/// Text with everything that cutting looks at.
const TEXT: &str = "We'll say they'Ve seen 12345 things;\n\n  \tI'd   go...\r\n  x\u{a0}y \
                    na\u{ef}ve e\u{301}te\u{301} \u{4f60}\u{597d} \u{1f469}\u{200d}\u{1f680} ''s \
                    <|end|> 3.14 \u{661}\u{662}\u{663}\u{664} \u{2028} end ";

#[test]
fn every_byte_survives_the_byte_tokenizer() {
    let text: Vec<u8> = (0..=255).collect();
    let tokenizer = TokenizerConfig::Byte.build();
    assert_eq!((tokenizer.vocab(), TokenizerConfig::Byte.vocab()), (256, 256));
    assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), Some(text));
    assert_eq!(tokenizer.decode(&[256]), None);
}

#[test]
fn characters_outside_the_alphabet_are_named() {
    let tokenizer = TokenizerConfig::Char(Alphabet::contract()).build();
    assert_eq!(tokenizer.encode(b"az ").unwrap(), [0, 25, 26]);
    assert_eq!(tokenizer.decode(&[0, 26]).unwrap(), b"a ");
    assert_eq!(tokenizer.decode(&[27]), None);
    let refuse = |text: &[u8]| tokenizer.encode(text).unwrap_err().to_string();
    assert_eq!(
        refuse("kite \u{fc}ber".as_bytes()),
        "the character '\u{fc}' (U+00FC) at byte 5 is not among the 27 of the alphabet"
    );
    assert_eq!(refuse(b"kite\xffa"), "the byte 0xff at 4 belongs to no UTF-8 character");
    assert_eq!(tokenizer.encode(b"").unwrap(), [0u32; 0]);
}

#[test]
fn an_alphabet_is_learned_in_the_order_of_code_points() {
    let alphabet = Alphabet::learn("b\u{20ac}aba\n".as_bytes()).unwrap();
    assert_eq!(alphabet.characters(), ['\n', 'a', 'b', '\u{20ac}']);
    let refuse = |text: &[u8]| Alphabet::learn(text).unwrap_err().to_string();
    assert_eq!(refuse(b"ab\xc3"), "the byte 0xc3 at 2 belongs to no UTF-8 character");
    assert_eq!(refuse(b""), "the corpus is empty: it has no token");
    let twice = Alphabet::new("aba").unwrap_err().to_string();
    assert_eq!(twice, "the character 'a' is in the alphabet twice");
    assert_eq!(Alphabet::new(""), Err(TableFault::EmptyAlphabet));
}

#[test]
fn pieces_are_cut_as_published() {
    let cut = |pre: PreTokenizer, text: &'static str| pre.pieces(text).collect::<Vec<&str>>();
    let text = "I'LL go'll  12345...\r\n\n  x";
    assert_eq!(
        cut(PreTokenizer::Gpt2, text),
        ["I", "'", "LL", " go", "'ll", " ", " 12345", "...", "\r\n\n ", " x"]
    );
    assert_eq!(
        cut(PreTokenizer::Llama3, text),
        ["I", "'LL", " go", "'ll", " ", " ", "123", "45", "...\r\n\n", " ", " x"]
    );
    assert_eq!(cut(PreTokenizer::Qwen2, "a1234 b"), ["a", "1", "2", "3", "4", " b"]);
    assert_eq!(cut(PreTokenizer::Qwen2, " \n \n  "), [" \n \n", "  "]);
    assert_eq!(cut(PreTokenizer::Whole, text), [text]);
    for pre in CUTS {
        assert_eq!(pre.pieces(TEXT).collect::<String>(), TEXT);
    }
}

#[test]
fn special_tokens_are_found_first() {
    let tokenizer = trained(&contract_corpus(), 300, PreTokenizer::Gpt2);
    let end = tokenizer.vocab() as u32 - 1;
    let ids = tokenizer.ids(b"hawk<|end|><|end");
    assert_eq!(ids.iter().filter(|&&id| id == end).count(), 1);
    assert_eq!(tokenizer.decode(&ids).unwrap(), b"hawk<|end|><|end");
}

#[test]
fn added_tokens_mind_their_neighbours() {
    let mut parts = BpeParts {
        tokens: (0..=255).map(|byte| vec![byte]).collect(),
        pre_tokenizer: PreTokenizer::Gpt2,
        ..BpeParts::default()
    };
    let mut add = |text: &str, token: AddedToken| {
        parts.added.push(AddedToken { id: parts.tokens.len() as u32, ..token });
        parts.tokens.push(text.into());
    };
    add("<l>", AddedToken { lstrip: true, ..AddedToken::default() });
    add("<r>", AddedToken { rstrip: true, ..AddedToken::default() });
    add("so", AddedToken { single_word: true, ..AddedToken::default() });
    add("e\u{301}x", AddedToken { normalized: true, ..AddedToken::default() });
    parts.normalizer = Normalizer::Nfc;
    let tokenizer = BpeTokenizer::new(Arc::new(BpeTable::new(parts).unwrap()));
    let byte = u32::from;
    assert_eq!(tokenizer.ids(b"a \t<l>b"), [byte(b'a'), 256, byte(b'b')]);
    assert_eq!(tokenizer.ids(b"<r> \n<l>"), [257, 256]);
    assert_eq!(tokenizer.ids(b"so"), [258]);
    assert_eq!(tokenizer.ids("so\u{e9}".as_bytes()).len(), 4);
    assert_eq!(tokenizer.ids("\u{e9}x".as_bytes()), [259]);
    assert_eq!(tokenizer.ids(b"\xff<l>\xfe"), [0xff, 256, 0xfe]);
}

/// The plain definition of merging: of all pairs that merge, the most urgent, leftmost.
fn merge_plainly(table: &BpeTable, piece: &[u8]) -> Vec<u32> {
    let parts = table.parts();
    let id = |bytes: &[u8]| parts.tokens.iter().position(|token| token == bytes).unwrap() as u32;
    let mut ids: Vec<u32> = piece.iter().map(|&byte| id(&[byte])).collect();
    loop {
        let rank = |pair: &[u32]| parts.merges.iter().position(|m| [m.0, m.1] == pair);
        let places = ids.windows(2).enumerate();
        let best = places.filter_map(|(at, pair)| rank(pair).map(|rank| (rank, at))).min();
        let Some((rank, at)) = best else { return ids };
        let (left, right) = parts.merges[rank];
        let whole = [parts.tokens[left as usize].clone(), parts.tokens[right as usize].clone()];
        ids.splice(at..at + 2, [id(&whole.concat())]);
    }
}

/// The plain definition of training on a text that stays whole.
fn train_plainly(corpus: &[u8], merges: usize) -> Vec<(u32, u32)> {
    let mut ids: Vec<u32> = corpus.iter().map(|&byte| byte.into()).collect();
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut out = Vec::new();
    while tokens.len() < 256 + merges {
        let mut counts = std::collections::BTreeMap::new();
        for pair in ids.windows(2) {
            *counts.entry((pair[0], pair[1])).or_insert(0) += 1;
        }
        let best = counts.into_iter().max_by_key(|&(pair, count)| (count, std::cmp::Reverse(pair)));
        let Some((pair, 2..)) = best else { break };
        let whole =
            [tokens[pair.0 as usize].as_slice(), tokens[pair.1 as usize].as_slice()].concat();
        let id = tokens.iter().position(|token| *token == whole).unwrap_or_else(|| {
            tokens.push(whole);
            tokens.len() - 1
        });
        out.push(pair);
        let mut merged = Vec::new();
        let mut at = 0;
        while at < ids.len() {
            let here = ids.get(at + 1).is_some_and(|&next| (ids[at], next) == pair);
            merged.push(if here { id as u32 } else { ids[at] });
            at += 1 + usize::from(here);
        }
        ids = merged;
    }
    out
}

proptest! {
    #[test]
    fn any_bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for pre in CUTS {
            let tokenizer = trained(TEXT.as_bytes(), 280, pre);
            prop_assert_eq!(tokenizer.decode(&tokenizer.ids(&bytes)), Some(bytes.clone()));
        }
        let byte = ByteTokenizer;
        prop_assert_eq!(byte.decode(&byte.encode(&bytes).unwrap()), Some(bytes));
    }

    #[test]
    fn any_text_survives(text in "[a-c \\n'\u{e9}\u{4f60}\u{301}1\\PC]{0,60}") {
        for pre in CUTS {
            let tokenizer = trained(TEXT.as_bytes(), 300, pre);
            let ids = tokenizer.ids(text.as_bytes());
            prop_assert_eq!(tokenizer.decode(&ids), Some(text.clone().into_bytes()));
            prop_assert_eq!(pre.pieces(&text).collect::<String>(), text.clone());
        }
        if !text.is_empty() {
            let tokenizer = CharTokenizer::new(Alphabet::learn(text.as_bytes()).unwrap());
            let ids = tokenizer.encode(text.as_bytes()).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids), Some(text.into_bytes()));
        }
    }

    #[test]
    fn training_and_merging_follow_their_definitions(
        corpus in proptest::collection::vec(97u8..101, 0..120),
        text in proptest::collection::vec(97u8..101, 0..60),
    ) {
        let tokenizer = trained(&corpus, 277, PreTokenizer::Whole);
        prop_assert_eq!(&tokenizer.table().parts().merges, &train_plainly(&corpus, 20));
        prop_assert_eq!(tokenizer.ids(&text), merge_plainly(tokenizer.table(), &text));
    }
}

/// A text of that many words, few of them alike.
fn words(count: u32) -> Vec<u8> {
    let word = |index: u32| {
        let mixed = index.wrapping_mul(2_654_435_761).rotate_left(9);
        let letter = |at: u32| char::from(b'a' + ((mixed >> (3 * at)) % 8) as u8);
        (0..3 + mixed % 5).map(letter).chain([' ']).collect::<String>()
    };
    (0..count).map(word).collect::<String>().into_bytes()
}

#[test]
fn the_cost_grows_with_the_text_and_no_faster() {
    for pre_tokenizer in [PreTokenizer::Whole, PreTokenizer::Llama3] {
        let trainer = BpeTrainer { vocab: 400, pre_tokenizer, special: Vec::new() };
        let (table, small) = trainer.counted(&words(1500)).unwrap();
        let (_, large) = trainer.counted(&words(12_000)).unwrap();
        assert!(large < 12 * small, "{pre_tokenizer:?}: {small} and {large} looks");
        let tokenizer = BpeTokenizer::new(Arc::new(table));
        let small = tokenizer.counted(&words(1500)).1;
        let large = tokenizer.counted(&words(12_000)).1;
        assert!(large < 12 * small, "{pre_tokenizer:?}: {small} and {large} looks");
    }
}

#[test]
fn a_megabyte_of_spaces_is_cut_once() {
    for pre in CUTS {
        let mut text = " ".repeat(1 << 20);
        assert_eq!(pre.pieces(&text).count(), 1);
        text.push('x');
        let pieces: Vec<usize> = pre.pieces(&text).map(str::len).collect();
        let wanted: &[usize] = match pre {
            PreTokenizer::Whole => &[(1 << 20) + 1],
            _ => &[(1 << 20) - 1, 2],
        };
        assert_eq!(pieces, wanted);
        let tokenizer = trained(" ".repeat(64).as_bytes(), 260, pre);
        let ids = tokenizer.ids(text.as_bytes());
        assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_bytes());
    }
}

#[test]
fn training_is_deterministic_and_stops_where_nothing_repeats() {
    let corpus = contract_corpus();
    let table = BpeTrainer::contract().train(&corpus).unwrap();
    assert_eq!(table, BpeTrainer::contract().train(&corpus).unwrap());
    assert_eq!(table.tokens().len(), 320);
    assert_eq!(table.parts().merges.len(), 64);
    let trainer = |vocab| BpeTrainer { vocab, ..BpeTrainer::contract() };
    assert_eq!(trainer(300).train(b"abcd").unwrap().tokens().len(), 256);
    assert_eq!(trainer(300).train(b"").unwrap().tokens().len(), 256);
    let refuse = |vocab| trainer(vocab).train(b"aa").unwrap_err().to_string();
    assert_eq!(
        refuse(255),
        "a vocabulary of 255 tokens has no room for 256 bytes and the special tokens: at least 256"
    );
    assert_eq!(
        refuse(1 << 21),
        "2097152 tokens are more than the 1048576 that a tokenizer may have"
    );
}

#[test]
fn tables_that_lie_are_refused() {
    let good = BpeTrainer { special: vec!["<e>".into()], ..BpeTrainer::contract() };
    let good: BpeParts = good.train(&contract_corpus()).unwrap().into();
    assert!(BpeTable::new(good.clone()).is_ok());
    let refuse = |spoil: &dyn Fn(&mut BpeParts), expected: &str| {
        let mut parts = good.clone();
        spoil(&mut parts);
        assert_eq!(BpeTable::new(parts).unwrap_err().to_string(), expected);
    };
    refuse(&|parts| parts.tokens[7] = vec![8], "tokens 7 and 8 are the same");
    refuse(&|parts| parts.tokens[7] = vec![1, 2, 3], "the byte 0x07 has no token of its own");
    refuse(&|parts| parts.tokens[300].clear(), "token 300 is empty");
    refuse(
        &|parts| parts.tokens[300] = vec![0; 65_537],
        "token 300 has 65537 bytes, more than the 65536 that a token may have",
    );
    refuse(
        &|parts| parts.merges[3].0 = 320,
        "merge 3 names token 320, which the vocabulary does not have",
    );
    refuse(
        &|parts| parts.merges[3].1 = 319,
        "merge 3 names token 319, which the vocabulary does not have",
    );
    refuse(
        &|parts| parts.merges[3] = (0, 0),
        "merge 3 of tokens 0 and 0 gives no token of the vocabulary",
    );
    refuse(&|parts| parts.merges[3] = parts.merges[1], "merge 3 repeats merge 1");
    refuse(
        &|parts| parts.added[0].id = 320,
        "added token 320 is there twice or not below the 320 tokens there are",
    );
    refuse(
        &|parts| parts.added.push(parts.added[0]),
        "added token 319 is there twice or not below the 320 tokens there are",
    );
    refuse(&|parts| parts.tokens[319] = vec![0xff], "added token 319 is not UTF-8");
    refuse(
        &|parts| parts.merges.resize((1 << 21) + 1, (0, 0)),
        "2097153 merges are more than the 2097152 that a tokenizer may have",
    );
}

#[test]
fn tables_cannot_be_deserialised_unchecked() {
    let config = TokenizerConfig::Bpe(Arc::new(BpeTrainer::contract().train(b"abab").unwrap()));
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<TokenizerConfig>(&text).unwrap(), config);
    let forged = text.replace("[[97,98]", "[[97,9999]");
    assert_ne!(forged, text);
    let error = serde_json::from_str::<TokenizerConfig>(&forged).unwrap_err().to_string();
    assert!(error.contains("merge 0 names token 9999"), "{error}");
    let error = serde_json::from_str::<TokenizerConfig>("{\"Char\":\"aa\"}").unwrap_err();
    assert!(error.to_string().contains("'a' is in the alphabet twice"), "{error}");
}
