//! `cargo xtask test`: the whole test run on a prepared machine, and its count.
//!
//! Exists so that the tests run on the same drivers everywhere and end with one line that says how
//! many ran. Chooses the driver through the environment; what a test does with it is its own affair.

use crate::setup::{self, Environment, Prepared, Wants};
use crate::shell;
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Result, bail};
use std::process::Command;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Which driver the tests run on.
    #[arg(long, value_enum, default_value_t = Choice::Lavapipe)]
    driver: Choice,
    /// Run on a device of this machine instead: an index, a part of its name, or its UUID.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Run without the validation layer.
    #[arg(long)]
    no_validation: bool,
    /// Run the suites of the gate that take minutes too: very large values, memory over a long run.
    #[arg(long)]
    long: bool,
    /// Run only `cargo test` with these arguments, e.g. `-- -p oa-vk`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Drivers that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The software driver of Mesa, the newest that the distribution offers.
    Lavapipe,
    /// SwiftShader, the second software driver.
    Swiftshader,
    /// Whatever the machine itself offers.
    Machine,
}

/// Where a test run takes place.
#[derive(Clone)]
pub struct Place {
    /// For messages.
    pub name: String,
    /// Environment of the test programs.
    pub environment: Environment,
    /// Value of `OA_DEVICE`, when a device was asked for.
    pub device: Option<String>,
    /// True when the validation layer watches every call.
    pub validation: bool,
    /// Bits of the driver's vectors, where it is told: they decide the size of its subgroups.
    pub vector_bits: Option<&'static str>,
}

/// A runner of tests: its command line for cargo and how its closing line is read.
pub struct Runner {
    /// For messages.
    name: &'static str,
    /// Arguments of cargo.
    arguments: &'static [&'static str],
    /// Suites of the gate; empty for its usual ones and for other runners.
    suites: &'static [&'static str],
    /// Reads a closing line.
    read: fn(&str) -> Option<Tally>,
}

/// Arguments of cargo that run the gate.
pub const GATE: &[&str] = &["test", "--quiet", "--package", "oa-tests", "--test", "gate"];
/// Arguments of cargo that run the comparison with reference vectors.
pub const VECTORS: &[&str] = &["run", "--quiet", "--package", "oa-tests", "--bin", "vectors"];

/// Arguments of cargo that run the workloads of the teaching contract.
pub const CONTRACT: &[&str] =
    &["run", "--quiet", "--package", "oa", "--bin", "oa", "--", "contract"];

/// The whole test run, in order.
const RUNNERS: [Runner; 3] = [
    Runner {
        name: "unit, integration and documentation tests",
        arguments: &["test", "--no-fail-fast"],
        suites: &[],
        read: Tally::of_test_program,
    },
    Runner { name: "the gate", arguments: GATE, suites: &[], read: Tally::of_closing_line },
    REFERENCE_VECTORS,
];

const REFERENCE_VECTORS: Runner = Runner {
    name: "reference vectors",
    arguments: VECTORS,
    suites: &[],
    read: Tally::of_closing_line,
};

/// What runs again with other sizes of the driver's subgroups.
const SUBGROUP_RUNNERS: [Runner; 2] = [
    Runner {
        name: "every kernel of the gate",
        arguments: GATE,
        suites: &["ops", "same"],
        read: Tally::of_closing_line,
    },
    REFERENCE_VECTORS,
];

/// Vector widths of lavapipe beside its usual one, 256: subgroups of 4 and of 16 invocations.
const VECTOR_BITS: [&str; 2] = ["128", "512"];

/// The suites of the gate that run only when they are named.
const LONG: Runner = Runner {
    name: "the long suites of the gate",
    arguments: GATE,
    suites: &["large", "memory"],
    read: Tally::of_closing_line,
};

/// Runs `cargo xtask test`.
pub fn run(options: &Options) -> Result<()> {
    let choice = if options.device.is_some() { Choice::Machine } else { options.driver };
    let prepared = setup::prepare(wants(choice, !options.no_validation))?;
    let mut place = place(&prepared, choice, !options.no_validation)?;
    place.device = options.device.clone();
    let mut tally = match options.rest.as_slice() {
        [] => everything(&place, choice)?,
        rest => one(&place, &RUNNERS[0], rest)?,
    };
    match options.long {
        true => tally += long(&place)?,
        false => println!("the long suites of the gate were not asked for (--long)"),
    }
    println!("{tally}");
    if tally.failed > 0 { bail!("the test run failed on {}", place.name) } else { Ok(()) }
}

/// The suites that take minutes. They measure memory, so the validation layer stays away.
pub fn long(place: &Place) -> Result<Tally> {
    let place = Place { validation: false, ..place.clone() };
    one(&place, &LONG, &[])
}

/// Every runner at a place, one after the other.
pub fn whole(place: &Place) -> Result<Tally> {
    let mut tally = Tally::default();
    for runner in &RUNNERS {
        tally += one(place, runner, &[])?;
    }
    Ok(tally)
}

/// [`whole`], and [`subgroups`] where the driver has several sizes.
fn everything(place: &Place, choice: Choice) -> Result<Tally> {
    let mut tally = whole(place)?;
    if choice == Choice::Lavapipe {
        tally += subgroups(place)?;
    }
    Ok(tally)
}

/// Every kernel and vector on the subgroup sizes that lavapipe can be told to have. The validation
/// layer has seen the same kernels at the usual size.
pub fn subgroups(place: &Place) -> Result<Tally> {
    let mut tally = Tally::default();
    for bits in VECTOR_BITS {
        let name = format!("{} with vectors of {bits} bits", place.name);
        let place = Place { name, vector_bits: Some(bits), validation: false, ..place.clone() };
        for runner in &SUBGROUP_RUNNERS {
            tally += one(&place, runner, &[])?;
        }
    }
    Ok(tally)
}

