//! A planned all-reduce: everything is decided except the queue. An ordinary call enqueues its plan once. A bound call
//! enqueues its plan any number of times.
#![allow(unsafe_code)]

use super::{AllReducePlan, scratch};
use crate::collective::exchange::copy;
use crate::collective::reach::Peers;
use crate::collective::turn::{Recorded, Turn};
use crate::collective::{Inner, multicast};
use crate::error::Result;
use crate::group::{Announced, CODEC_SHIFT, EnqueuedCall, Group};
use crate::kernel::args;
use crate::kernel::geometry::Launch;
use crate::memory::{Arena, View};
use crate::op::{self, Algorithm, Codec, Strip};
use crate::types::WAY_NOTHING;

/// The planned work.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of a call, which allocates nothing")]
pub(in crate::collective) enum Prepared {
    /// No elements. Holds the words that ranks compare.
    Empty(EnqueuedCall),
    /// A group of one rank.
    Copy { from: Strip, into: Strip },
    /// Several ranks.
    Calls(EqualLaunches),
}

// SAFETY: the addresses are for the device; the caller that enqueues ensures when the device may use them.
unsafe impl Send for Prepared {}
// SAFETY: as above; the plan is never modified.
unsafe impl Sync for Prepared {}

/// Launches of equal size, and a last launch that may be smaller.
pub(in crate::collective) struct EqualLaunches {
    /// Arguments of the first launch. Each other launch starts where the previous launch ends.
    args: KernelArgs,
    /// The words that ranks compare before each launch.
    noted: EnqueuedCall,
    count: usize,
    /// Every launch but the last.
    whole: LaunchPart,
    last: LaunchPart,
    /// Where peers find the operands.
    peers: [Peers; 2],
}

/// Arguments of a launch, except those that depend on its size.
enum KernelArgs {
    Unicast(args::AllReduceArgs),
    Multicast(args::MulticastArgs),
}

/// The values that depend on the size of one launch.
struct LaunchPart {
    elems: usize,
    bytes: u64,
    launch: Launch,
}

impl LaunchPart {
    fn new(group: &Group, plan: &AllReducePlan, elems: usize) -> Self {
        let bytes = (elems * plan.dtype.bytes()) as u64;
        Self { elems, bytes, launch: plan.geometry(group, bytes) }
    }
}

impl Prepared {
    /// Plans a checked all-reduce: everything that depends on operands and settings.
    pub(in crate::collective) fn new(inner: &Inner, call: &op::Call<'_>, recorded: Option<&Recorded>) -> Result<Self> {
        let [input, output] = call.operands()?;
        if call.options.codec != Codec::None {
            call.options.check_codec(call.dtype, inner.group.config().determinism)?;
        }
        let operands = [input, output];
        if input.elems == 0 {
            return Ok(Self::Empty(call.noted(0, WAY_NOTHING)));
        }
        if inner.group.world_size() == 1 {
            let [from, into] = operands.map(|view| Strip::whole(view, call.dtype));
            return Ok(Self::Copy { from, into });
        }
        let plan = AllReducePlan::new(inner, call, operands, recorded)?;
        let count = input.elems.div_ceil(plan.call_elems);
        let whole = LaunchPart::new(&inner.group, &plan, plan.call_elems);
        let last = LaunchPart::new(&inner.group, &plan, input.elems - (count - 1) * plan.call_elems);
        let noted = noted(call, &plan, input.elems, operands.map(|operand| inner.offset_to_check(operand)));
        let args = match plan.algorithm.is_multicast() {
            true => {
                KernelArgs::Multicast(multicast::sum_args(&inner.arena, plan.algorithm, plan.dtype, input, output)?)
            }
            false => KernelArgs::Unicast(unicast_args(&inner.arena, &plan, input, output)),
        };
        let peers = plan.peers.unwrap_or([Peers::NONE; 2]);
        Ok(Self::Calls(EqualLaunches { args, noted, count, whole, last, peers }))
    }

