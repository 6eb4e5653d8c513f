//! One rank's part of a tuning: all algorithms are timed in turn at every size; hopeless algorithms are dropped.

use harness::with_element;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, DeviceBuffer, DeviceKind, Dtype, Reduction, Stream,
    SymmetricBuffer,
};

use super::calls::{AgreedSize, TunedCalls};
use super::experts::TunedLayer;
use super::grids::Grids;
use super::norms::Norms;
use super::timing::{TimedSize, Timing, ordinary};
use harness::comparison::repeats::Repeats;
use harness::comparison::stopwatch::Stopwatch;
use harness::failure::CommandFailure;
use harness::names::{by_name, by_name_each};
use harness::own::Own;
use harness::ranks::{Say, Task};
use reference::element::Summand;

/// The settings of a tuning, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TunePlan {
    pub(super) messages: Vec<TunedMessages>,
    /// Codecs that are timed in addition to the algorithms, where they support the type.
    #[serde(with = "by_name_each")]
    pub(super) codecs: Vec<Codec>,
    pub(super) norms: Option<Norms>,
    pub(super) experts: Option<TunedLayer>,
    pub(super) grids: Option<Grids>,
    /// Operations of one launch; `None`: by the size of the message.
    pub(super) operations: Option<u32>,
    /// Launches that are timed.
    pub(super) launches: Repeats,
}

/// Messages of one type, smallest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TunedMessages {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) sizes_elems: Vec<usize>,
}

/// An algorithm that sends whole messages is dropped once it took this many times as long as the fastest at two sizes in
/// a row.
const HOPELESS: u64 = 4;

impl TunePlan {
    /// The part of the plan that `ranks` ranks can run.
    pub(super) fn on(&self, kind: DeviceKind, ranks: usize) -> Result<Self, CommandFailure> {
        let experts = self.experts.as_ref().map(|layer| layer.on(kind, ranks)).transpose()?;
        Ok(Self { experts, ..self.clone() })
    }

    /// The number of trials of one world.
    pub(super) fn trials(&self) -> Result<u64, CommandFailure> {
        let grids = self.grids.as_ref().map_or(Ok(0), Grids::trials)?;
        let norms = self.norms.as_ref().map_or(0, |norms| norms.tokens.len() as u64);
        let experts = self.experts.as_ref().map_or(0, |layer| layer.tokens.len() as u64);
        let sums = self.messages.iter().map(|messages| 2 * messages.sizes_elems.len() as u64).sum::<u64>();
        Ok(sums + norms + experts + grids)
    }
}

impl Task for TunePlan {
    const NAME: &'static str = "tune";
    type Found = AgreedSize;

    /// Input and output of the largest size, or input, sum and output of the most rows; the regions of experts; and the
    /// buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        let bytes = |messages: &TunedMessages| {
            messages.sizes_elems.last().map_or(0, |elems| (elems * messages.dtype.bytes()) as u64)
        };
        let sums = 2 * self.messages.iter().map(bytes).max().unwrap_or(0);
        let regions = self.experts.as_ref().map_or(0, TunedLayer::heap_bytes);
        4 * (64 << 10) + regions + sums.max(3 * self.norms.as_ref().map_or(0, Norms::largest_bytes))
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        let Self { operations, launches, .. } = *self;
        let timing = Timing { communicator, stopwatch: &stopwatch, operations, launches };
        let sums = Sums { timing: &timing, codecs: &self.codecs };
        for messages in &self.messages {
            with_element!(messages.dtype, T => {
                sums.run::<T, SymmetricBuffer<T>>(messages, true, say)?;
                sums.run::<T, DeviceBuffer<T>>(messages, false, say)
            })?;
        }
        self.norms.as_ref().map_or(Ok(()), |norms| norms.run(&timing, say))?;
        self.experts.as_ref().map_or(Ok(()), |layer| layer.run(&timing, say))?;
        self.grids.as_ref().map_or(Ok(()), |grids| grids.run(&timing, say))
    }
}

/// All-reduces of one type.
struct Sums<'t, 'w> {
    timing: &'t Timing<'t, 'w>,
    codecs: &'t [Codec],
}

impl Sums<'_, '_> {
    /// All sizes of one type in one kind of memory.
    fn run<T: Summand, B: Own<T>>(
        &self,
        messages: &TunedMessages,
        direct: bool,
        say: Say<'_, AgreedSize>,
    ) -> Result<(), CommandFailure> {
        let Timing { communicator, stopwatch, .. } = *self.timing;
        let largest = messages.sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::own(communicator, largest)?, B::own(communicator, largest)?];
        input.write(&ordinary(communicator.rank(), largest), stopwatch.stream())?;
        let calls = TunedCalls::Sums { dtype: T::DTYPE, direct };
        let mut field = Field::new(T::DTYPE, direct);
        for elems in messages.sizes_elems.iter().copied() {
            let algorithms = field.algorithms().into_iter();
            let algorithms = algorithms.map(|algorithm| (algorithm.to_string(), AllReduceOptions::from(algorithm)));
            let codecs = self.codecs.iter().filter(|codec| codec.carries(T::DTYPE, Reduction::Sum));
            let codecs = codecs.map(|codec| (codec.to_string(), AllReduceOptions::from(*codec)));
            let capture = |options: &AllReduceOptions, operations: u32| {
                // Bound, so that a graph pushes plain memory as a stream does and registers no memory.
                let (input, output) = (input.part(0..elems)?, output.part(0..elems)?);
                let bound = communicator.bind_all_reduce_with(*options, input, output)?;
                stopwatch.stream().capture(|capture| (0..operations).try_for_each(|_| bound.enqueue(capture)))
            };
            let size = TimedSize { calls: &calls, bytes: (elems * T::DTYPE.bytes()) as u64 };
            let candidates: Vec<_> = algorithms.chain(codecs).collect();
            field.drop_hopeless(&self.timing.trial(size, &candidates, capture, say)?);
        }
        Ok(())
    }
}

/// The algorithms that are still timed, and at how many sizes in a row each was hopeless.
struct Field(Vec<(Algorithm, u32)>);

impl Field {
    fn new(dtype: Dtype, direct: bool) -> Self {
        let able = |algorithm: &Algorithm| algorithm.carries(dtype) && (direct || !algorithm.needs_reach());
        Self(Algorithm::ALL.into_iter().filter(able).map(|algorithm| (algorithm, 0)).collect())
    }

    fn algorithms(&self) -> Vec<Algorithm> {
        self.0.iter().map(|(algorithm, _)| *algorithm).collect()
    }

    fn drop_hopeless(&mut self, times_ns: &BTreeMap<String, u64>) {
        let of_field = self.0.iter().filter_map(|(algorithm, _)| times_ns.get(algorithm.name()));
        let fastest = of_field.min().copied().unwrap_or(0);
        for (algorithm, sizes) in &mut self.0 {
            let time = times_ns.get(algorithm.name()).copied().unwrap_or(0);
            *sizes = if time > fastest.saturating_mul(HOPELESS) { *sizes + 1 } else { 0 };
        }
        self.0.retain(|(algorithm, sizes)| *sizes < 2 || !sends_all(*algorithm));
    }
}

/// Whether a rank sends whole messages, so that the algorithm loses to others as messages grow.
fn sends_all(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::OneShotLL | Algorithm::OneShotSentinel | Algorithm::RecursiveDoubling)
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/measure.rs"]
mod tests;
