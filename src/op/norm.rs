//! All-reduce and RMSNorm: the sum of all inputs, plus a residual, normed row by row.

use std::fmt;
use std::marker::PhantomData;

use super::{
    Algorithm, Call, Extent, Format, Held, Host, InPlace, Kernels, Narrow, Nccl, NormRows, Numbers, Op, Quantisation,
    Quantised, RmsNorm, ScaleLayout, Scaling, Source, share_of_others,
};
use crate::error::{Error, Operation, Result};
use crate::memory::{Operand, Place, View, WithView};
use crate::types::{Dtype, Element};

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
    nccl: Nccl::AllReduce,
    host: Host::Reduced,
    effect: |case, _| case.one(Source::Reduced, 0),
};

/// Rows to sum over all ranks, and what becomes of their sum, for
/// [`Communicator::all_reduce_norm`](crate::Communicator::all_reduce_norm). A row has as many elements as the weight.
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
    /// The rows of `input`, with a `weight` of the rows' type or f32.
    pub fn new<W: Element>(input: impl Operand<'op, T>, weight: impl Operand<'op, W>, norm: RmsNorm) -> Self {
        let weight = Held::new(W::DTYPE, &weight.view_of());
        let input = Held::new(T::DTYPE, &input.view_of());
        let rows = NormRows::new(norm, weight);
        Self { input, output: None, rows, algorithm: Algorithm::Auto, _operands: PhantomData }
    }

    /// Adds `residual`, equal on all ranks and as long as the input, to the sum: x = T(sum + residual).
    pub fn residual(mut self, residual: impl Operand<'op, T>) -> Self {
        self.rows.residual = Some(Held::new(T::DTYPE, &residual.view_of()));
        self
    }

    /// Writes x: the sum with the residual, or the sum itself without one. May be the memory of the residual, or of the
    /// input.
    pub fn residual_out(mut self, sum: impl Operand<'op, T>) -> Self {
        self.rows.residual_out = Some(Held::new(T::DTYPE, &sum.view_of()));
        self
    }

    /// Writes the normed rows. May be the memory of the input.
    pub fn output(mut self, normed: impl Operand<'op, T>) -> Self {
        self.output = Some(Held::new(T::DTYPE, &normed.view_of()));
        self
    }

    /// Writes the normed rows in a narrow format, with one scale for all rows, which one element in device memory holds:
    /// `code = nearest code to (y (1 / scale))`. `values` has the type of [`Narrow::dtype`].
    pub fn static_scale<V: Element>(
        mut self,
        to: Narrow,
        scale: impl Operand<'op, f32>,
        values: impl Operand<'op, V>,
    ) -> Self {
        let format = Format::new(Scaling::Static, to, 0, ScaleLayout::Rows);
        let known = Some(Held::new(Dtype::F32, &scale.view_of()));
        let values = Held::new(V::DTYPE, &values.view_of());
        self.rows.quantised = Some(Quantised { format, values, scales: None, known });
        self
    }

    /// Writes the normed rows in a narrow format, with the scales that they need. [`Quantisation`] tells the types and
    /// lengths of `values` and `scales`, and the formulas.
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

    /// What multiplies the scales of [`Quantisation::Nvfp4`]: one element in device memory, usually 448 times 6 over the
    /// largest size expected.
    pub fn global_scale(mut self, scale: impl Operand<'op, f32>) -> Self {
        self.rows.global_scale = Some(Held::new(Dtype::F32, &scale.view_of()));
        self
    }

    /// Makes each row of the output, and of quantised values, `width` elements wide. Elements behind the row's own are
    /// zeros.
    pub fn padded_to(mut self, width: usize) -> Self {
        self.rows.width = Some(width);
        self
    }

    /// Sums by this algorithm instead of the choice that `explain_norm` prints. The one-shot and the two-shot in sentinel
    /// packets also norm in one kernel, where a row fits their scratch.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    pub(crate) fn call(&self) -> Call<'_> {
        let call = Call::new(&ALL_REDUCE_NORM, T::DTYPE).options(self.algorithm).numbers(Numbers::Norm(&self.rows));
        call.input(self.input.view()).output(self.output.as_ref().map(Held::view))
    }
}

