//! Messages between pairs of ranks. Like puts and signals, messages are in no history and are not compared with calls of
//! other ranks: each message contains its own description.
#![allow(unsafe_code)]

use super::exchange::copy;
use super::turn::Turn;
use super::{Communicator, Inner, shape_of};
use crate::error::Result;
use crate::kernel::{args, geometry};
use crate::op::{Message, check_pairs, each_part, own_messages};
use crate::stream::Target;

impl Communicator {
    /// Enqueues messages on symmetra kernels.
    pub(crate) fn run_pairs(&self, messages: &[Message], queue: Target<'_>) -> Result<()> {
        let inner = &self.0;
        let (rank, world) = (self.rank(), self.world_size());
        let _entered = inner.group.enter_with_each(messages.iter().map(|message| message.peer))?;
        check_pairs(messages, rank, world, self.device())?;
        inner.check_device("stream", queue.stream().device())?;
        if messages.is_empty() {
            return Ok(());
        }
        if queue.recording().is_none() {
            queue.stream().refuse_captured("enqueue messages")?;
        }
        let mut turn = Turn::begin(inner, "messages between pairs", queue)?;
        turn.order()?;
        // Before the first collective, a rank that has not enqueued any call may still be loading.
        let loading = |message: &Message| message.peer != rank && !inner.group.has_begun(message.peer);
        let first = turn.lane.fresh && messages.iter().any(loading);
        match turn.recorded() {
            Some(recorded) => recorded.note_pairs(),
            // A natively captured call may run at any time and any number of times.
            None if queue.stream().is_captured_natively()? => {}
            None => inner.group.note_pairs(1),
        }
        own_messages(messages, rank).try_for_each(|(from, into)| copy(from, into, queue))?;
        each_part(messages, rank, args::kMostPairEnds, |part| Lanes::new(inner, part).launch(inner, first, queue))
    }
}

/// The messages of one launch, by lane.
struct Lanes {
    end: [args::PairEnd; args::kMostPairEnds as usize],
    first: [u8; args::kMostPairLanes as usize + 2],
    count: u32,
}

impl Lanes {
    /// The lanes of at most [`args::kMostPairEnds`] messages. The messages of a lane must be consecutive.
    fn new(inner: &Inner, messages: &mut dyn Iterator<Item = &Message>) -> Self {
        let end = [args::PairEnd::NONE; args::kMostPairEnds as usize];
        let mut lanes = Self { end, first: [0; args::kMostPairLanes as usize + 2], count: 0 };
        let mut last = None;
        for (number, message) in messages.enumerate() {
            lanes.end[number] = pair_end(inner, message);
            if last.replace((message.peer, message.sends)) != Some((message.peer, message.sends)) {
                lanes.count += 1;
            }
            // The end of the last lane so far.
            lanes.first[lanes.count as usize] = number as u8 + 1;
        }
        lanes
    }

    fn launch(&self, inner: &Inner, first: bool, queue: Target<'_>) -> Result<()> {
        let pairs = &inner.arena.layout().pairs;
        let args = args::PairsArgs {
            wait: inner.arena.wait(first),
            counts: inner.arena.own(pairs.counts.offset).cast(),
            rank: inner.group.rank() as u32,
            world: inner.group.world_size() as u32,
            channels: pairs.channels,
            slot_packets: pairs.slot_packets,
            op: args::kOpPairs,
            lanes: self.count,
            first: self.first,
            peers: inner.arena.everywhere(pairs.region.offset),
            end: self.end,
        };
        let geometry = geometry::pairs(shape_of(&inner.group), &args, inner.group.capabilities().multiprocessors);
        // SAFETY: queues and counts lie in arenas that live until the device is idle (liveness, bounds); the lane orders
        // their use on this rank, and each queue has one sender and one receiver (exclusion); operands are freed only
        // after the device's work, or are the caller's duty.
        queue.enqueue("launch messages", |raw| unsafe { raw.launch(&args, &geometry) })
    }
}

fn pair_end(inner: &Inner, message: &Message) -> args::PairEnd {
    let (strip, pairs) = (message.strip(), &inner.arena.layout().pairs);
    let [piece_packets, pieces] = geometry::pair_pieces(strip.bytes, pairs.channels, pairs.slot_packets);
    let (peer, sends) = (message.peer as u32, message.sends.into());
    args::PairEnd { address: strip.address, bytes: strip.bytes, peer, sends, piece_packets, pieces }
}
