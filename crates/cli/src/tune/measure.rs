//! One rank's part of a tuning: all algorithms are timed in turn at every size; hopeless algorithms are dropped.

use harness::with_element;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, DeviceBuffer, DeviceKind, Dtype, Graph, Reduction, Stream,
    SymmetricBuffer,
};

use super::experts::{ExpertLap, Layer};
use super::grids::{GridLap, Grids};
use super::norms::{NormLap, Norms};
use super::timing::Timing;
use harness::buffer::Buffer;
use harness::comparison::repeats::Repeats;
use harness::comparison::stopwatch::Stopwatch;
use harness::failure::Failure;
use harness::names::{by_name, by_name_each};
use harness::own::Own;
use harness::ranks::{Say, Task};
use reference::element::Summand;

/// The settings of a tuning, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) messages: Vec<Messages>,
    /// Codecs that are timed in addition to the algorithms, where they support the type.
    #[serde(with = "by_name_each")]
    pub(super) codecs: Vec<Codec>,
    pub(super) norms: Option<Norms>,
    pub(super) experts: Option<Layer>,
    pub(super) grids: Option<Grids>,
    /// Operations of one launch; `None`: by the size of the message.
    pub(super) operations: Option<u32>,
    /// Launches that are timed.
    pub(super) launches: Repeats,
}

/// Messages of one type, smallest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Messages {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) sizes_elems: Vec<usize>,
}

/// One size on one kind of memory, agreed among the ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    /// Whether peers could address the operands.
    pub(super) direct: bool,
    pub(super) bytes: u64,
    /// Times of one operation, by the name of the algorithm or codec.
    pub(super) times_ns: BTreeMap<String, u64>,
    /// The choice of the table that was in force.
    #[serde(with = "by_name")]
    pub(super) before: Algorithm,
}

/// A report of rank 0: a trial of sums, of norms, of experts or of a mesh.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    Sum(Lap),
    Norm(NormLap),
    Experts(ExpertLap),
    Grid(GridLap),
}

/// An algorithm that sends whole messages is dropped once it took this many times as long as the fastest at two sizes in
/// a row.
const HOPELESS: u64 = 4;

impl Plan {
    /// The part of the plan that `ranks` ranks can run.
    pub(super) fn on(&self, kind: DeviceKind, ranks: usize) -> Result<Self, Failure> {
        let experts = self.experts.as_ref().map(|layer| layer.on(kind, ranks)).transpose()?;
        Ok(Self { experts, ..self.clone() })
    }

    /// The number of trials of one world.
    pub(super) fn laps(&self) -> Result<u64, Failure> {
        let grids = self.grids.as_ref().map_or(Ok(0), Grids::laps)?;
        let norms = self.norms.as_ref().map_or(0, |norms| norms.tokens.len() as u64);
        let experts = self.experts.as_ref().map_or(0, |layer| layer.tokens.len() as u64);
        let sums = self.messages.iter().map(|messages| 2 * messages.sizes_elems.len() as u64).sum::<u64>();
        Ok(sums + norms + experts + grids)
    }
}

impl Task for Plan {
    const NAME: &'static str = "tune";
    type Found = Found;

    /// Input and output of the largest size, or input, sum and output of the most rows; the regions of experts; and the
    /// buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        let bytes = |messages: &Messages| {
            messages.sizes_elems.last().map_or(0, |elems| (elems * messages.dtype.bytes()) as u64)
        };
        let sums = 2 * self.messages.iter().map(bytes).max().unwrap_or(0);
        let regions = self.experts.as_ref().map_or(0, Layer::heap_bytes);
        4 * (64 << 10) + regions + sums.max(3 * self.norms.as_ref().map_or(0, Norms::largest_bytes))
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Found>) -> Result<(), Failure> {
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
        self.norms.as_ref().map_or(Ok(()), |norms| norms.run(&timing, &mut |lap| say(Found::Norm(lap))))?;
        self.experts.as_ref().map_or(Ok(()), |layer| layer.run(&timing, &mut |lap| say(Found::Experts(lap))))?;
        self.grids.as_ref().map_or(Ok(()), |grids| grids.run(&timing, &mut |lap| say(Found::Grid(lap))))
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
        messages: &Messages,
        direct: bool,
        say: Say<'_, Found>,
    ) -> Result<(), Failure> {
        let Timing { communicator, stopwatch, .. } = *self.timing;
        let largest = messages.sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::own(communicator, largest)?, B::own(communicator, largest)?];
        // Ordinary numbers: some hardware is slower with denormals and NaNs.
        let mut random = fastrand::Rng::with_seed(communicator.rank() as u64);
        let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
        let values: Vec<T> = values.iter().copied().cycle().take(largest).collect();
        input.write(&values, stopwatch.stream())?;
        let mut field = Field::new(T::DTYPE, direct);
        for elems in messages.sizes_elems.iter().copied() {
            let named: Vec<(String, AllReduceOptions)> =
                field.algorithms().into_iter().map(|algorithm| (algorithm.to_string(), algorithm.into())).collect();
            let codecs = self.codecs.iter().filter(|codec| codec.carries(T::DTYPE, Reduction::Sum));
            let coded = codecs.map(|codec| (codec.to_string(), AllReduceOptions::from(*codec)));
            let (names, options): (Vec<_>, Vec<_>) = named.into_iter().chain(coded).unzip();
            let times_ns = self.timing.agree(&names, &self.times(&options, elems, [&input, &output])?)?;
            field.drop_hopeless(&times_ns);
            let bytes = (elems * T::DTYPE.bytes()) as u64;
            let before = communicator.chosen(T::DTYPE, Reduction::Sum, direct, bytes);
            if communicator.rank() == 0 {
                say(Found::Sum(Lap { dtype: T::DTYPE, direct, bytes, times_ns, before }))?;
            }
        }
        Ok(())
    }

    /// This rank's time of one all-reduce, for every candidate and launch.
    fn times<T: Summand, B: Buffer<T>>(
        &self,
        ways: &[AllReduceOptions],
        elems: usize,
        [input, output]: [&B; 2],
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let Timing { communicator, stopwatch, .. } = *self.timing;
        let stream = stopwatch.stream();
        let operations = self.timing.operations((elems * T::DTYPE.bytes()) as u64);
        let capture = |way: &AllReduceOptions| {
            // Bound, so that a graph pushes plain memory as a stream does and registers no memory.
            let (input, output) = (input.part(0..elems)?, output.part(0..elems)?);
            let bound = communicator.bind_all_reduce_with(*way, input, output)?;
            stream.capture(|capture| (0..operations).try_for_each(|_| bound.enqueue(capture)))
        };
        let graphs: Vec<Graph<'_>> = ways.iter().map(capture).collect::<symmetra::Result<_>>()?;
        self.timing.time(&graphs, operations)
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
