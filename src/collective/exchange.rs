//! Exchanges: every rank sends every other rank a chunk of bytes. All collectives except all-reduce are exchanges. The
//! description of an operation defines the chunks.
#![allow(unsafe_code)]

use super::call_order::Lane;
use super::graph_part::Recorded;
use super::reach::{Peers, arena_offset};
use super::select::Reach;
use super::transport::{Place, packets_up_to_bytes};
use super::{Communicator, Inner, shape_of};
use crate::error::{Error, Result};
use crate::group::{Call as Noted, MAX_WORLD_SIZE, Places};
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{View, escaped_groups};
use crate::op::{Access, Apart, Call, Kernels, Numbers, Shape, Strip, Strips, Tell};
use crate::stream::Target;
use crate::types::{Transport, WAY_APART, WAY_LEARNED, WAY_NOTHING};

/// How the bytes move if peers can address an operand.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Each rank writes into the operands of the others.
    Push,
    /// By escaped packets: each rank sends its bytes to the others.
    PushEscaped,
    /// Each rank reads a share of the root's operand and writes the share to all others.
    Relay,
    /// By packets: each rank receives a share of the root's operand and passes the share on to all others.
    RelayPackets,
    /// Each receiving rank reads a part of every rank's operand and reduces the parts.
    Reduce,
    /// By sentinel packets: each receiving rank gets a part of every rank's operand and reduces the parts.
    ReduceSentinels,
}

/// The operand that peers access, and the offset of this rank's bytes in each peer's operand.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) way: Way,
    operand: &'a View<'a>,
    offset_bytes: u64,
}

/// Which ranks know the sizes of an exchange.
#[derive(Clone, Copy)]
pub(super) enum Counts<'a> {
    /// Every rank. `largest_bytes` go at most from one rank to another. Without a shared operand the bytes move by packets.
    Known { largest_bytes: u64, shared: Option<Shared<'a>> },
    /// Each rank knows only its own counts. `arena_bytes`: offsets of its chunks in the arena, if all chunks are there.
    Own { arena_bytes: Option<[u64; MAX_WORLD_SIZE]> },
}

/// One exchange, from this rank's view.
pub(super) struct Exchange<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) strips: Strips,
    pub(super) counts: Counts<'a>,
}

impl<'a> Exchange<'a> {
    /// An exchange of other chunks in the same call.
    pub(super) fn with(&self, strips: Strips, counts: Counts<'a>) -> Self {
        Self { call: self.call, strips, counts }
    }

    /// The ranks of each result, if the reduction has several results.
    fn apart(&self) -> Option<Apart> {
        match self.call.numbers {
            Numbers::Apart(apart) => Some(apart),
            _ => None,
        }
    }

    /// Whether the call has a form that only packets of symmetra kernels serve.
    fn is_apart(&self) -> bool {
        matches!(self.call.numbers, Numbers::Apart(_) | Numbers::Shared(_))
    }

    /// How the bytes move, unless an exchange takes a launch for each part.
    pub(super) fn way(&self) -> Way {
        match &self.counts {
            _ if self.is_apart() => Way::Reduce,
            Counts::Known { shared: Some(shared), .. } => shared.way,
            _ => Way::Push,
        }
    }

    /// How the bytes move, the operand that peers access, and the offset of this rank's bytes there; `None` if ranks
    /// exchange the offsets on the device.
    pub(super) fn shared(&self) -> Option<(Way, &'a View<'a>, u64)> {
        match self.counts {
            Counts::Known { shared, .. } => shared.map(|shared| (shared.way, shared.operand, shared.offset_bytes)),
            Counts::Own { .. } => None,
        }
    }

    pub(super) fn largest_bytes(&self) -> u64 {
        let Strips { from, into, .. } = &self.strips;
        match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            Counts::Own { .. } => from.iter().chain(into).map(|strip| strip.bytes).max().unwrap_or(0),
        }
    }

    /// The offset of the operand that peers access, or would access in a larger call.
    pub(super) fn place(&self, offset_bytes: Option<u64>) -> Places {
        match self.shared() {
            Some((Way::Reduce, ..)) => [offset_bytes, None, None, None],
            Some(_) => [None, offset_bytes, None, None],
            None => Places::default(),
        }
    }

    /// The words that ranks compare with `check_calls`, for this transport.
    pub(super) fn noted(&self, way: u32) -> Noted {
        let bytes = match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // The exchange itself compares sizes; types may differ.
            Counts::Own { .. } => 0,
        };
        self.call.noted(bytes, if self.is_apart() { WAY_APART } else { way })
    }
}

impl Inner {
    /// The offset, for `check_calls`, of the operand that peers would access if this exchange by packets were larger. With
    /// `check_calls`, unequal offsets are already an error in small calls.
    pub(super) fn place_to_check(&self, exchange: &Exchange<'_>) -> Places {
        exchange.place(exchange.shared().and_then(|(_, operand, _)| self.offset_to_check(operand)))
    }

