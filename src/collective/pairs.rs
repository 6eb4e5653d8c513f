//! Messages between pairs of ranks. Like puts and signals, messages are in no history and are not compared with calls of
//! other ranks: each message contains its own description.
#![allow(unsafe_code)]

use super::exchange::copy;
use super::turn::Turn;
use super::{Communicator, Inner, limits_of};
use crate::error::Result;
use crate::group::{Announced, EnqueuedCall as Noted};
use crate::kernel::{args, geometry};
use crate::op::{RankMessage, check_pairs, each_part, own_messages};
use crate::stream::Target;
use crate::types::{Dtype, Reduction, WAY_NOTHING};

impl Communicator {
    /// Enqueues messages on symmetra kernels.
    pub(crate) fn run_pairs(&self, messages: &[RankMessage], queue: Target<'_>) -> Result<()> {
        let inner = &self.0;
        let (rank, world) = (self.rank(), self.world_size());
        let _entered = inner.group.enter_with_messages(messages.iter().map(|message| (message.peer, message.sends)))?;
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
        let loading = |message: &RankMessage| message.peer != rank && !inner.group.has_begun(message.peer);
        let call = announced(inner, messages, turn.lane.fresh && messages.iter().any(loading));
        match turn.recorded() {
            Some(recorded) => {
                recorded.note_pairs();
                inner.group.lose_messages();
            }
            // A natively captured call may run at any time and any number of times.
            None if turn.is_captured_natively() => inner.group.lose_messages(),
            None => {
                inner.group.note_pairs(1);
                messages.iter().for_each(|message| inner.group.note_message(message.peer, message.sends));
            }
        }
        let enqueued =
            own_messages(messages, rank).try_for_each(|(from, into)| copy(from, into, queue)).and_then(|()| {
                each_part(messages, rank, args::kMostPairEnds, |part| launch(inner, &lanes(inner, part, call), queue))
            });
        turn.end(enqueued)
    }
}

/// The call of these messages. Its size is that of the longest message.
fn announced(inner: &Inner, messages: &[RankMessage], is_first: bool) -> Announced {
    let bytes = messages.iter().map(|message| message.strip().bytes).max().unwrap_or(0);
    let call = Noted::new(bytes, args::kOpPairs, Dtype::U8, Reduction::Sum, WAY_NOTHING, 0);
    Announced { is_first, label: inner.group.label_of(&call, bytes) }
}

/// The arguments of a launch of at most [`args::kMostPairEnds`] messages. The messages of a lane must be consecutive.
fn lanes(inner: &Inner, messages: &mut dyn Iterator<Item = &RankMessage>, call: Announced) -> args::PairsArgs {
    let pairs = &inner.arena.layout().pairs;
    let mut args = args::PairsArgs {
        wait: inner.arena.wait(call),
        counts: inner.arena.own(pairs.counts.offset).cast(),
        rank: inner.group.rank() as u32,
        world: inner.group.world_size() as u32,
        streams: pairs.streams,
        channels: pairs.channels,
        stream_packets: pairs.stream_packets,
        slot_packets: pairs.slot_packets,
        used_streams: 1,
        op: args::kOpPairs,
        peers: inner.arena.everywhere(pairs.region.offset),
        ..args::PairsArgs::NONE
    };
    let mut last = None;
    for (number, message) in messages.enumerate() {
        let (strip, peer, sends) = (message.strip(), message.peer as u32, message.sends.into());
        let [piece_packets, pieces] = geometry::pair_pieces(limits_of(&inner.group), &args, strip.bytes);
        let end = args::PairEnd { address: strip.address, bytes: strip.bytes, peer, sends, piece_packets, pieces };
        let [streams, channels] = geometry::pair_ways(&args, &end);
        args.used_streams = args.used_streams.max(streams);
        args.used_channels = args.used_channels.max(channels);
        args.end[number] = end;
        if last.replace((peer, sends)) != Some((peer, sends)) {
            args.lanes += 1;
        }
        // The end of the last lane so far.
        args.first[args.lanes as usize] = number as u8 + 1;
    }
    args
}

fn launch(inner: &Inner, args: &args::PairsArgs, queue: Target<'_>) -> Result<()> {
    let geometry = geometry::pairs(limits_of(&inner.group), args, inner.group.capabilities().multiprocessors);
    // SAFETY: streams, queues and counts lie in arenas that live until the device is idle (liveness, bounds); the lane orders
    // their use on this rank, and each of them has one sender and one receiver (exclusion); operands are freed only
    // after the device's work, or are the caller's duty.
    queue.enqueue("launch messages", |raw| unsafe { raw.launch(args, &geometry) })
}
