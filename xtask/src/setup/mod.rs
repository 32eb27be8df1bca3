//! Set-up: finds what building and testing need, installs what is missing, says what and why.
//!
//! Exists so that the two commands of the README work on a machine that has only Rust and gcc. Every
//! step is skipped when its result is already there. It does not edit the system's configuration:
//! newer drivers are unpacked into a cache folder and chosen by environment variables.

pub mod apt;
pub mod cache;
pub mod driver;
mod source;

use anyhow::{Context, Result, bail};
use apt::Need;
pub use driver::Driver;
use std::path::{Path, PathBuf};

/// Options of `cargo xtask setup`.
#[derive(clap::Args)]
pub struct Options {
    /// Unpack the drivers and layers anew.
    #[arg(long)]
    fresh: bool,
}

/// What a task needs beyond building.
#[derive(Clone, Copy)]
pub struct Wants {
    /// lavapipe, also on a machine with a GPU.
    pub lavapipe: bool,
    /// SwiftShader.
    pub swiftshader: bool,
    /// A validation layer.
    pub validation: bool,
}

/// What set-up found or made.
pub struct Prepared {
    /// The preferred lavapipe.
    pub lavapipe: Option<Driver>,
    /// SwiftShader, or why there is none.
    pub swiftshader: std::result::Result<Driver, String>,
    /// Folder with the manifest of a recent validation layer; `None` leaves the system's.
    pub layers: Option<PathBuf>,
    /// That a validation layer can be loaded, or why not.
    pub validation: std::result::Result<(), String>,
    /// True when the machine shows a graphics device node and has a driver for one.
    pub hardware: bool,
}

