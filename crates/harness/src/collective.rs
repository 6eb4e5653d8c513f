//! The operations that have a command, by their descriptions.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use symmetra::op::{ALL_REDUCE, Case, Extent, OPERATIONS, Op, Size};
use symmetra::{
    Communicator, Dtype, Operation, Ranges, Transport, explain_broadcast, explain_exchange, explain_reduction,
};

/// An operation with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCommand(Operation);

/// The operations that benchmarks name.
#[expect(non_upper_case_globals, reason = "they stand in patterns where variants would")]
impl CollectiveCommand {
    pub const AllReduce: Self = Self(Operation::AllReduce);
    pub const AllGather: Self = Self(Operation::AllGather);
    pub const ReduceScatter: Self = Self(Operation::ReduceScatter);
    pub const AllToAll: Self = Self(Operation::AllToAll);
    pub const Broadcast: Self = Self(Operation::Broadcast);
}

impl CollectiveCommand {
    /// The operation of the command with this name.
    pub fn named(name: &str) -> Option<Self> {
        OPERATIONS.into_iter().find(|op| op.name() == name).map(|op| Self(op.operation))
    }

    /// The description. Every command is made from one.
    pub fn op(self) -> &'static Op {
        Op::of(self.0).unwrap_or(&ALL_REDUCE)
    }

    pub const fn name(self) -> &'static str {
        self.0.name()
    }

    /// How the library moves the bytes, by bytes from one rank to another.
    pub fn explain(self, communicator: &Communicator, dtype: Dtype, direct: bool) -> Ranges<Transport> {
        let (kind, ranks) = (communicator.device().kind(), communicator.world_size());
        let config = communicator.group().config();
        match self {
            Self::Broadcast => explain_broadcast(kind, ranks, config, direct),
            _ if self.reduces() => explain_reduction(kind, ranks, config, dtype, direct),
            _ => explain_exchange(kind, ranks, config, direct),
        }
    }

    /// Whether the larger operand is a part for every rank.
    pub fn divides(self) -> bool {
        let parts = |extent: Extent| matches!(extent.size, Size::PerRank | Size::Counts | Size::Parts);
        parts(self.op().input) || parts(self.op().output)
    }

    pub const fn reduces(self) -> bool {
        self.0.reduces()
    }

    /// Whether all ranks end with equal outputs.
    pub fn equalises(self) -> bool {
        let case = Case { world_size: 3, parameter: 0, count: 3, rows: 1, counts: None };
        let effect = |rank| (self.op().effect)(&case, rank);
        effect(0) == effect(1) && effect(1) == effect(2)
    }

    /// Bus bandwidth over algorithm bandwidth.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        (self.op().bus_factor)(ranks)
    }

    /// Whether ranks must exchange where data go, so that data go directly only into symmetric memory.
    pub fn tells_places(self) -> bool {
        self.op().tells_places()
    }
}

impl Serialize for CollectiveCommand {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for CollectiveCommand {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| de::Error::custom(format!("there is no operation {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_of_the_bus_is_that_of_nccl_tests() {
        assert_eq!(CollectiveCommand::AllReduce.bus_factor(4), 1.5);
        assert_eq!(CollectiveCommand::AllGather.bus_factor(4), 0.75);
        assert_eq!(CollectiveCommand::AllToAll.bus_factor(8), 0.875);
        assert_eq!(CollectiveCommand::Broadcast.bus_factor(8), 1.0);
    }
}
