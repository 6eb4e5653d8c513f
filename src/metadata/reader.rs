//! An end that receives.
#![allow(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::protocol::{Head, Kind, ReadCursor};
use super::seat::{Seat, lost};
use super::spin::Spin;
use super::{RingConfig, until};
use crate::error::{Error, Result};

/// Receives every message of its ring, in order.
///
/// Dropping it makes the writer's next send fail with [`Error::PeerLost`] ("it left the ring").
pub struct Reader {
    seat: Seat,
    cursor: ReadCursor,
    spin: Spin,
    steady: Duration,
    /// Messages so far.
    received: u64,
    /// The last message, or what has arrived of the next.
    message: Vec<u8>,
    /// Whether `message` is the next one, still incomplete.
    partial: bool,
}

impl Reader {
    pub(super) fn new(seat: Seat, config: &RingConfig) -> Self {
        let cursor = ReadCursor::new(seat.party(), seat.writer(), config.first_chunk);
        let spin = Spin::new(config.spin);
        Self { seat, cursor, spin, steady: config.steady, received: 0, message: Vec::new(), partial: false }
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
        loop {
            let (head, slot) = self.wait(deadline)?;
            let taken = self.take(head, slot);
            self.cursor.release(&self.seat.board());
            taken?;
            if head.kind == Kind::Last {
                self.partial = false;
                self.received += 1;
                return Ok(&self.message);
            }
        }
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

    fn wait(&mut self, deadline: Instant) -> Result<(Head, usize)> {
        let (seat, cursor) = (&self.seat, &self.cursor);
        let board = seat.board();
        let start = Instant::now();
        match board.news.wait(&mut self.spin, deadline, || cursor.poll(&board)) {
            Some(Ok(found)) => Ok(found),
            Some(Err(how)) => {
                let process = board.process(seat.writer());
                let more = format!(", process {process}, after {} messages", self.received);
                Err(lost(seat.rank_of(seat.writer()), how, &more))
            }
            None => {
                let doing = format!("and has sent {} messages", self.received);
                Err(seat.late(seat.writer(), self.received, start.elapsed(), &doing))
            }
        }
    }

    /// Copies a chunk to the end of the message.
    fn take(&mut self, head: Head, slot: usize) -> Result<()> {
        let limit = self.seat.mapping().layout().chunk_bytes;
        let fits = usize::try_from(head.chunk_bytes).ok().filter(|bytes| *bytes <= limit);
        let Some(bytes) = fits else {
            let message = format!("the ring holds a chunk of {} bytes, but chunks have {limit}", head.chunk_bytes);
            return Err(Error::Internal { message });
        };
        if !self.partial {
            self.message.clear();
            self.partial = true;
            let total = usize::try_from(head.message_bytes).unwrap_or(usize::MAX);
            self.message.try_reserve(total).map_err(|_| Error::OutOfMemory {
                message: format!("message {} needs {total} bytes on this rank", self.received),
            })?;
        }
        // SAFETY: this reader polled the slot and has not released it; `bytes` are at most a chunk.
        unsafe { self.seat.mapping().append(slot, bytes, &mut self.message) };
        Ok(())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Reader({} messages received)", self.received)
    }
}
