//! The collectives that a sweep can measure: what each is given, what must come of it, and how its
//! time becomes a bandwidth (as nccl-tests count).

use serde::{Deserialize, Serialize};
use symmetra::{
    Algorithm, AllReduceOptions, Communicator, DeviceKind, Queue, Transport, TransportRange, explain_broadcast,
    explain_exchange,
};

use super::reference::Data;
use super::sweep::{Buffer, Sweep};
use crate::element::Summand;
use crate::exchange;
use crate::failure::Failure;
use crate::names::Mover;

/// A collective, by the name of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Collective {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    SendReceive,
}

impl Collective {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendReceive => "send-receive",
        }
    }

    /// How the library moves it, by bytes from one rank to another.
    pub(crate) fn explain(self, kind: DeviceKind, ranks: usize, direct: bool) -> Vec<TransportRange> {
        match self {
            Self::Broadcast => explain_broadcast(kind, ranks, direct),
            _ => explain_exchange(kind, ranks, direct),
        }
    }

    /// Whether the larger operand is a part for every rank.
    pub(crate) const fn divides(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce | Self::SendReceive)
    }

    pub(crate) const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether all ranks end with the same.
    pub(crate) const fn equalises(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::Broadcast)
    }

    /// Bus bandwidth over algorithm bandwidth.
    pub(crate) fn bus_factor(self, ranks: usize) -> f64 {
        let share = (ranks as f64 - 1.0) / ranks as f64;
        match self {
            Self::AllReduce => 2.0 * share,
            Self::Broadcast | Self::Reduce | Self::SendReceive => 1.0,
            _ => share,
        }
    }

    /// Refuses flags that mean nothing to it.
    pub(super) fn check(self, args: &exchange::Args, ranks: usize) -> Result<(), Failure> {
        let name = self.name();
        if let Some(root) = args.root {
            if !matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter) {
                return Err(Failure::usage(format!("--root: {name} has no root")));
            }
            if root >= ranks {
                return Err(Failure::usage(format!("--root is {root}, but there are {ranks} ranks")));
            }
        }
        if args.sweep.in_place && matches!(self, Self::AllToAll | Self::SendReceive) {
            return Err(Failure::usage(format!("--in-place: {name} has no such form")));
        }
        if args.sweep.op != symmetra::Reduction::Sum && !self.reduces() {
            return Err(Failure::usage(format!("--op is {}, but {name} reduces nothing", args.sweep.op)));
        }
        if args.transport == Mover::CopyEngine && !matches!(self, Self::AllGather | Self::ReduceScatter) {
            return Err(Failure::usage(format!("--transport copy-engine: {name} has no such form")));
        }
        let direct = args.transport == Mover::Kernels(Transport::Direct);
        if args.sweep.plain && direct && (!args.sweep.graph || self.tells_places()) {
            return Err(Failure::usage(format!("--plain: a direct {name} needs memory that peers can address")));
        }
        Ok(())
    }

    /// Whether ranks must tell each other where data go, so that these go directly into symmetric
    /// memory alone.
    pub(super) const fn tells_places(self) -> bool {
        matches!(self, Self::Gather | Self::Scatter | Self::SendReceive)
    }
}

/// One operation on `elems` elements of the larger operand.
pub(super) fn enqueue<'b, T: Summand, B: Buffer<T>>(
    sweep: &Sweep,
    communicator: &Communicator,
    elems: usize,
    [input, output]: [&'b B; 2],
    queue: impl Queue<'b>,
) -> symmetra::Result<()> {
    let (rank, world, root) = (communicator.rank(), communicator.world_size(), sweep.root);
    let (all, first, reduction) = (0..elems, 0..elems / world, sweep.reduction);
    let mine = rank * first.len()..(rank + 1) * first.len();
    let own = if sweep.in_place { mine.clone() } else { first.clone() };
    let is_root = rank == root;
    match sweep.collective {
        Collective::AllReduce => {
            let options = AllReduceOptions { reduction, algorithm: sweep.algorithm };
            communicator.all_reduce_with(options, input.part(all.clone())?, output.part(all)?, queue)
        }
        // Dropped, it is awaited.
        Collective::AllGather if sweep.transport == Mover::CopyEngine => {
            communicator.low_contention_all_gather(input.part(own)?, output.part(all)?, queue).map(drop)
        }
        Collective::ReduceScatter if sweep.transport == Mover::CopyEngine => {
            communicator.low_contention_reduce_scatter(input.part(all)?, output.part(own)?, reduction, queue).map(drop)
        }
        Collective::AllGather => communicator.all_gather(input.part(own)?, output.part(all)?, queue),
        Collective::ReduceScatter => communicator.reduce_scatter(input.part(all)?, output.part(own)?, reduction, queue),
        Collective::AllToAll => communicator.all_to_all(input.part(all.clone())?, output.part(all)?, queue),
        Collective::Broadcast => communicator.broadcast(output.part(all)?, root, queue),
        Collective::Reduce if sweep.in_place => communicator.reduce_in_place(output.part(all)?, reduction, root, queue),
        Collective::Reduce => {
            let (input, output) = (input.part(all.clone())?, output.part(all)?);
            communicator.reduce(input, is_root.then_some(output), reduction, root, queue)
        }
        Collective::Gather => {
            let output = output.part(all)?;
            communicator.gather(input.part(own)?, is_root.then_some(output), root, queue)
        }
        Collective::Scatter => {
            let output = output.part(if sweep.in_place && is_root { mine } else { first })?;
            communicator.scatter(is_root.then_some(input.part(all)?), output, root, queue)
        }
        Collective::SendReceive => communicator.batch(queue, |batch| {
            batch.send(input.part(all.clone())?, (rank + 1) % world)?;
            batch.receive(output.part(all)?, (rank + world - 1) % world)
        }),
    }
}

/// How many elements of what it leaves in the output buffer of a rank are wrong.
pub(super) fn count_wrong<T: Summand>(
    sweep: &Sweep,
    data: Data,
    rank: usize,
    world: usize,
    algorithm: Algorithm,
    result: &[T],
) -> u64 {
    let (part, root, reduction) = (result.len() / world, sweep.root, sweep.reduction);
    let place = |from: usize| from * part..(from + 1) * part;
    let gathered = || -> u64 {
        let source =
            |from: usize| data.count_unlike(from, if sweep.in_place { from * part } else { 0 }, &result[place(from)]);
        (0..world).map(source).sum()
    };
    let own = |in_place: bool| if in_place { place(rank) } else { 0..part };
    match sweep.collective {
        Collective::AllReduce => data.count_wrong(reduction, world, algorithm, 0, result),
        Collective::AllGather => gathered(),
        Collective::ReduceScatter => {
            data.count_wrong(reduction, world, Algorithm::Auto, rank * part, &result[own(sweep.in_place)])
        }
        Collective::AllToAll => (0..world).map(|from| data.count_unlike(from, rank * part, &result[place(from)])).sum(),
        Collective::Broadcast => data.count_unlike(root, 0, result),
        Collective::Scatter => data.count_unlike(root, rank * part, &result[own(sweep.in_place && rank == root)]),
        Collective::SendReceive => data.count_unlike((rank + world - 1) % world, 0, result),
        // Others than the root keep what they have.
        Collective::Reduce | Collective::Gather if rank != root => 0,
        Collective::Reduce => data.count_wrong(reduction, world, Algorithm::Auto, 0, result),
        Collective::Gather => gathered(),
    }
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
