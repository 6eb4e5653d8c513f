//! Broadcast: the root's buffer, in the buffer of every rank.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Source, Strip, Strips, all_of_it,
};
use crate::error::Operation;

/// Broadcast. The output of the root is also its input.
pub static BROADCAST: Op = Op {
    operation: Operation::Broadcast,
    summary: "The root's buffer, in every rank",
    input: Extent::NONE,
    output: Extent::ONE,
    in_place: InPlace::Same,
    along: false,
    low_contention: false,
    bus_factor: all_of_it,
    kernels: Kernels::Exchange { strips, access: Access::Relay },
    nccl: NcclForm::Broadcast,
    host: Host::Broadcast,
    effect: |case, _| case.one(Source::Rank(case.parameter), 0),
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let Some(buffer) = &call.output else { return Strips::empty(shape.world) };
    let whole = Strip::whole(buffer, shape.dtype);
    let gives = shape.rank == shape.parameter;
    let from = |_| if gives { whole } else { Strip::NONE };
    Strips::each(shape.world, from, |from| if from == shape.parameter { whole } else { Strip::NONE })
}
