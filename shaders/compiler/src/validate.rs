//! Runs `spirv-val` over a module: what it refuses would crash some driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use oa_shader_catalog::{Reflection, Refusal, Row};

/// The validator.
pub struct Validator {
    program: PathBuf,
}

impl Validator {
    /// The validator at `program`.
    pub fn new(program: PathBuf) -> Validator {
        Validator { program }
    }

    /// Validates the module in `file` for the Vulkan version its needs ask for.
    pub fn validate(&self, row: &Row, facts: &Reflection, file: &Path) -> Result<(), Refusal> {
        let later = facts.needs.iter().any(|need| need.is_after_vulkan_1_1());
        let environment = if later { "vulkan1.3" } else { "vulkan1.1" };
        let output = Command::new(&self.program)
            .args(["--target-env", environment])
            .arg(file)
            .output()
            .map_err(|error| Refusal::io(&self.program, error))?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(Refusal::Tool {
            name: row.name.clone(),
            stage: "spirv-val",
            message: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}
