//! One rank's part of a comparison: every candidate is verified at every size, then the candidates are timed in turn.

use harness::with_element;
use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Capture, Codec, Communicator, DeviceBuffer, Dtype, Reduction, Stream, SymmetricBuffer};

use super::data::Data;
use super::entrant::Entrant;
use super::expected::Shape;
use super::floor::Times;
use super::side::{How, Ours, Side, With};
use harness::collective::Collective;
use harness::contest::competitor::Competitor;
use harness::contest::repeats::Repeats;
use harness::contest::stopwatch::Stopwatch;
use harness::contest::turns::{Contender, Mode, SideLap, Turns, Verdict, usual_operations};
use harness::failure::Failure;
use harness::names::by_name;
use harness::nvshmem::{self, Heap};
use harness::ranks::{Say, Task};
use reference::bounds::Bounds;
use reference::data::checksum;
use reference::element::Summand;

/// The task: the candidates and the sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Race {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) collective: Collective,
    /// The algorithm of an all-reduce.
    #[serde(with = "by_name")]
    pub(super) algorithm: Algorithm,
    pub(super) ranks: usize,
    /// Elements of the input.
    pub(super) sizes_elems: Vec<usize>,
    /// Other candidates of this library.
    pub(super) with: Vec<With>,
    pub(super) competitors: Vec<Competitor>,
    pub(super) modes: Vec<Mode>,
    /// Operations of one launch; `None`: by size.
    pub(super) operations: Option<u32>,
    /// Timed launches.
    pub(super) launches: Repeats,
    /// Message size of the floor.
    pub(super) floor_bytes: u64,
    pub(super) seed: u64,
}

/// The trials of one size in one mode on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) algorithm: String,
    pub(super) operations: u32,
    /// Our first candidate, then our other candidates, then the peers, in their order.
    pub(super) sides: Vec<SideLap>,
}

/// A result of a rank: the floor, then a trial for each size in each mode.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    Floor(Times),
    Lap(Lap),
}

impl Task for Race {
    const NAME: &'static str = "race";
    type Found = Found;

    /// Input and output of the largest size, the staging of copy engines, and the buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        4 * (64 << 10) + 2 * self.largest_bytes().max(self.floor_bytes) + self.workspace_bytes()
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.with.contains(&With::Nvshmem) { nvshmem::variables() } else { Vec::new() }
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Found>) -> Result<(), Failure> {
        if self.workspace_bytes() > 0 {
            communicator.reserve_workspace(self.workspace_bytes() as usize)?;
        }
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        let with_hosts = Stopwatch::after(1, communicator, &meeting, &stream)?;
        say(Found::Floor(Times::measure(communicator, &meeting, &stopwatch, self.launches)?))?;
        with_element!(self.dtype, T => self.race::<T>(communicator, [&stopwatch, &with_hosts], say))
    }
}

impl Race {
    /// Bytes of the input.
    pub(super) fn bytes(&self, elems: usize) -> u64 {
        (elems * self.dtype.bytes()) as u64
    }

    pub(super) fn shape(&self, elems: usize) -> Shape {
        Shape { collective: self.collective, elems, ranks: self.ranks }
    }

    /// Bytes of the larger operand of the largest size.
    fn largest_bytes(&self) -> u64 {
        let larger = |elems: &usize| self.bytes(self.shape(*elems).larger_elems());
        self.sizes_elems.iter().map(larger).max().unwrap_or(0)
    }

    fn workspace_bytes(&self) -> u64 {
        if self.with.contains(&With::CopyEngine) { self.largest_bytes() } else { 0 }
    }

