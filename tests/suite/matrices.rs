//! The reference of GEMMs: their factors, and their elements in f64.

use fastrand::Rng;
use symmetra::Element;
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::half::{bf16, f16};
use symmetra::matmul::{Order, Product, Scaling};

/// A type of a factor or a result.
pub(crate) trait Value: Element {
    /// The largest relative error of a rounding is 2 to this power.
    const ROUNDING: i32;
    fn round(value: f32) -> Self;
    fn wide(self) -> f64;
}

macro_rules! values {
    ($($rust:ty, $rounding:expr, $round:expr, $wide:expr;)*) => {$(
        impl Value for $rust {
            const ROUNDING: i32 = $rounding;
            fn round(value: f32) -> Self { $round(value) }
            fn wide(self) -> f64 { f64::from($wide(self)) }
        }
    )*};
}

values! {
    f32, -24, |value| value, |value| value;
    f16, -11, f16::from_f32, f16::to_f32;
    bf16, -8, bf16::from_f32, bf16::to_f32;
    F8E4M3, -4, F8E4M3::from_f32, |value: F8E4M3| value.to_f32();
    F8E5M2, -3, F8E5M2::from_f32, |value: F8E5M2| value.to_f32();
}

/// The factors of some GEMMs, bias and scales, row after row, in any memory layout.
pub(crate) struct Case<L, R, D> {
    pub(crate) product: Product,
    pub(crate) rows: usize,
    pub(crate) left: Vec<L>,
    pub(crate) right: Vec<R>,
    pub(crate) bias: Vec<D>,
    pub(crate) scales: [Vec<f32>; 2],
}

impl<L: Value, R: Value, D: Value> Case<L, R, D> {
    /// Draws factors by `draw`, and scales among powers of two.
    pub(crate) fn draw(product: Product, rows: usize, random: &mut Rng, mut draw: impl FnMut(&mut Rng) -> f32) -> Self {
        let Product { inner, columns, count, .. } = product;
        let left = (0..count * rows * inner).map(|_| L::round(draw(random))).collect();
        let right = (0..count * inner * columns).map(|_| R::round(draw(random))).collect();
        let bias = (0..columns).map(|_| D::round(draw(random))).collect();
        let mut scale = |number: usize| (0..number).map(|_| 2f32.powi(random.i32(-2..=1))).collect();
        let scales = match product.scaling {
            Scaling::Rows => [scale(rows), scale(columns)],
            _ => [scale(1), scale(1)],
        };
        Self { product, rows, left, right, bias, scales }
    }

    /// Each element of the results in f64, and the sum of its absolute products.
    pub(crate) fn expected(&self) -> Vec<[f64; 2]> {
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

/// Matrices in their memory layout.
pub(crate) fn stored<T: Element>(values: &[T], layout: Order, [count, rows, columns]: [usize; 3]) -> Vec<T> {
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
