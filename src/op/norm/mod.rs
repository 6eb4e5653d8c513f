//! Sum and norm: the sum of all inputs, plus a residual, normed row by row.

mod check;
mod steps;

use std::fmt;
use std::marker::PhantomData;

use super::{
    Algorithm, Call, Extent, Held, Host, InPlace, Kernels, Narrow, NcclForm, Norm, NormRows, Numbers, Op, Quantisation,
    Quantised, REDUCE_SCATTER, RowFormat, ScaleGroup, ScaleLayout, Source, share_of_others,
};
use crate::error::Operation;
use crate::memory::{Operand, WithView};
use crate::types::{Dtype, Element};

pub(crate) use check::check_lengths;
pub(crate) use steps::{LocalRows, NormStep, NormSteps};

/// All-reduce of rows, each of which is then normed. Backends reduce as in an all-reduce; the effect is that reduction.
pub static ALL_REDUCE_NORM: Op = Op {
    operation: Operation::AllReduceNorm,
    summary: "The sum of all inputs and a residual, normed row by row, in every rank",
    input: Extent::ROWS,
    output: Extent::ROWS,
    in_place: InPlace::Same,
    along: false,
    low_contention: false,
    bus_factor: |world_size| 2.0 * share_of_others(world_size),
    kernels: Kernels::AllReduce,
    nccl: NcclForm::AllReduce,
    host: Host::Reduced,
    effect: |case, _| case.one(Source::Reduced, 0),
};

/// Reduce-scatter of rows, each of which is then normed: a rank has all operands but the input for its own share of the
/// rows. Backends reduce as in a reduce-scatter; the effect is that reduction.
pub static REDUCE_SCATTER_NORM: Op = Op {
    operation: Operation::ReduceScatterNorm,
    summary: "Each rank's rows of the sum of all inputs and a residual, normed",
    input: Extent::ROWS,
    output: Extent::OWN_ROWS,
    in_place: InPlace::OwnPart,
    along: false,
    low_contention: false,
    bus_factor: share_of_others,
    kernels: REDUCE_SCATTER.kernels,
    nccl: NcclForm::ReduceScatter,
    host: Host::ReducedStrips,
    effect: |case, rank| case.scattered(Source::Reduced, rank),
};

/// Reduce-scatter of rows, each of which is then normed and gathered: a rank has the residual for its own share of the
/// rows, and the output for all. Backends reduce as in a reduce-scatter; the effect is the reduction of all rows.
pub static REDUCE_SCATTER_NORM_ALL_GATHER: Op = Op {
    operation: Operation::ReduceScatterNormAllGather,
    summary: "The sum of all inputs and a residual that stays scattered, normed row by row, in every rank",
    output: Extent::ROWS,
    in_place: InPlace::Same,
    bus_factor: |world_size| 2.0 * share_of_others(world_size),
    effect: |case, _| case.all_parts(Source::Reduced),
    ..REDUCE_SCATTER_NORM
};

/// Rows to sum over all ranks, and the operands of their norm, for
/// [`ProcessGroup::all_reduce_norm`](crate::ProcessGroup::all_reduce_norm) and its scattered forms. A row has as many
/// elements as the weight.
///
/// ```
/// # use symmetra::*;
/// # use symmetra::half::bf16;
/// /// The end of a layer: `hidden` is this rank's part of the sum, and `residual` the stream of activations.
/// fn end(
///     communicator: &Communicator,
///     hidden: &SymmetricBuffer<bf16>,
///     residual: &DeviceBuffer<bf16>,
///     weight: &DeviceBuffer<bf16>,
///     stream: &Stream,
/// ) -> Result<()> {
///     let rows = RowNorm::new(hidden, weight, RmsNorm::new(1e-6));
///     communicator.all_reduce_norm(rows.residual(residual).residual_out(residual).output(hidden), stream)
/// }
/// ```
#[must_use = "rows are normed only by a call that takes them"]
pub struct RowNorm<'op, T: Element> {
    input: Held,
    output: Option<Held>,
    rows: NormRows,
    algorithm: Algorithm,
    _operands: PhantomData<&'op T>,
}

impl<'op, T: Element> RowNorm<'op, T> {
    /// The rows of `input`, with a `weight` of the rows' type or f32. `norm`: [`RmsNorm`](crate::RmsNorm) or
    /// [`LayerNorm`](crate::LayerNorm).
    pub fn new<W: Element>(input: impl Operand<'op, T>, weight: impl Operand<'op, W>, norm: impl Into<Norm>) -> Self {
        let weight = Held::new(W::DTYPE, &weight.view_of());
        let input = Held::new(T::DTYPE, &input.view_of());
        let rows = NormRows::new(norm, weight);
        Self { input, output: None, rows, algorithm: Algorithm::Auto, _operands: PhantomData }
    }

