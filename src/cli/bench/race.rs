//! One rank's part of a race: every size on every side verified, then timed in turn.

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Communicator, DeviceKind, Dtype, Graph, Reduction, Stream, SymmetricBuffer};

use super::data::{Data, Wide};
use super::floor::Floor;
use super::peer::{Peer, Peers};
use super::side::{Ours, Side};
use super::stopwatch::{Stopwatch, Time};
use super::{Found, Say};
use crate::element::Summand;
use crate::failure::Failure;
use crate::names::by_name;

/// What is raced, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Race {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    #[serde(with = "by_name")]
    pub(super) algorithm: Algorithm,
    pub(super) sizes_elems: Vec<usize>,
    pub(super) peers: Vec<Peer>,
    pub(super) modes: Vec<Mode>,
    /// Operations of one launch, where that is not by size.
    pub(super) operations: Option<u32>,
    /// Launches that are timed.
    pub(super) launches: u32,
    /// Of the messages that the floor is measured with.
    pub(super) floor_bytes: u64,
    pub(super) seed: u64,
}

/// How operations are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// From a captured graph.
    Graph,
    /// One call after the other.
    Eager,
}

/// One size in one mode, as one rank saw it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) algorithm: String,
    pub(super) operations: u32,
    /// Ours first, then the peers in their order.
    pub(super) sides: Vec<SideLap>,
}

/// One side of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SideLap {
    /// Time of one operation in every launch.
    pub(super) times_us: Vec<f64>,
    /// The host's share of it.
    pub(super) host_us: Vec<f64>,
    pub(super) wrong: u64,
}

impl Race {
    fn bytes(&self, elems: usize) -> u64 {
        (elems * self.dtype.bytes()) as u64
    }

    /// Input and output of the largest size, and where the ranks meet.
    pub(super) fn heap_bytes(&self) -> u64 {
        let largest = self.sizes_elems.iter().max().map_or(0, |elems| self.bytes(*elems));
        3 * (64 << 10) + 2 * largest.max(self.floor_bytes)
    }

    /// Operations of one launch: 40, fewer on the CPU where they take long.
    fn operations(&self, kind: DeviceKind, bytes: u64) -> u32 {
        let usual = match kind {
            DeviceKind::Cuda => 40,
            _ => ((32 << 20) / bytes.max(1)).clamp(2, 40) as u32,
        };
        self.operations.unwrap_or(usual)
    }

    pub(super) fn run(&self, communicator: &Communicator, say: Say<'_>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        say(Found::Floor(Floor::measure(communicator, &meeting, &stopwatch, self.launches)?))?;
        with_element!(self.dtype, T => self.race::<T>(communicator, &stopwatch, say))
    }

    fn race<T: Summand + Wide>(
        &self,
        communicator: &Communicator,
        stopwatch: &Stopwatch<'_>,
        say: Say<'_>,
    ) -> Result<(), Failure> {
        let largest = self.sizes_elems.iter().map(|elems| self.bytes(*elems)).max().unwrap_or(0);
        let peers = Peers::open(&self.peers, communicator, largest)?;
        for (size, elems) in self.sizes_elems.iter().copied().enumerate() {
            let input: SymmetricBuffer<T> = communicator.symmetric(elems)?;
            let output: SymmetricBuffer<T> = communicator.symmetric(elems)?;
            let exact = self.algorithm(communicator, self.bytes(elems)).is_exact(T::DTYPE, communicator.world_size());
            let ours = Ours { communicator, algorithm: self.algorithm, exact, input: &input, output: &output };
            let mut sides: Vec<Box<dyn Side<'_, T> + '_>> = vec![Box::new(ours)];
            sides.extend(peers.sides(&input, &output)?);
            let heat = Heat { race: self, communicator, stopwatch, size, elems };
            heat.run(&sides, say)?;
        }
        Ok(())
    }

    /// What serves a size: the algorithm asked for, or the table's choice.
    fn algorithm(&self, communicator: &Communicator, bytes: u64) -> Algorithm {
        match self.algorithm {
            Algorithm::Auto => communicator.chosen(self.dtype, Reduction::Sum, true, bytes),
            named => named,
        }
    }
}

/// Ours first.
type Sides<'a, 's, T> = [Box<dyn Side<'a, T> + 's>];

