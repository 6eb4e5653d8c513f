//! All-reduce: the reduction of every rank's input, in every rank's output.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::lane::Lane;
use super::record::Recorded;
use super::select::{Algorithm, Reach};
use super::{Communicator, Inner, shape_of};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Call, Determinism};
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
    /// The bits of the result are equal on all ranks and from run to run: [`Reduction`] says what they are. The
    /// ring and recursive doubling reduce floating types in another order and round at every rank, unless
    /// [`Config::determinism`](crate::Config) forbids them.
    /// `input` and `output` may be the same memory but may not overlap otherwise. Any number of
    /// elements, also 0; any element-aligned address. Symmetric memory of another group is plain memory here. Where a capture takes a plain buffer again that it took
    /// before, it does on every rank: [`Graph::register`](crate::Graph::register) compares.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of different lengths, of another device, or
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
    /// the type, reach the operands, or keep to [`Config::determinism`](crate::Config).
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

/// Most one call takes: kernels count packets in 32 bits.
const MOST_CALL_BYTES: u64 = 1 << 33;

/// A table of addresses and where in them an operand starts.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    pub(super) table: *const args::PeerTable,
    pub(super) offset_bytes: u64,
}

impl Peers {
    pub(super) const NONE: Self = Self { table: std::ptr::null(), offset_bytes: 0 };
}

/// What was decided for a message.
pub(super) struct Plan {
    pub(super) algorithm: Algorithm,
    pub(super) reduction: Reduction,
    pub(super) dtype: Dtype,
    /// Input and output, where peers use them.
    pub(super) peers: Option<[Peers; 2]>,
    /// Elements a call takes at most.
    pub(super) call_elems: usize,
}

impl Inner {
    fn all_reduce(
        self: &Arc<Self>,
        options: AllReduceOptions,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.group.enter()?;
        self.validate(dtype, operands)?;
        self.check_device("stream", queue.stream().device())?;
        // Before anything else: whatever a graph holds of this group, closing the group ends it.
        let recorded = queue.recording().map(|recording| recording.part(self.group.id(), || Recorded::new(self)));
        let prepared = self.prepare(options, dtype, operands, recorded.as_deref())?;
        self.enqueue_prepared(&prepared, &mut self.lane.lock(), queue, recorded.as_deref())
    }

