//! Command and descriptor pools that finished recordings give back.
//!
//! A recording takes pools for itself alone and returns them when it dies, which by H1 is after
//! the device has passed it; creating pools anew each time cost more than recording a copy.

use crate::error::Result;
use crate::raw::{Commands, DescriptorPool, Device};
use std::sync::{Arc, Mutex};

/// Idle pools of a device.
pub(crate) struct Recycler {
    device: Arc<Device>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    commands: Vec<Commands>,
    descriptors: Vec<DescriptorPool>,
}

impl Recycler {
    const MOST_COMMANDS: usize = 8;
    const MOST_DESCRIPTORS: usize = 16;

    pub(crate) fn new(device: &Arc<Device>) -> Recycler {
        Recycler { device: Arc::clone(device), idle: Mutex::default() }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().expect("no panic while the recycler is held")
    }

    /// A command pool to begin a recording with.
    pub(crate) fn commands(&self) -> Result<Commands> {
        let idle = self.idle().commands.pop();
        idle.map_or_else(|| Commands::create(&self.device), Ok)
    }

    /// An empty descriptor pool.
    pub(crate) fn descriptors(&self) -> Result<DescriptorPool> {
        let Some(mut pool) = self.idle().descriptors.pop() else {
            return DescriptorPool::create(&self.device);
        };
        pool.reset()?;
        Ok(pool)
    }

    /// Takes the pools of a recording that is gone; keeps a few.
    pub(crate) fn give_back(&self, commands: Option<Commands>, descriptors: Vec<DescriptorPool>) {
        let mut idle = self.idle();
        let room = Recycler::MOST_COMMANDS.saturating_sub(idle.commands.len());
        idle.commands.extend(commands.into_iter().take(room));
        let room = Recycler::MOST_DESCRIPTORS.saturating_sub(idle.descriptors.len());
        idle.descriptors.extend(descriptors.into_iter().take(room));
    }

    /// Frees the idle pools.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }
}