    /// The exchange of a checked call.
    fn exchange_of<'a>(&self, call: &'a Call<'a>, shape: &Shape, strips: Strips, access: Access) -> Exchange<'a> {
        let bytes = shape.bytes();
        let shared = |way, operand: &'a Option<View<'a>>, offset_bytes| {
            let shared = operand.as_ref().map(|operand| Shared { way, operand, offset_bytes });
            Counts::Known { largest_bytes: bytes, shared }
        };
        let counts = match access {
            Access::Write(offset) => shared(Way::Push, &call.output, offset(shape)),
            Access::Reduce(offset) => shared(Way::Reduce, &call.input, offset(shape)),
            Access::Relay => shared(Way::Relay, &call.output, 0),
            Access::Told(Tell::Large) if !self.tells(bytes) => Counts::Known { largest_bytes: bytes, shared: None },
            Access::Told(_) => Counts::Own { arena_bytes: self.arena_bytes(call, &strips) },
        };
        Exchange { call, strips, counts }
    }

    /// Offsets in the arena at which this rank receives from each rank; `None` if a receiving operand is not in the arena.
    fn arena_bytes(&self, call: &Call<'_>, strips: &Strips) -> Option<[u64; MAX_WORLD_SIZE]> {
        let here = |view: &View<'_>| arena_offset(self.group.id(), view).is_some();
        let all_here = match call.numbers {
            Numbers::Messages(messages) => messages.iter().all(|message| message.sends || here(&message.view())),
            _ if strips.into.iter().all(|strip| strip.bytes == 0) => true,
            _ => call.output.as_ref().is_none_or(here),
        };
        let start = self.arena.own(0) as u64;
        let offset = |strip: Strip| if strip.bytes == 0 { 0 } else { strip.address as u64 - start };
        all_here.then(|| strips.into.map(offset))
    }

    /// Whether an exchange of this many bytes from rank to rank is large enough for ranks to exchange their offsets. A
    /// direct exchange needs the offsets if they differ by rank.
    pub(super) fn tells(&self, bytes: u64) -> bool {
        match self.group.config().transport {
            Transport::Packets | Transport::Multicast => false,
            Transport::Direct => true,
            Transport::Auto => bytes > self.place(Reach::Direct).pushed_up_to_bytes(),
        }
    }

    /// The facts, other than the size, that decide the transport.
    pub(super) fn place(&self, reach: Reach) -> Place {
        Place::new(self.group.device().kind(), self.group.world_size(), reach, self.group.config())
    }

    /// Enqueues the exchange of a checked call.
    pub(super) fn exchange(
        &self,
        call: &Call<'_>,
        shape: &Shape,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let Kernels::Exchange { strips, access } = call.op.kernels else {
            return Err(Error::Internal { message: format!("{} is no exchange", call.op.operation) });
        };
        let exchange = &self.exchange_of(call, shape, strips(call, shape), access);
        if matches!(exchange.counts, Counts::Known { largest_bytes: 0, .. }) {
            return self.announce_empty(call.noted(0, WAY_NOTHING), lane, queue, recorded);
        }
        if shape.world == 1 {
            lane.order_call(queue)?;
            return copy(exchange.strips.from[0], exchange.strips.into[0], queue);
        }
        if self.group.config().transport == Transport::Multicast {
            return self.multicast_exchange(exchange, lane, queue, recorded);
        }
        let launches = self.transports(exchange, recorded)?;
        lane.order_call(queue)?;
        if let Some(calls) = launches[0].as_ref().and_then(|(transport, _)| self.in_calls(exchange, *transport)) {
            return self.exchange_in_calls(exchange, calls, lane, queue, recorded);
        }
        let way = exchange.way();
        let noted = match (&exchange.counts, &launches[0]) {
            (Counts::Known { .. }, Some((Transport::Direct, peers))) => {
                exchange.noted(algorithm(Transport::Direct, way)).at(exchange.place(Some(peers.offset_bytes)))
            }
            (Counts::Known { .. }, Some((transport, _))) => {
                exchange.noted(algorithm(*transport, way)).at(self.place_to_check(exchange))
            }
            _ => exchange.noted(WAY_LEARNED),
        };
        let fresh = self.announce(noted, lane, queue, recorded)?;
        if let Counts::Own { arena_bytes } = exchange.counts {
            self.tell_counts(exchange, arena_bytes, fresh, queue)?;
        }
        for (transport, peers) in launches.into_iter().flatten() {
            self.launch_exchange(exchange, way, transport, &peers, fresh, queue)?;
        }
        Ok(())
    }

