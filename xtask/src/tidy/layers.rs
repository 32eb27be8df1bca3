//! The layers of the workspace, read from the manifests.
//!
//! Exists so that a crate cannot come to depend on one above it. The order is the list below; a crate
//! that is not in a list is a finding too, so that a new one is placed before it is used.

use super::Finding;
use crate::shell;
use crate::workspace;
use anyhow::{Context, Result};

/// The product, lowest first. A crate may name only crates before it.
const LAYERS: [&str; 6] = ["oa-vk", "oa-kernels", "oa-graph", "oa-ml", "oa-io", "oa"];

/// Names that a layer may not use although they lie below it, and why.
const HIDDEN: [(&str, &str, &str); 2] = [
    ("oa-ml", "oa-vk", "oa-graph re-exports what a model may know of a device"),
    ("oa-io", "oa-vk", "files know no device"),
];

/// Tools around the product: they may name every layer, and only each other may name them.
const TOOLS: [&str; 4] = ["oa-shader-catalog", "oa-shader-compiler", "oa-tests", "xtask"];

/// Tools that a layer's own tests may use, and nothing else of it.
const IN_TESTS: [&str; 1] = ["oa-shader-catalog"];

/// One crate of the workspace.
#[derive(Debug, Default)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Names it depends on, and whether only for its tests.
    pub dependencies: Vec<(String, bool)>,
}

/// The crates of this workspace.
pub fn read() -> Result<Vec<Package>> {
    let mut command = workspace::cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    parse(&shell::capture(&mut command)?)
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let packages = value["packages"].as_array().context("cargo metadata lists no packages")?;
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap_or("").to_string();
    let dependencies = |value: &serde_json::Value| {
        let list = value["dependencies"].as_array().into_iter().flatten();
        list.map(|entry| (name(entry), entry["kind"] == "dev")).collect()
    };
    Ok(packages
        .iter()
        .map(|package| Package { name: name(package), dependencies: dependencies(package) })
        .collect())
}

/// Every crate is placed, and names only what lies below it.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let own = LAYERS.iter().position(|layer| *layer == package.name);
        let tool = TOOLS.contains(&package.name.as_str());
        let mut refuse = |message: String| findings.push(Finding::new(&package.name, 0, message));
        if own.is_none() && !tool {
            refuse("has no place among the layers; name it in tidy/layers.rs".to_string());
        }
        for (name, in_tests) in &package.dependencies {
            let layer = LAYERS.iter().position(|layer| layer == name);
            if own.is_some() && layer >= own {
                refuse(format!("depends on {name}, which does not lie below it"));
            }
            let allowed = tool || (*in_tests && IN_TESTS.contains(&name.as_str()));
            if TOOLS.contains(&name.as_str()) && !allowed {
                refuse(format!("depends on {name}, which is a tool around the product"));
            }
            let hidden = HIDDEN.iter().find(|(who, what, _)| *who == package.name && what == name);
            if let Some((_, _, why)) = hidden {
                refuse(format!("names {name}: {why}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::fixture::said;
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| ((*name).to_string(), false)).collect();
        Package { name: name.to_string(), dependencies }
    }

    #[test]
    fn looking_up_is_found() {
        let found = said(check(&[package("oa-graph", &["oa-vk", "serde", "oa-ml"])]));
        assert_eq!(found, ["oa-graph: depends on oa-ml, which does not lie below it"]);
    }

    #[test]
    fn hidden_names_tools_and_strangers_are_found() {
        let found = said(check(&[
            package("oa-ml", &["oa-graph", "oa-vk"]),
            package("oa-io", &["oa-tests"]),
            package("oa-new", &[]),
        ]));
        assert_eq!(
            found,
            [
                "oa-ml: names oa-vk: oa-graph re-exports what a model may know of a device",
                "oa-io: depends on oa-tests, which is a tool around the product",
                "oa-new: has no place among the layers; name it in tidy/layers.rs",
            ]
        );
    }

    #[test]
    fn a_tool_for_tests_is_allowed_in_tests_only() {
        let with = |in_tests| Package {
            name: "oa-kernels".into(),
            dependencies: vec![("oa-shader-catalog".into(), in_tests)],
        };
        assert!(check(&[with(true)]).is_empty());
        assert_eq!(check(&[with(false)]).len(), 1);
    }

    #[test]
    fn metadata_is_read_with_the_kind_of_each_dependency() {
        let text = r#"{"packages":[{"name":"a","dependencies":[
            {"name":"b","kind":null},{"name":"c","kind":"dev"}]}]}"#;
        let packages = parse(text).unwrap();
        assert_eq!(packages[0].name, "a");
        assert_eq!(packages[0].dependencies, [("b".to_string(), false), ("c".to_string(), true)]);
    }

    #[test]
    fn this_workspace_is_layered() {
        assert_eq!(said(check(&read().unwrap())), Vec::<String>::new());
    }
}