/// The workloads of the teaching contract that `rest` names; all without names.
pub fn contract(place: &Place, rest: &[String]) -> Result<Tally> {
    let name = "the teaching contract";
    let runner = Runner { name, arguments: CONTRACT, suites: &[], read: Tally::of_closing_line };
    one(place, &runner, rest)
}

/// What set-up has to bring for a choice.
pub fn wants(choice: Choice, validation: bool) -> Wants {
    let (lavapipe, swiftshader) = (choice == Choice::Lavapipe, choice == Choice::Swiftshader);
    Wants { lavapipe, swiftshader, validation }
}

/// The place of a choice on a prepared machine; an error that says why there is none.
pub fn place(prepared: &Prepared, choice: Choice, validation: bool) -> Result<Place> {
    if let Err(reason) = &prepared.validation
        && validation
    {
        bail!("there is no validation layer on this machine: {reason}");
    }
    let driver = match choice {
        Choice::Machine => None,
        Choice::Lavapipe => match &prepared.lavapipe {
            Some(driver) => Some(driver),
            None => bail!("there is no lavapipe on this machine"),
        },
        Choice::Swiftshader => match &prepared.swiftshader {
            Ok(driver) => Some(driver),
            Err(reason) => bail!("there is no SwiftShader on this machine: {reason}"),
        },
    };
    Ok(Place {
        name: driver.map_or("the machine's own driver".to_string(), |it| it.name.clone()),
        environment: prepared.environment(driver),
        device: None,
        validation,
        vector_bits: None,
    })
}

/// Points a command at a place.
pub fn at(command: &mut Command, place: &Place) {
    command.envs(place.environment.iter().map(|(name, value)| (*name, value)));
    match &place.device {
        Some(device) => drop(command.env("OA_DEVICE", device)),
        // A device chosen for everyday use does not exist among a test driver's.
        None if place.environment.iter().any(|(name, _)| *name == "VK_DRIVER_FILES") => {
            command.env_remove("OA_DEVICE");
        }
        None => {}
    }
    if place.validation {
        command.env("OA_VALIDATION", "sync");
    }
    if let Some(bits) = place.vector_bits {
        command.env("LP_NATIVE_VECTOR_WIDTH", bits);
    }
}

/// Runs one runner at a place, shows it and counts its tests.
///
/// A runner that fails without a failed test (it did not build, or died), or that says nothing,
/// counts as one failure.
fn one(place: &Place, runner: &Runner, rest: &[String]) -> Result<Tally> {
    let watched = if place.validation { "with" } else { "without" };
    println!("\n{} on {}, {watched} the validation layer", runner.name, place.name);
    let mut command = workspace::cargo();
    command.args(runner.arguments).args(rest);
    if !runner.suites.is_empty() {
        command.arg("--").args(runner.suites.iter().flat_map(|suite| ["--suite", suite]));
    }
    at(&mut command, place);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        // Each device test drives a driver that uses every core itself.
        command.env("RUST_TEST_THREADS", "2");
    }
    let mut read = None;
    let status = shell::stream(&mut command, |line| {
        if let Some(counts) = (runner.read)(line) {
            *read.get_or_insert_default() += counts;
        }
    })?;
    Ok(verdict(read, shell::verdict(&command, status)))
}

/// The count of a runner, given what it printed and how it ended.
fn verdict(read: Option<Tally>, ended: Result<()>) -> Tally {
    let mut tally = read.unwrap_or_default();
    match ended {
        Err(error) if tally.failed == 0 => {
            println!("{error}");
            tally += Tally::FAIL;
        }
        Ok(()) if read.is_none() => {
            println!("it printed no closing line, so nobody knows what ran");
            tally += Tally::FAIL;
        }
        _ => {}
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Driver;

    fn prepared() -> Prepared {
        let driver = Driver { name: "lavapipe".into(), manifest: "/c/lvp.json".into() };
        Prepared {
            lavapipe: Some(driver),
            swiftshader: Err("chromium-common is not offered".into()),
            layers: None,
            validation: Err("apt is away".into()),
            hardware: false,
        }
    }

    #[test]
    fn a_place_points_children_at_its_driver_and_under_validation() {
        let mut place = place(&prepared(), Choice::Lavapipe, false).unwrap();
        place.validation = true;
        let mut command = Command::new("true");
        at(&mut command, &place);
        let set = |name: &str| {
            let value = command.get_envs().find(|(key, _)| *key == name)?.1?;
            Some(value.to_string_lossy().into_owned())
        };
        assert_eq!(set("VK_DRIVER_FILES").as_deref(), Some("/c/lvp.json"));
        assert_eq!(set("OA_VALIDATION").as_deref(), Some("sync"));
        assert_eq!(set("OA_DEVICE"), None);
    }

    #[test]
    fn a_runner_that_died_or_said_nothing_counts_as_failed() {
        let died = || Err(anyhow::anyhow!("ended by a signal"));
        assert_eq!(verdict(Some(Tally::PASS), Ok(())), Tally::PASS);
        assert_eq!(verdict(Some(Tally::PASS), died()).to_string(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(verdict(Some(Tally::FAIL), died()), Tally::FAIL);
        assert_eq!(verdict(None, Ok(())), Tally::FAIL);
    }

    #[test]
    fn a_missing_driver_is_an_error_with_its_reason() {
        let Err(error) = place(&prepared(), Choice::Swiftshader, false) else { panic!("no error") };
        assert!(error.to_string().ends_with("chromium-common is not offered"), "{error}");
        let Err(error) = place(&prepared(), Choice::Lavapipe, true) else { panic!("no error") };
        assert_eq!(error.to_string(), "there is no validation layer on this machine: apt is away");
    }
}
