//! The record of a call: its size, and the properties that must be equal on all ranks.

use std::fmt;

use crate::error::{Operation, Parameter};
use crate::types::{Dtype, Reduction, WAY_COPY_ENGINES, WAY_NOTHING, algorithm_name, codec_name, exchange_name};

/// One call, as its rank enqueued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnqueuedCall {
    /// Size of the message. A call that takes several launches, or a collective for each row, records each of them with
    /// the size of all: otherwise calls with different numbers of launches would be equal up to the end of the smaller
    /// call.
    pub(crate) bytes: u64,
    /// Operation, element type and algorithm, packed as in `AgreeArgs`, and a hash of `alike`.
    pub(crate) descriptor: u64,
    alike: Alike,
}

/// The properties that must be equal on all ranks and have no bits of their own in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Alike {
    /// A number for the settings; 0 for none.
    form: u64,
    /// The tag of the caller; 0 for none.
    tag: u64,
    /// One more than the offset of each operand in the memory of its rank; 0 for an operand that peers do not access.
    places: [u64; OPERANDS],
}

/// The most operands of a call that peers access.
const OPERANDS: usize = 4;

/// The offsets of the operands that peers access at equal offsets.
pub(crate) type Places = [Option<u64>; OPERANDS];

/// The algorithm number in the descriptor of a call that NCCL runs.
pub(crate) const BY_NCCL: u32 = 0xff;

/// The position of the codec in the last eight bits of the descriptor of an all-reduce. The bit before it states
/// whether peers access operands.
pub(crate) const CODEC_SHIFT: u32 = 1;

/// Marks an all-reduce and norm in one kernel; an all-reduce followed by a separate norm may have the same algorithm.
pub(crate) const FUSED: u32 = 0x80;

/// The position, in a descriptor, of the hash of the operand offsets.
const PLACE_SHIFT: u32 = 40;

impl EnqueuedCall {
    /// The number of words of a call.
    pub(crate) const WORDS: usize = 4 + OPERANDS;

    /// Adds the offsets of the operands, which peers access at the same offsets. The descriptor contains a 24-bit hash:
    /// different offsets have equal hashes once in sixteen million cases.
    pub(crate) fn at(self, offsets_bytes: Places) -> Self {
        if offsets_bytes == Places::default() {
            return self;
        }
        let places = offsets_bytes.map(|offset| offset.map_or(0, |offset| offset.wrapping_add(1)));
        Self { alike: Alike { places, ..self.alike }, ..self.mixed(&places) }
    }

    /// Adds another property that must be equal on all ranks, such as the number of rows into which a tensor is cut, to
    /// the hash of [`at`](Self::at). 1 changes nothing.
    pub(crate) fn in_form(self, form: u64) -> Self {
        if form > 1 { Self { alike: Alike { form, ..self.alike }, ..self.mixed(&[form]) } } else { self }
    }

    /// Adds the caller's tag, as [`in_form`](Self::in_form) does. 0 means none.
    #[inline]
    pub(crate) fn tagged(self, tag: u64) -> Self {
        if tag == 0 { self } else { Self { alike: Alike { tag, ..self.alike }, ..self.mixed(&[1, tag]) } }
    }

