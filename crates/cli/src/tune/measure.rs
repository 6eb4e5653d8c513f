//! One rank's part of a tuning: all algorithms are timed in turn at every size, until one has no hope.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, DeviceBuffer, DeviceKind, Dtype, Graph, Reduction, Stream,
    SymmetricBuffer,
};

use super::norms::{NormLap, Norms};
use crate::all_reduce::Buffer;
use crate::bench::stopwatch::Stopwatch;
use crate::element::Summand;
use crate::failure::Failure;
use crate::names::{by_name, by_name_each};
use crate::ranks::{Say, Task};
use crate::statistics::{median, slowest};

/// What is timed, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) messages: Vec<Messages>,
    /// Codecs that are timed beside the algorithms, where they carry the type.
    #[serde(with = "by_name_each")]
    pub(super) codecs: Vec<Codec>,
    pub(super) norms: Option<Norms>,
    /// Operations of one launch, where that is not by size.
    pub(super) operations: Option<u32>,
    /// Launches that are timed.
    pub(super) launches: u32,
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
    /// Of one operation, by the name of the algorithm or codec.
    pub(super) times_ns: BTreeMap<String, u64>,
    /// What the table in force would have taken.
    #[serde(with = "by_name")]
    pub(super) before: Algorithm,
}

/// What rank 0 says: a lap of sums, or one of norms.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    Sum(Lap),
    Norm(NormLap),
}

/// An algorithm that sends whole messages is dropped once it took this many times as long as the fastest at two sizes in
/// a row.
const HOPELESS: u64 = 4;

impl Plan {
    /// Laps of one world.
    pub(super) fn laps(&self) -> u64 {
        let norms = self.norms.as_ref().map_or(0, |norms| norms.tokens.len() as u64);
        norms + self.messages.iter().map(|messages| 2 * messages.sizes_elems.len() as u64).sum::<u64>()
    }

    /// Operations of one launch: 40, fewer where they take long.
    pub(super) fn operations(&self, kind: DeviceKind, bytes: u64) -> u32 {
        let (budget_bytes, least) = match kind {
            DeviceKind::Host => (32 << 20, 2),
            _ => (512 << 20, 4),
        };
        self.operations.unwrap_or_else(|| u64::clamp(budget_bytes / bytes.max(1), least, 40) as u32)
    }
}

impl Task for Plan {
    const NAME: &'static str = "tune";
    type Found = Found;

    /// Input and output of the largest size, or input, sum and output of the most rows, and where the ranks meet.
    fn heap_bytes(&self) -> u64 {
        let bytes = |messages: &Messages| {
            messages.sizes_elems.last().map_or(0, |elems| (elems * messages.dtype.bytes()) as u64)
        };
        let sums = 2 * self.messages.iter().map(bytes).max().unwrap_or(0);
        4 * (64 << 10) + sums.max(3 * self.norms.as_ref().map_or(0, Norms::largest_bytes))
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Found>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        let timing = Timing { plan: self, communicator, stopwatch: &stopwatch };
        for messages in &self.messages {
            with_element!(messages.dtype, T => {
                timing.run::<T, SymmetricBuffer<T>>(messages, true, say)?;
                timing.run::<T, DeviceBuffer<T>>(messages, false, say)
            })?;
        }
        self.norms.as_ref().map_or(Ok(()), |norms| norms.run(&timing, say))
    }
}

pub(super) struct Timing<'t, 'w> {
    pub(super) plan: &'t Plan,
    pub(super) communicator: &'t Communicator,
    pub(super) stopwatch: &'t Stopwatch<'w>,
}

