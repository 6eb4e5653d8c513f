//! All-reduce: the reduction of every rank's input, in every rank's output.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::lane::Lane;
use super::record::Recorded;
use super::select::{Algorithm, Reach, select};
use super::{Communicator, Inner, shape_of};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::Call;
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{Operand, Place, Scratch, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element, Reduction};

/// What an all-reduce computes, and how. Made of a [`Reduction`] or an [`Algorithm`] where the other is
/// the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllReduceOptions {
    /// What becomes of the values of all ranks.
    pub reduction: Reduction,
    /// Which way they take.
    pub algorithm: Algorithm,
}

impl From<Reduction> for AllReduceOptions {
    fn from(reduction: Reduction) -> Self {
        Self { reduction, algorithm: Algorithm::Auto }
    }
}

impl From<Algorithm> for AllReduceOptions {
    fn from(algorithm: Algorithm) -> Self {
        Self { reduction: Reduction::Sum, algorithm }
    }
}

impl Communicator {
    /// Sums `input` over all ranks into `output`, which has as many elements. Enqueues and
    /// returns; the operands are used when the queue gets there.
    ///
    /// The bits of the result are equal on all ranks, from run to run, and for every algorithm:
    /// [`Reduction`] says what they are.
    /// `input` and `output` may be the same memory but may not overlap otherwise. Any number of
    /// elements, also 0; any element-aligned address.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of different lengths, of another device or group, or
    /// that overlap; the group's error when it failed before; [`Error::Device`] when the launch fails.
    pub fn all_reduce<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.all_reduce_with(AllReduceOptions::default(), input, output, queue)
    }

    /// The same with `buffer` as input and output.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let operands = [&buffer.view_of(), &buffer.view_of()];
        self.0.all_reduce(AllReduceOptions::default(), T::DTYPE, operands, &queue)
    }

    /// The same with a reduction or an algorithm of the caller's choice, or both. A message larger than
    /// one call of a push algorithm takes is sent in several. Over one rank the result is the input.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); [`Error::Unsupported`] when the algorithm cannot carry
    /// the type or reach the operands.
    pub fn all_reduce_with<'op, T: Element>(
        &self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.all_reduce(options.into(), T::DTYPE, [&input.view_of(), &output.view_of()], &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in, which
    /// keeps what a capture borrows.
    pub(crate) fn all_reduce_untyped(
        &self,
        options: AllReduceOptions,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.all_reduce(options, dtype, operands, queue)
    }
}

/// Most one zero-copy call takes: its kernel counts packets in 32 bits.
const ZERO_COPY_CALL_BYTES: usize = 1 << 33;

/// A table of addresses and where in them an operand starts.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    pub(super) table: *const args::PeerTable,
    pub(super) offset_bytes: u64,
}

/// What was decided for a message.
struct Plan {
    algorithm: Algorithm,
    reduction: Reduction,
    dtype: Dtype,
    /// Input and output for [`Algorithm::TwoShotZeroCopy`].
    peers: Option<[Peers; 2]>,
    /// Elements a call takes at most.
    call_elems: usize,
}

impl Inner {
    fn all_reduce(
        self: &Arc<Self>,
        options: AllReduceOptions,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.group.check()?;
        self.validate(dtype, operands, queue)?;
        let [input, output] = operands;
        // Before the short ways out: whatever a graph holds of this group, closing the group ends it.
        let recorded = queue.recording().map(|recording| recording.part(self.group.id(), || Recorded::new(self)));
        if input.elems == 0 {
            return Ok(());
        }
        if self.group.world_size() == 1 {
            self.lane.lock().order_call(queue)?;
            return copy(input, output, dtype, queue);
        }
        let plan = self.plan(options, dtype, operands, recorded.as_deref())?;
        let mut lane = self.lane.lock();
        lane.order_call(queue)?;
        let mut start = 0;
        while start < input.elems {
            let elems = plan.call_elems.min(input.elems - start);
            self.launch(&plan, operands, start..start + elems, &mut lane, queue, recorded.as_deref())?;
            start += elems;
        }
        Ok(())
    }

