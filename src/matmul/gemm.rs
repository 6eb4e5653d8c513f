//! A checked GEMM: addresses and sizes, as they are passed to the libraries.

use super::product::Product;
use crate::op::Held;

/// The addresses of a GEMM, and the distances between the GEMMs of one batched call.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub(super) rows: usize,
    pub(super) left: *const u8,
    pub(super) right: *const u8,
    pub(super) result: *mut u8,
    /// Null without a bias.
    pub(super) bias: *const u8,
    /// Scales of the left and the right factor; null without scales.
    pub(super) scales: [*const u8; 2],
    /// Elements from one GEMM to the next, of left factor, right factor and result.
    pub(super) steps: [usize; 3],
}

impl Gemm {
    /// A GEMM without memory, as if all addresses were multiples of every power of two.
    pub(super) fn nowhere(product: &Product, rows: usize) -> Self {
        let none = std::ptr::null();
        let steps = steps(product, rows);
        Self { rows, left: none, right: none, result: std::ptr::null_mut(), bias: none, scales: [none; 2], steps }
    }

    /// The GEMMs of one call, which are contiguous in memory.
    pub(super) fn new(product: &Product, rows: usize, operands: &[super::Tensor<'_>; 3]) -> Self {
        let [left, right, result] = operands;
        let address = |held: &Held| held.strip().address;
        let optional = |held: &Option<Held>| held.as_ref().map_or(std::ptr::null(), |held| address(held).cast_const());
        Self {
            rows,
            left: address(&left.memory),
            right: address(&right.memory),
            result: address(&result.memory),
            bias: optional(&right.bias),
            scales: [optional(&left.scales), optional(&right.scales)],
            steps: steps(product, rows),
        }
    }
}

fn steps(product: &Product, rows: usize) -> [usize; 3] {
    [rows * product.inner, product.inner * product.columns, rows * product.columns]
}
