//! Settings of a group.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tuning::Tuning;
use super::{Determinism, MAX_WORLD_SIZE, Multicast};
use crate::bootstrap::LONGEST;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::settings::{seconds, setters};
use crate::types::Transport;

/// Deadlines. An operation that exceeds its deadline fails with a timeout. All are finite, 1 ms to 24 h; others are
/// refused before the ranks meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Deadlines {
    /// Opening, splitting and closing a group, and every host-side exchange. Default 120 s.
    #[serde(with = "seconds")]
    pub open: Duration,
    /// A wait inside the group's first operation, when a peer may still load or compile. Default 120 s.
    #[serde(with = "seconds")]
    pub first_use: Duration,
    /// A wait inside any later operation. Default 30 s.
    #[serde(with = "seconds")]
    pub steady: Duration,
}

setters! { Deadlines { open: Duration, first_use: Duration, steady: Duration } }

impl Default for Deadlines {
    fn default() -> Self {
        Self { open: Duration::from_secs(120), first_use: Duration::from_secs(120), steady: Duration::from_secs(30) }
    }
}

/// The settings of a group and its communicator. They must be equal on all ranks, except
/// [`silence`](Self::silence), [`hold_after_failure`](Self::hold_after_failure) and
/// [`graph_mixing`](Self::graph_mixing).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Deadlines of every wait.
    pub deadlines: Deadlines,
    /// Size in bytes of the heap for symmetric buffers. Default 64 MiB.
    pub heap_bytes: u64,
    /// Channels for the signals that your own kernels send each other: see
    /// [`Communicator::heap`](crate::Communicator::heap). A channel takes 12 bytes for each rank. 0 to 65536; default
    /// 256.
    pub heap_channels: u32,
    /// Largest message in bytes of one one-shot LL call; larger messages take several calls. Exchanges by LL packets
    /// move at most this many bytes per rank pair and round. 1 KiB to 512 MiB; default 256 KiB.
    pub one_shot_ll_bytes: u64,
    /// Largest message in bytes of one one-shot call with sentinels; exchanges by sentinel packets move at most this
    /// many bytes from rank to rank in a launch. 1 KiB to 512 MiB. `None`, the default, is 16 MiB / (world size
    /// squared), clamped to 256 KiB..4 MiB.
    pub one_shot_sentinel_bytes: Option<u64>,
    /// Largest message in bytes of one two-shot LL call, 1 KiB to 512 MiB. Default 1 MiB.
    pub two_shot_ll_bytes: u64,
    /// Largest message in bytes of one two-shot call with sentinels, 1 KiB to 512 MiB. Default 6.5 MiB: then a launch
    /// of four ranks handles 16 MiB with a codec of eight bits.
    pub two_shot_sentinel_bytes: u64,
    /// Scratch of the ring in bytes, 4 KiB to 32 GiB. It holds queues through which a message of any size passes;
    /// larger queues mean larger chunks. Default 16 MiB.
    pub ring_bytes: u64,
    /// Largest message in bytes of one call by recursive doubling, 1 KiB to 512 MiB. Default 64 KiB.
    pub recursive_doubling_bytes: u64,
    /// Scratch in bytes for messages from each other rank, 4 KiB to 512 MiB: see
    /// [`ProcessGroup::pairs`](crate::ProcessGroup::pairs). It holds queues through which a message of any size passes;
    /// larger queues mean larger pieces: 8 MiB reach the bandwidth of NVLink. Default 512 KiB.
    pub pair_bytes: u64,
    /// The factors on which the bits of a result may depend. Default [`Determinism::PerAlgorithm`].
    pub determinism: Determinism,
    /// Transport of exchanges (every collective but all-reduce). Default: chosen by message size and memory.
    pub transport: Transport,
    /// Whether the group opens multicast. Default [`Multicast::Off`].
    pub multicast: Multicast,
    /// The number of adopted allocations, and of graph addresses outside them, that can be registered at once. Default
    /// 1024.
    pub registrations: u32,
    /// The most blocks of any kernel that the communicator launches, 1 to 65535. `None`, the default: as many as each
    /// kernel can use, at most 256 for kernels that wait for peers. Kernels of two communicators that wait for peers at
    /// the same time must fit on the device together, with at least one block per multiprocessor: otherwise ranks that
    /// start them in different orders deadlock. Fewer blocks give the same results more slowly.
    pub most_blocks: Option<u32>,
    /// Whether the ranks compare every call (bytes, type, operation, algorithm) before it runs. This costs one more
    /// small kernel a call, also for a call that NCCL runs in a group on one host. Default: on in debug builds.
    /// `SYMMETRA_CHECK_CALLS=1` turns it on. Without it, different calls are detected after they ran.
    pub check_calls: bool,
    /// Bytes of a guard between the regions of the arena, and before and after every symmetric buffer, for tests:
    /// [`Communicator::check_guards`](crate::Communicator::check_guards) and
    /// [`Communicator::close`](crate::Communicator::close) detect writes outside a buffer or the scratch. A buffer
    /// needs three guards more of the heap. A multiple of 256, at most 16 MiB. Default 0: there are no guards.
    pub guard_bytes: u64,
    /// Whether this rank logs no warning about ranks for which it waits, and none when it drops the group without
    /// [`close`](crate::Communicator::close). For programs that have a watchdog of their own. Ranks may differ. Default:
    /// warnings are logged.
    pub silence: bool,
    /// Whether a call that fails keeps its stream: later work of the stream does not run on the incomplete output. The stream
    /// goes on, and the output is undefined, when this rank aborts, abandons, closes, departs from or drops the communicator,
    /// and when the process ends. Until then every wait for the stream or the device blocks, except
    /// [`synchronize`](crate::Communicator::synchronize) of the communicator, which returns the failure. Ranks may differ. For
    /// programs that poll [`check`](crate::ProcessGroup::check). Default: the stream goes on at once.
    pub hold_after_failure: bool,
    /// Whether graphs that a stream's owner captures natively (`cudaStreamBeginCapture`, PyTorch's graphs,
    /// [`Stream::begin_capture`](crate::Stream::begin_capture)) keep one order with the communicator's eager calls and with
    /// other graphs, on any streams. Each launch of such a graph then waits for an event and records the event, which costs
    /// about 0.3 us a launch on an H200, and an eager call about 0.6 us. Without mixing, the owner orders launches and eager
    /// calls (`docs/porting.md`). Ranks may differ. Bodies of conditional nodes and graphs that a device launches accept no
    /// events: calls in them need this off. Default: off.
    pub graph_mixing: bool,
    /// Whether kernels record when each call begins and ends, for [`Communicator::timings`](crate::Communicator::timings),
    /// `symmetra status --timings` and `symmetra trace`. On GPUs this needs a build with the feature `timing`; kernels of other
    /// builds have no instruction for this. `SYMMETRA_TIMING=1` turns it on. Default: off.
    pub timing: bool,
    /// Crossovers measured on this machine, instead of the built-in table. Default: none.
    pub tuning: Option<Tuning>,
}

