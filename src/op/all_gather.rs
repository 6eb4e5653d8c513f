//! All-gather: the inputs of all ranks, in rank order, in every rank's output.

use super::{Access, Call, Extent, Host, InPlace, Kernels, Nccl, Op, Rows, Shape, Strip, Strips, share_of_others};
use crate::error::Operation;

/// All-gather.
pub static ALL_GATHER: Op = Op {
    operation: Operation::AllGather,
    summary: "The inputs of all ranks, in rank order, in every rank",
    input: Extent::ONE,
    output: Extent::PER_RANK,
    in_place: InPlace::OwnPart,
    along: true,
    low_contention: true,
    bus_factor: share_of_others,
    kernels: Kernels::Exchange { strips, access: Access::Write },
    nccl: Nccl::AllGather,
    host: Host::Strips,
    effect: |case, _| case.gathered(),
};

fn strips(call: &Call<'_>, shape: &Shape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::default() };
    let into = |peer| shape.part(call, output, peer);
    let strips = Strips::each(shape.world, |_| Strip::whole(input, shape.dtype), into);
    Strips { rows: Rows::gathering(shape.cut, shape.dtype), ..strips }
}
