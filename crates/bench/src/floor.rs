//! `symmetra-bench floor`: times of the hardware that no collective can beat.

mod heap;

use serde::{Deserialize, Serialize};
use symmetra::{Capture, Communicator, DeviceKind, Stream, SymmetricBuffer};

use super::flags::{BenchRanks, OutputArgs};
use harness::contest::repeats::Repeats;
use harness::contest::stopwatch::Stopwatch;
use harness::failure::Failure;
use harness::ranks::{Run, Say, Task};
use harness::statistics::{median, slowest};
use harness::table::Table;

/// Times of the hardware: an empty graph node, a barrier, copies and stores to peers, a kernel's accesses to a peer's
/// memory.
///
/// Each is captured in a graph, launched on all ranks once they have met on their devices, and timed. A figure is the
/// median over the launches of the slowest rank: microseconds for one operation, and 10^9 bytes a second that a rank
/// sends.
///
/// Rows that begin with `kernel:` measure the functions of symmetra/device/heap.cuh. All ranks work at once.
///
/// *Load*: one thread loads words of 8 bytes of the next rank; each word holds the place of the next word; the time is
/// the time of one load. *fetch_add*: one thread adds to a word of 8 bytes of the next rank, at system scope, in
/// relaxed order; each addition adds the result of the last one. The row is left out where links have no atomics.
///
/// *put_signal*: pairs of ranks (0 and 1, 2 and 3) send 16 bytes and a signal there and back; the time is half of that;
/// the last of an odd number of ranks has no partner. *put*: 8 blocks copy 64 MiB (on the CPU 1 MiB) to the next rank.
///
/// These rows move random data. Every word that arrived is compared in the same run.
///
/// Exit status: 0, or 1 when a word is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ranks: BenchRanks,

    /// Timed launches of each operation
    #[arg(long, alias = "launches", value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up launches of each operation before the timed launches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    /// Seed of the random data [default: a new one every run, printed with --json]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The task: every quantity is timed in `launches` launches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Floor {
    launches: Repeats,
    bytes: u64,
    seed: u64,
}

/// The measurements of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    times: Times,
    heap: Vec<heap::Measured>,
}

impl Task for Floor {
    const NAME: &'static str = "floor";
    type Found = Found;

    fn heap_bytes(&self) -> u64 {
        3 * (64 << 10) + 2 * self.bytes + heap::heap_bytes(self.bytes)
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Found>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        let times = Times::measure(communicator, &meeting, &stopwatch, self.launches)?;
        let heap = heap::measure(communicator, &stopwatch, self.launches, self.bytes, self.seed)?;
        say(Found { times, heap })
    }
}

/// One rank's times of one operation, for every launch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    bytes: u64,
    /// Times in the order of [`QUANTITIES`].
    times_us: Vec<Vec<f64>>,
}

/// A measured operation: its name, and to how many of the other ranks one operation sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantity {
    words: &'static str,
    kind: Kind,
    all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    EmptyNode,
    Barrier,
    Copy,
    Store,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { words: "empty kernel, one graph node to the next", kind: Kind::EmptyNode, all: false },
    Quantity { words: "barrier of all ranks, 1 block", kind: Kind::Barrier, all: false },
    Quantity { words: "copy engine to the next rank", kind: Kind::Copy, all: false },
    Quantity { words: "copy engine to all ranks, one after the other", kind: Kind::Copy, all: true },
    Quantity { words: "16-byte stores to the next rank", kind: Kind::Store, all: false },
    Quantity { words: "16-byte stores to all ranks at once", kind: Kind::Store, all: true },
];

impl Quantity {
    /// Operations of one graph.
    fn operations(self, device: DeviceKind) -> usize {
        match (self.kind, device) {
            (Kind::EmptyNode | Kind::Barrier, _) => 40,
            (_, DeviceKind::Cuda) => 8,
            _ => 2,
        }
    }

    /// Messages that a rank sends in one operation.
    fn messages(self, ranks: usize) -> usize {
        match self.kind {
            Kind::EmptyNode | Kind::Barrier => 0,
            _ => {
                if self.all {
                    ranks - 1
                } else {
                    1
                }
            }
        }
    }
}

/// Operands of the measured operations.
struct Buffers<'a> {
    communicator: &'a Communicator,
    meeting: &'a SymmetricBuffer<f32>,
    from: &'a SymmetricBuffer<f32>,
    to: &'a SymmetricBuffer<f32>,
}

impl<'a> Buffers<'a> {
    fn record(&self, quantity: Quantity, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        let (communicator, from, to) = (self.communicator, self.from, self.to);
        let ranks = communicator.world_size();
        // Every rank starts with its right neighbour, so that no two ranks write to the same rank.
        let right = |distance: usize| (communicator.rank() + distance) % ranks;
        let peers: Vec<usize> = (1..=quantity.messages(ranks)).map(right).collect();
        match quantity.kind {
            Kind::EmptyNode => communicator.probe_launches(1, 32, 1, capture),
            Kind::Barrier => self.meeting.signals().barrier(0, capture),
            Kind::Copy => peers.iter().try_for_each(|peer| communicator.put(from, to, *peer, capture)),
            Kind::Store => communicator.probe_stores(from, to, &peers, capture),
        }
    }
}

