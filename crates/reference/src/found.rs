//! The comparison of the outputs of norms with the reference.

use super::element::Real;
use super::quantised::{Format, QuantisedBytes, quantised};

/// A byte that no result has, so that unwritten bytes are found.
pub const UNWRITTEN: u8 = 0xa5;
/// The static scale, at which some of the largest values saturate, and the global scale.
const STATIC_SCALE: f32 = 0.011;
const GLOBAL_SCALE: f32 = 341.3;

/// Elements that have not been written.
pub fn unwritten<T: Real>(elems: usize) -> Vec<T> {
    vec![bytemuck::pod_read_unaligned(&[UNWRITTEN; 4][..size_of::<T>()]); elems]
}

/// The scale that a format takes from its caller.
pub fn known(form: Format) -> f32 {
    if matches!(form, Format::Static(_)) { STATIC_SCALE } else { GLOBAL_SCALE }
}

/// How many elements have other bits.
pub fn unlike<T: Real>(found: &[T], right: &[T]) -> u64 {
    let missing = found.len().abs_diff(right.len());
    (missing + found.iter().zip(right).filter(|(found, right)| !right.matches(**found)).count()) as u64
}

/// How many bytes of values and scales differ from those of normed rows of `width` elements. All bytes were
/// [`UNWRITTEN`] before.
pub fn wrong_codes<T: Real>(found: &QuantisedBytes, y: &[T], width: usize, form: Format) -> u64 {
    let y: Vec<f32> = y.iter().map(|y| y.single()).collect();
    // No row of random values has an infinite factor.
    let right = quantised(&y, width, form, known(form), UNWRITTEN, |_| false);
    let unlike = |found: &[u8], right: &[u8]| {
        let wrong = found.iter().zip(right).filter(|(found, right)| found != right).count();
        (wrong + found.len().abs_diff(right.len())) as u64
    };
    unlike(&found.values, &right.values) + unlike(&found.scales, &right.scales)
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/found.rs"]
mod tests;
