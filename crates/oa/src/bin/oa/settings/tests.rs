//! Defaults, merging, and what is refused.

use super::{Arch, Mode, OptimizerKind, Order, ScheduleKind, Settings, resolve};
use oa::ml::data::DataCursor;
use oa::ml::{ModelConfig, OptimizerConfig, Schedule};
use std::path::PathBuf;

fn refuse(settings: Settings) -> String {
    let failure = resolve(&settings).expect_err("useless or impossible settings");
    assert_eq!(failure.code(), 2);
    failure.to_string()
}

#[test]
fn a_text_alone_gives_the_published_transformer() {
    let plan =
        resolve(&Settings { data: Some("plays.txt".into()), ..Settings::default() }).unwrap();
    assert_eq!(plan.model.parameter_count(), 857_216);
    assert_eq!(plan.model, ModelConfig::Transformer(Default::default()));
    assert_eq!((plan.routine.batch, plan.routine.context, plan.routine.whole), (12, 64, false));
    assert_eq!(plan.training.total_steps, 200);
    assert_eq!(plan.training.schedule, Schedule::Constant { warmup: 20 });
    assert_eq!(plan.training.max_norm, 1.0);
    let OptimizerConfig::AdamW(optimizer) = plan.optimizer else { panic!("{plan:?}") };
    assert_eq!((optimizer.lr, optimizer.beta1, optimizer.beta2), (0.001, 0.9, 0.95));
    assert_eq!((optimizer.eps, optimizer.weight_decay), (1.0e-8, 0.1));
    assert_eq!(plan.cursor, DataCursor::shuffled(0));
}

#[test]
fn the_contract_has_its_own_defaults() {
    let settings = Settings { arch: Some(Arch::ContractRnn), ..Settings::default() };
    let plan = resolve(&settings).unwrap();
    assert_eq!(plan.model.parameter_count(), 31_104);
    assert_eq!((plan.routine.batch, plan.routine.context, plan.routine.whole), (64, 16, true));
    assert_eq!((plan.training.total_steps, plan.training.seed), (300, 20_260_714));
    assert_eq!(plan.optimizer.rate(), 0.01);
    assert_eq!(plan.cursor, DataCursor::CONTRACT);
    let settings = Settings { arch: Some(Arch::ContractGru), ..settings };
    assert_eq!(resolve(&settings).unwrap().model.parameter_count(), 43_648);
    let settings = Settings { arch: Some(Arch::ContractTransformer), ..settings };
    assert_eq!(resolve(&settings).unwrap().model.parameter_count(), 25_760);
    let settings = Settings { arch: Some(Arch::ContractMamba3), ..settings };
    let plan = resolve(&settings).unwrap();
    assert_eq!((plan.model.parameter_count(), plan.optimizer.rate()), (25_800, 0.003));
}

#[test]
fn a_rank_makes_mamba3_multiple_input_multiple_output() {
    let mamba3 = Settings { arch: Some(Arch::Mamba3), ..Settings::default() };
    let config = |settings: Settings| match resolve(&settings).unwrap().model {
        ModelConfig::Mamba3(config) => config,
        other => panic!("not a Mamba-3: {other:?}"),
    };
    assert_eq!(config(mamba3.clone()), Default::default());
    let several = config(Settings { rank: Some(4), state: Some(32), ..mamba3.clone() });
    assert_eq!((several.rank, several.mimo, several.angles), (4, true, 8));
    let text = refuse(Settings { groups: Some(3), ..mamba3.clone() });
    assert!(text.contains("8 heads cannot share 3 groups of keys and queries evenly"), "{text}");
    let text = refuse(Settings { state: Some(3), ..mamba3.clone() });
    assert!(text.contains("--state is 3\nto do: it must be at least 4"), "{text}");
    let text = refuse(Settings { hidden: Some(3), ..mamba3 });
    assert!(text.contains("--arch mamba3 has no use for --hidden"), "{text}");
}

#[test]
fn settings_without_a_use_are_refused() {
    assert_eq!(
        refuse(Settings { hidden: Some(64), ..Settings::default() }),
        "error: cannot start this run\n\
         cause: --arch transformer has no use for --hidden\n\
         to do: leave it out; its sizes are --width, --layers, --heads, --kv-heads, --head-dim, \
         --ff, --rope, --rope-base, --qk-norm, --tied, --dropout, --context\n"
    );
    let rnn = Settings { arch: Some(Arch::Rnn), ..Settings::default() };
    let text = refuse(Settings { tied: Some(false), ..rnn.clone() });
    assert!(text.contains("--arch rnn has no use for --tied"), "{text}");
    let contract = Settings { arch: Some(Arch::ContractTransformer), ..Settings::default() };
    let text = refuse(Settings { width: Some(32), ..contract });
    assert!(text.contains("the sizes of contract-transformer are fixed"), "{text}");
    let text = refuse(Settings { decay: Some(5), ..Settings::default() });
    assert!(text.contains("--schedule constant has no use for --decay"), "{text}");
    let cosine = Some(ScheduleKind::Cosine);
    let text = refuse(Settings { decay: Some(5), schedule: cosine, ..Settings::default() });
    assert!(text.contains("--schedule cosine has no use for --decay"), "{text}");
    assert!(resolve(&Settings { min_ratio: Some(0.2), schedule: cosine, ..rnn.clone() }).is_ok());
    let linear = Settings { schedule: Some(ScheduleKind::Linear), warmup: Some(50), ..rnn };
    let plan = resolve(&linear).unwrap();
    assert_eq!(plan.training.schedule, Schedule::linear(50, 200, 0.1));
}

