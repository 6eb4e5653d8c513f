//! The end of the writer.
#![allow(unsafe_code)]

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::backoff::Backoff;
use super::member::RingMember;
use super::protocol::{Blocked, ChunkHead, ChunkKind, MemberLife, WriteCursor};
use super::wire::GivenUp;
use super::zmq_writer::ZmqWriter;
use super::{Overflow, RingConfig};
use symmetra::internal::{Maker, encode, until};
use symmetra::{Error, Result};

/// Sends messages to every reader of its ring.
///
/// There is one value of this type for a ring, and it sends through `&mut`: two writers, or two
/// threads that write at once, do not compile. A writer may move to another thread.
///
/// ```compile_fail,E0599
/// # fn twice(writer: symmetra_ring::Writer) -> symmetra::Result<()> {
/// let mut second = writer.clone(); // one writer a ring
/// # let mut first = writer;
/// first.send(b"one")?;
/// second.send(b"two")
/// # }
/// ```
///
/// ```
/// # fn twice(writer: symmetra_ring::Writer) -> symmetra::Result<()> {
/// # let mut first = writer;
/// first.send(b"one")?;
/// first.send(b"two")
/// # }
/// ```
///
/// ```compile_fail,E0596
/// # fn at_once(writer: &symmetra_ring::Writer) {
/// std::thread::scope(|scope| {
///     scope.spawn(|| writer.send(b"one")); // two threads at once
///     scope.spawn(|| writer.send(b"two"));
/// });
/// # }
/// ```
///
/// ```
/// # fn in_turn(writer: &mut symmetra_ring::Writer) {
/// std::thread::scope(|scope| {
///     scope.spawn(|| writer.send(b"one")).join()
/// });
/// std::thread::scope(|scope| {
///     scope.spawn(|| writer.send(b"two")).join()
/// });
/// # }
/// ```
///
/// Dropping it ends the ring: readers take what was sent, then get
/// [`Error::PeerLost`] ("it left the ring"). That error names the reader that the last send failed for, if one did, or
/// a reader that died. The drop waits a second at most until readers have taken what was sent to
/// them by ZeroMQ, on other hosts and by [`Overflow::ZeroMq`], and one more until the rest is on its way. A reader
/// that is late by more may lose that. In a child of `fork()` every use fails with [`Error::Unsupported`], and dropping it
/// does nothing.
pub struct Writer {
    maker: Maker,
    // Dropped first: readers are notified by ZeroMQ that the ring ends before this party leaves.
    zmq_writer: Option<ZmqWriter>,
    member: RingMember,
    overflow: Overflow,
    cursor: WriteCursor,
    backoff: Backoff,
    steady: Duration,
    /// Messages so far.
    sent: u64,
    /// The error of every later send.
    failed: Option<Error>,
    /// The reader that the last send waited for in vain.
    given_up: Option<GivenUp>,
}

impl Writer {
    pub(super) fn new(member: RingMember, zmq_writer: Option<ZmqWriter>, config: &RingConfig) -> Self {
        let cursor = WriteCursor::new(member.party(), config.first_chunk);
        let RingConfig { overflow, steady, spin, .. } = *config;
        Self {
            maker: Maker::this(),
            zmq_writer,
            member,
            overflow,
            cursor,
            backoff: Backoff::new(spin),
            steady,
            sent: 0,
            failed: None,
            given_up: None,
        }
    }