    fn race<T: Summand>(
        &self,
        communicator: &Communicator,
        [stopwatch, with_hosts]: [&Stopwatch<'_>; 2],
        say: Say<'_, Found>,
    ) -> Result<(), Failure> {
        let nccl = Entrant::open(&self.competitors, communicator, self.collective, self.largest_bytes() as usize)?;
        let plain = self.plain::<T>(communicator)?;
        let shmem = self.with.contains(&With::Nvshmem).then(|| Heap::open(communicator)).transpose()?;
        for ((size, elems), [plain_input, plain_output]) in self.sizes_elems.iter().copied().enumerate().zip(&plain) {
            let shape = self.shape(elems);
            let input: SymmetricBuffer<T> = communicator.symmetric(elems)?;
            let output: SymmetricBuffer<T> = communicator.symmetric(shape.output_elems())?;
            let of_shmem = match &shmem {
                Some(heap) => Some([heap.buffer::<T>(elems)?, heap.buffer::<T>(shape.output_elems())?]),
                None => None,
            };
            let kernels = How::Kernels(self.algorithm.into());
            let symmetric = |how, exact| self.ours(communicator, how, exact, [&input, &output]);
            let exact = self.is_exact(communicator, elems, &[true]);
            let mut sides: Vec<Box<dyn Side<'_, T> + '_>> = vec![Box::new(symmetric(kernels, exact))];
            for with in &self.with {
                sides.push(match with {
                    With::CopyEngine => Box::new(symmetric(How::CopyEngine, true)),
                    With::Fp8 | With::Int8 | With::Int6 | With::Int4 => {
                        Box::new(symmetric(How::Kernels(with.codec().into()), false))
                    }
                    With::Plain => {
                        let exact = self.is_exact(communicator, elems, &[true, false]);
                        Box::new(self.ours(communicator, kernels, exact, [plain_input, plain_output]))
                    }
                    With::Nvshmem => match &of_shmem {
                        Some([input, output]) => Box::new(self.ours(communicator, kernels, exact, [input, output])),
                        None => continue,
                    },
                });
            }
            for (competitor, nccl) in self.competitors.iter().zip(nccl.iter().cycle()) {
                sides.push(nccl.side(*competitor, &input, &output)?);
            }
            let turns = Turns { team: communicator, graphs: stopwatch, calls: with_hosts, launches: self.launches };
            Heat { race: self, communicator, turns, size, shape }.run(&sides, say)?;
        }
        shmem.map_or(Ok(()), |heap| heap.close())
    }

    /// A candidate of this library on these operands.
    fn ours<'a, B>(
        &self,
        communicator: &'a Communicator,
        how: How,
        exact: bool,
        [input, output]: [&'a B; 2],
    ) -> Ours<'a, B> {
        Ours { communicator, collective: self.collective, how, exact, input, output }
    }

    /// Input and output of each size for the candidate on plain memory; empty without such a candidate. All buffers
    /// live to the end: peers map the memory that a graph registers, and unmap it some time after the graph is dropped.
    fn plain<T: Summand>(&self, communicator: &Communicator) -> symmetra::Result<Vec<[DeviceBuffer<T>; 2]>> {
        let buffer = |elems: usize| {
            let elems = if self.with.contains(&With::Plain) { elems } else { 0 };
            DeviceBuffer::new(communicator.device(), elems)
        };
        let of_size = |elems: &usize| Ok([buffer(*elems)?, buffer(self.shape(*elems).output_elems())?]);
        self.sizes_elems.iter().map(of_size).collect()
    }

    /// Whether our sums are in rank order, rounded once, for each value of `direct`: whether peers can address the
    /// operands. This holds except for some all-reduces.
    fn is_exact(&self, communicator: &Communicator, elems: usize, direct: &[bool]) -> bool {
        let exact = |direct: &bool| {
            let algorithm = self.algorithm(communicator, *direct, self.bytes(elems));
            algorithm.is_exact(self.dtype, communicator.world_size())
        };
        self.collective != Collective::AllReduce || direct.iter().all(exact)
    }

    /// The algorithm of an all-reduce of a size: the requested algorithm, or the table's choice.
    fn algorithm(&self, communicator: &Communicator, direct: bool, bytes: u64) -> Algorithm {
        match self.algorithm {
            Algorithm::Auto => communicator.chosen(self.dtype, Reduction::Sum, direct, bytes),
            named => named,
        }
    }
}

