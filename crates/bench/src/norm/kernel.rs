//! The step that norms: a call of all ranks that also sums, or the kernel of one rank after a sum.

use std::ops::Range;

use symmetra::{Algorithm, AnyQueue, Communicator, RowNorm, SymmetricSlice};

use super::NORM;
use super::operands::Operands;
use harness::comparison::work::Work;
use harness::form::Form;
use reference::element::Real;

/// The output of a norm in addition to the residual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Written {
    /// Normed rows.
    Rows,
    /// Only quantised rows.
    Codes,
}

/// A norm, with the residual in place.
pub(super) struct Norm<'s, T: Real> {
    /// All ranks, or only this rank.
    pub(super) communicator: &'s Communicator,
    pub(super) op: Form,
    pub(super) algorithm: Algorithm,
    pub(super) input: SymmetricSlice<'s, T>,
    /// Numbers of the rows that are written.
    pub(super) rows: Range<usize>,
    pub(super) written: Written,
    /// Whether the sum with the residual goes to the buffer of the sum and leaves the residual as it is.
    pub(super) keeps_apart: bool,
    pub(super) operands: &'s Operands<T>,
}

impl<'s, T: Real> Norm<'s, T> {
    pub(super) fn work(self) -> Work<'s> {
        Box::new(move |queue| self.call(queue))
    }

    fn call(&self, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let Operands { sum, output, residual, weight, codes, places, .. } = self.operands;
        let rows = RowNorm::new(self.input, weight, NORM).residual(residual).algorithm(self.algorithm);
        let rows = match self.keeps_apart {
            true => rows.residual_out(sum.slice(self.operands.elems(&places.kept))?),
            false => rows.residual_out(residual),
        };
        let rows = match (self.written, codes) {
            (Written::Codes, Some(codes)) => {
                let first = places.normed.start;
                codes.asked_as(self.rows.start - first..self.rows.end - first, rows.padded_to(places.width))?
            }
            _ => rows.output(output.slice(self.operands.elems(&self.rows))?),
        };
        self.op.enqueue(self.communicator, rows, queue)
    }
}
