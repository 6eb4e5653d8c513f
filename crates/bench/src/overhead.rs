//! `symmetra-bench overhead`: the cost of a call on the host.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use symmetra::experts::{ExpertConfig, Layout, Method, Received, Routing, expert_bytes};
use symmetra::half::bf16;
use symmetra::{Communicator, Config, DeviceBuffer, Stream};

use super::flags::{BenchRanks, OutputArgs};
use super::report::{Ran, RunSite};
use harness::columns::Column;
use harness::comparison::repeats::Repeats;
use harness::failure::CommandFailure;
use harness::ranks::{Say, Task};
use harness::statistics::{median, slowest};

/// The host's time for one eager all-reduce of 1 KiB of bf16, called and bound, compared with a bare launch of the same
/// shape; and for one dispatch of a token to experts, by packets, compared with two bare launches.
///
/// A bare launch is an empty kernel with as large an argument block as the kernels of the call, launched from a loop in
/// C++ directly by the runtime. Calls are timed in rounds short enough not to fill the stream.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    ranks: BenchRanks,

    /// Calls of a round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls: u32,

    /// Timed rounds
    #[arg(long, alias = "rounds", value_name = "N", default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,

    /// Warm-up rounds before the timed rounds: the first loads the kernels
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    warmup: u32,

    #[command(flatten)]
    output: OutputArgs,
}

/// The task: rounds of calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overhead {
    ranks: usize,
    calls: u32,
    rounds: Repeats,
}

/// One rank's host times of one call, for every round: of a bare launch, an all-reduce, a bound all-reduce, two bare launches of
/// experts and a dispatch.
pub(crate) type HostTimes = [Vec<f64>; 5];

const BYTES: usize = 1 << 10;
/// Elements of a token that is dispatched.
const HIDDEN: usize = 1024;

impl Overhead {
    /// Two experts a rank, of which a token has two.
    fn experts(&self) -> ExpertConfig {
        let mut config = ExpertConfig::new(2 * self.ranks, 2, HIDDEN, 1);
        config.layout = Layout::BySource;
        config.method = Method::Packets;
        config
    }
}

impl Task for Overhead {
    const NAME: &'static str = "overhead";
    type Found = HostTimes;

    fn heap_bytes(&self) -> u64 {
        // The experts are refused when they are made, if they are refused.
        4 * (64 << 10) + expert_bytes(self.ranks, &Config::default(), &self.experts()).unwrap_or(0)
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, HostTimes>) -> Result<(), CommandFailure> {
        let stream = Stream::new(communicator.device())?;
        let input = communicator.symmetric::<bf16>(BYTES / size_of::<bf16>())?;
        let output = communicator.symmetric::<bf16>(BYTES / size_of::<bf16>())?;
        // The launch shape of a one-shot of this many bytes.
        let (blocks, threads) = (2, 32 * communicator.world_size() as u32);
        let bare = || communicator.probe_launches(blocks, threads, self.calls, &stream);
        let bare_pair = || communicator.probe_expert_launches(blocks, threads, 2 * self.calls, &stream);
        let call = || (0..self.calls).try_for_each(|_| communicator.all_reduce(&input, &output, &stream));
        let bound = communicator.bind_all_reduce(&input, &output)?;
        let bound = || (0..self.calls).try_for_each(|_| bound.enqueue(&stream));
        let experts = communicator.experts(self.experts())?;
        let ids = DeviceBuffer::<i32>::from_slice(&[0, 1], &stream)?;
        let row = DeviceBuffer::from_slice(&[bf16::ONE; HIDDEN], &stream)?;
        let rows = DeviceBuffer::<bf16>::new(communicator.device(), experts.capacity() * HIDDEN)?;
        let routing = Routing::new(&ids);
        let into = Received::rows(&rows);
        let dispatch = || (0..self.calls).try_for_each(|_| experts.dispatch(&routing, &row, &into, &stream).map(drop));
        let time = |enqueue: &dyn Fn() -> symmetra::Result<()>| {
            let began = Instant::now();
            enqueue()?;
            let host_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(self.calls);
            communicator.synchronize(&stream)?;
            Ok::<_, symmetra::Error>(host_us)
        };
        let mut cost = HostTimes::default();
        for timed in self.rounds.runs() {
            for (times, enqueue) in cost.iter_mut().zip([&bare as &dyn Fn() -> _, &call, &bound, &bare_pair, &dispatch])
            {
                let host_us = time(enqueue)?;
                times.extend(timed.then_some(host_us));
            }
        }
        say(cost)
    }
}

/// The object that `--json` writes.
#[derive(Serialize)]
struct OverheadReport {
    #[serde(flatten)]
    ran: Ran,
    bytes: usize,
    calls: u32,
    rounds: u32,
    bare_us: f64,
    call_us: f64,
    overhead_us: f64,
    bound_us: f64,
    bound_overhead_us: f64,
    /// Two bare launches of a dispatch.
    bare_pair_us: f64,
    dispatch_us: f64,
    /// Time in addition to two bare launches.
    dispatch_overhead_us: f64,
}

impl OverheadReport {
    /// The lines of the table: a name and microseconds.
    fn lines(&self) -> [(&'static str, f64); 8] {
        [
            ("bare launch", self.bare_us),
            ("all-reduce", self.call_us),
            ("all-reduce beyond it", self.overhead_us),
            ("bound all-reduce", self.bound_us),
            ("bound all-reduce beyond it", self.bound_overhead_us),
            ("two bare launches of a dispatch", self.bare_pair_us),
            ("dispatch", self.dispatch_us),
            ("dispatch beyond them", self.dispatch_overhead_us),
        ]
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    args.output.check()?;
    let place = RunSite::new(&args.ranks)?;
    let rounds = Repeats { timed: args.iterations, warmup: args.warmup };
    let costs = place.collect(Overhead { ranks: args.ranks.count(), calls: args.calls, rounds })?;
    let [bare_us, call_us, bound_us, bare_pair_us, dispatch_us] =
        [0, 1, 2, 3, 4].map(|kind| median(slowest(costs.iter().map(|cost| cost[kind].as_slice()))));
    let report = OverheadReport {
        ran: place.ran(),
        bytes: BYTES,
        calls: args.calls,
        rounds: args.iterations,
        bare_us,
        call_us,
        overhead_us: call_us - bare_us,
        bound_us,
        bound_overhead_us: bound_us - bare_us,
        bare_pair_us,
        dispatch_us,
        dispatch_overhead_us: dispatch_us - bare_pair_us,
    };
    let columns = [
        Column::text("host time of", |line: &(&'static str, f64)| line.0.to_owned()),
        Column::number("us", 3, |line: &(&'static str, f64)| Some(line.1)),
    ];
    place.write(&args.output, "Host time of an eager call", &columns, &report.lines(), ("", &report))
}
