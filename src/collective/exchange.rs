//! Exchanges: every rank gives every other a strip of bytes. All collectives but all-reduce are
//! one; each has a file that says which strips.
#![allow(unsafe_code)]

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use super::all_reduce::Peers;
use super::record::Recorded;
use super::select::Reach;
use super::transport::{packets_up_to_bytes, select, select_broadcast};
use super::{Inner, shape_of};
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::{Call, Entered, MAX_WORLD_SIZE};
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{Place, View};
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction, Transport, WAY_LEARNED};

/// What goes to, or comes from, one rank.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    pub(super) address: *mut u8,
    pub(super) bytes: u64,
}

impl Strip {
    pub(super) const NONE: Self = Self { address: std::ptr::null_mut(), bytes: 0 };
}

/// A strip for every rank.
pub(super) type Strips = [Strip; MAX_WORLD_SIZE];

/// Strips of more than one row: parts of a tensor. All zero: one row.
#[derive(Clone, Copy, Default)]
pub(super) struct Rows {
    pub(super) row_bytes: u64,
    pub(super) from_pitch_bytes: u64,
    pub(super) into_pitch_bytes: u64,
}

/// How an exchange goes when peers can address an operand.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Each rank writes into that operand of the others.
    Push,
    /// Each rank reads a share of the root's and writes it to all others.
    Relay,
    /// By packets alone: each rank gets a share of the root's and passes it on to all others.
    RelayPackets,
    /// Each rank that receives something reads a part of that operand of all and reduces it.
    Reduce,
    /// Each rank reads a share of that operand of all and reduces it: here, or, where this is null,
    /// into the root's.
    ReduceShares(Strip),
}

/// The operand that peers access, and where in that of each peer this rank does.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) way: Way,
    pub(super) operand: &'a View<'a>,
    pub(super) offsets_bytes: [u64; MAX_WORLD_SIZE],
}

/// Who knows how much is exchanged.
#[derive(Clone, Copy)]
pub(super) enum Counts<'a> {
    /// Every rank: at most this much from one rank to another. Without a shared operand it goes by packets.
    Known { largest_bytes: u64, shared: Option<Shared<'a>> },
    /// Each rank knows its own. Where its strips go in the arena, if all are there.
    Own { arena_bytes: Option<[u64; MAX_WORLD_SIZE]> },
}

/// One exchange, as a rank sees it.
pub(super) struct Exchange<'a> {
    /// `args::kOp*`.
    pub(super) op: u32,
    pub(super) dtype: Dtype,
    pub(super) root: usize,
    /// What becomes of the strips where they are reduced.
    pub(super) reduction: Reduction,
    pub(super) from: Strips,
    pub(super) into: Strips,
    pub(super) rows: Rows,
    pub(super) counts: Counts<'a>,
}

impl Exchange<'_> {
    /// How it goes if it is not relayed by packets.
    fn way(&self) -> Way {
        match &self.counts {
            Counts::Known { shared: Some(shared), .. } => shared.way,
            _ => Way::Push,
        }
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            Counts::Own { .. } => self.from.iter().chain(&self.into).map(|strip| strip.bytes).max().unwrap_or(0),
        }
    }

    /// What ranks compare of a call that moves its data in the way of this number.
    pub(super) fn call(&self, way: u32) -> Call {
        let bytes = match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // Sizes are compared by the exchange itself; types may differ.
            Counts::Own { .. } => 0,
        };
        // Of equal strips, equal rows have equal pitches.
        let rows = bytes.checked_div(self.rows.row_bytes).unwrap_or(1);
        Call::new(bytes, self.op, self.dtype, self.reduction, way, self.root as u32).in_rows(rows)
    }
}

