//! Values of programs as CBOR (RFC 8949), which other languages can read too.
//!
//! Every value that serde describes is preserved bit for bit: floats keep their width and every bit of a NaN, integers
//! have up to 128 bits, and keys of maps are of any type. Structs are maps by the names of their fields. A variant is
//! its name, or a map of its name to its content. `None` and `()` are null, `Some` is its content. Null does not
//! distinguish `None` from `Some(None)`, so a `Some` whose content begins with null or with this tag has the tag
//! [`SOME`].
//!
//! Types that serde writes in two ways, such as addresses, are text. Binary formats lose such types where serde buffers
//! a value, as in a flattened struct.
//!
//! ciborium's own serializer writes `Some(None)` as null and narrows floats, which changes signalling NaNs. Therefore
//! only its headers are used here.

mod read;
mod unfit;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use read::CborReader;
use write::CborWriter;

/// The most levels of a value: sequences, maps, structs, variants with content, and `Some`. A receiver needs some
/// hundred bytes to some kilobytes of its stack for a level.
const MOST_LEVELS: usize = 256;

/// The tag of a `Some` whose content begins with null or with the tag: `SYMB`, in IANA's first-come range, not registered.
const SOME: u64 = 0x5359_4d42;
/// The bytes of the tag.
const SOME_BYTES: [u8; 5] = [0xda, 0x53, 0x59, 0x4d, 0x42];
const NULL: u8 = 0xf6;
const UNDEFINED: u8 = 0xf7;
const F32: u8 = 0xfa;
const BREAK: u8 = 0xff;
/// Tags of integers beyond 64 bits, as bytes: the value, or -1 minus the value.
const BIG_POSITIVE: u64 = 2;
const BIG_NEGATIVE: u64 = 3;

/// The bytes of a value.
///
/// # Errors
/// [`Error::InvalidArgument`] with `what` and the place in the value: too many levels, or an error of the value's own
/// `Serialize`.
pub fn encode<T: Serialize + ?Sized>(what: &str, value: &T) -> Result<Vec<u8>> {
    let mut writer = CborWriter::default();
    value.serialize(&mut writer).map_err(|unfit| Error::invalid(what, unfit.value(), unfit.limit()))?;
    Ok(writer.into_bytes())
}

/// The value of bytes; an error states why they are not of this type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, impl std::fmt::Display> {
    let mut reader = CborReader::new(bytes);
    T::deserialize(&mut reader).and_then(|value| reader.finish().map(|()| value))
}

#[cfg(test)]
#[path = "../../tests/unit/cbor.rs"]
mod tests;
