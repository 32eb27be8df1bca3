//! Names of parameters with gaps: how groups and freezing say which parameters they mean.

use super::layout::Layout;
use crate::error::{Error, Result};

/// Whether a pattern means the parameter of this name: it is the name, or `*` stands in it for any
/// characters, or it is that of a module and the name lies below it. `b0.attn` means `b0.attn.w_q`,
/// `*.w_q` too.
pub fn matches(pattern: &str, name: &str) -> bool {
    let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().any(|end| glob(pattern.as_bytes(), &name.as_bytes()[..end]))
}

/// Whether the whole name fits, with `*` for any characters.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, taken)) = star {
            // The last gap takes one character more.
            star = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

impl Layout {
    /// Numbers of the parameters that any of the patterns means, in declaration order; see
    /// [`crate::param::matches`].
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] names the first pattern that means none.
    pub fn select<S: AsRef<str>>(&self, patterns: &[S]) -> Result<Vec<usize>> {
        let mut chosen = vec![false; self.slots().len()];
        for pattern in patterns {
            let mut found = false;
            for (slot, chosen) in self.slots().iter().zip(&mut chosen) {
                let hit = matches(pattern.as_ref(), &slot.name);
                (*chosen, found) = (*chosen || hit, found || hit);
            }
            if !found {
                let (pattern, parameters) = (pattern.as_ref().into(), chosen.len());
                return Err(Error::Pattern { pattern, parameters });
            }
        }
        Ok((0..chosen.len()).filter(|&index| chosen[index]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oa_graph::Shape;

    #[test]
    fn a_pattern_is_a_name_a_module_or_has_gaps() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches(pattern, name), expected, "{pattern} for {name}");
        };
        check("embed", "embed", true);
        check("embed", "embedding", false);
        check("b0.attn", "b0.attn.w_q", true);
        check("b0.attn", "b0.attn2.w_q", false);
        check("b0", "b01.attn.w_q", false);
        check("*.w_q", "b0.attn.w_q", true);
        check("*.w_q", "w_q", false);
        check("b*.attn", "b7.attn.w_q", true);
        check("*w*q*", "b0.attn.w_q", true);
        check("*", "anything", true);
        check("", "embed", false);
    }

    #[test]
    fn a_pattern_that_means_nothing_is_named() {
        let mut layout = Layout::default();
        for name in ["embed", "rnn.l0.w", "rnn.l1.w"] {
            layout.push(name, Shape::from([2]), false, false).unwrap();
        }
        assert_eq!(layout.select(&["rnn"]).unwrap(), [1, 2]);
        assert_eq!(layout.select(&["*.l1.*", "embed"]).unwrap(), [0, 2]);
        let message = layout.select(&["embed", "hed"]).unwrap_err().to_string();
        assert_eq!(message, "pattern `hed` matches none of the 3 parameters");
    }
}
