//! Sends and receives between pairs of ranks, in one batch that all ranks run together.

use super::{
    Access, Call, Extent, Host, InPlace, Kernels, Nccl, Numbers, Op, Shape, Source, Stretch, Strips, Tell, all_of_it,
};
use crate::error::Operation;

/// A batch of sends and receives. In the effect, and where a program calls all operations alike, the message to a rank
/// starts at the part of the input that has the number of that rank, and the message from a rank at such a part of the
/// output.
pub static SEND_RECEIVE: Op = Op {
    operation: Operation::SendReceive,
    summary: "Messages between any pairs of ranks",
    input: Extent::MESSAGES,
    output: Extent::MESSAGES,
    in_place: InPlace::Never,
    along: false,
    low_contention: false,
    bus_factor: all_of_it,
    kernels: Kernels::Exchange { strips, access: Access::Told(Tell::Always) },
    nccl: Nccl::Strips,
    host: Host::Strips,
    effect: |case, rank| {
        let source = |from: usize| Stretch {
            at: from * case.count,
            source: Source::Rank(from),
            start: rank * case.count,
            count: case.pair(from, rank),
        };
        (0..case.world_size).map(source).collect()
    },
};

fn strips(call: &Call<'_>, _shape: &Shape) -> Strips {
    let mut strips = Strips::default();
    if let Numbers::Messages(messages) = call.numbers {
        for message in messages {
            let side = if message.sends { &mut strips.from } else { &mut strips.into };
            side[message.peer] = message.strip();
        }
    }
    strips
}
