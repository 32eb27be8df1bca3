//! Breadcrumbs: which kernel ran when the device hung or was lost.
//!
//! A word in host memory is set to the number of each kernel before it starts. Ordering that word
//! against the kernels makes them run one at a time, so crumbs are off unless they were asked for.

use crate::buffer::Buffer;
use crate::raw::Commands;
use crate::sync::Stages;

/// The trail of one recording.
pub(crate) struct Crumbs {
    word: Buffer,
    labels: Vec<Box<str>>,
}

impl Crumbs {
    /// Starts a trail in a readback buffer of at least one word.
    pub(crate) fn new(word: Buffer) -> Crumbs {
        word.whole().write(&[0; 4]);
        Crumbs { word, labels: Vec::new() }
    }

    /// The word's buffer, which the recording keeps.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.word
    }

    /// Drops a crumb for the kernel that is recorded next.
    pub(crate) fn drop_one(&mut self, commands: &mut Commands, label: &str) {
        self.labels.push(label.into());
        let device = Stages::COMPUTE | Stages::TRANSFER;
        commands.barrier(device, device);
        commands.fill(self.word.raw(), 0, 4, self.labels.len() as u32);
        commands.barrier(Stages::TRANSFER, device | Stages::HOST);
    }

    /// The kernel whose crumb fell last.
    pub(crate) fn last(&self) -> Option<&str> {
        let mut word = [0; 4];
        self.word.whole().read(&mut word);
        let number = (u32::from_le_bytes(word) as usize).checked_sub(1)?;
        self.labels.get(number).map(|label| &**label)
    }
}
