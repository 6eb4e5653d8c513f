//! The calls that a rank enqueued last: a ring with one writer. Peers read it, also after the writer's death.
//!
//! Each entry is a seqlock. The writer clears the stamp, writes the fields, then sets the new stamp. A reader accepts
//! an entry only when the stamp was equal before and after. The two fences make a reader that saw a new field also see
//! that the old stamp is gone.

use std::fmt;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use crate::error::Operation;
use crate::types::{Dtype, Reduction, WAY_NOTHING, algorithm_name, exchange_name};

#[cfg(loom)]
const ENTRIES: usize = 1;
#[cfg(not(loom))]
const ENTRIES: usize = 256;

/// One call, as its rank enqueued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) bytes: u64,
    /// Operation, element type and algorithm, packed as `AgreeArgs` packs them.
    pub(crate) descriptor: u64,
}

/// The algorithm field of a descriptor for a call that NCCL runs.
pub(crate) const BY_NCCL: u32 = 0xff;

/// Bit position in a descriptor of the hash of the operands' offsets.
const PLACE_SHIFT: u32 = 40;

impl Call {
    /// Adds the operands' offsets in the arenas, because peers access their own arenas at equal offsets. The descriptor
    /// holds a hash; different offsets share one with a chance of one in 16 million.
    pub(crate) fn at(self, offsets_bytes: [u64; 2]) -> Self {
        let mixed = offsets_bytes
            .iter()
            .fold(0, |sum: u64, offset| (sum.rotate_left(29) ^ (offset + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { descriptor: self.descriptor | mixed >> PLACE_SHIFT << PLACE_SHIFT, ..self }
    }

    /// A call of operation `op` (`args::kOp*`). `way` and `rest` are defined by the operation: what else ranks must do
    /// alike, 8 bits each.
    pub(crate) fn new(bytes: u64, op: u32, dtype: Dtype, reduction: Reduction, way: u32, rest: u32) -> Self {
        let kinds = op | (dtype as u32) << 8 | way << 16 | (reduction as u32) << 24;
        Self { bytes, descriptor: u64::from(kinds) | u64::from(rest & 0xff) << 32 }
    }

    /// A call without elements. Its operands and transport may differ between ranks.
    pub(crate) fn empty(op: u32, dtype: Dtype, reduction: Reduction, root: usize) -> Self {
        Self::new(0, op, dtype, reduction, WAY_NOTHING, root as u32)
    }

    /// The operation, `args::kOp*`.
    pub(crate) fn op(self) -> u32 {
        (self.descriptor & 0xff) as u32
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = |shift: u32| (self.descriptor >> shift & 0xff) as u32;
        let operation = Operation::from_number(self.op());
        let dtype = Dtype::from_number(field(8)).map_or("?", Dtype::name);
        match operation {
            Some(operation) => write!(out, "{operation}")?,
            None => write!(out, "operation {}", self.op())?,
        }
        if let Some(Operation::AllReduce | Operation::ReduceScatter | Operation::Reduce) = operation {
            write!(out, " ({})", Reduction::from_number(field(24)).map_or("?", Reduction::name))?;
        }
        if let Some(Operation::Broadcast | Operation::Reduce | Operation::Gather | Operation::Scatter) = operation {
            write!(out, " of root {}", self.descriptor >> 32 & 0xff)?;
        }
        write!(out, " of {} bytes of {dtype}", self.bytes)?;
        let name = match field(16) {
            WAY_NOTHING => return Ok(()),
            BY_NCCL => Some("NCCL"),
            way if operation == Some(Operation::AllReduce) => algorithm_name(way),
            way => exchange_name(way),
        };
        write!(out, " by {}", name.unwrap_or("?"))?;
        match self.descriptor >> PLACE_SHIFT {
            0 => Ok(()),
            place => write!(out, ", operands {place:06x}"),
        }
    }
}

/// The last calls of one rank, in memory shared with its peers. All zero is an empty history.
#[repr(C)]
pub(crate) struct History {
    enqueued: AtomicU64,
    entries: [Entry; ENTRIES],
}

#[repr(C)]
struct Entry {
    /// Number of the call plus one; 0 while the entry is being written.
    stamp: AtomicU64,
    bytes: AtomicU64,
    descriptor: AtomicU64,
}

impl History {
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// Adds a call. Only the rank itself writes, from one thread at a time.
    pub(crate) fn push(&self, call: Call) {
        let number = self.enqueued.load(Ordering::Relaxed);
        let entry = self.entry(number);
        entry.stamp.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.bytes.store(call.bytes, Ordering::Relaxed);
        entry.descriptor.store(call.descriptor, Ordering::Relaxed);
        entry.stamp.store(number + 1, Ordering::Release);
        self.enqueued.store(number + 1, Ordering::Release);
    }

    /// The call with this number, or `None` if it is overwritten or being written.
    pub(crate) fn get(&self, number: u64) -> Option<Call> {
        let entry = self.entry(number);
        let before = entry.stamp.load(Ordering::Acquire);
        let call =
            Call { bytes: entry.bytes.load(Ordering::Relaxed), descriptor: entry.descriptor.load(Ordering::Relaxed) };
        fence(Ordering::Acquire);
        let after = entry.stamp.load(Ordering::Relaxed);
        (before == after && before == number + 1).then_some(call)
    }

    fn entry(&self, number: u64) -> &Entry {
        &self.entries[(number % ENTRIES as u64) as usize]
    }

    #[cfg(test)]
    fn empty() -> Self {
        let entry = || Entry { stamp: AtomicU64::new(0), bytes: AtomicU64::new(0), descriptor: AtomicU64::new(0) };
        Self { enqueued: AtomicU64::new(0), entries: std::array::from_fn(|_| entry()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(loom))]
    use crate::kernel::args;
    #[cfg(not(loom))]
    use crate::types::{WAY_COPY_ENGINES, WAY_LEARNED};

    fn call(number: u64) -> Call {
        Call { bytes: number * 3, descriptor: number * 7 }
    }

    #[cfg(not(loom))]
    #[test]
    fn a_call_reads_as_it_was_packed() {
        let call = Call::new(64, args::kOpAllReduce, Dtype::BF16, Reduction::Max, args::kTwoShotSentinel, 7);
        assert_eq!(call.to_string(), "all-reduce (max) of 64 bytes of bf16 by two-shot-sentinel");
        assert_eq!(call.descriptor >> 32, 7);
        let at = |offsets| call.at(offsets).to_string();
        assert_eq!(at([64, 128]), at([64, 128]));
        for others in [[128, 64], [64, 64], [0, 0], [1 << 40, 128]] {
            assert_ne!(at([64, 128]), at(others), "{others:?}");
        }
        assert!(at([64, 128]).starts_with("all-reduce (max) of 64 bytes of bf16 by two-shot-sentinel, operands "));
        let call = Call::new(64, 200, Dtype::F32, Reduction::Sum, 0, 0);
        assert_eq!(call.to_string(), "operation 200 of 64 bytes of f32 by packets");
        let ways = [
            (args::kExchangePackets, "packets"),
            (args::kExchangePush, "direct access"),
            (args::kExchangeRelay, "direct relay"),
            (args::kReducePackets, "packets"),
            (args::kReducePull, "direct access"),
            (args::kRelayPackets, "relayed packets"),
            (WAY_LEARNED, "packets or direct access"),
            (WAY_COPY_ENGINES | 2, "copy engines"),
            (0x40, "?"),
        ];
        for (way, name) in ways {
            let call = Call::new(8, args::kOpAllGather, Dtype::U64, Reduction::Sum, way, 0);
            assert_eq!(call.to_string(), format!("all-gather of 8 bytes of u64 by {name}"));
        }
        let call = Call::empty(args::kOpReduce, Dtype::I8, Reduction::Min, 5);
        assert_eq!(call.to_string(), "reduce (min) of root 5 of 0 bytes of i8");
    }

    #[cfg(not(loom))]
    #[test]
    fn keeps_the_last_entries() {
        let history = History::empty();
        for number in 0..1000 {
            history.push(call(number));
        }
        assert_eq!(history.enqueued(), 1000);
        assert_eq!(history.get(999), Some(call(999)));
        assert_eq!(history.get(744), Some(call(744)));
        assert_eq!(history.get(743), None);
        assert_eq!(history.get(1000), None);
    }

    #[cfg(loom)]
    #[test]
    fn a_reader_never_sees_half_a_call() {
        loom::model(|| {
            let history = loom::sync::Arc::new(History::empty());
            history.push(call(0));
            let writer = history.clone();
            let thread = loom::thread::spawn(move || writer.push(call(1)));
            // Both calls use the only entry: a reader sees each whole or not at all.
            for number in [0, 1] {
                if let Some(seen) = history.get(number) {
                    assert_eq!(seen, call(number));
                }
            }
            thread.join().unwrap();
            assert_eq!(history.get(1), Some(call(1)));
        });
    }
}
