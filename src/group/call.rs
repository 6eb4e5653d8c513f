//! What is noted of a call: its size, and what ranks must do alike.

use std::fmt;

use crate::error::{Operation, Parameter};
use crate::types::{Dtype, Reduction, WAY_NOTHING, algorithm_name, exchange_name};

/// One call, as its rank enqueued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Size of the message.
    pub(crate) bytes: u64,
    /// Operation, element type and algorithm, packed as `AgreeArgs` packs them.
    pub(crate) descriptor: u64,
}

/// What stands in a descriptor for the algorithm of a call that NCCL runs.
pub(crate) const BY_NCCL: u32 = 0xff;

/// Where in a descriptor stands what tells places of operands apart.
const PLACE_SHIFT: u32 = 40;

impl Call {
    /// Adds where in all ranks' arenas the operands are: peers access theirs at the same offsets. It stands there as a
    /// number that differs where offsets do, but for one case in sixteen million.
    pub(crate) fn at(self, offsets_bytes: [u64; 2]) -> Self {
        self.mixed(&offsets_bytes)
    }

    /// Adds how many rows a tensor is cut into, in the number that [`at`](Self::at) adds. One row makes no difference.
    pub(crate) fn in_rows(self, rows: u64) -> Self {
        if rows > 1 { self.mixed(&[rows]) } else { self }
    }

    fn mixed(self, numbers: &[u64]) -> Self {
        let mixed = numbers
            .iter()
            .fold(0, |sum: u64, number| (sum.rotate_left(29) ^ (number + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { descriptor: self.descriptor ^ mixed >> PLACE_SHIFT << PLACE_SHIFT, ..self }
    }

    /// A call of operation `op` (`args::kOp*`). `way` and `rest` are the operation's own: what else ranks must
    /// do alike, each in 8 bits.
    pub(crate) fn new(bytes: u64, op: u32, dtype: Dtype, reduction: Reduction, way: u32, rest: u32) -> Self {
        let kinds = op | (dtype as u32) << 8 | way << 16 | (reduction as u32) << 24;
        Self { bytes, descriptor: u64::from(kinds) | u64::from(rest & 0xff) << 32 }
    }

    /// Its operation, `args::kOp*`.
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
        if operation.is_some_and(Operation::reduces) {
            write!(out, " ({})", Reduction::from_number(field(24)).map_or("?", Reduction::name))?;
        }
        match operation.map(Operation::parameter) {
            Some(Parameter::Root) => write!(out, " of root {}", field(32))?,
            Some(Parameter::Distance) => write!(out, " by {}", field(32))?,
            Some(Parameter::None) | None => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::args;
    use crate::types::{WAY_COPY_ENGINES, WAY_LEARNED};

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
        assert_eq!(call.in_rows(1), call);
        assert!(call.in_rows(2) != call.in_rows(4) && call.in_rows(2).at([64, 128]) != call.at([64, 128]));
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
            let call = Call::new(8, Operation::AllGather.number(), Dtype::U64, Reduction::Sum, way, 0);
            assert_eq!(call.to_string(), format!("all-gather of 8 bytes of u64 by {name}"));
        }
        let call = Call::new(0, Operation::Reduce.number(), Dtype::I8, Reduction::Min, WAY_NOTHING, 5);
        assert_eq!(call.to_string(), "reduce (min) of root 5 of 0 bytes of i8");
    }
}
