//! `symmetra bench floor`: what the hardware gives, below which no collective gets.

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::{Deserialize, Serialize};
use symmetra::{Capture, Communicator, DeviceKind, Stream, SymmetricBuffer};

use super::measured::{median, slowest};
use super::stopwatch::Stopwatch;
use super::{Found, OutputArgs, RankArgs, Say, Task};
use crate::all_reduce;
use crate::failure::Failure;

/// What the hardware gives: an empty graph node, a barrier, copies and stores to peers.
///
/// Each is captured in a graph, launched on all ranks once they have met on their devices, and
/// timed. A figure is the median over the launches of the slowest rank.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ranks: RankArgs,

    /// Launches that are timed, of each
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    launches: u32,

    #[command(flatten)]
    output: OutputArgs,
}

/// What the ranks measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    launches: u32,
    bytes: u64,
}

impl Plan {
    pub(super) fn heap_bytes(&self) -> u64 {
        3 * (64 << 10) + 2 * self.bytes
    }

    pub(super) fn run(&self, communicator: &Communicator, say: Say<'_>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        let meeting = communicator.symmetric::<f32>(1)?;
        let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
        say(Found::Floor(Floor::measure(communicator, &meeting, &stopwatch, self.launches)?))
    }
}

/// One rank's times of one operation, for every launch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Floor {
    bytes: u64,
    /// In the order of [`QUANTITIES`].
    times_us: Vec<Vec<f64>>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    EmptyNode,
    Barrier,
    CopyNeighbour,
    CopyAll,
    StoreNeighbour,
    StoreAll,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity::EmptyNode,
    Quantity::Barrier,
    Quantity::CopyNeighbour,
    Quantity::CopyAll,
    Quantity::StoreNeighbour,
    Quantity::StoreAll,
];

impl Quantity {
    fn words(self) -> &'static str {
        match self {
            Self::EmptyNode => "empty kernel, one graph node to the next",
            Self::Barrier => "barrier of all ranks, 1 block",
            Self::CopyNeighbour => "copy engine to the next rank",
            Self::CopyAll => "copy engine to all ranks, one after the other",
            Self::StoreNeighbour => "16-byte stores to the next rank",
            Self::StoreAll => "16-byte stores to all ranks at once",
        }
    }

    /// In one graph.
    fn operations(self, kind: DeviceKind) -> usize {
        match (self, kind) {
            (Self::EmptyNode | Self::Barrier, _) => 40,
            (_, DeviceKind::Cuda) => 8,
            _ => 2,
        }
    }

    /// Messages that a rank sends in one operation.
    fn messages(self, ranks: usize) -> usize {
        match self {
            Self::EmptyNode | Self::Barrier => 0,
            Self::CopyNeighbour | Self::StoreNeighbour => 1,
            Self::CopyAll | Self::StoreAll => ranks - 1,
        }
    }
}

/// What is written from where to where.
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
        // Every rank starts with its right neighbour, so that no two write to the same one.
        let others: Vec<usize> = (1..ranks).map(|distance| (communicator.rank() + distance) % ranks).collect();
        match quantity {
            Quantity::EmptyNode => communicator.probe_launches(1, 32, 1, capture),
            Quantity::Barrier => self.meeting.signals().barrier(0, capture),
            Quantity::CopyNeighbour => communicator.put(from, to, others[0], capture),
            Quantity::CopyAll => others.iter().try_for_each(|peer| communicator.put(from, to, *peer, capture)),
            Quantity::StoreNeighbour => communicator.probe_stores(from, to, &others[..1], capture),
            Quantity::StoreAll => communicator.probe_stores(from, to, &others, capture),
        }
    }
}

impl Floor {
    /// Of a message, large enough for bandwidth to show.
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
        launches: u32,
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
            // The first launch of a graph is not for timing.
            for _ in 0..=launches {
                let time = stopwatch.time(|| graph.launch(stopwatch.stream()))?;
                times.push(time.device_us / operations as f64);
            }
            times_us.push(times.split_off(1));
        }
        Ok(Self { bytes, times_us })
    }
}

/// One line of the floor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) time_us: f64,
    /// That a rank sends, where it sends.
    pub(super) gbps: Option<f64>,
}

/// Combines what all ranks measured.
pub(super) fn lines(floors: &[Floor]) -> Vec<Line> {
    let line = |(number, quantity): (usize, &Quantity)| {
        let times = floors.iter().filter_map(|floor| floor.times_us.get(number)).map(Vec::as_slice);
        let time_us = median(slowest(times));
        let sent = quantity.messages(floors.len()) as f64 * floors.first().map_or(0, |floor| floor.bytes) as f64;
        let gbps = (sent > 0.0 && time_us > 0.0).then(|| sent / time_us / 1e3);
        Line { name: quantity.words(), time_us, gbps }
    };
    QUANTITIES.iter().enumerate().map(line).collect()
}

/// The lines for people.
pub(super) fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["floor", "time us", "GB/s a rank"]);
    for line in lines {
        let gbps = line.gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.1}"));
        table.add_row([line.name.to_owned(), format!("{:.2}", line.time_us), gbps]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    ranks: usize,
    device: &'a str,
    ranks_as: &'a str,
    bytes: u64,
    launches: u32,
    floor: &'a [Line],
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.output.check()?;
    let devices = args.ranks.devices()?;
    let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
    let plan = Plan { launches: args.launches, bytes: Floor::bytes(kind) };
    let bytes = plan.bytes;
    let mut floors = Vec::new();
    all_reduce::bench(&devices, args.ranks.ranks_as, Task::Floor(plan), |rank, found| match found {
        Found::Floor(floor) => {
            floors.push(floor);
            Ok(())
        }
        other => Err(Failure::failed(format!("rank {rank} found what has no place in a floor: {other:?}"))),
    })?;
    let lines = lines(&floors);
    let report = Report {
        ranks: devices.len(),
        device: kind.name(),
        ranks_as: args.ranks.ranks_as.name(),
        bytes,
        launches: args.launches,
        floor: &lines,
    };
    args.output.write(table(&lines), &report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_the_slowest_rank() {
        let floor = |scale: f64| Floor {
            bytes: 1_000_000,
            times_us: (0..QUANTITIES.len()).map(|number| vec![scale * (number + 1) as f64; 3]).collect(),
        };
        let lines = lines(&[floor(1.0), floor(10.0), floor(2.0)]);
        assert_eq!((lines[0].time_us, lines[0].gbps), (10.0, None));
        assert_eq!((lines[2].time_us, lines[2].gbps), (30.0, Some(1e6 / 30.0 / 1e3)));
        assert_eq!((lines[3].time_us, lines[3].gbps), (40.0, Some(2e6 / 40.0 / 1e3)));
    }
}
