//! What is saved is loaded, to the last bit and at the documented places.

use super::fixture::{self, Folder, bits, file_of, load};
use crate::{CheckpointFolder, Error, FieldValue, inspect, load_expecting, save, verify};
use oa_ml::data::DataCursor;
use oa_ml::data::tokenizer::{Alphabet, TokenizerConfig};
use oa_ml::{Checkpoint, CheckpointSink};

fn check(checkpoint: &Checkpoint) {
    let file = file_of(checkpoint);
    let loaded = load(&file).unwrap();
    assert_eq!(bits(&loaded), bits(checkpoint));
    // Debug text compares everything else; it prints all NaNs alike.
    assert_eq!(format!("{loaded:?}"), format!("{checkpoint:?}"));
    assert_eq!(file_of(&loaded), file, "the same checkpoint gives the same bytes");
}

#[test]
fn every_field_survives() {
    check(&fixture::rnn());
    check(&fixture::transformer());
    check(&fixture::bare());
    check(&fixture::gru());
    let mut packed = fixture::rnn();
    packed.training.as_mut().unwrap().data =
        DataCursor::Packed { seed: 1, epoch: 2, document: 3, token: 4, gathering: 5, taken: 6 };
    check(&packed);
    check(&fixture::sgd());
    check(&fixture::muon());
    check(&fixture::mamba3());
    check(&fixture::character());
    check(&fixture::bpe());
}

#[test]
fn large_tensors_pass_in_chunks() {
    let mut checkpoint = fixture::bare();
    let data: Vec<f32> = (0..300_001).map(|at| at as f32).collect();
    checkpoint.tensors[2].shape = vec![data.len()];
    checkpoint.tensors[2].data = data;
    check(&checkpoint);
}

#[test]
fn a_summary_says_what_is_there_and_where() {
    let folder = Folder::new();
    let path = folder.0.join("a.oam");
    let bytes = save(&path, &fixture::rnn()).unwrap();
    let summary = inspect(&path).unwrap();
    assert_eq!(summary, verify(&path).unwrap());
    assert_eq!((summary.version, summary.file_bytes), (3, bytes));
    assert_eq!((summary.architecture.as_str(), summary.step()), ("rnn", Some(17)));
    assert_eq!(summary.parameters, 5 * 4 + 6 * 4 + 6 * 6 + 6 + 6 + 5 * 6 + 5);
    let hidden = summary.model.iter().find(|field| field.key == "hidden").unwrap();
    assert_eq!(hidden.value, FieldValue::Count(6));
    let file = std::fs::read(&path).unwrap();
    for (tensor, want) in summary.tensors.iter().zip(&fixture::rnn().tensors) {
        assert_eq!(tensor.offset % 64, 0);
        let at = tensor.offset as usize;
        let words = file[at..at + tensor.bytes as usize].chunks_exact(4);
        let stored: Vec<u32> =
            words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let want: Vec<u32> = want.data.iter().map(|element| element.to_bits()).collect();
        assert_eq!(stored, want, "{}", tensor.name);
    }
    assert!(summary.sections.iter().all(|section| section.offset % 4096 == 0));
}

