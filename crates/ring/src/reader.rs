//! An end that receives.
#![allow(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::RingConfig;
use super::mailbox::Mailbox;
use super::protocol::{Head, Kind, ReadCursor};
use super::seat::{Seat, ending};
use super::spin::Spin;
use symmetra::internal::until;
use symmetra::{Error, Result};

/// Receives every message of its ring, in order.
///
/// Dropping it makes the writer's next send fail with [`Error::PeerLost`] ("it left the ring").
pub struct Reader {
    source: Source,
    steady: Duration,
    /// Messages so far.
    received: u64,
    /// The last message, or what has arrived of the next.
    message: Vec<u8>,
}

/// Where messages come from.
enum Source {
    /// The writer's memory.
    Near(Box<Near>),
    /// The writer's host.
    Far(Mailbox),
}

impl Reader {
    pub(super) fn near(seat: Seat, mailbox: Option<Mailbox>, config: &RingConfig) -> Self {
        let cursor = ReadCursor::new(seat.party(), seat.writer(), config.first_chunk);
        let near = Near { mailbox, seat, cursor, spin: Spin::new(config.spin), partial: false };
        Self { source: Source::Near(Box::new(near)), steady: config.steady, received: 0, message: Vec::new() }
    }

    pub(super) fn far(mailbox: Mailbox, config: &RingConfig) -> Self {
        Self { source: Source::Far(mailbox), steady: config.steady, received: 0, message: Vec::new() }
    }

    /// The next message. Blocks for the `steady` of the ring's settings at most. The bytes are this
    /// reader's own copy, in memory that is used again.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the writer and its state; receiving may be tried again.
    /// [`Error::PeerLost`] when the writer died or left, after everything it had sent.
    pub fn receive(&mut self) -> Result<&[u8]> {
        self.receive_by(until(self.steady))
    }

    /// The same, but blocks until `deadline` at most.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_by(&mut self, deadline: Instant) -> Result<&[u8]> {
        match &mut self.source {
            Source::Near(near) => near.receive(self.received, &mut self.message, deadline)?,
            Source::Far(mailbox) => by_zeromq(mailbox, self.received, &mut self.message, deadline)?,
        }
        self.received += 1;
        Ok(&self.message)
    }

    /// The next message, which must be JSON of a `T`.
    ///
    /// # Errors
    /// As [`receive`](Self::receive); [`Error::InvalidArgument`] for a message that is no `T`, which
    /// is taken from the ring all the same.
    pub fn receive_value<T: DeserializeOwned>(&mut self) -> Result<T> {
        let number = self.received;
        let message = self.receive()?;
        serde_json::from_slice(message).map_err(|error| {
            let limit = format!("it must be JSON of {}: {error}", std::any::type_name::<T>());
            Error::invalid("message", number, limit)
        })
    }

    /// How many messages were received.
    pub fn received(&self) -> u64 {
        self.received
    }
}

/// A reader on the writer's host.
struct Near {
    mailbox: Option<Mailbox>,
    seat: Seat,
    cursor: ReadCursor,
    spin: Spin,
    /// Whether a part of the next message was taken.
    partial: bool,
}

impl Near {
    /// Takes chunks until they make message `number`. What arrived before an error is kept.
    fn receive(&mut self, number: u64, message: &mut Vec<u8>, deadline: Instant) -> Result<()> {
        loop {
            let (head, slot) = self.wait(number, deadline)?;
            match (head.kind, &mut self.mailbox) {
                (Kind::Elsewhere, Some(mailbox)) => by_zeromq(mailbox, number, message, deadline)?,
                _ => self.take(head, slot, message)?,
            }
            self.cursor.release(&self.seat.board());
            self.partial = head.kind == Kind::Part;
            if !self.partial {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, number: u64, deadline: Instant) -> Result<(Head, usize)> {
        let (seat, cursor) = (&self.seat, &self.cursor);
        let board = seat.board();
        let start = Instant::now();
        match board.news.wait(&mut self.spin, deadline, || cursor.poll(&board)) {
            Some(Ok(found)) => Ok(found),
            Some(Err(how)) => {
                let process = board.process(seat.writer());
                let detail = format!(": {}, process {process}, after {number} messages", ending(how));
                Err(Error::PeerLost { rank: seat.rank_of(seat.writer()), detail })
            }
            None => {
                let doing = format!("and has sent {number} messages");
                Err(seat.late(seat.writer(), number, start.elapsed(), &doing))
            }
        }
    }

    /// Copies a chunk to the end of the message.
    fn take(&self, head: Head, slot: usize, message: &mut Vec<u8>) -> Result<()> {
        let limit = self.seat.mapping().layout().chunk_bytes;
        let fits = usize::try_from(head.chunk_bytes).ok().filter(|bytes| *bytes <= limit);
        let Some(bytes) = fits else {
            let message = format!("the ring holds a chunk of {} bytes, but chunks have {limit}", head.chunk_bytes);
            return Err(Error::Internal { message });
        };
        if !self.partial {
            message.clear();
            reserve(message, usize::try_from(head.message_bytes).unwrap_or(usize::MAX))?;
        }
        // SAFETY: this reader polled the slot and has not released it; `bytes` are at most a chunk.
        unsafe { self.seat.mapping().append(slot, bytes, message) };
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mailbox = match &self.source {
            Source::Far(mailbox) => Some(mailbox),
            Source::Near(near) => near.mailbox.as_ref(),
        };
        if let Some(mailbox) = mailbox {
            mailbox.leave();
        }
    }
}

/// Takes message `number` as it came by ZeroMQ.
fn by_zeromq(mailbox: &mut Mailbox, number: u64, message: &mut Vec<u8>, deadline: Instant) -> Result<()> {
    let (theirs, payload) = mailbox.receive(deadline)?;
    if theirs != number {
        return Err(Error::Internal {
            message: format!("message {theirs} came by ZeroMQ instead of message {number}"),
        });
    }
    message.clear();
    reserve(message, payload.bytes().len())?;
    message.extend_from_slice(payload.bytes());
    Ok(())
}

fn reserve(message: &mut Vec<u8>, bytes: usize) -> Result<()> {
    message
        .try_reserve(bytes)
        .map_err(|_| Error::OutOfMemory { message: format!("a message needs {bytes} bytes on this rank") })
}

impl fmt::Debug for Reader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Reader({} messages received)", self.received)
    }
}
