//! Checkpoints as manifests and back: the keys of every field that a file stores.
//!
//! Each structure is taken apart without `..`, so a field that is added to it does not compile
//! until it has a key here. Keys are promises, like wire codes.

use crate::error::Fault;
use crate::fields::{Fields, Put, Take};
use crate::index;
use crate::limits;
use crate::manifest::{Attribute, List, Manifest, Note, Slot, Text};
use crate::tokenizer::Sketch;
use oa_ml::checkpoint::{
    Checkpoint, MomentSlot, OptimizerState, RngCounters, TrainingConfig, TrainingMetrics,
    TrainingState,
};
use oa_ml::data::DataCursor;
use oa_ml::model::config::{
    ContractMamba3Config, ContractMoeConfig, ContractTransformerConfig, DecayStyle, Mamba3LmConfig,
    ModelConfig, MoeLmConfig, RnnLmConfig, RopeStyle, TransformerConfig,
};
use oa_ml::optim::adamw::AdamWConfig;
use oa_ml::optim::muon::MuonConfig;
use oa_ml::optim::schedule::{DecayShape, Schedule};
use oa_ml::optim::sgd::SgdConfig;
use oa_ml::optim::{OptimizerConfig, ParameterGroup};
use std::collections::BTreeMap;

/// The manifest of a checkpoint.
pub(crate) fn describe(checkpoint: &Checkpoint) -> Result<Manifest, Fault> {
    let Checkpoint { model, tokenizer, tensors, training, metadata } = checkpoint;
    let mut slots = Vec::new();
    if let Some(training) = training {
        let state = &training.optimizer;
        let named = state.slots.iter().map(|slot| slot.name.as_str());
        known_slots(Some(&state.config), named)?;
        let mut end = 0;
        for MomentSlot { name, tensors } in &state.slots {
            let tensors = index::place(tensors, &mut end)?;
            slots.push(Slot { name: name.as_str().into(), tensors });
        }
    }
    index::within("metadata entries", metadata.len() as u64, limits::ATTRIBUTES)?;
    index::names(metadata.keys().map(String::as_str))?;
    for text in metadata.values() {
        index::within("bytes of text", text.len() as u64, limits::TEXT_BYTES)?;
    }
    let notes = metadata
        .iter()
        .map(|(name, text)| Note { name: Text(name.clone()), text: Text(text.clone()) });
    Ok(Manifest {
        architecture: model.architecture().into(),
        model: put(|io| model_fields(io, &mut model.clone()))?,
        tokenizer: put(|io| Sketch::of(tokenizer).fields(io))?,
        training: match training {
            Some(training) => put(|io| training_fields(io, &mut light(training)))?,
            None => List::default(),
        },
        weights: index::place(tensors, &mut 0)?,
        slots: List(slots),
        metadata: List(notes.collect()),
    })
}

/// The checkpoint of a manifest and a tokenizer's section, without the data of its tensors.
pub(crate) fn restore(manifest: &Manifest, tables: Option<&[u8]>) -> Result<Checkpoint, Fault> {
    let mut model = blank_model(&manifest.architecture.0)?;
    let mut tokenizer = Sketch::default();
    take(&manifest.model, |io| model_fields(io, &mut model))?;
    take(&manifest.tokenizer, |io| tokenizer.fields(io))?;
    let tokenizer = tokenizer.tokenizer(tables)?;
    let training = if manifest.training.0.is_empty() {
        None
    } else {
        let mut training = blank_training();
        take(&manifest.training, |io| training_fields(io, &mut training))?;
        Some(training)
    };
    let slots = manifest.slots.0.iter().map(|slot| slot.name.0.as_str());
    known_slots(training.as_ref().map(|training| &training.optimizer.config), slots)?;
    index::names(manifest.metadata.0.iter().map(|note| note.name.0.as_str()))?;
    let notes = manifest.metadata.0.iter().map(|note| (note.name.0.clone(), note.text.0.clone()));
    let metadata: BTreeMap<String, String> = notes.collect();
    Ok(Checkpoint { model, tokenizer, tensors: Vec::new(), training, metadata })
}

