//! All-reduce: the reduction of all inputs, in every rank's output.

use super::{Extent, Host, InPlace, Kernels, NcclForm, Op, Source, share_of_others};
use crate::error::Operation;

/// All-reduce.
pub static ALL_REDUCE: Op = Op {
    operation: Operation::AllReduce,
    summary: "The reduction of all inputs, in every rank",
    input: Extent::ONE,
    output: Extent::ONE,
    in_place: InPlace::Same,
    along: false,
    low_contention: false,
    bus_factor: |world_size| 2.0 * share_of_others(world_size),
    kernels: Kernels::AllReduce,
    nccl: NcclForm::AllReduce,
    host: Host::Reduced,
    effect: |case, _| case.one(Source::Reduced, 0),
};
