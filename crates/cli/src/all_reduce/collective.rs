//! The operations that a sweep can measure, by their descriptions, and which flags they take.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use symmetra::op::{ALL_REDUCE, Case, Extent, InPlace, OPERATIONS, Op, Size};
use symmetra::{
    Communicator, Dtype, Operation, Parameter, Transport, TransportRange, explain_broadcast, explain_exchange,
    explain_reduction,
};

use crate::exchange::{self, Memory};
use crate::failure::Failure;
use crate::names::Mover;

/// An operation with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collective(Operation);

/// Those that benchmarks name.
#[expect(non_upper_case_globals, reason = "they stand in patterns where variants would")]
impl Collective {
    pub(crate) const AllReduce: Self = Self(Operation::AllReduce);
    pub(crate) const AllGather: Self = Self(Operation::AllGather);
    pub(crate) const ReduceScatter: Self = Self(Operation::ReduceScatter);
    pub(crate) const AllToAll: Self = Self(Operation::AllToAll);
    pub(crate) const Broadcast: Self = Self(Operation::Broadcast);
}

impl Collective {
    /// The operation of the command with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        OPERATIONS.into_iter().find(|op| op.name() == name).map(|op| Self(op.operation))
    }

    /// The description. Every command is made from one.
    pub(crate) fn op(self) -> &'static Op {
        Op::of(self.0).unwrap_or(&ALL_REDUCE)
    }

    pub(crate) const fn name(self) -> &'static str {
        self.0.name()
    }

    /// How the library moves the bytes, by bytes from one rank to another.
    pub(crate) fn explain(self, communicator: &Communicator, dtype: Dtype, direct: bool) -> Vec<TransportRange> {
        let (kind, ranks) = (communicator.device().kind(), communicator.world_size());
        let config = communicator.group().config();
        match self {
            Self::Broadcast => explain_broadcast(kind, ranks, config, direct),
            _ if self.reduces() => explain_reduction(kind, ranks, config, dtype, direct),
            _ => explain_exchange(kind, ranks, config, direct),
        }
    }

    /// Whether the larger operand is a part for every rank.
    pub(crate) fn divides(self) -> bool {
        let parts = |extent: Extent| matches!(extent.size, Size::PerRank | Size::Counts);
        parts(self.op().input) || parts(self.op().output)
    }

    pub(crate) const fn reduces(self) -> bool {
        self.0.reduces()
    }

    /// Whether all ranks end with equal outputs.
    pub(crate) fn equalises(self) -> bool {
        let case = Case { world_size: 3, parameter: 0, count: 3, rows: 1, counts: None };
        let effect = |rank| (self.op().effect)(&case, rank);
        effect(0) == effect(1) && effect(1) == effect(2)
    }

    /// Bus bandwidth over algorithm bandwidth.
    pub(crate) fn bus_factor(self, ranks: usize) -> f64 {
        (self.op().bus_factor)(ranks)
    }

    /// Refuses flags that mean nothing to the operation.
    pub(super) fn check(self, args: &exchange::Args, ranks: usize) -> Result<(), Failure> {
        let (name, op, parameter) = (self.name(), self.op(), self.0.parameter());
        for (flag, what, given, takes) in [
            ("--root", "root", args.root.is_some(), parameter == Parameter::Root),
            ("--by", "distance", args.by.is_some(), parameter == Parameter::Distance),
        ] {
            if given && !takes {
                return Err(Failure::usage(format!("{flag}: {name} has no {what}")));
            }
        }
        if let Some(root) = args.root.filter(|root| *root >= ranks) {
            return Err(Failure::usage(format!("--root is {root}, but there are {ranks} ranks")));
        }
        if args.sweep.in_place && op.in_place == InPlace::Never {
            return Err(Failure::usage(format!("--in-place: {name} has no such form")));
        }
        if args.sweep.op != symmetra::Reduction::Sum && !self.reduces() {
            return Err(Failure::usage(format!("--op is {}, but {name} reduces nothing", args.sweep.op)));
        }
        if args.transport == Mover::CopyEngine && !op.low_contention {
            return Err(Failure::usage(format!("--transport copy-engine: {name} has no such form")));
        }
        if let Some(dim) = args.along {
            if !op.along {
                return Err(Failure::usage(format!("--along: {name} has no such form")));
            }
            if args.transport == Mover::CopyEngine {
                return Err(Failure::usage(format!(
                    "--transport copy-engine: {name} along a dimension has no such form"
                )));
            }
            // A rank's part of the larger operand is in one piece along the first dimension alone.
            if args.sweep.in_place && dim > 0 {
                return Err(Failure::usage(format!("--in-place: {name} along dimension {dim} has no such form")));
            }
        }
        let direct = args.transport == Mover::Kernels(Transport::Direct);
        let reached = match args.sweep.memory() {
            Memory::Symmetric => true,
            Memory::Plain => args.sweep.graph && !self.tells_places(),
            Memory::Nvshmem => !self.tells_places(),
        };
        if direct && !reached {
            let flag = if args.sweep.plain { "--plain" } else { "--memory" };
            return Err(Failure::usage(format!("{flag}: a direct {name} needs memory that peers can address")));
        }
        Ok(())
    }

    /// The root or the distance that the flags ask for.
    pub(super) fn parameter(self, args: &exchange::Args) -> usize {
        match self.0.parameter() {
            Parameter::Distance => args.by.unwrap_or(1).rem_euclid(args.ranks as isize) as usize,
            _ => args.root.unwrap_or(0),
        }
    }

    /// Whether ranks must tell each other where data go, so that data go directly into symmetric memory alone.
    pub(super) fn tells_places(self) -> bool {
        self.op().tells_places()
    }
}

impl Serialize for Collective {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Collective {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| de::Error::custom(format!("there is no operation {name}")))
    }
}

/// The commands of all operations but all-reduce, which has flags of its own: name and what the ranks hold afterwards.
pub(crate) fn commands() -> impl Iterator<Item = (&'static str, String)> {
    let others = OPERATIONS.into_iter().filter(|op| **op != ALL_REDUCE);
    others.map(|op| (op.name(), format!("{}: measure and verify a sweep of sizes", op.summary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_of_the_bus_is_that_of_nccl_tests() {
        assert_eq!(Collective::AllReduce.bus_factor(4), 1.5);
        assert_eq!(Collective::AllGather.bus_factor(4), 0.75);
        assert_eq!(Collective::AllToAll.bus_factor(8), 0.875);
        assert_eq!(Collective::Broadcast.bus_factor(8), 1.0);
    }
}