/// One size.
struct Heat<'h, 'w> {
    race: &'h Race,
    communicator: &'h Communicator,
    stopwatch: &'h Stopwatch<'w>,
    size: usize,
    elems: usize,
}

impl Heat<'_, '_> {
    fn run<'a, T: Summand + Wide>(&self, sides: &Sides<'a, '_, T>, say: Say<'_>) -> Result<(), Failure> {
        let bytes = self.race.bytes(self.elems);
        let operations = self.race.operations(self.communicator.device().kind(), bytes);
        let data = Data::<T>::new(self.race.seed, self.elems, self.communicator.world_size());
        for mode in &self.race.modes {
            let laps = match mode {
                Mode::Graph => self.graphs(sides, operations, &data)?,
                Mode::Eager => self.eager(sides, operations, &data)?,
            };
            let algorithm = self.race.algorithm(self.communicator, bytes).to_string();
            say(Found::Lap(Lap { size: self.size, mode: *mode, algorithm, operations, sides: laps }))?;
        }
        Ok(())
    }

    fn graphs<'a, T: Summand + Wide>(
        &self,
        sides: &Sides<'a, '_, T>,
        operations: u32,
        data: &Data<T>,
    ) -> Result<Vec<SideLap>, Failure> {
        let stream = self.stopwatch.stream();
        let capture = |number: usize| {
            let side = &sides[number];
            // Not first in a graph: other libraries make their connections in the first call.
            side.enqueue(stream)?;
            self.communicator.synchronize(stream)?;
            stream.capture(|capture| (0..operations).try_for_each(|_| side.record(capture)))
        };
        let graphs: Vec<Graph<'a>> = (0..sides.len()).map(capture).collect::<symmetra::Result<_>>()?;
        self.time(sides, operations, data, |side| graphs[side].launch(stream))
    }

    fn eager<'a, T: Summand + Wide>(
        &self,
        sides: &Sides<'a, '_, T>,
        operations: u32,
        data: &Data<T>,
    ) -> Result<Vec<SideLap>, Failure> {
        let stream = self.stopwatch.stream();
        self.time(sides, operations, data, |side| (0..operations).try_for_each(|_| sides[side].enqueue(stream)))
    }

    /// `launch` enqueues all operations of a side. The sides take turns, so that whatever drifts
    /// meets all alike.
    fn time<'a, T: Summand + Wide>(
        &self,
        sides: &Sides<'a, '_, T>,
        operations: u32,
        data: &Data<T>,
        launch: impl Fn(usize) -> symmetra::Result<()>,
    ) -> Result<Vec<SideLap>, Failure> {
        let stream = self.stopwatch.stream();
        let mut laps = Vec::new();
        for (number, side) in sides.iter().enumerate() {
            side.write(&data.of(self.communicator.rank()), &data.poison(), stream)?;
            // Nobody may read what another has not written yet.
            self.communicator.group().barrier()?;
            launch(number)?;
            self.communicator.synchronize(stream)?;
            let result = side.read(stream)?;
            let wrong = if side.is_exact() { data.count_unequal(&result) } else { data.count_far(&result) };
            laps.push(SideLap { wrong, ..SideLap::default() });
        }
        // All have read their results before anything is summed again.
        self.communicator.group().barrier()?;
        for _ in 0..self.race.launches {
            for (number, lap) in laps.iter_mut().enumerate() {
                let Time { device_us, host_us } = self.stopwatch.time(|| launch(number))?;
                lap.times_us.push(device_us / f64::from(operations));
                lap.host_us.push(host_us / f64::from(operations));
            }
        }
        Ok(laps)
    }
}

/// The sides by name, ours first.
pub(super) fn side_names(peers: &[Peer]) -> Vec<&'static str> {
    [OURS].into_iter().chain(peers.iter().map(|peer| peer.name())).collect()
}

/// The name of this library's side.
pub(super) const OURS: &str = "symmetra";

/// The algorithm has to carry the type.
pub(super) fn check(algorithm: Algorithm, dtype: Dtype) -> Result<(), Failure> {
    match algorithm.carries(dtype) {
        true => Ok(()),
        false => Err(Failure::usage(format!("{algorithm} carries floating types only, not {dtype}"))),
    }
}