/// Refuses other moments than those of the optimizer; without an optimizer there are none.
fn known_slots<'a>(
    config: Option<&OptimizerConfig>,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Fault> {
    let names: Vec<&str> = names.collect();
    if names == config.map_or(&[][..], OptimizerConfig::slots) {
        return Ok(());
    }
    Err(Fault::Identity { what: "list of optimizer slots", name: names.join(" ").into() })
}

fn put(visit: impl FnOnce(&mut Put) -> Result<(), Fault>) -> Result<List<Attribute>, Fault> {
    let mut io = Put::default();
    visit(&mut io)?;
    io.finish()
}

fn take(
    attributes: &List<Attribute>,
    visit: impl FnOnce(&mut Take) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut io = Take::new(attributes)?;
    visit(&mut io)?;
    io.finish()
}

/// A configuration to be filled, by architecture identity.
fn blank_model(architecture: &str) -> Result<ModelConfig, Fault> {
    let models = [
        ModelConfig::Rnn(RnnLmConfig::contract(0)),
        ModelConfig::Gru(RnnLmConfig::contract(0)),
        ModelConfig::ContractTransformer(ContractTransformerConfig::contract(0)),
        ModelConfig::Transformer(TransformerConfig::default()),
        ModelConfig::ContractMoe(ContractMoeConfig::contract(0)),
        ModelConfig::Moe(MoeLmConfig::default()),
        ModelConfig::ContractMamba3(ContractMamba3Config::contract(0)),
        ModelConfig::Mamba3(Mamba3LmConfig::default()),
    ];
    models
        .into_iter()
        .find(|model| model.architecture() == architecture)
        .ok_or_else(|| Fault::Identity { what: "architecture", name: architecture.into() })
}

fn model_fields(io: &mut impl Fields, model: &mut ModelConfig) -> Result<(), Fault> {
    match model {
        ModelConfig::Rnn(config) | ModelConfig::Gru(config) => {
            let RnnLmConfig { vocab, width, hidden, layers } = config;
            io.field("vocab", vocab)?;
            io.field("width", width)?;
            io.field("hidden", hidden)?;
            io.field("layers", layers)
        }
        ModelConfig::ContractTransformer(config) => {
            let ContractTransformerConfig { vocab, width, heads, ff, context, eps } = config;
            io.field("vocab", vocab)?;
            io.field("width", width)?;
            io.field("heads", heads)?;
            io.field("ff", ff)?;
            io.field("context", context)?;
            io.field("eps", eps)
        }
        ModelConfig::Transformer(config) => transformer_fields(io, config),
        ModelConfig::ContractMoe(config) => contract_moe_fields(io, config),
        ModelConfig::Moe(config) => moe_fields(io, config),
        ModelConfig::ContractMamba3(config) => {
            let ContractMamba3Config { vocab, width, heads, head_dim, state, angles, eps } = config;
            io.field("vocab", vocab)?;
            io.field("width", width)?;
            io.field("heads", heads)?;
            io.field("head_dim", head_dim)?;
            io.field("state", state)?;
            io.field("angles", angles)?;
            io.field("eps", eps)
        }
        ModelConfig::Mamba3(config) => mamba3_fields(io, config),
    }
}

fn transformer_fields(io: &mut impl Fields, config: &mut TransformerConfig) -> Result<(), Fault> {
    let TransformerConfig {
        vocab,
        width,
        layers,
        heads,
        kv_heads,
        head_dim,
        ff,
        context,
        rope,
        rope_base,
        eps,
        qk_norm,
        tied,
        dropout,
    } = config;
    io.field("vocab", vocab)?;
    io.field("width", width)?;
    io.field("layers", layers)?;
    io.field("heads", heads)?;
    io.field("kv_heads", kv_heads)?;
    io.field("head_dim", head_dim)?;
    io.field("ff", ff)?;
    io.field("context", context)?;
    let styles = [("pair", RopeStyle::Pair), ("half", RopeStyle::Half)];
    io.choice("rope", "rotary layout", rope, &styles)?;
    io.field("rope_base", rope_base)?;
    io.field("eps", eps)?;
    io.field("qk_norm", qk_norm)?;
    io.field("tied", tied)?;
    io.field("dropout", dropout)
}