#[test]
fn impossible_settings_are_refused() {
    let text = refuse(Settings { kv_heads: Some(3), ..Settings::default() });
    assert!(text.contains("4 heads cannot share 3 key-value heads evenly"), "{text}");
    let text = refuse(Settings { heads: Some(0), ..Settings::default() });
    assert!(text.contains("transformer: heads is 0, it must be at least 1"), "{text}");
    let text = refuse(Settings { batch: Some(0), ..Settings::default() });
    assert!(text.contains("--batch is 0\nto do: it must be at least 1"), "{text}");
    let text = refuse(Settings { clip: Some(-1.0), ..Settings::default() });
    assert!(text.contains("--clip is -1"), "{text}");
    let failure = Settings { clip: Some(f32::NAN), ..Settings::default() }.check_numbers();
    assert!(failure.unwrap_err().to_string().contains("--clip is NaN"));
}

#[test]
fn heads_that_do_not_divide_the_width_are_refused_with_both_numbers() {
    let of = |arch, heads| Settings {
        arch: Some(arch),
        width: Some(100),
        heads: Some(heads),
        ..Settings::default()
    };
    for arch in [Arch::Transformer, Arch::Moe] {
        let text = refuse(of(arch, 8));
        assert!(text.contains("--heads 8 cannot share the --width of 100 evenly"), "{text}");
    }
    let text = refuse(of(Arch::Mamba3, 16));
    assert!(text.contains("--heads 16 cannot share twice the --width of 100 evenly"), "{text}");
    let text = refuse(Settings { width: Some(512), ..of(Arch::Moe, 2) });
    assert!(text.contains("--heads 2 share a --width of 512: 256 channels each"), "{text}");
    assert!(text.contains("to do: a head has at most 128"), "{text}");
    resolve(&of(Arch::Mamba3, 8)).unwrap();
    resolve(&Settings { head_dim: Some(8), ..of(Arch::Transformer, 8) }).unwrap();
}

#[test]
fn rates_and_bases_without_a_meaning_are_refused() {
    let text = refuse(Settings { rope_base: Some(0.0), ..Settings::default() });
    assert!(text.contains("a rotary base is 0, it must be positive and finite"), "{text}");
}

#[test]
fn each_optimizer_has_its_own_settings() {
    let of = |optimizer| Settings { optimizer: Some(optimizer), ..Settings::default() };
    let (adamw, sgd, muon) =
        (of(OptimizerKind::Adamw), of(OptimizerKind::Sgd), of(OptimizerKind::Muon));
    let plan = resolve(&Settings { momentum: Some(0.5), ..sgd.clone() }).unwrap();
    let OptimizerConfig::Sgd(config) = plan.optimizer else { panic!("{plan:?}") };
    assert_eq!((config.lr, config.momentum, config.weight_decay), (0.1, 0.5, 0.0));
    let plan = resolve(&Settings { weight_decay: Some(0.25), ..muon.clone() }).unwrap();
    let OptimizerConfig::Muon(config) = plan.optimizer else { panic!("{plan:?}") };
    assert_eq!((config.lr, config.momentum, config.weight_decay), (0.02, 0.95, 0.25));
    let text = refuse(Settings { momentum: Some(0.5), ..adamw.clone() });
    assert!(text.contains("--optimizer adamw has no use for --momentum"), "{text}");
    assert!(text.contains("leave it out, or choose --optimizer sgd or muon"), "{text}");
    let text = refuse(Settings { beta1: Some(0.5), ..sgd.clone() });
    assert!(text.contains("--optimizer sgd has no use for --beta1"), "{text}");
    let text = refuse(Settings { momentum: Some(1.5), ..sgd });
    assert!(text.contains("Sgd: momentum is 1.5, it must be in 0..1"), "{text}");
    let text = refuse(Settings { lr: Some(-1.0), ..muon });
    assert!(text.contains("Muon: lr is -1, it must be finite and positive"), "{text}");
    let text = refuse(Settings { beta2: Some(1.0), ..adamw });
    assert!(text.contains("AdamW: beta2 is 1, it must be in 0..1"), "{text}");
}

#[test]
fn flags_win_over_the_file() {
    let file: Settings =
        toml::from_str("arch = \"rnn\"\nlr = 0.5\nmode = \"eager\"\norder = \"contract\"").unwrap();
    let flags = Settings { lr: Some(0.25), seed: Some(u64::MAX), ..Settings::default() };
    let merged = flags.over(&file);
    assert_eq!((merged.arch, merged.lr), (Some(Arch::Rnn), Some(0.25)));
    assert_eq!((merged.seed, merged.mode), (Some(u64::MAX), Some(Mode::Eager)));
    assert_eq!(merged.order, Some(Order::Contract));
}

#[test]
fn a_file_with_an_unknown_setting_is_refused() {
    let path: PathBuf = std::env::temp_dir().join(format!("oa-settings-{}", std::process::id()));
    std::fs::write(&path, "learning-rate = 0.5\n").unwrap();
    let failure = Settings::from_file(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(failure.code(), 2);
    let text = failure.to_string();
    assert!(text.contains("unknown field `learning-rate`"), "{text}");
    let failure = Settings::from_file(&path).unwrap_err();
    assert!(failure.to_string().starts_with("error: cannot read the settings "), "{failure}");
}
