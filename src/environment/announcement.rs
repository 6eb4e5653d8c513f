//! What a rank is about to do by an engine, told before: engines trust sizes, and one ends the process
//! where they differ.

use std::fmt;

use super::call::Call;
use super::dispatch::OPERATIONS;
use crate::error::{Error, Operation};
use crate::types::{Dtype, Reduction};

/// A call of an operation, or an exchange of objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    /// 0 for objects, of which each rank has its own number of bytes; else one more than the operation's place.
    kind: u64,
    /// One more than the reduction's number; 0 for none.
    reduction: u64,
    /// One more than the root; 0 for none.
    root: u64,
    /// 0 where there are no bytes: ranks with none need not have equal types.
    dtype: u64,
    /// Of every rank alike; 0 where each has its own counts.
    pub(super) bytes: u64,
    /// Whether it has counts.
    counts: u64,
    /// Of a tensor that is cut along a dimension; else 1.
    rows: u64,
}

impl Announcement {
    /// How many words it travels as.
    pub(super) const WORDS: usize = 7;

    pub(super) fn objects(bytes: usize) -> Self {
        Self { kind: 0, reduction: 0, root: 0, dtype: 0, bytes: bytes as u64, counts: 0, rows: 1 }
    }

    pub(super) fn call(dtype: Dtype, call: &Call<'_>) -> Self {
        let place = OPERATIONS.iter().position(|operation| *operation == call.operation()).unwrap_or(0);
        Self {
            kind: 1 + place as u64,
            reduction: call.reduction().map_or(0, |reduction| 1 + reduction as u64),
            root: call.root().map_or(0, |root| 1 + root as u64),
            dtype: if call.elems() == 0 { 0 } else { dtype as u64 },
            bytes: (call.elems() * dtype.bytes()) as u64,
            counts: u64::from(matches!(call, Call::AllToAllV { .. })),
            rows: call.rows(),
        }
    }

    /// As it travels.
    pub(super) fn to_words(self) -> [u64; Self::WORDS] {
        [self.kind, self.reduction, self.root, self.dtype, self.bytes, self.counts, self.rows]
    }

    pub(super) fn from_words([kind, reduction, root, dtype, bytes, counts, rows]: [u64; Self::WORDS]) -> Self {
        Self { kind, reduction, root, dtype, bytes, counts, rows }
    }

    /// Whether both are calls, or both objects.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.kind == 0) == (other.kind == 0)
    }

    /// That `rank` is about to do something else than this rank, which is `against`.
    pub(super) fn mismatch(&self, against: usize, rank: usize, theirs: &Self) -> Error {
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
        let operation = before(self.kind).and_then(|place| OPERATIONS.get(place as usize));
        let Some(operation) = operation else { return out.write_str("exchange of objects") };
        write!(out, "{operation}")?;
        if let Some(reduction) = before(self.reduction).and_then(Reduction::from_number) {
            write!(out, " ({reduction})")?;
        }
        if let Some(root) = before(self.root) {
            write!(out, " of root {root}")?;
        }
        if self.counts != 0 {
            out.write_str(" of counts")?;
        }
        let dtype = u32::try_from(self.dtype).ok().and_then(Dtype::from_number).map_or("?", Dtype::name);
        match (self.bytes, operation) {
            (0, Operation::SendReceive) => Ok(()),
            (0, _) if self.counts != 0 => Ok(()),
            (0, _) => out.write_str(", no bytes"),
            (bytes, _) => write!(out, ", {bytes} bytes of {dtype}"),
        }?;
        if self.rows > 1 { write!(out, ", in {} rows", self.rows) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::memory::{Place, View};

    #[test]
    fn calls_differ_in_all_that_they_are() {
        let device = Device::host().unwrap();
        let (address, place, device) = (std::ptr::null_mut(), Place::Plain, &device);
        let view = |elems| View { address, elems, place, device, owner: None };
        let reduce = |reduction: Reduction, dtype, elems| {
            Announcement::call(
                dtype,
                &Call::AllReduce { options: reduction.into(), input: view(elems), output: view(elems) },
            )
        };
        let gather = |shape: [usize; 2]| {
            let call = Call::AllGather { along: Some((1, &shape)), input: view(6), output: view(12) };
            Announcement::call(Dtype::F32, &call)
        };
        assert!(gather([2, 3]) != gather([3, 2]) && gather([1, 6]) != gather([6, 1]));
        assert_eq!(gather([2, 3]).to_string(), "all-gather, 24 bytes of f32, in 2 rows");
        let broadcast = |root| Announcement::call(Dtype::F32, &Call::Broadcast { root, buffer: view(6) });
        let sum = reduce(Reduction::Sum, Dtype::F16, 3);
        assert!(sum == reduce(Reduction::Sum, Dtype::F16, 3) && Announcement::from_words(sum.to_words()) == sum);
        for other in [
            reduce(Reduction::Average, Dtype::F16, 3),
            reduce(Reduction::Sum, Dtype::BF16, 3),
            reduce(Reduction::Sum, Dtype::F16, 4),
            broadcast(0),
            Announcement::objects(6),
        ] {
            assert!(sum != other);
        }
        assert!(reduce(Reduction::Sum, Dtype::F16, 0) == reduce(Reduction::Sum, Dtype::I8, 0));
        assert!(sum.is_like(&broadcast(0)) && Announcement::objects(1).is_like(&Announcement::objects(9)));
        assert!(!sum.is_like(&Announcement::objects(6)) && !Announcement::objects(6).is_like(&sum));
        assert_eq!(sum.to_string(), "all-reduce (sum), 6 bytes of f16");
        assert_eq!(broadcast(2).to_string(), "broadcast of root 2, 24 bytes of f32");
        assert_eq!(Announcement::objects(6).to_string(), "exchange of objects");
        assert_eq!(Announcement::call(Dtype::U8, &Call::SendReceive { messages: &[] }).to_string(), "send and receive");
    }
}