impl Inner {
    /// The first step of every call: the group is well and stays open, and operands are on its device.
    pub(super) fn begin(&self, operands: &[(&'static str, &View<'_>)], queue: &impl Enqueue) -> Result<Entered<'_>> {
        let entered = self.group.enter()?;
        self.check_devices(operands, queue)?;
        Ok(entered)
    }

    /// Refuses operands and streams of other devices.
    pub(super) fn check_devices(&self, operands: &[(&'static str, &View<'_>)], queue: &impl Enqueue) -> Result<()> {
        operands.iter().try_for_each(|(what, view)| self.check_device(what, view.device))?;
        self.check_device("stream", queue.stream().device())
    }

    /// Refuses what is of another device.
    pub(super) fn check_device(&self, what: &str, device: &Device) -> Result<()> {
        self.group.device().check_same(what, device)
    }

    /// Refuses a rank that is none of the group.
    pub(super) fn check_rank(&self, what: &str, rank: usize) -> Result<()> {
        let world = self.group.world_size();
        if rank < world {
            return Ok(());
        }
        Err(Error::invalid(what, rank, format!("the world size is {world}")))
    }

    /// Whether an exchange of this many bytes from rank to rank is worth telling each other where it
    /// goes: where it depends on the rank, direct exchanges need that.
    pub(super) fn tells(&self, bytes: u64) -> bool {
        match self.group.config().transport {
            Transport::Packets => false,
            Transport::Direct => true,
            Transport::Auto => bytes > packets_up_to_bytes(self.group.device().kind(), self.group.world_size()),
        }
    }

    /// Enqueues an exchange whose operands were found right.
    pub(super) fn exchange(self: &Arc<Self>, exchange: &Exchange<'_>, queue: &impl Enqueue) -> Result<()> {
        // Before the short ways out: whatever a graph holds of this group, closing the group ends it.
        let recorded = queue.recording().map(|recording| recording.part(self.group.id(), || Recorded::new(self)));
        let recorded = recorded.as_deref();
        if matches!(exchange.counts, Counts::Known { largest_bytes: 0, .. }) {
            let call = Call::empty(exchange.op, exchange.dtype, exchange.reduction, exchange.root);
            return self.announce_empty(call, &mut self.lane.lock(), queue, recorded);
        }
        if self.group.world_size() == 1 {
            self.lane.lock().order_call(queue)?;
            return copy(exchange.from[0], exchange.into[0], queue);
        }
        let launches = self.transports(exchange, recorded)?;
        let mut lane = self.lane.lock();
        lane.order_call(queue)?;
        if launches[0].is_some_and(|(transport, _)| self.relays(exchange, transport)) {
            return self.relay(exchange, &mut lane, queue, recorded);
        }
        let way = exchange.way();
        let call = match (&exchange.counts, launches[0]) {
            (Counts::Known { .. }, Some((Transport::Direct, peers))) => {
                exchange.call(algorithm(Transport::Direct, way)).at([peers.offset_bytes; 2])
            }
            (Counts::Known { .. }, Some((transport, _))) => exchange.call(algorithm(transport, way)),
            _ => exchange.call(WAY_LEARNED),
        };
        let fresh = self.announce(call, &mut lane, queue, recorded)?;
        if let Counts::Own { arena_bytes } = exchange.counts {
            self.tell_counts(exchange, arena_bytes, fresh, queue)?;
        }
        for (transport, peers) in launches.into_iter().flatten() {
            self.launch_exchange(exchange, way, transport, peers, fresh, queue)?;
        }
        Ok(())
    }

    /// The transports to enqueue: one; or both, when the ranks learn on the way which one it is.
    fn transports(
        &self,
        exchange: &Exchange<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<[Option<(Transport, Peers)>; 2]> {
        let asked = self.group.config().transport;
        let (kind, world) = (self.group.device().kind(), self.group.world_size());
        let none = Peers::NONE;
        let (shared, largest_bytes) = match &exchange.counts {
            Counts::Known { shared: None, .. } => return Ok([Some((Transport::Packets, none)), None]),
            Counts::Known { largest_bytes, shared: Some(shared) } => (shared, *largest_bytes),
            Counts::Own { arena_bytes } => {
                let arenas = Peers { table: self.arena.table(0), offset_bytes: 0 };
                // Where it must be direct and cannot be, all ranks learn it with the counts.
                let direct =
                    (asked != Transport::Packets && arena_bytes.is_some()).then_some((Transport::Direct, arenas));
                return Ok([Some((Transport::Packets, none)), direct]);
            }
        };
        let reach = match self.reaches(shared.operand, recorded.is_some()) {
            true => Reach::Direct,
            false => Reach::Pushed,
        };
        let transport = match asked {
            Transport::Auto if matches!(shared.way, Way::Relay) => select_broadcast(kind, world, reach, largest_bytes),
            Transport::Auto => select(kind, world, reach, largest_bytes),
            named => named,
        };
        match (transport, reach) {
            (Transport::Direct, Reach::Pushed) => Err(unreachable(exchange.op)),
            (Transport::Direct, Reach::Direct) => {
                let bytes = shared.operand.elems * exchange.dtype.bytes();
                Ok([Some((transport, self.peers(shared.operand, bytes, recorded, 0)?)), None])
            }
            _ => Ok([Some((transport, none)), None]),
        }
    }

    /// Lets the ranks tell each other their counts, on the device, before the exchange.
    fn tell_counts(
        &self,
        exchange: &Exchange<'_>,
        arena_bytes: Option<[u64; MAX_WORLD_SIZE]>,
        fresh: bool,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let layout = self.arena.layout();
        let (kind, world) = (self.group.device().kind(), self.group.world_size());
        let asked = self.group.config().transport;
        let args = args::CountsArgs {
            peers: self.arena.everywhere(layout.counts.region.offset),
            state: self.arena.own(layout.counts.state.offset).cast(),
            learned: self.arena.own(layout.learned.offset).cast(),
            wait: self.arena.wait(fresh),
            rank: self.group.rank() as u32,
            world: world as u32,
            send_bytes: exchange.from.map(|strip| strip.bytes),
            receive_bytes: exchange.into.map(|strip| strip.bytes),
            offset_bytes: arena_bytes.unwrap_or_default(),
            largest_bytes: exchange.largest_bytes(),
            direct: u64::from(arena_bytes.is_some() && asked != Transport::Packets),
            direct_from_bytes: match asked {
                Transport::Direct => 0,
                _ => packets_up_to_bytes(kind, world) + 1,
            },
        };
        let launch = geometry::single(shape_of(self.group.device()), args::kMaxWorld);
        // SAFETY: scratch and what is learned lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion).
        queue.enqueue("launch a comparison of counts", |raw| unsafe { raw.launch_counts(&args, &launch.geometry) })
    }

    pub(super) fn launch_exchange(
        &self,
        exchange: &Exchange<'_>,
        way: Way,
        transport: Transport,
        peers: Peers,
        fresh: bool,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let layout = self.arena.layout();
        let scratch = if transport == Transport::Direct { &layout.flags } else { &layout.one_shot_ll };
        let shared = match &exchange.counts {
            Counts::Known { shared, .. } => shared.as_ref(),
            Counts::Own { .. } => None,
        };
        let launch = self.exchange_geometry(exchange, transport, way);
        let mut into = exchange.into;
        if let (Transport::Direct, Way::ReduceShares(share)) = (transport, way) {
            into[self.group.rank()] = share;
        }
        let learned = self.arena.own(layout.learned.offset).cast::<args::Learned>();
        let args = args::ExchangeArgs {
            state: self.arena.own(scratch.state.offset).cast(),
            wait: self.arena.wait(fresh),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
            lanes_log2: launch.lanes_log2,
            algorithm: algorithm(transport, way),
            op: exchange.op,
            root: exchange.root as u32,
            dtype: exchange.dtype as u32,
            reduction: exchange.reduction as u32,
            slot_packets: scratch.slot_packets,
            largest_bytes: exchange.largest_bytes(),
            learned: match exchange.counts {
                Counts::Known { .. } => std::ptr::null(),
                Counts::Own { .. } => learned,
            },
            peers: self.arena.everywhere(scratch.region.offset),
            from: exchange.from.map(|strip| strip.address.cast_const()),
            into: into.map(|strip| strip.address),
            send_bytes: exchange.from.map(|strip| strip.bytes),
            receive_bytes: into.map(|strip| strip.bytes),
            row_bytes: exchange.rows.row_bytes,
            from_pitch_bytes: exchange.rows.from_pitch_bytes,
            into_pitch_bytes: exchange.rows.into_pitch_bytes,
            table: peers.table,
            theirs_bytes: shared
                .map_or([0; MAX_WORLD_SIZE], |shared| shared.offsets_bytes.map(|offset| peers.offset_bytes + offset)),
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); strips lie in operands that are
        // freed only after the device's work, or are the caller's duty.
        queue.enqueue("launch an exchange", |raw| unsafe { raw.launch_exchange(&args, &launch.geometry) })
    }

    fn exchange_geometry(&self, exchange: &Exchange<'_>, transport: Transport, way: Way) -> Launch {
        let (shape, world) = (shape_of(self.group.device()), self.group.world_size() as u64);
        let bytes = match exchange.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // Blocks meet their twins, so the shape may depend on nothing that ranks do not share.
            Counts::Own { .. } => 1 << 20,
        };
        match (transport, way) {
            (Transport::Direct, Way::Relay | Way::ReduceShares(_)) => {
                geometry::zero_copy(shape, bytes.div_ceil(16).div_ceil(world))
            }
            (_, Way::RelayPackets) => geometry::relay(shape, world as u32, bytes.div_ceil(8)),
            (Transport::Direct, Way::Reduce) => geometry::zero_copy(shape, bytes.div_ceil(16)),
            (Transport::Direct, _) => geometry::zero_copy(shape, bytes.div_ceil(16) * world / 4),
            _ => {
                let slot_bytes = self.arena.layout().one_shot_ll.slot_packets * 8;
                geometry::push(shape, world as u32, bytes.min(slot_bytes).div_ceil(8), 1024)
            }
        }
    }
}

