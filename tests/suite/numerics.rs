//! Numbers at the edges of their types, through every reduction and algorithm: values that a half or a sentinel could
//! corrupt, and bits that must be equal on every path of a result.

use half::{bf16, f16};
use reference::element::Real;
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Algorithm, AllReduceOptions, DeviceBuffer, Dtype, Element, Reduction};

use crate::support::data::{Random, assert_same, mix};
use crate::support::specials::{Bits, special_data};
use crate::support::{Data, Rank, Sample, config, fits, threads};

/// Elements of each run: several packets of every protocol, a short one at the end.
const LEN: usize = 1003;

/// Sums inputs in [`every_way_of`].
fn every_way<T: Sample>(rank: &Rank, data: &Data<T>) -> Vec<T> {
    every_way_of(Reduction::Sum, rank, data)
}

/// Runs inputs through every algorithm, eagerly and in a graph, at several sizes. All must give the reference's values
/// for their order and the same bits, NaNs included, on every rank. Algorithms in rank order must give the same bits in
/// every run; returns these bits.
fn every_way_of<T: Sample>(reduction: Reduction, rank: &Rank, data: &Data<T>) -> Vec<T> {
    let Rank { communicator, stream, .. } = rank;
    let own = &data.inputs[rank.rank()];
    let len = own.len();
    let input = communicator.symmetric::<T>(len).unwrap();
    let output = communicator.symmetric::<T>(len).unwrap();
    input.write(own, stream).unwrap();
    let mut first: Option<Vec<T>> = None;
    let able = |algorithm: &Algorithm| algorithm.carries(T::DTYPE) && algorithm.reduces(T::DTYPE, reduction);
    for algorithm in Algorithm::ALL.into_iter().filter(able) {
        let options = AllReduceOptions::default().reduction(reduction).algorithm(algorithm);
        for way in ["eager", "captured", "in pieces"] {
            output.write(&vec![T::sample(1); len], stream).unwrap();
            let mut expected = data.expected(algorithm, reduction, 0, len);
            let whole = || (input.slice(0..len).unwrap(), output.slice(0..len).unwrap());
            match way {
                "eager" => communicator.all_reduce_with(options, whole().0, whole().1, stream).unwrap(),
                "captured" => {
                    let graph =
                        stream.capture(|capture| communicator.all_reduce_with(options, whole().0, whole().1, capture));
                    graph.unwrap().launch(stream).unwrap();
                }
                _ => {
                    let mut start = 0;
                    for piece in [1, 2, 5, 64, 333].iter().cycle() {
                        let end = len.min(start + piece);
                        let (from, to) = (input.slice(start..end).unwrap(), output.slice(start..end).unwrap());
                        communicator.all_reduce_with(options, from, to, stream).unwrap();
                        let piece = data.expected(algorithm, reduction, start, end - start);
                        expected[start..end].copy_from_slice(&piece);
                        start = end;
                        if start == len {
                            break;
                        }
                    }
                }
            }
            rank.finish();
            let got = output.read(stream).unwrap();
            assert_same(&got, &expected, &(T::DTYPE, reduction, algorithm, way));
            if !algorithm.is_exact(T::DTYPE, rank.world()) {
                equal_everywhere(rank, &got, &(algorithm, way));
                continue;
            }
            let first = first.get_or_insert_with(|| got.clone());
            let differs = (0..len).find(|index| got[*index].bits() != first[*index].bits());
            assert_eq!(differs, None, "bits of {reduction} of {} by {algorithm}, {way}", T::DTYPE);
        }
    }
    let first = first.unwrap();
    equal_everywhere(rank, &first, &"in rank order");
    first
}

/// All ranks have the same bits.
fn equal_everywhere<T: Sample>(rank: &Rank, own: &[T], context: &dyn std::fmt::Debug) {
    let everywhere = rank.communicator.group().all_gather_bytes(bytemuck::cast_slice(own)).unwrap();
    assert!(everywhere.windows(2).all(|pair| pair[0] == pair[1]), "bits of {} differ: {context:?}", T::DTYPE);
}

