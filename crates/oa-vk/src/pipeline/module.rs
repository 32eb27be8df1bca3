//! The little of a SPIR-V module that building a pipeline needs, read without trust.
//!
//! The whole module was validated when it was compiled; here only what would make the driver read
//! beyond it is refused.

use std::ffi::CString;

/// A module as words, and the name of its compute entry point.
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    pub(super) words: Vec<u32>,
    pub(super) entry: CString,
}

const MAGIC: u32 = 0x0723_0203;
const HEADER_WORDS: usize = 5;
const SOURCE: u32 = 3;
const ENTRY_POINT: u32 = 15;
const FUNCTION_END: u32 = 56;
const GL_COMPUTE: u32 = 5;

/// Reads a module; the error is the rule that it breaks.
pub(super) fn parse(bytes: &[u8]) -> Result<Module, &'static str> {
    if !bytes.len().is_multiple_of(4) {
        return Err("its length is no multiple of 4");
    }
    let word = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    let mut words: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
    if words.len() < HEADER_WORDS {
        return Err("it is shorter than a header");
    }
    if words[0] != MAGIC {
        return Err("it does not start with SPIR-V's number");
    }
    let (mut at, mut entry, mut last) = (HEADER_WORDS, None, 0);
    while at < words.len() {
        let (len, opcode) = ((words[at] >> 16) as usize, words[at] & 0xffff);
        let Some(instruction) = words.get_mut(at..at + len).filter(|_| len > 0) else {
            return Err("an instruction reaches beyond its end");
        };
        if let (SOURCE, Some(language)) = (opcode, instruction.get_mut(1)) {
            // A remark for debuggers. Layers older than a language's number (Slang's is of 2024)
            // refuse the module for it.
            *language = 0;
        }
        if opcode == ENTRY_POINT && instruction.get(1) == Some(&GL_COMPUTE) {
            if entry.is_some() {
                return Err("it has more than one compute entry point");
            }
            entry = Some(literal(instruction.get(3..).unwrap_or_default())?);
        }
        at += len;
        last = opcode;
    }
    if last != FUNCTION_END {
        // Drivers crash on it: every module ends with the end of its last function.
        return Err("it does not end with a function");
    }
    let entry = entry.ok_or("it has no compute entry point")?;
    Ok(Module { words, entry })
}

fn literal(words: &[u32]) -> Result<CString, &'static str> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).ok_or("a name has no end")?;
    CString::new(&bytes[..end]).map_err(|_| "a name has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn module(body: &[u32]) -> Vec<u8> {
        bytes(&[&[MAGIC, 0x1_0300, 0, 9, 0], body, &[1 << 16 | FUNCTION_END]].concat())
    }

    const MAIN: [u32; 5] = [5 << 16 | ENTRY_POINT, GL_COMPUTE, 4, 0x6e69_616d, 0];

    #[test]
    fn the_entry_point_is_found() {
        let body = [&[2 << 16 | 17, 1], &MAIN[..]].concat();
        let parsed = parse(&module(&body)).expect("a module");
        assert_eq!(parsed.entry.as_c_str(), c"main");
        assert_eq!(parsed.words.len(), 13);
    }

    #[test]
    fn the_source_language_is_left_out() {
        let body = [&MAIN[..], &[3 << 16 | SOURCE, 11, 1]].concat();
        let parsed = parse(&module(&body)).expect("a module");
        assert_eq!(parsed.words[10..13], [3 << 16 | SOURCE, 0, 1]);
    }

    #[test]
    fn broken_modules_are_refused_by_their_rule() {
        let check = |bytes: &[u8], reason| assert_eq!(parse(bytes), Err(reason));
        check(b"abc", "its length is no multiple of 4");
        check(&bytes(&[MAGIC]), "it is shorter than a header");
        check(&bytes(&[1; 5]), "it does not start with SPIR-V's number");
        check(&module(&[]), "it has no compute entry point");
        check(&module(&[0]), "an instruction reaches beyond its end");
        check(&module(&[9 << 16]), "an instruction reaches beyond its end");
        check(&module(&[MAIN, MAIN].concat()), "it has more than one compute entry point");
        let whole = module(&MAIN);
        check(&whole[..whole.len() - 4], "it does not end with a function");
        let endless = [4 << 16 | ENTRY_POINT, GL_COMPUTE, 4, 0x6161_6161];
        check(&module(&endless), "a name has no end");
        check(&module(&[2 << 16 | ENTRY_POINT, GL_COMPUTE]), "a name has no end");
    }
}
