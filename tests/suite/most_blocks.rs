//! A communicator whose launches have few blocks gives the results of every model, by every kernel, and ranks agree on the
//! limit.

use half::bf16;
use reference::element::Summand;
use reference::norm::normed;
use symmetra::bootstrap::Bootstrap;
use symmetra::experts::{Combine, ExpertConfig, Layout, Method, Received, Routing};
use symmetra::op::OPERATIONS;
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, Config, Device, DeviceBuffer, Dtype, Error, HostShape, Reduction,
    RmsNorm, RowNorm, Transport,
};

use crate::operations::calls;
use crate::support::batch::{Bench, ROOM, batches};
use crate::support::codec::reduced;
use crate::support::data::{Data, Sample, mix};
use crate::support::device::{device, is_host};
use crate::support::world::{meet, open_on};
use crate::support::{Rank, config};

/// Fewer blocks than the host device starts here, and more.
const CAPS: [u32; 4] = [1, 2, 3, 7];
const HIDDEN: usize = 72;
const ROWS: usize = 50;

fn capped(cap: u32, transport: Transport) -> Config {
    let mut config = config();
    config.heap_bytes = 16 << 20;
    (config.most_blocks, config.transport) = (Some(cap), transport);
    config
}

/// A device whose launches have more blocks than the least cap allows.
fn wide(rank: usize) -> Device {
    if is_host() { Device::host_with(HostShape::default().blocks(5).threads(2)).unwrap() } else { device(rank) }
}

fn in_few_blocks(world: usize, transport: Transport, body: impl Fn(&Rank, u32) + Sync) {
    for cap in CAPS {
        meet(world, |bootstrap| {
            let device = wide(bootstrap.rank());
            let rank = open_on(&device, bootstrap, &capped(cap, transport)).unwrap();
            body(&rank, cap);
            rank.communicator.close().unwrap();
        });
    }
}

fn algorithms<T: Sample>(rank: &Rank, seed: u64) {
    let data = Data::<T>::new(seed, rank.world(), ROOM);
    let bench = Bench::new(rank, &data);
    let carried = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(T::DTYPE));
    let calls: Vec<_> = carried.flat_map(|algorithm| [1, 37, 1000, 11_111].map(|count| (algorithm, count))).collect();
    let reduces = |case: &crate::support::batch::Case| case.algorithm.reduces(T::DTYPE, case.reduction);
    for mut batch in batches(seed, true, &calls) {
        batch.cases.retain(reduces);
        bench.check(&batch);
    }
}

#[test]
fn all_reduces_by_every_algorithm() {
    let seed = fastrand::u64(..);
    for world in [2, 3] {
        in_few_blocks(world, Transport::Auto, |rank, cap| {
            algorithms::<f32>(rank, seed ^ u64::from(cap));
            algorithms::<i32>(rank, seed ^ u64::from(cap));
        });
    }
}

#[test]
fn every_operation_by_every_transport() {
    for transport in Transport::ALL {
        in_few_blocks(3, transport, |rank, cap| {
            let ops: Vec<_> = OPERATIONS.iter().flat_map(|op| [1, 65, 1032].map(|count| (*op, count))).collect();
            let seed = u64::from(cap) * 10 + transport as u64;
            let data = Data::<f32>::new(seed, rank.world(), calls::ROOM);
            let bench = calls::Bench::new(rank, &data);
            let batches = calls::batches(seed, rank.world(), transport, true, &ops);
            batches.iter().for_each(|batch| bench.check(batch));
        });
    }
}

/// The inputs of a rank for codecs and norms.
fn values(seed: u64, rank: usize) -> Vec<bf16> {
    (0..ROWS * HIDDEN).map(|index| bf16::sample(mix(seed ^ (rank as u64) << 32 ^ index as u64))).collect()
}