#[test]
fn another_architecture_is_refused_by_name() {
    let folder = Folder::new();
    let path = folder.0.join("a.oam");
    save(&path, &fixture::rnn()).unwrap();
    assert!(load_expecting(&path, "rnn").is_ok());
    let error = load_expecting(&path, "transformer").unwrap_err();
    assert!(matches!(error, Error::Architecture { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "cannot load {}: it holds a `rnn` model, `transformer` was expected; \
             give the file of the right model, or leave the architecture to the file",
            path.display()
        )
    );
}

#[test]
fn a_checkpoint_that_breaks_a_rule_is_not_stored() {
    let refuse = |spoil: &dyn Fn(&mut Checkpoint), expected: &str| {
        let folder = Folder::new();
        let path = folder.0.join("a.oam");
        let mut checkpoint = fixture::rnn();
        spoil(&mut checkpoint);
        let error = save(&path, &checkpoint).unwrap_err();
        assert!(matches!(error, Error::Unstorable { .. }));
        assert_eq!(error.cause(), expected);
        assert_eq!(folder.names(), [""; 0]);
    };
    refuse(&|c| c.tensors[1].name = "embedding".into(), "`embedding` is there twice");
    refuse(
        &|c| c.tensors[0].shape = vec![5, 5],
        "tensor `embedding` takes 20 bytes instead of the 25 of its shape",
    );
    refuse(
        &|c| drop(c.training.as_mut().unwrap().optimizer.slots.pop()),
        "`m` is no list of optimizer slots that this release knows",
    );
    refuse(
        &|c| c.tokenizer = wide_alphabet(),
        "1048580 bytes of text are more than the 1048576 that the format allows",
    );
    refuse(
        &|c| drop(c.metadata.insert("a\n".into(), String::new())),
        "a name of 2 bytes is empty, too long or has control characters: \"a\\n\"",
    );
}

/// An alphabet whose text is longer than a text may be.
fn wide_alphabet() -> TokenizerConfig {
    let characters: String = ('\u{10000}'..).take(262_145).collect();
    TokenizerConfig::Char(Alphabet::new(&characters).unwrap())
}

#[test]
fn a_folder_keeps_the_last_ones_and_finds_the_newest() {
    let folder = Folder::new();
    let error = CheckpointFolder::newest(&folder.0).unwrap_err();
    assert_eq!(error.cause(), "the folder holds no .oam file");
    let mut checkpoints = CheckpointFolder::create(folder.0.join("run"), 2).unwrap();
    let mut checkpoint = fixture::rnn();
    for step in [1, 2, 10, 100_000_000] {
        checkpoint.training.as_mut().unwrap().step = step;
        CheckpointSink::save(&mut checkpoints, &checkpoint).unwrap();
    }
    let run = Folder(folder.0.join("run"));
    assert_eq!(run.names(), ["step-00000010.oam", "step-100000000.oam"]);
    let newest = CheckpointFolder::newest(&run.0).unwrap();
    assert_eq!(newest, run.0.join("step-100000000.oam"));
}

#[test]
fn a_folder_keeps_the_best_beside_the_last_ones() {
    let folder = Folder::new();
    let checkpoints = CheckpointFolder::create(&folder.0, 2).unwrap();
    assert_eq!(CheckpointFolder::best(&folder.0).unwrap(), None);
    let save = |step: u64, loss: Option<f32>| {
        let mut checkpoint = fixture::rnn();
        let training = checkpoint.training.as_mut().unwrap();
        (training.step, training.metrics.validation_loss) = (step, loss);
        checkpoints.save(&checkpoint).unwrap();
        let best = CheckpointFolder::best(&folder.0).unwrap();
        best.map(|(path, loss)| (path.file_name().unwrap().to_str().unwrap().to_owned(), loss))
    };
    let named = |step: u64, loss: f32| Some((format!("step-{step:08}.oam"), loss));
    assert_eq!(save(0, None), None);
    assert_eq!(save(1, Some(f32::NAN)), None);
    assert_eq!(save(2, Some(2.5)), named(2, 2.5));
    // The loss of an evaluation that an earlier checkpoint already has makes no second best.
    assert_eq!(save(3, Some(2.5)), named(2, 2.5));
    assert_eq!(save(4, Some(f32::NAN)), named(2, 2.5));
    assert_eq!(save(5, Some(3.0)), named(2, 2.5));
    let steps = |steps: &[u64]| {
        let names = steps.iter().map(|step| format!("step-{step:08}.oam"));
        std::iter::once("best".to_owned()).chain(names).collect::<Vec<String>>()
    };
    assert_eq!(folder.names(), steps(&[2, 4, 5]));
    assert_eq!(save(6, Some(1.0)), named(6, 1.0));
    assert_eq!(folder.names(), steps(&[5, 6]), "the best of before is one of many now");
    assert_eq!(save(7, Some(2.0)), named(6, 1.0));
    assert_eq!(save(8, Some(2.0)), named(6, 1.0));
    assert_eq!(folder.names(), steps(&[6, 7, 8]));
    // A run that goes on from step 7 leaves what came after it; the best may be among that.
    assert_eq!(save(6, Some(1.5)), named(6, 1.5));
    // A damaged note, or one of a file that is gone, is none.
    std::fs::write(folder.0.join("best"), b"\xff?").unwrap();
    assert_eq!(CheckpointFolder::best(&folder.0).unwrap(), None);
    std::fs::write(folder.0.join("best"), "step-00000099.oam 0.5\n").unwrap();
    assert_eq!(save(9, Some(4.0)), named(9, 4.0));
}

#[test]
fn nothing_is_forgotten_when_a_save_fails() {
    let folder = Folder::new();
    let checkpoints = CheckpointFolder::create(&folder.0, 1).unwrap();
    let mut checkpoint = fixture::rnn();
    checkpoint.training.as_mut().unwrap().metrics.validation_loss = Some(2.0);
    checkpoints.save(&checkpoint).unwrap();
    let before = folder.names();
    checkpoint.training.as_mut().unwrap().step += 1;
    checkpoint.tensors[0].name = "embedding\n".into();
    checkpoints.save(&checkpoint).unwrap_err();
    assert_eq!(folder.names(), before);
}