    /// Sends `message` to every reader; returns when it is in the ring. A message may be empty and of any length.
    /// Blocks while all slots hold chunks that a reader has not read, for the `steady` of the ring's settings at most.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the slowest reader and its state: nothing was sent, and sending may
    /// be tried again. [`Error::PeerLost`] naming a reader that died or left: so does every later
    /// send. A message of several chunks that fails half way ends the ring with either. [`Error::Unsupported`] in a child
    /// of `fork()`.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.send_by(message, until(self.steady))
    }

    /// Sends `message` to every reader; returns when it is in the ring. Blocks until `deadline` at most.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn send_by(&mut self, message: &[u8], deadline: Instant) -> Result<()> {
        self.maker.check("the writer of a ring")?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = self.send_to_all(message, deadline);
        let outcome =
            outcome.map_err(|SendFailure { begun, error }| SendFailure { begun, error: self.first_cause(error) });
        self.note(outcome.as_ref().err().map(|failed| &failed.error));
        match outcome {
            Ok(()) => {
                self.sent += 1;
                Ok(())
            }
            Err(SendFailure { begun: false, error: error @ Error::Timeout { .. } }) => Err(error),
            Err(SendFailure { begun, error }) => {
                if begun {
                    self.member.leave(MemberLife::GaveUp);
                }
                Err(self.failed.insert(error).clone())
            }
        }
    }

    /// Sends `value`, which arrives bit for bit: as CBOR (RFC 8949), in the format of `docs/protocols.md`. Blocks for the
    /// `steady` of the ring's settings at most.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send); [`Error::InvalidArgument`] that names the place in the value for a value of
    /// more than 256 levels, or one that its own `Serialize` refuses. Nothing was sent then.
    pub fn send_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.send(&encode("the value", value)?)
    }

    /// How many messages were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn send_to_all(&mut self, message: &[u8], deadline: Instant) -> Result<(), SendFailure> {
        let long = message.len() > self.member.mapping().layout().chunk_bytes;
        let overflows = long && self.overflow == Overflow::ZeroMq;
        if let Some(zmq_writer) = &mut self.zmq_writer {
            zmq_writer.make_room(overflows, self.sent, deadline).map_err(SendFailure::before)?;
        }
        match overflows {
            true => self.send_marker(message.len(), deadline)?,
            false => self.send_pieces(message, deadline)?,
        }
        match &mut self.zmq_writer {
            Some(zmq_writer) => {
                zmq_writer.send(overflows, self.sent, message).map_err(|error| SendFailure { begun: true, error })
            }
            None => Ok(()),
        }
    }

    /// The error that names the cause: a reader that left because it had waited in vain left because of another rank.
    fn first_cause(&self, error: Error) -> Error {
        let Error::PeerLost { rank: left, detail } = &error else { return error };
        let Some(missed) = self.missed(*left) else { return error };
        match self.in_the_way(*left, missed) {
            Some(GivenUp { rank, state }) => {
                Error::PeerLost { rank, detail: format!(": {state}; rank {left} waited for it in vain, and left") }
            }
            None => Error::PeerLost { rank: *left, detail: format!("{detail}, after it waited for messages in vain") },
        }
    }

    /// The rank for which a reader waited in vain before it left.
    fn missed(&self, left: usize) -> Option<usize> {
        let near = self.member.party_of(left).and_then(|party| self.member.board().missed(party));
        let far = || self.zmq_writer.as_ref().is_some_and(|zmq_writer| zmq_writer.waited_in_vain(left));
        near.or_else(|| far().then(|| self.member.rank_of(self.member.party())))
    }

    /// The reader that kept this writer from sending when reader `left` missed the rank `missed`.
    fn in_the_way(&self, left: usize, missed: usize) -> Option<GivenUp> {
        let (member, board) = (&self.member, self.member.board());
        let near = |party: usize| {
            let doing = format!("with {} unread chunks", board.behind(party, self.cursor.next()));
            GivenUp { rank: member.rank_of(party), state: member.state(party, &doing) }
        };
        let named = member.party_of(missed).filter(|party| *party != member.party());
        let behind = || self.cursor.in_the_way(&board, member.party_of(left).unwrap_or(member.party()));
        let far = || self.zmq_writer.as_ref().and_then(|zmq_writer| zmq_writer.in_the_way(left));
        let earlier = || self.given_up.clone().filter(|given_up| given_up.rank != left);
        named.or_else(|| behind().map(|(party, _)| party)).map(near).or_else(far).or_else(earlier)
    }

    /// Notes which reader a send waited for in vain, for the other readers.
    fn note(&mut self, error: Option<&Error>) {
        let given_up = match error {
            Some(Error::PeerLost { rank, detail } | Error::Timeout { rank: Some(rank), detail, .. }) => {
                Some(GivenUp { rank: *rank, state: detail.trim_start_matches(": ").to_owned() })
            }
            _ => None,
        };
        if given_up != self.given_up {
            self.member.board().give_up(given_up.as_ref().map(|given_up| given_up.rank));
            self.given_up = given_up;
        }
    }

    /// Sends the message through the ring, chunk by chunk.
    fn send_pieces(&mut self, message: &[u8], deadline: Instant) -> Result<(), SendFailure> {
        let chunk_bytes = self.member.mapping().layout().chunk_bytes;
        let pieces = message.len().div_ceil(chunk_bytes).max(1); // an empty message takes a slot as well
        for piece in 0..pieces {
            let rest = &message[piece * chunk_bytes..];
            let (bytes, kind) = match rest.split_at_checked(chunk_bytes) {
                Some((bytes, [_, ..])) => (bytes, ChunkKind::Part),
                _ => (rest, ChunkKind::Last),
            };
            let slot = self.claim(deadline).map_err(|error| SendFailure { begun: piece > 0, error })?;
            // SAFETY: this writer, the only one, has just claimed the slot.
            let filled = unsafe { self.member.mapping().fill(slot, bytes) };
            filled.map_err(|error| SendFailure { begun: piece > 0, error })?;
            let head = ChunkHead { kind, chunk_bytes: bytes.len() as u64, message_bytes: message.len() as u64 };
            self.cursor.publish(&self.member.board(), head);
        }
        Ok(())
    }

    /// Sends a chunk that states that the next message comes by ZeroMQ.
    fn send_marker(&mut self, message_bytes: usize, deadline: Instant) -> Result<(), SendFailure> {
        self.claim(deadline).map_err(SendFailure::before)?;
        let head = ChunkHead { kind: ChunkKind::Elsewhere, chunk_bytes: 0, message_bytes: message_bytes as u64 };
        self.cursor.publish(&self.member.board(), head);
        Ok(())
    }

    /// Waits for a free slot.
    fn claim(&mut self, deadline: Instant) -> Result<usize> {
        let (member, cursor) = (&self.member, &mut self.cursor);
        let board = member.board();
        let start = Instant::now();
        let mut behind = None;
        let claimed = board.room.wait(&mut self.backoff, deadline, || match cursor.claim(&board) {
            Ok(slot) => Some(Ok(slot)),
            Err(Blocked::Lost(party)) => Some(Err(party)),
            Err(Blocked::Behind(party)) => {
                behind = Some(party);
                None
            }
        });
        match (claimed, behind) {
            (Some(Ok(slot)), _) => Ok(slot),
            (Some(Err(party)), _) => Err(member.gone(party)),
            (None, behind) => {
                let party = behind.unwrap_or(member.party());
                let chunks = board.behind(party, self.cursor.next());
                let doing = format!("with {chunks} unread chunks");
                Err(member.late(party, self.sent, start.elapsed(), &doing))
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        // A writer whose program learnt of a death in another way ends because of that death, too.
        let dead = self.member.board().dead(self.member.party());
        if let (None, Some(party)) = (&self.given_up, dead) {
            let error = self.member.gone(party);
            self.note(Some(&error));
        }
        if let Some(zmq_writer) = &mut self.zmq_writer {
            zmq_writer.leave(self.sent, self.given_up.as_ref());
        }
    }
}

/// Why a message was not sent, and whether a part of it was.
struct SendFailure {
    begun: bool,
    error: Error,
}

impl SendFailure {
    fn before(error: Error) -> Self {
        Self { begun: false, error }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Writer({} messages sent)", self.sent)
    }
}
