//! How far a result may be from the exact sum, from the rule of each codec in double precision.

use symmetra::{Algorithm, AllReduceOptions, Codec, Dtype, Reduction};

use super::Half;

/// Elements of a group, which has one scale, and of a unit.
pub(super) const GROUP: usize = 32;
pub(super) const UNIT: usize = 512;

/// The factor by which a scale that is rounded up to bf16, and sums in single precision, increase an error.
const SLACK: f64 = 1.01;

/// How far a codec may put a value of a group from where the value is. `most`: the largest magnitude of the group.
fn error_of(codec: Codec, value: f64, most: f64) -> f64 {
    let steps = match codec {
        Codec::Int8 => 127.0,
        Codec::Int6 => 31.0,
        Codec::Int4 => 7.0,
        // Three bits of fraction, and denormals from 2^-6 of 448 on.
        Codec::Fp8 => return (SLACK / 16.0 * value.abs()).max(most * 2f64.powf(-18.7)).max(2f64.powi(-136)),
        other => panic!("{other} is no codec of this test"),
    };
    // Half a step, under the least scale too.
    (SLACK / (2.0 * steps) * most).max(2f64.powi(-127))
}

/// The exact result of each element of a group, and how far from that a rank may end.
fn limits(options: &AllReduceOptions, dtype: Dtype, group: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let ranks = group.len() as f64;
    let over = if options.reduction == Reduction::Average { ranks } else { 1.0 };
    let most: Vec<f64> =
        group.iter().map(|values| values.iter().fold(0.0, |most: f64, value| most.max(value.abs()))).collect();
    let one_hop: Vec<(f64, f64)> = (0..group[0].len())
        .map(|index| {
            let sum: f64 = group.iter().map(|values| values[index]).sum();
            let error: f64 =
                group.iter().zip(&most).map(|(values, most)| error_of(options.codec, values[index], *most)).sum();
            (sum / over, error / over)
        })
        .collect();
    let two_hops = match options.algorithm {
        Algorithm::Auto => group.len() > 2,
        algorithm => algorithm == Algorithm::TwoShotSentinel,
    };
    // The largest values that the owner of the group may have received, from which the codec takes its scale.
    let largest = one_hop.iter().fold(0.0, |most: f64, (sum, error)| most.max(sum.abs() + error));
    // Half a step of the type, relative to a value, and of its denormals.
    let (unit, least) = match dtype {
        Dtype::BF16 => (2f64.powi(-8), 2f64.powi(-134)),
        _ => (2f64.powi(-11), 2f64.powi(-25)),
    };
    let limit = |&(sum, error): &(f64, f64)| {
        let again = if two_hops { error_of(options.codec, sum.abs() + error, largest) } else { 0.0 };
        let error = error + again;
        (sum, error + unit * (sum.abs() + error) + SLACK * least)
    };
    one_hop.iter().map(limit).collect()
}

/// Checks the results of all ranks: equal bits, each element within its bound, groups with a NaN or an infinity NaN.
/// The largest error, as a part of its bound.
pub(super) fn check<T: Half>(options: &AllReduceOptions, inputs: &[&[T]], results: &[&[T]]) -> Result<f64, String> {
    let mut worst = 0.0f64;
    let Some(first) = results.first() else { return Ok(worst) };
    for (rank, result) in results.iter().enumerate() {
        if let Some(index) = (0..first.len()).find(|index| result[*index].bits() != first[*index].bits()) {
            return Err(format!(
                "element {index} is {:?} on rank 0 and {:?} on rank {rank}",
                first[index], result[index]
            ));
        }
    }
    for start in (0..first.len()).step_by(GROUP) {
        let end = (start + GROUP).min(first.len());
        let group: Vec<Vec<f64>> =
            inputs.iter().map(|input| input[start..end].iter().map(|value| value.wide()).collect()).collect();
        let finite = group.iter().flatten().all(|value| value.is_finite());
        for ((sum, limit), index) in limits(options, T::DTYPE, &group).into_iter().zip(start..) {
            let found = first[index].wide();
            let right = match finite {
                false => found.is_nan(),
                true if found.is_infinite() => {
                    sum.abs() + limit >= T::of_bits(T::INFINITY - 1).wide() && found.is_sign_negative() == (sum < 0.0)
                }
                true => (found - sum).abs() <= limit,
            };
            if !right {
                return Err(format!("element {index} is {found}, not {sum} within {limit:e}"));
            }
            if finite && found.is_finite() {
                worst = worst.max((found - sum).abs() / limit);
            }
        }
    }
    Ok(worst)
}

/// Signal over noise of a sum, in decibels.
pub(super) fn noise_db<T: Half>(inputs: &[&[T]], result: &[T]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (index, found) in result.iter().enumerate() {
        let sum: f64 = inputs.iter().map(|input| input[index].wide()).sum();
        signal += sum * sum;
        noise += (found.wide() - sum).powi(2);
    }
    10.0 * (signal / noise).log10()
}
