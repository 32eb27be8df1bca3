//! What can go wrong between a text and a trained model.
//!
//! Faults of the world carry numbers, faults of the caller carry the caller's line; our own bugs
//! panic with the invariant's name.

use crate::data::tokenizer::TableFault;
use crate::model::config::ModelConfig;
use oa_graph::Spec;
use std::panic::Location;

/// Result of an oa-ml call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a configuration describes no model.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// A size that must be positive is 0.
    #[error("{size} is 0, it must be at least 1")]
    ZeroSize {
        /// Name of the size.
        size: &'static str,
    },
    /// A size, or the number of parameters, beyond what is supported.
    #[error("{size} is {value}, at most {most} is supported")]
    TooLarge {
        /// Name of the size.
        size: &'static str,
        /// What was given.
        value: u64,
        /// The largest that is supported.
        most: u64,
    },
    /// A base of the rotary angles that gives none.
    #[error("a rotary base is {base}, it must be positive and finite")]
    RopeBase {
        /// The base.
        base: f64,
    },
    /// The heads cannot share the width.
    #[error("a width of {width} cannot be shared by {heads} heads")]
    WidthOverHeads {
        /// Width of the residual stream.
        width: usize,
        /// Attention heads.
        heads: usize,
    },
    /// Query heads cannot share the key-value heads.
    #[error("{heads} heads cannot share {kv_heads} key-value heads evenly")]
    HeadsOverKvHeads {
        /// Query heads.
        heads: usize,
        /// Key-value heads.
        kv_heads: usize,
    },
    /// A head has an odd number of channels.
    #[error("a head dimension of {head_dim} is odd; rotary positions turn pairs of channels")]
    OddHeadDim {
        /// Channels of a head.
        head_dim: usize,
    },
    /// A token would go to more experts than there are.
    #[error("a token cannot go to {top_k} of {experts} experts")]
    TopKOverExperts {
        /// Experts of a token.
        top_k: usize,
        /// Experts.
        experts: usize,
    },
    /// The heads of a mixer cannot share its groups.
    #[error("{heads} heads cannot share {groups} groups of keys and queries evenly")]
    HeadsOverGroups {
        /// Heads of a mixer.
        heads: usize,
        /// Groups of keys and queries.
        groups: usize,
    },
    /// A mixer without MIMO has a rank above 1.
    #[error("a rank of {rank} needs MIMO: without it a head has one channel")]
    RankWithoutMimo {
        /// Channels of a head into its state.
        rank: usize,
    },
    /// A state has an odd number of rows.
    #[error("a state of {state} rows is odd; the angles turn pairs of rows")]
    OddState {
        /// Rows of a state.
        state: usize,
    },
    /// A mixer turns more pairs than its state has.
    #[error("{angles} angles cannot turn pairs of a state of {state} rows")]
    AnglesOverState {
        /// Angles.
        angles: usize,
        /// Rows of a state.
        state: usize,
    },
    /// A dropout probability outside `0..1`.
    #[error("a dropout probability of {p} is not in 0..1")]
    Dropout {
        /// The probability.
        p: f32,
    },
}

/// Why a training call is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepFault {
    /// `begin_step` while a step is open.
    #[error("the step before was not completed; call complete_step")]
    StillOpen,
    /// `complete_step` without `begin_step`.
    #[error("no step is open; call begin_step")]
    NotOpen,
    /// Not as many backward passes as a step has.
    #[error(
        "{got} backward passes since zero_grad, a step has {expected}; call tape.backward for each part of the batch, and zero_grad once per step"
    )]
    Passes {
        /// Passes counted.
        got: u32,
        /// Passes of a step: the accumulation setting.
        expected: u32,
    },
    /// Not as many batches as a step has parts.
    #[error("{got} batches for a step of {expected}; the accumulation setting says how many")]
    Parts {
        /// Batches given.
        got: usize,
        /// Batches of a step.
        expected: usize,
    },
    /// A captured step was given a batch of another size.
    #[error(
        "a batch of {rows} rows of {sequence} tokens, but the step was captured with other sizes"
    )]
    BatchSize {
        /// Sequences given.
        rows: usize,
        /// Tokens of a sequence.
        sequence: usize,
    },
}

/// The first tensor found to hold a value that is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadTensor {
    /// A parameter.
    #[error("parameter `{0}`")]
    Parameter(Box<str>),
    /// The loss: the parameters are fine, so the forward pass overflowed.
    #[error("the loss")]
    Loss,
    /// The gradient of a parameter.
    #[error("the gradient of `{0}`")]
    Gradient(Box<str>),
    /// The gradient norm, while every single gradient is finite by now.
    #[error("the gradient norm")]
    GradientNorm,
}