fn contract_moe_fields(io: &mut impl Fields, config: &mut ContractMoeConfig) -> Result<(), Fault> {
    let ContractMoeConfig {
        vocab,
        width,
        heads,
        experts,
        top_k,
        ff,
        context,
        eps,
        aux_coef,
        z_coef,
    } = config;
    io.field("vocab", vocab)?;
    io.field("width", width)?;
    io.field("heads", heads)?;
    io.field("experts", experts)?;
    io.field("top_k", top_k)?;
    io.field("ff", ff)?;
    io.field("context", context)?;
    io.field("eps", eps)?;
    io.field("aux_coef", aux_coef)?;
    io.field("z_coef", z_coef)
}

fn moe_fields(io: &mut impl Fields, config: &mut MoeLmConfig) -> Result<(), Fault> {
    let MoeLmConfig {
        vocab,
        width,
        layers,
        heads,
        kv_heads,
        head_dim,
        experts,
        top_k,
        ff,
        renormalise,
        context,
        rope,
        rope_base,
        eps,
        aux_coef,
        z_coef,
    } = config;
    io.field("vocab", vocab)?;
    io.field("width", width)?;
    io.field("layers", layers)?;
    io.field("heads", heads)?;
    io.field("kv_heads", kv_heads)?;
    io.field("head_dim", head_dim)?;
    io.field("experts", experts)?;
    io.field("top_k", top_k)?;
    io.field("ff", ff)?;
    io.field("renormalise", renormalise)?;
    io.field("context", context)?;
    let styles = [("pair", RopeStyle::Pair), ("half", RopeStyle::Half)];
    io.choice("rope", "rotary layout", rope, &styles)?;
    io.field("rope_base", rope_base)?;
    io.field("eps", eps)?;
    io.field("aux_coef", aux_coef)?;
    io.field("z_coef", z_coef)
}

fn mamba3_fields(io: &mut impl Fields, config: &mut Mamba3LmConfig) -> Result<(), Fault> {
    let Mamba3LmConfig {
        vocab,
        width,
        layers,
        heads,
        head_dim,
        state,
        groups,
        rank,
        mimo,
        angles,
        rope,
        decay,
        floor,
        out_norm,
        ff,
        eps,
    } = config;
    io.field("vocab", vocab)?;
    io.field("width", width)?;
    io.field("layers", layers)?;
    io.field("heads", heads)?;
    io.field("head_dim", head_dim)?;
    io.field("state", state)?;
    io.field("groups", groups)?;
    io.field("rank", rank)?;
    io.field("mimo", mimo)?;
    io.field("angles", angles)?;
    let styles = [("pair", RopeStyle::Pair), ("half", RopeStyle::Half)];
    io.choice("rope", "rotary layout", rope, &styles)?;
    let styles = [("heavy_tail", DecayStyle::HeavyTail), ("softplus", DecayStyle::Softplus)];
    io.choice("decay", "rate of decay", decay, &styles)?;
    io.field("floor", floor)?;
    io.field("out_norm", out_norm)?;
    io.field("ff", ff)?;
    io.field("eps", eps)
}

/// A training state without its tensors.
fn light(training: &TrainingState) -> TrainingState {
    let OptimizerState { config, groups, updates, .. } = &training.optimizer;
    let (groups, frozen) = (groups.clone(), training.frozen.clone());
    let optimizer =
        OptimizerState { config: *config, groups, updates: *updates, slots: Vec::new() };
    TrainingState { optimizer, frozen, ..*training }
}

/// A training state to be filled.
fn blank_training() -> TrainingState {
    let config = OptimizerConfig::AdamW(AdamWConfig::default());
    let (groups, slots, frozen) = Default::default();
    TrainingState {
        step: 0,
        config: TrainingConfig { total_steps: 0, max_norm: 0.0, accumulation: 0 },
        optimizer: OptimizerState { config, groups, updates: 0, slots },
        frozen,
        schedule: Schedule::default(),
        seed: 0,
        rng: RngCounters::default(),
        data: DataCursor::Contract { cursor: 0 },
        metrics: TrainingMetrics::default(),
    }
}

