//! Exchanges: every rank sends every other rank a chunk of bytes. All collectives except all-reduce are exchanges. The
//! description of an operation defines the chunks.
#![allow(unsafe_code)]

mod apart;
mod in_calls;
mod multicast;

use super::reach::{Peers, arena_offset, unaddressed};
use super::select::Reach;
use super::transport::{TransportFacts, packets_up_to_bytes};
use super::turn::Turn;
use super::{Communicator, Inner, limits_of};
use crate::error::{Error, Result};
use crate::group::{Announced, EnqueuedCall as Noted, Group, MAX_WORLD_SIZE, Places};
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{Arena, View, escaped_groups};
use crate::op::{Access, Apart, Call, CheckedShape, Kernels, Numbers, Strip, Strips, Tell};
use crate::stream::Target;
use crate::types::{Transport, WAY_APART, WAY_LEARNED, WAY_NOTHING};

pub(in crate::collective) use apart::{all_reduce_apart, reduce_shared};
use in_calls::InCalls;
use multicast::MulticastExchange;

/// How the bytes move if peers can address an operand.
#[derive(Clone, Copy)]
enum ExchangeWay {
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
struct SharedOperand<'a> {
    way: ExchangeWay,
    operand: &'a View<'a>,
    offset_bytes: u64,
}

/// Which ranks know the sizes of an exchange.
#[derive(Clone, Copy)]
enum Counts<'a> {
    /// Every rank. `largest_bytes` go at most from one rank to another. Without a shared operand the bytes move by packets.
    Known { largest_bytes: u64, shared: Option<SharedOperand<'a>> },
    /// Each rank knows only its own counts. `arena_bytes`: offsets of its chunks in the arena, if all chunks are there.
    Own { arena_bytes: Option<[u64; MAX_WORLD_SIZE]> },
}

/// One exchange, from this rank's view.
struct Exchange<'a> {
    call: &'a Call<'a>,
    strips: Strips,
    counts: Counts<'a>,
}

impl<'a> Exchange<'a> {
    /// An exchange of other chunks in the same call.
    fn with(&self, strips: Strips, counts: Counts<'a>) -> Self {
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
    fn way(&self) -> ExchangeWay {
        match &self.counts {
            _ if self.is_apart() => ExchangeWay::Reduce,
            Counts::Known { shared: Some(shared), .. } => shared.way,
            _ => ExchangeWay::Push,
        }
    }

    /// How the bytes move, the operand that peers access, and the offset of this rank's bytes there; `None` if ranks
    /// exchange the offsets on the device.
    fn shared(&self) -> Option<(ExchangeWay, &'a View<'a>, u64)> {
        match self.counts {
            Counts::Known { shared, .. } => shared.map(|shared| (shared.way, shared.operand, shared.offset_bytes)),
            Counts::Own { .. } => None,
        }
    }

    fn largest_bytes(&self) -> u64 {
        let Strips { from, into, .. } = &self.strips;
        match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            Counts::Own { .. } => from.iter().chain(into.iter()).map(|strip| strip.bytes).max().unwrap_or(0),
        }
    }

    /// The offset of the operand that peers access, or would access in a larger call.
    fn place(&self, offset_bytes: Option<u64>) -> Places {
        match self.shared() {
            Some((ExchangeWay::Reduce, ..)) => [offset_bytes, None, None, None],
            Some(_) => [None, offset_bytes, None, None],
            None => Places::default(),
        }
    }

