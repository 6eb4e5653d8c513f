//! The candidates: a phase of the exchange, and its expected results.

use symmetra::experts::{Experts, Routed};
use symmetra::half::bf16;
use symmetra::{AnyQueue, Stream};

use super::MoeRace;
use super::operands::{MoeInputs, MoeOperands};
use super::oracle::{MoeOracle, RowPool};
use super::routes::Routes;
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::experts::RowOrder;
use reference::data::checksum;
use reference::experts::dispatch::RoutedOutputs;

/// A part of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The exchange of metadata before the rows, for a candidate that gets this metadata for free.
    Plan,
    Dispatch,
    Combine,
    /// A dispatch and its combine.
    Both,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Dispatch => DISPATCH,
            Self::Combine => COMBINE,
            Self::Both => BOTH,
        }
    }
}

/// The names of the reported phases.
pub(super) const DISPATCH: &str = "dispatch";
pub(super) const COMBINE: &str = "combine";
pub(super) const BOTH: &str = "both";

/// The name of a method or a peer in a phase.
pub(super) fn named(method: &str, phase: &str) -> String {
    format!("{method}: {phase}")
}

/// A candidate that exchanges rows, on operands of its own.
pub(super) trait MoeCandidate<'s> {
    /// Enqueues a phase `operations` times, after one [`lead`](Self::lead).
    fn enqueue(&self, phase: Phase, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()>;
    /// The phase that runs once before all operations of a phase, and is not part of them.
    fn lead(&self, phase: Phase) -> Option<Phase>;
    /// The operands of the candidate.
    fn operands(&self) -> &'s MoeOperands;
    /// Whether a dispatch also writes the metadata of rows.
    fn writes_numbers(&self) -> bool;

    /// The timed phases, leads first.
    fn phases(&self) -> Vec<Phase> {
        let all = [Phase::Plan, Phase::Dispatch, Phase::Combine, Phase::Both];
        let planned = self.lead(Phase::Dispatch) == Some(Phase::Plan);
        all.into_iter().filter(|phase| *phase != Phase::Plan || planned).collect()
    }
}

/// Rows in one order: the received rows of each rank, the inputs of a rank, and its expected results.
pub(super) struct MoeOrder<'a> {
    pub(super) layout: RowOrder,
    pub(super) oracle: MoeOracle,
    pub(super) inputs: MoeInputs<'a>,
    pub(super) expected: RoutedOutputs<bf16>,
}

impl<'a> MoeOrder<'a> {
    /// `given`: the rows that the rank passes in, if these are not `rows`.
    pub(super) fn new(
        race: &MoeRace,
        (rows, given): (&RowPool, Option<&RowPool>),
        (routes, layout): (&'a Routes, RowOrder),
        [rank, tokens]: [usize; 2],
    ) -> Self {
        let oracle = MoeOracle::new(race.shape, layout, routes);
        let inputs = MoeInputs::new((given.unwrap_or(rows), race.wire), routes, rank, [tokens, oracle.rows(rank)]);
        let expected = oracle.expected(rank, rows, race.wire);
        Self { layout, oracle, inputs, expected }
    }
}

/// A method or a peer in one phase.
pub(super) struct PhaseCandidate<'r, 's> {
    pub(super) method: &'static str,
    pub(super) side: &'r dyn MoeCandidate<'s>,
    pub(super) phase: Phase,
    pub(super) order: &'r MoeOrder<'r>,
}

impl<'r, 's> PhaseCandidate<'r, 's> {
    /// A method or a peer in all its phases, leads first.
    pub(super) fn all(method: &'static str, side: &'r dyn MoeCandidate<'s>, order: &'r MoeOrder<'r>) -> Vec<Self> {
        side.phases().into_iter().map(|phase| Self { method, side, phase, order }).collect()
    }
}

impl<'s> Candidate<'s> for PhaseCandidate<'_, 's> {
    fn name(&self) -> String {
        named(self.method, self.phase.name())
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        self.side.enqueue(self.phase, operations, queue)
    }

    fn lead(&self) -> Option<String> {
        Some(named(self.method, self.side.lead(self.phase)?.name()))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        self.side.operands().write(&self.order.inputs, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let (mut wrong, operands, expected) = (0, self.side.operands(), &self.order.expected);
        if matches!(self.phase, Phase::Dispatch | Phase::Both) {
            wrong += operands.wrong_rows(expected, stream)?;
            if self.side.writes_numbers() {
                wrong += operands.wrong_numbers(expected, stream)?;
            }
        }
        if matches!(self.phase, Phase::Combine | Phase::Both) {
            wrong += operands.wrong_sums(expected, stream)?;
        }
        Ok(CandidateVerdict { wrong, checksum: checksum(&operands.output.read(stream)?) })
    }
}

/// This library, by one method.
pub(super) struct Ours<'s> {
    pub(super) experts: Experts,
    pub(super) operands: &'s MoeOperands,
}

impl<'s> Ours<'s> {
    fn dispatch<'q>(&'q self, queue: AnyQueue<'q, 's>) -> symmetra::Result<Routed<'q>> {
        let operands = self.operands;
        operands.rows.dispatch(&self.experts, &operands.routing(), &operands.into(), queue)
    }
}

impl<'s> MoeCandidate<'s> for Ours<'s> {
    fn enqueue(&self, phase: Phase, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        match phase {
            Phase::Plan => Ok(()),
            Phase::Dispatch => (0..operations).try_for_each(|_| self.dispatch(queue).map(drop)),
            Phase::Combine => {
                let routed = self.dispatch(queue)?;
                (0..operations).try_for_each(|_| self.operands.combine(&routed, queue))
            }
            Phase::Both => (0..operations).try_for_each(|_| self.operands.combine(&self.dispatch(queue)?, queue)),
        }
    }

    fn lead(&self, phase: Phase) -> Option<Phase> {
        (phase == Phase::Combine).then_some(Phase::Dispatch)
    }

    fn operands(&self) -> &'s MoeOperands {
        self.operands
    }

    fn writes_numbers(&self) -> bool {
        true
    }
}
