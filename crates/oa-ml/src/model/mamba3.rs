//! The Mamba-3 language model: `x += Mixer(RMSNorm1(x))`, `x += SwiGLU(RMSNorm2(x))`, a final RMSNorm
//! and a head without bias.

use super::mamba3_config::Mamba3LmConfig;
use crate::error::Result;
use crate::init::Init;
use crate::nn::{Cache, Embedding, Linear, Mamba3, Pass, RmsNorm, SsmCache, SwiGlu};
use crate::param::Scope;
use oa_graph::{Engine, Tensor};

/// Standard deviation of every weight outside the mixers at the start, the output projections
/// excepted.
const INIT_STD: f64 = 0.02;

/// One block.
#[derive(Clone)]
struct Block {
    norm1: RmsNorm,
    mixer: Mamba3,
    norm2: RmsNorm,
    ffn: SwiGlu,
}

/// Parameters `embed`, `b0.norm1`, `b0.mix.w_in`, `b0.ffn.w_gate`, .., `norm_f`, `head`.
#[derive(Clone)]
pub(super) struct Mamba3Lm {
    embed: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    config: Mamba3LmConfig,
}

impl Mamba3Lm {
    pub(super) fn new(scope: &mut Scope<'_>, config: &Mamba3LmConfig) -> Result<Mamba3Lm> {
        let Mamba3LmConfig { vocab, width, eps, .. } = *config;
        let normal = Init::Normal { std: INIT_STD };
        let embed = Embedding::new(scope, "embed", [vocab, width], normal)?;
        let block = |index| Block::new(&mut scope.scope(&format!("b{index}")), config);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let norm = RmsNorm::new(scope, "norm_f", width, eps)?;
        let head = Linear::new(&mut scope.edge(), "head", [vocab, width], normal)?;
        Ok(Mamba3Lm { embed, blocks, norm, head, config: *config })
    }

    #[track_caller]
    pub(super) fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let mut x = self.embed.forward(tokens)?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, pass, index)?;
        }
        self.norm.forward(&x)
    }

    #[track_caller]
    pub(super) fn head(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    pub(super) fn cache(&self, engine: &Engine, rows: usize) -> Result<Cache> {
        let mixer = self.config.mixer();
        let layer = |_| SsmCache::new(engine, rows, &mixer);
        let ssm = (0..self.blocks.len()).map(layer).collect::<Result<_>>()?;
        Ok(Cache { rows, ssm, ..Cache::default() })
    }
}

impl Block {
    fn new(scope: &mut Scope<'_>, config: &Mamba3LmConfig) -> Result<Block> {
        let Mamba3LmConfig { width, ff, eps, .. } = *config;
        let init = Init::Normal { std: INIT_STD };
        let down = Init::Normal { std: INIT_STD / (2.0 * config.layers as f64).sqrt() };
        let norm1 = RmsNorm::new(scope, "norm1", width, eps)?;
        let mixer = Mamba3::new(&mut scope.scope("mix"), config.mixer())?;
        let norm2 = RmsNorm::new(scope, "norm2", width, eps)?;
        let ffn = SwiGlu::new(&mut scope.scope("ffn"), [width, ff], init, down)?;
        Ok(Block { norm1, mixer, norm2, ffn })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, pass: &Pass<'_>, index: usize) -> Result<Tensor> {
        let x = x.add(&self.mixer.forward(&self.norm1.forward(x)?, pass, index)?)?;
        Ok(x.add(&self.ffn.forward(&self.norm2.forward(&x)?)?)?)
    }
}
