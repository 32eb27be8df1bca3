//! Files, folders and JSONL as documents, and what is refused.

use super::Folder;
use crate::Error;
use crate::data::{DataFault, DocumentReader, Documents, SourceConfig};

fn texts(documents: &Documents) -> Vec<String> {
    let (mut reader, mut text) = (DocumentReader::default(), Vec::new());
    let read = |number| {
        reader.read(documents, number, &mut text).unwrap();
        String::from_utf8(text.clone()).unwrap()
    };
    (0..documents.count()).map(read).collect()
}

fn refuse(folder: &Folder, name: &str, config: &SourceConfig) -> String {
    let path = format!("{}", folder.0.display());
    folder.open(name, config).unwrap_err().to_string().replace(&path, "F")
}

#[test]
fn a_folder_is_read_in_the_order_of_its_paths() {
    let folder = Folder::new();
    folder.write("b.txt", "second");
    folder.write("a/z.TXT", "first");
    folder.write("c/d/e.jsonl", "{\"text\": \"third\"}\n\n{\"text\": \"fourth\"}");
    for (name, text) in
        [("f.rs", "code"), (".hidden.txt", "no"), (".git/g.txt", "no"), ("h.txt", "")]
    {
        folder.write(name, text);
    }
    let documents = folder.open("", &SourceConfig::default()).unwrap();
    assert_eq!(texts(&documents), ["first", "second", "third", "fourth"]);
    assert_eq!((documents.files(), documents.skipped_lines()), (4, 0));
    let only = SourceConfig { extensions: vec!["rs".into()], ..Default::default() };
    assert_eq!(texts(&folder.open("", &only).unwrap()), ["code"]);
    assert_eq!(texts(&folder.open("f.rs", &SourceConfig::default()).unwrap()), ["code"]);
}

#[test]
fn a_long_text_is_cut_at_lines_words_and_characters() {
    let folder = Folder::new();
    let config = SourceConfig { piece_bytes: 32, ..Default::default() };
    let text = "a line of words\n".repeat(9) + &"word ".repeat(20) + &"\u{20ac}".repeat(40);
    folder.write("a.txt", &text);
    let documents = folder.open("a.txt", &config).unwrap();
    let pieces = texts(&documents);
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|piece| piece.len() <= 32), "{pieces:?}");
    assert!(pieces[..4].iter().all(|piece| piece.ends_with('\n')), "{pieces:?}");
    assert!(pieces[6].ends_with(' '), "{pieces:?}");
    assert_eq!(documents.bytes(), text.len() as u64);
    // Bytes that are no text are cut where they must be.
    folder.write("b.txt", [0x80u8; 100]);
    let documents = folder.open("b.txt", &config).unwrap();
    assert_eq!((documents.count(), documents.bytes()), (4, 100));
}