    /// The words that ranks compare with `check_calls`, for this transport.
    fn noted(&self, way: u32) -> Noted {
        let bytes = match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // The exchange itself compares sizes; types may differ.
            Counts::Own { .. } => 0,
        };
        self.call.noted(bytes, if self.is_apart() { WAY_APART } else { way })
    }

    /// The offset, for `check_calls`, of the operand that peers would access if this exchange by packets were larger. With
    /// `check_calls`, unequal offsets are already an error in small calls.
    fn place_to_check(&self, inner: &Inner) -> Places {
        self.place(self.shared().and_then(|(_, operand, _)| inner.offset_to_check(operand)))
    }

    /// The exchange of a checked call with these chunks.
    fn of(call: &'a Call<'a>, shape: &CheckedShape, strips: Strips, access: Access, arena: &Arena) -> Self {
        let bytes = shape.bytes();
        let shared = |way, operand: &'a Option<View<'a>>, own: Strip| {
            let shared =
                operand.as_ref().map(|operand| SharedOperand { way, operand, offset_bytes: own.offset_bytes(operand) });
            Counts::Known { largest_bytes: bytes, shared }
        };
        let counts = match access {
            Access::Write => shared(ExchangeWay::Push, &call.output, strips.into[shape.rank]),
            Access::Reduce => shared(ExchangeWay::Reduce, &call.input, strips.from[shape.rank]),
            Access::Relay => shared(ExchangeWay::Relay, &call.output, strips.into[shape.rank]),
            Access::Told(Tell::Large) if !tells(arena.group(), bytes) => {
                Counts::Known { largest_bytes: bytes, shared: None }
            }
            Access::Told(_) => Counts::Own { arena_bytes: arena_bytes(arena, call, &strips) },
        };
        Self { call, strips, counts }
    }

    fn is_empty(&self) -> bool {
        matches!(self.counts, Counts::Known { largest_bytes: 0, .. })
    }

    fn enqueue(&self, turn: &mut Turn<'_>) -> Result<()> {
        if self.is_empty() {
            return turn.announce_empty(self.call.noted(0, WAY_NOTHING));
        }
        let inner = turn.inner;
        if inner.group.world_size() == 1 {
            turn.order()?;
            return copy(self.strips.from[0], self.strips.into[0], turn.queue);
        }
        if inner.group.config().transport == Transport::Multicast {
            return MulticastExchange::new(self, &inner.arena)?.enqueue(turn);
        }
        let launches = self.transports(turn)?;
        turn.order()?;
        let calls = launches[0].as_ref().and_then(|(transport, _)| InCalls::of(self, *transport, &inner.arena));
        if let Some(calls) = calls {
            return calls.enqueue(turn);
        }
        let way = self.way();
        let noted = match (&self.counts, &launches[0]) {
            (Counts::Known { .. }, Some((Transport::Direct, peers))) => {
                self.noted(algorithm(Transport::Direct, way)).at(self.place(Some(peers.offset_bytes)))
            }
            (Counts::Known { .. }, Some((transport, _))) => {
                self.noted(algorithm(*transport, way)).at(self.place_to_check(inner))
            }
            _ => self.noted(WAY_LEARNED),
        };
        let announced = turn.announce_part(noted, self.largest_bytes())?;
        if let Counts::Own { arena_bytes } = self.counts {
            self.tell_counts(arena_bytes, announced, turn)?;
        }
        for (transport, peers) in launches.into_iter().flatten() {
            self.launch(way, transport, &peers, announced, turn)?;
        }
        Ok(())
    }

    /// The transports to enqueue. Both, if the choice is made on the device.
    fn transports(&self, turn: &Turn<'_>) -> Result<[Option<(Transport, Peers)>; 2]> {
        let (inner, recorded) = (turn.inner, turn.recorded());
        let (asked, none) = (inner.group.config().transport, Peers::NONE);
        let (shared, largest_bytes) = match &self.counts {
            Counts::Known { shared: None, .. } => return Ok([Some((Transport::Packets, none)), None]),
            Counts::Known { largest_bytes, shared: Some(shared) } => (shared, *largest_bytes),
            Counts::Own { arena_bytes } => {
                let arenas = Peers { table: inner.arena.table(0), ..Peers::NONE };
                // If the exchange must be direct and cannot be, the exchange of counts reports this to all ranks.
                let direct =
                    (asked != Transport::Packets && arena_bytes.is_some()).then_some((Transport::Direct, arenas));
                return Ok([Some((Transport::Packets, none)), direct]);
            }
        };
        let bytes = shared.operand.elems * self.call.dtype.bytes();
        let operand = inner.locate(shared.operand, bytes);
        let reach = match inner.reaches(&operand.view, recorded.is_some()) {
            true => Reach::Direct,
            false => Reach::Pushed,
        };
        let transport = match asked {
            Transport::Auto => match shared.way {
                ExchangeWay::Relay => place(&inner.group, reach).select_broadcast(largest_bytes),
                ExchangeWay::Reduce => place(&inner.group, reach).select_reduction(self.call.dtype, largest_bytes),
                _ => place(&inner.group, reach).select(largest_bytes),
            },
            named => named,
        };
        match (transport, reach) {
            (Transport::Direct, Reach::Pushed) => Err(unreached(self.call)),
            (Transport::Direct, Reach::Direct) => {
                Ok([Some((transport, inner.peers(&operand, bytes, recorded, 0)?)), None])
            }
            _ => Ok([Some((transport, none)), None]),
        }
    }

    /// Refuses an exchange whose operands do not support the transport of the configuration. Enqueues nothing.
    fn check_transport(&self, inner: &Inner, recording: bool) -> Result<()> {
        if inner.group.world_size() == 1 || self.is_empty() {
            return Ok(());
        }
        match (inner.group.config().transport, &self.counts) {
            (Transport::Multicast, _) => MulticastExchange::new(self, &inner.arena).map(drop),
            (Transport::Direct, Counts::Known { shared: Some(shared), .. }) => {
                let operand = inner.locate(shared.operand, shared.operand.elems * self.call.dtype.bytes());
                if inner.reaches(&operand.view, recording) { Ok(()) } else { Err(unreached(self.call)) }
            }
            (Transport::Direct, Counts::Own { arena_bytes: None }) => Err(unreached(self.call)),
            _ => Ok(()),
        }
    }

    /// Enqueues an exchange of counts on the device, before the data.
    fn tell_counts(
        &self,
        arena_bytes: Option<[u64; MAX_WORLD_SIZE]>,
        announced: Announced,
        turn: &Turn<'_>,
    ) -> Result<()> {
        let (group, arena) = (&turn.inner.group, &turn.inner.arena);
        let (layout, asked, world) = (arena.layout(), group.config().transport, group.world_size());
        let args = args::CountsArgs {
            peers: arena.everywhere(layout.counts.region.offset),
            state: arena.own(layout.counts.state.offset).cast(),
            learned: arena.own(layout.learned.offset).cast(),
            wait: arena.wait(announced),
            rank: group.rank() as u32,
            world: world as u32,
            send_bytes: self.strips.from.map(|strip| strip.bytes),
            receive_bytes: self.strips.into.map(|strip| strip.bytes),
            offset_bytes: arena_bytes.unwrap_or_default(),
            largest_bytes: self.largest_bytes(),
            direct: u64::from(arena_bytes.is_some() && asked != Transport::Packets),
            direct_from_bytes: match asked {
                Transport::Direct => 0,
                _ => packets_up_to_bytes(group.device().kind(), world) + 1,
            },
        };
        let launch = geometry::single(limits_of(group), args::kMaxWorld);
        // SAFETY: scratch and learned counts lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion).
        turn.queue.enqueue("launch a comparison of counts", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }

    /// Enqueues one launch of the call `announced`. `peers`: where peers find the shared operand.
    fn launch(
        &self,
        way: ExchangeWay,
        transport: Transport,
        peers: &Peers,
        announced: Announced,
        turn: &Turn<'_>,
    ) -> Result<()> {
        let (group, arena) = (&turn.inner.group, &turn.inner.arena);
        let layout = arena.layout();
        let scratch = match (transport, way) {
            (Transport::Direct, _) => &layout.flags,
            (_, ExchangeWay::PushEscaped | ExchangeWay::ReduceSentinels) => &layout.one_shot_sentinel,
            _ => &layout.one_shot_ll,
        };
        let shared = match &self.counts {
            Counts::Known { shared, .. } => shared.as_ref(),
            Counts::Own { .. } => None,
        };
        let launch = self.geometry(transport, way, arena);
        let (call, Strips { from, into, rows }) = (self.call, &self.strips);
        let learned = arena.own(layout.learned.offset).cast::<args::Learned>();
        let args = args::ExchangeArgs {
            state: arena.own(scratch.state.offset).cast(),
            wait: arena.wait(announced),
            rank: group.rank() as u32,
            world: group.world_size() as u32,
            lanes_log2: launch.lanes_log2,
            algorithm: algorithm(transport, way),
            op: call.op.operation.number(),
            root: call.told_apart(),
            dtype: call.dtype as u32,
            reduction: call.options.reduction as u32,
            slot_packets: scratch.slot_packets,
            largest_bytes: self.largest_bytes(),
            learned: match self.counts {
                Counts::Known { .. } => std::ptr::null(),
                Counts::Own { .. } => learned,
            },
            peers: arena.everywhere(scratch.region.offset),
            from: from.map(|strip| strip.address.cast_const()),
            into: into.map(|strip| strip.address),
            send_bytes: from.map(|strip| strip.bytes),
            receive_bytes: into.map(|strip| strip.bytes),
            row_bytes: rows.row_bytes,
            from_pitch_bytes: rows.from_pitch_bytes,
            into_pitch_bytes: rows.into_pitch_bytes,
            table: peers.table,
            theirs_bytes: [shared.map_or(0, |shared| peers.offset_bytes + shared.offset_bytes); MAX_WORLD_SIZE],
            sources: self.apart().map_or(0, |apart| apart.ranks as u32),
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); strips lie in operands that are
        // freed only after the device's work, or are the caller's duty.
        turn.queue.enqueue("launch an exchange", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }

    fn geometry(&self, transport: Transport, way: ExchangeWay, arena: &Arena) -> Launch {
        let (shape, world) = (limits_of(arena.group()), arena.group().world_size() as u64);
        let bytes = match self.counts {
            Counts::Known { largest_bytes, .. } => largest_bytes,
            // Blocks wait for the block of equal index on peers, so the grid depends only on facts that all ranks know.
            Counts::Own { .. } => 1 << 20,
        };
        match (transport, way) {
            (Transport::Direct, ExchangeWay::Relay) => geometry::zero_copy(shape, bytes.div_ceil(16).div_ceil(world)),
            (_, ExchangeWay::RelayPackets) => geometry::relay(shape, world as u32, bytes.div_ceil(8)),
            (_, ExchangeWay::PushEscaped) => geometry::escaped(shape, world as u32, escaped_groups(bytes)),
            (_, ExchangeWay::ReduceSentinels) => geometry::push(shape, world as u32, bytes.div_ceil(16), 512),
            (Transport::Direct, ExchangeWay::Reduce) => geometry::zero_copy(shape, bytes.div_ceil(16)),
            (Transport::Direct, _) => geometry::zero_copy(shape, bytes.div_ceil(16) * world / 4),
            _ => {
                let slot_bytes = arena.layout().one_shot_ll.slot_packets * 8;
                geometry::push(shape, world as u32, bytes.min(slot_bytes).div_ceil(8), 1024)
            }
        }
    }
}

/// Enqueues the exchange of a checked call.
pub(in crate::collective) fn exchange(
    call: &Call<'_>,
    shape: &CheckedShape,
    strips: Strips,
    access: Access,
    turn: &mut Turn<'_>,
) -> Result<()> {
    Exchange::of(call, shape, strips, access, &turn.inner.arena).enqueue(turn)
}

/// Offsets in the arena at which this rank receives from each rank; `None` if a receiving operand is not in the arena.
fn arena_bytes(arena: &Arena, call: &Call<'_>, strips: &Strips) -> Option<[u64; MAX_WORLD_SIZE]> {
    let here = |view: &View<'_>| arena_offset(arena.group().id(), view).is_some();
    let all_here = match call.numbers {
        Numbers::Messages(messages) => messages.iter().all(|message| message.sends || here(&message.view())),
        _ if strips.into.iter().all(|strip| strip.bytes == 0) => true,
        _ => call.output.as_ref().is_none_or(here),
    };
    let start = arena.own(0) as u64;
    let offset = |strip: Strip| if strip.bytes == 0 { 0 } else { strip.address as u64 - start };
    all_here.then(|| strips.into.map(offset))
}

/// Whether an exchange of this many bytes from rank to rank is large enough for ranks to exchange their offsets. A
/// direct exchange needs the offsets if they differ by rank.
fn tells(group: &Group, bytes: u64) -> bool {
    match group.config().transport {
        Transport::Packets | Transport::Multicast => false,
        Transport::Direct => true,
        Transport::Auto => bytes > place(group, Reach::Direct).pushed_up_to_bytes(),
    }
}

/// The facts, other than the size, that decide the transport.
fn place(group: &Group, reach: Reach) -> TransportFacts {
    TransportFacts::new(group.device().kind(), group.world_size(), reach, group.config())
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
        let Kernels::Exchange { strips, access } = call.op.kernels else { return Ok(()) };
        Exchange::of(call, &shape, strips(call, &shape), access, &inner.arena).check_transport(inner, recording)
    }
}

