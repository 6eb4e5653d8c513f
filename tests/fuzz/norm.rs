//! A call that sums rows and norms them: its operands other than input and output, their effect, and the call.

use reference::element::Real;
use reference::norm::{biased, padded, with_residual};
use serde::{Deserialize, Serialize};
use symmetra::op::{ALL_REDUCE_NORM, Op, REDUCE_SCATTER_NORM_ALL_GATHER};
use symmetra::{Communicator, Dtype, Element, LayerNorm, Operand, Operation, Queue, Ref, Result, RmsNorm, RowNorm};

use crate::narrow::{Memory, Narrow};
use crate::program::Placed;
use crate::support::Sample;

/// The plain buffer of a bench for residuals and x of scattered rows: every rank has its own.
pub(crate) const SHARES: usize = 4;
/// The plain buffer of a bench for residuals and x of rows that all ranks have: it holds the same on every rank.
pub(crate) const KEPT: usize = 7;
/// The plain buffer of a bench for weights and biases of its type: it holds the same on every rank.
pub(crate) const WEIGHTS: usize = 8;
/// The plain buffer of a bench for weights and biases in f32: it holds the same on every rank.
pub(crate) const WIDE: usize = 9;

/// Where a call writes x, the sum with the residual.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The memory of the input, or of this rank's rows of the input.
    Input,
    /// This many elements after the start of the buffer that [`Norm::kept`] names.
    Kept(usize),
}

/// The operand that LayerNorm alone has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    /// First element of the bias, in the buffer of the weight.
    pub(crate) bias: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Norm {
    /// Elements of a row.
    pub(crate) hidden: usize,
    /// Elements of a row of the output.
    pub(crate) width: usize,
    /// First element of the weight.
    pub(crate) weight: usize,
    /// Whether the weight is f32, for rows of any type.
    pub(crate) wide: bool,
    pub(crate) gemma: bool,
    /// `None`: RMSNorm, as in older programs.
    pub(crate) layer: Option<Layer>,
    /// First element of the residual.
    pub(crate) residual: Option<usize>,
    pub(crate) x: Option<Place>,
    pub(crate) has_output: bool,
    pub(crate) narrow: Option<Narrow>,
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

/// The number of parts of the rows of an operation.
pub(crate) fn parts(op: &Op, world: usize) -> usize {
    if *op == ALL_REDUCE_NORM { 1 } else { world }
}

/// The effect of a call on all rows.
pub(crate) struct Effect<T> {
    pub(crate) x: Vec<T>,
    pub(crate) output: Vec<T>,
    /// The output in single precision.
    pub(crate) y: Vec<f32>,
}

/// Operands other than input and output.
pub(crate) struct Apart<'op> {
    pub(crate) wide: Ref<'op, f32>,
    pub(crate) codes: Option<&'op Memory>,
}

