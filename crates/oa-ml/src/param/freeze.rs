//! Frozen parameters: no gradient is computed for them, and no update, decay or moment touches them.
//!
//! Freezing is a property of the parameters, not of a session or an optimizer, so that the tape, the
//! update and a checkpoint agree on it. It never changes a value.

use super::layout::Slot;
use super::store::Parameters;
use crate::error::{Error, Result};

/// Which parameters are frozen.
#[derive(Default)]
pub(super) struct Freezing {
    /// A flag a parameter; empty as long as none is frozen.
    flags: Vec<bool>,
    /// Changes so far, so that a captured plan notices one.
    changes: u64,
}

impl Parameters {
    /// Freezes the parameters that the patterns mean (see [`crate::param::matches`]), beside those
    /// that already are. A captured session captures its step again.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] when a pattern means no parameter, [`Error::AllFrozen`] when none would be
    /// left to train. Nothing changes then.
    pub fn freeze<S: AsRef<str>>(&self, patterns: &[S]) -> Result<()> {
        let mut flags = self.freezing_flags();
        for index in self.layout().select(patterns)? {
            flags[index] = true;
        }
        self.set_flags(flags)
    }

    /// Lets the parameters that the patterns mean train again; those that were not frozen stay as
    /// they are. Their moments are those of their last update.
    ///
    /// # Errors
    ///
    /// [`Error::Pattern`] when a pattern means no parameter. Nothing changes then.
    pub fn unfreeze<S: AsRef<str>>(&self, patterns: &[S]) -> Result<()> {
        let mut flags = self.freezing_flags();
        for index in self.layout().select(patterns)? {
            flags[index] = false;
        }
        self.set_flags(flags)
    }

    /// Names of the frozen parameters, in declaration order.
    pub fn frozen(&self) -> Vec<Box<str>> {
        named(self.layout().slots(), self.freezing_flags().into_iter())
    }

    /// Freezes exactly the parameters of these names.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTensor`] when there is no such parameter, [`Error::AllFrozen`] when none would
    /// be left to train. Nothing changes then.
    pub fn set_frozen<S: AsRef<str>>(&self, names: &[S]) -> Result<()> {
        self.set_flags(self.flags_of(names)?)
    }

    /// Refuses what [`Parameters::set_frozen`] would.
    pub(crate) fn check_frozen<S: AsRef<str>>(&self, names: &[S]) -> Result<()> {
        self.check_flags(&self.flags_of(names)?)
    }

    /// A flag a parameter: true where it is frozen.
    pub(crate) fn freezing_flags(&self) -> Vec<bool> {
        let mut flags = self.freezing().flags.clone();
        flags.resize(self.layout().slots().len(), false);
        flags
    }

    /// How often the set of frozen parameters was changed.
    pub(crate) fn freezing_changes(&self) -> u64 {
        self.freezing().changes
    }

    fn flags_of<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<bool>> {
        let mut flags = vec![false; self.layout().slots().len()];
        for name in names {
            let name = name.as_ref();
            let index = self.layout().find(name);
            flags[index.ok_or_else(|| Error::UnknownTensor { name: name.into() })?] = true;
        }
        Ok(flags)
    }

    fn check_flags(&self, flags: &[bool]) -> Result<()> {
        if flags.iter().all(|&frozen| frozen) {
            return Err(Error::AllFrozen { parameters: flags.len() });
        }
        Ok(())
    }

    fn set_flags(&self, flags: Vec<bool>) -> Result<()> {
        self.check_flags(&flags)?;
        if flags != self.freezing_flags() {
            let mut freezing = self.freezing();
            freezing.flags = flags;
            freezing.changes += 1;
        }
        Ok(())
    }
}

/// Names of slots whose flag is set.
pub(super) fn named(slots: &[Slot], flags: impl Iterator<Item = bool>) -> Vec<Box<str>> {
    let chosen = slots.iter().zip(flags).filter(|(_, flag)| *flag);
    chosen.map(|(slot, _)| slot.name.clone()).collect()
}
