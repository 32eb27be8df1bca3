//! Sample inputs that the ops of this folder share.

use super::super::sample::{Source, ids};
use super::order::dispatch_reference;
use crate::attrs::Attrs;
use crate::host::{HostTensor, Spec};

/// Logits of which no two of a token are close, so that no rounding and no finite difference
/// changes a choice.
pub(super) fn distinct(tokens: usize, experts: usize, seed: u64) -> HostTensor {
    let mut source = Source::new(seed);
    let step = 6.0 / experts as f64;
    let mut data = Vec::with_capacity(tokens * experts);
    for _ in 0..tokens {
        let mut ranks: Vec<usize> = (0..experts).collect();
        for last in (1..experts).rev() {
            ranks.swap(last, (source.bits() % (last as u64 + 1)) as usize);
        }
        let value = |rank: usize| {
            let x = step * (rank as f64 + source.uniform(-0.2, 0.2)) - 3.0;
            f64::from(x as f32)
        };
        data.extend(ranks.into_iter().map(value));
    }
    HostTensor::f32([tokens, experts], data)
}

/// Floats rounded to what a device holds, for references that become inputs.
pub(super) fn chosen(values: Vec<HostTensor>) -> impl Iterator<Item = HostTensor> {
    values.into_iter().map(|value| {
        let data = value.data.iter().map(|&x| f64::from(x as f32)).collect();
        HostTensor::new(value.spec, data)
    })
}

/// Offsets and order of random assignments `[tokens, k]`; expert 1 gets none when there are more
/// than two.
pub(super) fn dispatched(tokens: usize, k: usize, experts: usize, seed: u64) -> [HostTensor; 2] {
    let mut choice = ids([tokens, k], experts as u32, seed);
    if experts > 2 {
        choice.data.iter_mut().filter(|id| **id == 1.0).for_each(|id| *id = 0.0);
    }
    let found = dispatch_reference(&[choice], &Attrs::ints(&[experts as u32]));
    let [offsets, order, _] = &found[..] else { unreachable!("moe_dispatch has three outputs") };
    [offsets.clone(), order.clone()]
}

/// Offsets `[experts + 1]` with all rows at one expert.
pub(super) fn crowded(rows: usize, experts: usize, expert: usize) -> HostTensor {
    let data = (0..=experts).map(|e| if e > expert { rows as f64 } else { 0.0 }).collect();
    HostTensor::new(Spec::u32([experts + 1]), data)
}
