//! Operations of a group on memory, enqueued on a stream.
//!
//! Every call is validated, planned and enqueued. None of these steps blocks.
#![allow(unsafe_code)]

mod abandon;
mod adopt;
mod all_reduce;
mod aside;
mod copy_engine;
mod exchange;
mod expert_step;
mod explain;
mod heap;
mod heap_probe;
mod local;
mod multicast;
mod norm;
mod pairs;
mod probe;
mod reach;
mod scale;
mod select;
mod transport;
mod turn;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bootstrap::Bootstrap;
use crate::cbor;
use crate::choice::Ranges;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::group::{Config, Group};
use crate::kernel::geometry::{DeviceLimits, LaunchLimits};
use crate::memory::{Arena, Pools, SymmetricBuffer};
use crate::op::{self, Algorithm, Call, Codec, Kernels, Numbers};
use crate::stream::{Stream, Target};
use crate::types::{Dtype, Element, Reduction};

pub use all_reduce::BoundAllReduce;
use all_reduce::{Prepared, codec_call_elems};
pub use copy_engine::Pending;
pub(crate) use copy_engine::{CopyParts, workspace_bytes};
use copy_engine::{Events, SideStream};
use exchange::{all_reduce_apart, exchange, reduce_shared};
pub(crate) use expert_step::{ExpertStage, ExpertStep, form_of as expert_form};
pub use explain::{explain, explain_broadcast, explain_exchange, explain_reduction};
use multicast::sums_from_bytes;
use norm::{NormTable, norm};
pub use norm::{explain_norm, explain_quantised_norm};
pub use scale::{Factor, Scale};
use select::{AlgorithmTable, Reach};
use turn::{Turn, TurnLock, probe_peers};

/// A group with memory, which runs collectives. Cheap to clone. Any thread may use a communicator, but all ranks must make the
/// same calls in the same order, regardless of the threads. Give each thread that calls independently its own communicator.
///
/// If two threads call concurrently, their calls may have another order on each rank. Two calls of equal operation, type and
/// size are then matched with each other and give wrong results without an error, unless each thread calls through its own
/// handle of [`tagged`](Self::tagged). [`split`](Self::split) makes a communicator for each thread:
/// ```
/// # use symmetra::*;
/// fn two(communicator: &Communicator, run: impl Fn(Communicator) + Sync) -> Result<()> {
///     let of_threads = [communicator.split(Some(0), 0)?, communicator.split(Some(0), 0)?];
///     std::thread::scope(|scope| of_threads.into_iter().flatten().for_each(|own| drop(scope.spawn(|| run(own)))));
///     Ok(())
/// }
/// ```
///
/// Calls on one stream run in stream order. A call on another stream
/// waits for the previous call, so that two streams never use scratch at the same time. A call without elements orders no
/// streams. Calls enqueue and return: a later call, or [`synchronize`](Self::synchronize), returns errors of the device.
#[derive(Clone)]
#[must_use = "dropping the last clone leaves the group"]
pub struct Communicator(Arc<Inner>, u64);

struct Inner {
    group: Group,
    arena: Arc<Arena>,
    /// Adopted memory of this rank.
    pools: Arc<Pools>,
    /// Declared before the lane, because dropping the lane's stream waits for work in flight. The side's workspace owns the
    /// arena, and waits give up when the arena's last owner is dropped.
    side: Mutex<SideStream>,
    lane: TurnLock,
    /// Unused events for low-contention collectives.
    events: Events,
    table: AlgorithmTable,
    norms: NormTable,
}

impl Communicator {
    /// Opens a group of all ranks of `bootstrap`, and its memory. Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`Group::open`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the device cannot hold the arena;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if stores of one rank do not arrive at another, and
    /// [`Error::Peer`](crate::Error::Peer) on ranks to which another rank reports this.
    pub fn open(bootstrap: impl Bootstrap, device: &Device, config: Config) -> Result<Self> {
        Self::on(Group::open(bootstrap, device, config)?)
    }

