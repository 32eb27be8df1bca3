//! Bytes that come in pieces as characters that are whole.

/// What stands for bytes that are no text.
const REPLACEMENT: char = '\u{fffd}';

/// Holds the bytes of a character back until the last one is there. Bytes that are no UTF-8 become
/// one replacement character each time they are found, as `String::from_utf8_lossy` does it.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    partial: Vec<u8>,
}

impl Utf8Stream {
    /// The characters that are whole by now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let (mut text, mut read) = (String::new(), 0);
        loop {
            let rest = &self.partial[read..];
            let Err(error) = std::str::from_utf8(rest) else {
                text.push_str(&String::from_utf8_lossy(rest));
                self.partial.clear();
                return text;
            };
            let whole = error.valid_up_to();
            text.push_str(&String::from_utf8_lossy(&rest[..whole]));
            read += whole;
            let Some(bad) = error.error_len() else {
                self.partial.drain(..read);
                return text;
            };
            text.push(REPLACEMENT);
            read += bad;
        }
    }

    /// Ends the stream: a character that never became whole is no text.
    pub fn finish(&mut self) -> Option<char> {
        let partial = !std::mem::take(&mut self.partial).is_empty();
        partial.then_some(REPLACEMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_appear_when_they_are_whole() {
        let mut stream = Utf8Stream::default();
        let euro = "\u{20ac}".as_bytes();
        let pieces = [&b"a"[..], &euro[..1], &euro[1..2], &[euro[2], b'b'], b"\xff", b"\xc3("];
        let shown: Vec<String> = pieces.iter().map(|piece| stream.push(piece)).collect();
        assert_eq!(shown, ["a", "", "", "\u{20ac}b", "\u{fffd}", "\u{fffd}("]);
        assert_eq!(stream.finish(), None);
        assert_eq!(stream.push(&euro[..2]), "");
        assert_eq!((stream.finish(), stream.finish()), (Some('\u{fffd}'), None));
    }

    #[test]
    fn any_cut_gives_the_text_of_the_whole() {
        let bytes = b"x\xf0\x9f\x98\x80\xe2\x82y\xed\xa0\x80\xc3\xbc\xf0\x9f";
        let whole = String::from_utf8_lossy(bytes);
        for cut in 0..=bytes.len() {
            for second in cut..=bytes.len() {
                let mut stream = Utf8Stream::default();
                let mut text = String::new();
                for piece in [&bytes[..cut], &bytes[cut..second], &bytes[second..]] {
                    text += &stream.push(piece);
                }
                text.extend(stream.finish());
                assert_eq!(text, whole, "cut at {cut} and {second}");
            }
        }
    }
}