impl Times {
    /// Size of a message: large enough for bandwidth.
    pub(super) fn bytes(kind: DeviceKind) -> u64 {
        match kind {
            DeviceKind::Cuda => 64 << 20,
            _ => 1 << 20,
        }
    }

    /// One rank's part. Collective; blocks.
    pub(super) fn measure(
        communicator: &Communicator,
        meeting: &SymmetricBuffer<f32>,
        stopwatch: &Stopwatch<'_>,
        launches: Repeats,
    ) -> Result<Self, Failure> {
        let kind = communicator.device().kind();
        let bytes = Self::bytes(kind);
        let elems = bytes as usize / size_of::<f32>();
        let (from, to) = (communicator.symmetric::<f32>(elems)?, communicator.symmetric::<f32>(elems)?);
        let buffers = Buffers { communicator, meeting, from: &from, to: &to };
        let mut times_us = Vec::new();
        for quantity in QUANTITIES {
            let operations = quantity.operations(kind);
            let graph = stopwatch
                .stream()
                .capture(|capture| (0..operations).try_for_each(|_| buffers.record(quantity, capture)))?;
            let mut times = Vec::new();
            for timed in launches.runs() {
                let time = stopwatch.time(|| graph.launch(stopwatch.stream()))?;
                times.extend(timed.then_some(time.device_us / operations as f64));
            }
            times_us.push(times);
        }
        Ok(Self { bytes, times_us })
    }
}

/// One line of the floor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Absent where the line was not measured.
    pub(super) time_us: Option<f64>,
    /// The bandwidth of a rank, if it sends.
    pub(super) gbps: Option<f64>,
    /// Received words that differ from the sent words, on all ranks; absent where no words are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<u64>,
    /// Why the line was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

/// Combines the measurements of all ranks.
pub(super) fn lines(floors: &[&Times]) -> Vec<Line> {
    let line = |(number, quantity): (usize, &Quantity)| {
        let times = floors.iter().filter_map(|floor| floor.times_us.get(number)).map(Vec::as_slice);
        let time_us = median(slowest(times));
        let sent = quantity.messages(floors.len()) as f64 * floors.first().map_or(0, |floor| floor.bytes) as f64;
        let gbps = (sent > 0.0 && time_us > 0.0).then(|| sent / time_us / 1e3);
        Line { name: quantity.words, time_us: Some(time_us), gbps, wrong: None, skipped: None }
    };
    QUANTITIES.iter().enumerate().map(line).collect()
}

/// The text lines of the table.
pub(super) fn table(lines: &[Line]) -> Table {
    let compared = lines.iter().any(|line| line.wrong.is_some());
    let mut headings = vec!["floor", "time us", "GB/s a rank"];
    headings.extend(compared.then_some("wrong"));
    let mut table = Table::new(headings.iter().copied(), 1..headings.len());
    let dash = || "-".to_owned();
    for line in lines {
        let time = line.time_us.map_or_else(dash, |time_us| format!("{time_us:.2}"));
        let gbps = line.gbps.map_or_else(dash, |gbps| format!("{gbps:.1}"));
        let wrong = compared.then(|| line.wrong.map_or_else(dash, |wrong| wrong.to_string()));
        table.add_row([line.name.to_owned(), time, gbps].into_iter().chain(wrong));
    }
    table
}

/// The table, and below it why lines were not measured.
fn text(lines: &[Line]) -> String {
    let why = |line: &Line| line.skipped.as_ref().map(|why| format!("\n{}: not measured, {why}", line.name));
    format!("{}{}", table(lines), lines.iter().filter_map(why).collect::<String>())
}

/// Fails if any word was wrong.
fn verdict(lines: &[Line], seed: u64) -> Result<(), Failure> {
    let wrong = |line: &Line| line.wrong.filter(|wrong| *wrong > 0).map(|wrong| (line.name, wrong));
    match lines.iter().find_map(wrong) {
        None => Ok(()),
        Some((name, wrong)) => Err(Failure::failed(format!("{name}: {wrong} words are wrong (seed {seed})"))),
    }
}

/// The object that `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    ranks: usize,
    device: &'a str,
    ranks_as: &'a str,
    bytes: u64,
    launches: u32,
    seed: u64,
    floor: &'a [Line],
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.output.check()?;
    let devices = args.ranks.devices()?;
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let bytes = Times::bytes(kind);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let launches = Repeats { timed: args.iterations, warmup: args.warmup };
    let task = Floor { launches, bytes, seed };
    let found = Run::new(&devices, task).collect(args.ranks.run.ranks_as)?;
    let mut lines = lines(&found.iter().map(|found| &found.times).collect::<Vec<_>>());
    lines.extend(heap::lines(&found.iter().map(|found| found.heap.as_slice()).collect::<Vec<_>>(), bytes));
    let report = Report {
        ranks: devices.len(),
        device: kind.name(),
        ranks_as: args.ranks.run.ranks_as.name(),
        bytes,
        launches: args.iterations,
        seed,
        floor: &lines,
    };
    args.output.write(text(&lines), &report)?;
    verdict(&lines, seed)
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/floor.rs"]
mod tests;
