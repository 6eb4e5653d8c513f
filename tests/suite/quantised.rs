//! All-reduces by codecs: exact bits by a reference of the codecs, every element within the bound of its codec, computed in
//! double precision from the rule alone, and equal bits on all ranks, in every run, by every launch shape, eager, bound and in graphs. Values at the edges.
//! Calls by codecs among plain ones in one region. Refusals and failures.

use half::{bf16, f16};
use reference::element::Real;
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Config, Determinism, Device, DeviceBuffer, Dtype, Error, HostShape, Reduction,
    Stream, SymmetricBuffer,
};

use crate::support::codec;
use crate::support::data::{Random, assert_same, mix};
use crate::support::extent::cases_of;
use crate::support::specials::Bits;
use crate::support::world::{meet, open_on};
use crate::support::{Data, Rank, Sample, config, fits, is_host, threads};

mod bounds;
mod coordinator;

use bounds::{GROUP, UNIT, check, noise_db};

const CODECS: [Codec; 4] = [Codec::Fp8, Codec::Int8, Codec::Int6, Codec::Int4];
/// One hop, and two.
const WAYS: [Algorithm; 2] = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];

/// Scratch for a few units, so that calls are cut into several parts.
fn small(world: usize) -> Config {
    let mut config = config();
    config.one_shot_sentinel_bytes = Some(2 * 34 * 16 + 1000);
    config.two_shot_sentinel_bytes = (2 * 34 * 16 * world) as u64 + 700;
    config.check_calls = world.is_multiple_of(2);
    config
}

