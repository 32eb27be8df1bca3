//! A byte-level language model learns the built-in corpus by heart and recites it.
//!
//! `cargo run --release -p oa-ml --example char_gpt [rnn|gru|transformer] [steps]`

use oa_ml::data::{ByteTokenizer, DataCursor, TextDataset, Tokenizer, contract_corpus};
use oa_ml::model::{ContractTransformerConfig, ModelConfig, RnnLmConfig};
use oa_ml::{AdamW, Generator, ItTraining, ItTrainingConfig, Sampling, evaluate};
use std::ops::ControlFlow;
use std::time::Instant;

fn main() -> oa_ml::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let config = match arguments.next().as_deref() {
        Some("rnn") => ModelConfig::Rnn(RnnLmConfig::contract(256)),
        Some("gru") => ModelConfig::Gru(RnnLmConfig::contract(256)),
        _ => ModelConfig::ContractTransformer(ContractTransformerConfig::contract(256)),
    };
    let total_steps = arguments.next().and_then(|steps| steps.parse().ok()).unwrap_or(300);

    let engine = oa_graph::Engine::new()?;
    println!("{} on {}", config.architecture(), engine.device().name);
    let corpus = contract_corpus();
    let data = TextDataset::from_bytes(&corpus, &ByteTokenizer)?;
    let mut order = data.whole().batches(64, 16, DataCursor::CONTRACT)?;

    let model = config.build(&engine, 20_260_714)?;
    println!("{} parameters", model.parameters().layout().count());
    let mut optimizer = AdamW::new(model.all_parameters()?, 0.01)?;
    let settings = ItTrainingConfig { total_steps, ..Default::default() };
    let mut training = ItTraining::new_captured(&engine, &mut optimizer, settings)?;
    let started = Instant::now();
    let mut forward =
        |inputs: &oa_ml::StepInputs| inputs.cross_entropy(&model.forward(&inputs.tokens)?);
    while training.begin_step()? {
        training.step(&[order.next_batch()], &mut forward)?;
        while let Some(report) = training.take_report() {
            if report.step % 20 == 0 {
                println!("step {:4}  loss {:.4}", report.step, report.loss);
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{:.2} ms per step", 1.0e3 * seconds / total_steps as f64);

    let measured = evaluate(&model, data.whole().pass(64, 16)?)?;
    println!("loss {:.4}, accuracy {:.4}", measured.loss, measured.accuracy);
    let prompt = ByteTokenizer.encode(&corpus[..16])?;
    let started = Instant::now();
    let mut generator = Generator::new(&model)?;
    let greedy = Sampling::default();
    let tokens = generator.generate(&prompt, 80, &greedy, |_| ControlFlow::Continue(()))?;
    let text = ByteTokenizer.decode(&tokens).expect("a byte model samples bytes");
    println!("{:?} in {:?}", String::from_utf8_lossy(&text), started.elapsed());
    let expected = &corpus[16..96];
    let right = text.iter().zip(expected).filter(|(a, b)| a == b).count();
    println!("{right} of 80 bytes are those of the corpus");
    Ok(())
}