    /// Refuses operands that do not fit each other or this rank.
    pub(super) fn validate(&self, dtype: Dtype, [input, output]: [&View<'_>; 2]) -> Result<()> {
        if input.elems != output.elems {
            return Err(Error::invalid("the output's length", output.elems, format!("the input has {}", input.elems)));
        }
        self.check_device("input", input.device)?;
        self.check_device("output", output.device)?;
        let bytes = input.elems * dtype.bytes();
        let apart = (input.address as usize).abs_diff(output.address as usize);
        if apart != 0 && apart < bytes {
            let limit = format!("operands of {bytes} bytes must be the same or {bytes} bytes apart");
            return Err(Error::invalid("the distance of input and output", format!("{apart} bytes"), limit));
        }
        Ok(())
    }

    pub(super) fn plan(
        &self,
        options: AllReduceOptions,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        recorded: Option<&Recorded>,
    ) -> Result<Plan> {
        let bytes = operands[0].elems * dtype.bytes();
        let world = self.group.world_size();
        let determinism = self.group.config().determinism;
        let reach = |operands: &[&View<'_>]| match operands.iter().all(|view| self.reaches(view, recorded.is_some())) {
            true => Reach::Direct,
            false => Reach::Pushed,
        };
        let reduction = options.reduction;
        let algorithm = match options.algorithm {
            Algorithm::Auto => self.table.select(dtype, reduction, reach(&operands), bytes as u64),
            named => named,
        };
        if determinism == Determinism::Exact && !algorithm.is_exact(dtype, world) {
            return Err(Error::unsupported(
                format!("{algorithm} of {dtype} over {world} ranks"),
                "the configuration asks for exact determinism, and its sums are not in rank order",
            ));
        }
        if !algorithm.carries(dtype) {
            return Err(Error::unsupported(format!("{algorithm} of {dtype}"), "it carries floating types only"));
        }
        if !algorithm.reduces(dtype, reduction) {
            let what = format!("{algorithm} of the {reduction} of {dtype}");
            return Err(Error::unsupported(what, "its partial sums would wrap"));
        }
        if algorithm.needs_reach() && reach(&operands) == Reach::Pushed {
            return Err(Error::unsupported(
                format!("{algorithm} on plain memory"),
                "peers cannot address it: use symmetric or adopted memory",
            ));
        }
        let [input, output] = operands;
        let peers = match algorithm {
            Algorithm::TwoShotZeroCopy => {
                Some([self.peers(input, bytes, recorded, 0)?, self.peers(output, bytes, recorded, 1)?])
            }
            // Nobody reads another rank's input.
            Algorithm::Ring if reach(&[output]) == Reach::Direct => {
                Some([Peers::NONE, self.peers(output, bytes, recorded, 1)?])
            }
            _ => None,
        };
        let call_bytes = self.scratch(algorithm).max_bytes.min(MOST_CALL_BYTES);
        Ok(Plan { algorithm, reduction, dtype, peers, call_elems: call_bytes as usize / dtype.bytes() })
    }

    /// Whether peers can address an operand, or will be able to once a graph is registered. The
    /// same on every rank that calls alike.
    pub(super) fn reaches(&self, operand: &View<'_>, recording: bool) -> bool {
        match operand.place {
            Place::Symmetric { group, .. } | Place::Registered { group, .. } => group == self.group.id(),
            Place::Plain => recording && self.registers_plain(),
            Place::Pushed => false,
        }
    }

    /// Whether plain memory of this group's devices can be registered at all.
    fn registers_plain(&self) -> bool {
        let device = self.group.device();
        device.exports_plain_memory() || (device.kind() == DeviceKind::Host && self.group.is_one_process())
    }

    /// Whether any two ranks are threads of one process.
    pub(super) fn shares_a_process(&self) -> bool {
        let processes = self.group.processes();
        (1..processes.len()).any(|rank| processes[..rank].contains(&processes[rank]))
    }

    /// Where peers find what is operand `number` of the next call.
    pub(super) fn peers(
        &self,
        operand: &View<'_>,
        bytes: usize,
        recorded: Option<&Recorded>,
        number: usize,
    ) -> Result<Peers> {
        let (slot, offset_bytes) = match (operand.place, recorded) {
            // Table 0 holds the arenas.
            (Place::Symmetric { offset_bytes, .. }, _) => (0, offset_bytes),
            (Place::Registered { slot, .. }, _) => (slot, 0),
            (Place::Plain, Some(recorded)) => (recorded.table(operand, bytes, number)?, 0),
            (Place::Plain | Place::Pushed, _) => {
                return Err(Error::Internal { message: "memory that is pushed has no peers".to_owned() });
            }
        };
        Ok(Peers { table: self.arena.table(slot), offset_bytes })
    }

    pub(super) fn scratch(&self, algorithm: Algorithm) -> &Scratch {
        let layout = self.arena.layout();
        match algorithm {
            Algorithm::OneShotLL => &layout.one_shot_ll,
            Algorithm::OneShotSentinel => &layout.one_shot_sentinel,
            Algorithm::TwoShotLL => &layout.two_shot_ll,
            Algorithm::TwoShotSentinel => &layout.two_shot_sentinel,
            Algorithm::Ring => &layout.ring,
            Algorithm::RecursiveDoubling => &layout.recursive_doubling,
            Algorithm::TwoShotZeroCopy | Algorithm::Auto => &layout.flags,
        }
    }

    pub(super) fn geometry(&self, plan: &Plan, bytes: u64) -> Launch {
        let (shape, world) = (shape_of(self.group.device()), self.group.world_size() as u32);
        let share = |packet_bytes: u64| bytes.div_ceil(packet_bytes).div_ceil(world.into());
        match plan.algorithm {
            Algorithm::OneShotLL => geometry::push(shape, world, bytes.div_ceil(8), 512),
            Algorithm::OneShotSentinel => geometry::push(shape, world, bytes.div_ceil(16), 512),
            Algorithm::TwoShotLL => geometry::push(shape, world, share(8), 1024),
            Algorithm::TwoShotSentinel => geometry::push(shape, world, share(16), 1024),
            Algorithm::Ring => geometry::ring(shape, share(16), self.group.capabilities().multiprocessors),
            // A rank hears from one other at a time.
            Algorithm::RecursiveDoubling => geometry::push(shape, 1, bytes.div_ceil(8), 512),
            Algorithm::TwoShotZeroCopy | Algorithm::Auto => geometry::zero_copy(shape, share(16)),
        }
    }

    /// Notes a call before its launches and, if asked to, has all ranks compare it. Whether it is the
    /// first on the device.
    pub(super) fn announce(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<bool> {
        let compared = self.group.config().check_calls;
        if compared && recorded.is_none() && queue.stream().is_capturing()? {
            self.group.lose_count();
        }
        // Noted before it can run: whoever reads of it may look it up.
        let fresh = match recorded {
            Some(recorded) => {
                recorded.note(call);
                false
            }
            None => {
                let fresh = self.arrive(lane, queue)?;
                self.group.note(call);
                fresh
            }
        };
        if compared {
            self.agree(call, fresh, queue)?;
        }
        Ok(fresh)
    }

    /// Has all ranks compare a call without elements, if asked to: nothing else is enqueued.
    pub(super) fn announce_empty(
        &self,
        call: Call,
        lane: &mut Lane,
        queue: &impl Enqueue,
        recorded: Option<&Recorded>,
    ) -> Result<()> {
        if self.group.world_size() == 1 || !self.group.config().check_calls {
            return Ok(());
        }
        lane.order_call(queue)?;
        self.announce(call, lane, queue, recorded).map(drop)
    }
}
