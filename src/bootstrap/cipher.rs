//! The encryption of one connection, after its handshake.

use snow::TransportState;

use super::frame::MAX_PART_BYTES;
use crate::error::{Error, Result};

/// How much longer sealed bytes are than plain bytes: the authentication tag.
pub(super) const TAG_BYTES: usize = 16;
/// Longest message of Noise, in bytes.
const MAX_SEALED_BYTES: usize = 65_535;
const _: () = assert!(MAX_PART_BYTES + TAG_BYTES <= MAX_SEALED_BYTES);

/// The keys of one connection, one for each direction. Seals and opens parts in the order in which they are sent: a
/// part that was changed, repeated, omitted or moved does not open.
pub(super) struct Cipher(pub(super) Box<TransportState>);

impl Cipher {
    /// Appends `plain`, at most [`MAX_PART_BYTES`], to `sealed`.
    pub(super) fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> Result<()> {
        let start = sealed.len();
        sealed.resize(start + plain.len() + TAG_BYTES, 0);
        let written = self.0.write_message(plain, &mut sealed[start..]);
        written.map(drop).map_err(|error| Error::bootstrap(format!("cannot seal a part of a frame: {error}")))
    }

    /// Appends the plain text of `sealed` to `plain`, or returns a description of the error.
    pub(super) fn open(&mut self, sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        let start = plain.len();
        plain.resize(start + sealed.len().saturating_sub(TAG_BYTES), 0);
        let read = self.0.read_message(sealed, &mut plain[start..]);
        read.map(drop).map_err(|_| "bytes that the connection's key does not open: they were changed on the way".into())
    }
}
