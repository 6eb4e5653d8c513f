//! Layers, compared with candle's layers with whole weights, and the sizes that they refuse.

use std::path::Path;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear};
use symmetra_candle::layers::{
    ColumnParallel, Head, Heads, MergedColumnParallel, Piece, RowParallel, RowParallelNorm, VocabEmbedding,
};
use symmetra_candle::{Group, failure};

use crate::checkpoint::{saved, weights};
use crate::{bits, difference, on_cpu, ranks, values, worlds};

fn random(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| fastrand::f32() - 0.5).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn part(tensor: &Tensor, dim: usize, group: &Group) -> Result<Tensor> {
    let length = tensor.dim(dim)? / group.world_size();
    tensor.narrow(dim, group.rank() * length, length)
}

#[test]
fn products_are_those_of_whole_weights_and_a_bias_is_counted_once() {
    let (inputs, outputs) = (24, 16);
    // A bias that counts, so that twice is seen.
    let (weight, bias, x) =
        (random(&[outputs, inputs]), (random(&[outputs]) + 100.0).unwrap(), random(&[2, 3, inputs]));
    let (folder, bare) = (saved(&[("weight", &weight), ("bias", &bias)]), saved(&[("weight", &weight)]));
    for world_size in worlds([1, 2, 4]) {
        for (folder, bias) in [(folder.path(), Some(bias.clone())), (bare.path(), None)] {
            let expected = Linear::new(weight.clone(), bias).forward(&x).unwrap();
            ranks(world_size, |group| {
                let load = |folder: &Path| weights(folder, DType::F32, group.device());
                let x = x.to_device(group.device())?;
                let column = ColumnParallel::load(inputs, outputs, load(folder)?, group)?.forward(&x)?;
                assert!(difference(&column, &part(&expected, 2, group)?) < 1e-4);
                let own = part(&x, 2, group)?.contiguous()?;
                let row = RowParallel::load(inputs, outputs, load(folder)?, group)?;
                assert!(difference(&row.forward(&own)?, &expected) < 1e-4);
                let ones = Tensor::ones(outputs, DType::F32, group.device())?;
                let residual = random(&[outputs]).to_device(group.device())?;
                let residual = group.broadcast(&residual.broadcast_as((2, 3, outputs))?, 0)?;
                let norm = RowParallelNorm::new(row, ones.clone(), 1e-5);
                let (normed, rows) = norm.forward(&own, Some(&residual))?;
                let sum = (&expected + on_cpu(&residual))?;
                assert!(difference(&rows, &sum) < 1e-4);
                assert!(difference(&normed, &candle_nn::ops::rms_norm(&sum, &on_cpu(&ones), 1e-5)?) < 1e-4);
                Ok(())
            });
        }
    }
}

#[test]
fn merged_products_are_split_into_those_of_each_weight() {
    let [q, k, v] = [[16, 8], [4, 8], [4, 8]].map(|shape| random(&shape));
    let bias = random(&[16]);
    let folder = saved(&[("q.weight", &q), ("k.weight", &k), ("v.weight", &v)]);
    let mixed = saved(&[("q.weight", &q), ("k.weight", &k), ("q.bias", &bias)]);
    let x = random(&[3, 8]);
    // Two heads of q and k on four ranks: each half of k is on two ranks.
    for world_size in worlds([4]) {
        ranks(world_size, |group| {
            let x = x.to_device(group.device())?;
            let heads = Heads::divide(8, 2, group)?;
            let kv = |name| Piece::new(name, 4).part(heads.kv_shard);
            let vb = weights(folder.path(), DType::F32, group.device())?;
            let layer = MergedColumnParallel::load(8, &[Piece::new("q", 16), kv("k"), kv("v")], vb, group)?;
            let parts = layer.split(&layer.forward(&x)?)?;
            let product = |weight: &Tensor| on_cpu(&x).matmul(&weight.t()?);
            let half = |weight: &Tensor| product(weight)?.narrow(D::Minus1, group.rank() / 2 * 2, 2);
            for (found, expected) in parts.iter().zip([part(&product(&q)?, 1, group)?, half(&k)?, half(&v)?]) {
                assert!(difference(found, &expected) < 1e-5);
            }
            let pieces = [Piece::new("q", 16), Piece::new("k", 4)];
            let mixed = weights(mixed.path(), DType::F32, group.device())?;
            assert!(MergedColumnParallel::load(8, &pieces, mixed, group).is_err());
            Ok(())
        });
    }
}