    /// Adds `bias` to every row of a [`LayerNorm`](crate::LayerNorm), before the row is rounded to its type. The bias has
    /// the type and length of the weight, and equal contents on every rank.
    pub fn bias<W: Element>(mut self, bias: impl Operand<'op, W>) -> Self {
        self.rows.bias = Some(Held::new(W::DTYPE, &bias.view_of()));
        self
    }

    /// Adds `residual` to the sum: x = T(sum + residual). The residual is as long as the input and equal on all ranks. In
    /// scattered forms the residual has the rows of this rank's share.
    pub fn residual(mut self, residual: impl Operand<'op, T>) -> Self {
        self.rows.residual = Some(Held::new(T::DTYPE, &residual.view_of()));
        self
    }

    /// Writes x: the sum with the residual, or the sum alone if there is no residual. May be the memory of the residual, or
    /// of the input. In calls without an output, and in calls with a padded output, either all ranks write x over the
    /// residual or none does, because the place of the sum decides how the ranks exchange the sum.
    pub fn residual_out(mut self, sum: impl Operand<'op, T>) -> Self {
        self.rows.residual_out = Some(Held::new(T::DTYPE, &sum.view_of()));
        self
    }

    /// Writes the normed rows. May be the memory of the input.
    pub fn output(mut self, normed: impl Operand<'op, T>) -> Self {
        self.output = Some(Held::new(T::DTYPE, &normed.view_of()));
        self
    }

    /// Writes the normed rows in a narrow format, with one scale for all rows. `scale` is one element in device memory, and
    /// `value = nearest value of the format to (y (1 / scale))`. `values` has the type of [`Narrow::dtype`].
    pub fn static_scale<V: Element>(
        mut self,
        to: Narrow,
        scale: impl Operand<'op, f32>,
        values: impl Operand<'op, V>,
    ) -> Self {
        let format = RowFormat::new(ScaleGroup::Static, to, 0, ScaleLayout::Rows);
        let known = Some(Held::new(Dtype::F32, &scale.view_of()));
        let values = Held::new(V::DTYPE, &values.view_of());
        self.rows.quantised = Some(Quantised { format, values, scales: None, known });
        self
    }

    /// Writes the normed rows in a narrow format, with computed scales. [`Quantisation`] states the types and lengths of
    /// `values` and `scales`, and the formulas. Both operands have as many rows as the output.
    pub fn quantised<V: Element, S: Element>(
        mut self,
        how: Quantisation,
        values: impl Operand<'op, V>,
        scales: impl Operand<'op, S>,
    ) -> Self {
        let values = Held::new(V::DTYPE, &values.view_of());
        let scales = Some(Held::new(S::DTYPE, &scales.view_of()));
        self.rows.quantised = Some(Quantised { format: how.into(), values, scales, known: None });
        self
    }

    /// The factor of the scales of [`Quantisation::Nvfp4`]: one element in device memory, usually 448 times 6 divided by
    /// the largest expected magnitude.
    pub fn global_scale(mut self, scale: impl Operand<'op, f32>) -> Self {
        self.rows.global_scale = Some(Held::new(Dtype::F32, &scale.view_of()));
        self
    }

    /// Makes each row of the output, and of quantised values, `width` elements wide, up to 2^31. Elements after the normed
    /// row are zeros.
    pub fn padded_to(mut self, width: usize) -> Self {
        self.rows.width = Some(width);
        self
    }

    /// Sums by this algorithm instead of the choice that `explain_norm` prints. [`Algorithm::OneShotSentinel`] and
    /// [`Algorithm::TwoShotSentinel`] sum and norm in one kernel if a row fits their scratch.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// The call of an operation on these rows.
    pub(crate) fn call(&self, op: &'static Op) -> Call<'_> {
        let call = Call::new(op, T::DTYPE).options(self.algorithm).numbers(Numbers::Norm(&self.rows));
        call.input(self.input.view()).output(self.output.as_ref().map(Held::view))
    }
}

impl<T: Element> fmt::Debug for RowNorm<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = |operand: &Option<Held>| if operand.is_some() { "given" } else { "none" };
        let NormRows { norm, ref bias, ref residual, ref residual_out, ref quantised, .. } = self.rows;
        let format = quantised.as_ref().map(|quantised| quantised.format);
        let (elems, hidden, width) = (self.input.elems, self.rows.hidden(), self.rows.width());
        write!(
            out,
            "RowNorm({elems} elements of {} in rows of {hidden}, {norm:?}, bias {}, residual {}, residual_out {}, output {} of width {width}, quantised {format:?})",
            T::DTYPE,
            given(bias),
            given(residual),
            given(residual_out),
            given(&self.output),
        )
    }
}