/// Any error of oa-ml.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration describes no model.
    #[error("{architecture}: {fault}")]
    Config {
        /// Name of the architecture.
        architecture: &'static str,
        /// What is wrong with it.
        fault: ConfigFault,
    },
    /// A text without a token.
    #[error("the corpus is empty: it has no token")]
    EmptyCorpus,
    /// No sequence fits in the text.
    #[error(
        "the corpus has {tokens} tokens, but a sequence length of {sequence} needs at least {needed}"
    )]
    CorpusTooShort {
        /// Tokens of the text (of the part that was asked for).
        tokens: usize,
        /// Tokens of a sequence.
        sequence: usize,
        /// Fewest tokens that would do.
        needed: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error(
        "token {token} at position {position} is out of range: the vocabulary has {vocab} tokens"
    )]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Token ids of the vocabulary.
        vocab: usize,
        /// Where it stands, counted from 0.
        position: usize,
    },
    /// A text with a character that the alphabet does not have.
    #[error(
        "the character {character:?} (U+{:04X}) at byte {offset} is not among the {alphabet} of the alphabet",
        u32::from(*.character)
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Byte of the text where it starts, counted from 0.
        offset: usize,
        /// Characters of the alphabet.
        alphabet: usize,
    },
    /// Bytes that are no text, where characters are tokens.
    #[error("the byte {byte:#04x} at {offset} belongs to no UTF-8 character")]
    NotUtf8 {
        /// The byte.
        byte: u8,
        /// Where it stands, counted from 0.
        offset: usize,
    },
    /// A model and a tokenizer that do not belong together.
    #[error("the model has {model} token ids, its tokenizer has {tokenizer}")]
    Vocabulary {
        /// Token ids of the model.
        model: usize,
        /// Token ids of the tokenizer.
        tokenizer: usize,
    },
    /// A table that describes no tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TableFault),
    /// A batch without a prediction.
    #[error("at {site}: a batch of {rows} rows of {sequence} tokens has nothing to predict")]
    EmptyBatch {
        /// The caller's line.
        site: &'static Location<'static>,
        /// Sequences asked for.
        rows: usize,
        /// Tokens of a sequence.
        sequence: usize,
    },
    /// Two parameters share a name.
    #[error("parameter `{name}` is declared twice")]
    DuplicateParameter {
        /// Dotted name.
        name: Box<str>,
    },
    /// A tensor that the model has no parameter for.
    #[error("tensor `{name}` is not a parameter of this model")]
    UnknownTensor {
        /// Dotted name.
        name: Box<str>,
    },
    /// A parameter without a tensor.
    #[error("parameter `{name}` of the model has no tensor")]
    MissingTensor {
        /// Dotted name.
        name: Box<str>,
    },
    /// A tensor of another shape than the parameter of its name.
    #[error(transparent)]
    TensorShape {
        /// What does not fit.
        source: Box<crate::param::TensorShape>,
    },
    /// A checkpoint of another model.
    #[error("the checkpoint holds another model: {found:?}, this one is {expected:?}")]
    OtherModel {
        /// Model of the checkpoint.
        found: Box<ModelConfig>,
        /// Model that was to be loaded into.
        expected: Box<ModelConfig>,
    },
    /// A backward pass from something that is no loss.
    #[error("backward at {site}: a loss is one f32 element, got {spec}")]
    NotAScalar {
        /// The caller's line.
        site: &'static Location<'static>,
        /// What was given.
        spec: Spec,
    },
    /// A backward pass that reached nothing.
    #[error(
        "backward at {site}: the loss depends on none of the {parameters} parameters that train on this engine; compute it from a model's forward pass after the last update"
    )]
    NoGradient {
        /// The caller's line.
        site: &'static Location<'static>,
        /// Parameters that were looked for.
        parameters: usize,
    },
    /// A training call out of order.
    #[error("{call} at {site}: {fault}")]
    StepOrder {
        /// The call.
        call: &'static str,
        /// The caller's line.
        site: &'static Location<'static>,
        /// What is wrong.
        fault: StepFault,
    },
    /// A loss or gradient norm that is no number.
    #[error(
        "training stopped: {place} is {value} at step {step}; the weights were not updated by it"
    )]
    NonFinite {
        /// The step, counted from 0.
        step: u64,
        /// The first bad tensor.
        place: Box<BadTensor>,
        /// Its first bad element.
        value: f32,
    },
    /// A step after training stopped.
    #[error(
        "training stopped at step {step} because of a value that is no number; resume from a checkpoint"
    )]
    Stopped {
        /// The step, counted from 0.
        step: u64,
    },
    /// An optimizer setting outside its range.
    #[error("{optimizer}: {name} is {value}, it must be {allowed}")]
    Optimizer {
        /// What it is a setting of.
        optimizer: &'static str,
        /// The setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
    /// A count above its range.
    #[error("{name} is {value}, it must be at most {most}")]
    TooMany {
        /// What is counted.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Largest value.
        most: u64,
    },
    /// A count below its range.
    #[error("{name} is {value}, it must be at least {least}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Least value.
        least: u64,
    },
    /// An optimizer that there is not.
    #[error("there is no optimizer `{name}`; the optimizers are adamw, sgd and muon")]
    UnknownOptimizer {
        /// Its name.
        name: Box<str>,
    },
    /// The state of an optimizer of another kind.
    #[error("the state is that of {found}, the optimizer is {expected}")]
    OtherOptimizer {
        /// Optimizer of the state.
        found: &'static str,
        /// Optimizer that was to take it over.
        expected: &'static str,
    },
    /// A state of an optimizer without one of its moments.
    #[error("the state of {optimizer} has no moments `{slot}`")]
    MissingMoments {
        /// The optimizer.
        optimizer: &'static str,
        /// Name of the moments.
        slot: &'static str,
    },
    /// A pattern that means no parameter.
    #[error("pattern `{pattern}` matches none of the {parameters} parameters")]
    Pattern {
        /// The pattern.
        pattern: Box<str>,
        /// Parameters of the model.
        parameters: usize,
    },
    /// A group without a pattern.
    #[error("parameter group {group} has no pattern, so it groups nothing")]
    EmptyGroup {
        /// Number of the group, from 0.
        group: usize,
    },
    /// A parameter of two groups.
    #[error(
        "parameter `{name}` is in the parameter groups {first} and {second}; a parameter has one rate and one decay"
    )]
    TwoGroups {
        /// Dotted name.
        name: Box<str>,
        /// Number of the one group, from 0.
        first: usize,
        /// Number of the other.
        second: usize,
    },
    /// Nothing is left to train.
    #[error("all {parameters} parameters are frozen: nothing is left to train")]
    AllFrozen {
        /// Parameters of the model.
        parameters: usize,
    },
    /// Parameters of one engine in a session of another.
    #[error("at {site}: the optimizer's parameters live on another engine than the session")]
    OtherEngine {
        /// The caller's line.
        site: &'static Location<'static>,
    },
    /// Generation without a prompt.
    #[error("the prompt is empty: generation needs at least one token to start from")]
    EmptyPrompt,
    /// A sequence longer than the positions of the model.
    #[error(
        "at {site}: a sequence of {sequence} tokens is longer than the model's context of {context}"
    )]
    Context {
        /// The caller's line.
        site: &'static Location<'static>,
        /// Tokens of the sequence.
        sequence: usize,
        /// Longest sequence of the model.
        context: usize,
    },
    /// Packed documents in a model that cannot tell them apart.
    #[error(
        "at {site}: {architecture} does not drop its state where a document starts; give it one document a row, or no starts"
    )]
    NoResets {
        /// The caller's line.
        site: &'static Location<'static>,
        /// Name of the architecture.
        architecture: &'static str,
    },
    /// Sampling settings outside their range.
    #[error("sampling: {name} is {value}, it must be {allowed}")]
    Sampling {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: f32,
        /// What it may be.
        allowed: &'static str,
    },
    /// A stop sequence without anything in it.
    #[error("stop sequence {index} is empty: it would end every text before it begins")]
    EmptyStop {
        /// Which one, counted from 0.
        index: usize,
    },
    /// Not one prompt per row.
    #[error("a generator of {rows} rows was given {prompts} prompts; it needs one for each row")]
    Rows {
        /// Rows of the generator.
        rows: usize,
        /// Prompts given.
        prompts: usize,
    },
    /// Prompts of one batch differ in length.
    #[error("prompts of one batch have one length: got {first} and {other} tokens")]
    UnevenPrompts {
        /// Tokens of the first prompt.
        first: usize,
        /// Tokens of a prompt that differs.
        other: usize,
    },
    /// A text could not be read. Boxed, so that results stay small.
    #[error(transparent)]
    Data(Box<crate::data::DataFault>),
    /// Recording or executing failed. Boxed, so that results stay small.
    #[error(transparent)]
    Graph(Box<oa_graph::Error>),
}

impl From<oa_graph::Error> for Error {
    fn from(error: oa_graph::Error) -> Error {
        Error::Graph(Box::new(error))
    }
}
