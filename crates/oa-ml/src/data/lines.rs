//! One line of a JSONL file: an object whose one field is the document.
//!
//! Only that field is kept; the others are checked as JSON and dropped as they are read.

use super::fault::LineFault;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use std::fmt;

/// The text of the field of that name.
pub(super) fn text_of(line: &[u8], field: &str) -> Result<String, LineFault> {
    let line = std::str::from_utf8(line.trim_ascii_end())
        .map_err(|error| LineFault::NotUtf8 { at: error.valid_up_to() + 1 })?;
    let mut json = serde_json::Deserializer::from_str(line);
    let value = Field(field).deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    let value = value.map_err(|error| match error.classify() {
        Category::Data => LineFault::NotAnObject,
        _ => LineFault::NotJson { column: error.column() },
    })?;
    let named = || Box::<str>::from(field);
    let found = match value {
        Some(Value::String(text)) => return Ok(text),
        None => return Err(LineFault::NoField { field: named() }),
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a truth value",
        Some(Value::Number(_)) => "a number",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    };
    Err(LineFault::NotText { field: named(), found })
}

/// Reads an object and keeps one field; of several of that name the last.
struct Field<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<Value>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut kept = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                kept = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &[u8]) -> String {
        text_of(line, "text").unwrap_err().to_string()
    }

    #[test]
    fn the_field_is_taken_and_unescaped() {
        let line = r#" {"id": 3, "meta": {"text": "inner"}, "text": "a\n\u00fc\ud83d\ude00"} "#;
        assert_eq!(text_of(line.as_bytes(), "text").unwrap(), "a\n\u{fc}\u{1f600}");
        assert_eq!(text_of(br#"{"body":""}"#, "body").unwrap(), "");
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        assert_eq!(fault(b"{\"text\": \"\xff\"}"), "byte 11 of the line is not UTF-8");
        assert_eq!(fault(b"{\"text\": "), "the line is not JSON from column 8 on");
        assert_eq!(fault(b"{\"text\": \"a\"} b"), "the line is not JSON from column 15 on");
        assert_eq!(fault(b"[1]"), "the line is JSON, but not an object");
        assert_eq!(fault(b"\"text\""), "the line is JSON, but not an object");
        assert_eq!(fault(b"{\"txt\": \"a\"}"), "the object has no field `text`");
        assert_eq!(fault(b"{\"text\": 5}"), "the field `text` holds a number, not a text");
        assert_eq!(fault(b"{\"text\": null}"), "the field `text` holds null, not a text");
    }
}
