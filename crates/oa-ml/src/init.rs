//! Initial values of parameters, drawn on the host.
//!
//! They come from counter-based streams, so a seed gives the same weights on every driver.

use crate::philox::Stream;

/// Step word of the initialisation streams: no training step reaches it.
const INIT_STEP: u32 = u32::MAX;

/// Shortest time step that an initialiser gives.
const LEAST_TIME_STEP: f64 = 1.0e-4;

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element 0.
    Zeros,
    /// Every element 1.
    Ones,
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Every element the same.
    Constant {
        /// The value.
        value: f32,
    },
    /// What a softplus makes time steps of, whose logarithms are uniform.
    TimeStep {
        /// Shortest step; none is below 1e-4.
        shortest: f64,
        /// Longest step.
        longest: f64,
    },
    /// Uniform in `[-bound, bound)`.
    Uniform {
        /// Half width of the interval.
        bound: f64,
    },
}

impl Init {
    /// Uniform within one over the root of the number of inputs: the usual rule for a layer.
    pub fn fan_in(inputs: usize) -> Init {
        Init::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
    }

    /// Kaiming's uniform rule for `inputs` values that pass a leaky ReLU of this negative slope:
    /// within `sqrt(6 / ((1 + slope^2) inputs))`, which keeps the variance from layer to layer. 0 is
    /// a plain ReLU; the root of 5, the default of PyTorch's layers, is [`Init::fan_in`].
    pub fn kaiming_uniform(inputs: usize, slope: f64) -> Init {
        Init::Uniform { bound: (6.0 / ((1.0 + slope * slope) * inputs as f64)).sqrt() }
    }

    /// `count` initial values of the parameter that was declared as number `index`.
    pub fn values(&self, seed: u64, index: u32, count: usize) -> Vec<f32> {
        let stream = Stream { seed, stream: index, step: INIT_STEP };
        match *self {
            Init::Zeros => vec![0.0; count],
            Init::Ones => vec![1.0; count],
            Init::Normal { std } => {
                stream.normal(count).into_iter().map(|x| (x * std) as f32).collect()
            }
            Init::Constant { value } => vec![value; count],
            Init::TimeStep { shortest, longest } => {
                let time = |x: f64| (shortest.ln() + x * (longest / shortest).ln()).exp();
                let steps = stream.uniform(count).into_iter().map(|x| time(x).max(LEAST_TIME_STEP));
                steps.map(|step| (step + (-(-step).exp_m1()).ln()) as f32).collect()
            }
            Init::Uniform { bound } => stream
                .uniform(count)
                .into_iter()
                .map(|x| ((2.0 * x - 1.0) * bound) as f32)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_values_and_an_index_separates_them() {
        let init = Init::Normal { std: 0.02 };
        assert_eq!(init.values(1, 0, 9), init.values(1, 0, 9));
        assert_eq!(init.values(1, 0, 9), init.values(1, 0, 100)[..9]);
        assert_ne!(init.values(1, 0, 9), init.values(2, 0, 9));
        assert_ne!(init.values(1, 0, 9), init.values(1, 1, 9));
    }

    #[test]
    fn the_slope_of_the_default_layers_is_the_root_of_five() {
        let (Init::Uniform { bound: kaiming }, Init::Uniform { bound: default }) =
            (Init::kaiming_uniform(27, 5.0f64.sqrt()), Init::fan_in(27))
        else {
            panic!("both are uniform");
        };
        assert!((kaiming - default).abs() < 1e-15, "{kaiming} is not {default}");
    }

    #[test]
    fn time_steps_come_back_out_of_a_softplus() {
        let init = Init::TimeStep { shortest: 1.0e-3, longest: 0.1 };
        let steps: Vec<f64> =
            init.values(7, 0, 4_000).iter().map(|&x| f64::from(x).exp().ln_1p()).collect();
        assert!(steps.iter().all(|step| (0.99e-3..0.101).contains(step)));
        let short = steps.iter().filter(|&&step| step < 1.0e-2).count();
        assert!((1_850..2_150).contains(&short), "{short} of 4000 are in the lower decade");
    }

    #[test]
    fn moments_are_those_asked_for() {
        let values = Init::Normal { std: 0.5 }.values(7, 0, 40_000);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / 40_000.0;
        let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 40_000.0;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((square.sqrt() - 0.5).abs() < 0.01, "std {}", square.sqrt());
        let values = Init::fan_in(4).values(7, 0, 40_000);
        assert!(values.iter().all(|x| (-0.5..0.5).contains(x)));
        assert!(values.iter().any(|&x| x < -0.49) && values.iter().any(|&x| x > 0.49));
    }
}
