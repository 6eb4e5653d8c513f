//! The limits of the hardware that races print, and their lines.

use serde::{Deserialize, Serialize};
use symmetra::{Capture, Communicator, DeviceKind, SymmetricBuffer};

use harness::columns::{self, Column};
use harness::comparison::turns::Turns;
use harness::failure::CommandFailure;
use harness::statistics::{median, slowest};
use harness::table::Table;

/// One rank's times of one operation, for every launch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LimitTimes {
    bytes: u64,
    /// Times in the order of [`QUANTITIES`].
    times_us: Vec<Vec<f64>>,
}

/// A measured operation: its name, and to how many of the other ranks one operation sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantity {
    words: &'static str,
    kind: LimitKind,
    all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitKind {
    EmptyNode,
    Barrier,
    Copy,
    Store,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { words: "empty kernel, one graph node to the next", kind: LimitKind::EmptyNode, all: false },
    Quantity { words: "barrier of all ranks, 1 block", kind: LimitKind::Barrier, all: false },
    Quantity { words: "copy engine to the next rank", kind: LimitKind::Copy, all: false },
    Quantity { words: "copy engine to all ranks, one after the other", kind: LimitKind::Copy, all: true },
    Quantity { words: "16-byte stores to the next rank", kind: LimitKind::Store, all: false },
    Quantity { words: "16-byte stores to all ranks at once", kind: LimitKind::Store, all: true },
];

impl Quantity {
    /// Operations of one graph.
    fn operations(self, device: DeviceKind) -> usize {
        match (self.kind, device) {
            (LimitKind::EmptyNode | LimitKind::Barrier, _) => 40,
            (_, DeviceKind::Cuda) => 8,
            _ => 2,
        }
    }

    /// Messages that a rank sends in one operation.
    fn messages(self, ranks: usize) -> usize {
        match self.kind {
            LimitKind::EmptyNode | LimitKind::Barrier => 0,
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
            LimitKind::EmptyNode => communicator.probe_launches(1, 32, 1, capture),
            LimitKind::Barrier => self.meeting.signals().barrier(0, capture),
            LimitKind::Copy => peers.iter().try_for_each(|peer| communicator.put(from, to, *peer, capture)),
            LimitKind::Store => communicator.probe_stores(from, to, &peers, capture),
        }
    }
}

impl LimitTimes {
    /// Size of a message: large enough for bandwidth.
    pub(super) fn bytes(kind: DeviceKind) -> u64 {
        match kind {
            DeviceKind::Cuda => 64 << 20,
            _ => 1 << 20,
        }
    }

    /// One rank's part. Collective; blocks.
    pub(super) fn measure(communicator: &Communicator, turns: &Turns<'_>) -> Result<Self, CommandFailure> {
        let kind = communicator.device().kind();
        let bytes = Self::bytes(kind);
        let elems = bytes as usize / size_of::<f32>();
        let meeting = communicator.symmetric::<f32>(1)?;
        let (from, to) = (communicator.symmetric::<f32>(elems)?, communicator.symmetric::<f32>(elems)?);
        let buffers = Buffers { communicator, meeting: &meeting, from: &from, to: &to };
        let times_us = QUANTITIES.map(|quantity| {
            let operations = quantity.operations(kind);
            let graph = turns
                .stream()
                .capture(|capture| (0..operations).try_for_each(|_| buffers.record(quantity, capture)))?;
            turns.times_us(operations as f64, || graph.launch(turns.stream()))
        });
        Ok(Self { bytes, times_us: times_us.into_iter().collect::<symmetra::Result<_>>()? })
    }
}

/// One line of the floor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LimitLine {
    pub(super) name: &'static str,
    /// Absent where the line was not measured.
    pub(super) time_us: Option<f64>,
    /// The bandwidth of a rank, if it sends.
    pub(super) gbps: Option<f64>,
    /// Received words that differ from the sent words, on all ranks; absent where no words are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wrong: Option<u64>,
    /// Why the line was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
}

/// Combines the measurements of all ranks.
pub(super) fn lines(floors: &[&LimitTimes]) -> Vec<LimitLine> {
    let line = |(number, quantity): (usize, &Quantity)| {
        let times = floors.iter().filter_map(|floor| floor.times_us.get(number)).map(Vec::as_slice);
        let time_us = median(slowest(times));
        let sent = quantity.messages(floors.len()) as f64 * floors.first().map_or(0, |floor| floor.bytes) as f64;
        let gbps = (sent > 0.0 && time_us > 0.0).then(|| sent / time_us / 1e3);
        LimitLine { name: quantity.words, time_us: Some(time_us), gbps, wrong: None, skipped: None }
    };
    QUANTITIES.iter().enumerate().map(line).collect()
}

/// The columns, with one for wrong words where any line has such words.
pub(super) fn columns(lines: &[LimitLine]) -> Vec<Column<LimitLine>> {
    let mut columns = vec![
        Column::text("floor", |line: &LimitLine| line.name.to_owned()),
        Column::number("time us", 2, |line: &LimitLine| line.time_us),
        Column::number("GB/s a rank", 1, |line: &LimitLine| line.gbps),
    ];
    if lines.iter().any(|line| line.wrong.is_some()) {
        columns.push(Column::number("wrong", 0, |line: &LimitLine| line.wrong.map(|wrong| wrong as f64)));
    }
    columns
}

/// The table of the text output.
pub(super) fn table(lines: &[LimitLine]) -> Table {
    columns::table(&columns(lines), lines)
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/limits.rs"]
mod tests;
