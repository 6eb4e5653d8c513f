//! `symmetra bench overhead`: what a call costs the host.

use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use half::bf16;
use serde::{Deserialize, Serialize};
use symmetra::{Communicator, Stream};

use super::measured::{median, slowest};
use super::{Found, OutputArgs, RankArgs, Say, Task};
use crate::all_reduce;
use crate::failure::Failure;

/// The host's time for one eager all-reduce of 1 KiB of bf16, called and bound, beside a bare launch of the same shape.
///
/// A bare launch is an empty kernel with as large an argument block, launched from a loop in C++
/// under nothing but the runtime. Calls are timed in rounds short enough not to fill the stream.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ranks: RankArgs,

    /// Calls of a round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls: u32,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    output: OutputArgs,
}

/// What the ranks measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    calls: u32,
    rounds: u32,
}

/// One rank's host times of one call, for every round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    bare_us: Vec<f64>,
    call_us: Vec<f64>,
    bound_us: Vec<f64>,
}

const BYTES: usize = 1 << 10;

impl Plan {
    pub(super) fn heap_bytes(&self) -> u64 {
        4 * (64 << 10)
    }

    pub(super) fn run(&self, communicator: &Communicator, say: Say<'_>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        let input = communicator.symmetric::<bf16>(BYTES / size_of::<bf16>())?;
        let output = communicator.symmetric::<bf16>(BYTES / size_of::<bf16>())?;
        // The shape of a one-shot of so many bytes.
        let (blocks, threads) = (2, 32 * communicator.world_size() as u32);
        let bare = || communicator.probe_launches(blocks, threads, self.calls, &stream);
        let call = || (0..self.calls).try_for_each(|_| communicator.all_reduce(&input, &output, &stream));
        let bound = communicator.bind_all_reduce(&input, &output)?;
        let bound = || (0..self.calls).try_for_each(|_| bound.enqueue(&stream));
        let time = |enqueue: &dyn Fn() -> symmetra::Result<()>| {
            let began = Instant::now();
            enqueue()?;
            let host_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(self.calls);
            communicator.synchronize(&stream)?;
            Ok::<_, symmetra::Error>(host_us)
        };
        let mut cost = Cost { bare_us: Vec::new(), call_us: Vec::new(), bound_us: Vec::new() };
        for round in 0..=self.rounds {
            let (bare_us, call_us, bound_us) = (time(&bare)?, time(&call)?, time(&bound)?);
            // The first round loads the kernels.
            if round > 0 {
                cost.bare_us.push(bare_us);
                cost.call_us.push(call_us);
                cost.bound_us.push(bound_us);
            }
        }
        say(Found::Overhead(cost))
    }
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    bytes: usize,
    calls: u32,
    rounds: u32,
    bare_us: f64,
    call_us: f64,
    overhead_us: f64,
    bound_us: f64,
    bound_overhead_us: f64,
}

impl Report {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["host time of", "us"]);
        for (name, us) in [
            ("bare launch", self.bare_us),
            ("all-reduce", self.call_us),
            ("all-reduce beyond it", self.overhead_us),
            ("bound all-reduce", self.bound_us),
            ("bound all-reduce beyond it", self.bound_overhead_us),
        ] {
            table.add_row([name.to_owned(), format!("{us:.3}")]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.output.check()?;
    let devices = args.ranks.devices()?;
    let plan = Plan { calls: args.calls, rounds: args.rounds };
    let mut costs = Vec::new();
    all_reduce::bench(&devices, args.ranks.ranks_as, Task::Overhead(plan), |rank, found| match found {
        Found::Overhead(cost) => {
            costs.push(cost);
            Ok(())
        }
        other => Err(Failure::failed(format!("rank {rank} found what has no place in an overhead: {other:?}"))),
    })?;
    let bare_us = median(slowest(costs.iter().map(|cost| cost.bare_us.as_slice())));
    let call_us = median(slowest(costs.iter().map(|cost| cost.call_us.as_slice())));
    let bound_us = median(slowest(costs.iter().map(|cost| cost.bound_us.as_slice())));
    let report = Report {
        ranks: devices.len(),
        device: devices.first().map_or("host", |device| device.kind().name()),
        ranks_as: args.ranks.ranks_as.name(),
        bytes: BYTES,
        calls: args.calls,
        rounds: args.rounds,
        bare_us,
        call_us,
        overhead_us: call_us - bare_us,
        bound_us,
        bound_overhead_us: bound_us - bare_us,
    };
    args.output.write(report.table(), &report)
}
