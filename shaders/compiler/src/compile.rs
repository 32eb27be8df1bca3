//! Slang to SPIR-V, in process.
//!
//! Every kernel is compiled in a session of its own, so that its bytes cannot depend on what was
//! compiled before it: incremental runs must give what a full run gives.

use std::ffi::CString;

use oa_shader_catalog::{PROFILE, Refusal, Row, Tree, source};
use shader_slang::{
    CompileTarget, CompilerOptions, ComponentType, Downcast, GlobalSession, SessionDesc, TargetDesc,
};

/// Number of the warning that an operation asks for more than the profile.
const PROFILE_UPGRADED: &str = "41012";

/// The compiler that is linked into this program.
pub struct Compiler {
    global: GlobalSession,
}

impl Compiler {
    /// Starts the compiler; `None` when it does not start.
    pub fn start() -> Option<Compiler> {
        GlobalSession::new().map(|global| Compiler { global })
    }

    /// The compiler line this compiler stands for, comparable with the one in the lock.
    pub fn line(&self) -> String {
        let tag = self.global.build_tag_string();
        let line = oa_shader_catalog::compiler_line();
        line.replacen(oa_shader_catalog::COMPILER_VERSION, tag, 1)
    }

    /// Compiles one kernel; its entry point is called `main` in the module.
    pub fn compile(&self, tree: &Tree, row: &Row) -> Result<Vec<u8>, Refusal> {
        let refuse =
            |message: String| Refusal::Tool { name: row.name.clone(), stage: "slang", message };
        let folder = CString::new(tree.shaders().to_string_lossy().as_bytes())
            .map_err(|error| refuse(error.to_string()))?;
        let search_paths = [folder.as_ptr()];
        // A profile that is upgraded by a subgroup operation is no fault: needs are reflected.
        let options =
            CompilerOptions::default().warnings_as_errors("all").disable_warning(PROFILE_UPGRADED);
        let target = TargetDesc::default()
            .format(CompileTarget::Spirv)
            .profile(self.global.find_profile(PROFILE));
        let targets = [target];
        let description =
            SessionDesc::default().targets(&targets).search_paths(&search_paths).options(&options);
        let session = self
            .global
            .create_session(&description)
            .ok_or_else(|| refuse("no session".to_owned()))?;
        let slang = |error: shader_slang::Error| refuse(error.to_string());
        let module = session.load_module(&row.file).map_err(slang)?;
        self.same_closure(tree, row, module.dependency_file_paths())?;
        let entry = module
            .find_entry_point_by_name(&row.entry)
            .ok_or_else(|| refuse(format!("{} has no entry point {}", row.file, row.entry)))?;
        let parts: [ComponentType; 2] = [module.downcast().clone(), entry.downcast().clone()];
        let program = session.create_composite_component_type(&parts).map_err(slang)?;
        let program = program.link().map_err(slang)?;
        let code = program.entry_point_code(0, 0).map_err(slang)?;
        Ok(code.as_slice().to_vec())
    }

    /// The source hash stands on the import scan, so the compiler must have read the same files.
    fn same_closure<'a>(
        &self,
        tree: &Tree,
        row: &Row,
        paths: impl Iterator<Item = &'a str>,
    ) -> Result<(), Refusal> {
        let shaders = tree.shaders();
        let root = shaders.canonicalize().map_err(|error| Refusal::io(&shaders, error))?;
        let mut compiler = Vec::new();
        for path in paths {
            let full = std::path::Path::new(path);
            let full = full.canonicalize().map_err(|error| Refusal::io(full, error))?;
            let inside = full.strip_prefix(&root).unwrap_or(&full);
            compiler.push(inside.to_string_lossy().into_owned());
        }
        compiler.sort();
        compiler.dedup();
        let scan: Vec<String> = source::closure(tree, &row.file)?.into_keys().collect();
        if compiler == scan {
            return Ok(());
        }
        Err(Refusal::Closure { name: row.name.clone(), compiler, scan })
    }
}