/// Environment variables of a child process.
pub type Environment = Vec<(&'static str, PathBuf)>;

impl Prepared {
    /// The environment that points a child process at one driver, and at the validation layer.
    /// `None` leaves the choice of driver to the system.
    pub fn environment(&self, driver: Option<&Driver>) -> Environment {
        let mut variables = Environment::new();
        if let Some(driver) = driver {
            variables.push(("VK_DRIVER_FILES", driver.manifest.clone()));
            variables.push(("VK_ICD_FILENAMES", driver.manifest.clone()));
        }
        if let Some(layers) = &self.layers {
            variables.push(("VK_LAYER_PATH", layers.clone()));
        }
        variables
    }
}

/// Runs `cargo xtask setup`.
pub fn run(options: &Options) -> Result<()> {
    let cache = drivers_folder();
    if options.fresh && cache.is_dir() {
        std::fs::remove_dir_all(&cache)
            .with_context(|| format!("cannot empty {}", cache.display()))?;
    }
    let prepared = prepare(Wants { lavapipe: true, swiftshader: true, validation: true })?;
    println!("cache folder:      {}", cache.display());
    let name = |driver: Option<&Driver>| driver.map_or("none".to_string(), |it| it.name.clone());
    println!("software driver:   {}", name(prepared.lavapipe.as_ref()));
    match &prepared.swiftshader {
        Ok(driver) => println!("second driver:     {}", driver.name),
        Err(reason) => println!("second driver:     none ({reason})"),
    }
    match &prepared.validation {
        Ok(()) => println!("validation layer:  present"),
        Err(reason) => println!("validation layer:  none ({reason})"),
    }
    println!("graphics hardware: {}", if prepared.hardware { "present" } else { "none" });
    Ok(())
}

/// Makes the machine ready and returns what it offers.
pub fn prepare(wants: Wants) -> Result<Prepared> {
    let hardware = driver::hardware() && !driver::manifests().is_empty();
    let driver_wanted = wants.lavapipe || !hardware;
    let needs = system_needs(driver_wanted);
    if !needs.is_empty() {
        if !apt::present() {
            bail!(lacking(&needs));
        }
        apt::install(&needs)?;
    }
    let cache = drivers_folder();
    let lavapipe = match driver_wanted {
        true => preferred_lavapipe(&cache),
        false => driver::system_lavapipe(),
    };
    let mut prepared = Prepared {
        lavapipe,
        swiftshader: Err("not asked for".to_string()),
        layers: None,
        validation: Err("not asked for".to_string()),
        hardware,
    };
    if wants.swiftshader || wants.validation {
        second_driver(&cache, &mut prepared);
    }
    if wants.validation && prepared.validation.is_err() {
        prepared.validation = system_layer();
    }
    Ok(prepared)
}

fn drivers_folder() -> PathBuf {
    cache::folder().join("drivers")
}

/// What the system lacks, each with its reason.
fn system_needs(driver_wanted: bool) -> Vec<Need> {
    let mut needs = Vec::new();
    if !compiles_cxx() {
        needs.push(Need { package: "g++", why: "compiles the memory allocator below oa-vk" });
    }
    if !driver::library("libvulkan.so.1") {
        needs.push(Need { package: "libvulkan1", why: "the Vulkan loader" });
    }
    if driver_wanted && driver::system_lavapipe().is_none() {
        let why = "lavapipe, the software driver, and the libraries it needs";
        needs.push(Need { package: "mesa-vulkan-drivers", why });
    }
    needs
}

fn compiles_cxx() -> bool {
    let named = std::env::var_os("CXX").filter(|name| !name.is_empty());
    crate::shell::works(named.unwrap_or_else(|| "c++".into()), &["--version"])
}

fn lacking(needs: &[Need]) -> String {
    let lines = needs.iter().map(|need| format!("\n  {:<24} {}", need.package, need.why));
    let list: String = lines.collect();
    format!(
        "this machine lacks (names as in Debian), and it has no apt to install them with:{list}"
    )
}

/// The newer lavapipe where there is one, else the system's; a refusal is said and not fatal.
fn preferred_lavapipe(cache: &Path) -> Option<Driver> {
    match driver::newer_lavapipe(cache) {
        Ok(Some(newer)) => Some(newer),
        Ok(None) => driver::system_lavapipe(),
        Err(error) => {
            println!(
                "set-up keeps the system's lavapipe, the newer one is not to be had: {error:#}"
            );
            driver::system_lavapipe()
        }
    }
}

/// SwiftShader and the recent validation layer that comes with it; a refusal is kept with its reason.
fn second_driver(cache: &Path, prepared: &mut Prepared) {
    let fetched = match apt::present() {
        true => driver::swiftshader(cache),
        false => Err(anyhow::anyhow!("there is no apt to fetch it with")),
    };
    match fetched {
        Ok((driver, layers)) => {
            prepared.swiftshader = Ok(driver);
            prepared.layers = Some(layers);
            prepared.validation = Ok(());
        }
        Err(error) => prepared.swiftshader = Err(format!("{error:#}")),
    }
}

/// The validation layer of the system, installed where it is missing.
fn system_layer() -> std::result::Result<(), String> {
    let present = || {
        ["/usr/share", "/usr/local/share", "/etc"].iter().any(|base| {
            let folder = Path::new(base).join("vulkan/explicit_layer.d");
            folder.join("VkLayer_khronos_validation.json").exists()
        })
    };
    if present() {
        return Ok(());
    }
    let why = "checks every Vulkan call in tests";
    apt::install(&[Need { package: "vulkan-validationlayers", why }])
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(layers: Option<PathBuf>) -> Prepared {
        Prepared {
            lavapipe: None,
            swiftshader: Err("test".to_string()),
            layers,
            validation: Ok(()),
            hardware: false,
        }
    }

    #[test]
    fn a_driver_and_the_layer_are_named_in_the_environment() {
        let driver = Driver { name: "d".into(), manifest: "/c/d.json".into() };
        let variables = prepared(Some("/c/layers".into())).environment(Some(&driver));
        let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LAYER_PATH"]);
        assert_eq!(variables[0].1, PathBuf::from("/c/d.json"));
    }

    #[test]
    fn without_a_driver_the_system_chooses() {
        assert!(prepared(None).environment(None).is_empty());
    }

    #[test]
    fn a_machine_without_apt_is_told_what_it_lacks() {
        let text = lacking(&[Need { package: "libvulkan1", why: "the Vulkan loader" }]);
        assert!(text.contains("libvulkan1") && text.contains("the Vulkan loader"), "{text}");
    }
}
