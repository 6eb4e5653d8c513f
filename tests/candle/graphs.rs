//! Steps of decoding as CUDA graphs, and the same layers over NCCL. GPUs alone.

use candle_core::{DType, Result};
use symmetra::Config;
use symmetra::bootstrap::Bootstrap;
use symmetra_candle::Group;

use crate::checkpoint::{Checkpoint, weights};
use crate::model::{Llama, ModelNorm, Room, decode};
use crate::{graph, on_gpus};

const PROMPT: [u32; 5] = [5, 900, 31, 77, 2];
const STEPS: usize = 200;

/// The tokens of the ranks of two GPUs, of eager steps and of a graph. `over` makes the group of the model.
fn tokens(
    norm: ModelNorm,
    dtype: DType,
    batch: usize,
    over: impl Fn(&Group) -> Result<Group> + Sync,
) -> Vec<[Vec<u32>; 2]> {
    let checkpoint = Checkpoint::new(7);
    let ranks = Group::threads(2, |bootstrap| -> Result<_> {
        let device = graph::device(bootstrap.rank())?;
        let group = Group::open(bootstrap, &device, Config::default())?;
        let vb = weights(checkpoint.folder.path(), dtype, &device)?;
        let room = Room { batch, length: PROMPT.len() + STEPS };
        let model = Llama::load(&vb, &checkpoint.config, norm, room, &over(&group)?)?;
        let eager = decode(&model, &PROMPT, STEPS, |_| false, |_, _| Ok(()))?;
        let mut calls = 0;
        let captured = graph::decode(&model, &PROMPT, STEPS, |_| false, |_| calls += 1)?;
        assert_eq!(calls, STEPS);
        let more = graph::decode(&model, &PROMPT, STEPS + 2, |_| false, |_| ()).unwrap_err();
        assert!(more.to_string().contains("a sequence has room for 205"), "{more}");
        drop(model);
        group.close()?;
        Ok([eager, captured])
    });
    ranks.unwrap().into_iter().map(|tokens| tokens.unwrap()).collect()
}

#[test]
fn two_hundred_tokens_of_a_graph_are_those_of_eager_steps() {
    if !on_gpus() {
        return;
    }
    for (norm, dtype, batch) in
        [(ModelNorm::Fused, DType::F32, 1), (ModelNorm::Apart, DType::BF16, 1), (ModelNorm::Fused, DType::BF16, 3)]
    {
        let found = tokens(norm, dtype, batch, |group| Ok(group.clone()));
        let [eager, captured] = &found[0];
        assert_eq!(eager.len(), STEPS);
        assert!(eager.iter().any(|token| *token != eager[0]), "{eager:?}");
        assert_eq!(eager, captured, "{norm:?} {dtype:?} {batch}");
        assert_eq!(found[0], found[1], "ranks differ: {norm:?} {dtype:?} {batch}");
    }
}

#[cfg(feature = "nccl")]
#[test]
fn tokens_over_nccl_are_those_of_symmetra() {
    if !on_gpus() {
        return;
    }
    for dtype in [DType::F32, DType::BF16] {
        let own = tokens(ModelNorm::Apart, dtype, 2, |group| Ok(group.clone()));
        assert_eq!(tokens(ModelNorm::Apart, dtype, 2, Group::over_nccl), own, "{dtype:?}");
    }
}