impl<T: Element> fmt::Debug for RowNorm<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = |operand: &Option<Held>| if operand.is_some() { "given" } else { "none" };
        let NormRows { norm, ref residual, ref residual_out, ref quantised, .. } = self.rows;
        let format = quantised.as_ref().map(|quantised| quantised.format);
        let (elems, hidden, width) = (self.input.elems, self.rows.hidden(), self.rows.width());
        write!(
            out,
            "RowNorm({elems} elements of {} in rows of {hidden}, {norm:?}, residual {}, residual_out {}, output {} of width {width}, quantised {format:?})",
            T::DTYPE,
            given(residual),
            given(residual_out),
            given(&self.output),
        )
    }
}

/// The reductions behind a norm, and where they leave the rows.
pub(crate) struct Sums<'v> {
    pub(crate) place: View<'v>,
    /// Elements from one summed row to the next.
    pub(crate) pitch: usize,
    /// Elements of each reduction, in order: all rows, or one row each.
    each: usize,
    count: usize,
}

impl<'v> Call<'v> {
    /// The reductions behind a checked norm. They leave the sum in the output, or in residual_out where that is not the
    /// residual. Rows of a padded output have gaps, so each of them is a reduction of its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no output can hold the sum.
    pub(crate) fn sums(&self, rows: &'v NormRows) -> Result<Sums<'v>> {
        let (elems, hidden, width) = (self.elems(), rows.hidden(), rows.width());
        let residual = rows.residual.as_ref().map(Held::view);
        let held = rows.residual_out.as_ref().map(Held::view);
        // Nothing is written over where there are no rows.
        let apart = |held: &View<'_>| residual.as_ref().is_none_or(|residual| residual.address != held.address);
        let held = held.filter(|held| elems == 0 || apart(held));
        let (place, pitch) = match (&self.output, held) {
            (Some(output), _) if width == hidden => (output.clone(), hidden),
            (_, Some(held)) => (held, hidden),
            (Some(output), None) => (output.clone(), width),
            (None, None) => {
                let reason = "the sum needs a place: ask for an output, or for a residual_out that is not the residual";
                let what = match rows.residual_out {
                    Some(_) => "a norm that writes over its residual, and no output",
                    None => "a norm that writes quantised values alone",
                };
                return Err(Error::unsupported(what, reason));
            }
        };
        match pitch == hidden || elems == 0 {
            true => Ok(Sums { place, pitch, each: elems, count: 1 }),
            false => Ok(Sums { place, pitch, each: hidden, count: elems / hidden }),
        }
    }

    /// Reduction `number` of the sums.
    fn sum<'a>(&'a self, sums: &'a Sums<'v>, number: usize) -> Call<'a> {
        let (input, place) = match &self.input {
            Some(input) if sums.count > 1 || sums.pitch > sums.each => {
                let part = |view: &View<'a>, start: usize| {
                    let part = view.part(start..start + sums.each, self.dtype);
                    // A graph has room to register few addresses, and these may be many.
                    let place = if part.place == Place::Plain { Place::Pushed } else { part.place };
                    View { place, ..part }
                };
                (part(input, number * sums.each), part(&sums.place, number * sums.pitch))
            }
            input => return self.with_operands(input.clone(), Some(sums.place.clone())),
        };
        self.with_operands(Some(input), Some(place))
    }

    fn with_operands<'a>(&'a self, input: Option<View<'a>>, output: Option<View<'a>>) -> Call<'a> {
        let call = Call::new(self.op, self.dtype).options(self.options).numbers(self.numbers);
        call.input(input).output(output)
    }

    /// Runs all reductions of the sums, in order.
    pub(crate) fn each_sum(&self, sums: &Sums<'v>, mut run: impl FnMut(&Call<'_>) -> Result<()>) -> Result<()> {
        (0..sums.count).try_for_each(|number| run(&self.sum(sums, number)))
    }
}
