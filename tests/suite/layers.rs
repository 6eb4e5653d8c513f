//! A graph of the layers of a language model, replayed by ranks out of step: each layer has a norm with its residual in
//! place, and an all-reduce, plain or by a codec. Every replay starts from the state that the previous one left.

use std::time::Duration;

use half::bf16;
use reference::element::Summand;
use reference::norm::{normed, with_residual};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, DeviceBuffer, Graph, Reduction, Result, RmsNorm, RowNorm, SymmetricBuffer,
};

use crate::support::data::{Random, Sample, assert_same, mix};
use crate::support::extent::repeats;
use crate::support::process::apart;
use crate::support::system::{Usage, assert_device_flat, free_device_bytes};
use crate::support::world::behind;
use crate::support::{Rank, codec, config, fits, is_host, threads};

const REPLAYS: &str = "SYMMETRA_TEST_REPLAYS";
/// The layers, and the rows of each.
#[derive(Clone, Copy)]
struct Model {
    layers: usize,
    rows: usize,
    hidden: usize,
    /// Of the regions of both algorithms: a layer's rows take several launches in some.
    region_bytes: [u64; 2],
}

const MANY: Model = Model { layers: 64, rows: 5, hidden: 96, region_bytes: [1024, 8192] };
/// Rows that a block keeps in the region, because they are too long for its shared memory. Codecs use that memory too.
const LONG: Model = Model { layers: 12, rows: 2, hidden: 8328, region_bytes: [64 << 10, 64 << 10] };

impl Model {
    fn count(self) -> usize {
        self.rows * self.hidden
    }
}

/// Each rank starts to read this many elements after the previous rank, so that ranks have different values.
const STEP: usize = 8;
/// Most replays between two looks at the result.
const MOST: usize = 4;
const EPSILON: f32 = 1e-6;

/// How a layer sums.
fn options(layer: usize) -> AllReduceOptions {
    let ways = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];
    match layer % 3 {
        0 => Algorithm::OneShotLL.into(),
        1 => ways[layer % 2].into(),
        _ => AllReduceOptions::default()
            .reduction([Reduction::Average, Reduction::Sum][layer % 2])
            .algorithm(ways[layer / 2 % 2])
            .codec([Codec::Fp8, Codec::Int8, Codec::Int6, Codec::Int4][layer / 3 % 4]),
    }
}

/// How a layer sums the rows that it norms. Both sum and norm in one kernel.
fn norm_algorithm(layer: usize) -> Algorithm {
    [Algorithm::TwoShotSentinel, Algorithm::OneShotSentinel][layer / 3 % 2]
}

fn sample(seed: u64, count: usize) -> Vec<bf16> {
    (0..count).map(|index| bf16::sample(mix(seed ^ mix(index as u64)))).collect()
}

/// Buffers of one rank, or of the model, in which all ranks have the same.
struct Values<B> {
    /// The state before and after a replay.
    state: B,
    /// Sums, and normed rows.
    sums: B,
    rows: B,
}

/// The state after each of `replays` replays on `world` ranks.
fn states(model: Model, world: usize, room: usize, replays: usize) -> Vec<Vec<bf16>> {
    let count = model.count();
    let (weight, first) = (sample(1, model.hidden), sample(2, count));
    let mut held = Values { state: sample(3, room), sums: sample(4, room), rows: sample(5, room) };
    let mut residual = first.clone();
    let of_ranks = |values: &[bf16]| -> Vec<Vec<bf16>> {
        (0..world).map(|rank| values[rank * STEP..][..count].to_vec()).collect()
    };
    let sum = |inputs: &[Vec<bf16>]| -> Vec<bf16> {
        (0..count).map(|at| bf16::reduce(Reduction::Sum, inputs.iter().map(|input| input[at]))).collect()
    };
    let mut replay = || {
        for layer in 0..model.layers {
            let (input, before) = if layer == 0 { (&held.state, &first) } else { (&held.sums, &residual) };
            residual = with_residual(&sum(&of_ranks(input)), Some(before));
            held.rows[..count].copy_from_slice(&normed(&residual, &weight, RmsNorm::new(EPSILON)));
            let (inputs, options) = (of_ranks(&held.rows), options(layer));
            let reduced = match options.codec {
                Codec::None => sum(&inputs),
                _ => codec::reduced(&options, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            };
            let output = if layer + 1 == model.layers { &mut held.state } else { &mut held.sums };
            output[..count].copy_from_slice(&reduced);
        }
        held.state.clone()
    };
    (0..replays).map(|_| replay()).collect()
}

/// The graph of one replay.
fn graph<'b>(
    model: Model,
    rank: &Rank,
    buffers: &'b Values<SymmetricBuffer<bf16>>,
    [weight, first, residual]: [&'b DeviceBuffer<bf16>; 3],
) -> Result<Graph<'b>> {
    let (communicator, own, count) = (&rank.communicator, rank.rank() * STEP, model.count());
    let read = |buffer: &'b SymmetricBuffer<bf16>| buffer.slice(own..own + count);
    rank.stream.capture(|capture| {
        for layer in 0..model.layers {
            let (input, before) = if layer == 0 { (&buffers.state, first) } else { (&buffers.sums, residual) };
            let rows = RowNorm::new(read(input)?, weight, RmsNorm::new(EPSILON)).residual(before);
            let rows = rows.residual_out(residual).output(buffers.rows.slice(0..count)?);
            communicator.all_reduce_norm(rows.algorithm(norm_algorithm(layer)), capture)?;
            let output = if layer + 1 == model.layers { &buffers.state } else { &buffers.sums };
            communicator.all_reduce_with(options(layer), read(&buffers.rows)?, output.slice(0..count)?, capture)?;
        }
        Ok(())
    })
}

