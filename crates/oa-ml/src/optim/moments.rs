//! What every optimizer keeps: moments in arenas, groups, and the number of updates.

use super::group::{ParameterGroup, assign};
use crate::checkpoint::{MomentSlot, OptimizerState};
use crate::error::{Error, Result};
use crate::param::{Parameters, Slot};
use oa_graph::Tensor;
use oa_graph::state::{ARENA_ALIGN_ELEMS, Arena};

/// Moments of a model's parameters, and which parameters are updated how.
pub struct Moments {
    optimizer: &'static str,
    parameters: Parameters,
    slots: Vec<(&'static str, Arena)>,
    groups: Vec<ParameterGroup>,
    /// The group of each parameter.
    group_of: Vec<Option<usize>>,
    updates: u64,
    /// Tables of blocks on the device by purpose, and the freezing that they were made for.
    tables: Vec<Option<(u64, Tensor)>>,
}

impl Moments {
    /// Moments that are all zero, one arena a name.
    pub(super) fn new(
        optimizer: &'static str,
        parameters: Parameters,
        slots: &[&'static str],
    ) -> Result<Moments> {
        let elems = parameters.layout().elems();
        let arena = |&name: &&'static str| {
            Ok((name, parameters.engine().arena(&format!("moments {name}"), elems)?))
        };
        let slots = slots.iter().map(arena).collect::<Result<_>>()?;
        let group_of = vec![None; parameters.layout().slots().len()];
        let (groups, tables) = Default::default();
        Ok(Moments { optimizer, parameters, slots, groups, group_of, updates: 0, tables })
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Updates done or recorded.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Parameters with a rate or decay of their own.
    pub fn groups(&self) -> &[ParameterGroup] {
        &self.groups
    }

    pub(super) fn set_groups(&mut self, groups: Vec<ParameterGroup>) -> Result<()> {
        self.group_of = assign(self.parameters.layout(), &groups)?;
        self.groups = groups;
        self.tables.clear();
        Ok(())
    }

    pub(super) fn count_update(&mut self) -> u64 {
        self.updates += 1;
        self.updates
    }

    /// Forgets the tables: a setting that they hold has changed.
    pub(super) fn forget_tables(&mut self) {
        self.tables.clear();
    }

    /// Factor of the learning rate of a parameter, and its weight decay, where that of the optimizer
    /// is `decay`.
    pub(super) fn terms(&self, index: usize, slot: &Slot, decay: f64) -> (f64, f64) {
        let usual = if slot.decays { decay } else { 0.0 };
        match self.group_of[index].map(|group| &self.groups[group]) {
            Some(group) => (group.lr_scale, group.weight_decay.unwrap_or(usual)),
            None => (1.0, usual),
        }
    }

    /// The table of blocks number `purpose`: a rate factor and a weight decay for each parameter, and
    /// nothing for those that `row` has none for and those that are frozen.
    pub(super) fn table(
        &mut self,
        purpose: usize,
        row: impl Fn(&Moments, usize, &Slot) -> Option<(f64, f64)>,
    ) -> Result<Tensor> {
        let freezing = self.parameters.freezing_changes();
        if let Some(Some((of, table))) = self.tables.get(purpose)
            && *of == freezing
        {
            return Ok(table.clone());
        }
        let frozen = self.parameters.freezing_flags();
        let table = self.parameters.layout().blocks(|index, slot| {
            let (factor, decay) = row(self, index, slot).filter(|_| !frozen[index])?;
            Some([factor as f32, decay as f32])
        });
        let shape = [self.parameters.layout().elems() / ARENA_ALIGN_ELEMS, 2];
        let table = self.parameters.engine().constant_f32(shape, &table)?;
        self.tables.resize(self.tables.len().max(purpose + 1), None);
        self.tables[purpose] = Some((freezing, table.clone()));
        Ok(table)
    }

    /// The arena of moments number `slot`, read anew.
    #[track_caller]
    pub(super) fn read(&self, slot: usize) -> Tensor {
        self.parameters.engine().read(&self.slots[slot].1.whole())
    }

    /// All parameters, read anew.
    #[track_caller]
    pub(super) fn read_parameters(&self) -> Tensor {
        self.parameters.engine().read(&self.parameters.arena().whole())
    }

    /// All gradients, read anew.
    #[track_caller]
    pub(super) fn read_gradients(&self) -> Result<Tensor> {
        Ok(self.parameters.engine().read(&self.parameters.gradients()?.arena().whole()))
    }

    /// The moments, read back. Blocks.
    pub(super) fn to_host(&self) -> Result<Vec<MomentSlot>> {
        let slot = |(name, arena): &(&'static str, Arena)| {
            let tensors = self.parameters.read_arena(arena)?;
            Ok(MomentSlot { name: (*name).to_owned(), tensors })
        };
        self.slots.iter().map(slot).collect()
    }

    /// Takes over moments, groups and the number of updates.
    pub(super) fn load(&mut self, state: &OptimizerState) -> Result<()> {
        let group_of = assign(self.parameters.layout(), &state.groups)?;
        let mut found = Vec::with_capacity(self.slots.len());
        for &(slot, ref arena) in &self.slots {
            let optimizer = self.optimizer;
            let tensors = state.slot(slot).ok_or(Error::MissingMoments { optimizer, slot })?;
            found.push((arena, self.parameters.gather(tensors, arena.elems())?));
        }
        for (arena, host) in found {
            let state = arena.whole();
            self.parameters.engine().write_state(&state, bytemuck::cast_slice(&host))?;
        }
        self.groups = state.groups.clone();
        (self.group_of, self.updates) = (group_of, state.updates);
        self.tables.clear();
        Ok(())
    }
}
