//! From a number of workgroups to a grid the device takes.
//!
//! Devices promise only 65,535 workgroups in one direction. Kernels therefore number their groups
//! as `y * gridX + x` and ignore numbers beyond the count, so that a grid can fold into two
//! directions; this computes the fold.

use oa_vk::Limits;

use crate::error::{Error, Result};

/// The grid that holds at least `groups` workgroups: one row while they fit, else rows of equal
/// length. The first entry is the `gridX` word of the launch header; no groups give an empty grid.
pub fn grid(groups: u64, limits: &Limits) -> Result<[u32; 3]> {
    let [limit_x, limit_y, _] = limits.groups;
    // The count itself travels in a 32-bit word, so it has to fit one.
    if groups > u64::from(limit_x) * u64::from(limit_y) || groups > u64::from(u32::MAX) {
        return Err(Error::GridTooLarge { groups, limit_x, limit_y });
    }
    if groups == 0 {
        return Ok([0, 1, 1]);
    }
    let rows = groups.div_ceil(u64::from(limit_x));
    let columns = groups.div_ceil(rows);
    let narrow = |value: u64| u32::try_from(value).expect("bounded by the limits checked above");
    Ok([narrow(columns), narrow(rows), 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use oa_vk::Capabilities;

    fn floor() -> Limits {
        Capabilities::floor().limits
    }

    #[test]
    fn few_groups_are_one_row() {
        for groups in [1, 2, 127, 65_535] {
            assert_eq!(grid(groups, &floor()), Ok([groups as u32, 1, 1]));
        }
    }

    #[test]
    fn no_groups_are_an_empty_grid() {
        assert_eq!(grid(0, &floor()), Ok([0, 1, 1]));
    }

    #[test]
    fn many_groups_fold_into_rows() {
        assert_eq!(grid(65_536, &floor()), Ok([32_768, 2, 1]));
        assert_eq!(grid(131_071, &floor()), Ok([43_691, 3, 1]));
        for groups in [65_537, 1_000_003, 16_777_217, 65_535 * 65_535 - 1, 65_535 * 65_535] {
            let [x, y, z] = grid(groups, &floor()).unwrap();
            assert!(x <= 65_535 && y <= 65_535 && z == 1);
            let covered = u64::from(x) * u64::from(y);
            assert!(covered >= groups, "{x} x {y} misses some of {groups}");
            assert!(covered - groups < u64::from(y), "{x} x {y} wastes a row on {groups}");
        }
    }

    #[test]
    fn too_many_groups_are_refused_with_the_numbers() {
        let groups = 65_535 * 65_535 + 1;
        let error = grid(groups, &floor()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "4294836226 workgroups are more than the device's 65535 times 65535"
        );
    }

    #[test]
    fn the_count_fits_the_word_of_the_launch_header() {
        let mut limits = floor();
        limits.groups = [u32::MAX; 3];
        assert_eq!(grid(u64::from(u32::MAX), &limits), Ok([u32::MAX, 1, 1]));
        assert!(grid(u64::from(u32::MAX) + 1, &limits).is_err());
    }
}
