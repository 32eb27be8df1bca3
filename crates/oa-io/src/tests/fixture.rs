//! Small checkpoints that use every field of the format.

use crate::error::Broken;
use crate::reader::Reader;
use crate::writer;
use oa_ml::checkpoint::{
    MomentSlot, OptimizerState, RngCounters, TrainingConfig, TrainingMetrics, TrainingState,
};
use oa_ml::data::DataCursor;
use oa_ml::data::tokenizer::{
    Alphabet, BpeParts, BpeTable, BpeTrainer, Normalizer, PreTokenizer, TokenizerConfig,
};
use oa_ml::model::config::{
    ContractTransformerConfig, DecayStyle, Mamba3LmConfig, ModelConfig, RnnLmConfig, RopeStyle,
    TransformerConfig,
};
use oa_ml::optim::adamw::AdamWConfig;
use oa_ml::optim::muon::MuonConfig;
use oa_ml::optim::schedule::{DecayShape, Schedule};
use oa_ml::optim::sgd::SgdConfig;
use oa_ml::optim::{OptimizerConfig, ParameterGroup};
use oa_ml::{Checkpoint, NamedTensor};
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tensors with values that are different everywhere and include the odd floats.
fn tensors(shapes: &[(&str, &[usize])], salt: u32) -> Vec<NamedTensor> {
    let odd = [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 4.0];
    let tensor = |(index, (name, shape)): (usize, &(&str, &[usize]))| {
        let count: usize = shape.iter().product();
        let word = |at: usize| {
            let value =
                (at as u32).wrapping_mul(2_654_435_761).rotate_left(7) ^ salt ^ index as u32;
            (value as f32 - 2.0e9) * 1.0e-9
        };
        let element = |at| odd.get(at).copied().filter(|_| index == 1).unwrap_or(word(at));
        let data = (0..count).map(element).collect();
        NamedTensor { name: (*name).into(), shape: shape.to_vec(), data }
    };
    shapes.iter().enumerate().map(tensor).collect()
}

/// Moments of tensors, each with a salt of its own.
fn moments(shapes: &[(&str, &[usize])], slots: &[(&str, u32)]) -> Vec<MomentSlot> {
    let slot = |&(name, salt): &(&str, u32)| MomentSlot {
        name: name.into(),
        tensors: tensors(shapes, salt),
    };
    slots.iter().map(slot).collect()
}

const RNN: &[(&str, &[usize])] = &[
    ("embedding", &[5, 4]),
    ("rnn.l0.w_ih", &[6, 4]),
    ("rnn.l0.w_hh", &[6, 6]),
    ("rnn.l0.b_ih", &[6]),
    ("rnn.l0.b_hh", &[6]),
    ("head.w", &[5, 6]),
    ("head.b", &[5]),
];

/// A recurrent network in the middle of a run.
pub(super) fn rnn() -> Checkpoint {
    let config = AdamWConfig { lr: 0.01, ..AdamWConfig::default() };
    let training = TrainingState {
        step: 17,
        config: TrainingConfig { total_steps: 300, max_norm: 1.0, accumulation: 2 },
        optimizer: OptimizerState {
            config: OptimizerConfig::AdamW(config),
            groups: Vec::new(),
            updates: 17,
            slots: moments(RNN, &[("m", 1), ("v", 2)]),
        },
        frozen: Vec::new(),
        schedule: Schedule::Constant { warmup: 3 },
        seed: 20_260_714,
        rng: RngCounters { dropout_step: 17, sample_step: 4 },
        data: DataCursor::Contract { cursor: 1088 },
        metrics: TrainingMetrics {
            tokens: 17_408,
            loss: Some(1.25),
            validation_loss: None,
            best_validation_loss: Some(1.5),
            elapsed_seconds: 2.5,
        },
    };
    Checkpoint {
        model: ModelConfig::Rnn(RnnLmConfig { vocab: 5, width: 4, hidden: 6, layers: 1 }),
        tokenizer: TokenizerConfig::Byte,
        tensors: tensors(RNN, 0),
        training: Some(training),
        metadata: [("corpus".into(), "a small one".into()), ("note".into(), "ü".into())].into(),
    }
}

/// The same run with gradient descent, groups and frozen parameters.
pub(super) fn sgd() -> Checkpoint {
    let mut checkpoint = rnn();
    let training = checkpoint.training.as_mut().unwrap();
    let config = SgdConfig { momentum: 0.75, nesterov: true, ..SgdConfig::default() };
    let decayed = ParameterGroup {
        weight_decay: Some(0.25),
        ..ParameterGroup::scaled(&["rnn", "head.*"], 0.1)
    };
    training.optimizer = OptimizerState {
        config: OptimizerConfig::Sgd(config),
        groups: vec![ParameterGroup::scaled(&["embedding"], 3.0), decayed],
        updates: 9,
        slots: moments(RNN, &[("m", 8)]),
    };
    training.frozen = vec!["head.b".into(), "head.w".into()];
    checkpoint
}

/// The same run with orthogonalised momentum.
pub(super) fn muon() -> Checkpoint {
    let mut checkpoint = rnn();
    let training = checkpoint.training.as_mut().unwrap();
    let config = MuonConfig { adamw_lr: 0.125, ..MuonConfig::default() };
    training.optimizer.config = OptimizerConfig::Muon(config);
    checkpoint
}

