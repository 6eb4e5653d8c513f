//! How far a result of bf16 may be from its definition, and the rows of one candidate from those of another.

use symmetra::half::bf16;

use reference::element::WideElement;

/// A sum of products in double precision, and the sum of their magnitudes.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Dot {
    pub(super) sum: f64,
    pub(super) magnitude: f64,
}

impl Dot {
    pub(super) fn new(left: &[bf16], right: &[bf16]) -> Self {
        left.iter().zip(right).fold(Self::default(), |Self { sum, magnitude }, (left, right)| {
            let product = left.wide() * right.wide();
            Self { sum: sum + product, magnitude: magnitude + product.abs() }
        })
    }

    /// The largest error of an element of a GEMM with `inner` terms: by accumulation in f32, and by its rounding.
    fn bound(self, inner: usize) -> f64 {
        inner as f64 * 2f64.powi(-24) * self.magnitude + bf16::ROUNDOFF * self.sum.abs()
    }

    /// Whether `found` is the element of a GEMM, or with `relu` the larger of 0 and the element.
    pub(super) fn is(self, found: bf16, inner: usize, relu: bool) -> bool {
        let right = if relu { self.sum.max(0.0) } else { self.sum };
        (found.wide() - right).abs() <= self.bound(inner)
    }
}

/// Whether `found` is the sum of all ranks' elements, each a sum of `inner` terms, and of the residual. The sum over
/// the ranks may be rounded after each addition, in any order.
pub(super) fn is_sum(found: bf16, dots: &[Dot], inner: usize, residual: bf16) -> bool {
    let right = residual.wide() + dots.iter().map(|dot| dot.sum).sum::<f64>();
    let of_products: f64 = dots.iter().map(|dot| dot.bound(inner)).sum();
    let summed: f64 = dots.iter().map(|dot| dot.sum.abs()).sum::<f64>() + of_products;
    let of_sum = dots.len() as f64 * bf16::ROUNDOFF * summed;
    let off = of_products + of_sum;
    (found.wide() - right).abs() <= off + bf16::ROUNDOFF * (right.abs() + off)
}

/// The share of a row's length by which the rows of two candidates may differ after `halves` halves: each half adds
/// roundings, which are as likely up as down.
pub(super) fn far(halves: usize) -> f64 {
    (halves as f64).sqrt() / 64.0
}

/// An element may be off by this many times the share of the row's root mean square.
const ELEMENT: f64 = 8.0;

/// How many rows of `found`, and elements of rows, are further than this share from those of `right`.
pub(super) fn unlike(found: &[bf16], right: &[bf16], hidden: usize, share: f64) -> u64 {
    let of_row = |(found, right): (&[bf16], &[bf16])| {
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
        let length = squares(&mut right.iter().map(|right| right.wide())).sqrt();
        let difference = |(found, right): (&bf16, &bf16)| found.wide() - right.wide();
        let distance = squares(&mut found.iter().zip(right).map(difference)).sqrt();
        let most = ELEMENT * share * length / (hidden as f64).sqrt();
        // A NaN never matches.
        let near = |off: f64, most: f64| off <= most;
        let elements = found.iter().zip(right).filter(|both| !near(difference(*both).abs(), most)).count();
        elements as u64 + u64::from(!near(distance, share * length))
    };
    let rows = found.chunks(hidden).zip(right.chunks(hidden)).map(of_row).sum::<u64>();
    rows + found.len().abs_diff(right.len()) as u64
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/layer_bounds.rs"]
mod tests;