    fn validate(&self, dtype: Dtype, [input, output]: [&View<'_>; 2], queue: &impl Enqueue) -> Result<()> {
        if input.elems != output.elems {
            return Err(Error::invalid("the output's length", output.elems, format!("the input has {}", input.elems)));
        }
        let device = self.group.device();
        for (what, other) in [
            ("the input's device", input.device),
            ("the output's device", output.device),
            ("the stream's device", queue.stream().device()),
        ] {
            if !device.same(other) {
                return Err(Error::invalid(what, format!("{other:?}"), format!("this rank works on {device:?}")));
            }
        }
        let bytes = input.elems * dtype.bytes();
        let apart = (input.address as usize).abs_diff(output.address as usize);
        if apart != 0 && apart < bytes {
            let limit = format!("operands of {bytes} bytes must be the same or {bytes} bytes apart");
            return Err(Error::invalid("the distance of input and output", format!("{apart} bytes"), limit));
        }
        Ok(())
    }

    fn plan(
        &self,
        options: AllReduceOptions,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        recorded: Option<&Recorded>,
    ) -> Result<Plan> {
        let bytes = operands[0].elems * dtype.bytes();
        let kind = self.group.device().kind();
        let reach = match operands.iter().all(|operand| self.reaches(operand, recorded.is_some())) {
            true => Reach::Direct,
            false => Reach::Pushed,
        };
        let reduction = options.reduction;
        let algorithm = match options.algorithm {
            Algorithm::Auto => select(kind, self.group.world_size(), dtype, reach, bytes as u64),
            named => named,
        };
        if !algorithm.carries(dtype) {
            return Err(Error::unsupported(format!("{algorithm} of {dtype}"), "it carries floating types only"));
        }
        if !algorithm.needs_reach() {
            let call_bytes = self.scratch(algorithm).max_bytes;
            let call_elems = call_bytes as usize / dtype.bytes();
            return Ok(Plan { algorithm, reduction, dtype, peers: None, call_elems });
        }
        if reach == Reach::Pushed {
            return Err(Error::unsupported(
                format!("{algorithm} on plain memory"),
                "peers cannot address it: use symmetric or adopted memory",
            ));
        }
        let [input, output] = operands;
        let peers = Some([self.peers(input, bytes, recorded)?, self.peers(output, bytes, recorded)?]);
        Ok(Plan { algorithm, reduction, dtype, peers, call_elems: ZERO_COPY_CALL_BYTES / dtype.bytes() })
    }

    /// Whether peers can address an operand, or will be able to once a graph is registered. The
    /// same on every rank that calls alike.
    pub(super) fn reaches(&self, operand: &View<'_>, recording: bool) -> bool {
        match operand.place {
            Place::Symmetric { group, .. } | Place::Registered { group, .. } => group == self.group.id(),
            Place::Plain => recording && self.registers_plain(),
        }
    }

    /// Whether plain memory of this group's devices can be registered at all.
    fn registers_plain(&self) -> bool {
        let device = self.group.device();
        device.exports_plain_memory() || (device.kind() == DeviceKind::Host && self.one_process())
    }

    fn one_process(&self) -> bool {
        self.group.processes().iter().all(|process| *process == self.group.processes()[0])
    }

    pub(super) fn peers(&self, operand: &View<'_>, bytes: usize, recorded: Option<&Recorded>) -> Result<Peers> {
        let (slot, offset_bytes) = match (operand.place, recorded) {
            // Table 0 holds the arenas.
            (Place::Symmetric { offset_bytes, .. }, _) => (0, offset_bytes),
            (Place::Registered { slot, .. }, _) => (slot, 0),
            (Place::Plain, Some(recorded)) => (recorded.table(operand.address, bytes)?, 0),
            (Place::Plain, None) => return Err(Error::Internal { message: "plain memory has no peers".to_owned() }),
        };
        Ok(Peers { table: self.arena.table(slot), offset_bytes })
    }

    fn scratch(&self, algorithm: Algorithm) -> &Scratch {
        let layout = self.arena.layout();
        match algorithm {
            Algorithm::OneShotLL => &layout.one_shot_ll,
            Algorithm::OneShotSentinel => &layout.one_shot_sentinel,
            Algorithm::TwoShotLL => &layout.two_shot_ll,
            Algorithm::TwoShotSentinel => &layout.two_shot_sentinel,
            Algorithm::TwoShotZeroCopy | Algorithm::Auto => &layout.flags,
        }
    }

    /// Enqueues one call over elements `range` of the operands.
    fn launch(
        &self,
        plan: &Plan,
        [input, output]: [&View<'_>; 2],
        range: std::ops::Range<usize>,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        let scratch = self.scratch(plan.algorithm);
        let (start_bytes, elems) = (range.start * plan.dtype.bytes(), range.len());
        let bytes = (elems * plan.dtype.bytes()) as u64;
        let fresh = recorded.is_none() && std::mem::take(&mut lane.fresh);
        let call = Call { bytes, descriptor: descriptor(plan) };
        // Before it can run: whoever reads of it may look it up.
        match recorded {
            Some(recorded) => recorded.note(call),
            None => self.group.note(call),
        }
        if self.group.config().check_calls {
            self.agree(call, fresh, queue)?;
        }
        let launch = self.geometry(plan, bytes);
        let [inputs, outputs] = plan.peers.unwrap_or([Peers { table: std::ptr::null(), offset_bytes: 0 }; 2]);
        let args = args::AllReduceArgs {
            input: input.address.wrapping_add(start_bytes).cast(),
            output: output.address.wrapping_add(start_bytes).cast(),
            count: elems as u64,
            peers: self.arena.everywhere(scratch.region.offset),
            slot_packets: scratch.slot_packets,
            state: self.arena.own(scratch.state.offset).cast(),
            inputs: inputs.table,
            outputs: outputs.table,
            inputs_offset_bytes: inputs.offset_bytes + start_bytes as u64,
            outputs_offset_bytes: outputs.offset_bytes + start_bytes as u64,
            wait: self.arena.wait(fresh),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
            dtype: plan.dtype as u32,
            algorithm: plan.algorithm.number(),
            lanes_log2: launch.lanes_log2,
            reduction: plan.reduction as u32,
        };
        // SAFETY: scratch, tables and flags lie in arenas that live until the device is idle
        // (liveness, bounds); the lane orders their use (exclusion); operands are valid for
        // `elems` elements and freed only after the device's work, or are the caller's duty.
        queue.enqueue("launch an all-reduce", |raw| unsafe { raw.launch_all_reduce(&args, &launch.geometry) })?;
        Ok(())
    }

    fn geometry(&self, plan: &Plan, bytes: u64) -> Launch {
        let (shape, world) = (shape_of(self.group.device()), self.group.world_size() as u32);
        let share = |packet_bytes: u64| bytes.div_ceil(packet_bytes).div_ceil(world.into());
        match plan.algorithm {
            Algorithm::OneShotLL => geometry::push(shape, world, bytes.div_ceil(8), 512),
            Algorithm::OneShotSentinel => geometry::push(shape, world, bytes.div_ceil(16), 512),
            Algorithm::TwoShotLL => geometry::push(shape, world, share(8), 1024),
            Algorithm::TwoShotSentinel => geometry::push(shape, world, share(16), 1024),
            Algorithm::TwoShotZeroCopy | Algorithm::Auto => geometry::zero_copy(shape, share(16)),
        }
    }

    /// Compares a call with those of all ranks, on the device, before it runs.
    pub(super) fn agree(&self, call: Call, fresh: bool, queue: &impl Enqueue) -> Result<()> {
        let scratch = &self.arena.layout().agree;
        let args = args::AgreeArgs {
            peers: self.arena.everywhere(scratch.region.offset),
            state: self.arena.own(scratch.state.offset).cast(),
            ours: [call.bytes, call.descriptor],
            wait: self.arena.wait(fresh),
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
        };
        let launch = geometry::single(shape_of(self.group.device()), 2 * args.world);
        // SAFETY: as in `launch`.
        queue.enqueue("launch an agreement", |raw| unsafe { raw.launch_agree(&args, &launch.geometry) })
    }
}

/// What calls are compared by: `AgreeArgs::ours[1]`.
fn descriptor(plan: &Plan) -> u64 {
    u64::from(args::kOpAllReduce)
        | u64::from(plan.dtype as u32) << 8
        | u64::from(plan.algorithm.number()) << 16
        | u64::from(plan.reduction as u32) << 24
}

/// The reduction over one rank.
fn copy(input: &View<'_>, output: &View<'_>, dtype: Dtype, queue: &impl Enqueue) -> Result<()> {
    if input.address == output.address {
        return Ok(());
    }
    let bytes = input.elems * dtype.bytes();
    // SAFETY: both operands are valid for `bytes` and do not overlap, says `validate`.
    queue.enqueue("copy", |raw| unsafe { raw.copy(output.address, input.address, bytes) })
}
