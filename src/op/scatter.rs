//! Scatter: part r of the root's input, in the output of rank r.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Op, Source, Strip, Strips, Tell,
    share_of_others,
};
use crate::error::Operation;

/// Scatter.
pub static SCATTER: Op = Op {
    operation: Operation::Scatter,
    summary: "A part of the root's input for every rank",
    input: Extent::PER_RANK.at_root(),
    output: Extent::ONE,
    in_place: InPlace::OwnPart,
    along: false,
    low_contention: false,
    bus_factor: share_of_others,
    kernels: Kernels::Exchange { strips, access: Access::Told(Tell::Large) },
    nccl: NcclForm::Strips,
    host: Host::Strips,
    effect: |case, rank| case.scattered(Source::Rank(case.parameter), rank),
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let bytes = shape.bytes();
    let input = call.input.as_ref().filter(|_| shape.rank == shape.parameter);
    let from = |to| input.map_or(Strip::NONE, |input| Strip::part(input, to, bytes));
    let mut strips = Strips::each(shape.world, from, |_| Strip::NONE);
    if let Some(output) = &call.output {
        strips.into[shape.parameter] = Strip::whole(output, shape.dtype);
    }
    strips
}
