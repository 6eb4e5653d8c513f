//! All-to-all: part p of every rank's input goes to rank p, which puts the part at the sender's place in its output.
//! Parts are equal, or each pair of ranks has its own count.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Numbers, Op, Source, Stretch, Strip, Strips,
    Tell, share_of_others,
};
use crate::error::Operation;
use crate::memory::View;

/// All-to-all of equal parts.
pub static ALL_TO_ALL: Op = Op {
    operation: Operation::AllToAll,
    summary: "A part of every rank's input for every rank",
    input: Extent::PER_RANK,
    output: Extent::PER_RANK,
    in_place: InPlace::Never,
    along: false,
    low_contention: false,
    bus_factor: share_of_others,
    kernels: Kernels::Exchange { strips: parts, access: Access::Write },
    nccl: NcclForm::Strips,
    host: Host::Strips,
    effect: |case, rank| {
        let source = |from| Stretch {
            at: from * case.count,
            source: Source::Rank(from),
            start: rank * case.count,
            count: case.count,
        };
        (0..case.world_size).map(source).collect()
    },
};

/// All-to-all in which each pair of ranks has its own count.
pub static ALL_TO_ALL_V: Op = Op {
    operation: Operation::AllToAllV,
    summary: "A part of every rank's input for every rank, with a count for each pair of ranks",
    input: Extent::COUNTS,
    output: Extent::COUNTS,
    kernels: Kernels::Exchange { strips: ragged, access: Access::Told(Tell::Always) },
    effect: |case, rank| case.exchanged(rank),
    ..ALL_TO_ALL
};

fn parts(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let (Some(input), Some(output)) = (&call.input, &call.output) else { return Strips::empty(shape.world) };
    let bytes = shape.bytes();
    Strips::each(shape.world, |to| Strip::part(input, to, bytes), |from| Strip::part(output, from, bytes))
}

fn ragged(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let (Some(input), Some(output), Numbers::Counts([send, receive])) = (&call.input, &call.output, call.numbers)
    else {
        return Strips::empty(shape.world);
    };
    // Chunks are contiguous, in rank order.
    let packed = |view: &View<'_>, counts: &[usize], number: usize| {
        let start: usize = counts[..number].iter().sum();
        let address = view.address.wrapping_add(start * shape.dtype.bytes());
        Strip { address, bytes: (counts[number] * shape.dtype.bytes()) as u64 }
    };
    Strips::each(shape.world, |to| packed(input, send, to), |from| packed(output, receive, from))
}
