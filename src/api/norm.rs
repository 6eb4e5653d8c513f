//! Norms of summed rows.

use super::both;
use crate::collective::Communicator;
use crate::environment::Coordinator;
use crate::error::Result;
use crate::op::{ALL_REDUCE_NORM, REDUCE_SCATTER_NORM, REDUCE_SCATTER_NORM_ALL_GATHER, RowNorm};
use crate::stream::Queue;
use crate::types::Element;

both! {
    /// Sums rows over all ranks, adds a residual and norms each row (RMSNorm). Enqueues and returns.
    ///
    /// With T the rows' type, T(v) a value rounded to T, and every other step rounded to f32:
    /// `s = T(sum of all ranks)`, as [`all_reduce`](Self::all_reduce) gives it; `x = T(s + residual)`, or `s` without a
    /// residual; `residual_out = x`; `r = 1 / sqrt(sum of x x / length + epsilon)`;
    /// `output = T((x (weight + weight_offset)) r)`. The squares of a row are added in an order that depends on the
    /// row's length alone. So a call has the bits of an all-reduce and a norm one after the other, and the bits of a
    /// row depend on nothing but its own values, the residual, the weight and the order of the sum over ranks:
    /// [`Determinism::Exact`](crate::Determinism::Exact) fixes that order. Where a
    /// [`Coordinator`](crate::environment::Coordinator) sends all-reduces through a codec, the sum goes by the codec too, if
    /// the sum has a place in one piece.
    ///
    /// [`RowNorm::quantised`] and [`RowNorm::static_scale`] also write y, as `output` has it, in a narrow format:
    /// [`Quantisation`](crate::Quantisation) has the formulas.
    ///
    /// Rows are f16, bf16 or f32. A row has 1 to 2^20 elements; any number of rows, also 0; any element-aligned
    /// address. `residual` and `weight` hold the same on every rank. At least one of `output`, `residual_out` and
    /// quantised values is given. These may be the same memory: `residual` and `residual_out`; `input` and `output`; `input` and
    /// `residual_out`. Operands may not overlap otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for other types, if a named algorithm cannot serve the call,
    /// and if the sum has no place (no `output`, and no `residual_out` but the residual) where no kernel that sums and
    /// norms at once serves: on other backends, by other algorithms, and for rows that do not fit its scratch;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit, no output, an epsilon
    /// that is below 0 or NaN, an output narrower than a row or wider than 2^31, a format that there is not or whose
    /// operands have other types, and operands that overlap otherwise or are of another device; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn all_reduce_norm<'op, T: Element>(&self, rows: RowNorm<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.run(&rows.call(&ALL_REDUCE_NORM), &queue)
    }

    /// Sums rows over all ranks, and adds a residual to this rank's share of the rows and norms it: part r of the rows
    /// for rank r. The bits are those of [`all_reduce_norm`](Self::all_reduce_norm) under
    /// [`Determinism::Exact`](crate::Determinism::Exact), or of a [`reduce_scatter`](Self::reduce_scatter), an addition
    /// and a norm. Enqueues and returns.
    ///
    /// The input has the rows of all ranks; residual, residual_out and output have those of this rank's share, which is
    /// as many for every rank. `weight` holds the same on every rank. These may be the same memory: `residual` and
    /// `residual_out`; this rank's part of `input`, and `output` or `residual_out`.
    ///
    /// # Errors
    /// Those of [`all_reduce_norm`](Self::all_reduce_norm);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the number of rows is no multiple of the world
    /// size; [`Error::Unsupported`](crate::Error::Unsupported) for a named algorithm other than
    /// [`TwoShotSentinel`](crate::Algorithm::TwoShotSentinel), or if its scratch has no room for a row.
    pub fn reduce_scatter_norm<'op, T: Element>(&self, rows: RowNorm<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.run(&rows.call(&REDUCE_SCATTER_NORM), &queue)
    }

    /// Sums rows over all ranks, adds a residual that stays scattered, norms each row, and gathers the normed rows: an
    /// [`all_reduce_norm`](Self::all_reduce_norm) in which a rank has residual and residual_out for its own share of the
    /// rows alone. The bits are those of [`reduce_scatter_norm`](Self::reduce_scatter_norm) and an
    /// [`all_gather`](Self::all_gather). Enqueues and returns.
    ///
    /// Input and output have the rows of all ranks; residual and residual_out have those of this rank's share: part r
    /// of the rows for rank r, as many for every rank. `weight` holds the same on every rank. These may be the same
    /// memory: `residual` and `residual_out`; `input` and `output`; this rank's part of `input` and `residual_out`.
    ///
    /// # Errors
    /// Those of [`reduce_scatter_norm`](Self::reduce_scatter_norm), but
    /// [`TwoShotZeroCopy`](crate::Algorithm::TwoShotZeroCopy) serves too, where peers can address input, output, codes
    /// and scales, and where there is an output or rows have at most 1024 packets of 16 bytes.
    /// [`Error::Unsupported`](crate::Error::Unsupported) also for codes without an output where no one kernel serves the call.
    pub fn reduce_scatter_norm_all_gather<'op, T: Element>(
        &self,
        rows: RowNorm<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(&rows.call(&REDUCE_SCATTER_NORM_ALL_GATHER), &queue)
    }
}