setters! { Config {
    deadlines: Deadlines, heap_bytes: u64, heap_channels: u32, one_shot_ll_bytes: u64,
    one_shot_sentinel_bytes: Option<u64>, two_shot_ll_bytes: u64, two_shot_sentinel_bytes: u64, ring_bytes: u64,
    recursive_doubling_bytes: u64, pair_bytes: u64, determinism: Determinism, transport: Transport,
    multicast: Multicast, registrations: u32, most_blocks: Option<u32>, check_calls: bool, guard_bytes: u64,
    silence: bool, hold_after_failure: bool, graph_mixing: bool, timing: bool,
    tuning: Option<Tuning>,
} }

impl Default for Config {
    fn default() -> Self {
        Self {
            deadlines: Deadlines::default(),
            heap_bytes: 64 << 20,
            heap_channels: 256,
            one_shot_ll_bytes: 256 << 10,
            one_shot_sentinel_bytes: None,
            two_shot_ll_bytes: 1 << 20,
            two_shot_sentinel_bytes: 13 << 19,
            ring_bytes: 16 << 20,
            recursive_doubling_bytes: 64 << 10,
            pair_bytes: 512 << 10,
            determinism: Determinism::default(),
            transport: Transport::Auto,
            multicast: Multicast::Off,
            registrations: 1024,
            most_blocks: None,
            check_calls: cfg!(debug_assertions),
            guard_bytes: 0,
            silence: false,
            hold_after_failure: false,
            graph_mixing: false,
            timing: false,
            tuning: None,
        }
    }
}