fn algorithm(transport: Transport, way: Way) -> u32 {
    match (transport, way) {
        (Transport::Direct, Way::Push) => args::kExchangePush,
        (Transport::Direct, Way::Relay) => args::kExchangeRelay,
        (Transport::Direct, Way::Reduce | Way::ReduceShares(_)) => args::kReducePull,
        (_, Way::RelayPackets) => args::kRelayPackets,
        (_, Way::Reduce | Way::ReduceShares(_)) => args::kReducePackets,
        _ => args::kExchangePackets,
    }
}

fn unreachable(op: u32) -> Error {
    let name = Operation::from_number(op).map_or_else(|| op.to_string(), |operation| operation.to_string());
    Error::unsupported(
        format!("a direct {name} on plain memory"),
        "peers cannot address it: use symmetric or adopted memory",
    )
}

/// An exchange of one rank with itself.
pub(super) fn copy(from: Strip, into: Strip, queue: &impl Enqueue) -> Result<()> {
    if from.address == into.address || from.bytes == 0 {
        return Ok(());
    }
    // SAFETY: both strips are as long and lie in operands that do not overlap there, says the
    // validation of every operation.
    queue.enqueue("copy", |raw| unsafe { raw.copy(into.address, from.address, from.bytes as usize) })
}

impl<'a> Exchange<'a> {
    /// One that gives nobody anything yet.
    pub(super) fn new(op: u32, dtype: Dtype, counts: Counts<'a>) -> Self {
        let none = [Strip::NONE; MAX_WORLD_SIZE];
        let (root, reduction, rows) = (0, Reduction::Sum, Rows::default());
        Self { op, dtype, root, reduction, from: none, into: none, rows, counts }
    }
}

