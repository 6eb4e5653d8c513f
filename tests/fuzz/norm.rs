//! A call that also norms the rows of its sum: its operands beside input and output, what they become, and the call.

use serde::{Deserialize, Serialize};
use symmetra::{Communicator, Dtype, Operand, Queue, Ref, Result, RmsNorm, RowNorm};

use crate::program::{Placed, ROOM};
use crate::support::Sample;
use crate::support::data::Random;
use crate::support::norm::{Narrow, Norm as Definition, normed, with_residual};

/// The plain buffers of a bench that hold the same on every rank: residuals and their sums, and weights.
pub(crate) const KEPT: usize = 4;
pub(crate) const WEIGHTS: usize = 5;

/// Where a call writes x, the sum with the residual.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The memory of the input.
    Input,
    /// So many elements behind the start of [`KEPT`].
    Kept(usize),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Norm {
    /// Elements of a row.
    pub(crate) hidden: usize,
    /// Elements of a row of the output.
    pub(crate) width: usize,
    /// First element of the weight.
    pub(crate) weight: usize,
    pub(crate) gemma: bool,
    /// First element of the residual.
    pub(crate) residual: Option<usize>,
    pub(crate) x: Option<Place>,
    pub(crate) has_output: bool,
}

/// Calls a generic function with the type of rows that a type turns out to be.
macro_rules! of_rows {
    ($type:ty, $function:ident($($argument:expr),*)) => {
        match <$type>::DTYPE {
            Dtype::F16 => $function::<$type, half::f16>($($argument),*),
            Dtype::BF16 => $function::<$type, half::bf16>($($argument),*),
            _ => $function::<$type, f32>($($argument),*),
        }
    };
}
pub(crate) use of_rows;

impl Norm {
    /// Whether an operation of rows takes elements of a type.
    pub(crate) fn takes(dtype: Dtype) -> bool {
        matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32)
    }

    /// A random norm, and how many rows it has.
    pub(crate) fn any(random: &mut Random, dtype: Dtype) -> (Self, usize) {
        let hidden = match random.below(3) {
            0 => 1 + random.below(40),
            _ => *random.pick(&[64, 100, 128, 129, 256, 511, 1000, 2000]),
        };
        let width = if random.below(4) == 0 { hidden + random.below(20) } else { hidden };
        // The residual and an x apart share a buffer.
        let most = ROOM / 2 - 16;
        let most = if random.below(3) == 0 { most / width } else { 6.min(most / width) };
        let rows = random.below(most + 1);
        let mut start = || random.below(ROOM / 2 + 1 - rows * hidden);
        let (residual, apart) = (start(), ROOM / 2 + start());
        let residual = (random.below(4) > 0).then_some(residual);
        let x = match random.below(5) {
            0 | 1 => residual.map(Place::Kept),
            2 => Some(Place::Input),
            3 => Some(Place::Kept(apart)),
            _ => None,
        };
        // Where the sum has no place, the rows of a rank must fit the smallest scratch.
        let placed = x.is_some_and(|x| Some(x) != residual.map(Place::Kept));
        let fits = hidden * dtype.bytes() <= 64;
        let has_output = x.is_none() || (!placed && !fits) || random.below(4) > 0;
        let weight = random.below(ROOM + 1 - hidden);
        (Self { hidden, width, weight, gemma: random.below(3) == 0, residual, x, has_output }, rows)
    }

    /// Whether x lies apart from the residual, so that the sum has a place there.
    fn x_holds_the_sum(&self) -> bool {
        self.x.is_some_and(|x| Some(x) != self.residual.map(Place::Kept))
    }

    /// Whether the sum has no place but the scratch of a kernel that sums and norms.
    pub(crate) fn is_unplaced(&self) -> bool {
        !self.has_output && !self.x_holds_the_sum()
    }

    /// Whether the sum of all rows lies in the output.
    pub(crate) fn sums_in_output(&self) -> bool {
        self.has_output && self.width == self.hidden
    }

    /// Elements of each reduction behind `count` elements of input: rows of a padded output have gaps.
    fn message(&self, count: usize) -> usize {
        if self.sums_in_output() || self.x_holds_the_sum() { count } else { self.hidden }
    }

    fn definition(&self) -> RmsNorm {
        if self.gemma { RmsNorm::gemma(1e-6) } else { RmsNorm::new(1e-6) }
    }

    /// The reduction of `count` elements, each of whose messages `sum` gives by its start and length.
    pub(crate) fn sum<T>(&self, count: usize, sum: impl Fn(usize, usize) -> Vec<T>) -> Vec<T> {
        let message = self.message(count).max(1);
        (0..count).step_by(message).flat_map(|start| sum(start, message)).collect()
    }

    /// x and the output, given the reduction and what the buffers that ranks have in common hold.
    pub(crate) fn effect<T: Sample>(&self, sum: &[T], kept: &[T], weights: &[T]) -> [Vec<T>; 2] {
        let residual = self.residual.map(|start| &kept[start..start + sum.len()]);
        let weight = &weights[self.weight..self.weight + self.hidden];
        of_rows!(T, effect_of(self, sum, residual, weight))
    }

    /// Enqueues the call on input and output. `common` gives elements of the buffers that ranks have in common.
    pub(crate) fn perform<'op, T: Sample, O: Operand<'op, T> + Clone>(
        &self,
        communicator: &Communicator,
        placed: &Placed,
        [input, output]: [O; 2],
        common: impl Fn(usize, usize, usize) -> Ref<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (count, algorithm) = (placed.count, placed.call().options.algorithm);
        let weight = common(WEIGHTS, self.weight, self.hidden);
        let mut rows = RowNorm::new(input.clone(), weight, self.definition()).algorithm(algorithm);
        if let Some(start) = self.residual {
            rows = rows.residual(common(KEPT, start, count));
        }
        rows = match self.x {
            Some(Place::Input) => rows.residual_out(input),
            Some(Place::Kept(start)) => rows.residual_out(common(KEPT, start, count)),
            None => rows,
        };
        if self.has_output {
            rows = rows.output(output).padded_to(self.width);
        }
        communicator.all_reduce_norm(rows, queue)
    }
}

fn effect_of<T: Sample, R: Narrow>(norm: &Norm, sum: &[T], residual: Option<&[T]>, weight: &[T]) -> [Vec<T>; 2] {
    let x = with_residual::<R>(bytemuck::cast_slice(sum), residual.map(bytemuck::cast_slice));
    let weight: Vec<f32> = bytemuck::cast_slice::<T, R>(weight).iter().map(|weight| weight.wide()).collect();
    let RmsNorm { epsilon, weight_offset } = norm.definition();
    let output = normed(&x, Definition { weight: &weight, epsilon, weight_offset, width: norm.width });
    [bytemuck::cast_slice(&x).to_vec(), bytemuck::cast_slice(&output).to_vec()]
}
