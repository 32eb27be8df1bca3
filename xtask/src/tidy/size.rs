//! Sizes: lines of a source file, and lines of a Slang function.
//!
//! Exists because a file that outgrows one screen of headings hides its second subject. The length of
//! Rust functions is clippy's to check.

use super::code;
use super::{File, Finding};

/// Most lines of a source file.
const FILE_LINES: usize = 800;
/// Most lines of a function.
const FUNCTION_LINES: usize = 70;

/// Words that stand before a parenthesis and a block without being a function.
const CONTROL: [&str; 5] = ["if", "for", "while", "switch", "else"];

/// Source files are at most 800 lines long.
pub fn check(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    if !(file.path.ends_with(".rs") || file.path.ends_with(".slang")) || lines <= FILE_LINES {
        return Vec::new();
    }
    let message = format!("{lines} lines; a file has at most {FILE_LINES}: which noun wants out?");
    vec![Finding::new(&file.path, 0, message)]
}

/// Slang functions are at most 70 lines long, from their name to their closing brace.
pub fn check_slang_functions(file: &File) -> Vec<Finding> {
    if !file.path.ends_with(".slang") {
        return Vec::new();
    }
    functions(&code::only(&file.text))
        .into_iter()
        .filter(|function| function.lines > FUNCTION_LINES)
        .map(|function| {
            let message = format!(
                "function `{}` has {} lines; at most {FUNCTION_LINES}",
                function.name, function.lines
            );
            Finding::new(&file.path, function.line, message)
        })
        .collect()
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Functions of a text without comments and literals.
fn functions(text: &str) -> Vec<Function> {
    let mut found = Vec::new();
    // The block we are inside of, when it is a function: its name, line and depth.
    let mut open: Option<(String, usize, usize)> = None;
    let (mut depth, mut line) = (0_usize, 1);
    let (mut head, mut head_line) = (String::new(), 1);
    for c in text.chars() {
        match c {
            '\n' => line += 1,
            '{' => {
                depth += 1;
                if open.is_none() {
                    open = name(&head).map(|name| (name, head_line, depth));
                }
            }
            '}' => {
                if let Some((name, line_of, _)) = open.take_if(|(.., at)| *at == depth) {
                    found.push(Function { name, line: line_of, lines: line + 1 - line_of });
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        if matches!(c, '{' | '}' | ';') {
            head.clear();
        } else if !(head.is_empty() && c.is_whitespace()) {
            if head.is_empty() {
                head_line = line;
            }
            head.push(c);
        }
    }
    found
}

/// The name of the function that a block's head declares; `None` for every other block.
fn name(head: &str) -> Option<String> {
    let mut rest = head.trim();
    while let Some(inner) = rest.strip_prefix('[') {
        rest = after_brackets(inner)?.trim_start(); // attributes
    }
    let before = rest.split_once('(')?.0.trim_end();
    let before = before.split('<').next()?.trim_end();
    let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    let first = before.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    let real = !word.is_empty() && !CONTROL.contains(&word) && !CONTROL.contains(&first);
    real.then(|| word.to_string())
}

fn after_brackets(inner: &str) -> Option<&str> {
    let mut depth = 1;
    for (at, c) in inner.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inner[at + 1..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, said};
    use super::*;

    #[test]
    fn a_long_file_is_found_and_one_at_the_limit_is_not() {
        let text = |lines: usize| "x\n".repeat(lines);
        assert!(check(&file("a.rs", &text(800))).is_empty());
        assert!(check(&file("a.md", &text(801))).is_empty());
        let found = said(check(&file("a.slang", &text(801))));
        assert_eq!(found, ["a.slang: 801 lines; a file has at most 800: which noun wants out?"]);
    }

    #[test]
    fn a_long_slang_function_is_found_by_name() {
        let body = "    x = x + 1;\n".repeat(69);
        let text = format!(
            "struct S {{ float a; }};\n\n[shader(\"compute\")]\n[numthreads(64, 1, 1)]\n\
             void gelu(uint3 id : SV_GroupID)\n{{\n{body}}}\n"
        );
        let found = said(check_slang_functions(&file("shaders/a.slang", &text)));
        assert_eq!(found, ["shaders/a.slang:3: function `gelu` has 74 lines; at most 70"]);
    }

    #[test]
    fn blocks_inside_a_function_and_methods_are_told_apart() {
        let text = "struct S : I\n{\n  float f(float x)\n  {\n    if (x > 0) { return x; }\n    \
                    for (int i = 0; i < 3; i++) { x += 1; }\n    return x;\n  }\n}\n\
                    T g<T : I>(T x) { return x; }\n";
        let found = functions(text);
        let names: Vec<(&str, usize)> =
            found.iter().map(|function| (function.name.as_str(), function.lines)).collect();
        assert_eq!(names, [("f", 6), ("g", 1)]);
    }
}
