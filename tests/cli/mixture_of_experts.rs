//! The layer of experts in `examples/`: right on every number of ranks, and its detection of errors.

#[path = "../../examples/mixture_of_experts/layer.rs"]
mod layer;

use std::process::{Command, Output, Stdio};

use layer::{Layer, Whole};

use super::{examples, reference};

/// Runs the example as ranks on the CPU.
fn launch(ranks: usize, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
    command.args(["launch", "--no-prefix", "-n", &ranks.to_string(), "--"]).arg(examples().join("mixture_of_experts"));
    command.args(["--host", "--hidden", "24", "--intermediate", "40", "--tokens", "5", "--steps", "4", "--seed", "7"]);
    command.args(words.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_layer_is_right_on_every_number_of_ranks() {
    // Ranks with fewer experts than others, and with none.
    let cases = [
        (1, "", "Gather"),
        (2, "--experts 5 --top-k 3", "Packets"),
        (3, "--packets", "Packets"),
        (3, "--experts 2 --top-k 1", "Packets"),
    ];
    for (ranks, words, method) in cases {
        let output = launch(ranks, words);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{words}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("experts on {ranks} ranks, {method}, 4 steps, seed 7: error ")), "{text}");
        assert!(!text.contains("error 0.0e0") && !text.contains("WRONG"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// The first rank, at which survivors would meet, or another. A rank that ends with status 0 does not end the others.
#[test]
fn the_others_go_on_without_a_rank_that_dies() {
    for lost in [0, 2] {
        let output = launch(3, &format!("--experts 7 --lose {lost}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let [first, last] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        // The rank leaves after step 2. A survivor may notice that before its own wait for step 2 has ended; then all repeat step 2.
        let next = [2, 3].map(|step| format!("without ranks [{lost}]: the others go on with step {step}"));
        assert!(next.contains(&first.to_owned()), "{text}");
        assert!(last.contains("experts on 2 ranks") && !last.contains("WRONG"), "{text}");
    }
}

#[test]
fn more_experts_of_a_token_than_there_are_is_refused() {
    let output = launch(1, "--experts 2 --top-k 3");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && words.contains("a token has 3 experts, and there are 2"), "{words}");
}

#[test]
fn a_wrong_expert_or_weight_is_found() {
    let layer = Layer { experts: 6, top_k: 2, hidden: 24, intermediate: 40, seed: fastrand::u64(..) };
    let (whole, gate) = (Whole::new(layer), layer.gate());
    // The first step that has tokens.
    let x = (0..).map(|step| layer.tokens(1, step, 5)).find(|x| !x.is_empty()).unwrap();
    let routing = layer.route(&gate, &x);
    let expected = whole.result(&x, &routing);
    let off = |ids: &[i32], weights: &[f32]| {
        let found = whole.result(&x, &(ids.to_vec(), weights.to_vec()));
        reference::error(&found.into_iter().map(|value| value as f32).collect::<Vec<_>>(), &expected)
    };
    let (ids, weights) = routing.clone();
    assert!(off(&ids, &weights) <= layer.bound());
    for pair in weights.chunks_exact(2) {
        assert!((pair[0] + pair[1] - 1.0).abs() < 1e-6 && pair[0] >= pair[1], "{pair:?}");
    }
    let (mut other, mut heavier) = (ids.clone(), weights.clone());
    other[1] = (ids[1] + 1) % 6;
    heavier[0] *= 1.01;
    for (what, wrong) in [("another expert", off(&other, &weights)), ("another weight", off(&ids, &heavier))] {
        assert!(wrong > 10.0 * layer.bound(), "{what}, {layer:?}: {wrong}");
    }
}
