//! Reduce-scatter: part r of the reduction of all inputs, in the output of rank r. Parts are equal, or each rank has its own
//! count.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Rows, Source, Strip, Strips,
    share_of_others,
};
use crate::error::Operation;

/// Reduce-scatter of equal parts.
pub static REDUCE_SCATTER: Op = Op {
    operation: Operation::ReduceScatter,
    summary: "Each rank's part of the reduction of all inputs",
    input: Extent::PER_RANK,
    output: Extent::ONE,
    in_place: InPlace::OwnPart,
    along: true,
    low_contention: true,
    bus_factor: share_of_others,
    kernels: Kernels::Exchange { strips, access: Access::Reduce },
    nccl: NcclForm::ReduceScatter,
    host: Host::ReducedStrips,
    effect: |case, rank| case.scattered(Source::Reduced, rank),
};

/// Reduce-scatter in which each rank has its own count.
pub static REDUCE_SCATTER_V: Op = Op {
    operation: Operation::ReduceScatterV,
    summary: "Each rank's part of the reduction of all inputs, with a count for each rank",
    input: Extent::PARTS,
    output: Extent::OWN_PART,
    along: false,
    low_contention: false,
    nccl: NcclForm::ReducedStrips,
    ..REDUCE_SCATTER
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::empty(shape.world) };
    let mut strips = Strips::each(shape.world, |peer| shape.part(call, input, peer), |_| Strip::NONE);
    strips.into[shape.rank] = Strip::whole(output, shape.dtype);
    Strips { rows: Rows::scattering(shape.cut, shape.dtype), ..strips }
}
