//! The wire format over ZeroMQ, for programs in other languages too.
//!
//! The writer is a ROUTER with CURVE, each reader a DEALER with a key pair of its own. The writer knows the public key
//! of every reader and identifies the rank by it. A message of ZeroMQ is a head, and for
//! [`NoteKind::Message`] a second frame, the payload. A writer's [`NoteKind::Leave`] has a second frame if the writer ends
//! because it gave up a reader: the reader's rank in 8 bytes, then the reader's state in UTF-8. A reader's
//! [`NoteKind::Leave`] has a second frame if its last wait was in vain: the writer's rank, then the writer's state. A head
//! has 16 bytes, numbers little-endian:
//!
//! | bytes | holds |
//! |---|---|
//! | 0..4 | `SYMB` |
//! | 4..6 | version, 1 |
//! | 6..8 | kind |
//! | 8..16 | number |
//!
//! | kind | from | number |
//! |---|---|---|
//! | 1 join | reader, once connected | its rank |
//! | 2 ready | writer, once every reader joined | readers that joined |
//! | 3 message | writer | which message of the ring, from 0 |
//! | 4 taken | reader, after each message | how many it took |
//! | 5 here | writer, now and then while it waits | messages sent; readers ignore it |
//! | 6 leave | either, at its orderly end; a reader answers the writer's | messages sent or taken |
//!
//! The ring has at most as many messages in flight to a reader as it has slots. Messages
//! arrive in order; a reader on the writer's host gets only messages that overflow.

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum NoteKind {
    Join = 1,
    Ready = 2,
    Message = 3,
    Taken = 4,
    Here = 5,
    Leave = 6,
}

const KINDS: [NoteKind; 6] =
    [NoteKind::Join, NoteKind::Ready, NoteKind::Message, NoteKind::Taken, NoteKind::Here, NoteKind::Leave];
const MAGIC: [u8; 4] = *b"SYMB";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 16;

/// The first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoteHead {
    pub(super) kind: NoteKind,
    pub(super) number: u64,
}

impl NoteHead {
    pub(super) fn encode(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// `None` for bytes that are not a head of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD_BYTES] = bytes.try_into().ok()?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let number = u64::from_le_bytes(*bytes.last_chunk()?);
        let kind = KINDS.into_iter().find(|kind| *kind as u16 == short(6))?;
        (bytes[0..4] == MAGIC && short(4) == VERSION).then_some(Self { kind, number })
    }
}

/// The second frame of a leave: the rank that was given up, and the state of that rank in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenUp {
    pub(super) rank: usize,
    pub(super) state: String,
}

impl GivenUp {
    pub(super) fn encode(&self) -> Vec<u8> {
        [&(self.rank as u64).to_le_bytes(), self.state.as_bytes()].concat()
    }

    /// `None` for bytes that are not such a frame.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (rank, state) = bytes.split_first_chunk()?;
        let state = std::str::from_utf8(state).ok()?.to_owned();
        Some(Self { rank: usize::try_from(u64::from_le_bytes(*rank)).ok()?, state })
    }
}

#[cfg(test)]
#[path = "../../../tests/metadata/unit/wire.rs"]
mod tests;
