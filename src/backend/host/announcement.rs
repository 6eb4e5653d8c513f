//! An announcement of a rank's next call through an engine. Engines trust sizes, and some end the process if sizes
//! differ, so ranks compare announcements first.

use std::fmt;

use crate::bootstrap::notice::clipped;
use crate::bootstrap::shown;
use crate::error::{Error, Operation, Parameter};
use crate::op::{Call, Op, Size};
use crate::types::{Dtype, Reduction};

/// A call of an operation, or an exchange of objects for a host-side collective call. In the latter case the name of
/// the call, cut to 32 bytes, takes the place of `reduction`, `root`, `dtype` and `form`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// 0 for objects, whose number of bytes differs by rank; else one more than the operation's number.
    kind: u64,
    /// One more than the reduction's number; 0 for none.
    reduction: u64,
    /// One more than the root or the distance between ranks; 0 for none.
    root: u64,
    /// 0 without bytes: ranks without bytes may have unequal types.
    dtype: u64,
    /// Equal on every rank; 0 if each rank has its own counts.
    pub(crate) bytes: u64,
    /// Rows of a tensor that is cut along a dimension, or a number for the settings of a norm or the counts of parts; 1 for
    /// other calls.
    form: u64,
    /// The caller's tag of the call; 0 for none.
    tag: u64,
}

impl Announcement {
    /// Length in words.
    pub(crate) const WORDS: usize = 7;

    pub(crate) fn objects(call: &str, bytes: usize) -> Self {
        let mut name = [0; 32];
        let call = clipped(call, name.len()).as_bytes();
        name[..call.len()].copy_from_slice(call);
        let [reduction, root, dtype, form] = bytemuck::pod_read_unaligned(&name);
        Self { kind: 0, reduction, root, dtype, bytes: bytes as u64, form, tag: 0 }
    }

    /// The words that contain the name of a host-side call.
    fn name(&self) -> [u64; 4] {
        [self.reduction, self.root, self.dtype, self.form]
    }

    pub(crate) fn call(call: &Call<'_>) -> Self {
        let (dtype, has_parameter) = (call.common_dtype(), call.op.operation.parameter() != Parameter::None);
        Self {
            kind: 1 + u64::from(call.op.operation.number()),
            reduction: call.reduction().map_or(0, |reduction| 1 + reduction as u64),
            root: if has_parameter { 1 + call.parameter as u64 } else { 0 },
            dtype: if call.elems() == 0 { 0 } else { dtype as u64 },
            bytes: (call.elems() * dtype.bytes()) as u64,
            form: call.form(),
            tag: call.tag,
        }
    }

    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        [self.kind, self.reduction, self.root, self.dtype, self.bytes, self.form, self.tag]
    }

    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [kind, reduction, root, dtype, bytes, form, tag] = words;
        Self { kind, reduction, root, dtype, bytes, form, tag }
    }

    /// Whether both are calls of operations, or objects of the same host-side call.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self.kind, other.kind) {
            (0, 0) => self.name() == other.name(),
            (ours, theirs) => ours != 0 && theirs != 0,
        }
    }

    /// The error for `rank`, whose announcement differs from that of rank `against`.
    pub(crate) fn mismatch(&self, against: usize, rank: usize, theirs: &Self) -> Error {
        if !self.is_like(theirs) {
            return Error::unlike_calls(against, &self.to_string(), rank, &theirs.to_string());
        }
        Error::Mismatch {
            what: "the call".to_owned(),
            against,
            ours: self.to_string(),
            rank,
            theirs: theirs.to_string(),
        }
    }
}

impl fmt::Display for Announcement {
    /// `broadcast of root 0, 24 bytes of f32`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = |number: u64| number.checked_sub(1).and_then(|number| u32::try_from(number).ok());
        let Some(operation) = before(self.kind).and_then(Operation::from_number) else {
            let name = self.name();
            return out.write_str(&shown(bytemuck::cast_slice::<_, u8>(&name)).replace("\\u{0}", ""));
        };
        write!(out, "{operation}")?;
        if let Some(reduction) = before(self.reduction).and_then(Reduction::from_number) {
            write!(out, " ({reduction})")?;
        }
        if let Some(number) = before(self.root) {
            let what = if operation.parameter() == Parameter::Root { "of root" } else { "by" };
            write!(out, " {what} {number}")?;
        }
        let dtype = u32::try_from(self.dtype).ok().and_then(Dtype::from_number).map_or("?", Dtype::name);
        let op = Op::of(operation);
        let sized = op.is_some_and(|op| !matches!(op.input.size, Size::Counts | Size::Messages));
        match self.bytes {
            0 if sized => out.write_str(", no bytes"),
            0 => Ok(()),
            bytes => write!(out, ", {bytes} bytes of {dtype}"),
        }?;
        match self.form {
            0 | 1 => {}
            rows if op.is_some_and(|op| op.along) => write!(out, ", in {rows} rows")?,
            form => write!(out, ", settings {form:x}")?,
        }
        if self.tag == 0 { Ok(()) } else { write!(out, ", tag {}", self.tag) }
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/announcement.rs"]
mod tests;
