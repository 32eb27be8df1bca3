//! Shader sources: which files a kernel is made of, and the hash over them.
//!
//! The scan is textual and small because OA's shaders are plain: modules are imported as
//! `import lib.name;`, and there is no preprocessor. The compiler's own list of files is compared
//! with it on every compilation, so the scan cannot silently miss one.

use std::collections::BTreeMap;

use crate::error::Refusal;
use crate::table::Row;
use crate::tree::Tree;

/// The files a kernel is compiled from: path relative to `shaders/` and contents.
pub type Closure = BTreeMap<String, Vec<u8>>;

/// Reads a shader and everything it imports, directly or not.
pub fn closure(tree: &Tree, file: &str) -> Result<Closure, Refusal> {
    let mut found = Closure::new();
    let mut open = vec![file.to_owned()];
    while let Some(file) = open.pop() {
        if found.contains_key(&file) {
            continue;
        }
        let path = tree.shaders().join(&file);
        let bytes = std::fs::read(&path).map_err(|error| Refusal::io(path, error))?;
        let text = without_comments(&String::from_utf8_lossy(&bytes));
        refuse_preprocessor(&file, &text)?;
        for module in imports(&text) {
            let path = format!("{}.slang", module.replace('.', "/"));
            if !tree.shaders().join(&path).is_file() {
                return Err(Refusal::Import { file, module, path });
            }
            open.push(path);
        }
        found.insert(file, bytes);
    }
    Ok(found)
}

/// The `src` column: hash of the compiler line, the row's arguments and the import closure.
pub fn hash(compiler_line: &str, row: &Row, closure: &Closure) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(compiler_line.as_bytes());
    field(row.file.as_bytes());
    field(row.entry.as_bytes());
    for (path, bytes) in closure {
        field(path.as_bytes());
        field(bytes);
    }
    let mut text = hasher.finalize().to_hex().to_string();
    text.truncate(16);
    text
}

/// Names of the compute entry points in the text of a shader, in order.
pub fn entry_points(text: &str) -> Vec<String> {
    let text = without_comments(text);
    let marker = "[shader(\"compute\")]";
    let mut names = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(marker) {
        rest = rest[at + marker.len()..].trim_start();
        while rest.starts_with('[') {
            let Some(end) = rest.find(']') else { break };
            rest = rest[end + 1..].trim_start();
        }
        if let Some(tail) = rest.strip_prefix("void") {
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let name = tail.trim_start().split(end).next().unwrap_or_default();
            names.push(name.to_owned());
        }
    }
    names
}

fn imports(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for statement in text.split([';', '}', '{']) {
        let statement = statement.trim().trim_start_matches("__exported").trim_start();
        match statement.strip_prefix("import") {
            Some(module) if module.starts_with(char::is_whitespace) => {
                modules.push(module.trim().to_owned());
            }
            _ => {}
        }
    }
    modules
}

fn refuse_preprocessor(file: &str, text: &str) -> Result<(), Refusal> {
    for (index, line) in text.lines().enumerate() {
        let what = match line.trim_start() {
            line if line.starts_with('#') => "the preprocessor",
            line if line.starts_with("__include") => "__include",
            _ => continue,
        };
        return Err(Refusal::Preprocessor { file: file.to_owned(), line: index + 1, what });
    }
    Ok(())
}

/// The text with comments blanked; line numbers stay.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                quoted = !quoted;
                out.push(c);
            }
            ('/', Some('/')) if !quoted => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) if !quoted => {
                chars.next();
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                out.push(' ');
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_imports_outside_comments() {
        let text = "// import lib.a;\nimport lib.b;\n/* import lib.c; */ import lib.d;\n\
                    float important() { return 1; }";
        assert_eq!(imports(&without_comments(text)), ["lib.b", "lib.d"]);
    }

    #[test]
    fn finds_entry_points() {
        let text = "[shader(\"compute\")]\n[numthreads(64, 1, 1)]\nvoid gelu(uint3 g : SV_GroupID) {}\n\
                    // [shader(\"compute\")] void no() {}\n\
                    [shader(\"compute\")] [numthreads(8,1,1)] void relu_cpu() {}";
        assert_eq!(entry_points(text), ["gelu", "relu_cpu"]);
    }

    #[test]
    fn refuses_the_preprocessor() {
        let text = without_comments("/* a\n# b */\n  #define X 1\n");
        let message = refuse_preprocessor("a.slang", &text).expect_err("a define").to_string();
        assert!(message.contains("shaders/a.slang:3"), "{message}");
    }
}
