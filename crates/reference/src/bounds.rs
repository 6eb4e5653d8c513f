//! The comparison of a result by a codec with the exact sum, in double precision: how far each element may be from the
//! sum by the rule of the codec.

use symmetra::{Algorithm, Codec, Dtype, Reduction};

use crate::element::Summand;

/// Elements that share a scale.
pub const GROUP: usize = 32;

/// The factor by which scales that are rounded up to bf16, and sums in single precision, increase an error.
const SLACK: f64 = 1.01;

/// The largest error with which a codec may encode `value`. `most`: the largest magnitude in its group.
fn error_of(codec: Codec, value: f64, most: f64) -> f64 {
    let largest_code = match codec {
        Codec::Int8 => 127.0,
        Codec::Int6 => 31.0,
        Codec::Int4 => 7.0,
        // Half a step of three bits of fraction, or of the denormals of e4m3, which begin at 2^-6 of 448.
        Codec::Fp8 => return (SLACK / 16.0 * value.abs()).max(most * 2f64.powf(-18.7)).max(2f64.powi(-136)),
        // Values are sent unchanged.
        _ => return 0.0,
    };
    // Half a step, also of the least scale, 2^-126.
    (SLACK / (2.0 * largest_code) * most).max(2f64.powi(-127))
}

/// The exact result of an element, and the largest distance of a rank's result from it.
pub struct Limit {
    pub result: f64,
    pub error: f64,
}

/// The error bounds of an all-reduce by a codec.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub codec: Codec,
    pub reduction: Reduction,
    pub algorithm: Algorithm,
}

impl Bounds {
    /// The limits of the elements of a group. `ranks` has the values of the group by rank.
    pub fn limits<T: Summand>(&self, ranks: &[Vec<f64>]) -> Vec<Limit> {
        let most_of = |values: &[f64]| values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let most: Vec<f64> = ranks.iter().map(|values| most_of(values)).collect();
        let over = if self.reduction == Reduction::Average { ranks.len() as f64 } else { 1.0 };
        let reduced = |index: usize| {
            let result: f64 = ranks.iter().map(|values| values[index]).sum();
            let errors = ranks.iter().zip(&most).map(|(values, most)| error_of(self.codec, values[index], *most));
            Limit { result: result / over, error: errors.sum::<f64>() / over }
        };
        let mut limits: Vec<Limit> = (0..ranks[0].len()).map(reduced).collect();
        let has_two_hops = match self.algorithm {
            Algorithm::Auto => ranks.len() > 2,
            algorithm => algorithm == Algorithm::TwoShotSentinel,
        };
        if has_two_hops {
            // The owner encodes the sum, which may be off already.
            let largest = limits.iter().fold(0.0, |most: f64, limit| most.max(limit.result.abs() + limit.error));
            for limit in &mut limits {
                limit.error += error_of(self.codec, limit.result.abs() + limit.error, largest);
            }
        }
        // The last rounding, to the element type, and half its least denormal.
        let least = match T::DTYPE {
            Dtype::F16 => 2f64.powi(-25),
            Dtype::BF16 => 2f64.powi(-134),
            _ => 2f64.powi(-150),
        };
        for limit in &mut limits {
            limit.error += T::ROUNDOFF * (limit.result.abs() + limit.error) + SLACK * least;
        }
        limits
    }

    /// How many elements of a group are further from the exact result than the codec allows. `ranks` has the inputs
    /// of the group by rank.
    pub fn count_beyond<T: Summand>(&self, ranks: &[Vec<f64>], group: &[T]) -> u64 {
        let within = |(limit, found): &(Limit, &T)| (found.wide() - limit.result).abs() <= limit.error;
        let right = self.limits::<T>(ranks).into_iter().zip(group).filter(within).count();
        (group.len() - right) as u64
    }
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/bounds.rs"]
mod tests;
