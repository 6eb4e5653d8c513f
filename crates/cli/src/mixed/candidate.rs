//! The candidates over a mesh: an operation in each mode, and the collectives of an engine without meshes.

use symmetra::environment::Coordinator;
use symmetra::mixed::{Mixed, MixedMode, MixedOperation};
use symmetra::{AnyQueue, Communicator, Stream};

use super::engine::Engine;
use harness::buffer::TestBuffer;
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::lockstep::Lockstep;
use harness::comparison::work::Work;
use harness::guarded;
use reference::data::checksum;
use reference::element::Summand;

/// All ranks of a mesh.
pub(super) struct GridRanks<'g> {
    pub(super) group: &'g Coordinator,
    pub(super) mixed: &'g Mixed,
    pub(super) engine: Option<&'g Engine>,
    /// Whether ranks are on several hosts, and have no memory in which all could meet.
    pub(super) spans_hosts: bool,
}

impl Lockstep for GridRanks<'_> {
    fn barrier(&self) -> symmetra::Result<()> {
        self.group.barrier()
    }

    fn synchronize(&self, stream: &Stream) -> symmetra::Result<()> {
        self.mixed.synchronize(stream)?;
        self.engine.map_or(Ok(()), Engine::check)
    }

    fn meet(&self) -> symmetra::Result<()> {
        if self.spans_hosts { self.group.barrier() } else { Ok(()) }
    }
}

/// How a candidate runs the operation.
pub(super) enum GridWay<'s> {
    Mode(MixedMode),
    /// Collectives of another library.
    Engine(Vec<Work<'s>>),
}

/// The input of a rank, and its expected output.
pub(super) struct GridNumbers<T> {
    pub(super) input: Vec<T>,
    pub(super) due: Vec<T>,
    /// The contents of the output before an operation.
    pub(super) poison: Vec<T>,
}

/// One candidate on the operands of its size.
pub(super) struct MeshCandidate<'s, T, B> {
    pub(super) name: &'static str,
    pub(super) way: GridWay<'s>,
    pub(super) operation: MixedOperation,
    pub(super) mixed: &'s Mixed,
    /// The ranks of this host: only they write into each other's memory by themselves.
    pub(super) local: &'s Communicator,
    pub(super) operands: [&'s B; 2],
    pub(super) numbers: &'s GridNumbers<T>,
}

impl<'s, T: Summand, B: TestBuffer<T>> MeshCandidate<'s, T, B> {
    fn wrong(&self, found: &[T]) -> u64 {
        found.iter().zip(&self.numbers.due).filter(|(found, due)| !found.matches(**due)).count() as u64
    }
}

impl<'s, T: Summand, B: TestBuffer<T>> Candidate<'s> for MeshCandidate<'s, T, B> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let Self { operation, mixed, operands: [input, output], numbers, .. } = *self;
        let [takes, gives] = [numbers.input.len(), numbers.due.len()];
        (0..operations).try_for_each(|_| match &self.way {
            GridWay::Mode(mode) => {
                mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, *mode, queue)
            }
            GridWay::Engine(steps) => steps.iter().try_for_each(|step| step(queue)),
        })
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        let [input, output] = self.operands;
        input.write(&self.numbers.input, stream)?;
        output.write(&self.numbers.poison, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let found = self.operands[1].read(stream)?;
        Ok(CandidateVerdict { wrong: self.wrong(&found), checksum: checksum(&found) })
    }

    fn recheck(&self, stream: &Stream) -> symmetra::Result<u64> {
        Ok(self.wrong(&self.operands[1].read(stream)?))
    }

    fn check_guards(&self, stream: &Stream) -> symmetra::Result<()> {
        guarded::check(self.local)?;
        // Plain memory compares its margins.
        self.operands.iter().try_for_each(|operand| operand.read(stream).map(drop))
    }
}
