//! The candidates: a collective and a GEMM together or alone, and the expected result of each.

use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Planned, Way};
use symmetra::matmul::Multiplier;
use symmetra::{AnyQueue, Communicator, Stream};

use super::layers::Fusion;
use super::numbers::GemmElement;
use super::operands::{Before, GemmInputs, GemmOperands};
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::work::Work;
use reference::data::checksum;
use reference::element::Real;

/// A plan of the library.
pub(super) enum Fused {
    AllGather(AllGatherMatmul),
    ReduceScatter(MatmulReduceScatter),
    AllReduce(MatmulAllReduce),
}

impl Fused {
    /// Collective; blocks.
    pub(super) fn new<F: GemmElement>(
        communicator: &Communicator,
        fusion: Fusion,
        operands: &GemmOperands<F>,
        way: Way,
    ) -> symmetra::Result<Self> {
        let GemmOperands { product, layer, shares, left_rows, .. } = operands;
        let mut options = FusedOptions::default();
        options.way = way;
        if fusion != Fusion::AllReduce && !operands.is_equal() {
            options.rows = Some(shares.clone());
        }
        let left = [left_rows.len(), layer.inner];
        Ok(match fusion {
            Fusion::AllGather => {
                Self::AllGather(communicator.plan_all_gather_matmul(&left, 0, &[*product], options)?)
            }
            Fusion::ReduceScatter => {
                Self::ReduceScatter(communicator.plan_matmul_reduce_scatter(&left, 0, *product, options)?)
            }
            Fusion::AllReduce => Self::AllReduce(communicator.plan_matmul_all_reduce(&left, *product, options)?),
        })
    }

    pub(super) fn explain(&self) -> &Planned {
        match self {
            Self::AllGather(plan) => plan.explain(),
            Self::ReduceScatter(plan) => plan.explain(),
            Self::AllReduce(plan) => plan.explain(),
        }
    }

    fn enqueue<'s, F: GemmElement>(
        &'s self,
        operands: &'s GemmOperands<F>,
        queue: AnyQueue<'_, 's>,
    ) -> symmetra::Result<()> {
        let (left, right, result) = (operands.left()?, operands.right(), operands.result()?);
        match self {
            Self::AllGather(plan) => plan.enqueue(left, None, [(right, result)], queue),
            Self::ReduceScatter(plan) => plan.enqueue(left, right, result, queue),
            Self::AllReduce(plan) => plan.enqueue(left, right, result, queue),
        }
    }
}

/// The work of a candidate.
pub(super) enum MatmulWork<'s> {
    /// Both operations, by a plan.
    Fused(&'s Fused),
    /// The collective alone.
    Collective(Work<'s>),
    /// The GEMM alone.
    Product,
    /// Both operations: the collectives of another library, and the GEMM.
    Both(Vec<Work<'s>>),
}

/// A candidate.
pub(super) struct MatmulCandidate<'s, F: GemmElement> {
    pub(super) name: &'static str,
    pub(super) work: MatmulWork<'s>,
    /// Whether this is the first candidate of a turn, for which the buffers hold random factors.
    pub(super) is_first: bool,
    /// Whether this is the last candidate that is verified, before all are timed.
    pub(super) is_last: bool,
    pub(super) fusion: Fusion,
    pub(super) multiplier: &'s Multiplier,
    pub(super) operands: &'s GemmOperands<F>,
    pub(super) inputs: &'s GemmInputs<F>,
}

impl<'s, F: GemmElement> MatmulCandidate<'s, F> {
    fn multiply(&self, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let (operands, sums) = (self.operands, self.fusion.sums());
        let factors = [operands.whole_left(sums)?, operands.right(), operands.whole_result(sums)?];
        self.multiplier.enqueue(&operands.product, operands.layer.tokens, factors, queue)
    }
}

impl<'s, F: GemmElement> Candidate<'s> for MatmulCandidate<'s, F> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let sums = self.fusion.sums();
        (0..operations).try_for_each(|_| match &self.work {
            MatmulWork::Fused(plan) => plan.enqueue(self.operands, queue),
            MatmulWork::Collective(collective) => collective(queue),
            MatmulWork::Product => self.multiply(queue),
            MatmulWork::Both(collectives) => {
                if sums {
                    self.multiply(queue)?;
                }
                collectives.iter().try_for_each(|collective| collective(queue))?;
                if sums { Ok(()) } else { self.multiply(queue) }
            }
        })
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        // The second of the two operations reads the result of the first. When it runs alone, that result is written
        // here.
        let second = match self.work {
            MatmulWork::Collective(_) => self.fusion.sums(),
            MatmulWork::Product => !self.fusion.sums(),
            MatmulWork::Fused(_) | MatmulWork::Both(_) => false,
        };
        if self.is_first {
            self.operands.write_factors(self.inputs, stream)?;
        }
        self.operands.write_rest(self.inputs, if second { Before::Right } else { Before::Poison }, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let (operands, inputs) = (self.operands, self.inputs);
        let verdict = match (&self.work, self.fusion.sums()) {
            (MatmulWork::Collective(_), false) => compare(&operands.read_gathered(stream)?, &inputs.gathered),
            (MatmulWork::Product, true) => compare(&operands.read_partial(stream)?, &inputs.partial),
            _ => compare(&operands.read_result(stream)?, &inputs.result),
        };
        if self.is_last {
            operands.write_noise(inputs, stream)?;
        }
        Ok(verdict)
    }
}

/// Every element must be equal.
fn compare<T: Real>(found: &[T], right: &[T]) -> CandidateVerdict {
    let unequal = found.iter().zip(right).filter(|(found, right)| found.wide() != right.wide()).count();
    let wrong = (unequal + found.len().abs_diff(right.len())) as u64;
    CandidateVerdict { wrong, checksum: checksum(found) }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/matmul_candidate.rs"]
mod tests;
