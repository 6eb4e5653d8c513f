//! *What*: operations of a group on memory, enqueued on a stream.
//!
//! Every call goes validate -> plan -> enqueue, and blocks in none of them.
#![allow(unsafe_code)]

mod all_reduce;
mod announce;
mod bound;
mod call_order;
mod check_calls;
mod copy_engine;
mod exchange;
mod first_call;
mod graph_part;
mod launch_plan;
mod note_nccl;
mod probe;
mod put;
mod reach;
mod relay;
mod select;
mod signal;
mod transport;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bootstrap::Bootstrap;
use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::group::{Capabilities, Config, Determinism, Group, Tuning};
use crate::kernel::geometry::Shape;
use crate::memory::{Adopted, Arena, Ref, SymmetricBuffer};
use crate::op::{Algorithm, Call, Kernels};
use crate::stream::{Enqueue, Stream};
use crate::types::{Dtype, Element, Reduction};

pub use bound::BoundAllReduce;
pub(crate) use call_order::Lane;
pub use copy_engine::Pending;
use copy_engine::Side;
use graph_part::Recorded;
pub use select::Range;
use select::{Reach, Table};
pub use transport::TransportRange;

/// A group with memory: what runs collectives. Cheap to clone; usable from any thread.
///
/// All ranks make the same calls in the same order. Calls on one stream run in its order; a
/// call on another stream than the last waits for the last, so that two streams never meet in
/// the same scratch. Calls enqueue and return: errors of the device come with a later call, or
/// from [`synchronize`](Self::synchronize).
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    group: Group,
    arena: Arc<Arena>,
    /// Declared before the lane, whose stream waits for work in flight: its workspace is an owner of the arena, with
    /// whose last owner waits give up.
    side: Mutex<Side>,
    lane: Mutex<Lane>,
    table: Table,
}

impl Communicator {
    /// Opens a group of all ranks of `bootstrap` and its memory. Collective; blocks.
    ///
    /// # Errors
    /// As [`Group::open`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory) when the device cannot hold the arena;
    /// [`Error::Unsupported`](crate::Error::Unsupported) when what one rank stores in the memory of another does not
    /// arrive there, and [`Error::Peer`](crate::Error::Peer) on the ranks that are told of it.
    pub fn open(bootstrap: impl Bootstrap, device: &Device, config: Config) -> Result<Self> {
        Self::on(Group::open(bootstrap, device, config)?)
    }