/// How far a sum that is rounded at every rank is off. Each addition in the chain that leads to a result
/// is rounded to single precision and to the type, so with `unit` and 2^-24, the largest relative errors
/// of the two, the result is off by at most ((1 + unit)(1 + 2^-24))^additions - 1 times the sum of the
/// values' sizes (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 4).
fn rounds_at_every_rank<T: Sample>(unit: f64, widen: fn(T) -> f64) {
    for world in [3, 5, 8] {
        let data = Data::<T>::new(97, world, 20_000);
        let folds = usize::from(!world.is_power_of_two());
        let chains = [(Algorithm::Ring, world - 1), (Algorithm::RecursiveDoubling, world.ilog2() as usize + folds)];
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, .. } = rank;
            let buffer = communicator.symmetric::<T>(20_000).unwrap();
            for (algorithm, additions) in chains {
                buffer.write(&data.inputs[rank.rank()], stream).unwrap();
                communicator.all_reduce_with(algorithm, &buffer, &buffer, stream).unwrap();
                rank.finish();
                let got = buffer.read(stream).unwrap();
                let allowed = ((1.0 + unit) * (1.0 + (-24f64).exp2())).powi(additions as i32) - 1.0;
                let mut unlike_rank_order = 0;
                for (index, value) in got.iter().enumerate() {
                    let exact: f64 = data.inputs.iter().map(|input| widen(input[index])).sum();
                    let size: f64 = data.inputs.iter().map(|input| widen(input[index]).abs()).sum();
                    let off = (widen(*value) - exact).abs();
                    assert!(off <= allowed * size, "{algorithm} of {}: {off} of {size}", T::DTYPE);
                    unlike_rank_order += usize::from(value.bits() != data.sums[index].bits());
                }
                // The bound is of use: order and rounding do show.
                assert!(unlike_rank_order > 100, "{algorithm} of {}: {unlike_rank_order}", T::DTYPE);
                equal_everywhere(rank, &got, &algorithm);
            }
        });
    }
}

#[test]
fn sums_that_are_rounded_at_every_rank_are_off_by_no_more_than_that() {
    rounds_at_every_rank::<bf16>((-8f64).exp2(), bf16::to_f64);
    rounds_at_every_rank::<f16>((-11f64).exp2(), f16::to_f64);
    // Of e4m3 such sums saturate.
    rounds_at_every_rank::<F8E5M2>((-3f64).exp2(), |value| value.to_f64());
    rounds_at_every_rank::<f32>((-24f64).exp2(), f64::from);
}

fn special_values<T: Bits>() {
    for world in [2, 3, 4, 8] {
        if !fits(world) {
            continue;
        }
        let data = special_data::<T>(world, LEN);
        let most = T::SATURATED.unwrap_or(T::INFINITY);
        let at_the_end = |value: &&T| value.bits() & !(1 << (T::WIDTH - 1)) == most;
        for reduction in Reduction::ALL {
            let results = data.result(reduction);
            assert!(results.iter().filter(|value| value.is_nan()).count() > 10);
            // Where no value is infinite, averages are less than the greatest value.
            let reached = T::DTYPE != Dtype::F8E4M3 || reduction != Reduction::Average;
            assert!(!reached || results.iter().filter(at_the_end).count() > 2);
        }
        threads(world, &config(), |rank| {
            for reduction in Reduction::ALL {
                let results = every_way_of(reduction, rank, &data);
                if let Some(most) = T::SATURATED {
                    // No infinity is left, and every NaN has one pattern.
                    let known = |value: &T| value.bits() & 0x7F <= most || value.bits() == 0x7F;
                    assert!(results.iter().all(known), "{reduction} of {}", T::DTYPE);
                }
            }
        });
    }
}

#[test]
fn pitfall_23_27_special_values_bf16() {
    special_values::<bf16>();
}

#[test]
fn pitfall_23_27_special_values_f16() {
    special_values::<f16>();
}

#[test]
fn pitfall_23_27_special_values_f32() {
    special_values::<f32>();
}

#[test]
fn pitfall_23_27_special_values_f64() {
    special_values::<f64>();
}