    /// The transports to enqueue. Both, if the choice is made on the device.
    fn transports(
        &self,
        exchange: &Exchange<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<[Option<(Transport, Peers)>; 2]> {
        let (asked, none) = (self.group.config().transport, Peers::NONE);
        let (shared, largest_bytes) = match &exchange.counts {
            Counts::Known { shared: None, .. } => return Ok([Some((Transport::Packets, none)), None]),
            Counts::Known { largest_bytes, shared: Some(shared) } => (shared, *largest_bytes),
            Counts::Own { arena_bytes } => {
                let arenas = Peers { table: self.arena.table(0), ..Peers::NONE };
                // If the exchange must be direct and cannot be, the exchange of counts reports this to all ranks.
                let direct =
                    (asked != Transport::Packets && arena_bytes.is_some()).then_some((Transport::Direct, arenas));
                return Ok([Some((Transport::Packets, none)), direct]);
            }
        };
        let bytes = shared.operand.elems * exchange.call.dtype.bytes();
        let operand = self.locate(shared.operand, bytes);
        let reach = match self.reaches(&operand.view, recorded.is_some()) {
            true => Reach::Direct,
            false => Reach::Pushed,
        };
        let transport = match asked {
            Transport::Auto => match shared.way {
                Way::Relay => self.place(reach).select_broadcast(largest_bytes),
                Way::Reduce => self.place(reach).select_reduction(exchange.call.dtype, largest_bytes),
                _ => self.place(reach).select(largest_bytes),
            },
            named => named,
        };
        match (transport, reach) {
            (Transport::Direct, Reach::Pushed) => Err(unreached(exchange.call)),
            (Transport::Direct, Reach::Direct) => {
                Ok([Some((transport, self.peers(&operand, bytes, recorded, 0)?)), None])
            }
            _ => Ok([Some((transport, none)), None]),
        }
    }

    /// Refuses a checked call whose operands do not support the transport of the configuration. Enqueues nothing.
    fn check_transport(&self, call: &Call<'_>, shape: &Shape, recording: bool) -> Result<()> {
        let asked = self.group.config().transport;
        let Kernels::Exchange { strips, access } = call.op.kernels else { return Ok(()) };
        let exchange = self.exchange_of(call, shape, strips(call, shape), access);
        if shape.world == 1 || matches!(exchange.counts, Counts::Known { largest_bytes: 0, .. }) {
            return Ok(());
        }
        match (asked, &exchange.counts) {
            (Transport::Multicast, _) => self.multicast_task(&exchange).map(drop),
            (Transport::Direct, Counts::Known { shared: Some(shared), .. }) => {
                let operand = self.locate(shared.operand, shared.operand.elems * call.dtype.bytes());
                if self.reaches(&operand.view, recording) { Ok(()) } else { Err(unreached(call)) }
            }
            (Transport::Direct, Counts::Own { arena_bytes: None }) => Err(unreached(call)),
            _ => Ok(()),
        }
    }

    /// Enqueues an exchange of counts on the device, before the data.
    fn tell_counts(
        &self,
        exchange: &Exchange<'_>,
        arena_bytes: Option<[u64; MAX_WORLD_SIZE]>,
        fresh: bool,
        queue: Target<'_>,
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
            send_bytes: exchange.strips.from.map(|strip| strip.bytes),
            receive_bytes: exchange.strips.into.map(|strip| strip.bytes),
            offset_bytes: arena_bytes.unwrap_or_default(),
            largest_bytes: exchange.largest_bytes(),
            direct: u64::from(arena_bytes.is_some() && asked != Transport::Packets),
            direct_from_bytes: match asked {
                Transport::Direct => 0,
                _ => packets_up_to_bytes(kind, world) + 1,
            },
        };
        let launch = geometry::single(shape_of(&self.group), args::kMaxWorld);
        // SAFETY: scratch and learned counts lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion).
        queue.enqueue("launch a comparison of counts", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }

    pub(super) fn launch_exchange(
        &self,
        exchange: &Exchange<'_>,
        way: Way,
        transport: Transport,
        peers: &Peers,
        fresh: bool,
        queue: Target<'_>,
    ) -> Result<()> {
        let layout = self.arena.layout();
        let scratch = match (transport, way) {
            (Transport::Direct, _) => &layout.flags,
            (_, Way::PushEscaped | Way::ReduceSentinels) => &layout.one_shot_sentinel,
            _ => &layout.one_shot_ll,
        };
        let shared = match &exchange.counts {
            Counts::Known { shared, .. } => shared.as_ref(),
            Counts::Own { .. } => None,
        };
        let launch = self.exchange_geometry(exchange, transport, way);
        let (call, Strips { from, into, rows }) = (exchange.call, exchange.strips);
        let learned = self.arena.own(layout.learned.offset).cast::<args::Learned>();
        let args = args::ExchangeArgs {
            state: self.arena.own(scratch.state.offset).cast(),
            wait: self.arena.wait(fresh),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
            lanes_log2: launch.lanes_log2,
            algorithm: algorithm(transport, way),
            op: call.op.operation.number(),
            root: call.told_apart(),
            dtype: call.dtype as u32,
            reduction: call.options.reduction as u32,
            slot_packets: scratch.slot_packets,
            largest_bytes: exchange.largest_bytes(),
            learned: match exchange.counts {
                Counts::Known { .. } => std::ptr::null(),
                Counts::Own { .. } => learned,
            },
            peers: self.arena.everywhere(scratch.region.offset),
            from: from.map(|strip| strip.address.cast_const()),
            into: into.map(|strip| strip.address),
            send_bytes: from.map(|strip| strip.bytes),
            receive_bytes: into.map(|strip| strip.bytes),
            row_bytes: rows.row_bytes,
            from_pitch_bytes: rows.from_pitch_bytes,
            into_pitch_bytes: rows.into_pitch_bytes,
            table: peers.table,
            theirs_bytes: [shared.map_or(0, |shared| peers.offset_bytes + shared.offset_bytes); MAX_WORLD_SIZE],
            sources: exchange.apart().map_or(0, |apart| apart.ranks as u32),
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); strips lie in operands that are
        // freed only after the device's work, or are the caller's duty.
        queue.enqueue("launch an exchange", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }

    fn exchange_geometry(&self, exchange: &Exchange<'_>, transport: Transport, way: Way) -> Launch {
        let (shape, world) = (shape_of(&self.group), self.group.world_size() as u64);
        let bytes = match exchange.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // Blocks wait for the block of equal index on peers, so the grid depends only on facts that all ranks know.
            Counts::Own { .. } => 1 << 20,
        };
        match (transport, way) {
            (Transport::Direct, Way::Relay) => geometry::zero_copy(shape, bytes.div_ceil(16).div_ceil(world)),
            (_, Way::RelayPackets) => geometry::relay(shape, world as u32, bytes.div_ceil(8)),
            (_, Way::PushEscaped) => geometry::escaped(shape, world as u32, escaped_groups(bytes)),
            (_, Way::ReduceSentinels) => geometry::push(shape, world as u32, bytes.div_ceil(16), 512),
            (Transport::Direct, Way::Reduce) => geometry::zero_copy(shape, bytes.div_ceil(16)),
            (Transport::Direct, _) => geometry::zero_copy(shape, bytes.div_ceil(16) * world / 4),
            _ => {
                let slot_bytes = self.arena.layout().one_shot_ll.slot_packets * 8;
                geometry::push(shape, world as u32, bytes.min(slot_bytes).div_ceil(8), 1024)
            }
        }
    }
}

impl Communicator {
    /// Refuses a call on symmetra kernels whose operands do not support the transport of the configuration. Enqueues
    /// nothing. `recording`: whether the call would be recorded.
    pub(crate) fn check_operands(&self, call: &Call<'_>, recording: bool) -> Result<()> {
        let (inner, group) = (&self.0, &self.0.group);
        if !matches!(group.config().transport, Transport::Direct | Transport::Multicast) {
            return Ok(());
        }
        let shape = call.check(group.rank(), group.world_size(), group.device())?;
        inner.check_transport(call, &shape, recording)
    }
}

/// The error of a direct exchange on memory that peers cannot address.
fn unreached(call: &Call<'_>) -> Error {
    Error::unsupported(
        format!("a direct {} on plain memory", call.op.operation),
        "peers cannot address it: use symmetric or adopted memory",
    )
}

pub(super) fn algorithm(transport: Transport, way: Way) -> u32 {
    match (transport, way) {
        (Transport::Direct, Way::Push) => args::kExchangePush,
        (Transport::Direct, Way::Relay) => args::kExchangeRelay,
        (Transport::Direct, Way::Reduce) => args::kReducePull,
        (_, Way::RelayPackets) => args::kRelayPackets,
        (_, Way::PushEscaped) => args::kExchangeEscaped,
        (_, Way::ReduceSentinels) => args::kReduceSentinels,
        (_, Way::Reduce) => args::kReducePackets,
        _ => args::kExchangePackets,
    }
}

/// A copy: the exchange of a group of one rank.
pub(super) fn copy(from: Strip, into: Strip, queue: Target<'_>) -> Result<()> {
    if from.address == into.address || from.bytes == 0 {
        return Ok(());
    }
    if from.bytes > into.bytes {
        let message = format!("a copy of {} bytes into {} was asked for", from.bytes, into.bytes);
        return Err(Error::Internal { message });
    }
    // SAFETY: the bytes lie in both strips, which lie in operands that do not overlap there, by the check of the call.
    queue.enqueue("copy", |raw| unsafe { raw.copy(into.address, from.address, from.bytes as usize) })
}
