//! OA: local AI training on any Vulkan device.
//!
//! One [`Engine`] owns the device, its memory and its kernels. Values are lazy, what executes is a
//! compiled [`ExecutionPlan`], and training, data and generation live in [`ml`]; files live in
//! [`io`]. This crate only gathers the layers under one name: it holds no arithmetic of its own.
//!
//! A training loop, on whatever device there is:
//!
//! ```
//! use oa::{Engine, ml};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if std::env::var_os("OA_REQUIRE_DEVICE").is_none() && Engine::new().is_err() {
//! #     eprintln!("SKIPPED: no Vulkan device");
//! #     return Ok(());
//! # }
//! let engine = Engine::new()?;
//! let config = ml::model::RnnLmConfig { vocab: 256, width: 16, hidden: 16, layers: 1 };
//! let model = ml::ModelConfig::Rnn(config).build(&engine, 7)?;
//! let text = ml::data::TextDataset::from_bytes(b"to learn is to see again. ", &ml::data::ByteTokenizer)?;
//! let batch = text.whole().batches(8, 12, ml::data::DataCursor::CONTRACT)?.next_batch();
//! let (batch_x, batch_y) = (batch.tokens_on(&engine)?, batch.targets_on(&engine)?);
//!
//! let mut optimizer = ml::AdamW::new(model.all_parameters()?, 2.0e-2)?;
//! let mut training = ml::ItTraining::new_eager(&engine, &mut optimizer,
//!     ml::ItTrainingConfig { total_steps: 30, ..Default::default() })?;
//! while training.begin_step()? {
//!     training.zero_grad();
//!     let tape = ml::GradientTape::new();
//!     let logits = model.forward(&batch_x)?;
//!     let loss = ml::loss::cross_entropy(&logits, &batch_y)?;
//!     tape.backward(&loss)?;
//!     training.complete_step(&loss)?;
//! }
//!
//! let first = training.take_report().expect("thirty steps were run").loss;
//! let last = training.last_report().expect("thirty steps were run").loss;
//! assert!(last < 0.7 * first, "it learned: {first} to {last} nats");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod picture;

pub use oa_graph::{
    Arena, Capabilities, DType, DeviceInfo, DeviceRequest, Engine, EngineOptions, Event,
    ExecutionPlan, ExecutionReport, InputId, Shape, Spec, State, Tensor, Validation,
};
pub use oa_vk::devices;

/// Models, data, training and generation.
pub use oa_ml as ml;

/// Files: `.oam` checkpoints.
pub use oa_io as io;

/// Values, the op table and execution plans, for those who write ops.
pub use oa_graph as graph;

/// Hash of the built-in kernels: results belong to exact kernels.
pub fn kernels_lock() -> &'static str {
    oa_kernels::LOCK_HASH
}
