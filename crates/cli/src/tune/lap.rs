//! One rank's part of a tuning: every algorithm timed at every size, in turn, until it has no hope; then those that
//! came near, again and at sizes between, around every size where the choice changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Communicator, DeviceBuffer, DeviceKind, Dtype, Graph, Reduction, Stream, SymmetricBuffer};

use super::kind::Kind;
use crate::all_reduce::Buffer;
use crate::bench::measured::{median, slowest};
use crate::bench::stopwatch::Stopwatch;
use crate::bench::{Found, Say};
use crate::element::Summand;
use crate::failure::Failure;
use crate::names::by_name;

/// What is timed, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) messages: Vec<Messages>,
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
    /// Of one operation, by the algorithm's name.
    pub(super) times_ns: BTreeMap<String, u64>,
    /// What launches differ by: between what lies all but a quarter of them at either end, as a share of the time.
    pub(super) noise: f64,
    /// What the table in force would have taken.
    #[serde(with = "by_name")]
    pub(super) before: Algorithm,
}

/// An algorithm whose traffic grows with the number of ranks is timed no more once it took this many times as
/// long as the fastest at two sizes in a row.
const HOPELESS: u64 = 4;

/// An algorithm came near where it took no longer than this many times as long as the fastest.
const NEAR: u64 = 2;

impl Plan {
    /// Laps of one world at least: how many are run again is seen later.
    pub(super) fn laps(&self) -> u64 {
        self.messages.iter().map(|messages| 2 * messages.sizes_elems.len() as u64).sum()
    }

    /// Input and output of the largest size, and where the ranks meet.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let bytes = |messages: &Messages| {
            messages.sizes_elems.last().map_or(0, |elems| (elems * messages.dtype.bytes()) as u64)
        };
        3 * (64 << 10) + 2 * self.messages.iter().map(bytes).max().unwrap_or(0)
    }

    /// Operations of one launch: 40, fewer where they take long.
    fn operations(&self, kind: DeviceKind, bytes: u64) -> u32 {
        let (budget_bytes, least) = match kind {
            DeviceKind::Host => (32 << 20, 2),
            _ => (512 << 20, 4),
        };
        self.operations.unwrap_or_else(|| u64::clamp(budget_bytes / bytes.max(1), least, 40) as u32)
    }

    pub(crate) fn run(&self, communicator: &Communicator, say: Say<'_>) -> Result<(), Failure> {
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
        Ok(())
    }
}

struct Timing<'t, 'w> {
    plan: &'t Plan,
    communicator: &'t Communicator,
    stopwatch: &'t Stopwatch<'w>,
}

