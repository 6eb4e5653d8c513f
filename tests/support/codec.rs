//! The reference of all-reduces by codecs, from the description of the codecs alone: every step in single precision, the
//! values of a group one by one. The result has exact bits.

use reference::element::Real;
use symmetra::float8::F8E4M3;
use symmetra::{Algorithm, AllReduceOptions, Codec, Reduction};

/// Elements that share a scale.
const GROUP: usize = 32;

/// The all-reduce of messages, one a rank, as every rank must have it.
pub fn reduced<T: Real>(options: &AllReduceOptions, inputs: &[&[T]]) -> Vec<T> {
    let AllReduceOptions { reduction, algorithm, codec, .. } = *options;
    let two_hops = match algorithm {
        Algorithm::Auto => codec.algorithm(inputs.len()) == Algorithm::TwoShotSentinel,
        named => named == Algorithm::TwoShotSentinel,
    };
    let over = if reduction == Reduction::Average { inputs.len() as f32 } else { 1.0 };
    let group = |start: usize| {
        let part = |input: &&[T]| {
            let values = input[start..].iter().take(GROUP).map(|value| value.single());
            passed(codec, values.collect())
        };
        let parts: Vec<Vec<f32>> = inputs.iter().map(part).collect();
        let sum = |index: usize| parts.iter().fold(0.0, |sum: f32, part| sum + part[index]);
        let sums: Vec<f32> = (0..parts[0].len()).map(|index| sum(index) / over).collect();
        let sums = if two_hops { passed(codec, sums) } else { sums };
        sums.into_iter().map(T::of_single).collect::<Vec<_>>()
    };
    match inputs {
        // A rank alone sends nothing.
        [own] => own.to_vec(),
        _ => (0..inputs[0].len()).step_by(GROUP).flat_map(group).collect(),
    }
}

/// The values of a group that a receiver gets. Zeros have no sign.
fn passed(codec: Codec, values: Vec<f32>) -> Vec<f32> {
    let largest_code: f32 = match codec {
        Codec::Fp8 => 448.0,
        Codec::Int8 => 127.0,
        Codec::Int6 => 31.0,
        Codec::Int4 => 7.0,
        other => panic!("{other} is no codec of this reference"),
    };
    let most = values.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let scale = bf16_up((most / largest_code).max(f32::MIN_POSITIVE));
    if !values.iter().all(|value| value.is_finite()) || !(scale * largest_code).is_finite() {
        return vec![f32::NAN; values.len()];
    }
    let inverse = 1.0 / scale;
    let code = |value: f32| match codec {
        Codec::Fp8 => F8E4M3::of_single(value * inverse).single(),
        _ => (value * inverse).round_ties_even(),
    };
    values.into_iter().map(|value| code(value) * scale + 0.0).collect()
}

/// The least bf16 that is not below a positive number.
fn bf16_up(value: f32) -> f32 {
    f32::from_bits(value.to_bits().next_multiple_of(1 << 16))
}