/// A gated recurrent network without a run.
pub(super) fn gru() -> Checkpoint {
    let model = ModelConfig::Gru(RnnLmConfig { vocab: 5, width: 4, hidden: 2, layers: 3 });
    let shapes: &[(&str, &[usize])] = &[("embed", &[5, 4]), ("rnn.l2.w_hh", &[6, 2])];
    Checkpoint { model, tensors: tensors(shapes, 7), training: None, ..rnn() }
}

/// A Mamba-3 with every choice set to its other value, without a run.
pub(super) fn mamba3() -> Checkpoint {
    let model = ModelConfig::Mamba3(Mamba3LmConfig {
        vocab: 5,
        rank: 2,
        mimo: true,
        rope: RopeStyle::Half,
        decay: DecayStyle::Softplus,
        floor: 0.25,
        out_norm: true,
        ..Mamba3LmConfig::default()
    });
    let shapes: &[(&str, &[usize])] = &[("embed", &[5, 4]), ("b0.mix.b_bias", &[8, 2, 64])];
    Checkpoint { model, tensors: tensors(shapes, 8), training: None, ..rnn() }
}

/// A Transformer with every choice set to its other value.
pub(super) fn transformer() -> Checkpoint {
    let shapes: &[(&str, &[usize])] = &[("embedding", &[7, 2]), ("b0.attn.w_q", &[2, 2, 1, 3])];
    let config = TransformerConfig {
        vocab: 7,
        width: 2,
        rope: RopeStyle::Pair,
        qk_norm: true,
        tied: true,
        dropout: 0.25,
        ..TransformerConfig::default()
    };
    let mut checkpoint = rnn();
    checkpoint.model = ModelConfig::Transformer(config);
    checkpoint.tensors = tensors(shapes, 3);
    let training = checkpoint.training.as_mut().unwrap();
    training.schedule = Schedule::WarmupStableDecay {
        warmup: 5,
        decay: 50,
        min_ratio: 0.1,
        shape: DecayShape::Sqrt,
    };
    training.data = DataCursor::Shuffled { seed: 9, windows: 2400 };
    training.optimizer.slots = moments(shapes, &[("m", 4), ("v", 5)]);
    checkpoint
}

/// A model without a run, with an empty and a scalar tensor.
pub(super) fn bare() -> Checkpoint {
    let shapes: &[(&str, &[usize])] = &[("none", &[0, 4]), ("one", &[]), ("row", &[3])];
    Checkpoint {
        model: ModelConfig::ContractTransformer(ContractTransformerConfig::contract(256)),
        tokenizer: TokenizerConfig::Byte,
        tensors: tensors(shapes, 6),
        training: None,
        metadata: Default::default(),
    }
}

/// A model of characters, in an order of their own.
pub(super) fn character() -> Checkpoint {
    let alphabet = Alphabet::new("ba\u{e9}\n \u{1f680}").unwrap();
    let model = ModelConfig::Gru(RnnLmConfig { vocab: 6, width: 4, hidden: 2, layers: 3 });
    Checkpoint { model, tokenizer: TokenizerConfig::Char(alphabet), ..gru() }
}

/// A model of pieces of words, with every choice set to its other value.
pub(super) fn bpe() -> Checkpoint {
    let trainer = BpeTrainer {
        vocab: 270,
        pre_tokenizer: PreTokenizer::Llama3,
        special: vec!["<|end|>".into()],
    };
    let table = trainer.train("hello hello, h\u{e9}llo world 1234 1234".as_bytes()).unwrap();
    let mut parts: BpeParts = table.into();
    parts.ignore_merges = true;
    parts.normalizer = Normalizer::Nfc;
    let table = BpeTable::new(parts).unwrap();
    let config = ContractTransformerConfig::contract(table.tokens().len());
    Checkpoint {
        model: ModelConfig::ContractTransformer(config),
        tokenizer: TokenizerConfig::Bpe(Arc::new(table)),
        ..bare()
    }
}

/// The file of a checkpoint, in memory.
pub(super) fn file_of(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let bytes = writer::write(&mut file, checkpoint).expect("a fixture can be stored");
    assert_eq!(file.get_ref().len() as u64, bytes);
    file.into_inner()
}

/// Loads a file in memory; an error becomes its text.
pub(super) fn load(bytes: &[u8]) -> Result<Checkpoint, String> {
    let broken = |broken: Broken| match broken {
        Broken::Fault(fault) => fault.to_string(),
        Broken::Io(error) => panic!("a file in memory cannot fail: {error}"),
    };
    let mut reader = Reader::open(Cursor::new(bytes)).map_err(broken)?;
    reader.checkpoint().map_err(broken)
}

/// All floats of a checkpoint as bits, so that NaNs compare.
pub(super) fn bits(checkpoint: &Checkpoint) -> Vec<u32> {
    let optimizer = checkpoint.training.as_ref().map(|training| &training.optimizer);
    let slots = optimizer.into_iter().flat_map(|state| &state.slots);
    let moments = slots.flat_map(|slot| &slot.tensors);
    let tensors = checkpoint.tensors.iter().chain(moments);
    tensors.flat_map(|tensor| tensor.data.iter().map(|element| element.to_bits())).collect()
}

/// A folder that is removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Folder {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("oa-io-test-{}-{serial}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Names in the folder, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _litter = std::fs::remove_dir_all(&self.0);
    }
}