/// Where an operand starts in the arena of this group, if it is there.
pub(super) fn arena_offset(group: u64, operand: &View<'_>) -> Option<u64> {
    match operand.place {
        Place::Symmetric { group: owner, offset_bytes } if owner == group => Some(offset_bytes),
        _ => None,
    }
}

/// Addresses that an operand covers.
pub(crate) fn span(view: &View<'_>, dtype: Dtype) -> Range<usize> {
    let start = view.address as usize;
    start..start + view.elems * dtype.bytes()
}

/// Refuses operands that overlap, each with what it is called, unless they do as they do in place: `in_place` is
/// then where the first must be.
pub(crate) fn check_apart(
    (what, first): (impl Display, Range<usize>),
    (other, second): (impl Display, Range<usize>),
    in_place: Option<Range<usize>>,
) -> Result<()> {
    let overlap = first.start.max(second.start) < first.end.min(second.end);
    if !overlap || in_place.as_ref() == Some(&first) {
        return Ok(());
    }
    let place = match in_place {
        Some(place) => format!("in place they are {:#x} and {:#x}", place.start, second.start),
        None => "they may not overlap".to_owned(),
    };
    let limit = format!("{other} is {} bytes at {:#x}; {place}", second.len(), second.start);
    Err(Error::invalid(&what.to_string(), format!("{} bytes at {:#x}", first.len(), first.start), limit))
}

/// Refuses an operand of another length.
pub(crate) fn check_len(what: &str, elems: usize, needed: Option<usize>, why: impl std::fmt::Display) -> Result<()> {
    match needed {
        Some(needed) if needed == elems => Ok(()),
        Some(needed) => Err(Error::invalid(&format!("the {what}'s length"), elems, format!("{why} makes {needed}"))),
        None => Err(Error::invalid(&format!("the {what}'s length"), elems, format!("{why} is more than there can be"))),
    }
}
