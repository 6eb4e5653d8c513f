//! Broadcast of an object from one rank, and gather of objects at one rank.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::coordinator::Coordinator;
use crate::bootstrap::hello::at_odds;
use crate::cbor::{decode, encode};
use crate::error::{Error, Result};

/// The largest number of bytes of an object. With its header it has the largest size that a rank may pass to an
/// all-gather.
const MAX_OBJECT_BYTES: usize = (64 << 20) - 256;

/// The largest number of characters of an error that is sent to the other ranks.
const MAX_REFUSAL_CHARS: usize = 2048;

/// Marks, after the purpose of a rank's message, that an object follows. Otherwise an error follows.
const GIVEN: u8 = b'=';
const REFUSED: u8 = b'!';

impl Coordinator {
    /// Sends the object of rank `root` to every rank of the group. The other ranks pass `None`. Any value of serde is
    /// preserved bit for bit, including NaNs and infinities. The object is encoded as CBOR (RFC 8949) of at most 64 MiB
    /// less 256 bytes, with at most 256 levels; `docs/protocols.md` has the format. Blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown root, a root without an object, another rank with an object, or an
    /// object that is too large, too deep or refused by its own `Serialize`, with [`Error::Peer`] on the other ranks at
    /// once; the error names the place in the object. [`Error::Mismatch`] if ranks name different roots, or if a rank
    /// makes another collective call; [`Error::Bootstrap`] if the bytes are not a `T`. The group's error if the group
    /// has failed.
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(&self, object: Option<&T>, root: usize) -> Result<T> {
        self.broadcast_made(Ok(object), root)
    }

    /// Sends an object. A rank with an error takes part in the call, so that no rank waits for it.
    pub(super) fn broadcast_made<T: DeserializeOwned>(
        &self,
        object: Result<Option<impl Serialize>>,
        root: usize,
    ) -> Result<T> {
        let bytes = object.and_then(|object| object.map(|object| encode("the object", &object)).transpose());
        let bytes = bytes.as_ref().map(Option::as_deref).map_err(Error::clone);
        read(root, &self.broadcast_bytes(bytes, root)?)
    }

    /// Sends the bytes of rank `root` to every rank, unchanged. Blocks.
    pub(crate) fn broadcast_bytes(&self, bytes: Result<Option<&[u8]>>, root: usize) -> Result<Vec<u8>> {
        let refused =
            |given| Err(Error::invalid("the object", given, format!("rank {root} passes an object and no other rank")));
        let own = bytes.and_then(|bytes| {
            self.check_root(root)?;
            match (bytes, self.rank() == root) {
                (Some(bytes), true) => Ok(bytes),
                (None, false) => Ok(Default::default()),
                (None, true) => refused("none"),
                (Some(_), false) => refused("given"),
            }
        });
        Ok(self.meet("broadcast an object", &format!("of rank {root}"), own)?.swap_remove(root))
    }

    /// Collects an object of every rank, in rank order, at rank `root`. The other ranks get `None`. Each object is
    /// encoded as for [`broadcast_object`](Self::broadcast_object). Blocks.
    ///
    /// # Errors
    /// The errors of [`broadcast_object`](Self::broadcast_object).
    pub fn gather_object<T: Serialize + DeserializeOwned>(&self, object: &T, root: usize) -> Result<Option<Vec<T>>> {
        let bytes = encode("the object", object);
        let Some(all) = self.gather_bytes(bytes.as_deref().map_err(Error::clone), root)? else { return Ok(None) };
        all.iter().enumerate().map(|(rank, bytes)| read(rank, bytes)).collect::<Result<_>>().map(Some)
    }

    /// Collects bytes of every rank, unchanged, at rank `root`. Blocks.
    pub(crate) fn gather_bytes(&self, bytes: Result<&[u8]>, root: usize) -> Result<Option<Vec<Vec<u8>>>> {
        let own = bytes.and_then(|bytes| self.check_root(root).map(|()| bytes));
        let all = self.meet("gather objects", &format!("at rank {root}"), own)?;
        Ok((self.rank() == root).then_some(all))
    }

    /// Gathers the bytes of every rank. A rank with an error takes part, so that no rank waits for it: it returns its
    /// error, and the others [`Error::Peer`].
    fn meet(&self, call: &str, root: &str, own: Result<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let what = format!("{call} {root}");
        let own = own.and_then(|bytes| match bytes.len() {
            0..=MAX_OBJECT_BYTES => Ok(bytes),
            large => Err(Error::invalid("the object's bytes", large, format!("at most {MAX_OBJECT_BYTES} fit"))),
        });
        let header = format!("{what}\n");
        let mut words = header.clone().into_bytes();
        match &own {
            Ok(bytes) => {
                words.push(GIVEN);
                words.extend_from_slice(bytes);
            }
            Err(error) => {
                words.push(REFUSED);
                // Truncated, so that it fits into a message in any case.
                let error: String = error.to_string().chars().take(MAX_REFUSAL_CHARS).collect();
                words.extend_from_slice(error.as_bytes());
            }
        }
        let all = self.all_gather_for(call, &words);
        own?;
        let read = |(rank, bytes): (usize, Vec<u8>)| match bytes.strip_prefix(header.as_bytes()) {
            Some([GIVEN, object @ ..]) => Ok(object.to_vec()),
            Some([REFUSED, error @ ..]) => {
                Err(Error::Peer { rank, message: String::from_utf8_lossy(error).into_owned() })
            }
            _ => Err(at_odds(&what, self.rank(), rank, purpose(&bytes))),
        };
        all?.into_iter().enumerate().map(read).collect()
    }
}

/// The purpose at the start of a rank's message.
fn purpose(words: &[u8]) -> Option<&str> {
    let line = words.iter().position(|byte| *byte == b'\n')?;
    let answers = matches!(words.get(line + 1), Some(&(GIVEN | REFUSED)));
    str::from_utf8(&words[..line]).ok().filter(|_| answers)
}

fn read<T: DeserializeOwned>(rank: usize, bytes: &[u8]) -> Result<T> {
    decode(bytes).map_err(|error| Error::bootstrap(format!("rank {rank} sent an object of another type: {error}")))
}
