//! The contents of the frames between the ranks of a meeting and its service.

use std::sync::Arc;

use crate::bootstrap::frame::Fields;
use crate::bootstrap::notice;
use crate::error::Error;

/// The most bytes of one rank in one round, without its versions.
pub(super) const MOST_BYTES: usize = 1024;
/// The most bytes of a frame of a rank: the bytes of a round, or a notice.
pub(super) const MOST_FRAME_BYTES: usize = if CLAIM_BYTES > NOTICE_BYTES { CLAIM_BYTES } else { NOTICE_BYTES };
const CLAIM_BYTES: usize = MOST_BYTES + 4;
const NOTICE_BYTES: usize = notice::MAX_BYTES + 1;

/// The first byte of a notice of an invalid argument. Codes of other notices begin at 1.
const INVALID: u8 = 0;

/// The content of a rank's frame in round 0.
pub(super) struct FirstMessage<'a> {
    /// The version of the rank's library.
    pub(super) own: u16,
    /// The version in the id.
    pub(super) read: u16,
    pub(super) bytes: &'a [u8],
}

impl<'a> FirstMessage<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.own.to_le_bytes()[..], &self.read.to_le_bytes(), self.bytes].concat()
    }

    pub(super) fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let (own, read) = (fields.u16()?, fields.u16()?);
        Some(Self { own, read, bytes: fields.0 })
    }
}

/// The bytes of all ranks as one payload.
pub(super) fn encode_list(all: impl Iterator<Item = Vec<u8>>) -> Arc<[u8]> {
    let mut payload = Vec::new();
    for bytes in all {
        payload.extend((bytes.len() as u32).to_le_bytes()); // at most MOST_FRAME_BYTES
        payload.extend(bytes);
    }
    payload.into()
}

/// The bytes of each rank; `None` for a payload with another number of ranks.
pub(super) fn decode_list(payload: &[u8], world_size: usize) -> Option<Vec<Vec<u8>>> {
    let mut fields = Fields(payload);
    let mut next = || {
        let length = fields.u32()? as usize;
        let (bytes, rest) = fields.0.split_at_checked(length)?;
        fields.0 = rest;
        Some(bytes.to_vec())
    };
    let all = (0..world_size).map(|_| next()).collect::<Option<Vec<_>>>()?;
    fields.0.is_empty().then_some(all)
}

/// An error as bytes, which keeps an invalid argument as such.
pub(super) fn encode_error(error: &Error) -> Vec<u8> {
    match error {
        Error::InvalidArgument { message } => {
            [&[INVALID], notice::clipped(message, NOTICE_BYTES - 1).as_bytes()].concat()
        }
        error => notice::encode(error),
    }
}

/// The error of bytes from [`encode_error`]. `sender`: the rank that failed, if the error does not contain a rank.
pub(super) fn decode_error(sender: usize, payload: &[u8]) -> Error {
    match payload.split_first() {
        Some((&INVALID, message)) => Error::InvalidArgument { message: String::from_utf8_lossy(message).into_owned() },
        _ => notice::decode(sender, payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_claims_travel() {
        let all = vec![vec![1, 2, 3], Vec::new(), vec![9; 1024]];
        let payload = encode_list(all.clone().into_iter());
        assert_eq!(decode_list(&payload, 3), Some(all));
        assert_eq!(decode_list(&payload, 2), None);
        assert_eq!(decode_list(&payload, 4), None);
        assert_eq!(decode_list(&[9, 0, 0, 0, 1], 1), None);
        let payload = FirstMessage { own: 1, read: 513, bytes: b"claim" }.encode();
        assert_eq!(payload, *b"\x01\x00\x01\x02claim");
        let claim = FirstMessage::decode(&payload).unwrap();
        assert_eq!((claim.own, claim.read, claim.bytes), (1, 513, &b"claim"[..]));
        assert!(FirstMessage::decode(&payload[..3]).is_none());
    }

    #[test]
    fn an_invalid_argument_stays_one() {
        let invalid = Error::invalid("the world size", 3, "it must be 4");
        assert_eq!(decode_error(7, &encode_error(&invalid)), invalid);
        let lost = Error::PeerLost { rank: 3, detail: ": gone".to_owned() };
        assert_eq!(decode_error(7, &encode_error(&lost)), lost);
    }
}
