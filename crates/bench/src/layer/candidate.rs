//! A candidate of a comparison of layers.

use symmetra::{AnyQueue, Stream};

use super::check::Check;
use super::operands::{LayerInputs, LayerOperands};
use super::sides::LayerSide;
use harness::comparison::candidate::{Candidate, CandidateVerdict};

/// A candidate, its operands, and their expected contents. An operation is a layer.
pub(super) struct LayerCandidate<'s> {
    pub(super) side: LayerSide<'s>,
    pub(super) operands: &'s LayerOperands,
    pub(super) inputs: &'s LayerInputs,
    pub(super) check: &'s Check<'s>,
}

impl<'s> Candidate<'s> for LayerCandidate<'s> {
    fn name(&self) -> String {
        self.side.name.to_owned()
    }

    fn enqueue(&self, layers: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        self.side.halves.iter().take(2 * layers as usize).flatten().try_for_each(|step| step(queue))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        self.operands.write(self.inputs, [&self.side.normed, &self.side.normed_at], stream)
    }

    /// Candidates may add in different orders, so the bits are not comparable.
    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        Ok(CandidateVerdict { wrong: self.check.wrong(&self.side, stream)?, checksum: 0 })
    }
}
