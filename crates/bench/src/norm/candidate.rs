//! The candidates: the steps of one operation, and their expected results.

use symmetra::{Algorithm, AnyQueue, Communicator, Stream};

use super::NormRace;
use super::expected::NormInputs;
use super::kernel::NormOutput;
use super::operands::NormOperands;
use harness::collective::CollectiveCommand;
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::work::{ComparedLibrary, Work};
use harness::form::Form;
use reference::data::checksum;
use reference::element::Real;
use reference::found::{unlike, wrong_codes};
use reference::norm::padded;

/// The contents of the buffer of the sum at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Holds {
    /// The contents from before the operation.
    Nothing,
    Sum,
    /// The sum with the residual; the residual itself is unchanged.
    WithResidual,
}

/// One candidate, its operands, and its expected results.
pub(super) struct NormCandidate<'s, T: Real> {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Work<'s>>,
    /// The algorithm of the sum, with its name. `None`: an algorithm that rounds in an unknown order.
    pub(super) sums_by: Option<Algorithm>,
    pub(super) algorithm: Option<String>,
    pub(super) holds: Holds,
    /// `None`: no rows are normed.
    pub(super) written: Option<NormOutput>,
    pub(super) race: &'s NormRace,
    pub(super) communicator: &'s Communicator,
    pub(super) operands: &'s NormOperands<T>,
    pub(super) inputs: &'s NormInputs<T>,
}

impl<'s, T: Real> Candidate<'s> for NormCandidate<'s, T> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        (0..operations).try_for_each(|_| self.steps.iter().try_for_each(|step| step(queue)))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        self.operands.write(self.inputs, stream)
    }

    fn verify(&self, operations: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        match self.written {
            None => self.verify_sum(stream),
            Some(written) => self.verify_norm(written, operations, stream),
        }
    }
}

impl<T: Real> NormCandidate<'_, T> {
    /// Without a norm: the sum of all rows that would be normed.
    fn verify_sum(&self, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let elems = self.operands.elems(&self.operands.places.normed);
        let sum = &self.operands.sum.read(stream)?[elems.clone()];
        Ok(CandidateVerdict { wrong: self.inputs.wrong_sums(sum, elems.start, self.sums_by), checksum: checksum(sum) })
    }

    fn verify_norm(&self, written: NormOutput, operations: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let NormOperands { places, sum, output, residual, codes, .. } = self.operands;
        let [kept, normed] = [&places.kept, &places.normed].map(|rows| self.operands.elems(rows));
        let mut wrong = 0;
        let found = sum.read(stream)?;
        if self.holds == Holds::Sum {
            wrong += self.inputs.wrong_sums(&found[kept.clone()], kept.start, self.sums_by);
        }
        let right = match self.sums_by {
            Some(algorithm) => self.inputs.sum(algorithm),
            None => self.gathered(stream)?,
        };
        let apart = self.holds == Holds::WithResidual;
        let [x, y] = self.inputs.expected(&right, if apart { 1 } else { operations });
        let y = &y[normed.clone()];
        wrong += match apart {
            true => {
                unlike(&found[kept.clone()], &x[kept.clone()])
                    + unlike(&residual.read(stream)?, &self.inputs.residual()[kept])
            }
            false => unlike(&residual.read(stream)?, &x[kept]),
        };
        match (written, codes, self.race.quantise) {
            (NormOutput::Codes, Some(codes), Some(form)) => {
                let bytes = codes.read(stream)?;
                let y = padded(y, places.hidden, places.width);
                wrong += wrong_codes(&bytes, &y, places.width, form);
                Ok(CandidateVerdict { wrong, checksum: checksum(&bytes.values) })
            }
            _ => {
                let found = &output.read(stream)?[normed];
                Ok(CandidateVerdict { wrong: wrong + unlike(found, y), checksum: checksum(found) })
            }
        }
    }

    /// The sums of all ranks, unchanged. Collective.
    fn gathered(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        let NormOperands { sum, .. } = self.operands;
        if self.race.op != Form::AllReduce {
            let parts = [self.operands.kept(sum), self.operands.all(sum)];
            self.communicator.collective(CollectiveCommand::AllGather, parts)?(stream.into())?;
        }
        sum.read(stream)
    }
}
