//! How the next token is chosen from the logits.

use crate::error::{Error, Result};

/// Stream id of sampled tokens: far from the ids of dropout sites.
const SAMPLE_STREAM: u32 = 0x5A4D_0001;

/// Settings of the choice. The default is greedy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest logit (ties to the lower id).
    pub temperature: f32,
    /// Only this many of the likeliest tokens; 0 for all.
    pub top_k: u32,
    /// Only the likeliest tokens that together reach this probability; 1 for all.
    pub top_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Refuses settings outside their range.
    ///
    /// # Errors
    ///
    /// [`Error::Sampling`] names the setting.
    pub fn check(&self) -> Result<()> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let (name, allowed) = ("temperature", "finite and not negative");
            return Err(Error::Sampling { name, value: self.temperature, allowed });
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            let (name, allowed) = ("top_p", "above 0 and at most 1");
            return Err(Error::Sampling { name, value: self.top_p, allowed });
        }
        Ok(())
    }

    /// What the device is told.
    pub(super) fn controls(&self) -> [f32; 4] {
        [self.temperature, self.top_k as f32, self.top_p, 0.0]
    }

    /// Which random numbers choose the token of number `index` of a row with that seed.
    pub(super) fn counter(&self, seed: u64, index: u32) -> [u32; 4] {
        [seed as u32, (seed >> 32) as u32, SAMPLE_STREAM, index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_range_are_named() {
        let message = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        let bad = Sampling { temperature: -0.5, ..Default::default() };
        assert_eq!(
            message(bad),
            "sampling: temperature is -0.5, it must be finite and not negative"
        );
        let bad = Sampling { top_p: 0.0, ..Default::default() };
        assert_eq!(message(bad), "sampling: top_p is 0, it must be above 0 and at most 1");
        assert!(Sampling::default().check().is_ok());
    }
}
