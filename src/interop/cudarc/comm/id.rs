//! The id of a group, as bytes that an engine passes from rank to rank.

use std::collections::HashMap;
use std::ffi::c_char;
use std::fmt;

use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::Result;
use crate::bootstrap::UniqueId;
use crate::error::Error;

/// Bytes of an id, as many as NCCL's.
const BYTES: usize = 128;
/// The longest text of an id that listens at the loopback interface leaves room for a zero.
const _: () = assert!("127.0.0.1:65535/".len() + 32 < BYTES);

/// The ids that this process made and no rank 0 has taken, by their text.
static LISTENING: Lazy<Mutex<HashMap<String, UniqueId>>> = Lazy::new(Mutex::default);

/// The address at which the ranks of a group meet, and their secret: 128 bytes, the text of a [`UniqueId`] with zeros
/// after it.
///
/// Every process that knows the bytes can join the group: treat them as a password. An engine that writes them into a file
/// or a variable keeps other users from reading it. `Debug` hides the secret.
#[derive(Clone, Copy)]
pub struct Id([c_char; BYTES]);

impl Id {
    /// Makes an id, for one group. This process listens at a port of the loopback interface until its rank 0 opens the
    /// group ([`Comm::from_rank`](super::Comm::from_rank)). Does not block.
    ///
    /// # Errors
    /// The errors of [`UniqueId::listen`].
    pub fn new() -> Result<Self> {
        let id = UniqueId::listen()?;
        let text = id.to_string();
        let mut bytes = [0; BYTES];
        bytes.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte as c_char);
        LISTENING.lock().insert(text, id);
        Ok(Self(bytes))
    }

    /// The id with the bytes that another rank received from [`internal`](Self::internal).
    pub fn uninit(internal: [c_char; BYTES]) -> Self {
        Self(internal)
    }

    /// The bytes, for the other ranks.
    pub fn internal(&self) -> &[c_char; BYTES] {
        &self.0
    }

    /// The id with which a rank meets the others. Rank 0 takes the id that this process listens with.
    pub(super) fn take(&self, rank: usize) -> Result<UniqueId> {
        let text = self.text();
        if rank > 0 {
            return Ok(text.parse()?);
        }
        let listening = LISTENING.lock().remove(&text);
        Ok(listening.ok_or_else(|| {
            let limit = "rank 0 runs in the process that made the id, and uses the id once";
            Error::invalid("the id of rank 0", "one that this process does not listen with", limit)
        })?)
    }

    fn text(&self) -> String {
        self.0.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).map(char::from).collect()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text().parse::<UniqueId>() {
            Ok(id) => write!(out, "Id({id:?})"),
            Err(_) => write!(out, "Id(malformed)"),
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/unit/interop/id.rs"]
mod tests;
