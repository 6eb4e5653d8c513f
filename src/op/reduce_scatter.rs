//! Reduce-scatter: part r of the reduction of all inputs, in the output of rank r.

use super::{
    Access, Call, Extent, Host, InPlace, Kernels, Nccl, Op, Rows, Shape, Source, Strip, Strips, share_of_others,
};
use crate::error::Operation;

/// Reduce-scatter.
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
    nccl: Nccl::ReduceScatter,
    host: Host::ReducedStrips,
    effect: |case, rank| case.scattered(Source::Reduced, rank),
};

fn strips(call: &Call<'_>, shape: &Shape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::default() };
    let mut strips = Strips::each(shape.world, |peer| shape.part(call, input, peer), |_| Strip::NONE);
    strips.into[shape.rank] = Strip::whole(output, shape.dtype);
    Strips { rows: Rows::scattering(shape.cut, shape.dtype), ..strips }
}
