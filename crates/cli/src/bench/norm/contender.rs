//! What races: a call that sums and norms, an all-reduce and a kernel that norms, or the all-reduce alone.

use symmetra::{Algorithm, Capture, Communicator, DeviceBuffer, Queue, RowNorm, Stream, SymmetricBuffer};

use super::NORM;
use super::expected::Inputs;
use crate::all_reduce::checksum;
use crate::bench::side::Side;
use crate::bench::turns::{Contender, Verdict};
use crate::norm::reference::Rows;

/// The operands of a rank.
pub(super) struct Operands<T: Rows> {
    pub(super) input: SymmetricBuffer<T>,
    /// What an all-reduce writes for a kernel that norms.
    pub(super) sum: SymmetricBuffer<T>,
    pub(super) output: SymmetricBuffer<T>,
    /// Summed in place.
    pub(super) residual: DeviceBuffer<T>,
    pub(super) weight: DeviceBuffer<T>,
}

impl<T: Rows> Operands<T> {
    pub(super) fn new(
        communicator: &Communicator,
        elems: usize,
        weight: &[T],
        stream: &Stream,
    ) -> symmetra::Result<Self> {
        Ok(Self {
            input: communicator.symmetric(elems)?,
            sum: communicator.symmetric(elems)?,
            output: communicator.symmetric(elems)?,
            residual: DeviceBuffer::new(communicator.device(), elems)?,
            weight: DeviceBuffer::from_slice(weight, stream)?,
        })
    }
}

/// How an operation runs.
pub(super) enum Steps<'s, T> {
    /// One call of the communicator of all ranks.
    Call(&'s Communicator, Algorithm),
    /// An all-reduce, then the norm of the sum by the communicator of this rank alone, if there is to be one.
    Sum(Box<dyn Side<'s, T> + 's>, Option<&'s Communicator>),
}

/// One way, the operands, and what it must leave.
pub(super) struct Racer<'s, T: Rows> {
    pub(super) steps: Steps<'s, T>,
    /// The algorithm of the sum. None: one that rounds in an unknown order.
    pub(super) sums_by: Option<Algorithm>,
    pub(super) operands: &'s Operands<T>,
    pub(super) inputs: &'s Inputs<T>,
}

impl<'s, T: Rows> Racer<'s, T> {
    /// The norm of rows, with the residual in place.
    fn norm(&self, rows: &'s SymmetricBuffer<T>) -> RowNorm<'s, T> {
        let Operands { output, residual, weight, .. } = self.operands;
        RowNorm::new(rows, weight, NORM).residual(residual).residual_out(residual).output(output)
    }

    fn enqueue_norm(&self, queue: impl Queue<'s>) -> symmetra::Result<()> {
        match &self.steps {
            Steps::Call(all, algorithm) => {
                all.all_reduce_norm(self.norm(&self.operands.input).algorithm(*algorithm), queue)
            }
            Steps::Sum(_, alone) => {
                alone.map_or(Ok(()), |alone| alone.all_reduce_norm(self.norm(&self.operands.sum), queue))
            }
        }
    }
}

impl<'s, T: Rows> Contender<'s> for Racer<'s, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        if let Steps::Sum(side, _) = &self.steps {
            side.enqueue(stream)?;
        }
        self.enqueue_norm(stream)
    }

    fn record(&self, capture: &Capture<'_, 's>) -> symmetra::Result<()> {
        if let Steps::Sum(side, _) = &self.steps {
            side.record(capture)?;
        }
        self.enqueue_norm(capture)
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        let Operands { input, sum, output, residual, .. } = self.operands;
        let unwritten = Inputs::poison(input.len());
        input.write(self.inputs.own(), stream)?;
        residual.write(self.inputs.residual(), stream)?;
        sum.write(&unwritten, stream)?;
        output.write(&unwritten, stream)
    }

    fn verify(&self, operations: u32, stream: &Stream) -> symmetra::Result<Verdict> {
        let Operands { output, residual, .. } = self.operands;
        let (found, mut wrong) = match &self.steps {
            Steps::Call(..) => (None, 0),
            Steps::Sum(side, _) => {
                let sum = side.read(stream)?;
                let wrong = self.inputs.wrong_sums(&sum, self.sums_by);
                (Some(sum), wrong)
            }
        };
        if let Steps::Sum(_, None) = &self.steps {
            return Ok(Verdict { wrong, checksum: found.as_deref().map_or(0, checksum) });
        }
        let sum = found.unwrap_or_else(|| self.inputs.sum(self.sums_by.unwrap_or_default()));
        let normed = output.read(stream)?;
        wrong += self.inputs.wrong_norms(&sum, operations, [&residual.read(stream)?, &normed]);
        Ok(Verdict { wrong, checksum: checksum(&normed) })
    }
}