impl Timing<'_, '_> {
    /// All sizes of one type in one kind of memory.
    fn run<T: Summand, B: Buffer<T>>(&self, messages: &Messages, direct: bool, say: Say<'_>) -> Result<(), Failure> {
        let largest = messages.sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::new(self.communicator, largest)?, B::new(self.communicator, largest)?];
        // Ordinary numbers: hardware takes its time over others.
        let mut random = fastrand::Rng::with_seed(self.communicator.rank() as u64);
        let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
        let values: Vec<T> = values.iter().copied().cycle().take(largest).collect();
        input.write(&values, self.stopwatch.stream())?;
        let mut field = Field::new(T::DTYPE, direct);
        let mut laps = Vec::new();
        let mut lap = |algorithms: &[Algorithm], elems: usize| -> Result<Lap, Failure> {
            let times_us = self.time(algorithms, elems, [&input, &output])?;
            let (times_ns, noise) = self.agree(algorithms, &times_us)?;
            let bytes = (elems * T::DTYPE.bytes()) as u64;
            let before = self.communicator.chosen(T::DTYPE, Reduction::Sum, direct, bytes);
            let lap = Lap { dtype: T::DTYPE, direct, bytes, times_ns, noise, before };
            if self.communicator.rank() == 0 {
                say(Found::Tuned(lap.clone()))?;
            }
            Ok(lap)
        };
        for elems in messages.sizes_elems.iter().copied() {
            let found = lap(&field.algorithms(), elems)?;
            field.drop_hopeless(&found.times_ns);
            laps.push(found);
        }
        for (elems, names) in self.again(&laps, T::DTYPE, direct)? {
            let algorithms: Vec<_> = names.iter().map(|name| name.parse()).collect::<symmetra::Result<_>>()?;
            lap(&algorithms, elems)?;
        }
        Ok(())
    }

    /// What to run again, by elements: around each change of the choice, the sizes on both sides of it and three between.
    /// Rank 0 decides for all.
    fn again(&self, laps: &[Lap], dtype: Dtype, direct: bool) -> Result<BTreeMap<usize, BTreeSet<String>>, Failure> {
        let mut again: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        if self.communicator.rank() == 0 {
            let (device, ranks) = (self.communicator.device(), self.communicator.world_size());
            let kind = Kind { device, ranks, dtype, direct };
            for exact in [false, true] {
                for number in kind.changes(laps, exact)? {
                    let (from, to) = (&laps[number], &laps[number + 1]);
                    let [start, end] = [from, to].map(|lap| lap.bytes as usize / dtype.bytes());
                    for quarter in 0..=4 {
                        again.entry(start + (end - start) * quarter / 4).or_default().extend(near(from, to));
                    }
                }
            }
        }
        let own = serde_json::to_vec(&again).map_err(Failure::doing("write sizes"))?;
        let all = self.communicator.group().all_gather_bytes(&own)?;
        serde_json::from_slice(all.first().map_or(&[], Vec::as_slice)).map_err(Failure::doing("read sizes"))
    }

    /// This rank's time of one operation, for every algorithm and launch. The algorithms take turns, so that whatever
    /// drifts meets all alike.
    fn time<T: Summand, B: Buffer<T>>(
        &self,
        algorithms: &[Algorithm],
        elems: usize,
        [input, output]: [&B; 2],
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let stream = self.stopwatch.stream();
        let operations = self.plan.operations(self.communicator.device().kind(), (elems * T::DTYPE.bytes()) as u64);
        let capture = |algorithm: &Algorithm| {
            // Bound, so that a graph pushes plain memory as a stream does and registers nothing.
            let (input, output) = (input.part(0..elems)?, output.part(0..elems)?);
            let bound = self.communicator.bind_all_reduce_with(*algorithm, input, output)?;
            stream.capture(|capture| (0..operations).try_for_each(|_| bound.enqueue(capture)))
        };
        let graphs: Vec<Graph<'_>> = algorithms.iter().map(capture).collect::<symmetra::Result<_>>()?;
        let mut times_us = vec![Vec::new(); graphs.len()];
        for launch in 0..=self.plan.launches {
            for (graph, times_us) in graphs.iter().zip(&mut times_us) {
                let time = self.stopwatch.time(|| graph.launch(stream))?;
                // The first launch of a graph is not for timing.
                if launch > 0 {
                    times_us.push(time.device_us / f64::from(operations));
                }
            }
        }
        Ok(times_us)
    }

    /// The median over the launches of the slowest rank's time, and the noise: the same on every rank.
    fn agree(&self, algorithms: &[Algorithm], times_us: &[Vec<f64>]) -> Result<(BTreeMap<String, u64>, f64), Failure> {
        let own = serde_json::to_vec(times_us).map_err(Failure::doing("write times"))?;
        let all = self.communicator.group().all_gather_bytes(&own)?;
        let all: Vec<Vec<Vec<f64>>> = all
            .iter()
            .map(|bytes| serde_json::from_slice(bytes))
            .collect::<Result<_, _>>()
            .map_err(Failure::doing("read times"))?;
        let of = |number: usize| slowest(all.iter().filter_map(|times| times.get(number)).map(Vec::as_slice));
        let time_ns = |(number, algorithm): (usize, &Algorithm)| {
            (algorithm.to_string(), (median(of(number)) * 1e3).round() as u64)
        };
        let noise = median((0..algorithms.len()).map(|number| spread(of(number))).collect());
        Ok((algorithms.iter().enumerate().map(time_ns).collect(), noise))
    }
}

/// Between what lie all values but a quarter at either end, as a share of their median.
fn spread(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let Some(high) = values.len().checked_sub(1 + quarter).and_then(|at| values.get(at)) else { return 0.0 };
    let width = high - values[quarter];
    width / median(values).max(f64::MIN_POSITIVE)
}

/// What was timed at both of two sizes and came near at one.
fn near(one: &Lap, other: &Lap) -> BTreeSet<String> {
    let at = |lap: &Lap, name: &String| {
        let fastest = lap.times_ns.values().min().copied().unwrap_or(0);
        lap.times_ns.get(name).is_some_and(|time| *time <= fastest.saturating_mul(NEAR))
    };
    let both = one.times_ns.keys().filter(|name| other.times_ns.contains_key(*name));
    both.filter(|name| at(one, name) || at(other, name)).cloned().collect()
}

