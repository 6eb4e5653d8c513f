//! The step that norms: a call of all ranks that also sums, or the kernel of one rank after a sum.

use std::ops::Range;

use symmetra::{Algorithm, AnyQueue, Communicator, RowNorm, SymmetricSlice};

use super::operands::NormOperands;
use harness::comparison::work::Work;
use harness::form::Form;
use reference::element::Real;

/// The output of a norm in addition to the residual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NormOutput {
    /// Normed rows.
    Rows,
    /// Only quantised rows.
    Codes,
}

/// A norm, with the residual in place.
pub(super) struct NormKernel<'s, T: Real> {
    /// All ranks, or only this rank.
    pub(super) communicator: &'s Communicator,
    pub(super) op: Form,
    pub(super) norm: symmetra::Norm,
    pub(super) algorithm: Algorithm,
    pub(super) input: SymmetricSlice<'s, T>,
    /// Numbers of the rows that are written.
    pub(super) rows: Range<usize>,
    pub(super) written: NormOutput,
    /// Whether the sum with the residual goes to the buffer of the sum and leaves the residual as it is.
    pub(super) keeps_apart: bool,
    pub(super) operands: &'s NormOperands<T>,
}

impl<'s, T: Real> NormKernel<'s, T> {
    pub(super) fn work(self) -> Work<'s> {
        Box::new(move |queue| self.call(queue))
    }

    fn call(&self, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let NormOperands { sum, output, residual, weight, bias, codes, places, .. } = self.operands;
        let rows = RowNorm::new(self.input, weight, self.norm).residual(residual).algorithm(self.algorithm);
        let rows = if let Some(bias) = bias { rows.bias(bias) } else { rows };
        let rows = match self.keeps_apart {
            true => rows.residual_out(sum.slice(self.operands.elems(&places.kept))?),
            false => rows.residual_out(residual),
        };
        let rows = match (self.written, codes) {
            (NormOutput::Codes, Some(codes)) => {
                let first = places.normed.start;
                codes.asked_as(self.rows.start - first..self.rows.end - first, rows.padded_to(places.width))?
            }
            _ => rows.output(output.slice(self.operands.elems(&self.rows))?),
        };
        self.op.enqueue(self.communicator, rows, queue)
    }
}
