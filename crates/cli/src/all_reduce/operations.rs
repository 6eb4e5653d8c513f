//! The commands of operations, and which flags each takes.

use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::names::Mover;
use symmetra::op::{ALL_REDUCE, InPlace, OPERATIONS};
use symmetra::{Parameter, Transport};

use crate::exchange::{Args, OperandMemory};

/// The commands of all operations except all-reduce, which has flags of its own: name and the contents of the outputs.
pub(crate) fn commands() -> impl Iterator<Item = (&'static str, String)> {
    let others = OPERATIONS.into_iter().filter(|op| **op != ALL_REDUCE);
    others.map(|op| (op.name(), format!("{}: measure and verify a sweep of sizes", op.summary)))
}

/// Refuses flags that have no effect on the operation.
pub(super) fn check(collective: CollectiveCommand, args: &Args, ranks: usize) -> Result<(), CommandFailure> {
    let (name, op) = (collective.name(), collective.op());
    let parameter = op.operation.parameter();
    for (flag, what, given, takes) in [
        ("--root", "root", args.root.is_some(), parameter == Parameter::Root),
        ("--by", "distance", args.by.is_some(), parameter == Parameter::Distance),
    ] {
        if given && !takes {
            return Err(CommandFailure::usage(format!("{flag}: {name} has no {what}")));
        }
    }
    if let Some(root) = args.root.filter(|root| *root >= ranks) {
        return Err(CommandFailure::usage(format!("--root is {root}, but there are {ranks} ranks")));
    }
    if args.sweep.in_place && op.in_place == InPlace::Never {
        return Err(CommandFailure::usage(format!("--in-place: {name} has no such form")));
    }
    if args.sweep.op != symmetra::Reduction::Sum && !collective.reduces() {
        return Err(CommandFailure::usage(format!("--op is {}, but {name} reduces nothing", args.sweep.op)));
    }
    if args.transport == Mover::CopyEngine && !op.low_contention {
        return Err(CommandFailure::usage(format!("--transport copy-engine: {name} has no such form")));
    }
    if let Some(dim) = args.along {
        if !op.along {
            return Err(CommandFailure::usage(format!("--along: {name} has no such form")));
        }
        if args.transport == Mover::CopyEngine {
            return Err(CommandFailure::usage(format!(
                "--transport copy-engine: {name} along a dimension has no such form"
            )));
        }
        // A rank's part of the larger operand is contiguous only along the first dimension.
        if args.sweep.in_place && dim > 0 {
            return Err(CommandFailure::usage(format!("--in-place: {name} along dimension {dim} has no such form")));
        }
    }
    let direct = args.transport == Mover::Kernels(Transport::Direct);
    let reached = match args.sweep.memory() {
        OperandMemory::Symmetric => true,
        OperandMemory::Plain => args.sweep.graph && !collective.tells_places(),
        OperandMemory::Nvshmem => !collective.tells_places(),
    };
    if direct && !reached {
        let flag = if args.sweep.plain { "--plain" } else { "--memory" };
        return Err(CommandFailure::usage(format!("{flag}: a direct {name} needs memory that peers can address")));
    }
    Ok(())
}

/// The root or the distance from the flags.
pub(super) fn parameter(collective: CollectiveCommand, args: &Args) -> usize {
    match collective.op().operation.parameter() {
        Parameter::Distance => args.by.unwrap_or(1).rem_euclid(args.ranks as isize) as usize,
        _ => args.root.unwrap_or(0),
    }
}