fn training_fields(io: &mut impl Fields, training: &mut TrainingState) -> Result<(), Fault> {
    let TrainingState { step, config, optimizer, frozen, schedule, seed, rng, data, metrics } =
        training;
    io.field("step", step)?;
    let TrainingConfig { total_steps, max_norm, accumulation } = config;
    io.field("total_steps", total_steps)?;
    io.field("max_norm", max_norm)?;
    io.field("accumulation", accumulation)?;
    optimizer_fields(io, optimizer)?;
    lines(io, "frozen", frozen)?;
    schedule_fields(io, schedule)?;
    io.field("seed", seed)?;
    let RngCounters { dropout_step, sample_step } = rng;
    io.field("rng.dropout_step", dropout_step)?;
    io.field("rng.sample_step", sample_step)?;
    cursor_fields(io, data)?;
    let TrainingMetrics { tokens, loss, validation_loss, best_validation_loss, elapsed_seconds } =
        metrics;
    io.field("metrics.tokens", tokens)?;
    io.optional("metrics.loss", loss)?;
    io.optional("metrics.validation_loss", validation_loss)?;
    io.optional("metrics.best_validation_loss", best_validation_loss)?;
    io.field("metrics.elapsed_seconds", elapsed_seconds)
}

fn optimizer_fields(io: &mut impl Fields, optimizer: &mut OptimizerState) -> Result<(), Fault> {
    let OptimizerState { config, groups, updates, slots: _ } = optimizer;
    let (kind, blank) = (config.name(), |kind: &str| OptimizerConfig::named(kind).ok());
    kind_field(io, "optimizer.kind", "optimizer", kind, config, blank)?;
    match config {
        OptimizerConfig::AdamW(config) => {
            let AdamWConfig { lr, beta1, beta2, eps, weight_decay } = config;
            io.field("optimizer.lr", lr)?;
            io.field("optimizer.beta1", beta1)?;
            io.field("optimizer.beta2", beta2)?;
            io.field("optimizer.eps", eps)?;
            io.field("optimizer.weight_decay", weight_decay)?;
        }
        OptimizerConfig::Sgd(config) => {
            let SgdConfig { lr, momentum, nesterov, weight_decay, decoupled } = config;
            io.field("optimizer.lr", lr)?;
            io.field("optimizer.momentum", momentum)?;
            io.field("optimizer.nesterov", nesterov)?;
            io.field("optimizer.weight_decay", weight_decay)?;
            io.field("optimizer.decoupled", decoupled)?;
        }
        OptimizerConfig::Muon(config) => {
            let MuonConfig { lr, momentum, weight_decay, adamw_lr, beta1, beta2, eps } = config;
            io.field("optimizer.lr", lr)?;
            io.field("optimizer.momentum", momentum)?;
            io.field("optimizer.weight_decay", weight_decay)?;
            io.field("optimizer.adamw_lr", adamw_lr)?;
            io.field("optimizer.beta1", beta1)?;
            io.field("optimizer.beta2", beta2)?;
            io.field("optimizer.eps", eps)?;
        }
    }
    io.field("optimizer.updates", updates)?;
    group_fields(io, groups)
}

/// Groups, which most runs do without: then there is no field.
fn group_fields(io: &mut impl Fields, groups: &mut Vec<ParameterGroup>) -> Result<(), Fault> {
    let mut count = (!groups.is_empty()).then_some(groups.len());
    io.optional("optimizer.groups", &mut count)?;
    for number in 0..count.unwrap_or(0) {
        // A claimed count asks for no memory: a group is made when its first field is there.
        let mut group = groups.get(number).cloned().unwrap_or_default();
        let ParameterGroup { patterns, lr_scale, weight_decay } = &mut group;
        let key = |field: &str| format!("optimizer.group.{number}.{field}");
        io.field(&key("lr_scale"), lr_scale)?;
        io.optional(&key("weight_decay"), weight_decay)?;
        lines(io, &key("patterns"), patterns)?;
        match groups.get_mut(number) {
            Some(known) => *known = group,
            None => groups.push(group),
        }
    }
    Ok(())
}

