//! The tokens of a tensor parallel Llama, compared with those of candle's own Llama.

use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama;

use crate::checkpoint::{Checkpoint, files, weights};
use crate::model::{Llama, ModelNorm, Room, decode};
use crate::{bits, difference, processes, ranks, worlds};

const PROMPT: [u32; 9] = [5, 900, 31, 77, 2, 640, 13, 13, 1000];
const STEPS: usize = 64;
const ROOM: Room = Room { batch: 1, length: PROMPT.len() + STEPS };

/// The steps of a model: the greedy tokens and their logits.
struct Steps {
    tokens: Vec<u32>,
    logits: Vec<Tensor>,
}

#[allow(unsafe_code)]
fn of_candle(checkpoint: &Checkpoint) -> Result<Steps> {
    let files = files(checkpoint.folder.path());
    // SAFETY: no test changes the files.
    let vb = unsafe { VarBuilder::from_mmaped_safetensors(&files, DType::F32, &Device::Cpu) }?;
    let model = llama::Llama::load(vb, &checkpoint.config)?;
    let mut cache = llama::Cache::new(true, DType::F32, &checkpoint.config, &Device::Cpu)?;
    let (mut tokens, mut position, mut all) = (PROMPT.to_vec(), 0, Vec::new());
    for _ in 0..STEPS {
        let input = Tensor::new(&tokens[position..], &Device::Cpu)?.unsqueeze(0)?;
        let logits = model.forward(&input, position, &mut cache)?.flatten_all()?;
        position = tokens.len();
        tokens.push(logits.argmax(0)?.to_scalar()?);
        all.push(logits);
    }
    Ok(Steps { tokens: tokens.split_off(PROMPT.len()), logits: all })
}

/// The smallest distance of the two largest logits of a step.
fn margin(steps: &Steps) -> f32 {
    let margin = |logits: &Tensor| {
        let mut values = logits.to_vec1::<f32>().unwrap();
        values.sort_by(|left, right| right.total_cmp(left));
        values[0] - values[1]
    };
    steps.logits.iter().map(margin).fold(f32::INFINITY, f32::min)
}

/// A random checkpoint in which rounding decides no token.
fn decided() -> (Checkpoint, Steps) {
    loop {
        let seed = fastrand::u64(..);
        let checkpoint = Checkpoint::new(seed);
        let steps = of_candle(&checkpoint).unwrap();
        if margin(&steps) > 1e-3 {
            eprintln!("seed {seed}");
            return (checkpoint, steps);
        }
    }
}

/// The steps of each rank. Rank `r` loads the checkpoint in `folders[r]`.
fn of_ranks(folders: &[&Path], checkpoint: &Checkpoint, norm: ModelNorm) -> Vec<Steps> {
    ranks(folders.len(), |group| {
        let vb = weights(folders[group.rank()], DType::F32, group.device())?;
        let model = Llama::load(&vb, &checkpoint.config, norm, ROOM, group)?;
        let mut logits = Vec::new();
        let tokens = decode(
            &model,
            &PROMPT,
            STEPS,
            |_| false,
            |step, _| {
                logits.push(step.clone());
                Ok(())
            },
        )?;
        model.collectives()?;
        Ok(Steps { tokens, logits })
    })
}

#[test]
fn tokens_of_1_2_and_4_ranks_are_those_of_candle() {
    let (checkpoint, expected) = decided();
    let folder = checkpoint.folder.path();
    for (world_size, norm) in
        [(1, ModelNorm::Apart), (2, ModelNorm::Apart), (2, ModelNorm::Fused), (4, ModelNorm::Fused)]
    {
        if worlds([world_size]).next().is_none() {
            continue;
        }
        let found = of_ranks(&vec![folder; world_size], &checkpoint, norm);
        for steps in &found {
            assert_eq!(steps.tokens, expected.tokens, "{world_size} ranks, norm {norm:?}");
            for (step, logits) in steps.logits.iter().enumerate() {
                let difference = difference(logits, &expected.logits[step]);
                assert!(difference < 1e-4, "{world_size} ranks, norm {norm:?}, step {step}: {difference}");
                assert_eq!(bits(logits), bits(&found[0].logits[step]), "ranks differ in step {step}");
            }
        }
    }
}

#[test]
fn tokens_of_two_processes_are_those_of_candle() {
    let (checkpoint, expected) = decided();
    let found = processes::tokens(checkpoint.folder.path(), &PROMPT, STEPS);
    assert_eq!(found, expected.tokens);
}

#[test]
fn weights_of_rank_1_shifted_by_a_row_change_the_tokens() {
    let (checkpoint, expected) = decided();
    let shifted = checkpoint.shifted();
    let found = of_ranks(&[checkpoint.folder.path(), shifted.path()], &checkpoint, ModelNorm::Fused);
    assert_ne!(found[0].tokens, expected.tokens);
    assert_eq!(found[0].tokens, found[1].tokens);
}

#[test]
fn halves_have_the_logits_of_one_rank_under_given_tokens() {
    let (checkpoint, given) = decided();
    for (dtype, bound) in [(DType::BF16, 0.1), (DType::F16, 0.02)] {
        let logits = |world_size| {
            let of_ranks = ranks(world_size, |group| {
                let vb = weights(checkpoint.folder.path(), dtype, group.device())?;
                let model = Llama::load(&vb, &checkpoint.config, ModelNorm::Fused, ROOM, group)?;
                let mut logits = vec![model.logits(&PROMPT, 0)?];
                for (step, token) in given.tokens.iter().enumerate().take(16) {
                    logits.push(model.logits(&[*token], PROMPT.len() + step)?);
                }
                Tensor::stack(&logits, 0)
            });
            assert!(of_ranks.iter().all(|logits| bits(logits) == bits(&of_ranks[0])), "ranks differ in {dtype:?}");
            of_ranks.into_iter().next().unwrap()
        };
        let one = logits(1);
        for world_size in worlds([2, 4]) {
            let difference = difference(&logits(world_size), &one);
            assert!(difference > 0.0 && difference < bound, "{dtype:?}, {world_size} ranks: {difference}");
        }
    }
}