#[test]
fn pitfall_23_27_special_values_f8e4m3() {
    special_values::<F8E4M3>();
}

#[test]
fn pitfall_23_27_special_values_f8e5m2() {
    special_values::<F8E5M2>();
}

/// Inputs of one value a rank, everywhere.
fn constant<T: Sample>(values: &[T]) -> Data<T> {
    Data::of(values.iter().map(|value| vec![*value; 333]).collect())
}

/// Sums whose value is known without any arithmetic of ours.
#[test]
fn pitfall_27_known_sums() {
    let bf16 = |values: [f32; 3]| constant(&values.map(bf16::from_f32));
    let f16 = |values: [f32; 3]| constant(&values.map(f16::from_f32));
    threads(3, &config(), |rank| {
        let same = |data: &Data<half::bf16>, expected: f32| {
            let got = every_way(rank, data);
            assert!(got.iter().all(|value| value.to_f32() == expected), "{:?} is not {expected:?}", got[0]);
        };
        // Far beyond a half: an implementation that converts to f16 gets infinity.
        same(&bf16([1e30, 1e30, -1e30]), half::bf16::from_f32(1e30).to_f32());
        same(&bf16([3e38, 3e38, 3e38]), f32::INFINITY);
        same(&bf16([3e38, -3e38, 1.0]), 1.0);
        same(&bf16([f32::INFINITY, 1.0, -5.0]), f32::INFINITY);
        same(&bf16([-1.0, f32::NEG_INFINITY, 4.0]), f32::NEG_INFINITY);
        // 256 + 1 is a tie in bf16: rounding after every rank loses both.
        same(&bf16([256.0, 1.0, 1.0]), 258.0);
        let not_a_number = every_way(rank, &bf16([f32::INFINITY, f32::NEG_INFINITY, 1.0]));
        assert!(not_a_number.iter().all(|value| value.is_nan()));
        // In single precision the sum is in range again before it is rounded.
        let back = every_way(rank, &f16([60_000.0, 60_000.0, -60_000.0]));
        assert!(back.iter().all(|value| value.to_f32() == 60_000.0));
        let over = every_way(rank, &f16([65_504.0, 16.0, 0.0]));
        assert!(over.iter().all(|value| *value == half::f16::INFINITY));
    });
}