impl Timing<'_, '_> {
    /// All sizes of one type in one kind of memory.
    fn run<T: Summand, B: Buffer<T>>(
        &self,
        messages: &Messages,
        direct: bool,
        say: Say<'_, Found>,
    ) -> Result<(), Failure> {
        let largest = messages.sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::new(self.communicator, largest)?, B::new(self.communicator, largest)?];
        // Ordinary numbers: some hardware is slower with denormals and NaNs.
        let mut random = fastrand::Rng::with_seed(self.communicator.rank() as u64);
        let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
        let values: Vec<T> = values.iter().copied().cycle().take(largest).collect();
        input.write(&values, self.stopwatch.stream())?;
        let mut field = Field::new(T::DTYPE, direct);
        for elems in messages.sizes_elems.iter().copied() {
            let named: Vec<(String, AllReduceOptions)> =
                field.algorithms().into_iter().map(|algorithm| (algorithm.to_string(), algorithm.into())).collect();
            let codecs = self.plan.codecs.iter().filter(|codec| codec.carries(T::DTYPE, Reduction::Sum));
            let coded = codecs.map(|codec| (codec.to_string(), AllReduceOptions::from(*codec)));
            let (names, options): (Vec<_>, Vec<_>) = named.into_iter().chain(coded).unzip();
            let times_ns = self.agree(&names, &self.sums(&options, elems, [&input, &output])?)?;
            field.drop_hopeless(&times_ns);
            let bytes = (elems * T::DTYPE.bytes()) as u64;
            let before = self.communicator.chosen(T::DTYPE, Reduction::Sum, direct, bytes);
            if self.communicator.rank() == 0 {
                say(Found::Sum(Lap { dtype: T::DTYPE, direct, bytes, times_ns, before }))?;
            }
        }
        Ok(())
    }

    /// This rank's time of one all-reduce, for every way and launch.
    fn sums<T: Summand, B: Buffer<T>>(
        &self,
        ways: &[AllReduceOptions],
        elems: usize,
        [input, output]: [&B; 2],
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let stream = self.stopwatch.stream();
        let operations = self.plan.operations(self.communicator.device().kind(), (elems * T::DTYPE.bytes()) as u64);
        let capture = |way: &AllReduceOptions| {
            // Bound, so that a graph pushes plain memory as a stream does and registers nothing.
            let (input, output) = (input.part(0..elems)?, output.part(0..elems)?);
            let bound = self.communicator.bind_all_reduce_with(*way, input, output)?;
            stream.capture(|capture| (0..operations).try_for_each(|_| bound.enqueue(capture)))
        };
        let graphs: Vec<Graph<'_>> = ways.iter().map(capture).collect::<symmetra::Result<_>>()?;
        self.time(&graphs, operations)
    }

    /// This rank's time of one operation, for every graph of so many operations and every launch. The graphs take turns,
    /// so that drift affects all alike.
    pub(super) fn time(&self, graphs: &[Graph<'_>], operations: u32) -> Result<Vec<Vec<f64>>, Failure> {
        let mut times_us = vec![Vec::new(); graphs.len()];
        for launch in 0..=self.plan.launches {
            for (graph, times_us) in graphs.iter().zip(&mut times_us) {
                let time = self.stopwatch.time(|| graph.launch(self.stopwatch.stream()))?;
                // The first launch of a graph is not for timing.
                if launch > 0 {
                    times_us.push(time.device_us / f64::from(operations));
                }
            }
        }
        Ok(times_us)
    }

    /// The median over the launches of the slowest rank's time, by name: all ranks have the same.
    pub(super) fn agree(&self, names: &[String], times_us: &[Vec<f64>]) -> Result<BTreeMap<String, u64>, Failure> {
        let own = serde_json::to_vec(times_us).map_err(Failure::doing("write times"))?;
        let all = self.communicator.group().all_gather_bytes(&own)?;
        let all: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|bytes| serde_json::from_slice(bytes))
            .collect::<Result<_, _>>()
            .map_err(Failure::doing("read times"))?;
        let time_ns = |(number, name): (usize, &String)| {
            let times = slowest(all.iter().filter_map(|times| times.get(number)).map(Vec::as_slice));
            (name.clone(), (median(times) * 1e3).round() as u64)
        };
        Ok(names.iter().enumerate().map(time_ns).collect())
    }
}

/// The algorithms that are still timed, and at how many sizes in a row each was without hope.
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