pub(super) fn check_world_size(world_size: usize) -> Result<()> {
    if (1..=MAX_WORLD_SIZE).contains(&world_size) {
        return Ok(());
    }
    Err(Error::invalid("world size", world_size, format!("it must be 1 to {MAX_WORLD_SIZE}")))
}

/// The most bytes of the heap. The limit keeps all sums of sizes far from overflow.
const MAX_HEAP_BYTES: u64 = 1 << 44;

/// Most channels of the heap's signals.
const MAX_HEAP_CHANNELS: u32 = 1 << 16;

/// The most bytes of one call that pushes packets. Its region for 16 ranks has fewer than 2^31 packets per buffer and
/// fewer than 2^32 in total, which is the limit of the counters in kernels (`fits` in `kernels/geometry.hpp`).
const MAX_CALL_BYTES: u64 = 512 << 20;

/// The most bytes of the ring's queues. Queues and counters together fit into a region of 64 GiB.
const MAX_RING_BYTES: u64 = 32 << 30;

/// Most bytes of the queues from one rank to another.
const MAX_PAIR_BYTES: u64 = 512 << 20;

/// The most bytes of a guard, and the unit of its size, which keeps regions aligned.
const MAX_GUARD_BYTES: u64 = 16 << 20;
const GUARD_UNIT: u64 = 256;

/// The settings that ranks do not compare.
const SILENCE: &str = "silence";
const HOLD: &str = "hold_after_failure";
const GRAPH_MIXING: &str = "graph_mixing";

/// The most blocks of a launch of any kernel.
const MOST_BLOCKS: u32 = crate::kernel::args::kMostNormBlocks;

impl Config {
    /// The largest one-shot sentinel call for `world_size` ranks, in bytes.
    pub fn one_shot_sentinel_bytes_for(&self, world_size: usize) -> u64 {
        let world = world_size.clamp(1, MAX_WORLD_SIZE) as u64;
        self.one_shot_sentinel_bytes.unwrap_or_else(|| ((16 << 20) / (world * world)).clamp(256 << 10, 4 << 20))
    }

    /// Every setting by name and value, as `symmetra info` prints them.
    pub fn entries(&self, world_size: usize) -> Vec<(&'static str, String)> {
        vec![
            ("deadlines.open", format!("{:?}", self.deadlines.open)),
            ("deadlines.first_use", format!("{:?}", self.deadlines.first_use)),
            ("deadlines.steady", format!("{:?}", self.deadlines.steady)),
            ("heap_bytes", self.heap_bytes.to_string()),
            ("heap_channels", self.heap_channels.to_string()),
            ("one_shot_ll_bytes", self.one_shot_ll_bytes.to_string()),
            ("one_shot_sentinel_bytes", self.one_shot_sentinel_bytes_for(world_size).to_string()),
            ("two_shot_ll_bytes", self.two_shot_ll_bytes.to_string()),
            ("two_shot_sentinel_bytes", self.two_shot_sentinel_bytes.to_string()),
            ("ring_bytes", self.ring_bytes.to_string()),
            ("recursive_doubling_bytes", self.recursive_doubling_bytes.to_string()),
            ("pair_bytes", self.pair_bytes.to_string()),
            ("determinism", self.determinism.to_string()),
            ("transport", self.transport.to_string()),
            ("multicast", self.multicast.to_string()),
            ("registrations", self.registrations.to_string()),
            ("most_blocks", self.most_blocks.map_or_else(|| "any".to_owned(), |blocks| blocks.to_string())),
            ("check_calls", self.check_calls.to_string()),
            ("guard_bytes", self.guard_bytes.to_string()),
            (SILENCE, self.silence.to_string()),
            (HOLD, self.hold_after_failure.to_string()),
            (GRAPH_MIXING, self.graph_mixing.to_string()),
            ("timing", self.timing.to_string()),
            ("tuning", self.tuning.as_ref().map_or_else(|| "built-in".to_owned(), Tuning::digest)),
        ]
    }