/// A value of a normal distribution.
fn normal(bits: u64) -> f64 {
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    let (size, angle) = (unit(bits).max(1e-300), unit(mix(bits)));
    (-2.0 * size.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The distribution of the inputs of all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal,
    /// Some of 100 sigma.
    Outliers,
    /// Sizes from 1e-30 to 1e30, which f16 has not.
    Wide,
    /// Denormals and values next to them.
    Tiny,
}

fn inputs<T: Bits + Real>(kind: Kind, world: usize, len: usize, seed: u64) -> Vec<Vec<T>> {
    let value = |rank: usize, index: usize| {
        let bits = mix(mix(seed ^ (rank as u64) << 40) ^ index as u64);
        let value = normal(bits);
        let group = mix(seed ^ (index / GROUP) as u64);
        let value = match kind {
            Kind::Normal => value,
            Kind::Outliers => value * if mix(bits).is_multiple_of(40) { 100.0 } else { 1.0 },
            Kind::Wide => value * 10f64.powi((group % 61) as i32 - 30),
            Kind::Tiny => value * 2f64.powi(if T::DTYPE == Dtype::F16 { -20 } else { -125 - (group % 9) as i32 }),
        };
        T::of_single(value as f32)
    };
    (0..world).map(|rank| (0..len).map(|index| value(rank, index)).collect()).collect()
}

/// Counts at and next to everything that could be a boundary: groups, units, shares, tiles of four units, calls.
fn counts(world: usize, codec: Codec, algorithm: Algorithm) -> Vec<usize> {
    let packets = match codec {
        Codec::Int6 => 26,
        Codec::Int4 => 18,
        _ => 34,
    };
    let config = small(world);
    // The slots of all ranks are divided among all but the receiver, at lines of eight packets.
    let units = |slot: usize| slot * world / (world - 1) / 8 * 8 / packets;
    let call = match algorithm {
        Algorithm::OneShotSentinel => units(config.one_shot_sentinel_bytes_for(world) as usize / 16) * UNIT,
        _ => units((config.two_shot_sentinel_bytes as usize).div_ceil(16).div_ceil(world)) * UNIT * world,
    };
    let edges = [GROUP, UNIT, UNIT * world, 4 * UNIT, call, 2 * call];
    let mut counts = vec![0, 1, 7, 257, 3 * call + 5];
    counts.extend(edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// One call on windows of buffers.
#[derive(Clone, Copy, Debug)]
struct Case {
    options: AllReduceOptions,
    count: usize,
    from: usize,
    to: usize,
    in_place: bool,
    plain: bool,
}

/// Buffers of one rank: [0] is only read, [1] is written.
struct Buffers<T: Sample> {
    symmetric: [SymmetricBuffer<T>; 2],
    plain: [DeviceBuffer<T>; 2],
}

impl<T: Bits + Real> Buffers<T> {
    fn new(rank: &Rank, own: &[T]) -> Self {
        let symmetric = [0; 2].map(|_| rank.communicator.symmetric::<T>(own.len()).unwrap());
        let plain = [0; 2].map(|_| DeviceBuffer::<T>::new(&rank.device, own.len()).unwrap());
        symmetric[0].write(own, &rank.stream).unwrap();
        plain[0].write(own, &rank.stream).unwrap();
        Self { symmetric, plain }
    }

    /// Runs a call, checks that nothing outside the output was written, and returns the result.
    fn run(&self, rank: &Rank, own: &[T], case: &Case) -> Vec<T> {
        let Rank { communicator, stream, .. } = rank;
        let Case { options, count, from, to, in_place, plain } = *case;
        let written = if plain {
            self.plain[1].write(own, stream).unwrap();
            let output = self.plain[1].borrow().slice(to..to + count).unwrap();
            let input = self.plain[usize::from(in_place)].borrow().slice(from..from + count).unwrap();
            communicator.all_reduce_with(options, &input, &output, stream).unwrap();
            rank.finish();
            self.plain[1].read(stream).unwrap()
        } else {
            self.symmetric[1].write(own, stream).unwrap();
            let output = self.symmetric[1].slice(to..to + count).unwrap();
            let input = self.symmetric[usize::from(in_place)].slice(from..from + count).unwrap();
            communicator.all_reduce_with(options, input, output, stream).unwrap();
            rank.finish();
            self.symmetric[1].read(stream).unwrap()
        };
        let bits = |values: &[T]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
        assert_eq!(bits(&written[..to]), bits(&own[..to]), "{case:?}");
        assert_eq!(bits(&written[to + count..]), bits(&own[to + count..]), "{case:?}");
        written[to..to + count].to_vec()
    }
}

/// Every count, codec and way of one type over one world, within the bounds and with the reference's bits on all ranks.
fn sweep<T: Bits + Real>(world: usize, kinds: &[Kind]) {
    if !fits(world) {
        return;
    }
    let mut random = Random(world as u64);
    for kind in kinds {
        let mut cases = Vec::new();
        for (codec, algorithm) in CODECS.into_iter().flat_map(|codec| WAYS.map(|way| (codec, way))) {
            for count in counts(world, codec, algorithm) {
                let reduction = *random.pick(&[Reduction::Sum, Reduction::Sum, Reduction::Average]);
                let named = random.below(2) == 0 || (world == 2) != (algorithm == Algorithm::OneShotSentinel);
                let algorithm = if named { algorithm } else { Algorithm::Auto };
                let (from, in_place) = (random.below(9), random.below(3) == 0);
                let to = if in_place { from } else { random.below(9) };
                let options = AllReduceOptions::default().reduction(reduction).algorithm(algorithm).codec(codec);
                cases.push(Case { options, count, from, to, in_place, plain: random.below(2) == 0 });
            }
        }
        let cases = cases_of(world, *kind as usize + T::DTYPE as usize, cases);
        let most = cases.iter().map(|case| case.count).max().unwrap() + 16;
        let data = inputs::<T>(*kind, world, most, mix(world as u64));
        let results = threads(world, &small(world), |rank| {
            let own = &data[rank.rank()];
            let buffers = Buffers::new(rank, own);
            cases.iter().map(|case| buffers.run(rank, own, case)).collect::<Vec<_>>()
        });
        for (number, case) in cases.iter().enumerate() {
            let windows: Vec<&[T]> = data.iter().map(|input| &input[case.from..case.from + case.count]).collect();
            let results: Vec<&[T]> = results.iter().map(|results| results[number].as_slice()).collect();
            let ratio = check(&case.options, &windows, &results);
            assert!(ratio.is_ok(), "{}: {case:?} of {kind:?} over {world} ranks", ratio.unwrap_err());
            if let Some(first) = results.first() {
                assert_same(first, &codec::reduced(&case.options, &windows), &(case, kind, world));
            }
        }
    }
}

macro_rules! worlds {
    ($($name:ident: $world:expr, $kinds:expr;)*) => {$(
        #[test]
        fn $name() {
            sweep::<bf16>($world, &$kinds);
            sweep::<f16>($world, &$kinds.map(|kind| if kind == Kind::Wide { Kind::Outliers } else { kind }));
        }
    )*};
}

worlds! {
    every_boundary_world_2: 2, [Kind::Normal, Kind::Wide, Kind::Tiny];
    every_boundary_world_3: 3, [Kind::Outliers, Kind::Tiny];
    every_boundary_world_4: 4, [Kind::Normal, Kind::Wide];
    every_boundary_world_5: 5, [Kind::Outliers];
    every_boundary_world_7: 7, [Kind::Normal];
    every_boundary_world_8: 8, [Kind::Wide];
    every_boundary_world_16: 16, [Kind::Normal];
}

/// Runs one call on every rank, on symmetric memory.
fn once<T: Bits + Real>(rank: &Rank, options: AllReduceOptions, own: &[T]) -> Vec<T> {
    let buffers = Buffers::new(rank, own);
    let case = Case { options, count: own.len(), from: 0, to: 0, in_place: false, plain: false };
    buffers.run(rank, own, &case)
}

/// The noise of N(0, 1), relative to the sum: a codec that lost a bit somewhere would still keep its bounds.
#[test]
fn sums_of_normal_values_have_little_noise() {
    let least =
        [(Codec::Fp8, 32.0, 29.0), (Codec::Int8, 44.5, 41.5), (Codec::Int6, 32.5, 29.5), (Codec::Int4, 20.0, 16.5)];
    for world in [2, 4] {
        let data = inputs::<f16>(Kind::Normal, world, 1 << 16, 5);
        for (codec, one_hop, two_hops) in least {
            let results = threads(world, &config(), |rank| once(rank, codec.into(), &data[rank.rank()]));
            if let Some(result) = results.first() {
                let inputs: Vec<&[f16]> = data.iter().map(Vec::as_slice).collect();
                let (found, wanted) = (noise_db(&inputs, result), if world == 2 { one_hop } else { two_hops });
                assert!(found >= wanted, "{codec} over {world} ranks: {found:.1} dB, not {wanted}");
            }
        }
    }
}

/// Groups of every size that the type has, from its least denormal on: each value is off by at most the codec's bound.
fn every_exponent<T: Bits + Real>(least: i32, largest: i32) {
    for world in [2, 3] {
        // The values of each rank are larger or smaller than those of the others by one exponent.
        let value = |rank: usize, index: usize| {
            let exponent = least + (index / GROUP) as i32 + (rank as i32 - 1);
            let bits = mix((rank << 40 | index) as u64);
            let size = if index.is_multiple_of(GROUP) {
                1.0 + (bits >> 40) as f64 / (1 << 24) as f64
            } else {
                normal(bits).clamp(-1.0, 1.0)
            };
            T::of_single((size * 2f64.powi(exponent)) as f32)
        };
        let len = (largest - least + 1) as usize * GROUP;
        let data: Vec<Vec<T>> = (0..world).map(|rank| (0..len).map(|index| value(rank, index)).collect()).collect();
        for (codec, algorithm) in CODECS.into_iter().flat_map(|codec| WAYS.map(|way| (codec, way))) {
            let options = AllReduceOptions::default().algorithm(algorithm).codec(codec);
            let results = threads(world, &small(world), |rank| once(rank, options, &data[rank.rank()]));
            let inputs: Vec<&[T]> = data.iter().map(Vec::as_slice).collect();
            let outputs: Vec<&[T]> = results.iter().map(Vec::as_slice).collect();
            if !outputs.is_empty() {
                check(&options, &inputs, &outputs)
                    .unwrap_or_else(|wrong| panic!("{wrong}: {codec} by {algorithm} over {world} ranks"));
            }
        }
    }
}

#[test]
fn groups_of_every_exponent_keep_the_bound() {
    every_exponent::<bf16>(-133, 123);
    every_exponent::<f16>(-24, 12);
}

/// Where one rank alone has other values than zero, and all of them are codes, nothing is lost.
#[test]
fn codes_pass_as_they_are() {
    for world in [2, 3] {
        for (codec, most) in [(Codec::Int8, 127), (Codec::Int6, 31), (Codec::Int4, 7), (Codec::Fp8, 7)] {
            let code = |index: usize| {
                let shift = (index / GROUP) as i32 % 20 - 10;
                // Of e4m3: the largest, 448, and whole multiples of 64.
                let step = if codec == Codec::Fp8 { 64.0 } else { 1.0 };
                let value = if index % GROUP == 5 { most } else { mix(index as u64) as i32 % (most + 1) };
                f64::from(value) * step * 2f64.powi(shift - if codec == Codec::Fp8 { 6 } else { 0 })
            };
            let values: Vec<bf16> = (0..3000).map(|index| bf16::from_f64(code(index))).collect();
            let zeros = vec![bf16::ZERO; values.len()];
            for algorithm in WAYS {
                let options = AllReduceOptions::default().algorithm(algorithm).codec(codec);
                let results = threads(world, &small(world), |rank| {
                    once(rank, options, if rank.rank() == 1 { &values } else { &zeros })
                });
                for result in results {
                    assert!(result == values, "{codec} by {algorithm} over {world} ranks");
                }
            }
        }
    }
}

/// Zeros of either sign are +0. A NaN or an infinity on one rank makes its group NaN on all ranks, and no other. Sums
/// beyond f16 are infinite, as in a plain sum.
#[test]
fn special_values_stay_in_their_groups() {
    let at = [3, GROUP - 1, 5 * GROUP, UNIT + 40, 3 * UNIT + 255];
    let specials = [f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::NAN, f16::INFINITY];
    for (world, codec, algorithm) in [2, 3]
        .into_iter()
        .flat_map(|world| CODECS.into_iter().flat_map(move |codec| WAYS.map(|way| (world, codec, way))))
    {
        let options = AllReduceOptions::default().algorithm(algorithm).codec(codec);
        let len = 4 * UNIT + 9;
        let mut data = inputs::<f16>(Kind::Normal, world, len, 8);
        for (number, (index, special)) in at.into_iter().zip(specials).enumerate() {
            data[number % world][index] = special;
        }
        for (rank, input) in data.iter_mut().enumerate() {
            // Zeros of both signs, and sums above 65504.
            (20 * GROUP..21 * GROUP).for_each(|index| {
                input[index] = if (index + rank).is_multiple_of(2) { f16::ZERO } else { f16::NEG_ZERO }
            });
            (21 * GROUP..22 * GROUP).for_each(|index| {
                input[index] = f16::from_f32(if index.is_multiple_of(2) { 60000.0 } else { -60000.0 })
            });
        }
        let results = threads(world, &small(world), |rank| once(rank, options, &data[rank.rank()]));
        let inputs: Vec<&[f16]> = data.iter().map(Vec::as_slice).collect();
        let outputs: Vec<&[f16]> = results.iter().map(Vec::as_slice).collect();
        if outputs.is_empty() {
            continue;
        }
        let context = format!("{codec} by {algorithm} over {world} ranks");
        check(&options, &inputs, &outputs).unwrap_or_else(|wrong| panic!("{wrong}: {context}"));
        for (index, value) in results[0].iter().enumerate() {
            let spoilt = at.iter().any(|special| special / GROUP == index / GROUP);
            assert_eq!(value.is_nan(), spoilt, "element {index} is {value}: {context}");
            match index / GROUP {
                20 => assert_eq!(value.to_bits(), 0, "element {index}: {context}"),
                21 => {
                    assert!(value.is_infinite() && value.is_sign_positive() == (index % 2 == 0), "{index}: {context}")
                }
                _ => {}
            }
        }
    }
}

/// A group's bits depend on its own elements alone, and not on its place, on the message and the launch, or on whether
/// the call is eager, bound or in a graph.
#[test]
fn bits_depend_on_nothing_but_the_group() {
    let len = 9 * UNIT + 77;
    for (world, algorithm) in [(2, Algorithm::OneShotSentinel), (3, Algorithm::TwoShotSentinel)] {
        let data = inputs::<bf16>(Kind::Outliers, world, len, 21);
        for codec in CODECS {
            let options = AllReduceOptions::default().algorithm(algorithm).codec(codec);
            let first = threads(world, &config(), |rank| once(rank, options, &data[rank.rank()])).pop();
            let Some(first) = first else { return };
            // In a small region, from further groups on.
            threads(world, &small(world), |rank| {
                let Rank { communicator, stream, .. } = rank;
                let own = &data[rank.rank()];
                let buffers = Buffers::new(rank, own);
                for start in [GROUP, 5 * GROUP, UNIT, 2 * UNIT + 3 * GROUP] {
                    let count = len - start;
                    let case = Case { options, count, from: start, to: 0, in_place: false, plain: true };
                    assert!(buffers.run(rank, own, &case) == first[start..], "{codec} from {start}");
                }
                let [input, output] = &buffers.symmetric;
                let bound = communicator.bind_all_reduce_with(options, input, output).unwrap();
                let graph = stream.capture(|capture| {
                    communicator.all_reduce_with(options, input, output, capture)?;
                    bound.enqueue(capture)
                });
                let graph = graph.unwrap();
                for way in 0..4 {
                    output.write(own, stream).unwrap();
                    if way % 2 == 0 {
                        bound.enqueue(stream).unwrap()
                    } else {
                        graph.launch(stream).unwrap()
                    }
                    rank.finish();
                    assert!(output.read(stream).unwrap() == first, "{codec} by way {way}");
                }
            });
            if is_host() {
                for (blocks, threads) in [(2, 3), (1, 5), (4, 1)] {
                    let results = meet(world, |bootstrap| {
                        let device = Device::host_with(HostShape::default().blocks(blocks).threads(threads)).unwrap();
                        let rank = open_on(&device, bootstrap, &small(world)).unwrap();
                        let result = once(&rank, options, &data[rank.rank()]);
                        rank.communicator.close().unwrap();
                        result
                    });
                    assert!(results.iter().all(|result| *result == first), "{codec} by {blocks}x{threads}");
                }
            }
        }
    }
}

/// Plain calls and calls by codecs share regions, and leave no packet that another call would take for its own.
#[test]
fn pitfall_24_25_plain_and_quantised_calls_in_one_region() {
    for world in [2, 3] {
        let most = 9 * UNIT;
        let data = Data::<bf16>::of(inputs(Kind::Normal, world, most, 77));
        let mut random = Random(world as u64);
        let cases: Vec<Case> = (0..150)
            .map(|_| {
                let codec =
                    *random.pick(&[Codec::None, Codec::None, Codec::Fp8, Codec::Int8, Codec::Int6, Codec::Int4]);
                let options = AllReduceOptions::default().algorithm(*random.pick(&WAYS)).codec(codec);
                let count = match random.below(3) {
                    0 => random.below(40),
                    1 => random.below(600),
                    _ => random.below(most),
                };
                Case { options, count, from: 0, to: 0, in_place: false, plain: random.below(2) == 0 }
            })
            .collect();
        let results = threads(world, &small(world), |rank| {
            let own = &data.inputs[rank.rank()];
            let buffers = Buffers::new(rank, own);
            cases.iter().map(|case| buffers.run(rank, own, case)).collect::<Vec<_>>()
        });
        for (number, case) in cases.iter().enumerate().filter(|_| !results.is_empty()) {
            let outputs: Vec<&[bf16]> = results.iter().map(|results| results[number].as_slice()).collect();
            if case.options.codec == Codec::None {
                let expected = data.expected(case.options.algorithm, Reduction::Sum, 0, case.count);
                assert!(outputs.iter().all(|output| *output == expected), "{case:?}");
                continue;
            }
            let windows: Vec<&[bf16]> = data.inputs.iter().map(|input| &input[..case.count]).collect();
            check(&case.options, &windows, &outputs).unwrap_or_else(|wrong| panic!("{wrong}: {case:?}"));
        }
    }
}

/// A call that a codec does not carry is an error at the call that names the codec and the reason.
#[test]
fn pitfall_30_what_a_codec_does_not_carry_is_an_error() {
    fn refused<T: symmetra::Element>(rank: &Rank, options: AllReduceOptions, words: [&str; 3]) {
        let buffer = DeviceBuffer::<T>::new(&rank.device, 64).unwrap();
        let called = rank.communicator.all_reduce_with(options, &buffer, &buffer, &rank.stream);
        let bound = rank.communicator.bind_all_reduce_with(options, &buffer, &buffer).map(drop);
        for error in [called, bound].map(Result::unwrap_err) {
            let message = error.to_string();
            assert!(matches!(error, Error::Unsupported { .. }), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }
    for world in [1, 2] {
        threads(world, &config(), |rank| {
            refused::<f32>(rank, Codec::Int8.into(), ["int8", "sum of f32", "f16 and bf16"]);
            refused::<i32>(rank, Codec::Fp8.into(), ["fp8", "sum of i32", "f16 and bf16"]);
            for reduction in [Reduction::Product, Reduction::Min, Reduction::Max] {
                let options = AllReduceOptions::default().reduction(reduction).codec(Codec::Int4);
                refused::<bf16>(rank, options, ["int4", reduction.name(), "sums and averages"]);
            }
            for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !WAYS.contains(algorithm)) {
                let options = AllReduceOptions::default().algorithm(algorithm).codec(Codec::Int6);
                refused::<f16>(rank, options, ["int6", algorithm.name(), "two-shot-sentinel"]);
            }
        });
    }
    let mut exact = config();
    exact.determinism = Determinism::Exact;
    threads(2, &exact, |rank| refused::<bf16>(rank, Codec::Int8.into(), ["int8", "exact determinism", "rounds"]));
    let mut tiny = config();
    tiny.two_shot_sentinel_bytes = 1024;
    threads(8, &tiny, |rank| {
        refused::<bf16>(rank, Codec::Int8.into(), ["int8 over 8 ranks", "two_shot_sentinel_bytes", "4352"]);
    });
}

/// Ranks that name different codecs get an error, before the call runs or when it is over.
#[test]
fn pitfall_04_ranks_with_different_codecs() {
    for check_calls in [true, false] {
        let mut config = config();
        config.check_calls = check_calls;
        meet(2, |bootstrap| {
            let rank = crate::support::world::open(bootstrap, &config).unwrap();
            let Rank { communicator, stream, device } = &rank;
            let buffer = DeviceBuffer::<bf16>::new(device, 600).unwrap();
            // As many packets: the call itself ends.
            let codec = if rank.rank() == 0 { Codec::Int8 } else { Codec::Fp8 };
            communicator.all_reduce_with(codec, &buffer, &buffer, stream).unwrap();
            let error = communicator.synchronize(stream).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, Error::Mismatch { .. }), "{message}");
            assert!(["in int8", "in fp8", "one-shot-sentinel"].iter().all(|word| message.contains(word)), "{message}");
        });
    }
}

/// A rank that leaves a call out is named by the others in time, with both algorithms.
#[test]
fn pitfall_04_a_rank_that_skips_a_call() {
    for (algorithm, shape) in WAYS.into_iter().flat_map(|way| [1, 3].map(|threads| (way, threads))) {
        let mut config = config();
        config.check_calls = false;
        config.deadlines.first_use = std::time::Duration::from_secs(1);
        config.deadlines.steady = config.deadlines.first_use;
        meet(3, |bootstrap| {
            let device = if is_host() {
                Device::host_with(HostShape::default().blocks(1).threads(shape)).unwrap()
            } else {
                crate::support::device::device(symmetra::bootstrap::Bootstrap::rank(&bootstrap))
            };
            let rank = open_on(&device, bootstrap, &config).unwrap();
            let Rank { communicator, stream, device } = &rank;
            let buffer = DeviceBuffer::<bf16>::new(device, 5000).unwrap();
            let options = AllReduceOptions::default().algorithm(algorithm).codec(Codec::Int6);
            communicator.group().barrier().unwrap();
            if rank.rank() < 2 {
                communicator.all_reduce_with(options, &buffer, &buffer, stream).unwrap();
                let error = communicator.synchronize(stream).unwrap_err();
                assert!(matches!(&error, Error::Timeout { rank: Some(2), .. }), "{error}");
                // The device works on.
                Stream::new(device).unwrap().synchronize().unwrap();
            } else {
                crate::support::world::until(std::time::Duration::from_secs(30), "a failure", || {
                    communicator.group().check().is_err()
                });
            }
        });
    }
}