    /// The call with these words: bytes, descriptor, and the values that are hashed in the descriptor.
    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [bytes, descriptor, form, tag, places @ ..] = words;
        Self { bytes, descriptor, alike: Alike { form, tag, places } }
    }

    #[inline]
    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        let Alike { form, tag, places: [first, second, third, fourth] } = self.alike;
        [self.bytes, self.descriptor, form, tag, first, second, third, fourth]
    }

    /// A call of which only the words that kernels compare are known.
    pub(crate) fn of_kernel(bytes: u64, descriptor: u64) -> Self {
        Self { bytes, descriptor, alike: Alike::default() }
    }

    /// Whether the two words that kernels compare are equal.
    pub(crate) fn compares_as(&self, other: &Self) -> bool {
        (self.bytes, self.descriptor) == (other.bytes, other.descriptor)
    }

    #[inline]
    fn mixed(self, numbers: &[u64]) -> Self {
        let mixed = numbers.iter().fold(0, |sum: u64, number| {
            (sum.rotate_left(29) ^ number.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        Self { descriptor: self.descriptor ^ mixed >> PLACE_SHIFT << PLACE_SHIFT, ..self }
    }

    /// A call of operation `op` (`args::kOp*`). `way` and `rest` depend on the operation: further properties that must
    /// be equal on all ranks, 8 bits each.
    pub(crate) fn new(bytes: u64, op: u32, dtype: Dtype, reduction: Reduction, way: u32, rest: u32) -> Self {
        let kinds = op | (dtype as u32) << 8 | way << 16 | (reduction as u32) << 24;
        let descriptor = u64::from(kinds) | u64::from(rest & 0xff) << 32;
        Self { bytes, descriptor, alike: Alike::default() }
    }

    /// Prints the call with all properties that must be equal on all ranks: settings, offsets of operands, and the
    /// caller's tag.
    pub(crate) fn in_full(&self) -> String {
        let Alike { form, tag, places } = self.alike;
        let mut words = self.to_string();
        let hash = self.descriptor >> PLACE_SHIFT;
        match form {
            0 if self.alike == Alike::default() && hash != 0 => words += &format!(", settings and operands {hash:06x}"),
            0 => {}
            form => words += &format!(", settings {form:x}"),
        }
        let names = match Operation::from_number(self.op()) {
            Some(Operation::Dispatch | Operation::Combine) => ["rows", "scales", "ids", "weights"],
            _ => ["input", "output", "quantised output", "scales"],
        };
        for (name, place) in names.into_iter().zip(places).filter(|(_, place)| *place != 0) {
            words += &format!(", {name} at offset {}", place - 1);
        }
        if tag == 0 { words } else { format!("{words}, tag {tag}") }
    }

    /// Whether the device counts the call when the call ends. Copy engines, NCCL and calls without elements count none.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(self.field(16), WAY_NOTHING | BY_NCCL) && self.field(16) & WAY_COPY_ENGINES == 0
    }

    /// The descriptor without the hash of operands and settings: operation, element type, algorithm and reduction.
    pub(crate) fn kind(&self) -> u64 {
        self.descriptor & ((1 << PLACE_SHIFT) - 1)
    }

    /// The operation, `args::kOp*`.
    pub(crate) fn op(self) -> u32 {
        (self.descriptor & 0xff) as u32
    }

    /// Eight bits of the descriptor.
    fn field(self, shift: u32) -> u32 {
        (self.descriptor >> shift & 0xff) as u32
    }

    /// The operation; `None` for a number that this build does not know.
    pub(crate) fn operation(self) -> Option<Operation> {
        Operation::from_number(self.op())
    }

    /// The name of the element type.
    pub(crate) fn dtype_name(self) -> &'static str {
        Dtype::from_number(self.field(8)).map_or("?", Dtype::name)
    }

    /// The name of the algorithm or transport; `None` for a call that moves no data.
    pub(crate) fn way_name(self) -> Option<&'static str> {
        let sums = matches!(self.operation(), Some(Operation::AllReduce | Operation::AllReduceNorm));
        let name = match self.field(16) {
            WAY_NOTHING => return None,
            BY_NCCL => Some("NCCL"),
            way if self.is_fused() || sums => algorithm_name(way),
            way => exchange_name(way),
        };
        Some(name.unwrap_or("?"))
    }

    /// Whether one kernel reduces and norms.
    fn is_fused(self) -> bool {
        self.operation().is_some_and(Operation::norms) && self.field(32) == FUSED
    }
}

impl fmt::Display for EnqueuedCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation();
        match operation {
            Some(operation) => write!(out, "{operation}")?,
            None => write!(out, "operation {}", self.op())?,
        }
        if operation.is_some_and(Operation::reduces) {
            write!(out, " ({})", Reduction::from_number(self.field(24)).map_or("?", Reduction::name))?;
        }
        match operation.map(Operation::parameter) {
            Some(Parameter::Root) => write!(out, " of root {}", self.field(32))?,
            Some(Parameter::Distance) => write!(out, " by {}", self.field(32))?,
            Some(Parameter::None) | None => {}
        }
        write!(out, " of {} bytes of {}", self.bytes, self.dtype_name())?;
        if self.is_fused() {
            out.write_str(" in one kernel")?;
        }
        let Some(way) = self.way_name() else { return Ok(()) };
        write!(out, " by {way}")?;
        if let (Some(Operation::AllReduce), Some(codec)) = (operation, codec_name(self.field(32) >> CODEC_SHIFT)) {
            write!(out, " in {codec}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/call.rs"]
mod tests;