/// The error of a direct exchange on memory that peers cannot address.
fn unreached(call: &Call<'_>) -> Error {
    unaddressed(format!("a direct {} on plain memory", call.op.operation))
}

fn algorithm(transport: Transport, way: ExchangeWay) -> u32 {
    match (transport, way) {
        (Transport::Direct, ExchangeWay::Push) => args::kExchangePush,
        (Transport::Direct, ExchangeWay::Relay) => args::kExchangeRelay,
        (Transport::Direct, ExchangeWay::Reduce) => args::kReducePull,
        (_, ExchangeWay::RelayPackets) => args::kRelayPackets,
        (_, ExchangeWay::PushEscaped) => args::kExchangeEscaped,
        (_, ExchangeWay::ReduceSentinels) => args::kReduceSentinels,
        (_, ExchangeWay::Reduce) => args::kReducePackets,
        _ => args::kExchangePackets,
    }
}

/// A copy: the exchange of a group of one rank.
pub(in crate::collective) fn copy(from: Strip, into: Strip, queue: Target<'_>) -> Result<()> {
    if from.address == into.address || from.bytes == 0 {
        return Ok(());
    }
    if from.bytes > into.bytes {
        let message = format!("a copy of {} bytes into {} was asked for", from.bytes, into.bytes);
        return Err(Error::internal(message));
    }
    // SAFETY: the bytes lie in both strips, which lie in operands that do not overlap there, by the check of the call.
    queue.enqueue("copy", |raw| unsafe { raw.copy(into.address, from.address, from.bytes as usize) })
}
