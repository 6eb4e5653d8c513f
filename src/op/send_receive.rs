//! Sends and receives between pairs of ranks, in one batch that all ranks run together.

use super::{
    Access, Call, CheckedShape, Extent, Host, InPlace, Kernels, NcclForm, Numbers, Op, Strips, Tell, all_of_it,
};
use crate::error::Operation;

/// A batch of sends and receives. In its effect and in `perform`, messages lie one after the other in both operands, in
/// the order of the other ranks.
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
    nccl: NcclForm::Strips,
    host: Host::Strips,
    effect: |case, rank| case.exchanged(rank),
};

fn strips(call: &Call<'_>, shape: &CheckedShape) -> Strips {
    let mut strips = Strips::empty(shape.world);
    if let Numbers::Messages(messages) = call.numbers {
        for message in messages {
            let side = if message.sends { &mut strips.from } else { &mut strips.into };
            side[message.peer] = message.strip();
        }
    }
    strips
}