/// Laps of rising sizes, of those that were run twice one: whatever disturbs makes slower, so the lesser time counts.
pub(super) fn merged(laps: &[Lap]) -> Vec<Lap> {
    let mut merged: BTreeMap<u64, Lap> = BTreeMap::new();
    for lap in laps {
        let known = merged.entry(lap.bytes).or_insert_with(|| lap.clone());
        for (name, time) in &lap.times_ns {
            let least = known.times_ns.entry(name.clone()).or_insert(*time);
            *least = (*least).min(*time);
        }
        known.noise = known.noise.min(lap.noise);
    }
    merged.into_values().collect()
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
        let fastest = times_ns.values().min().copied().unwrap_or(0);
        for (algorithm, sizes) in &mut self.0 {
            let time = times_ns.get(algorithm.name()).copied().unwrap_or(0);
            *sizes = if time > fastest.saturating_mul(HOPELESS) { *sizes + 1 } else { 0 };
        }
        self.0.retain(|(algorithm, sizes)| *sizes < 2 || !sends_all(*algorithm));
    }
}

/// Whether a rank sends whole messages, and so the larger they are the worse compared to others.
pub(super) fn sends_all(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::OneShotLL | Algorithm::OneShotSentinel | Algorithm::RecursiveDoubling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_sends_whole_messages_is_given_up() {
        let mut field = Field::new(Dtype::BF16, true);
        assert_eq!(field.algorithms(), Algorithm::ALL);
        let times = |slow_ns: u64| {
            let time = |algorithm: Algorithm| if algorithm == Algorithm::TwoShotLL { 10 } else { slow_ns };
            Algorithm::ALL.map(|algorithm| (algorithm.to_string(), time(algorithm))).into()
        };
        for slow_ns in [41, 40, 41] {
            field.drop_hopeless(&times(slow_ns));
            assert_eq!(field.algorithms(), Algorithm::ALL);
        }
        field.drop_hopeless(&times(41));
        let left = [Algorithm::TwoShotLL, Algorithm::TwoShotSentinel, Algorithm::TwoShotZeroCopy, Algorithm::Ring];
        assert_eq!(field.algorithms(), left);
    }

    #[test]
    fn noise_leaves_out_a_quarter_at_either_end() {
        assert_eq!(spread(vec![9.0, 1.0, 4.0, 5.0, 6.0, 0.0, 50.0]), 8.0 / 5.0);
        assert_eq!(spread(vec![4.0, 2.0]), 2.0 / 3.0);
        assert_eq!(spread(vec![3.0]), 0.0);
        assert_eq!(spread(Vec::new()), 0.0);
    }

    fn lap(bytes: u64, times: &[(&str, u64)], noise: f64) -> Lap {
        let times_ns = times.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect();
        Lap { dtype: Dtype::BF16, direct: true, bytes, times_ns, noise, before: Algorithm::Ring }
    }

    #[test]
    fn the_lesser_of_two_times_counts() {
        let laps = [
            lap(8, &[("a", 10), ("b", 7)], 0.5),
            lap(16, &[("a", 9)], 0.2),
            lap(8, &[("a", 4)], 0.1),
            lap(12, &[("b", 1)], 0.3),
        ];
        let found: Vec<_> = merged(&laps).into_iter().map(|lap| (lap.bytes, lap.times_ns, lap.noise)).collect();
        let expected = [lap(8, &[("a", 4), ("b", 7)], 0.1), lap(12, &[("b", 1)], 0.3), lap(16, &[("a", 9)], 0.2)];
        assert_eq!(found, expected.map(|lap| (lap.bytes, lap.times_ns, lap.noise)));
    }

    #[test]
    fn what_came_near_at_one_size_is_run_again() {
        let one = lap(8, &[("a", 10), ("b", 20), ("c", 21), ("d", 10)], 0.1);
        let other = lap(16, &[("a", 20), ("b", 41), ("c", 40)], 0.1);
        assert_eq!(near(&one, &other), ["a", "b", "c"].map(str::to_owned).into());
        assert_eq!(near(&other, &one), ["a", "b", "c"].map(str::to_owned).into());
        assert_eq!(near(&lap(8, &[("a", 10), ("b", 21)], 0.1), &other), ["a"].map(str::to_owned).into());
    }

    #[test]
    fn every_kind_of_call_has_its_algorithms() {
        assert!(!Field::new(Dtype::I32, true).algorithms().contains(&Algorithm::OneShotSentinel));
        assert!(!Field::new(Dtype::BF16, false).algorithms().contains(&Algorithm::TwoShotZeroCopy));
    }
}