fn replayed(model: Model, world: usize, replays: usize) {
    if !fits(world) {
        return;
    }
    let count = model.count();
    let room = count + world * STEP;
    let states = states(model, world, room, MOST);
    let mut config = config();
    let [one_shot, two_shot] = model.region_bytes;
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(one_shot), two_shot);
    // Each rank reads at a different offset, which packets allow and a comparison of calls refuses.
    config.check_calls = false;
    // LL calls walk over their whole region in turn: a small one has all its pages before memory is measured.
    config.one_shot_ll_bytes = 1024;
    threads(world, &config, |rank| {
        let Rank { communicator, stream, device } = rank;
        let buffers = [3, 4, 5].map(|seed| {
            let buffer = communicator.symmetric::<bf16>(room).unwrap();
            buffer.write(&sample(seed, room), stream).unwrap();
            buffer
        });
        let [state, sums, rows] = buffers;
        let buffers = Values { state, sums, rows };
        let [weight, first] = [sample(1, model.hidden), sample(2, count)]
            .map(|values| DeviceBuffer::from_slice(&values, stream).unwrap());
        let residual = DeviceBuffer::new(device, count).unwrap();
        let graph = graph(model, rank, &buffers, [&weight, &first, &residual]).unwrap();
        graph.register().unwrap();
        for late in 0..2 {
            behind(rank, late, || (0..MOST).for_each(|_| graph.launch(stream).unwrap()));
        }
        // Equal on all ranks, unlike the time that each takes.
        let (mut bursts, mut jitter) = (Random(world as u64), Random(mix(rank.rank() as u64)));
        let (mut run, mut before) = (0, None);
        while run < replays {
            let burst = 1 + bursts.below(MOST);
            buffers.state.write(&sample(3, room), stream).unwrap();
            for _ in 0..burst {
                std::thread::sleep(Duration::from_micros(jitter.below(400) as u64));
                graph.launch(stream).unwrap();
            }
            rank.finish();
            assert_same(&buffers.state.read(stream).unwrap(), &states[burst - 1], &(world, rank.rank(), run, burst));
            run += burst;
            if before.is_none() && run >= replays / 4 {
                before = Some((Usage::of(rank), free_device_bytes(rank)));
            }
        }
        let (usage, free) = before.unwrap();
        if let (Some(before), Some(after)) = (usage, Usage::of(rank)) {
            after.assert_flat(&before);
        }
        assert_device_flat(free, free_device_bytes(rank));
    });
}

#[test]
fn pitfall_09_norms_and_sums_by_codecs_replayed_by_ranks_out_of_step() {
    if !apart("layers::pitfall_09_norms_and_sums_by_codecs_replayed_by_ranks_out_of_step") {
        return;
    }
    let replays = repeats(REPLAYS, 24, if is_host() { 300 } else { 10_000 });
    [2, 4].into_iter().for_each(|world| replayed(MANY, world, replays));
    [2, 3].into_iter().for_each(|world| replayed(LONG, world, replays / 4));
}