/// Nothing is flushed to zero, and zeros keep their sign.
#[test]
fn pitfall_23_denormals_and_signed_zeros() {
    threads(2, &config(), |rank| {
        for bits in [1u32, 2, 0x7F, 0x0040_0000, 0x007F_FFFF] {
            let got = every_way(rank, &constant(&[f32::from_bits(bits); 2]));
            assert!(
                got.iter().all(|value| value.to_bits() == 2 * bits),
                "{:#x} twice is {:#x}",
                bits,
                got[0].to_bits()
            );
        }
        let got = every_way(rank, &constant(&[bf16::from_bits(1); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 2));
        let got = every_way(rank, &constant(&[f16::from_bits(0x8001); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 0x8002));
        let got = every_way(rank, &constant(&[F8E4M3::from_bits(0x81); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 0x82));
        let got = every_way(rank, &constant(&[F8E5M2::from_bits(1); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 2));
        let got = every_way(rank, &constant(&[F8E4M3::from_bits(0x80); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 0x80), "-0 + -0 is -0");
        let got = every_way(rank, &constant(&[f64::from_bits(3); 2]));
        assert!(got.iter().all(|value| value.to_bits() == 6));
        let got = every_way(rank, &constant(&[-0.0f32, -0.0]));
        assert!(got.iter().all(|value| value.to_bits() == 0x8000_0000), "-0 + -0 is -0");
        let got = every_way(rank, &constant(&[-0.0f64, 0.0]));
        assert!(got.iter().all(|value| value.to_bits() == 0), "-0 + 0 is 0");
    });
}

/// Words of all ones look like a packet that has not arrived: as data, on one rank or all, in every position, and as
/// the sum of other data.
#[test]
fn pitfall_23_data_that_is_the_sentinel() {
    fn all_ones<T: Bits>(rank: &Rank) {
        let world = rank.world();
        let ones = T::of_bits(u64::MAX);
        let ordinary = |index: usize| T::sample(mix(index as u64));
        for (senders, step) in [(1, 1), (world, 1), (1, 7), (world, 5)] {
            let value = |rank: usize, index: usize| {
                if rank < senders && index.is_multiple_of(step) { ones } else { ordinary(index) }
            };
            let data = Data::of((0..world).map(|rank| (0..LEN).map(|index| value(rank, index)).collect()).collect());
            let got = every_way(rank, &data);
            assert!((0..LEN).all(|index| got[index].is_nan() == index.is_multiple_of(step)));
        }
        if !T::of_bits(u64::MAX - 2).is_nan() {
            return; // e4m3 has one NaN a sign
        }
        // A NaN with any payload makes a NaN that can be sent on by the second hop.
        let data = Data::of(
            (0..world)
                .map(|rank| (0..LEN).map(|index| T::of_bits(u64::MAX - (index * world + rank) as u64 % 3)).collect())
                .collect(),
        );
        assert!(every_way(rank, &data).iter().all(|value| value.is_nan()));
    }
    threads(3, &config(), |rank| {
        all_ones::<f32>(rank);
        all_ones::<f64>(rank);
        all_ones::<f16>(rank);
        all_ones::<bf16>(rank);
        all_ones::<F8E4M3>(rank);
        all_ones::<F8E5M2>(rank);
    });
}

/// Integers wrap, and any bits are sent unchanged.
#[test]
fn integers_wrap_at_both_ends() {
    threads(3, &config(), |rank| {
        let got = every_way(rank, &constant(&[i32::MAX, 1, 0]));
        assert!(got.iter().all(|value| *value == i32::MIN));
        let got = every_way(rank, &constant(&[i64::MIN, -1, 0]));
        assert!(got.iter().all(|value| *value == i64::MAX));
        let got = every_way(rank, &constant(&[-1i32; 3]));
        assert!(got.iter().all(|value| *value == -3));
        let got = every_way(rank, &constant(&[i64::MAX; 3]));
        assert!(got.iter().all(|value| *value == i64::MAX - 2));
    });
}

/// Results that are known without any arithmetic of ours: `inputs` of the ranks, `expected` for each
/// reduction in the order of their numbers.
fn known<T: Sample>(rank: &Rank, inputs: [T; 3], expected: [T; 5]) {
    let data = constant(&inputs);
    for (reduction, expected) in Reduction::ALL.into_iter().zip(expected) {
        let got = every_way_of(reduction, rank, &data)[0];
        let same = got.bits() == expected.bits() || got.is_nan() && expected.is_nan();
        assert!(same, "{reduction} of {inputs:?} is {got:?}, not {expected:?}");
    }
}

/// Columns: inputs, then sum, product, least, greatest, average.
#[test]
fn known_results_of_floats() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    threads(3, &config(), |rank| {
        let singles = |inputs, expected| known::<f32>(rank, inputs, expected);
        singles([1.0, 2.0, 4.5], [7.5, 9.0, 1.0, 4.5, 2.5]);
        singles([-1.0, 0.0, 1.0], [0.0, -0.0, -1.0, 1.0, 0.0]);
        // Zeros have an order, wherever they are.
        singles([0.0, -0.0, 0.0], [0.0, -0.0, -0.0, 0.0, 0.0]);
        singles([-0.0, 0.0, -0.0], [0.0, 0.0, -0.0, 0.0, 0.0]);
        singles([-0.0, -0.0, -0.0], [-0.0, -0.0, -0.0, -0.0, -0.0]);
        // A NaN wins wherever it is.
        singles([NAN, 1.0, -INF], [NAN; 5]);
        singles([1.0, NAN, INF], [NAN; 5]);
        singles([0.0, INF, NAN], [NAN; 5]);
        singles([f32::from_bits(u32::MAX), 1.0, 2.0], [NAN; 5]);
        singles([INF, 1.0, -2.0], [INF, -INF, -2.0, INF, INF]);
        singles([INF, -INF, 1.0], [NAN, -INF, -INF, INF, NAN]);
        singles([INF, 0.0, 1.0], [INF, NAN, 0.0, INF, INF]);
        singles([f32::MAX, f32::MAX, 0.5], [INF, INF, 0.5, f32::MAX, INF]);
        singles([1e-30, 1e-30, 1e30], [1e30, 0.0, 1e-30, 1e30, 1e30 / 3.0]);
        let least = f32::from_bits(1);
        singles([least, least, least], [f32::from_bits(3), 0.0, least, least, least]);
        // The quotient is rounded once.
        singles([1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, 1.0 / 3.0]);

        let halves = |inputs: [f32; 3], expected: [f32; 5]| {
            known(rank, inputs.map(bf16::from_f32), expected.map(bf16::from_f32));
        };
        halves([256.0, 1.0, 1.0], [258.0, 256.0, 1.0, 256.0, 86.0]);
        halves([1e30, 1e30, -1e30], [1e30, -INF, -1e30, 1e30, bf16::from_f32(1e30).to_f32() / 3.0]);
        halves([0.0, NAN, -0.0], [NAN; 5]);
        let halves = |inputs: [f32; 3], expected: [f32; 5]| {
            known(rank, inputs.map(f16::from_f32), expected.map(f16::from_f32));
        };
        // Beyond the type on the way, within it at the end.
        halves([60_000.0, 60_000.0, -60_000.0], [60_000.0, -INF, -60_000.0, 60_000.0, 20_000.0]);
        halves([60_000.0, 60_000.0, 60_000.0], [INF, INF, 60_000.0, 60_000.0, 60_000.0]);
        halves([300.0, 300.0, 0.5], [600.5, 45_000.0, 0.5, 300.0, 600.5 / 3.0]);
        halves([-0.0, -0.0, 0.0], [0.0, 0.0, -0.0, 0.0, 0.0]);

        known(rank, [1.0f64, -8.0, 0.25], [-6.75, -2.0, -8.0, 1.0, -2.25]);
        known(rank, [-0.0f64, 0.0, 0.0], [0.0, -0.0, -0.0, 0.0, 0.0]);
        known(rank, [f64::NAN, 0.0, f64::INFINITY], [f64::NAN; 5]);
        known(rank, [f64::MAX, f64::MAX, 1.0], [f64::INFINITY, f64::INFINITY, 1.0, f64::MAX, f64::INFINITY]);
    });
}

/// Columns: inputs, then sum, product, least, greatest, average.
#[test]
fn known_results_of_8_bit_floats() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    threads(3, &config(), |rank| {
        let quarters = |inputs: [f32; 3], expected: [f32; 5]| {
            known(rank, inputs.map(F8E4M3::of_single), expected.map(F8E4M3::of_single))
        };
        // 16 + 1 is a tie: rounding after every rank loses both.
        quarters([16.0, 1.0, 1.0], [18.0, 16.0, 1.0, 16.0, 6.0]);
        // Beyond the type on the way, within it at the end; then saturated.
        quarters([448.0, 448.0, -448.0], [448.0, -448.0, -448.0, 448.0, 144.0]);
        quarters([448.0, 448.0, 448.0], [448.0, 448.0, 448.0, 448.0, 448.0]);
        quarters([-448.0, -448.0, -1.0], [-448.0, -448.0, -448.0, -1.0, -288.0]);
        quarters([-0.0, -0.0, 0.0], [0.0, 0.0, -0.0, 0.0, 0.0]);
        quarters([-0.0, -0.0, -0.0], [-0.0, -0.0, -0.0, -0.0, -0.0]);
        quarters([1.0, NAN, 448.0], [NAN; 5]);
        // 464 is the tie between 448 and the next value, if there were one.
        quarters([448.0, 16.0, 0.0], [448.0, 0.0, 0.0, 448.0, 160.0]);
        let step = 1.0 / 512.0;
        quarters([step, step, -step], [step, -0.0, -step, step, 0.0]);

        let known = |inputs: [u8; 3], expected: [f32; 5]| {
            known(rank, inputs.map(F8E5M2::from_bits), expected.map(F8E5M2::of_single));
        };
        let [one, infinity, nan] = [0x3C, 0x7C, 0x7E];
        known([one, one, 0x40], [4.0, 2.0, 1.0, 2.0, 1.25]);
        // Infinities enter sums and leave them saturated.
        known([infinity, one, 0xC0], [INF, -INF, -2.0, INF, INF]);
        known([infinity, 0xFC, one], [NAN, -INF, -INF, INF, NAN]);
        known([infinity, 0, one], [INF, NAN, 0.0, INF, INF]);
        known([nan, one, one], [NAN; 5]);
        known([0x7B, 0x7B, one], [INF, INF, 1.0, 57344.0, 40960.0]);
    });
}

/// Columns: inputs, then sum, product, least, greatest, average.
#[test]
fn known_results_of_integers() {
    threads(3, &config(), |rank| {
        // Averages truncate toward zero, and the sum of an average does not wrap.
        known::<i8>(rank, [127, 127, 127], [125, 127, 127, 127, 127]);
        known::<i8>(rank, [-128, -128, -127], [-127, 0, -128, -127, -127]);
        known::<i8>(rank, [-1, -1, 0], [-2, 0, -1, 0, 0]);
        known::<i8>(rank, [5, -3, 0], [2, 0, -3, 5, 0]);
        known::<u8>(rank, [255, 255, 255], [253, 255, 255, 255, 255]);
        known::<u8>(rank, [200, 100, 2], [46, 64, 2, 200, 100]);
        known::<i32>(rank, [i32::MAX, 1, 1], [i32::MIN + 1, i32::MAX, 1, i32::MAX, i32::MAX / 3 + 1]);
        known::<i32>(rank, [i32::MIN, i32::MIN, i32::MIN], [i32::MIN, 0, i32::MIN, i32::MIN, i32::MIN]);
        known::<i32>(rank, [-7, 0, 0], [-7, 0, -7, 0, -2]);
        known::<i32>(rank, [1 << 16, 1 << 15, -1], [98_303, i32::MIN, -1, 1 << 16, 32_767]);
        known::<u32>(rank, [u32::MAX, u32::MAX, 1], [u32::MAX, 1, 1, u32::MAX, 2_863_311_530]);
        known::<u32>(rank, [u32::MAX, 0, 0x8000_0000], [0x7FFF_FFFF, 0, 0, u32::MAX, 2_147_483_647]);
        // The sum of an average is only as wide as the type, and wraps.
        known::<i64>(rank, [i64::MAX, 1, 0], [i64::MIN, 0, 0, i64::MAX, i64::MIN / 3]);
        known::<i64>(rank, [-8, 0, 0], [-8, 0, -8, 0, -2]);
        known::<i64>(rank, [1 << 62, 2, 1], [(1 << 62) + 3, i64::MIN, 1, 1 << 62, ((1 << 62) + 3) / 3]);
        known::<u64>(rank, [u64::MAX, 1, 5], [5, u64::MAX - 4, 1, u64::MAX, 1]);
        known::<u64>(rank, [u64::MAX, 0, 0], [u64::MAX, 0, 0, u64::MAX, u64::MAX / 3]);
    });
}

/// Equal numbers in a message of another length, at another place and alignment, have the same sum.
#[test]
fn pitfall_28_bits_do_not_depend_on_the_message_around_them() {
    fn window<T: Sample + Element>(rank: &Rank, data: &Data<T>) {
        let Rank { communicator, stream, device } = rank;
        let own = &data.inputs[rank.rank()];
        let mut random = Random(28);
        for _ in 0..12 {
            let count = 1 + random.below(own.len());
            let start = random.below(own.len() - count + 1);
            let buffer = DeviceBuffer::<T>::new(device, count).unwrap();
            buffer.write(&own[start..start + count], stream).unwrap();
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
            rank.finish();
            assert_same(&buffer.read(stream).unwrap(), &data.sums[start..start + count], &(start, count));
        }
    }
    let (singles, halves) = (Data::<f32>::new(28, 4, 9000), Data::<bf16>::new(28, 4, 9000));
    threads(4, &config(), |rank| {
        window(rank, &singles);
        window(rank, &halves);
    });
}
