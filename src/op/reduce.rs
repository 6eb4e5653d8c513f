//! Reduce: the reduction of all inputs, in the root's output.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Source, Strip, Strips, all_of_it,
};
use crate::error::Operation;

/// Reduce. Ranks other than the root do not know whether the root reduces in place, so the transport does not depend on
/// that.
pub static REDUCE: Op = Op {
    operation: Operation::Reduce,
    summary: "The reduction of all inputs, in the root",
    input: Extent::ONE,
    output: Extent::ONE.at_root(),
    in_place: InPlace::Same,
    along: false,
    low_contention: false,
    bus_factor: all_of_it,
    kernels: Kernels::Exchange { strips, access: Access::Reduce },
    nccl: NcclForm::Reduce,
    host: Host::Reduced,
    effect: |case, rank| if rank == case.parameter { case.one(Source::Reduced, 0) } else { Vec::new() },
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let mut strips = Strips::empty(shape.world);
    if let Some(input) = &call.input {
        strips.from[shape.parameter] = Strip::whole(input, shape.dtype);
    }
    if let Some(output) = call.output.as_ref().filter(|_| shape.rank == shape.parameter) {
        strips.into[shape.parameter] = Strip::whole(output, shape.dtype);
    }
    strips
}
