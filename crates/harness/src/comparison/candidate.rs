//! A candidate of a comparison, and its measurement.

use serde::{Deserialize, Serialize};
use symmetra::{AnyQueue, Stream};

/// The result of a candidate after its operations.
#[derive(Clone, Copy, Debug)]
pub struct CandidateVerdict {
    /// Elements that are wrong.
    pub wrong: u64,
    /// Checksum of the result.
    pub checksum: u64,
}

/// An operation on operands of its own, and the expected result of a number of these operations.
pub trait Candidate<'a> {
    /// The name, different from those of the other candidates.
    fn name(&self) -> String;
    /// Enqueues operations.
    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 'a>) -> symmetra::Result<()>;
    /// Writes the operands. Blocks until they are written.
    fn prepare(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Compares the result of [`verified`](Self::verified) operations with the expected result. Blocks.
    fn verify(&self, operations: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict>;
    /// How many operations run before the result is verified, for launches of `operations` operations.
    fn verified(&self, operations: u32) -> u32 {
        operations
    }
    /// Whether the candidate is called once before it is captured: other libraries make their connections in the first
    /// call.
    fn connects(&self) -> bool {
        true
    }
    /// The candidate whose operation runs once before the operations of this candidate, and is no part of them. It is
    /// an earlier candidate.
    fn lead(&self) -> Option<String> {
        None
    }
    /// The elements that are wrong after the last launch, for operations whose result does not depend on how often they
    /// run. Blocks.
    fn recheck(&self, _: &Stream) -> symmetra::Result<u64> {
        Ok(0)
    }
    /// Fails if memory next to the operands was overwritten. Blocks until every rank of the host has called it.
    fn check_guards(&self, _: &Stream) -> symmetra::Result<()> {
        Ok(())
    }
}

/// The times of one candidate in one mode on one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Time of one operation in every launch.
    pub times_us: Vec<f64>,
    /// The host's share of it.
    pub host_us: Vec<f64>,
    pub wrong: u64,
    /// Checksum of the result that was verified.
    pub checksum: u64,
}

impl Trial {
    /// Subtracts one operation of the lead from each launch of `operations` operations.
    pub(super) fn subtract(&mut self, lead: &Self, operations: u32) {
        let less = |times: &mut Vec<f64>, lead: &[f64]| {
            times.iter_mut().zip(lead).for_each(|(time, lead)| *time -= lead / f64::from(operations));
        };
        less(&mut self.times_us, &lead.times_us);
        less(&mut self.host_us, &lead.host_us);
    }
}

#[cfg(test)]
#[path = "../../../../tests/harness/unit/candidate.rs"]
mod tests;
