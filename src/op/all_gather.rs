//! All-gather: the inputs of all ranks, in rank order, in every rank's output. Inputs are equal, or each rank has its own
//! count.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Rows, Strip, Strips, share_of_others,
};
use crate::error::Operation;

/// All-gather of equal inputs.
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
    nccl: NcclForm::AllGather,
    host: Host::Strips,
    effect: |case, _| case.gathered(),
};

/// All-gather in which each rank has its own count.
pub static ALL_GATHER_V: Op = Op {
    operation: Operation::AllGatherV,
    summary: "The inputs of all ranks, in rank order, in every rank, with a count for each rank",
    input: Extent::OWN_PART,
    output: Extent::PARTS,
    along: false,
    low_contention: false,
    nccl: NcclForm::Strips,
    ..ALL_GATHER
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::empty(shape.world) };
    let into = |peer| shape.part(call, output, peer);
    let strips = Strips::each(shape.world, |_| Strip::whole(input, shape.dtype), into);
    Strips { rows: Rows::gathering(shape.cut, shape.dtype), ..strips }
}
