//! Norms of summed rows.

use super::both;
use crate::collective::Communicator;
use crate::environment::Coordinator;
use crate::error::Result;
use crate::op::RowNorm;
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
    /// [`Determinism::Exact`](crate::Determinism::Exact) fixes that order.
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
    /// below 0, an output narrower than a row, a format that there is not or whose operands have other types, and
    /// operands that overlap otherwise or are of another device; the
    /// group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn all_reduce_norm<'op, T: Element>(&self, rows: RowNorm<'op, T>, queue: impl Queue<'op>) -> Result<()> {
        self.run(&rows.call(), &queue)
    }
}
