//! Counter-based random numbers on the host: Philox 4x32-10.
//!
//! A number is a pure function of (seed, stream, step, element), so initial weights and data orders
//! are the same on every driver and a resumed run needs no generator state. The device has its own
//! implementation for dropout and sampling, under the same addressing. The generator itself is the
//! reference of the device's.

pub use oa_graph::ops::rng::block;

/// The random words of one (seed, stream, step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Seed of the run.
    pub seed: u64,
    /// What the numbers are for; one id per use.
    pub stream: u32,
    /// Step of the run.
    pub step: u32,
}

impl Stream {
    /// Four words: elements `4 * block .. 4 * block + 4`.
    pub fn words(&self, block_index: u64) -> [u32; 4] {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let low_high = [block_index as u32, (block_index >> 32) as u32];
        block(key, [low_high[0], low_high[1], self.stream, self.step])
    }

    /// 64 random bits per block index: the first two words of the block.
    pub fn bits(&self, block_index: u64) -> u64 {
        let words = self.words(block_index);
        u64::from(words[0]) | u64::from(words[1]) << 32
    }

    /// A number in `0..bound`, one block per number. `bound` is positive.
    pub fn below(&self, block_index: u64, bound: u64) -> u64 {
        assert!(bound > 0, "a random number needs a positive bound");
        ((u128::from(self.bits(block_index)) * u128::from(bound)) >> 64) as u64
    }

    /// The first `count` uniform numbers in `[0, 1)`, each a multiple of 2^-24.
    pub fn uniform(&self, count: usize) -> Vec<f64> {
        self.take(count, |words, out| out.extend(words.map(unit)))
    }

    /// The first `count` standard normal numbers (Box-Muller on word pairs).
    pub fn normal(&self, count: usize) -> Vec<f64> {
        self.take(count, |words, out| {
            for pair in words.chunks_exact(2) {
                let radius = (-2.0 * (unit(pair[0]) + UNIT).ln()).sqrt();
                let (sine, cosine) = (std::f64::consts::TAU * unit(pair[1])).sin_cos();
                out.extend([radius * cosine, radius * sine]);
            }
        })
    }

    fn take(&self, count: usize, mut more: impl FnMut([u32; 4], &mut Vec<f64>)) -> Vec<f64> {
        let blocks = count.div_ceil(4);
        let mut out = Vec::with_capacity(4 * blocks);
        for index in 0..blocks {
            more(self.words(index as u64), &mut out);
        }
        out.truncate(count);
        out
    }
}

const UNIT: f64 = 1.0 / (1 << 24) as f64;

fn unit(word: u32) -> f64 {
    f64::from(word >> 8) * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::Vectors;

    const STREAM: Stream = Stream { seed: 0x0123_4567_89AB_CDEF, stream: 3, step: 0 };

    #[test]
    fn known_answers_of_the_generator() {
        let vectors = Vectors::open("rng_dropout");
        let (inputs, outputs) = (vectors.u32("u32.kat_in"), vectors.u32("u32.kat_out"));
        for (input, output) in inputs.chunks_exact(6).zip(outputs.chunks_exact(4)) {
            let counter = [input[0], input[1], input[2], input[3]];
            assert_eq!(block([input[4], input[5]], counter), output);
        }
    }

    #[test]
    fn words_follow_the_addressing_of_the_device() {
        let vectors = Vectors::open("rng_dropout");
        let words: Vec<u32> = (0..16).flat_map(|index| STREAM.words(index)).collect();
        assert_eq!(words, vectors.u32("u32.words_step0"));
        let first = 17_179_869_176 / 4;
        let far: Vec<u32> = (first..first + 4).flat_map(|index| STREAM.words(index)).collect();
        assert_eq!(far, vectors.u32("u32.words_far"));
    }

    #[test]
    fn uniforms_and_normals_agree_with_the_vectors() {
        let vectors = Vectors::open("rng_dropout");
        let uniform: Vec<f32> = STREAM.uniform(64).iter().map(|&x| x as f32).collect();
        assert_eq!(uniform, vectors.f32("out.uniform_step0"));
        let normal: Vec<f32> = STREAM.normal(64).iter().map(|&x| x as f32).collect();
        assert_eq!(normal, vectors.f32("out.normals_step0"));
    }

    #[test]
    fn bounded_numbers_stay_below_their_bound_and_reach_it() {
        let mut seen = [0usize; 7];
        for index in 0..7_000 {
            seen[STREAM.below(index, 7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
    }
}
