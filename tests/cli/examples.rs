//! The examples as their users run them. The engine: every layout, right; and what it would find wrong. The program of
//! the tutorial.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod mixture_of_experts;
#[path = "../../examples/tensor_parallel_mlp/model.rs"]
mod model;
mod observed;
#[path = "../support/page.rs"]
mod page;
#[path = "../../examples/support/reference.rs"]
mod reference;
mod tutorial;

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use float8::F8E4M3;
use model::{Model, rms_norm};
use reference::{error, multiply, widen};

/// The features that change what examples do, and whether this test was built with them.
const FEATURES: [(&str, bool); 2] = [("cuda", cfg!(feature = "cuda")), ("cudarc", cfg!(feature = "cudarc"))];

/// The folder of the examples, built as this test was.
fn examples() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--offline"]);
        command.args(
            ["tensor_parallel_mlp", "mixture_of_experts", "tutorial", "observed"]
                .map(|name| format!("--example={name}")),
        );
        command.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            command.arg("--release");
        }
        for (feature, _) in FEATURES.iter().filter(|(_, on)| *on) {
            command.args(["--features", feature]);
        }
        assert!(command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).status().unwrap().success());
        profile.join("examples")
    })
}

/// Runs the example as ranks on the CPU.
fn launch(ranks: usize, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
    command.args(["launch", "--no-prefix", "-n", &ranks.to_string(), "--"]).arg(examples().join("tensor_parallel_mlp"));
    command.args(["--host", "--blocks", "3", "--hidden", "32", "--intermediate", "96", "--batch", "5", "--steps", "3"]);
    command.args(words.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

/// The output of the example, which was right.
fn found(ranks: usize, words: &str) -> serde_json::Value {
    let output = launch(ranks, &format!("{words} --json"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error} in: {text}"))
}

/// Checks a layout: which rank is in which row, and that all results are right.
fn layout(ranks: usize, words: &str, places: &[(usize, usize, &[usize])]) {
    let (found, fp8) = (found(ranks, words), words.contains("--fp8"));
    assert_eq!(found["device"], "host");
    let groups = found["groups"].as_array().unwrap();
    assert_eq!(groups.len(), places.len(), "{found}");
    for (group, (replica, stage, ranks)) in groups.iter().zip(places) {
        assert_eq!((&group["replica"], &group["stage"]), (&(*replica).into(), &(*stage).into()), "{found}");
        assert_eq!(group["ranks"], serde_json::json!(ranks), "{found}");
        let (error, bound) = (group["error"].as_f64().unwrap(), group["bound"].as_f64().unwrap());
        // Not 0 either: the sums of shards round otherwise than those of f64.
        assert!(error > 0.0 && error <= bound && bound < if fp8 { 0.5 } else { 1e-4 }, "{found}");
        assert_eq!(group["right"], true, "{found}");
    }
}

#[test]
fn eight_ranks_share_each_block() {
    layout(8, "", &[(0, 0, &[0, 1, 2, 3, 4, 5, 6, 7])]);
}

#[test]
fn two_replicas_of_four_ranks() {
    layout(8, "--tp 4 --dp 2", &[(0, 0, &[0, 1, 2, 3]), (1, 0, &[4, 5, 6, 7])]);
}

#[test]
fn two_replicas_of_two_stages_of_two_ranks() {
    let places: [(_, _, &[usize]); 4] = [(0, 0, &[0, 1]), (0, 1, &[2, 3]), (1, 0, &[4, 5]), (1, 1, &[6, 7])];
    layout(8, "--tp 2 --pp 2 --dp 2", &places);
}

#[test]
fn three_stages_of_one_rank() {
    layout(3, "--pp 3", &[(0, 0, &[0]), (0, 1, &[1]), (0, 2, &[2])]);
}

#[test]
fn codes_of_two_stages_of_two_ranks() {
    layout(4, "--tp 2 --pp 2 --fp8", &[(0, 0, &[0, 1]), (0, 1, &[2, 3])]);
}

#[test]
fn columns_that_do_not_divide_are_refused() {
    let output = launch(5, "");
    assert!(!output.status.success());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("96 intermediate columns do not divide among 5 ranks"), "{words}");
}

#[test]
fn a_table_for_people() {
    let output = launch(2, "--seed 7");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("seed 7"), "{text}");
    assert!(text.lines().last().unwrap().contains("[0, 1]") && !text.contains("WRONG"), "{text}");
}

/// The whole model in f32, as two ranks compute it, where `second` gives each rank's rows of `W2`, and `residual` what
/// a block's input is multiplied by before the sums are added.
fn sharded(model: &Model, residual: f32, second: impl Fn(usize, usize) -> Vec<f32>) -> Vec<f32> {
    let half = model.intermediate / 2;
    let norm = |x: &[f32], norm| -> Vec<f32> {
        rms_norm(&widen(x), &model.norm(norm)).into_iter().map(|value| value as f32).collect()
    };
    let x = (0..model.blocks).fold(model.input(0), |x, block| {
        let normed = norm(&x, block);
        let scale = model.row_scale();
        let code = |value: &f32| F8E4M3::from_f32(*value / scale).to_f32() * scale;
        let normed = if model.fp8 { normed.iter().map(code).collect() } else { normed };
        let parts = [0, 1].map(|rank| {
            let mut inner = multiply(&normed, &model.first(block, rank * half..(rank + 1) * half), model.hidden);
            inner.iter_mut().for_each(|value| *value = value.max(0.0));
            multiply(&inner, &second(block, rank), half)
        });
        let sums = parts[0].iter().zip(&parts[1]).map(|(one, other)| one + other);
        x.iter().zip(sums).map(|(x, sum)| residual * x + sum).collect()
    });
    norm(&x, model.blocks)
}

#[test]
fn a_wrong_shard_is_found() {
    let model = Model { blocks: 3, hidden: 24, intermediate: 48, batch: 5, seed: fastrand::u64(..), fp8: false };
    let expected = model.reference(0);
    let rows = |block, rank: usize| model.second(block, rank * 24..(rank + 1) * 24);
    let right = error(&sharded(&model, 1.0, rows), &expected);
    assert!(right <= model.bound(), "{model:?}: {right}");
    // The other rank's shard; another block's; one that is missing; one column a little off; and no residual.
    let swapped = |block, rank| rows(block, if block == 1 { 1 - rank } else { rank });
    let shifted = |block: usize, rank| rows(if block == 1 { 2 } else { block }, rank);
    let missing = |block, rank| if (block, rank) == (1, 1) { vec![0.0; 24 * 24] } else { rows(block, rank) };
    let touched = |block, rank| {
        let mut weights = rows(block, rank);
        if (block, rank) == (2, 1) {
            weights.iter_mut().step_by(24).for_each(|weight| *weight *= 1.01);
        }
        weights
    };
    let wrong = [
        ("swapped", sharded(&model, 1.0, swapped)),
        ("shifted", sharded(&model, 1.0, shifted)),
        ("missing", sharded(&model, 1.0, missing)),
        ("touched", sharded(&model, 1.0, touched)),
        ("no residual", sharded(&model, 0.0, rows)),
    ];
    for (what, found) in wrong {
        let wrong = error(&found, &expected);
        assert!(wrong > 10.0 * model.bound(), "{what}, {model:?}: {wrong}");
    }
}

#[test]
fn a_wrong_shard_or_scale_of_codes_is_found() {
    let model = Model { blocks: 3, hidden: 64, intermediate: 128, batch: 16, seed: fastrand::u64(..), fp8: true };
    let expected = model.reference(0);
    // Codes, column after column, stand for the weights of the reference.
    let (weights, codes) = (model.first(1, 3..5), model.first_codes(1, 3..5));
    let decoded = |place: usize| codes[place % 2 * 64 + place / 2].to_f32() * model.weight_scale();
    assert_eq!(weights, (0..128).map(decoded).collect::<Vec<_>>());
    let scaled = |of: fn(usize, usize) -> f32| {
        // ReLU passes a positive scale of the first product on to the second.
        let second = |block, rank| {
            let weights = model.second(block, rank * 64..(rank + 1) * 64);
            weights.into_iter().map(|weight| weight * of(block, rank)).collect()
        };
        error(&sharded(&model, 1.0, second), &expected)
    };
    let right = scaled(|_, _| 1.0);
    assert!(right > model.bound() / 100.0 && right <= model.bound(), "{model:?}: {right}");
    let wrong = [
        ("missing", scaled(|block, rank| if (block, rank) == (1, 1) { 0.0 } else { 1.0 })),
        ("summed twice", scaled(|block, rank| if (block, rank) == (1, 1) { 2.0 } else { 1.0 })),
        ("half the scale", scaled(|_, _| 0.5)),
        ("twice the scale", scaled(|_, _| 2.0)),
    ];
    for (what, wrong) in wrong {
        assert!(wrong > 1.2 * model.bound(), "{what}, {model:?}: {wrong} of {}", model.bound());
    }
}

#[test]
fn what_cannot_be_compared_is_wrong() {
    assert_eq!(error(&[1.0, -2.0], &[1.0, -2.0]), 0.0);
    assert_eq!(error(&[3.0, 1.0], &[2.0, 0.0]), 1.0 / 2f64.sqrt());
    for found in [&[1.0][..], &[1.0, 2.0, 3.0], &[1.0, f32::NAN], &[f32::INFINITY, 2.0]] {
        assert_eq!(error(found, &[1.0, 2.0]), f64::MAX, "{found:?}");
    }
    assert_eq!(error(&[0.0, 1.0], &[0.0, 0.0]), f64::MAX);
}
