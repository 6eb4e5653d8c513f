//! Norms of summed rows.

use crate::backend::ProcessGroup;
use crate::error::Result;
use crate::op::{ALL_REDUCE_NORM, REDUCE_SCATTER_NORM, REDUCE_SCATTER_NORM_ALL_GATHER, RowNorm};
use crate::stream::{Queue, Target};
use crate::types::Element;

impl ProcessGroup {
    /// Sums rows over all ranks, adds a residual and norms each row, by RMSNorm or LayerNorm. Enqueues and returns.
    ///
    /// With T the rows' type, T(v) a value rounded to T, and every other step rounded to f32:
    /// `s = T(sum of all ranks)`, as in [`all_reduce`](Self::all_reduce); `x = T(s + residual)`, or `s` without a
    /// residual; `residual_out = x`; `r = 1 / sqrt(sum of x x / length + epsilon)`;
    /// `output = T((x (weight + weight_offset)) r)`. [`LayerNorm`](crate::LayerNorm) has `m = sum of x / length`,
    /// `d = x - m`, `r = 1 / sqrt(sum of d d / length + epsilon)`, and
    /// `output = T((d (weight + weight_offset)) r + bias)`. The values of a row are added in an order that depends only on
    /// the row's length. So a call has the bits of an all-reduce followed by a norm. The bits of a row depend only on its
    /// values, the residual, the weight, the bias and the order of the sum over ranks, which
    /// [`Determinism::Exact`](crate::Determinism::Exact) fixes. If a
    /// [`Coordinator`](crate::environment::Coordinator) sends all-reduces through a codec, the codec also carries the sum of
    /// a norm, provided that the sum has a contiguous place.
    ///
    /// [`RowNorm::quantised`] and [`RowNorm::static_scale`] also write y, the value of `output`, in a narrow format.
    /// [`Quantisation`](crate::Quantisation) states the formulas.
    ///
    /// Rows are f16, bf16 or f32. A row has 1 to 2^20 elements; any number of rows, including 0; any element-aligned
    /// address. `residual`, `weight` and `bias` are equal on every rank. At least one of `output`, `residual_out` and quantised
    /// values is given. These may be the same memory: `residual` and `residual_out`; `input` and `output`; `input` and
    /// `residual_out`. Operands may not overlap otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for other types, for a bias of another type than the weight or of
    /// RMSNorm, and if a named algorithm cannot serve the call.
    /// Also if the sum has no place (no `output`, and no `residual_out` other than the residual) and no kernel that both
    /// sums and norms serves the call: on other backends, by other algorithms, and for rows that do not fit its scratch.
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit, no output, an epsilon
    /// that is below 0 or NaN, an output narrower than a row or wider than 2^31, an unsupported format, operands of
    /// quantised values of another type, and operands that overlap otherwise or are of another device. The
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn all_reduce_norm<'op, T: Element>(&self, rows: RowNorm<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.calls.run(&rows.call(&ALL_REDUCE_NORM), Target::of(&queue))
    }

    /// Sums rows over all ranks, adds a residual to this rank's share of the rows and norms the share. The share of rank r
    /// is part r of the rows. The bits are equal to [`all_reduce_norm`](Self::all_reduce_norm) under
    /// [`Determinism::Exact`](crate::Determinism::Exact), and to a [`reduce_scatter`](Self::reduce_scatter), an addition
    /// and a norm. Enqueues and returns.
    ///
    /// The input has the rows of all ranks. Residual, residual_out and output have the rows of this rank's share, which
    /// has the same size on every rank. `weight` is equal on every rank. These may be the same memory: `residual` and
    /// `residual_out`; this rank's part of `input`, and `output` or `residual_out`.
    ///
    /// # Errors
    /// The errors of [`all_reduce_norm`](Self::all_reduce_norm);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the number of rows is not a multiple of the world
    /// size; [`Error::Unsupported`](crate::Error::Unsupported) for a named algorithm other than
    /// [`TwoShotSentinel`](crate::Algorithm::TwoShotSentinel), or if a row does not fit its scratch.
    pub fn reduce_scatter_norm<'op, T: Element>(&self, rows: RowNorm<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.calls.run(&rows.call(&REDUCE_SCATTER_NORM), Target::of(&queue))
    }

    /// Sums rows over all ranks, adds a residual that stays scattered, norms each row, and gathers the normed rows: an
    /// [`all_reduce_norm`](Self::all_reduce_norm) in which a rank has residual and residual_out only for its own share of
    /// the rows. The bits are equal to [`reduce_scatter_norm`](Self::reduce_scatter_norm) followed by an
    /// [`all_gather`](Self::all_gather). Enqueues and returns.
    ///
    /// Input and output have the rows of all ranks. Residual and residual_out have the rows of this rank's share: part r
    /// of the rows for rank r, with the same size on every rank. `weight` is equal on every rank. These may be the same
    /// memory: `residual` and `residual_out`; `input` and `output`; this rank's part of `input` and `residual_out`.
    ///
    /// # Errors
    /// The errors of [`reduce_scatter_norm`](Self::reduce_scatter_norm). In addition to
    /// [`TwoShotSentinel`](crate::Algorithm::TwoShotSentinel), the algorithm
    /// [`TwoShotZeroCopy`](crate::Algorithm::TwoShotZeroCopy) is supported if peers can address input, output, quantised
    /// values and scales, and if there is an output or rows have at most 1024 packets of 16 bytes.
    /// [`Error::Unsupported`](crate::Error::Unsupported) also for quantised values without an output if no single kernel
    /// serves the call.
    pub fn reduce_scatter_norm_all_gather<'op, T: Element>(
        &self,
        rows: RowNorm<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.calls.run(&rows.call(&REDUCE_SCATTER_NORM_ALL_GATHER), Target::of(&queue))
    }
}
