//! `symmetra-bench pairs`: messages between pairs of ranks, of this library and others, in turn.

mod candidate;
mod report;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Dtype, Ref};

use super::driver;
use super::flags::{OperationsArgs, RaceArgs};
use super::pace::Pace;
use super::race::RaceRank;
use candidate::PairContestant;
use harness::bytes;
use harness::comparison::work::{ComparedLibrary, MessageEnd};
use harness::failure::CommandFailure;
use harness::guarded::Guarded;
use harness::sizes::SizeArgs;
use reference::data::Data;

/// Sends and receives compared with other libraries: time, ratio to the best of them, and bandwidth of a rank.
///
/// An operation is one call of `pairs`, or one group of sends and receives of the peer, in plain device memory. Both ways, each
/// rank sends to the next rank and receives from the previous one. One way, ranks with even numbers send to the next rank.
///
/// Every size is run on fresh random data, and every received byte and the bytes around it are verified. Then the candidates
/// take turns.
///
/// A time is the median over the launches of the slowest rank's time for one operation. The bandwidth counts the bytes that a
/// rank sends.
///
/// Exit status: 0, or 1 when a byte is wrong or a rank fails, or 2 for wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra-bench pairs --ranks 2 --max-bytes 1MiB
  symmetra-bench pairs --ranks 2 --against nccl --max-bytes 256MiB -f 4
  symmetra-bench pairs --ranks 2 --against nccl --messages 8 --way one --json")]
pub(super) struct Args {
    #[command(flatten)]
    race: RaceArgs,

    /// Messages from a rank to another in one operation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    messages: u32,

    /// Which ranks send
    #[arg(long, value_enum, default_value_t = Senders::Both)]
    way: Senders,

    /// Bytes of the streams and queues from each other rank
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = bytes::parse)]
    pair_bytes: u64,

    #[command(flatten)]
    sizes: SizeArgs,

    #[command(flatten)]
    operations: OperationsArgs,
}

/// Which ranks send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Senders {
    /// Every rank, to the next one
    Both,
    /// Ranks with even numbers, to the next one
    One,
}

impl Senders {
    fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::One => "one",
        }
    }

    /// The rank to which a rank sends, and the rank from which it receives.
    fn peers(self, rank: usize, ranks: usize) -> [Option<usize>; 2] {
        let [next, previous] = [(rank + 1) % ranks, (rank + ranks - 1) % ranks];
        match (self, rank % 2) {
            (Self::Both, _) => [Some(next), Some(previous)],
            (Self::One, 0) => [Some(rank + 1).filter(|peer| *peer < ranks), None],
            (Self::One, _) => [None, Some(previous)],
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    driver::run(&args.race, None, |_, pace| {
        Ok(PairsRace {
            messages: args.messages as usize,
            way: args.way,
            pair_bytes: args.pair_bytes,
            sizes: args.sizes.elems(Dtype::U8, 1)?,
            pace: Pace { operations: args.operations.operations, ..pace },
        })
    })
}

/// The messages and their sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PairsRace {
    messages: usize,
    way: Senders,
    pair_bytes: u64,
    /// Bytes of a message.
    sizes: Vec<usize>,
    pace: Pace,
}

/// The name of this library's candidate.
const OURS: &str = "symmetra";

impl PairsRace {
    /// The messages of a rank: parts of the sent and of the received memory.
    fn ends<'a>(
        &self,
        rank: usize,
        bytes: usize,
        [sent, received]: [&Ref<'a, u8>; 2],
    ) -> symmetra::Result<Vec<MessageEnd<'a, u8>>> {
        let [to, from] = self.way.peers(rank, self.pace.ranks);
        let parts = (0..self.messages).map(|number| number * bytes..(number + 1) * bytes);
        let sides = [(to, sent, true), (from, received, false)];
        let ends = sides.into_iter().filter_map(|(peer, memory, sends)| Some((peer?, memory, sends)));
        let end =
            |peer, memory: &Ref<'a, u8>, sends, part| Ok(MessageEnd { operand: memory.slice(part)?, peer, sends });
        ends.flat_map(|(peer, memory, sends)| parts.clone().map(move |part| end(peer, memory, sends, part))).collect()
    }

    fn measure_sizes(&self, bench: &mut RaceRank<'_, '_, ()>) -> Result<(), CommandFailure> {
        let (communicator, rank) = (bench.communicator, bench.communicator.rank());
        for (size, bytes) in self.sizes.iter().copied().enumerate() {
            let memory = || Guarded::<u8>::new(communicator.device(), self.messages * bytes);
            let (sent, received) = (memory()?, memory()?);
            let operands = [&sent.elements()?, &received.elements()?];
            let from = self.way.peers(rank, self.pace.ranks)[1];
            let data = Data { seed: self.pace.seed, elems: self.messages * bytes };
            let contestant =
                |name, work| PairContestant { name, work, rank, from, data, sent: &sent, received: &received };
            let mut candidates =
                vec![contestant(OURS, ComparedLibrary::pairs(communicator, self.ends(rank, bytes, operands)?))];
            for (competitor, nccl) in self.pace.competitors.iter().zip(bench.nccl.into_iter().cycle()) {
                candidates.push(contestant(competitor.name(), nccl.pairs(self.ends(rank, bytes, operands)?)));
            }
            bench.run(size, bench.operations((self.messages * bytes) as u64), &candidates, &())?;
        }
        Ok(())
    }
}