impl Norm {
    /// Whether an operation of rows takes elements of a type.
    pub(crate) fn takes(dtype: Dtype) -> bool {
        matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32)
    }

    /// The buffer for residual and x.
    pub(crate) fn kept(op: &Op) -> usize {
        if *op == ALL_REDUCE_NORM { KEPT } else { SHARES }
    }

    /// Whether x and the residual are different memory, so that the sum has a place in x.
    pub(crate) fn x_holds_the_sum(&self) -> bool {
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

    /// Whether an operation may have these outputs. `fits`: whether the scratch has room for a row.
    pub(crate) fn is_served(&self, op: &Op, fits: bool) -> bool {
        let writes = self.has_output || self.x.is_some() || self.narrow.is_some();
        writes
            && match self.narrow {
                // Where x is gathered, its rows need a place in every rank.
                Some(_) if *op == REDUCE_SCATTER_NORM_ALL_GATHER => self.has_output || fits,
                _ => !self.is_unplaced() || fits,
            }
    }

    /// Elements of each reduction for `count` elements of input: rows of a padded output have gaps.
    fn message(&self, count: usize) -> usize {
        if self.sums_in_output() || self.x_holds_the_sum() { count } else { self.hidden }
    }

    fn definition(&self) -> symmetra::Norm {
        let weight_offset = if self.gemma { 1.0 } else { 0.0 };
        match self.layer {
            Some(_) => LayerNorm::new(1e-6).weight_offset(weight_offset).into(),
            None => RmsNorm::new(1e-6).weight_offset(weight_offset).into(),
        }
    }

    /// First element of the bias, in the buffer of the weight.
    pub(crate) fn bias(&self) -> Option<usize> {
        self.layer.as_ref()?.bias
    }

    /// Rows of the operands for normed rows.
    pub(crate) fn normed_rows(&self, placed: &Placed, world: usize) -> usize {
        let call = placed.call();
        call.elems(call.op.output, 0, world) / self.hidden
    }

    /// The reduction of `count` elements, each of whose messages `sum` gives by its start and length.
    pub(crate) fn sum<T>(&self, count: usize, sum: impl Fn(usize, usize) -> Vec<T>) -> Vec<T> {
        let message = self.message(count).max(1);
        (0..count).step_by(message).flat_map(|start| sum(start, message)).collect()
    }

    /// The effect on all rows, given the reduction, the residual of all rows, and the buffers of weights.
    pub(crate) fn effect<T: Sample>(
        &self,
        sum: &[T],
        residual: Option<&[T]>,
        weights: &[T],
        wide: &[f32],
    ) -> Effect<T> {
        let row = |start: usize| {
            let own = start..start + self.hidden;
            if self.wide { wide[own].to_vec() } else { of_rows!(T, single(&weights[own])) }
        };
        let (weight, bias) = (row(self.weight), self.bias().map(row));
        of_rows!(T, effect_of(self, sum, residual, &weight, bias.as_deref()))
    }

    /// Enqueues the call on input and output. `common` returns elements of a buffer as plain memory.
    pub(crate) fn perform<'op, T: Sample, O: Operand<'op, T> + Clone>(
        &self,
        communicator: &Communicator,
        placed: &Placed,
        [input, output]: [O; 2],
        common: impl Fn(usize, usize, usize) -> Ref<'op, T>,
        apart: Apart<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (call, [rank, world]) = (placed.call(), [communicator.rank(), communicator.world_size()]);
        let (parts, kept) = (parts(call.op, world), Self::kept(call.op));
        let share = call.count / parts;
        let rows = match self.wide {
            true => {
                let row = |start: usize| apart.wide.slice(start..start + self.hidden);
                let rows = RowNorm::new(input.clone(), row(self.weight)?, self.definition());
                with_bias(rows, self.bias().map(row).transpose()?)
            }
            false => {
                let row = |start: usize| common(WEIGHTS, start, self.hidden);
                with_bias(RowNorm::new(input.clone(), row(self.weight), self.definition()), self.bias().map(row))
            }
        };
        let mut rows = rows.algorithm(call.options.algorithm).padded_to(self.width);
        if let Some(start) = self.residual {
            rows = rows.residual(common(kept, start, share));
        }
        rows = match self.x {
            Some(Place::Input) if parts == 1 => rows.residual_out(input),
            Some(Place::Input) => {
                let start = call.input_start(rank) + rank * share;
                rows.residual_out(common(placed.buffer(usize::from(call.reads_output())), start, share))
            }
            Some(Place::Kept(start)) => rows.residual_out(common(kept, start, share)),
            None => rows,
        };
        if self.has_output {
            rows = rows.output(output);
        }
        if let Some(codes) = apart.codes {
            rows = codes.asked(rows)?;
        }
        match call.op.operation {
            Operation::AllReduceNorm => communicator.all_reduce_norm(rows, queue),
            Operation::ReduceScatterNorm => communicator.reduce_scatter_norm(rows, queue),
            _ => communicator.reduce_scatter_norm_all_gather(rows, queue),
        }
    }
}

fn single<T: Sample, R: Real>(values: &[T]) -> Vec<f32> {
    bytemuck::cast_slice::<T, R>(values).iter().map(|value| value.single()).collect()
}

fn with_bias<'op, T: Element, W: Element>(rows: RowNorm<'op, T>, bias: Option<Ref<'op, W>>) -> RowNorm<'op, T> {
    if let Some(bias) = bias { rows.bias(bias) } else { rows }
}

fn effect_of<T: Sample, R: Real>(
    norm: &Norm,
    sum: &[T],
    residual: Option<&[T]>,
    weight: &[f32],
    bias: Option<&[f32]>,
) -> Effect<T> {
    let x = with_residual::<R>(bytemuck::cast_slice(sum), residual.map(bytemuck::cast_slice));
    let output = padded(&biased(&x, weight, bias, norm.definition()), norm.hidden, norm.width);
    let y = output.iter().map(|y| y.single()).collect();
    Effect { x: bytemuck::cast_slice(&x).to_vec(), output: bytemuck::cast_slice(&output).to_vec(), y }
}
