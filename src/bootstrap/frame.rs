//! Frames, the messages between two ranks: a header of 24 bytes, then a payload.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..4 | magic | other bytes are no frame |
//! | 4..6 | [`FrameKind`] | |
//! | 6..8 | rank | the rank whose payload it is |
//! | 8..16 | sequence | the number of the exchange, from 0 |
//! | 16..24 | length | bytes of payload |
//!
//! All numbers are little-endian.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The most bytes that one rank may contribute to one all-gather.
pub(super) const MAX_FRAME_BYTES: usize = 64 << 20;
/// The most bytes of a payload that are sent at once; Noise limits the size of a sealed message.
pub(super) const MAX_PART_BYTES: usize = 65_519;
/// The most bytes of an unknown peer that a message shows.
const MAX_SHOWN_BYTES: usize = 200;
/// Size of a header in bytes.
pub(super) const HEADER_BYTES: usize = 24;
/// Most ranks a bootstrap connects.
pub(crate) const MAX_WORLD_SIZE: usize = 256;

const MAGIC: [u8; 4] = *b"SYMF";

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum FrameKind {
    /// The first message of a newcomer, with the first half of a handshake.
    Hello = 1,
    /// The answer to a hello, with the second half of the handshake.
    Challenge = 2,
    /// The rank that the newcomer claims.
    Claim = 3,
    /// Whether the newcomer is accepted as this rank.
    Verdict = 4,
    /// All ranks are connected.
    Start = 5,
    /// A rank's bytes in an all-gather.
    Data = 6,
    /// A file descriptor, or a payload that states that the sender has none.
    Descriptor = 7,
    /// The sender gave up; carries the cause.
    Notice = 8,
    /// The sender leaves after finishing its exchanges.
    Goodbye = 9,
}

impl FrameKind {
    /// Every kind, with its name in messages.
    const NAMES: [(Self, &str); 9] = [
        (Self::Hello, "hello"),
        (Self::Challenge, "challenge"),
        (Self::Claim, "claim"),
        (Self::Verdict, "verdict"),
        (Self::Start, "start"),
        (Self::Data, "data"),
        (Self::Descriptor, "descriptor"),
        (Self::Notice, "notice"),
        (Self::Goodbye, "goodbye"),
    ];

    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1].1
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    pub(super) rank: u16,
    pub(super) sequence: u64,
    pub(super) length_bytes: usize,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.length_bytes as u64).to_le_bytes());
        bytes
    }

    /// Reads a header, or returns a description of the error. The length is checked before a payload is allocated.
    pub(super) fn decode(bytes: &[u8], limit_bytes: usize) -> Result<Self, String> {
        let mut fields = Fields(bytes);
        let magic = fields.array::<4>().unwrap_or_default();
        if magic != MAGIC {
            return Err(format!("bytes {magic:02x?} instead of the magic {MAGIC:02x?}"));
        }
        let number = fields.u16().unwrap_or_default();
        let kind = FrameKind::NAMES.iter().find(|(kind, _)| *kind as u16 == number);
        let (kind, _) = *kind.ok_or_else(|| format!("a frame of unknown kind {number}"))?;
        let rank = fields.u16().unwrap_or_default();
        let sequence = fields.u64().unwrap_or_default();
        let length = fields.u64().unwrap_or_default();
        match usize::try_from(length) {
            Ok(length_bytes) if length_bytes <= limit_bytes => Ok(Self { kind, rank, sequence, length_bytes }),
            _ => Err(format!("a {} frame of {length} bytes, at most {limit_bytes} are allowed", kind.name())),
        }
    }
}

/// A frame that arrived.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// The descriptor that was received with the frame.
    pub(super) fd: Option<OwnedFd>,
}

/// A frame to send. The frames to all peers share their payload and their descriptor.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) kind: FrameKind,
    pub(super) rank: usize,
    pub(super) sequence: u64,
    pub(super) payload: Arc<[u8]>,
    pub(super) fd: Option<Arc<OwnedFd>>,
}

impl Outgoing {
    /// A frame that belongs to no exchange.
    pub(super) fn control(kind: FrameKind, rank: usize, payload: Vec<u8>) -> Self {
        Self { kind, rank, sequence: 0, payload: payload.into(), fd: None }
    }

    /// A rank's bytes in an all-gather.
    pub(super) fn data(rank: usize, sequence: u64, payload: Arc<[u8]>) -> Self {
        Self { kind: FrameKind::Data, rank, sequence, payload, fd: None }
    }

    pub(super) fn header(&self) -> Header {
        Header {
            kind: self.kind,
            rank: self.rank as u16, // below MAX_WORLD_SIZE
            sequence: self.sequence,
            length_bytes: self.payload.len(),
        }
    }
}

/// Bytes of an unknown peer, or of a file, as text for a message: at most [`MAX_SHOWN_BYTES`], control characters
/// escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let (head, rest) = bytes.split_at(bytes.len().min(MAX_SHOWN_BYTES));
    let mut text = String::new();
    for character in String::from_utf8_lossy(head).chars() {
        match character.is_control() {
            true => text.extend(character.escape_default()),
            false => text.push(character),
        }
    }
    if !rest.is_empty() {
        text.push_str("...");
    }
    text
}

/// Reads little-endian fields from the front of a payload.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The rest as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

/// Checks a rank and a world size from the program.
pub(super) fn check_rank(rank: usize, world_size: usize) -> Result<()> {
    check_world_size(world_size)?;
    if rank >= world_size {
        return Err(Error::invalid("rank", rank, format!("it must be in 0..{world_size}, the world size")));
    }
    Ok(())
}

/// Checks a world size from the program.
pub(crate) fn check_world_size(world_size: usize) -> Result<()> {
    if world_size == 0 || world_size > MAX_WORLD_SIZE {
        return Err(Error::invalid("world size", world_size, format!("it must be in 1..={MAX_WORLD_SIZE}")));
    }
    Ok(())
}

/// Checks the length of a contribution to an all-gather.
pub(super) fn check_length(length_bytes: usize) -> Result<()> {
    if length_bytes > MAX_FRAME_BYTES {
        return Err(Error::invalid(
            "an all-gather's contribution",
            format!("{length_bytes} bytes"),
            format!("it must be at most {MAX_FRAME_BYTES}"),
        ));
    }
    Ok(())
}