    /// Opens the memory of a group. Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn on(group: Group) -> Result<Self> {
        let arena = Arena::open(&group)?;
        let communicator = Self::over(group, arena)?;
        probe_peers(&communicator.0.arena)?;
        Ok(communicator)
    }

    /// A communicator over an arena on which no call has run yet.
    fn over(group: Group, arena: Arc<Arena>) -> Result<Self> {
        let tuning = group.config().tuning.as_ref();
        // All ranks agree on config and capabilities, so all ranks fail in the same way.
        let (kind, devices) = (group.device().kind(), Some(group.capabilities()));
        let table = AlgorithmTable::new(kind, devices, group.world_size(), group.config().determinism, tuning)?;
        let norms = NormTable::new(kind, group.world_size(), tuning)?;
        let lane = TurnLock::new(group.device(), group.config().graph_mixing)?;
        let side = Mutex::new(SideStream::new(group.device())?);
        Ok(Self(
            Arc::new(Inner {
                group,
                arena,
                pools: Arc::default(),
                lane,
                events: Events::default(),
                table,
                norms,
                side,
            }),
            0,
        ))
    }

    /// Splits the group as [`Group::split`] does, and opens the memory of the new group. Collective; blocks. If one rank
    /// fails, all ranks of every colour fail.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        self.split_as(color, key, self.group().config().clone())
    }

    /// As [`split`](Self::split), for a library with the names of another: each new group takes the least of the limits
    /// `most_blocks` of its ranks, at most that of this group, and each rank its own `graph_mixing`.
    #[doc(hidden)]
    pub fn split_within(
        &self,
        color: Option<u32>,
        key: i32,
        most_blocks: Option<u32>,
        graph_mixing: bool,
    ) -> Result<Option<Self>> {
        let own = self.group().config();
        let asked = cbor::encode("the limits of a split", &[color, most_blocks])?;
        let read = |bytes: &Vec<u8>| {
            cbor::decode::<[Option<u32>; 2]>(bytes)
                .map_err(|error| Error::bootstrap(format!("the limits of a split cannot be read: {error}")))
        };
        let all: Vec<_> =
            self.group().all_gather_for("split a group", &asked)?.iter().map(read).collect::<Result<_>>()?;
        let of_group = all.into_iter().filter(|[other, _]| *other == color).filter_map(|[_, most_blocks]| most_blocks);
        let most_blocks = of_group.chain(own.most_blocks).min();
        self.split_as(color, key, own.clone().most_blocks(most_blocks).graph_mixing(graph_mixing))
    }

    /// Splits the group into groups with the settings `config`, equal on all ranks of a new group.
    pub(crate) fn split_as(&self, color: Option<u32>, key: i32, config: Config) -> Result<Option<Self>> {
        self.0.group.split_into(color, key, config, Self::on)
    }

    /// A handle of this communicator whose collective calls carry `tag`, which ranks compare: for example the number of a
    /// thread or of a step. 0 is no tag. Calls with different tags fail with [`Error::Mismatch`](crate::Error::Mismatch) on every
    /// rank, with both tags: with [`Config::check_calls`] before the call runs, else at the latest from
    /// [`synchronize`](Self::synchronize). Copies, signals and messages between pairs have no tags, because not all ranks make
    /// these calls.
    pub fn tagged(&self, tag: u64) -> Self {
        Self(self.0.clone(), tag)
    }

    /// Enqueues a call on symmetra kernels.
    pub(crate) fn run(&self, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        let (inner, call) = (&self.0, &*call.tagged(self.1));
        let _entered = inner.group.enter()?;
        let shape = call.check(inner.group.rank(), inner.group.world_size(), inner.group.device())?;
        inner.check_device("stream", queue.stream().device())?;
        let turn = &mut Turn::begin(inner, call.op.operation, queue)?;
        let enqueued = match call.numbers {
            Numbers::Norm(rows) => norm(call, rows, &shape, turn),
            _ => collective(call, &shape, turn),
        };
        turn.end(enqueued)
    }

    /// Whether multicast is open, and if not the reason. [`Config::multicast`] enables multicast. Equal on all ranks.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn multicast(&self) -> std::result::Result<(), &str> {
        self.0.arena.multicast().map(drop)
    }

    /// The group of ranks.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.0.group.rank()
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.0.group.world_size()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        self.0.group.device()
    }

    /// Allocates a zeroed symmetric buffer of `len` elements. Collective; blocks.
    ///
    /// The buffer occupies space in the heap, whose size is [`Config::heap_bytes`]: the elements, and 192 bytes for each
    /// rank of the group, which are the [signals](SymmetricBuffer::signals) of the buffer. Both are rounded up to
    /// multiples of 256 bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the heap has no such gap,
    /// [`Error::Mismatch`](crate::Error::Mismatch) if ranks ask for different sizes.
    pub fn symmetric<T: Element>(&self, len: usize) -> Result<SymmetricBuffer<T>> {
        SymmetricBuffer::new(&self.0.arena, len)
    }

    /// The address and the bytes of the allocation in which this rank's symmetric buffers lie.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn allocation(&self) -> (*mut u8, usize) {
        self.0.arena.allocation()
    }

    /// Blocks until all work of `stream` is done, and returns its error if it failed. After a wait for the stream by other
    /// means, [`check`](crate::ProcessGroup::check) returns the group's error.
    ///
    /// # Errors
    /// The group's error if a collective gave up, the device's if work failed;
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the ranks made different calls;
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.0.check_device("stream", stream.device())?;
        self.0.group.wait_for(stream)?;
        self.0.group.check()?;
        self.note_ended();
        self.0.group.confirm()
    }

    /// Writes the last calls of this rank as JSON into a folder, which is made if it is missing, and returns the path of the
    /// file. [`observe::Record`](crate::observe::Record) describes the file; `symmetra postmortem` merges the files of all
    /// ranks. Any thread may call it, also after a failure. Blocks for the write alone. With the variable `SYMMETRA_DUMP`
    /// every failure of a group writes the file.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if the file cannot be written.
    pub fn dump(&self, folder: impl AsRef<std::path::Path>) -> Result<std::path::PathBuf> {
        self.0.group.dump(folder.as_ref())
    }

    /// Records for observers of the group that all calls so far have ended, if they have, and the times of the last call. Does
    /// not block, but for copies of a few bytes where calls are timed.
    pub(crate) fn note_ended(&self) {
        // The lane is free unless another call is being made. Calls are noted and enqueued while the lane is held.
        if let Ok(Some(lane)) = self.0.lane.try_take("a look at the calls")
            && lane.is_done().is_ok_and(|done| done)
        {
            self.0.group.note_ended(self.0.group.noted());
            self.0.arena.complete_times();
        }
    }

    /// Compares the guards of this rank's memory. [`Config::guard_bytes`](crate::Config::guard_bytes) describes their places;
    /// without guards there is nothing to compare. Blocks. Call this when the work of all ranks is done, for example after
    /// [`synchronize`](Self::synchronize) and a barrier. [`close`](Self::close) also compares the guards, and so does
    /// [`symmetric`](Self::symmetric) for dropped buffers whose space it frees.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) for a guard that was overwritten, with the number of bytes and the place;
    /// else the group's error if the group has failed or is closed.
    pub fn check_guards(&self) -> Result<()> {
        self.0.group.check()?;
        self.0.arena.check_guards()
    }

    /// Stops the group on every rank: see [`Group::abort`].
    pub fn abort(&self) {
        self.0.group.abort();
    }

    /// Closes the group: waits for the device, unmaps shared memory, and ends the connections to the other ranks.
    /// Collective; blocks. Later calls fail with [`Error::Closed`](crate::Error::Closed), also calls on clones, graph
    /// launches and accesses to peers through a buffer. A buffer's own elements may still be read and written.
    ///
    /// # Errors
    /// The group's error if the group had failed, or if a running call fails; [`Error::Internal`](crate::Error::Internal) for a guard
    /// that was overwritten. The group is closed nevertheless.
    /// [`Error::Unsupported`](crate::Error::Unsupported) in a callback of a call of this communicator; the group stays open.
    pub fn close(self) -> Result<()> {
        self.refuse_within("closing")?;
        self.0.arena.close()
    }

    /// Leaves the group without the other ranks: waits for this rank's device, as [`close`](Self::close) does, and leaves. Not
    /// collective: blocks for peers only if work on the device, also of another group, waits for them. Later calls fail as
    /// after `close`, also on clones. Memory that peers have mapped stays mapped.
    ///
    /// The group continues: finished calls of the peers stay valid, and the departure alone does not fail the group. A later
    /// call of a peer that needs this rank fails with [`Error::PeerLost`](crate::Error::PeerLost), whose detail begins with
    /// ": it left in good order". `close` is such a call, so peers of a departed rank depart too. Ranks may depart in any
    /// order, and a process may end after its departure.
    ///
    /// Memory that this rank shared with other processes, by a registered graph or by [`adopt`](Self::adopt), stays allocated.
    /// Launches of natively captured graphs must be done: later ones work if all ranks launch, and otherwise wait up to the
    /// deadline. No thread may be in a collective call of the host, such as [`symmetric`](Self::symmetric).
    ///
    /// # Errors
    /// The group's error if the group had failed, or if one of this rank's calls fails: a call that waits for a rank ends
    /// at its deadline at the latest. [`Error::Mismatch`](crate::Error::Mismatch) if the ranks made different calls. The
    /// rank has left nevertheless, and the failure is reported to the others. [`Error::Closed`](crate::Error::Closed) if the
    /// communicator is closed. [`Error::Unsupported`](crate::Error::Unsupported) in a callback of a call of this
    /// communicator; the rank stays.
    pub fn depart(self) -> Result<()> {
        self.refuse_within("departing")?;
        self.0.arena.depart()
    }

    /// The algorithm for an all-reduce of this many bytes. `direct`: whether peers can address both operands (symmetric
    /// or registered memory).
    pub fn chosen(&self, dtype: Dtype, reduction: Reduction, direct: bool, bytes: u64) -> Algorithm {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        let by_multicast = Algorithm::MulticastTwoShot.reduces(dtype, reduction)
            && direct
            && sums_from_bytes(&self.0.arena, dtype).is_some_and(|from_bytes| bytes >= from_bytes);
        if by_multicast { Algorithm::MulticastTwoShot } else { self.0.table.select(dtype, reduction, reach, bytes) }
    }

    /// Refuses a codec for which the scratch is too small.
    pub(crate) fn check_room(&self, codec: Codec) -> Result<()> {
        match (codec, self.world_size()) {
            (Codec::None, _) | (_, 1) => Ok(()),
            (codec, world) => codec_call_elems(&self.0.arena, codec, codec.algorithm(world)).map(drop),
        }
    }

    /// The algorithm for each range of sizes, smallest first. `direct`: whether peers can address both operands
    /// (symmetric or registered memory).
    pub fn explain(&self, dtype: Dtype, direct: bool) -> Ranges<Algorithm> {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        let ranges = self.0.table.ranges(dtype, reach);
        match sums_from_bytes(&self.0.arena, dtype).filter(|_| direct) {
            Some(from_bytes) => select::with_multicast(ranges, from_bytes),
            None => ranges.clone(),
        }
    }
}