#[test]
fn a_divided_vocabulary_has_the_rows_and_logits_of_a_whole_one() {
    let (vocabulary, hidden) = (12, 8);
    let (rows, tokens) =
        (random(&[vocabulary, hidden]), Tensor::new(&[[0_u32, 11, 5], [6, 3, 3]], &Device::Cpu).unwrap());
    let folder = saved(&[("weight", &rows)]);
    let expected = Embedding::new(rows.clone(), hidden).forward(&tokens).unwrap();
    for world_size in worlds([1, 2, 3, 4]) {
        ranks(world_size, |group| {
            let (vb, tokens) = (weights(folder.path(), DType::F32, group.device())?, tokens.to_device(group.device())?);
            let embedding = VocabEmbedding::load(vocabulary, hidden, vb.clone(), group)?;
            let found = embedding.forward(&tokens)?;
            assert_eq!((found.dims(), bits(&found)), (expected.dims(), bits(&expected)));
            let outside = embedding.forward(&Tensor::new(&[12_u32, u32::MAX], group.device())?)?;
            assert_eq!(values(&outside), vec![0.0; 2 * hidden]);
            let logits = Linear::new(rows.clone(), None).forward(&expected)?;
            for head in [Head::load(hidden, vocabulary, vb, group)?, Head::tied(&embedding)] {
                assert!(difference(&head.forward(&found)?, &logits) < 1e-5);
            }
            Ok(())
        });
    }
}

#[test]
fn heads_are_divided_or_shared() {
    for (ranks_and_heads, expected) in
        [([4, 8, 2], [2, 1]), ([2, 8, 4], [4, 2]), ([1, 8, 8], [8, 8]), ([4, 12, 4], [3, 1])]
    {
        let [world_size, heads, kv_heads] = ranks_and_heads;
        if worlds([world_size]).next().is_none() {
            continue;
        }
        for (rank, found) in ranks(world_size, |group| Heads::divide(heads, kv_heads, group)).into_iter().enumerate() {
            assert_eq!([found.heads, found.kv_heads], expected);
            // The head of k and v of the first head of q.
            let first = rank * found.heads / (heads / kv_heads);
            assert_eq!(
                found.kv_shard.rank * (kv_heads / found.kv_shard.world_size),
                first,
                "rank {rank} of {ranks_and_heads:?}"
            );
        }
    }
}

#[test]
fn sizes_that_do_not_divide_are_refused_with_weight_dimension_and_world_size() {
    let folder = saved(&[("a.weight", &random(&[7, 9])), ("a.bias", &random(&[7]))]);
    ranks(2, |group| {
        let refused = |result: Result<()>| match failure(&result.unwrap_err()) {
            Some(symmetra::Error::InvalidArgument { message }) => message.clone(),
            other => panic!("{other:?}"),
        };
        let vb = || Ok::<_, candle_core::Error>(weights(folder.path(), DType::F32, group.device())?.pp("a"));
        let rows = "dimension 0 of a.weight is 7, but the world size 2 must divide it";
        let columns = "dimension 1 of a.weight is 9, but the world size 2 must divide it";
        assert_eq!(refused(ColumnParallel::load(9, 7, vb()?, group).map(drop)), rows);
        assert_eq!(refused(RowParallel::load(9, 7, vb()?, group).map(drop)), columns);
        assert_eq!(refused(VocabEmbedding::load(7, 9, vb()?, group).map(drop)), rows);
        assert_eq!(refused(Head::load(9, 7, vb()?, group).map(drop)), rows);
        let root = weights(folder.path(), DType::F32, group.device())?;
        assert_eq!(refused(MergedColumnParallel::load(9, &[Piece::new("a", 7)], root, group).map(drop)), rows);
        let wrong = ColumnParallel::load(9, 8, vb()?, group).unwrap_err();
        assert!(wrong.to_string().contains("a.weight"), "{wrong}");
        let heads = |heads, kv_heads| refused(Heads::divide(heads, kv_heads, group).map(drop));
        assert_eq!(heads(7, 7), "the number of heads is 7, but the world size 2 must divide it");
        assert_eq!(heads(8, 3), "the number of k and v heads is 3, but it must divide the 8 heads");
        assert!(heads(6, 3).starts_with("the number of k and v heads is 3, but it must divide the world size 2"));
        Ok(())
    });
}
