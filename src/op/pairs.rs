//! Messages between pairs of ranks, any number for each pair. No other rank takes part.

use std::fmt;
use std::marker::PhantomData;

use smallvec::SmallVec;

use super::check::{NamedSpan, check_apart, span};
use super::{RankMessage, Strip};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::memory::{Operand, WithView};
use crate::types::Element;

/// The number of messages that need no allocation.
const FEW: usize = 2 * MAX_WORLD_SIZE;

/// The messages of one call of [`ProcessGroup::pairs`](crate::ProcessGroup::pairs).
pub struct Pairs<'op> {
    world_size: usize,
    may_overlap: bool,
    messages: SmallVec<[RankMessage; FEW]>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Pairs<'op> {
    pub(crate) fn new(world_size: usize) -> Self {
        Self { world_size, may_overlap: false, messages: SmallVec::new(), _operands: PhantomData }
    }

    pub(crate) fn as_slice(&self) -> &[RankMessage] {
        &self.messages
    }

    /// Sends the elements of `operand` to rank `peer` of the group, after all earlier messages to rank `peer`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group.
    pub fn send<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) -> Result<()> {
        self.push(RankMessage::new(peer, true, T::DTYPE, &operand.view_of()))
    }

    /// Receives the next message from rank `peer` of the group. The message must have as many bytes as `operand`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the group.
    pub fn receive<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) -> Result<()> {
        self.push(RankMessage::new(peer, false, T::DTYPE, &operand.view_of()))
    }

    /// Accepts messages, added from here on, whose memory overlaps that of other messages. Received memory that overlaps
    /// has undefined contents after the call.
    pub fn allow_overlaps(&mut self) {
        self.may_overlap = true;
    }

    fn push(&mut self, message: RankMessage) -> Result<()> {
        check_peer(&message, self.world_size)?;
        self.messages.push(message.may_overlap(self.may_overlap));
        Ok(())
    }
}

impl fmt::Debug for Pairs<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = |sends: bool| {
            let some = self.messages.iter().filter(|message| message.sends == sends);
            some.map(|message| message.peer).collect::<Vec<_>>()
        };
        write!(out, "Pairs(to {:?}, from {:?})", peers(true), peers(false))
    }
}

fn check_peer(message: &RankMessage, world_size: usize) -> Result<()> {
    match message.peer < world_size {
        true => Ok(()),
        false => Err(Error::invalid("the peer", message.peer, format!("the world size is {world_size}"))),
    }
}

/// Checks the messages of a call, before anything runs. Refuses messages to or from unknown ranks, received memory that the
/// call also uses otherwise, and messages from a rank to itself without a counterpart of equal size.
pub(crate) fn check_pairs(messages: &[RankMessage], rank: usize, world_size: usize, device: &Device) -> Result<()> {
    for message in messages {
        check_peer(message, world_size)?;
        message.check_place(device)?;
    }
    check_places(messages)?;
    let own = |sends: bool| messages.iter().filter(move |message| (message.peer, message.sends) == (rank, sends));
    let (sent, received) = (own(true).count(), own(false).count());
    if sent != received {
        let limit = format!("it receives {received} from itself");
        return Err(Error::invalid("the number of messages that a rank sends itself", sent, limit));
    }
    for (number, (from, into)) in own_messages(messages, rank).enumerate() {
        if from.bytes != into.bytes {
            let what = format!("message {number} that a rank sends itself");
            let limit = format!("it expects {} bytes", into.bytes);
            return Err(Error::invalid(&what, format!("{} bytes", from.bytes), limit));
        }
    }
    Ok(())
}

/// Refuses received memory that another message of the call also uses, unless one of them may overlap. Messages are visited by address, and each is compared
/// with the earlier message that ends furthest; a sent message only with earlier received messages.
fn check_places(messages: &[RankMessage]) -> Result<()> {
    let place = |message: &RankMessage| span(&message.view(), message.dtype());
    let apart = messages.iter().filter(|message| !message.may_overlap && !place(message).is_empty());
    let mut ordered: SmallVec<[&RankMessage; FEW]> = apart.collect();
    ordered.sort_unstable_by_key(|message| place(message).start);
    let (mut furthest, mut furthest_received): (Option<&RankMessage>, Option<&RankMessage>) = (None, None);
    let further = |message: &RankMessage, known: Option<&RankMessage>| {
        known.is_none_or(|known| place(known).end < place(message).end)
    };
    for message in ordered {
        if let Some(before) = if message.sends { furthest_received } else { furthest } {
            let (received, other) = if message.sends { (before, message) } else { (message, before) };
            let (received, other) = (NamedSpan::new(received, place(received)), NamedSpan::new(other, place(other)));
            check_apart(received, other, None)?;
        }
        if further(message, furthest) {
            furthest = Some(message);
        }
        if !message.sends && further(message, furthest_received) {
            furthest_received = Some(message);
        }
    }
    Ok(())
}

/// The messages that a rank sends itself, in order: source and destination of each.
pub(crate) fn own_messages(messages: &[RankMessage], rank: usize) -> impl Iterator<Item = (Strip, Strip)> {
    let own = |sends: bool| messages.iter().filter(move |message| (message.peer, message.sends) == (rank, sends));
    own(true).zip(own(false)).map(|(from, into)| (from.strip(), into.strip()))
}

/// Passes the messages to and from other ranks to `visit`, in parts of at most `most` messages. Within a part, the messages of
/// one peer and direction are consecutive.
///
/// The order of the messages is the same on all ranks: the first messages of all pairs, by sender and receiver, then the second
/// messages, and so on. So the exchange cannot deadlock if ranks exchange all messages in one call: the first unfinished message
/// is in a part that both its sender and its receiver have begun.
pub(crate) fn each_part(
    messages: &[RankMessage],
    rank: usize,
    most: u32,
    mut visit: impl FnMut(&mut dyn Iterator<Item = &RankMessage>) -> Result<()>,
) -> Result<()> {
    let mut counts = [[0u32; MAX_WORLD_SIZE]; 2];
    let others = messages.iter().enumerate().filter(|(_, message)| message.peer != rank);
    let mut ordered: SmallVec<[(u32, [usize; 2], u32); FEW]> = others
        .map(|(number, message)| {
            let count = &mut counts[usize::from(message.sends)][message.peer];
            *count += 1;
            let ends = if message.sends { [rank, message.peer] } else { [message.peer, rank] };
            (*count, ends, number as u32)
        })
        .collect();
    ordered.sort_unstable();
    ordered.chunks_mut(most as usize).try_for_each(|part| {
        part.sort_unstable_by_key(|(count, ends, _)| (*ends, *count));
        visit(&mut part.iter().map(|(.., number)| &messages[*number as usize]))
    })
}

#[cfg(test)]
#[path = "../../tests/unit/op/pairs.rs"]
mod tests;
