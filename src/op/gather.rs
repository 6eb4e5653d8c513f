//! Gather: the inputs of all ranks, in rank order, in the root's output.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Strip, Strips, Tell, share_of_others,
};
use crate::error::Operation;

/// Gather.
pub static GATHER: Op = Op {
    operation: Operation::Gather,
    summary: "The inputs of all ranks, in rank order, in the root",
    input: Extent::ONE,
    output: Extent::PER_RANK.at_root(),
    in_place: InPlace::OwnPart,
    along: false,
    low_contention: false,
    bus_factor: share_of_others,
    kernels: Kernels::Exchange { strips, access: Access::Told(Tell::Large) },
    nccl: NcclForm::Strips,
    host: Host::Strips,
    effect: |case, rank| if rank == case.parameter { case.gathered() } else { Vec::new() },
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let bytes = shape.bytes();
    let output = call.output.as_ref().filter(|_| shape.rank == shape.parameter);
    let into = |from| output.map_or(Strip::NONE, |output| Strip::part(output, from, bytes));
    let mut strips = Strips::each(shape.world, |_| Strip::NONE, into);
    if let Some(input) = &call.input {
        strips.from[shape.parameter] = Strip::whole(input, shape.dtype);
    }
    strips
}
