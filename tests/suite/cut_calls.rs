//! Ranks whose calls differ by whole launches, or by whole rows that are separate collectives.

use std::time::Duration;

use half::bf16;
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Config, DeviceBuffer, Element, Error, Reduction, Ref, Result, RmsNorm, RowNorm,
    Transport,
};

use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config, fits};

const NORM: RmsNorm = RmsNorm::new(1e-6);
/// Elements of a row.
const HIDDEN: usize = 16;
/// Elements that each rank has.
const ROOM: usize = 1 << 16;

/// Scratch for only a few elements, and deadlines that a rank soon reaches if it does not learn of the difference.
fn small(check_calls: bool) -> Config {
    let limit = Duration::from_secs(10);
    let mut config = config();
    config.deadlines = config.deadlines.first_use(limit).steady(limit);
    (config.one_shot_ll_bytes, config.one_shot_sentinel_bytes) = (1024, Some(1024));
    (config.two_shot_sentinel_bytes, config.recursive_doubling_bytes) = (1024, 1024);
    (config.transport, config.check_calls) = (Transport::Packets, check_calls);
    config
}

/// Memory that no peer addresses.
fn plain<T: Element>(rank: &Rank) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::new(&rank.device, ROOM)
}

/// An all-reduce of `elems` elements in place.
fn all_reduce<T: Element>(rank: &Rank, options: impl Into<AllReduceOptions>, elems: usize) -> Result<()> {
    let buffer = plain::<T>(rank)?;
    let message = buffer.borrow().slice(..elems)?;
    rank.communicator.all_reduce_with(options, message.clone(), message, &rank.stream)
}

/// A norm of `rows` rows, whose output rows have `width` elements.
fn norm(rank: &Rank, algorithm: Algorithm, width: usize, rows: usize) -> Result<()> {
    let [input, output, weight] = [plain::<f32>(rank)?, plain(rank)?, plain(rank)?];
    let call = RowNorm::new(first(&input, rows * HIDDEN), first(&weight, HIDDEN), NORM);
    let call = call.output(first(&output, rows * width)).padded_to(width).algorithm(algorithm);
    rank.communicator.all_reduce_norm(call, &rank.stream)
}

fn first(buffer: &DeviceBuffer<f32>, elems: usize) -> Ref<'_, f32> {
    buffer.borrow().slice(..elems).unwrap()
}

/// A call on a rank, `times` as large as the call of another rank.
type Call = fn(&Rank, usize) -> Result<()>;

/// Every operation that is cut, and the bytes of its call.
const CUT: [(&str, u64, Call); 9] = [
    ("all-reduce", 4 * 1024, |rank, times| all_reduce::<f32>(rank, Algorithm::RecursiveDoubling, times * 1024)),
    ("codec", 2 * 60 * 256, |rank, times| {
        let options = AllReduceOptions::from(Codec::Int8).algorithm(Algorithm::OneShotSentinel);
        all_reduce::<bf16>(rank, options, times * 60 * 256)
    }),
    ("broadcast", 4 * 3 * 4096, |rank, times| {
        let buffer = plain::<f32>(rank)?;
        rank.communicator.broadcast(first(&buffer, times * 3 * 4096), 0, &rank.stream)
    }),
    ("all-gather", 4 * 2048, |rank, times| {
        let [input, output] = [plain::<f32>(rank)?, plain(rank)?];
        let count = times * 2048;
        rank.communicator.all_gather(first(&input, count), first(&output, 3 * count), &rank.stream)
    }),
    ("reduce-scatter", 4 * 2048, |rank, times| {
        let [input, output] = [plain::<f32>(rank)?, plain(rank)?];
        let count = times * 2048;
        let (input, output) = (first(&input, 3 * count), first(&output, count));
        rank.communicator.reduce_scatter(input, output, Reduction::Sum, &rank.stream)
    }),
    ("rows with gaps", 4 * 16 * 20, |rank, times| norm(rank, Algorithm::RecursiveDoubling, HIDDEN + 2, times * 20)),
    ("one-shot norm", 4 * 16 * 48, |rank, times| norm(rank, Algorithm::OneShotSentinel, HIDDEN, times * 48)),
    ("two-shot norm", 4 * 16 * 48, |rank, times| norm(rank, Algorithm::TwoShotSentinel, HIDDEN, times * 48)),
    ("scattered norm", 4 * 16 * 48, |rank, times| {
        let [input, output, weight] = [plain::<f32>(rank)?, plain(rank)?, plain(rank)?];
        let rows = times * 48;
        let call = RowNorm::new(first(&input, rows * HIDDEN), first(&weight, HIDDEN), NORM);
        let call = call.output(first(&output, rows / 3 * HIDDEN)).algorithm(Algorithm::TwoShotSentinel);
        rank.communicator.reduce_scatter_norm(call, &rank.stream)
    }),
];

/// Every rank learns of the difference before a deadline, and both sizes.
#[test]
fn pitfall_04_calls_that_differ_by_whole_launches_are_told_apart() {
    if !fits(3) {
        return;
    }
    for check_calls in [false, true] {
        for (what, bytes, call) in CUT {
            let gate = Gate::new(3);
            meet(3, |bootstrap| {
                let rank = open(bootstrap, &small(check_calls)).unwrap();
                // A rank that is slow learns of the difference between two launches of its call.
                let mut result = call(&rank, if rank.rank() == 1 { 2 } else { 1 });
                let error = loop {
                    match result {
                        Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                        Err(error) => break error,
                    }
                    result = rank.communicator.synchronize(&rank.stream);
                };
                let message = format!("{what}, check_calls {check_calls}, rank {}: {error}", rank.rank());
                assert!(matches!(error, Error::Mismatch { .. }), "{message}");
                for bytes in [bytes, 2 * bytes] {
                    assert!(message.contains(&format!(" of {bytes} bytes of ")), "{message}");
                }
                gate.pass();
            });
        }
    }
}

/// One call of two launches is not two calls of one launch, although the kernels are the same.
#[test]
fn pitfall_04_launches_of_one_call_do_not_stand_for_calls() {
    for check_calls in [false, true] {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let rank = open(bootstrap, &small(check_calls)).unwrap();
            let sizes: &[usize] = if rank.rank() == 1 { &[2048] } else { &[1024, 1024] };
            // The second call may already be refused.
            let called =
                sizes.iter().try_for_each(|elems| all_reduce::<f32>(&rank, Algorithm::RecursiveDoubling, *elems));
            let error = called.and_then(|()| rank.communicator.synchronize(&rank.stream)).unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "check_calls {check_calls}: {error}");
            gate.pass();
        });
    }
}
