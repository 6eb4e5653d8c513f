//! GEMMs, and their sums over ranks, by their definition in double precision.

use fastrand::Rng;
use symmetra::matmul::{Order, Product, Scaling};
use symmetra::{Element, Reduction};

use crate::element::Real;

/// The factors of some GEMMs, bias and scales, row after row, in any memory layout.
#[derive(Clone, Debug)]
pub struct GemmCase<L, R, D> {
    pub product: Product,
    pub rows: usize,
    pub left: Vec<L>,
    pub right: Vec<R>,
    pub bias: Vec<D>,
    pub scales: [Vec<f32>; 2],
}

impl<L: Real, R: Real, D: Real> GemmCase<L, R, D> {
    /// Draws factors by `draw`, and scales among powers of two.
    pub fn draw(product: Product, rows: usize, random: &mut Rng, mut draw: impl FnMut(&mut Rng) -> f32) -> Self {
        let Product { inner, columns, count, .. } = product;
        let left = (0..count * rows * inner).map(|_| L::of_single(draw(random))).collect();
        let right = (0..count * inner * columns).map(|_| R::of_single(draw(random))).collect();
        let bias = (0..columns).map(|_| D::of_single(draw(random))).collect();
        let mut scale = |number: usize| (0..number).map(|_| 2f32.powi(random.i32(-2..=1))).collect();
        let scales = match product.scaling {
            Scaling::Rows => [scale(rows), scale(columns)],
            _ => [scale(1), scale(1)],
        };
        Self { product, rows, left, right, bias, scales }
    }

    /// Each element of the results, and the sum of its absolute products.
    pub fn expected(&self) -> Vec<[f64; 2]> {
        let Product { inner, columns, count, scaling, .. } = self.product;
        let mut all = Vec::new();
        for number in 0..count {
            let (left, right) = (&self.left[number * self.rows * inner..], &self.right[number * inner * columns..]);
            for row in 0..self.rows {
                for column in 0..columns {
                    let term = |place: usize| left[row * inner + place].wide() * right[place * columns + column].wide();
                    let scale = match scaling {
                        Scaling::None => 1.0,
                        Scaling::Tensor => f64::from(self.scales[0][0] * self.scales[1][0]),
                        _ => f64::from(self.scales[0][row] * self.scales[1][column]),
                    };
                    let sum: f64 = (0..inner).map(term).sum();
                    let absolute: f64 = (0..inner).map(|place| term(place).abs()).sum();
                    let bias = if self.product.bias { self.bias[column].wide() } else { 0.0 };
                    let value = sum * scale + bias;
                    let value = if self.product.relu { value.max(0.0) } else { value };
                    all.push([value, absolute * scale + bias.abs()]);
                }
            }
        }
        all
    }
}

/// The sum or the average of the GEMMs of all ranks. The bias is that of the result: a sum has it once.
pub fn summed<L: Real, R: Real, D: Real>(
    ranks: impl IntoIterator<Item = GemmCase<L, R, D>>,
    reduction: Reduction,
) -> Vec<f64> {
    let (mut sums, mut world) = (Vec::new(), 0);
    for mut case in ranks {
        case.product.bias &= world == 0 || reduction == Reduction::Average;
        let partial = case.expected();
        sums.resize(partial.len(), 0.0);
        sums.iter_mut().zip(partial).for_each(|(sum, [value, _])| *sum += value);
        world += 1;
    }
    if reduction == Reduction::Average {
        sums.iter_mut().for_each(|sum| *sum /= f64::from(world));
    }
    sums
}

/// A rank's part of a tensor of this shape, or of a tensor with another or no last dimension. `lens`: the length of
/// each rank's part of the dimension `dim`.
pub fn shard<T: Copy>(whole: &[T], shape: &[usize], dim: usize, lens: &[usize], rank: usize) -> Vec<T> {
    let (start, outer) = (lens[..rank].iter().sum::<usize>(), shape[..dim].iter().product::<usize>());
    let inner = whole.len() / (outer * shape[dim]).max(1);
    let row = |number: usize| (number * shape[dim] + start) * inner;
    (0..outer).flat_map(|number| whole[row(number)..][..lens[rank] * inner].to_vec()).collect()
}

/// Matrices in their memory layout.
pub fn stored<T: Element>(values: &[T], layout: Order, [count, rows, columns]: [usize; 3]) -> Vec<T> {
    match layout {
        Order::Rows => values.to_vec(),
        Order::Columns => (0..count * rows * columns)
            .map(|place| {
                let (number, place) = (place / (rows * columns), place % (rows * columns));
                values[number * rows * columns + place % rows * columns + place / rows]
            })
            .collect(),
    }
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/gemm.rs"]
mod tests;
