//! A planned all-reduce: everything is decided except the queue. An ordinary call enqueues its plan once. A bound call
//! enqueues its plan any number of times.
#![allow(unsafe_code)]

use super::Inner;
use super::all_reduce::Plan;
use super::call_order::Lane;
use super::exchange::copy;
use super::graph_part::Recorded;
use super::reach::Peers;
use crate::error::{Error, Result};
use crate::group::{CODEC_SHIFT, Call};
use crate::kernel::args;
use crate::kernel::geometry::Launch;
use crate::memory::View;
use crate::op::{self, Codec, Strip};
use crate::stream::Target;
use crate::types::WAY_NOTHING;

/// The planned work.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of a call, which allocates nothing")]
pub(super) enum Prepared {
    /// No elements. Holds the words that ranks compare.
    Empty(Call),
    /// A group of one rank.
    Copy { from: Strip, into: Strip },
    /// Several ranks.
    Calls(Calls),
}

// SAFETY: the addresses are for the device; the caller that enqueues ensures when the device may use them.
unsafe impl Send for Prepared {}
// SAFETY: as above; the plan is never modified.
unsafe impl Sync for Prepared {}

/// Launches of equal size, and a last launch that may be smaller.
pub(super) struct Calls {
    /// Arguments of the first launch. Each other launch starts where the previous launch ends.
    args: Args,
    /// The words that ranks compare before each launch.
    noted: Call,
    count: usize,
    /// Every launch but the last.
    whole: Part,
    last: Part,
    /// Where peers find the operands.
    peers: [Peers; 2],
}

/// Arguments of a launch, except those that depend on its size.
enum Args {
    Unicast(args::AllReduceArgs),
    Multicast(args::MulticastArgs),
}

/// The values that depend on the size of one launch.
pub(super) struct Part {
    elems: usize,
    pub(super) bytes: u64,
    pub(super) launch: Launch,
}

impl Inner {
    pub(super) fn all_reduce(
        &self,
        call: &op::Call<'_>,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let prepared = self.prepare(call, recorded)?;
        self.enqueue_prepared(&prepared, lane, queue, recorded)
    }

    /// Plans a checked all-reduce: everything that depends on operands and settings.
    pub(super) fn prepare(&self, call: &op::Call<'_>, recorded: Option<&Recorded>) -> Result<Prepared> {
        let (Some(input), Some(output)) = (&call.input, &call.output) else {
            return Err(Error::Internal { message: "an all-reduce without operands was found right".to_owned() });
        };
        if call.options.codec != Codec::None {
            call.options.check_codec(call.dtype, self.group.config().determinism)?;
        }
        let operands = [input, output];
        if input.elems == 0 {
            return Ok(Prepared::Empty(call.noted(0, WAY_NOTHING)));
        }
        if self.group.world_size() == 1 {
            let [from, into] = operands.map(|view| Strip::whole(view, call.dtype));
            return Ok(Prepared::Copy { from, into });
        }
        let plan = self.plan(call.options, call.dtype, operands, recorded)?;
        let count = input.elems.div_ceil(plan.call_elems);
        let whole = self.part(&plan, plan.call_elems);
        let last = self.part(&plan, input.elems - (count - 1) * plan.call_elems);
        let noted = noted(call, &plan, input.elems, operands.map(|operand| self.offset_to_check(operand)));
        let args = match plan.algorithm.is_multicast() {
            true => Args::Multicast(self.multicast_sum(plan.algorithm, plan.dtype, operands)?),
            false => Args::Unicast(self.args(&plan, operands)),
        };
        let peers = plan.peers.unwrap_or([Peers::NONE; 2]);
        Ok(Prepared::Calls(Calls { args, noted, count, whole, last, peers }))
    }

    fn part(&self, plan: &Plan, elems: usize) -> Part {
        let bytes = (elems * plan.dtype.bytes()) as u64;
        Part { elems, bytes, launch: self.geometry(plan, bytes) }
    }