#[test]
fn codecs_norms_and_signals() {
    let seed = fastrand::u64(..);
    for world in [2, 3] {
        in_few_blocks(world, Transport::Auto, |rank, cap| {
            let Rank { communicator, stream, device } = rank;
            let inputs: Vec<Vec<bf16>> = (0..world).map(|rank| values(seed, rank)).collect();
            let views: Vec<&[bf16]> = inputs.iter().map(Vec::as_slice).collect();
            let input = communicator.symmetric::<bf16>(ROWS * HIDDEN).unwrap();
            let output = communicator.symmetric::<bf16>(ROWS * HIDDEN).unwrap();
            let weight = DeviceBuffer::from_slice(&values(1, 0)[..HIDDEN], stream).unwrap();
            input.write(&inputs[rank.rank()], stream).unwrap();
            communicator.group().barrier().unwrap();
            for algorithm in [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel] {
                for codec in [Codec::Fp8, Codec::Int4] {
                    let options =
                        AllReduceOptions::default().reduction(Reduction::Sum).algorithm(algorithm).codec(codec);
                    communicator.all_reduce_with(options, &input, &output, stream).unwrap();
                    communicator.synchronize(stream).unwrap();
                    assert_eq!(output.read(stream).unwrap(), reduced(&options, &views), "{options:?} in {cap} blocks");
                }
            }
            let sums: Vec<bf16> = (0..ROWS * HIDDEN)
                .map(|index| bf16::reduce(Reduction::Sum, inputs.iter().map(|input| input[index])))
                .collect();
            let expected = normed(&sums, &values(1, 0)[..HIDDEN], RmsNorm::new(1e-6));
            let ways = [
                Algorithm::OneShotSentinel,
                Algorithm::TwoShotSentinel,
                Algorithm::TwoShotZeroCopy,
                Algorithm::OneShotLL,
                Algorithm::Auto,
            ];
            for algorithm in ways {
                let rows = RowNorm::new(&input, &weight, RmsNorm::new(1e-6)).output(&output).algorithm(algorithm);
                communicator.all_reduce_norm(rows, stream).unwrap();
                communicator.synchronize(stream).unwrap();
                assert_eq!(output.read(stream).unwrap(), expected, "a norm by {algorithm} in {cap} blocks");
            }
            let share = DeviceBuffer::<bf16>::new(device, ROWS * HIDDEN).unwrap();
            communicator
                .low_contention_all_gather(&weight, share.borrow().slice(..world * HIDDEN).unwrap(), stream)
                .and_then(|pending| pending.wait(stream))
                .unwrap();
            input.signals().barrier(0, stream).unwrap();
            communicator.synchronize(stream).unwrap();
            let gathered = share.read(stream).unwrap();
            assert!((0..world).all(|rank| gathered[rank * HIDDEN..][..HIDDEN] == values(1, 0)[..HIDDEN]));
        });
    }
}

#[test]
fn experts_by_every_method() {
    const TOKENS: usize = 21;
    for method in [Method::Gather, Method::Broadcast, Method::Direct, Method::Packets] {
        in_few_blocks(3, Transport::Auto, |rank, cap| {
            let Rank { communicator, stream, device } = rank;
            let mut form = ExpertConfig::new(7, 2, HIDDEN, TOKENS);
            form.dtype = Dtype::F32;
            (form.method, form.layout) = (method, Layout::ByExpert { align: 1 });
            let experts = communicator.experts(form).unwrap();
            let ids: Vec<i32> = (0..TOKENS * 2).map(|pair| (mix(pair as u64 ^ u64::from(cap)) % 7) as i32).collect();
            let ids = DeviceBuffer::from_slice(&ids, stream).unwrap();
            let weights = DeviceBuffer::from_slice(&[0.5f32; TOKENS * 2], stream).unwrap();
            let given: Vec<f32> =
                (0..TOKENS * HIDDEN).map(|index| (mix(index as u64 + rank.rank() as u64) >> 44) as f32).collect();
            let rows = DeviceBuffer::from_slice(&given, stream).unwrap();
            let received = DeviceBuffer::<f32>::new(device, experts.capacity() * HIDDEN).unwrap();
            let output = DeviceBuffer::<f32>::new(device, TOKENS * HIDDEN).unwrap();
            let routing = Routing::new(&ids).weights(&weights);
            let routed = experts.dispatch(&routing, &rows, &Received::rows(&received), stream).unwrap();
            routed.combine(&received, &output, Combine::default(), stream).unwrap();
            communicator.synchronize(stream).unwrap();
            assert_eq!(output.read(stream).unwrap(), given, "{method:?} in {cap} blocks");
        });
    }
}

#[test]
fn ranks_agree_on_the_limit() {
    let open = |bootstrap: symmetra::bootstrap::Threads, blocks| {
        let mut config = config();
        config.most_blocks = blocks;
        Communicator::open(bootstrap, &Device::host().unwrap(), config).map(drop).unwrap_err()
    };
    for blocks in [0, 65_536, u32::MAX] {
        for error in meet(2, |bootstrap| open(bootstrap, Some(blocks))) {
            let message = format!("most_blocks is {blocks}, but it must be 1 to 65535");
            assert_eq!(error, Error::InvalidArgument { message });
        }
    }
    let errors = meet(2, |bootstrap| {
        let blocks = (bootstrap.rank() == 1).then_some(64);
        open(bootstrap, blocks)
    });
    for error in errors {
        let expected = Error::Mismatch {
            what: "most_blocks".to_owned(),
            against: 0,
            ours: "any".to_owned(),
            rank: 1,
            theirs: "64".to_owned(),
        };
        assert_eq!(error, expected);
    }
}