    /// The [`entries`](Self::entries) that must be equal on all ranks.
    pub(crate) fn compared(&self, world_size: usize) -> impl Iterator<Item = (&'static str, String)> {
        self.entries(world_size).into_iter().filter(|(name, _)| ![SILENCE, HOLD, GRAPH_MIXING].contains(name))
    }

    /// Refuses invalid deadlines before the first exchange, which uses one.
    pub(crate) fn check_deadlines(&self) -> Result<()> {
        let Deadlines { open, first_use, steady } = self.deadlines;
        for (name, limit) in
            [("deadlines.open", open), ("deadlines.first_use", first_use), ("deadlines.steady", steady)]
        {
            if limit < Duration::from_millis(1) || limit > LONGEST {
                return Err(Error::invalid(name, format!("{limit:?}"), "it must be 1 ms to 24 h"));
            }
        }
        Ok(())
    }

    /// Refuses to time calls on GPUs by kernels that cannot.
    pub(crate) fn check_timing(&self, kind: DeviceKind) -> Result<()> {
        match !self.timing || kind == DeviceKind::Host || cfg!(feature = "timing") {
            true => Ok(()),
            false => Err(Error::unsupported(
                format!("timing on a device of kind {kind}"),
                "this build lacks the feature `timing`",
            )),
        }
    }

    pub(crate) fn validate(&self, world_size: usize) -> Result<()> {
        check_world_size(world_size)?;
        self.check_deadlines()?;
        let scratch = [
            ("one_shot_ll_bytes", self.one_shot_ll_bytes),
            ("one_shot_sentinel_bytes", self.one_shot_sentinel_bytes_for(world_size)),
            ("two_shot_ll_bytes", self.two_shot_ll_bytes),
            ("two_shot_sentinel_bytes", self.two_shot_sentinel_bytes),
            ("recursive_doubling_bytes", self.recursive_doubling_bytes),
        ];
        let calls = scratch.map(|(name, bytes)| (name, bytes, 1024..=MAX_CALL_BYTES)).into_iter();
        let queues = [
            ("ring_bytes", self.ring_bytes, 4096..=MAX_RING_BYTES),
            ("pair_bytes", self.pair_bytes, 4096..=MAX_PAIR_BYTES),
        ];
        for (name, bytes, limits) in calls.chain(queues) {
            if !limits.contains(&bytes) {
                let limit = format!("it must be {} to {}", limits.start(), limits.end());
                return Err(Error::invalid(name, bytes, limit));
            }
        }
        if self.heap_bytes > MAX_HEAP_BYTES {
            let limit = format!("it must be at most {MAX_HEAP_BYTES}");
            return Err(Error::invalid("heap_bytes", self.heap_bytes, limit));
        }
        if self.heap_channels > MAX_HEAP_CHANNELS {
            let limit = format!("it must be at most {MAX_HEAP_CHANNELS}");
            return Err(Error::invalid("heap_channels", self.heap_channels, limit));
        }
        if !(1..=1 << 20).contains(&self.registrations) {
            return Err(Error::invalid("registrations", self.registrations, "it must be 1 to 1048576"));
        }
        if let Some(blocks) = self.most_blocks.filter(|blocks| !(1..=MOST_BLOCKS).contains(blocks)) {
            return Err(Error::invalid("most_blocks", blocks, format!("it must be 1 to {MOST_BLOCKS}")));
        }
        if self.guard_bytes > MAX_GUARD_BYTES || !self.guard_bytes.is_multiple_of(GUARD_UNIT) {
            let limit = format!("it must be a multiple of {GUARD_UNIT}, at most {MAX_GUARD_BYTES}");
            return Err(Error::invalid("guard_bytes", self.guard_bytes, limit));
        }
        self.tuning.as_ref().map_or(Ok(()), Tuning::validate)
    }
}