    /// The arguments of the first launch, except those that depend on its size.
    fn args(&self, plan: &Plan, [input, output]: [&View<'_>; 2]) -> args::AllReduceArgs {
        let scratch = self.scratch(plan.algorithm);
        let none = [Peers::NONE; 2];
        let [inputs, outputs] = plan.peers.as_ref().unwrap_or(&none);
        args::AllReduceArgs {
            input: input.address.cast(),
            output: output.address.cast(),
            peers: self.arena.everywhere(scratch.region.offset),
            slot_packets: scratch.slot_packets,
            state: self.arena.own(scratch.state.offset).cast(),
            inputs: inputs.table,
            outputs: outputs.table,
            inputs_offset_bytes: inputs.offset_bytes,
            outputs_offset_bytes: outputs.offset_bytes,
            wait: self.arena.wait(false),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
            dtype: plan.dtype as u32,
            algorithm: plan.algorithm.number(),
            reduction: plan.reduction as u32,
            codec: plan.codec.number(),
            ..args::AllReduceArgs::NONE
        }
    }

    /// Enqueues a plan once, in the order of calls.
    pub(super) fn enqueue_prepared(
        &self,
        prepared: &Prepared,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        match prepared {
            Prepared::Empty(call) => self.announce_empty(*call, lane, queue, recorded),
            Prepared::Copy { from, into } => {
                lane.order_call(queue)?;
                copy(*from, *into, queue)
            }
            Prepared::Calls(calls) => {
                if let Some(recorded) = recorded {
                    calls.peers.iter().for_each(|peers| recorded.keep_adopted(peers.found.as_ref()));
                }
                lane.order_call(queue)?;
                (0..calls.count).try_for_each(|number| self.launch(calls, number, lane, queue, recorded))
            }
        }
    }

    fn launch(
        &self,
        calls: &Calls,
        number: usize,
        lane: &mut Lane,
        queue: Target<'_>,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let part = if number + 1 == calls.count { &calls.last } else { &calls.whole };
        let start_bytes = number as u64 * calls.whole.bytes;
        let first = self.announce(calls.noted, lane, queue, recorded)?;
        let whole = match &calls.args {
            Args::Unicast(whole) => whole,
            Args::Multicast(whole) => return self.launch_multicast(whole, part, start_bytes, first, queue),
        };
        let args = args::AllReduceArgs {
            input: whole.input.wrapping_byte_add(start_bytes as usize),
            output: whole.output.wrapping_byte_add(start_bytes as usize),
            count: part.elems as u64,
            inputs_offset_bytes: whole.inputs_offset_bytes + start_bytes,
            outputs_offset_bytes: whole.outputs_offset_bytes + start_bytes,
            wait: if first { self.arena.wait(true) } else { whole.wait },
            lanes_log2: part.launch.lanes_log2,
            ..*whole
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); operands are valid for
        // `part.elems` elements and freed only after the device's work, or are the caller's duty.
        queue.enqueue("launch an all-reduce", |raw| unsafe { raw.launch(&args, &part.launch.geometry) })
    }
}

/// The words that ranks compare for an all-reduce of `elems` elements. `to_check`: the offsets of operands that peers do not
/// access in this call.
#[inline]
fn noted(call: &op::Call<'_>, plan: &Plan, elems: usize, to_check: [Option<u64>; 2]) -> Call {
    let bytes = call.noted_bytes((elems * plan.dtype.bytes()) as u64);
    let (way, by_peers) = (plan.algorithm.number(), u32::from(plan.peers.is_some()));
    let operation = call.op.operation.number();
    let rest = by_peers | plan.codec.number() << CODEC_SHIFT;
    let noted =
        Call::new(bytes, operation, plan.dtype, plan.reduction, way, rest).in_form(call.form()).tagged(call.tag);
    match (&plan.peers, to_check) {
        (Some([input, output]), _) => noted.at([Some(input.offset_bytes), Some(output.offset_bytes), None, None]),
        (None, [input, output]) => noted.at([input, output, None, None]),
    }
}
