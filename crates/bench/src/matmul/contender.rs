//! The candidates: a collective and a GEMM together or alone, and the expected result of each.

use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Planned, Way};
use symmetra::matmul::Multiplier;
use symmetra::{Capture, Communicator, Queue, Stream};

use super::layers::Fusion;
use super::numbers::Factor;
use super::operands::{Before, Inputs, Operands};
use harness::contest::step::Step;
use harness::contest::turns::{Contender, Verdict};
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
    pub(super) fn new<F: Factor>(
        communicator: &Communicator,
        fusion: Fusion,
        operands: &Operands<F>,
        way: Way,
    ) -> symmetra::Result<Self> {
        let Operands { product, layer, shares, left_rows, .. } = operands;
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

    fn enqueue<'s, F: Factor>(&'s self, operands: &'s Operands<F>, queue: impl Queue<'s>) -> symmetra::Result<()> {
        let (left, right, result) = (operands.left()?, operands.right(), operands.result()?);
        match self {
            Self::AllGather(plan) => plan.enqueue(left, None, [(right, result)], queue),
            Self::ReduceScatter(plan) => plan.enqueue(left, right, result, queue),
            Self::AllReduce(plan) => plan.enqueue(left, right, result, queue),
        }
    }
}

/// The work of a candidate.
pub(super) enum Work<'s> {
    /// Both operations, by a plan.
    Fused(&'s Fused),
    /// The collective alone.
    Collective(Box<dyn Step<'s> + 's>),
    /// The GEMM alone.
    Product,
    /// Both operations: the collectives of another library, and the GEMM.
    Both(Vec<Box<dyn Step<'s> + 's>>),
}

/// A candidate.
pub(super) struct Racer<'s, F: Factor> {
    pub(super) name: &'static str,
    pub(super) work: Work<'s>,
    /// Whether this is the first candidate of a turn, for which the buffers hold random factors.
    pub(super) is_first: bool,
    /// Whether this is the last candidate that is verified, before all are timed.
    pub(super) is_last: bool,
    pub(super) fusion: Fusion,
    pub(super) multiplier: &'s Multiplier,
    pub(super) operands: &'s Operands<F>,
    pub(super) inputs: &'s Inputs<F>,
}

impl<'s, F: Factor> Racer<'s, F> {
    /// `step`: enqueues a collective into `queue`.
    fn run(
        &self,
        operations: u32,
        queue: impl Queue<'s> + Copy,
        step: &dyn Fn(&dyn Step<'s>) -> symmetra::Result<()>,
    ) -> symmetra::Result<()> {
        let sums = self.fusion.sums();
        (0..operations).try_for_each(|_| match &self.work {
            Work::Fused(plan) => plan.enqueue(self.operands, queue),
            Work::Collective(collective) => step(&**collective),
            Work::Product => self.multiply(queue),
            Work::Both(collectives) => {
                if sums {
                    self.multiply(queue)?;
                }
                collectives.iter().try_for_each(|collective| step(&**collective))?;
                if sums { Ok(()) } else { self.multiply(queue) }
            }
        })
    }

    fn multiply(&self, queue: impl Queue<'s>) -> symmetra::Result<()> {
        let (operands, sums) = (self.operands, self.fusion.sums());
        let factors = [operands.whole_left(sums)?, operands.right(), operands.whole_result(sums)?];
        self.multiplier.enqueue(&operands.product, operands.layer.tokens, factors, queue)
    }
}

impl<'s, F: Factor> Contender<'s> for Racer<'s, F> {
    fn enqueue(&self, operations: u32, stream: &Stream) -> symmetra::Result<()> {
        self.run(operations, stream, &|step| step.enqueue(stream))
    }

    fn record(&self, operations: u32, capture: &Capture<'_, 's>) -> symmetra::Result<()> {
        self.run(operations, capture, &|step| step.record(capture))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        // The second of the two operations reads the result of the first. When it runs alone, that result is written
        // here.
        let second = match self.work {
            Work::Collective(_) => self.fusion.sums(),
            Work::Product => !self.fusion.sums(),
            Work::Fused(_) | Work::Both(_) => false,
        };
        if self.is_first {
            self.operands.write_factors(self.inputs, stream)?;
        }
        self.operands.write_rest(self.inputs, if second { Before::Right } else { Before::Poison }, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<Verdict> {
        let (operands, inputs) = (self.operands, self.inputs);
        if let Work::Both(collectives) = &self.work {
            collectives.iter().try_for_each(|collective| collective.check())?;
        }
        let verdict = match (&self.work, self.fusion.sums()) {
            (Work::Collective(_), false) => compare(&operands.read_gathered(stream)?, &inputs.gathered),
            (Work::Product, true) => compare(&operands.read_partial(stream)?, &inputs.partial),
            _ => compare(&operands.read_result(stream)?, &inputs.result),
        };
        if self.is_last {
            operands.write_noise(inputs, stream)?;
        }
        Ok(verdict)
    }
}

/// Every element must be equal.
fn compare<T: Real>(found: &[T], right: &[T]) -> Verdict {
    let unequal = found.iter().zip(right).filter(|(found, right)| found.wide() != right.wide()).count();
    let wrong = (unequal + found.len().abs_diff(right.len())) as u64;
    Verdict { wrong, checksum: checksum(found) }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/matmul_contender.rs"]
mod tests;
