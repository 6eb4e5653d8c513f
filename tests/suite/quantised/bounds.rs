//! The comparison of all-reduces by codecs with the bounds of the reference.

pub(super) use reference::bounds::GROUP;
use reference::bounds::{Bounds, Limit};
use symmetra::AllReduceOptions;

use crate::support::specials::Bits;

/// Elements of a unit.
pub(super) const UNIT: usize = 512;

/// Checks the results of all ranks: equal bits, each element within its bound, groups with a NaN or an infinity NaN.
/// The largest error, as a part of its bound.
pub(super) fn check<T: Bits>(options: &AllReduceOptions, inputs: &[&[T]], results: &[&[T]]) -> Result<f64, String> {
    let mut worst = 0.0f64;
    let AllReduceOptions { codec, reduction, algorithm, .. } = *options;
    let bounds = Bounds { codec, reduction, algorithm };
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
        for (Limit { result: sum, error: limit }, index) in bounds.limits::<T>(&group).into_iter().zip(start..) {
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
pub(super) fn noise_db<T: Bits>(inputs: &[&[T]], result: &[T]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (index, found) in result.iter().enumerate() {
        let sum: f64 = inputs.iter().map(|input| input[index].wide()).sum();
        signal += sum * sum;
        noise += (found.wide() - sum).powi(2);
    }
    10.0 * (signal / noise).log10()
}
