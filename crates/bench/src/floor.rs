//! `symmetra-bench floor`: times of the hardware that no collective can beat.

mod heap;

use serde::{Deserialize, Serialize};
use symmetra::Communicator;

use super::flags::{BenchRanks, LaunchArgs, OutputArgs};
use super::limits::{self, LimitLine, LimitTimes};
use super::report::{Ran, RunSite};
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Turns;
use harness::failure::CommandFailure;
use harness::ranks::{Say, Task};

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

    #[command(flatten)]
    launches: LaunchArgs,

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
pub(crate) struct FloorMeasurement {
    times: LimitTimes,
    heap: Vec<heap::Measured>,
}

impl Task for Floor {
    const NAME: &'static str = "floor";
    type Found = FloorMeasurement;

    fn heap_bytes(&self) -> u64 {
        4 * (64 << 10) + 2 * self.bytes + heap::heap_bytes(self.bytes)
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, FloorMeasurement>) -> Result<(), CommandFailure> {
        Turns::open(communicator, communicator, self.launches, |turns| {
            let times = LimitTimes::measure(communicator, turns)?;
            let heap = heap::measure(communicator, turns, self.bytes, self.seed)?;
            say(FloorMeasurement { times, heap })
        })
    }
}

/// Why lines were not measured.
fn skipped(lines: &[LimitLine]) -> String {
    let why = |line: &LimitLine| line.skipped.as_ref().map(|why| format!("\n{}: not measured, {why}", line.name));
    lines.iter().filter_map(why).collect()
}

/// Fails if any word was wrong.
fn verdict(lines: &[LimitLine], seed: u64) -> Result<(), CommandFailure> {
    let wrong = |line: &LimitLine| line.wrong.filter(|wrong| *wrong > 0).map(|wrong| (line.name, wrong));
    match lines.iter().find_map(wrong) {
        None => Ok(()),
        Some((name, wrong)) => Err(CommandFailure::failed(format!("{name}: {wrong} words are wrong (seed {seed})"))),
    }
}

/// The object that `--json` writes.
#[derive(Serialize)]
struct FloorReport<'a> {
    #[serde(flatten)]
    ran: Ran,
    bytes: u64,
    launches: u32,
    seed: u64,
    floor: &'a [LimitLine],
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    args.output.check()?;
    let place = RunSite::new(&args.ranks)?;
    let (bytes, seed, launches) = (LimitTimes::bytes(place.kind), args.launches.seed(), args.launches.repeats());
    place.note("floor of the hardware", seed)?;
    let found = place.collect(Floor { launches, bytes, seed })?;
    let mut lines = limits::lines(&found.iter().map(|found| &found.times).collect::<Vec<_>>());
    lines.extend(heap::lines(&found.iter().map(|found| found.heap.as_slice()).collect::<Vec<_>>(), bytes));
    let report = FloorReport { ran: place.ran(), bytes, launches: launches.timed, seed, floor: &lines };
    let below = skipped(&lines);
    place.write(&args.output, "Hardware floor", &limits::columns(&lines), &lines, (&below, &report))?;
    verdict(&lines, seed)
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/floor.rs"]
mod tests;
