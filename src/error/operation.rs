//! The operations: their names, numbers and parameters.

use std::fmt;

use crate::kernel::args;

/// The parameter in which calls of an operation can differ, other than sizes and types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parameter {
    /// Nothing.
    None,
    /// A root: the rank that is the source or the destination of the data.
    Root,
    /// A distance between ranks, modulo the world size.
    Distance,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:expr, $text:literal, $reduces:literal, $parameter:ident;)*) => {
        /// The activity during which a group failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// The number that kernels report and that the history of a group contains.
            pub(crate) const fn number(self) -> u32 {
                match self { $(Self::$name => $number,)* }
            }

            /// The name in messages; a command of `symmetra` has the name of its operation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether the operation takes a [`Reduction`](crate::Reduction).
            pub const fn reduces(self) -> bool {
                match self { $(Self::$name => $reduces,)* }
            }

            /// The parameter in which calls of the operation can differ.
            pub const fn parameter(self) -> Parameter {
                match self { $(Self::$name => Parameter::$parameter,)* }
            }
        }
    };
}

// A number is never reassigned, because ranks compare numbers. Kernels use those of `abi.hpp`.
operations! {
    /// An all-reduce.
    AllReduce = args::kOpAllReduce, "all-reduce", true, None;
    /// Waiting for a signal.
    SignalWait = args::kOpSignalWait, "signal wait", false, None;
    /// A barrier on a stream.
    SignalBarrier = args::kOpSignalBarrier, "signal barrier", false, None;
    /// Comparing calls before running them.
    Agree = args::kOpAgree, "agreement", false, None;
    /// An all-gather.
    AllGather = 4, "all-gather", false, None;
    /// A reduce-scatter.
    ReduceScatter = 5, "reduce-scatter", true, None;
    /// An all-to-all of equal parts.
    AllToAll = 6, "all-to-all", false, None;
    /// A broadcast.
    Broadcast = 7, "broadcast", false, Root;
    /// A reduce.
    Reduce = 8, "reduce", true, Root;
    /// A gather.
    Gather = 9, "gather", false, Root;
    /// A scatter.
    Scatter = 10, "scatter", false, Root;
    /// A batch of sends and receives.
    SendReceive = 11, "send-receive", false, None;
    /// Comparing variable counts before an exchange.
    Counts = args::kOpCounts, "comparison of counts", false, None;
    /// An all-to-all in which each pair of ranks has its own count.
    AllToAllV = 13, "all-to-all-v", false, None;
    /// A shift.
    Shift = 14, "shift", false, Distance;
    /// An all-reduce of rows that are then normed.
    AllReduceNorm = args::kOpAllReduceNorm, "all-reduce-norm", false, None;
    /// A reduce-scatter of rows that are then normed.
    ReduceScatterNorm = 16, "reduce-scatter-norm", false, None;
    /// A reduce-scatter of rows that are then normed and gathered.
    ReduceScatterNormAllGather = 17, "reduce-scatter-norm-all-gather", false, None;
    /// Sending tokens to their experts.
    Dispatch = args::kOpDispatch, "dispatch", false, None;
    /// Sending the results of experts back.
    Combine = args::kOpCombine, "combine", false, None;
    /// Messages between pairs of ranks, in which no other rank takes part.
    Pairs = args::kOpPairs, "pairs", false, None;
    /// A kernel of the program: a wait for a value in the heap, or an access outside the heap.
    Heap = args::kOpHeap, "heap", false, None;
    /// An all-gather in which each rank has its own count.
    AllGatherV = 22, "all-gather-v", false, None;
    /// A reduce-scatter in which each rank has its own count.
    ReduceScatterV = 23, "reduce-scatter-v", true, None;
    /// Opening a group, or an exchange between hosts or processes while the group is open.
    Exchange = 0x80, "exchange", false, None;
    /// A message of a metadata ring.
    MetadataBroadcast = 0x81, "metadata broadcast", false, None;
}

impl Operation {
    /// Whether the operation norms rows.
    pub(crate) const fn norms(self) -> bool {
        matches!(self, Self::AllReduceNorm | Self::ReduceScatterNorm | Self::ReduceScatterNormAllGather)
    }

    /// Whether waits of the operation belong to a call of the history.
    pub(crate) const fn is_in_history(self) -> bool {
        !matches!(self, Self::Heap | Self::Pairs | Self::SignalBarrier | Self::SignalWait)
    }

    /// The operation with this number, which a kernel reported.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|operation| operation.number() == number)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
