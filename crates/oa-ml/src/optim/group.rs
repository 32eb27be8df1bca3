//! Parameters with a learning rate or weight decay of their own.

use super::{not_negative, refuse};
use crate::error::{Error, Result};
use crate::param::Layout;
use serde::{Deserialize, Serialize};

/// Some parameters of a model, and what is different about their update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroup {
    /// Which parameters: names, modules, or names with `*` for any characters.
    pub patterns: Vec<String>,
    /// Factor of the learning rate, whatever the schedule makes of that.
    pub lr_scale: f64,
    /// Weight decay of every parameter of the group, whatever its shape; without one, the
    /// optimizer's, which decays matrices only.
    pub weight_decay: Option<f64>,
}

impl Default for ParameterGroup {
    /// No parameters, and nothing different about them.
    fn default() -> ParameterGroup {
        ParameterGroup { patterns: Vec::new(), lr_scale: 1.0, weight_decay: None }
    }
}

impl ParameterGroup {
    /// A group whose parameters learn at a factor of the learning rate.
    pub fn scaled(patterns: &[&str], lr_scale: f64) -> ParameterGroup {
        let patterns = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        ParameterGroup { patterns, lr_scale, ..ParameterGroup::default() }
    }
}

/// The group of each parameter, if it has one.
pub(super) fn assign(layout: &Layout, groups: &[ParameterGroup]) -> Result<Vec<Option<usize>>> {
    let mut group_of: Vec<Option<usize>> = vec![None; layout.slots().len()];
    for (number, group) in groups.iter().enumerate() {
        let decay = group.weight_decay.unwrap_or(0.0);
        let rules = [not_negative("lr_scale", group.lr_scale), not_negative("weight_decay", decay)];
        refuse("parameter group", &rules)?;
        if group.patterns.is_empty() {
            return Err(Error::EmptyGroup { group: number });
        }
        for index in layout.select(&group.patterns)? {
            if let Some(first) = group_of[index].replace(number) {
                let name = layout.slots()[index].name.clone();
                return Err(Error::TwoGroups { name, first, second: number });
            }
        }
    }
    Ok(group_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oa_graph::Shape;

    fn check(groups: &[ParameterGroup]) -> std::result::Result<Vec<Option<usize>>, String> {
        let mut layout = Layout::default();
        for name in ["embed", "b0.w", "b1.w", "head"] {
            layout.push(name, Shape::from([2, 2]), true, true).unwrap();
        }
        assign(&layout, groups).map_err(|error| error.to_string())
    }

    #[test]
    fn each_parameter_has_one_group_or_none() {
        let groups = [ParameterGroup::scaled(&["b1"], 0.5), ParameterGroup::scaled(&["*e*"], 2.0)];
        assert_eq!(check(&groups).unwrap(), [Some(1), None, Some(0), Some(1)]);
        assert_eq!(check(&[]).unwrap(), [None; 4]);
    }

    #[test]
    fn wrong_groups_say_what_is_wrong() {
        let refuse = |groups: &[ParameterGroup], expected: &str| {
            assert_eq!(check(groups).unwrap_err(), expected);
        };
        let group = |patterns: &[&str]| ParameterGroup::scaled(patterns, 1.0);
        refuse(&[group(&["b0", "b7"])], "pattern `b7` matches none of the 4 parameters");
        refuse(
            &[group(&["head"]), group(&["b0"]), group(&["*.w"])],
            "parameter `b0.w` is in the parameter groups 1 and 2; a parameter has one rate and one \
             decay",
        );
        refuse(&[group(&[])], "parameter group 0 has no pattern, so it groups nothing");
        refuse(
            &[ParameterGroup::scaled(&["b0"], f64::NAN)],
            "parameter group: lr_scale is NaN, it must be finite and not negative",
        );
        let decay = ParameterGroup { weight_decay: Some(-1.0), ..group(&["b0"]) };
        refuse(&[decay], "parameter group: weight_decay is -1, it must be finite and not negative");
    }
}
