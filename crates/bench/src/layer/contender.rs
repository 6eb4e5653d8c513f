//! A candidate of a comparison of layers.

use symmetra::{Capture, Stream};

use super::check::Check;
use super::operands::{Inputs, Operands};
use super::sides::Side;
use harness::contest::step::Step;
use harness::contest::turns::{Contender, Verdict};

/// A candidate, its operands, and their expected contents. An operation is a layer.
pub(super) struct Racer<'s> {
    pub(super) side: Side<'s>,
    pub(super) operands: &'s Operands,
    pub(super) inputs: &'s Inputs,
    pub(super) check: &'s Check<'s>,
}

impl<'s> Racer<'s> {
    fn steps(&self, layers: u32) -> impl Iterator<Item = &dyn Step<'s>> {
        self.side.halves.iter().take(2 * layers as usize).flatten().map(AsRef::as_ref)
    }
}

impl<'s> Contender<'s> for Racer<'s> {
    fn enqueue(&self, layers: u32, stream: &Stream) -> symmetra::Result<()> {
        self.steps(layers).try_for_each(|step| step.enqueue(stream))
    }

    fn record(&self, layers: u32, capture: &Capture<'_, 's>) -> symmetra::Result<()> {
        self.steps(layers).try_for_each(|step| step.record(capture))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        self.operands.write(self.inputs, [&self.side.normed, &self.side.normed_at], stream)
    }

    fn verify(&self, layers: u32, stream: &Stream) -> symmetra::Result<Verdict> {
        self.steps(layers).try_for_each(Step::check)?;
        // Candidates may add in different orders, so the bits are not comparable.
        Ok(Verdict { wrong: self.check.wrong(&self.side, stream)?, checksum: 0 })
    }
}