    /// Enqueues the plan once, in the order of calls.
    pub(in crate::collective) fn enqueue(&self, turn: &mut Turn<'_>) -> Result<()> {
        match self {
            Self::Empty(call) => turn.announce_empty(*call),
            Self::Copy { from, into } => {
                turn.order()?;
                copy(*from, *into, turn.queue)
            }
            Self::Calls(calls) => {
                if let Some(recorded) = turn.recorded() {
                    calls.peers.iter().for_each(|peers| recorded.keep_adopted(peers.found.as_ref()));
                }
                turn.order()?;
                (0..calls.count).try_for_each(|number| calls.launch(number, turn))
            }
        }
    }
}

impl EqualLaunches {
    fn launch(&self, number: usize, turn: &mut Turn<'_>) -> Result<()> {
        let part = if number + 1 == self.count { &self.last } else { &self.whole };
        let start_bytes = number as u64 * self.whole.bytes;
        let announced = turn.announce_part(self.noted, part.bytes)?;
        let whole = match &self.args {
            KernelArgs::Unicast(whole) => whole,
            KernelArgs::Multicast(whole) => {
                return multicast::launch_sum(whole, part.bytes, &part.launch, start_bytes, announced, turn);
            }
        };
        let args = args::AllReduceArgs {
            input: whole.input.wrapping_byte_add(start_bytes as usize),
            output: whole.output.wrapping_byte_add(start_bytes as usize),
            count: part.elems as u64,
            inputs_offset_bytes: whole.inputs_offset_bytes + start_bytes,
            outputs_offset_bytes: whole.outputs_offset_bytes + start_bytes,
            wait: if announced == Announced::from(false) { whole.wait } else { turn.inner.arena.wait(announced) },
            lanes_log2: part.launch.lanes_log2,
            ..*whole
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); operands are valid for
        // `part.elems` elements and freed only after the device's work, or are the caller's duty.
        turn.queue.enqueue("launch an all-reduce", |raw| unsafe { raw.launch(&args, &part.launch.geometry) })
    }
}

/// The arguments of the first launch, except those that depend on its size.
fn unicast_args(arena: &Arena, plan: &AllReducePlan, input: &View<'_>, output: &View<'_>) -> args::AllReduceArgs {
    let none = [Peers::NONE; 2];
    let [inputs, outputs] = plan.peers.as_ref().unwrap_or(&none);
    args::AllReduceArgs {
        input: input.address.cast(),
        output: output.address.cast(),
        inputs: inputs.table,
        outputs: outputs.table,
        inputs_offset_bytes: inputs.offset_bytes,
        outputs_offset_bytes: outputs.offset_bytes,
        dtype: plan.dtype as u32,
        reduction: plan.reduction as u32,
        codec: plan.codec.number(),
        ..sum_args(arena, plan.algorithm, false.into())
    }
}

/// The arguments of a reduction that depend only on its algorithm.
pub(in crate::collective) fn sum_args(arena: &Arena, algorithm: Algorithm, call: Announced) -> args::AllReduceArgs {
    let scratch = scratch(arena.layout(), algorithm);
    args::AllReduceArgs {
        peers: arena.everywhere(scratch.region.offset),
        slot_packets: scratch.slot_packets,
        state: arena.own(scratch.state.offset).cast(),
        wait: arena.wait(call),
        rank: arena.group().rank() as u32,
        world: arena.group().world_size() as u32,
        algorithm: algorithm.number(),
        ..args::AllReduceArgs::NONE
    }
}

/// The words that ranks compare for an all-reduce of `elems` elements. `to_check`: the offsets of operands that peers do not
/// access in this call.
#[inline]
fn noted(call: &op::Call<'_>, plan: &AllReducePlan, elems: usize, to_check: [Option<u64>; 2]) -> EnqueuedCall {
    let bytes = call.noted_bytes((elems * plan.dtype.bytes()) as u64);
    let (way, by_peers) = (plan.algorithm.number(), u32::from(plan.peers.is_some()));
    let operation = call.op.operation.number();
    let rest = by_peers | plan.codec.number() << CODEC_SHIFT;
    let noted = EnqueuedCall::new(bytes, operation, plan.dtype, plan.reduction, way, rest)
        .in_form(call.form())
        .tagged(call.tag);
    match (&plan.peers, to_check) {
        (Some([input, output]), _) => noted.at([Some(input.offset_bytes), Some(output.offset_bytes), None, None]),
        (None, [input, output]) => noted.at([input, output, None, None]),
    }
}
