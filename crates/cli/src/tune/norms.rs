//! The times of norms: one kernel that sums and norms, or an all-reduce and then a kernel that norms.

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{Algorithm, AnyQueue, Communicator, DeviceBuffer, Dtype, RmsNorm, RowNorm, SymmetricBuffer};

use super::calls::{APART, AgreedSize, FUSED, TunedCalls};
use super::timing::{TimedSize, Timing, ordinary};
use harness::alone::alone;
use harness::comparison::work::Work;
use harness::failure::CommandFailure;
use harness::names::by_name;
use harness::ranks::Say;
use reference::element::Summand;

const NORM: RmsNorm = RmsNorm::new(1e-6);

/// Rows of one length, the fewest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Norms {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) hidden: usize,
    pub(super) tokens: Vec<usize>,
}

impl Norms {
    /// Bytes of the most rows.
    pub(super) fn largest_bytes(&self) -> u64 {
        (self.tokens.last().unwrap_or(&0) * self.hidden * self.dtype.bytes()) as u64
    }

    pub(super) fn run(&self, timing: &Timing<'_, '_>, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        match self.dtype {
            Dtype::F16 => self.time::<f16>(timing, say),
            Dtype::BF16 => self.time::<bf16>(timing, say),
            _ => self.time::<f32>(timing, say),
        }
    }

    fn time<T: Summand>(&self, timing: &Timing<'_, '_>, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        let (communicator, stream) = (timing.communicator, timing.stopwatch.stream());
        let alone = alone(communicator)?;
        let values = |elems: usize| ordinary::<T>(communicator.rank(), elems);
        let calls = TunedCalls::Norms { dtype: self.dtype, hidden: self.hidden };
        let weight = DeviceBuffer::from_slice(&values(self.hidden), stream)?;
        for tokens in self.tokens.iter().copied() {
            let elems = tokens * self.hidden;
            let operands = TunedNormOperands::<T> {
                input: communicator.symmetric(elems)?,
                sum: communicator.symmetric(elems)?,
                output: communicator.symmetric(elems)?,
                residual: DeviceBuffer::from_slice(&values(elems), stream)?,
                residual_out: DeviceBuffer::new(communicator.device(), elems)?,
                weight: &weight,
            };
            operands.input.write(&values(elems), stream)?;
            let candidate = |fused| {
                let candidate = FusedOrApart { communicator, alone: &alone, fused, operands: &operands };
                (fused.map_or(APART, Algorithm::name).to_owned(), candidate.work())
            };
            let candidates: Vec<_> = FUSED.map(Some).into_iter().chain([None]).map(candidate).collect();
            let size = TimedSize { calls: &calls, bytes: (elems * self.dtype.bytes()) as u64 };
            timing.trial(size, &candidates, |work, operations| timing.graph(work, operations), say)?;
        }
        Ok(())
    }
}

struct TunedNormOperands<'w, T: Summand> {
    input: SymmetricBuffer<T>,
    sum: SymmetricBuffer<T>,
    output: SymmetricBuffer<T>,
    residual: DeviceBuffer<T>,
    /// Not the residual, which would grow with every operation.
    residual_out: DeviceBuffer<T>,
    weight: &'w DeviceBuffer<T>,
}

/// One kernel, or an all-reduce by the choice of the table and then a norm.
struct FusedOrApart<'o, T: Summand> {
    communicator: &'o Communicator,
    /// The group of this rank.
    alone: &'o Communicator,
    fused: Option<Algorithm>,
    operands: &'o TunedNormOperands<'o, T>,
}

impl<'o, T: Summand> FusedOrApart<'o, T> {
    fn work(self) -> Work<'o> {
        Box::new(move |queue| self.enqueue(queue))
    }

    fn enqueue(&self, queue: AnyQueue<'_, 'o>) -> symmetra::Result<()> {
        let TunedNormOperands { input, sum, output, residual, residual_out, weight } = self.operands;
        let rows = |input: &'o SymmetricBuffer<T>| {
            RowNorm::new(input, *weight, NORM).residual(residual).residual_out(residual_out).output(output)
        };
        match self.fused {
            Some(algorithm) => self.communicator.all_reduce_norm(rows(input).algorithm(algorithm), queue),
            None => {
                self.communicator.all_reduce(input, sum, queue)?;
                self.alone.all_reduce_norm(rows(sum), queue)
            }
        }
    }
}
