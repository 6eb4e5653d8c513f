//! A library with messages of its own.

use symmetra::{AnyQueue, Result, Stream};

use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::work::Work;
use harness::guarded::Guarded;
use reference::data::{Data, checksum};

/// A library on the memory that all candidates share.
pub(super) struct PairContestant<'a> {
    pub(super) name: &'static str,
    pub(super) work: Work<'a>,
    pub(super) rank: usize,
    /// The rank whose data this rank receives.
    pub(super) from: Option<usize>,
    pub(super) data: Data,
    pub(super) sent: &'a Guarded<u8>,
    pub(super) received: &'a Guarded<u8>,
}

impl<'a> Candidate<'a> for PairContestant<'a> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 'a>) -> Result<()> {
        (0..operations).try_for_each(|_| (self.work)(queue))
    }

    /// The received memory is poisoned by the complement of the expected data.
    fn prepare(&self, stream: &Stream) -> Result<()> {
        self.sent.elements()?.write(&self.data.of::<u8>(self.rank), stream)?;
        let expected: Vec<u8> = self.data.of(self.from.unwrap_or(self.rank));
        self.received.elements()?.write(&expected.iter().map(|byte| !byte).collect::<Vec<_>>(), stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> Result<CandidateVerdict> {
        let result = self.received.elements()?.read(stream)?;
        let wrong = self.from.map_or(0, |from| self.data.count_unlike(from, 0, &result));
        Ok(CandidateVerdict { wrong, checksum: checksum(&result) })
    }

    fn recheck(&self, stream: &Stream) -> Result<u64> {
        self.verify(1, stream).map(|verdict| verdict.wrong)
    }

    fn check_guards(&self, stream: &Stream) -> Result<()> {
        self.sent.check_margins(stream)?;
        self.received.check_margins(stream)
    }
}