/// Names, one a line of a text; without a name there is no field.
fn lines(io: &mut impl Fields, key: &str, names: &mut Vec<String>) -> Result<(), Fault> {
    let mut text = (!names.is_empty()).then(|| names.join("\n"));
    io.optional(key, &mut text)?;
    *names = text.iter().flat_map(|text| text.split('\n')).map(str::to_owned).collect();
    Ok(())
}

fn schedule_fields(io: &mut impl Fields, schedule: &mut Schedule) -> Result<(), Fault> {
    let blank = |kind: &str| match kind {
        "constant" => Some(Schedule::Constant { warmup: 0 }),
        "cosine" => Some(Schedule::Cosine { warmup: 0, min_ratio: 0.0 }),
        "warmup_stable_decay" => Some(Schedule::WarmupStableDecay {
            warmup: 0,
            decay: 0,
            min_ratio: 0.0,
            shape: DecayShape::Linear,
        }),
        _ => None,
    };
    let kind = match schedule {
        Schedule::Constant { .. } => "constant",
        Schedule::Cosine { .. } => "cosine",
        Schedule::WarmupStableDecay { .. } => "warmup_stable_decay",
    };
    kind_field(io, "schedule.kind", "schedule", kind, schedule, blank)?;
    match schedule {
        Schedule::Constant { warmup } => io.field("schedule.warmup", warmup),
        Schedule::Cosine { warmup, min_ratio } => {
            io.field("schedule.warmup", warmup)?;
            io.field("schedule.min_ratio", min_ratio)
        }
        Schedule::WarmupStableDecay { warmup, decay, min_ratio, shape } => {
            io.field("schedule.warmup", warmup)?;
            io.field("schedule.decay", decay)?;
            io.field("schedule.min_ratio", min_ratio)?;
            let shapes = [("linear", DecayShape::Linear), ("sqrt", DecayShape::Sqrt)];
            io.choice("schedule.shape", "shape of a decay", shape, &shapes)
        }
    }
}

fn cursor_fields(io: &mut impl Fields, cursor: &mut DataCursor) -> Result<(), Fault> {
    let blank = |kind: &str| match kind {
        "contract" => Some(DataCursor::Contract { cursor: 0 }),
        "shuffled" => Some(DataCursor::Shuffled { seed: 0, windows: 0 }),
        "packed" => Some(DataCursor::packed(0)),
        _ => None,
    };
    let kind = match cursor {
        DataCursor::Contract { .. } => "contract",
        DataCursor::Shuffled { .. } => "shuffled",
        DataCursor::Packed { .. } => "packed",
    };
    kind_field(io, "data.kind", "order of data", kind, cursor, blank)?;
    match cursor {
        DataCursor::Contract { cursor } => io.field("data.cursor", cursor),
        DataCursor::Shuffled { seed, windows } => {
            io.field("data.seed", seed)?;
            io.field("data.windows", windows)
        }
        DataCursor::Packed { seed, epoch, document, token, gathering, taken } => {
            io.field("data.seed", seed)?;
            io.field("data.epoch", epoch)?;
            io.field("data.document", document)?;
            io.field("data.token", token)?;
            io.field("data.gathering", gathering)?;
            io.field("data.taken", taken)
        }
    }
}

/// Visits the kind of an enum with fields; a kind that was read replaces the value by a blank one.
fn kind_field<T>(
    io: &mut impl Fields,
    key: &'static str,
    what: &'static str,
    kind: &str,
    value: &mut T,
    blank: impl FnOnce(&str) -> Option<T>,
) -> Result<(), Fault> {
    let mut name = kind.to_owned();
    io.field(key, &mut name)?;
    if name != kind {
        let unknown = || Fault::Identity { what, name: name.as_str().into() };
        *value = blank(&name).ok_or_else(unknown)?;
    }
    Ok(())
}
