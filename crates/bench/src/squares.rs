//! Products of square matrices: work that keeps a device busy concurrently with other work.

use symmetra::half::bf16;
use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::{DeviceBuffer, DeviceKind, Stream};

/// Some products of square matrices of bf16, one after the other.
pub(super) struct Squares {
    multiplier: Multiplier,
    product: Product,
    /// Two factors and the result.
    matrices: [DeviceBuffer<bf16>; 3],
    number: u32,
}

/// Rows and columns of the matrices, unless the user sets another number.
pub(super) fn usual_size(kind: DeviceKind) -> u32 {
    if kind == DeviceKind::Host { 256 } else { 8192 }
}

impl Squares {
    /// `number` products of matrices of `size` rows and columns, for the device of the stream. Blocks. Factors are random,
    /// since zeros are multiplied at less power.
    pub(super) fn new(size: usize, number: u32, seed: u64, stream: &Stream) -> symmetra::Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut matrix = || {
            let values: Vec<bf16> = (0..size * size).map(|_| bf16::from_f32(random.f32() - 0.5)).collect();
            DeviceBuffer::from_slice(&values, stream)
        };
        Ok(Self {
            multiplier: Multiplier::new(stream.device())?,
            product: Product::new(size, size, Numeric::BF16),
            matrices: [matrix()?, matrix()?, matrix()?],
            number,
        })
    }

    pub(super) fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        (0..self.number).try_for_each(|_| {
            let operands = self.matrices.each_ref().map(Tensor::of);
            self.multiplier.enqueue(&self.product, self.product.columns, operands, stream)
        })
    }
}