#[test]
fn bad_lines_are_refused_with_their_place_or_counted() {
    let folder = Folder::new();
    let config = SourceConfig::default();
    let good = "{\"text\": \"good\"}\n";
    let cases: [(&[u8], &str); 5] = [
        (b"{\"text\": \"\xff\"}", "byte 11 of the line is not UTF-8"),
        (b"{\"text\": \"a\"", "the line is not JSON from column 12 on"),
        (b"7", "the line is JSON, but not an object"),
        (b"{\"body\": \"a\"}", "the object has no field `text`"),
        (b"{\"text\": [\"a\"]}", "the field `text` holds a list, not a text"),
    ];
    for (line, fault) in cases {
        folder.write("a.jsonl", [good.as_bytes(), b"\n", line, b"\n", good.as_bytes()].concat());
        assert_eq!(refuse(&folder, "a.jsonl", &config), format!("F/a.jsonl, line 3: {fault}"));
        let skip = SourceConfig { skip_bad_lines: true, ..config.clone() };
        let documents = folder.open("a.jsonl", &skip).unwrap();
        assert_eq!((texts(&documents), documents.skipped_lines()), (vec!["good".into(); 2], 1));
    }
    let body = SourceConfig { field: "body".into(), ..config };
    folder.write("a.jsonl", "{\"body\": \"a\"}\r\n");
    assert_eq!(texts(&folder.open("a.jsonl", &body).unwrap()), ["a"]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_line() {
    let folder = Folder::new();
    let config = SourceConfig::default();
    folder.write("a.jsonl", "\u{feff}{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    let documents = folder.open("a.jsonl", &config).unwrap();
    assert_eq!(texts(&documents), ["one", "two"]);
    assert_eq!(documents.skipped_lines(), 0);
    folder.write("a.jsonl", "\u{feff}\n{\"text\": \"two\"}\n");
    assert_eq!(texts(&folder.open("a.jsonl", &config).unwrap()), ["two"]);
    folder.write("a.jsonl", "{\"text\": \"one\"}\n\u{feff}{\"text\": \"two\"}\n");
    let message = refuse(&folder, "a.jsonl", &config);
    assert!(message.starts_with("F/a.jsonl, line 2: the line is not JSON"), "{message}");
}

#[test]
fn lines_that_are_all_bad_are_counted() {
    let folder = Folder::new();
    let skip = SourceConfig { skip_bad_lines: true, ..Default::default() };
    folder.write("a.jsonl", "one\n\ntwo\n{\"text\": \"\"}\n{}\n");
    let message = refuse(&folder, "a.jsonl", &skip);
    assert_eq!(message, "no document is left: 3 bad lines are left out");
}

#[test]
fn what_cannot_be_read_is_told() {
    let folder = Folder::new();
    let config = SourceConfig::default();
    folder.write("a.rs", "code");
    assert_eq!(
        refuse(&folder, "", &config),
        "the folder F/ holds no file that ends in .txt, .md, .jsonl, .ndjson"
    );
    let message = refuse(&folder, "none.txt", &config);
    assert_eq!(message, "cannot open F/none.txt: No such file or directory (os error 2)");
    folder.write("empty.txt", "");
    assert!(matches!(folder.open("empty.txt", &config), Err(Error::EmptyCorpus)));
    folder.write("blank.jsonl", "\n  \n{\"text\": \"\"}\n");
    assert!(matches!(folder.open("blank.jsonl", &config), Err(Error::EmptyCorpus)));
    let short = SourceConfig { piece_bytes: 3, ..config.clone() };
    let message = refuse(&folder, "a.rs", &short);
    assert_eq!(message, "the length of a piece is 3, it must be at least 16");
    if cfg!(target_os = "linux") {
        let error = Documents::open("/dev/zero".as_ref(), &config).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero is a device, a pipe or a socket, not a file");
    }
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.write("a.txt", "secret");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    match folder.open("", &SourceConfig::default()) {
        // The superuser may read everything; a link to nothing stands in below.
        Ok(documents) => assert_eq!(texts(&documents), ["secret"]),
        Err(error) => assert!(error.to_string().contains("Permission denied"), "{error}"),
    }
    std::os::unix::fs::symlink("nowhere", folder.0.join("b.txt")).unwrap();
    let message = refuse(&folder, "", &SourceConfig::default());
    assert!(message.starts_with("cannot open F/"), "{message}");
}

#[test]
fn a_file_that_changed_is_told_and_texts_have_fingerprints() {
    let folder = Folder::new();
    let config = SourceConfig::default();
    let path = folder.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    let documents = folder.open("a.jsonl", &config).unwrap();
    let again = folder.open("a.jsonl", &config).unwrap();
    assert_eq!(documents.fingerprint(), again.fingerprint());
    std::fs::write(&path, "{\"text\": \"three\"}\n").unwrap();
    let mut reader = DocumentReader::default();
    let fault = reader.read(&documents, 1, &mut Vec::new()).unwrap_err();
    assert!(matches!(fault, DataFault::Changed { offset: 16, .. }), "{fault}");
    let other = folder.open("a.jsonl", &config).unwrap();
    assert_ne!(documents.fingerprint(), other.fingerprint());
    folder.write("x.txt", "ab");
    folder.write("y.txt", "c");
    let [one, other] = [["ab", "c"], ["a", "bc"]].map(|[x, y]| {
        folder.write("x.txt", x);
        folder.write("y.txt", y);
        std::fs::remove_file(&path).ok();
        folder.open("", &config).unwrap().fingerprint()
    });
    assert_ne!(one, other, "where one file ends is part of the text");
}