/// Enqueues a checked call of an operation other than a norm, or a step of a norm.
fn collective(call: &Call<'_>, shape: &op::CheckedShape, turn: &mut Turn<'_>) -> Result<()> {
    match (call.op.kernels, call.numbers) {
        (_, Numbers::Apart(apart)) => all_reduce_apart(call, apart, shape, turn),
        (_, Numbers::Shared(ranks)) => reduce_shared(call, ranks, shape, turn),
        (Kernels::AllReduce, _) => Prepared::new(turn.inner, call, turn.recorded())?.enqueue(turn),
        (Kernels::Exchange { strips, access }, _) => exchange(call, shape, strips(call, shape), access, turn),
    }
}

impl Inner {
    /// Refuses an argument of another device.
    fn check_device(&self, what: &str, device: &Device) -> Result<()> {
        self.group.device().check_same(what, device)
    }
}

/// The limits of a group's launches, equal on all ranks.
fn limits_of(group: &Group) -> LaunchLimits {
    let device = group.device();
    let kind = match device.kind() {
        DeviceKind::Host => DeviceLimits::Host { blocks: device.shape().blocks, threads: device.shape().threads },
        DeviceKind::Cuda | DeviceKind::Hip => DeviceLimits::Gpu,
    };
    LaunchLimits { kind, most_blocks: group.config().most_blocks.unwrap_or(u32::MAX) }
}

impl Drop for Inner {
    /// A rank whose calls are done departs normally, also without `close`.
    fn drop(&mut self) {
        let Self { group, lane, side, .. } = self;
        if !group.device().is_here() {
            return;
        }
        let (lane, side) = (lane.get_mut(), side.get_mut());
        if !std::thread::panicking() {
            group.finish(|| Ok(lane.is_done()? && side.lane.is_done()?));
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Communicator({:?})", self.0.group)
    }
}
