//! Rust and Slang text without its comments and literals.
//!
//! Exists so that a check for a word of the language is not fooled by prose or by a test's string.
//! Keeps every line where it was. Not a parser: it knows comments, strings and characters only.

/// The text with comments, strings and character literals blanked out; newlines stay.
pub fn only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skip(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that starts here ends; `at` itself when none does.
fn skip(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => until(chars, at, |rest| rest[0] == '\n'),
        ('/', Some('*')) => block_comment(chars, at),
        ('"', _) => string(chars, at + 1),
        ('\'', _) => character(chars, at),
        ('r' | 'b' | 'c', _) if !follows_word(chars, at) => prefixed(chars, at),
        _ => at,
    }
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn until(chars: &[char], at: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len()).find(|&here| stop(&chars[here..])).unwrap_or(chars.len())
}

fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut depth, mut here) = (0_usize, at);
    while here < chars.len() {
        match (chars[here], chars.get(here + 1)) {
            ('/', Some('*')) => (depth, here) = (depth + 1, here + 2),
            ('*', Some('/')) => (depth, here) = (depth - 1, here + 2),
            _ => here += 1,
        }
        if depth == 0 {
            return here;
        }
    }
    chars.len()
}

/// End of a string whose first character inside is at `here`.
fn string(chars: &[char], mut here: usize) -> usize {
    while here < chars.len() {
        match chars[here] {
            '\\' => here += 2,
            '"' => return here + 1,
            _ => here += 1,
        }
    }
    chars.len()
}

/// A character literal; a lifetime is left alone.
fn character(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => until(chars, at + 3, |rest| rest[0] == '\'') + 1,
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
    .min(chars.len())
}

/// A literal with a prefix: `r"…"`, `r#"…"#`, `b"…"`, `b'…'`, `br#"…"#`, `c"…"`.
fn prefixed(chars: &[char], at: usize) -> usize {
    let mut here = at + 1;
    let raw = chars[at] == 'r' || chars.get(here) == Some(&'r');
    if raw && chars[at] != 'r' {
        here += 1;
    }
    let hashes = if raw {
        chars[here.min(chars.len())..].iter().take_while(|c| **c == '#').count()
    } else {
        0
    };
    here += hashes;
    match chars.get(here) {
        Some('"') if raw => {
            let closes = |rest: &[char]| {
                rest[0] == '"' && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes
            };
            (until(chars, here + 1, closes) + 1 + hashes).min(chars.len())
        }
        Some('"') => string(chars, here + 1),
        Some('\'') if chars[at] == 'b' && !raw => character(chars, here),
        _ => at,
    }
}

/// True when the line holds `word` as a whole word.
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, left: &str) {
        let squeezed = only(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed, left, "{text}");
    }

    #[test]
    fn comments_go_even_when_nested() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check("a / b * c", "a / b * c");
        check("a /* never closed", "a");
    }

    #[test]
    fn literals_go_with_their_prefixes_and_escapes() {
        check(r#"f("a \" b") + g"#, "f( ) + g");
        check(r##"x(r#"a " b"#) y"##, "x( ) y");
        check("x(br\"a\") y(b'\\'') z('\"') w", "x( ) y( ) z( ) w");
        check("for r in b", "for r in b");
        check("r#type", "r#type");
    }

    #[test]
    fn lifetimes_stay() {
        check("fn f<'a>(x: &'a str) -> &'a str", "fn f<'a>(x: &'a str) -> &'a str");
    }

    #[test]
    fn lines_stay_where_they_were() {
        assert_eq!(only("a\n/* b\nc */\n\"d\ne\"\nf").lines().count(), 6);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x = loop {", "loop"));
        assert!(!has_word("loop_count looped", "loop"));
    }
}
