//! Documents in rows: boundaries, epochs, splits, and going on where one left off.

use super::Folder;
use crate::Error;
use crate::data::dataset::IGNORE;
use crate::data::{
    Batch, BatchSource, ByteTokenizer, DataCursor, PackedConfig, PackedText, SourceConfig, Split,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Documents of the given bytes, one a line.
fn text(folder: &Folder, documents: &[String], config: PackedConfig) -> crate::Result<PackedText> {
    let line = |text: &String| format!("{{\"text\": \"{text}\"}}\n");
    folder.write("a.jsonl", documents.iter().map(line).collect::<String>());
    let documents = folder.open("a.jsonl", &SourceConfig::default())?;
    PackedText::new(Arc::new(documents), Arc::new(ByteTokenizer), config)
}

/// Documents whose bytes tell which document they are: `a`, `bb`, `ccc`, ..
fn letters(count: usize) -> Vec<String> {
    (0..count).map(|index| ((b'a' + index as u8) as char).to_string().repeat(index + 1)).collect()
}

fn read(source: &mut impl BatchSource, count: usize) -> Vec<Batch> {
    let mut next = || {
        let mut batch = Batch::zeroed(0, 0);
        source.read(&mut batch).unwrap();
        batch
    };
    (0..count).map(|_| next()).collect()
}

fn line(batches: &[Batch]) -> (String, Vec<i32>, Vec<u32>) {
    let tokens = batches.iter().flat_map(|batch| &batch.tokens).map(|&token| token as u8 as char);
    let targets = batches.iter().flat_map(|batch| batch.targets.clone());
    let starts = batches.iter().flat_map(|batch| batch.starts.clone().unwrap());
    (tokens.collect(), targets.collect(), starts.collect())
}

const PLAIN: PackedConfig = PackedConfig {
    separator: None,
    across: false,
    split: Split::None,
    shuffle: false,
    gathered: 1,
};

#[test]
fn rows_go_on_from_document_to_document_and_targets_stay_inside() {
    let folder = Folder::new();
    let documents = ["abc", "d", "", "efgh"].map(String::from);
    let separated = PackedConfig { separator: Some(46), ..PLAIN };
    for (config, expected) in [(PLAIN, "abcdefgh"), (separated, "abc.d.efgh.")] {
        for across in [false, true] {
            let config = PackedConfig { across, ..config };
            let text = text(&folder, &documents, config).unwrap();
            let mut batches = text.batches(2, 5, DataCursor::packed(0)).unwrap();
            let (tokens, targets, starts) = line(&read(&mut batches, 4));
            let twice = expected.repeat(6);
            assert_eq!(tokens, twice[..40], "{config:?}");
            let ends = ['c', 'd', 'h'];
            for (at, token) in tokens.chars().enumerate() {
                let end =
                    if config.separator.is_some() { token == '.' } else { ends.contains(&token) };
                let next = i32::from(twice.as_bytes()[at + 1]);
                assert_eq!(targets[at], if end && !across { IGNORE } else { next }, "at {at}");
                assert_eq!(starts[at] == 1, ['a', 'd', 'e'].contains(&token), "at {at}");
            }
        }
    }
}

#[test]
fn an_epoch_has_every_document_once_and_the_next_another_order() {
    let folder = Folder::new();
    let config = PackedConfig { shuffle: true, ..PLAIN };
    let text = text(&folder, &letters(20), config).unwrap();
    let tokens: usize = (1..=20).sum();
    let mut batches = text.batches(1, 10, DataCursor::packed(3)).unwrap();
    let (all, ..) = line(&read(&mut batches, 2 * tokens / 10));
    assert!(
        matches!(batches.cursor(), DataCursor::Packed { epoch: 1, .. }),
        "{:?}",
        batches.cursor()
    );
    let (first, second) = all.split_at(tokens);
    assert_ne!(first, second);
    for epoch in [first, second] {
        let mut count = BTreeMap::new();
        epoch.chars().for_each(|letter| *count.entry(letter).or_insert(0) += 1);
        assert!(count.iter().all(|(letter, count)| *count == *letter as usize - 96), "{count:?}");
        assert_eq!(count.len(), 20);
        let mut seen: Vec<char> = epoch.chars().collect();
        seen.dedup();
        assert_eq!(seen.len(), 20, "documents are whole: {epoch}");
    }
    let mut other = text.batches(1, 10, DataCursor::packed(4)).unwrap();
    assert_ne!(line(&read(&mut other, 21)).0, first);
}

#[test]
fn the_order_continues_from_its_cursor_bit_for_bit() {
    let folder = Folder::new();
    for gathered in [1, 4, 7] {
        let config = PackedConfig {
            separator: Some(46),
            shuffle: true,
            gathered,
            split: Split::Every(5),
            ..PLAIN
        };
        let text = text(&folder, &letters(20), config).unwrap();
        let mut batches = text.batches(3, 8, DataCursor::packed(11)).unwrap();
        for _ in 0..40 {
            let cursor = batches.cursor();
            let mut resumed = text.batches(3, 8, cursor).unwrap();
            assert_eq!(resumed.cursor(), cursor);
            let ahead = read(&mut resumed, 3);
            assert_eq!(read(&mut batches, 1), ahead[..1], "{gathered} gathered, {cursor:?}");
            let mut twice = text.batches(3, 8, cursor).unwrap();
            assert_eq!(read(&mut twice, 3), ahead);
        }
        assert!(matches!(batches.cursor(), DataCursor::Packed { epoch: 4.., .. }));
    }
}

#[test]
fn gathered_rows_are_shuffled_and_none_is_lost() {
    let folder = Folder::new();
    let documents: Vec<String> =
        (0..26).map(|i| ((b'a' + i) as char).to_string().repeat(8)).collect();
    let rows = |shuffle, gathered| {
        let config = PackedConfig { shuffle, gathered, ..PLAIN };
        let text = text(&folder, &documents, config).unwrap();
        let mut batches = text.batches(2, 8, DataCursor::packed(1)).unwrap();
        line(&read(&mut batches, 13)).0.as_bytes().chunks(8).map(|row| row[0]).collect::<Vec<u8>>()
    };
    let straight = rows(false, 13);
    assert!(straight.is_sorted());
    let mut shuffled = rows(true, 26);
    assert_ne!(shuffled, rows(true, 1), "rows are shuffled beside documents");
    shuffled.sort_unstable();
    assert_eq!(shuffled, straight);
}

#[test]
fn held_documents_are_validated_once_and_never_trained_on() {
    let folder = Folder::new();
    for split in [Split::Every(4), Split::LastOf(4)] {
        let config = PackedConfig { split, separator: Some(46), ..PackedConfig::default() };
        let text = text(&folder, &letters(21), config).unwrap();
        let held: Vec<Batch> = text.validation(2, 7).unwrap().map(Result::unwrap).collect();
        let padding = |batch: &Batch| batch.tokens.iter().filter(|&&token| token == 0).count();
        assert!(held[..held.len() - 1].iter().all(|batch| padding(batch) == 0));
        let letters = |batches: &[Batch]| {
            let mut letters: Vec<char> = line(batches).0.replace(['.', '\0'], "").chars().collect();
            letters.dedup();
            letters
        };
        let once: Vec<Batch> = text.pass(2, 7).unwrap().map(Result::unwrap).collect();
        assert_eq!(letters(&once).len() as u64, text.trained());
        let validated = letters(&held);
        assert_eq!(validated.len() as u64, text.held());
        let mut trained =
            letters(&read(&mut text.batches(4, 9, DataCursor::packed(2)).unwrap(), 60));
        trained.sort_unstable();
        trained.dedup();
        assert_eq!(trained.len() as u64, text.trained());
        assert!(trained.iter().all(|letter| !validated.contains(letter)));
        let predictions: usize = held.iter().map(Batch::predictions).sum();
        let bytes: usize = validated.iter().map(|letter| *letter as usize - 96).sum();
        assert_eq!(predictions, bytes, "every token but the first of each, and the separators");
    }
}

#[test]
fn bad_settings_and_cursors_are_refused() {
    let folder = Folder::new();
    let refuse = |documents: &[String], config, rows, sequence, cursor| {
        let batches = text(&folder, documents, config)
            .and_then(|text| text.batches(rows, sequence, cursor).map(drop));
        batches.unwrap_err().to_string()
    };
    let (four, start) = (letters(4), DataCursor::packed(0));
    let message = refuse(&four, PLAIN, 0, 4, start);
    assert!(message.ends_with("a batch of 0 rows of 4 tokens has nothing to predict"), "{message}");
    assert!(
        refuse(&four, PLAIN, 2, 0, start)
            .ends_with("a batch of 2 rows of 0 tokens has nothing to predict")
    );
    assert_eq!(
        refuse(&four, PLAIN, 1, 10, start),
        "the corpus has 10 tokens, but a sequence length of 10 needs at least 11"
    );
    let config = PackedConfig { separator: Some(256), ..PLAIN };
    assert_eq!(
        refuse(&four, config, 1, 2, start),
        "token 256 at position 0 is out of range: the vocabulary has 256 tokens"
    );
    let config = PackedConfig { gathered: 0, ..PLAIN };
    assert_eq!(
        refuse(&four, config, 1, 2, start),
        "the number of gathered rows is 0, it must be at least 1"
    );
    let config = PackedConfig { split: Split::LastOf(2), ..PLAIN };
    assert_eq!(
        refuse(&letters(1), config, 1, 2, start),
        "of 1 documents 1 are held back for validation; both sides need one"
    );
    let beyond = |document, token| DataCursor::Packed {
        seed: 0,
        epoch: 0,
        document,
        token,
        gathering: 0,
        taken: 0,
    };
    let end = "does not belong to this order of this text";
    for cursor in [DataCursor::CONTRACT, DataCursor::shuffled(1), beyond(4, 0)] {
        assert!(refuse(&four, PLAIN, 1, 2, cursor).ends_with(end));
    }
    let text = text(&folder, &four, PLAIN).unwrap();
    let mut batches = text.batches(1, 2, beyond(1, 9)).unwrap();
    let error = batches.read(&mut Batch::zeroed(1, 2)).unwrap_err();
    assert!(error.to_string().ends_with(end), "{error}");
    assert!(text.validation(1, 2).err().unwrap().to_string().starts_with("of 4 documents 0 are"));
}

#[test]
fn an_order_can_be_asked_again_after_an_error() {
    let folder = Folder::new();
    let text = text(&folder, &letters(9), PackedConfig { gathered: 3, ..PLAIN }).unwrap();
    let mut batches = text.batches(2, 4, DataCursor::packed(0)).unwrap();
    read(&mut batches, 1);
    let (path, cursor) = (folder.0.join("a.jsonl"), batches.cursor());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..20]).unwrap();
    let error = batches.read(&mut Batch::zeroed(2, 4)).unwrap_err();
    assert!(matches!(error, Error::Data(_)), "{error}");
    assert_eq!(batches.cursor(), cursor);
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(read(&mut batches, 5), read(&mut text.batches(2, 4, cursor).unwrap(), 5));
}
