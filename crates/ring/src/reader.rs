//! The end of a reader.
#![allow(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::RingConfig;
use super::backoff::Backoff;
use super::member::RingMember;
use super::protocol::{ChunkHead, ChunkKind, ReadCursor};
use super::zmq_reader::ZmqReader;
use symmetra::internal::{Maker, decode, until};
use symmetra::{Error, Result};

/// Receives every message of its ring, in order.
///
/// Dropping it makes the writer's next send fail with [`Error::PeerLost`] ("it left the ring"). In a child of `fork()`
/// every use fails with [`Error::Unsupported`], and dropping it does nothing.
pub struct Reader {
    maker: Maker,
    source: MessageSource,
    steady: Duration,
    /// Messages so far.
    received: u64,
    /// The last message, or the part of the next that has arrived.
    message: Vec<u8>,
}

/// Where messages come from.
enum MessageSource {
    /// The writer's memory.
    NearReader(Box<NearReader>),
    /// The writer's host.
    Far(ZmqReader),
}

impl Reader {
    pub(super) fn near(member: RingMember, zmq_reader: Option<ZmqReader>, config: &RingConfig) -> Self {
        let cursor = ReadCursor::new(member.party(), member.writer(), config.first_chunk);
        let near = NearReader {
            zmq_reader,
            member,
            cursor,
            backoff: Backoff::new(config.spin),
            partial: false,
            in_vain: false,
        };
        Self::of(MessageSource::NearReader(Box::new(near)), config)
    }

    pub(super) fn far(zmq_reader: ZmqReader, config: &RingConfig) -> Self {
        Self::of(MessageSource::Far(zmq_reader), config)
    }

    fn of(source: MessageSource, config: &RingConfig) -> Self {
        Self { maker: Maker::this(), source, steady: config.steady, received: 0, message: Vec::new() }
    }

    /// The next message. Blocks for the `steady` of the ring's settings at most. The bytes are this
    /// reader's own copy, in memory that is used again.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the writer, or the reader that the writer waits for, and its state; receiving may be
    /// tried again. [`Error::PeerLost`] when the writer died or left, after everything it had sent; the error names
    /// the reader that the writer gave up, if the writer ended because of one. [`Error::Unsupported`] in a child of
    /// `fork()`.
    pub fn receive(&mut self) -> Result<&[u8]> {
        self.receive_by(until(self.steady))
    }

    /// The next message. Blocks until `deadline` at most.
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive).
    pub fn receive_by(&mut self, deadline: Instant) -> Result<&[u8]> {
        self.maker.check("a reader of a ring")?;
        match &mut self.source {
            MessageSource::NearReader(near) => near.receive(self.received, &mut self.message, deadline)?,
            MessageSource::Far(zmq_reader) => by_zeromq(zmq_reader, self.received, &mut self.message, deadline)?,
        }
        self.received += 1;
        Ok(&self.message)
    }

    /// The next message as a `T` that [`send_value`](super::Writer::send_value) sent. Blocks for the `steady` of the
    /// ring's settings at most.
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive); [`Error::InvalidArgument`] for a message that is not a `T`. Such a
    /// message is nevertheless taken from the ring.
    pub fn receive_value<T: DeserializeOwned>(&mut self) -> Result<T> {
        let number = self.received;
        let message = self.receive()?;
        decode(message).map_err(|error| {
            let limit = format!("it must be a value of {}: {error}", std::any::type_name::<T>());
            Error::invalid("message", number, limit)
        })
    }

    /// How many messages were received.
    pub fn received(&self) -> u64 {
        self.received
    }
}

/// A reader on the writer's host.
struct NearReader {
    zmq_reader: Option<ZmqReader>,
    member: RingMember,
    cursor: ReadCursor,
    backoff: Backoff,
    /// Whether a part of the next message was taken.
    partial: bool,
    /// Whether the last wait was in vain, which the writer reads.
    in_vain: bool,
}

impl NearReader {
    /// Takes chunks until message `number` is complete. Chunks that arrived before an error are kept.
    fn receive(&mut self, number: u64, message: &mut Vec<u8>, deadline: Instant) -> Result<()> {
        loop {
            let waited = self.wait(number, deadline);
            let missed = match &waited {
                Err(Error::Timeout { rank, .. }) => *rank,
                _ => None,
            };
            if missed.is_some() || self.in_vain {
                self.in_vain = missed.is_some();
                self.member.board().miss(self.member.party(), missed);
            }
            let (head, slot) = waited?;
            match (head.kind, &mut self.zmq_reader) {
                (ChunkKind::Elsewhere, Some(zmq_reader)) => by_zeromq(zmq_reader, number, message, deadline)?,
                _ => self.take(head, slot, message)?,
            }
            self.cursor.release(&self.member.board());
            self.partial = head.kind == ChunkKind::Part;
            if !self.partial {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, number: u64, deadline: Instant) -> Result<(ChunkHead, usize)> {
        let (member, cursor) = (&self.member, &self.cursor);
        let board = member.board();
        let start = Instant::now();
        match board.news.wait(&mut self.backoff, deadline, || cursor.poll(&board)) {
            Some(Ok(found)) => Ok(found),
            Some(Err(how)) => Err(member.ended(how, number)),
            None => {
                let (party, doing) = match cursor.in_the_way(&board) {
                    Some((party, chunks)) => {
                        let writer = member.rank_of(member.writer());
                        (party, format!("with {chunks} unread chunks, so that rank {writer}, the writer, waits for it"))
                    }
                    None => (member.writer(), format!("and has sent {number} messages")),
                };
                Err(member.late(party, number, start.elapsed(), &doing))
            }
        }
    }

    /// Copies a chunk to the end of the message.
    fn take(&self, head: ChunkHead, slot: usize, message: &mut Vec<u8>) -> Result<()> {
        let [bytes, message_bytes] =
            [head.chunk_bytes, head.message_bytes].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if !self.partial {
            message.clear();
            reserve(message, message_bytes)?;
        }
        // SAFETY: this reader polled the slot and has not released it.
        unsafe { self.member.mapping().append(slot, bytes, message) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        let zmq_reader = match &self.source {
            MessageSource::Far(zmq_reader) => Some(zmq_reader),
            MessageSource::NearReader(near) => near.zmq_reader.as_ref(),
        };
        if let Some(zmq_reader) = zmq_reader {
            zmq_reader.leave();
        }
    }
}

/// Takes message `number` as it came by ZeroMQ.
fn by_zeromq(zmq_reader: &mut ZmqReader, number: u64, message: &mut Vec<u8>, deadline: Instant) -> Result<()> {
    let payload = zmq_reader.receive(number, deadline)?;
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