    /// Gives a group its memory. Collective; blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn on(group: Group) -> Result<Self> {
        let arena = Arena::open(&group)?;
        let communicator = Self::over(group, arena)?;
        communicator.0.probe_peers()?;
        Ok(communicator)
    }

    /// What calls need beside the memory. Nothing has run on it yet.
    fn over(group: Group, arena: Arc<Arena>) -> Result<Self> {
        let tuning = group.config().tuning.as_ref();
        // Config and capabilities are agreed, so a refusal is every rank's.
        let (kind, devices) = (group.device().kind(), Some(group.capabilities()));
        let table = Table::new(kind, devices, group.world_size(), group.config().determinism, tuning)?;
        let lane = Mutex::new(Lane::new(group.device())?);
        let side = Mutex::new(Side::new(group.device())?);
        Ok(Self(Arc::new(Inner { group, arena, lane, table, side })))
    }

    /// Splits as [`Group::split`] does and gives the new group its memory. Collective; blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        self.0.group.split_into(color, key, Self::on)
    }

    /// Enqueues a call on own kernels.
    pub(crate) fn run(&self, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        let inner = &self.0;
        let _entered = inner.group.enter()?;
        let shape = call.check(inner.group.rank(), inner.group.world_size(), inner.group.device())?;
        inner.check_device("stream", queue.stream().device())?;
        // Before anything else: whatever a graph holds of this group, closing the group ends it.
        let recorded = queue.recording().map(|recording| recording.part(inner.group.id(), || Recorded::new(inner)));
        match call.op.kernels {
            Kernels::AllReduce => inner.all_reduce(call, queue, recorded.as_deref()),
            Kernels::Exchange { .. } => inner.exchange(call, &shape, queue, recorded.as_deref()),
        }
    }

    /// The ranks.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.group.rank()
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> usize {
        self.0.group.world_size()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        self.0.group.device()
    }

    /// Makes a zeroed symmetric buffer of `len` elements. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when the heap has no such gap,
    /// [`Error::Mismatch`](crate::Error::Mismatch) when ranks ask for different sizes.
    pub fn symmetric<T: Element>(&self, len: usize) -> Result<SymmetricBuffer<T>> {
        SymmetricBuffer::new(&self.0.arena, len)
    }

    /// Makes foreign memory known to all ranks, which adopt one each of the same length.
    /// Collective; blocks, also for the devices of the ranks where something adopted or registered before was dropped.
    ///
    /// Where ranks are threads of one process, each with a GPU, the CUDA runtime then orders some of what it does
    /// for one GPU behind the kernels of the others: instantiating a graph, allocating. A collective that has
    /// begun on another rank would wait for a rank that is held up there, to its deadline. So let all ranks end
    /// a capture before any launches it: a [`Group::barrier`] between the two.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) when the lengths differ,
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for memory of another device,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) when all registrations are in use, and
    /// [`Error::Peer`](crate::Error::Peer) on the other ranks for either.
    ///
    /// # Safety
    /// The memory stays allocated until every rank has closed or dropped its communicator, also when the
    /// result, whose borrow ends with it, was dropped long before: peers still have the memory mapped, and
    /// after a call that failed they may still write there. Ranks that are all threads of one process map
    /// nothing: of these the memory may go once this rank's calls with it have ended without an error, for each ends
    /// with a barrier behind which no peer touches it.
    ///
    /// Safe code cannot promise this of memory that may be anybody's:
    /// ```compile_fail,E0133
    /// # use symmetra::*;
    /// fn adopt<'a>(communicator: &Communicator, memory: Ref<'a, f32>) -> Result<Adopted<'a, f32>> {
    ///     communicator.adopt(memory)
    /// }
    /// ```
    /// while this is fine:
    /// ```
    /// # use symmetra::*;
    /// fn adopt<'a>(communicator: &Communicator, buffer: &'a DeviceBuffer<f32>) -> Result<Adopted<'a, f32>> {
    ///     // SAFETY: a `DeviceBuffer` that peers can reach stays allocated, whoever drops it.
    ///     unsafe { communicator.adopt(buffer.borrow()) }
    /// }
    /// ```
    pub unsafe fn adopt<'a, T: Element>(&self, memory: Ref<'a, T>) -> Result<Adopted<'a, T>> {
        Adopted::new(&self.0.arena, Ok(memory))
    }

    /// The same where the memory may be an error already.
    ///
    /// # Safety
    /// As [`adopt`](Self::adopt).
    pub(crate) unsafe fn adopt_made<'a, T: Element>(&self, memory: Result<Ref<'a, T>>) -> Result<Adopted<'a, T>> {
        Adopted::new(&self.0.arena, memory)
    }

    /// Blocks until all work of `stream` is done, then says whether it was done well.
    ///
    /// # Errors
    /// The group's error when a collective gave up, the device's when work failed.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        self.0.group.check()
    }

    /// As [`Group::abort`].
    pub fn abort(&self) {
        self.0.group.abort();
    }

    /// Closes the group: waits for the device, unmaps what peers share, and leaves in good order.
    /// Collective; blocks. Later calls, also on clones and graphs, and whatever reaches peers from a buffer fail with
    /// [`Error::Closed`](crate::Error::Closed); its own elements may still be read and written.
    ///
    /// # Errors
    /// The group's error when it had failed, or a call fails that was still under way: it is closed all the same.
    pub fn close(self) -> Result<()> {
        self.0.arena.close()
    }

    /// Lets go of a stream: from here on neither this communicator nor the order of its calls needs it. To be
    /// called before a borrowed stream is destroyed; its work need not be done. Does not block.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the runtime refuses to record an event.
    pub fn leave(&self, stream: &Stream) -> Result<()> {
        self.0.lane.lock().leave(stream)?;
        self.0.side.lock().lane.leave(stream)
    }

    /// The table's choice for an all-reduce of so many bytes over operands that peers can address
    /// (symmetric, adopted) or cannot.
    pub fn chosen(&self, dtype: Dtype, reduction: Reduction, direct: bool, bytes: u64) -> Algorithm {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        self.0.table.select(dtype, reduction, reach, bytes)
    }

    /// Which algorithm serves which size for operands that peers can address (symmetric,
    /// adopted) or cannot, smallest first.
    pub fn explain(&self, dtype: Dtype, direct: bool) -> Vec<Range> {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        self.0.table.ranges(dtype, reach).to_vec()
    }
}

/// How exchanges of so many bytes from one rank to another are moved, smallest first: every
/// collective but all-reduce and broadcast. `direct`: whether peers can address the operand they access.
pub fn explain_exchange(kind: DeviceKind, world_size: usize, direct: bool) -> Vec<TransportRange> {
    transport::ranges(kind, world_size, if direct { Reach::Direct } else { Reach::Pushed })
}

/// The same for broadcasts, of so many bytes.
pub fn explain_broadcast(kind: DeviceKind, world_size: usize, direct: bool) -> Vec<TransportRange> {
    transport::broadcast_ranges(kind, world_size, if direct { Reach::Direct } else { Reach::Pushed })
}

/// As [`Communicator::explain`], before there is one: for ranks on devices of this kind, all like
/// `device` where there is one, with this tuning if any, under the default [`Determinism`].
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when the tuning asks for what an algorithm cannot do.
pub fn explain(
    kind: DeviceKind,
    device: Option<&Device>,
    world_size: usize,
    tuning: Option<&Tuning>,
) -> Result<impl Fn(Dtype, bool) -> Vec<Range>> {
    let devices = device.map(Capabilities::of);
    let table = Table::new(kind, devices.as_ref(), world_size, Determinism::default(), tuning)?;
    Ok(move |dtype, direct| {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        table.ranges(dtype, reach).to_vec()
    })
}

impl Inner {
    /// Refuses what is of another device.
    fn check_device(&self, what: &str, device: &Device) -> Result<()> {
        self.group.device().check_same(what, device)
    }
}

/// How launches on a device may look.
fn shape_of(device: &Device) -> Shape {
    match device.kind() {
        DeviceKind::Host => Shape::Host { blocks: device.shape().blocks, threads: device.shape().threads },
        DeviceKind::Cuda | DeviceKind::Hip => Shape::Gpu,
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Communicator({:?})", self.0.group)
    }
}