/// One size.
struct Heat<'h, 'w> {
    race: &'h Race,
    communicator: &'h Communicator,
    turns: Turns<'h, 'w>,
    size: usize,
    shape: Shape,
}

impl Heat<'_, '_> {
    /// The candidates, ours first.
    fn run<'a, T: Summand>(&self, sides: &[Box<dyn Side<'a, T> + '_>], say: Say<'_, Found>) -> Result<(), Failure> {
        let Shape { collective, elems, ranks } = self.shape;
        let communicator = self.communicator;
        let larger_bytes = self.race.bytes(self.shape.larger_elems());
        let usual = usual_operations(communicator.device().kind(), larger_bytes);
        let operations = self.race.operations.unwrap_or(usual);
        let data = Data::<T>::new(self.race.seed, elems, ranks);
        let algorithm = match collective {
            Collective::AllReduce => self.race.algorithm(communicator, true, larger_bytes).to_string(),
            _ => self.shape.transport(communicator, T::DTYPE),
        };
        let rank = communicator.rank();
        let checked = |(number, side)| {
            let bounds = self.race.bounds(number);
            Checked { side, bounds, data: &data, shape: self.shape, rank }
        };
        let contenders: Vec<_> = sides.iter().map(AsRef::as_ref).enumerate().map(checked).collect();
        for mode in &self.race.modes {
            let laps = self.turns.laps(*mode, operations, &contenders)?;
            let algorithm = algorithm.clone();
            say(Found::Lap(Lap { size: self.size, mode: *mode, algorithm, operations, sides: laps }))?;
        }
        Ok(())
    }
}

/// A candidate, and its expected data.
struct Checked<'s, 'a, T> {
    side: &'s (dyn Side<'a, T> + 's),
    /// The error bounds of a codec.
    bounds: Option<Bounds>,
    data: &'s Data<T>,
    shape: Shape,
    rank: usize,
}

impl<'a, T: Summand> Contender<'a> for Checked<'_, 'a, T> {
    fn enqueue(&self, operations: u32, stream: &Stream) -> symmetra::Result<()> {
        (0..operations).try_for_each(|_| self.side.enqueue(stream))
    }

    fn record(&self, operations: u32, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        (0..operations).try_for_each(|_| self.side.record(capture))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        let output = match self.shape.gives_output(self.rank) {
            true => self.data.of(self.rank),
            false => Data::poison(self.shape.output_elems()),
        };
        self.side.write(&self.data.of(self.rank), &output, stream)
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<Verdict> {
        let (result, stretches) = (self.side.read(stream)?, self.shape.stretches(self.rank));
        let wrong = match &self.bounds {
            Some(bounds) => self.data.count_beyond(bounds, &result, [self.rank, self.shape.ranks]),
            None if self.side.is_exact() => self.data.count_unequal(&result, &stretches),
            None => self.data.count_far(&result, &stretches),
        };
        Ok(Verdict { wrong, checksum: checksum(&result) })
    }
}

impl Race {
    /// The candidates by name, ours first.
    pub(super) fn side_names(&self) -> Vec<&'static str> {
        let own = [OURS].into_iter().chain(self.with.iter().map(|with| with.name()));
        own.chain(self.competitors.iter().map(|competitor| competitor.name())).collect()
    }

    /// The error bounds of the codec of a candidate, if it has one.
    fn bounds(&self, side: usize) -> Option<Bounds> {
        let codec = self.with.get(side.checked_sub(1)?)?.codec();
        let algorithm = codec.algorithm(self.ranks);
        (codec != Codec::None).then_some(Bounds { codec, reduction: Reduction::Sum, algorithm })
    }

    /// The candidates that have codecs, by name.
    pub(super) fn coded_sides(&self) -> Vec<&'static str> {
        self.with.iter().filter(|with| with.codec() != Codec::None).map(|with| with.name()).collect()
    }

    /// How many of the candidates are ours.
    pub(super) fn own_sides(&self) -> usize {
        1 + self.with.len()
    }
}

/// The name of this library's first candidate.
pub(super) const OURS: &str = "symmetra";
