//! Shift: every rank's input goes to the output of the rank that is `distance` further, modulo the world size.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Source, Strip, Strips, all_of_it,
};
use crate::error::Operation;

/// Shift.
pub static SHIFT: Op = Op {
    operation: Operation::Shift,
    summary: "The input of the rank at a distance before, in every rank",
    input: Extent::ONE,
    output: Extent::ONE,
    in_place: InPlace::Never,
    along: false,
    low_contention: false,
    bus_factor: all_of_it,
    kernels: Kernels::Exchange { strips, access: Access::Write },
    nccl: NcclForm::Strips,
    host: Host::Strips,
    effect: |case, rank| case.one(Source::Rank((rank + case.world_size - case.parameter) % case.world_size), 0),
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::empty(shape.world) };
    let mut strips = Strips::empty(shape.world);
    strips.from[shape.after(shape.parameter)] = Strip::whole(input, shape.dtype);
    strips.into[shape.after(shape.world - shape.parameter)] = Strip::whole(output, shape.dtype);
    strips
}
