//! Planning an all-reduce on symmetra kernels: the algorithm, and the size and shape of each launch.

use super::graph_part::Recorded;
use super::reach::{Located, Peers};
use super::select::Reach;
use super::{Inner, shape_of};
use crate::error::{Error, Result};
use crate::group::Determinism;
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{Scratch, View};
use crate::op::{Algorithm, AllReduceOptions, Codec};
use crate::types::{Dtype, Reduction};

/// Most bytes of one launch: kernels count packets in 32 bits.
const MOST_CALL_BYTES: u64 = 1 << 33;

/// Most units of one launch with a codec: kernels count packets of 16 bytes of the message in 32 bits.
const MOST_CALL_UNITS: u64 = 1 << 23;

/// The plan for one message.
pub(super) struct Plan {
    pub(super) algorithm: Algorithm,
    pub(super) reduction: Reduction,
    pub(super) codec: Codec,
    pub(super) dtype: Dtype,
    /// Input and output, for algorithms in which peers address the operands.
    pub(super) peers: Option<[Peers; 2]>,
    /// Most elements of one launch.
    pub(super) call_elems: usize,
}

impl Inner {
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
        let located = operands.map(|view| self.locate(view, view.elems * dtype.bytes()));
        let reach = |operands: &[Located<'_>]| {
            let direct = operands.iter().all(|operand| self.reaches(&operand.view, recorded.is_some()));
            if direct { Reach::Direct } else { Reach::Pushed }
        };
        let AllReduceOptions { reduction, codec, .. } = options;
        let algorithm = match options.algorithm {
            Algorithm::Auto if codec != Codec::None => codec.algorithm(world),
            Algorithm::Auto if self.prefers_multicast(dtype, reduction, operands, bytes as u64) => {
                Algorithm::MulticastTwoShot
            }
            Algorithm::Auto => self.table.select(dtype, reduction, reach(&located), bytes as u64),
            named => named,
        };
        if !algorithm.is_multicast() && determinism == Determinism::Exact && !algorithm.is_exact(dtype, world) {
            return Err(Error::unsupported(
                format!("{algorithm} of {dtype} over {world} ranks"),
                "the configuration asks for exact determinism, and its sums are not in rank order",
            ));
        }
        if algorithm.is_multicast() {
            self.check_multicast(algorithm, dtype, reduction, operands)?;
        }
        if !algorithm.carries(dtype) {
            return Err(Error::unsupported(format!("{algorithm} of {dtype}"), "it carries floating types only"));
        }
        if !algorithm.reduces(dtype, reduction) {
            let what = format!("{algorithm} of the {reduction} of {dtype}");
            return Err(Error::unsupported(what, "its partial sums would wrap"));
        }
        if !algorithm.is_multicast() && algorithm.needs_reach() && reach(&located) == Reach::Pushed {
            return Err(Error::unsupported(
                format!("{algorithm} on plain memory"),
                "peers cannot address it: use symmetric or adopted memory",
            ));
        }
        let [input, output] = &located;
        let peers = match algorithm {
            Algorithm::MulticastOneShot => Some([self.peers(input, bytes, recorded, 0)?, Peers::NONE]),
            Algorithm::TwoShotZeroCopy | Algorithm::MulticastTwoShot => {
                Some([self.peers(input, bytes, recorded, 0)?, self.peers(output, bytes, recorded, 1)?])
            }
            // No rank reads the input of another rank.
            Algorithm::Ring if reach(std::slice::from_ref(output)) == Reach::Direct => {
                Some([Peers::NONE, self.peers(output, bytes, recorded, 1)?])
            }
            _ => None,
        };
        let call_elems = match codec {
            Codec::None => self.scratch(algorithm).max_bytes.min(MOST_CALL_BYTES) / dtype.bytes() as u64,
            codec => self.codec_launch_elems(codec, algorithm, operands[0].elems as u64)?,
        };
        Ok(Plan { algorithm, reduction, codec, dtype, peers, call_elems: call_elems as usize })
    }

    /// Elements of each launch with a codec except the last, for a message of `elems` elements.
    fn codec_launch_elems(&self, codec: Codec, algorithm: Algorithm, elems: u64) -> Result<u64> {
        let most = self.codec_call_elems(codec, algorithm)?;
        if algorithm != Algorithm::TwoShotSentinel {
            // One-shot sends a unit while the previous unit is in flight, so the largest launch is the fastest.
            return Ok(most);
        }
        let row = self.group.world_size() as u64 * u64::from(args::kUnitElems);
        Ok(geometry::quantised_share(elems.div_ceil(row), most / row) * row)
    }

    /// Most elements of one launch with a codec: the units that fit the slots.
    pub(super) fn codec_call_elems(&self, codec: Codec, algorithm: Algorithm) -> Result<u64> {
        let world = self.group.world_size();
        let slot_packets = geometry::quantised_slot(self.scratch(algorithm).slot_packets, world as u64);
        let (sources, setting) = match algorithm {
            Algorithm::TwoShotSentinel => (world as u64, "two_shot_sentinel_bytes"),
            _ => (1, "one_shot_sentinel_bytes"),
        };
        let units = (slot_packets / codec.unit_packets() * sources).min(MOST_CALL_UNITS);
        if units > 0 {
            return Ok(units * u64::from(args::kUnitElems));
        }
        let (least, have) = (codec.unit_packets() * 16 * sources, slot_packets * 16 * sources);
        let reason = format!("{setting} makes slots of {have} bytes in all, and a unit in each slot takes {least}");
        Err(Error::unsupported(format!("the codec {codec} over {world} ranks"), reason))
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
            Algorithm::TwoShotZeroCopy
            | Algorithm::MulticastOneShot
            | Algorithm::MulticastTwoShot
            | Algorithm::Auto => &layout.flags,
        }
    }

    pub(super) fn geometry(&self, plan: &Plan, bytes: u64) -> Launch {
        let (shape, world) = (shape_of(&self.group), self.group.world_size() as u32);
        if plan.codec != Codec::None {
            let units = bytes.div_ceil(u64::from(args::kUnitElems) * plan.dtype.bytes() as u64);
            let share = if plan.algorithm == Algorithm::TwoShotSentinel { units.div_ceil(world.into()) } else { units };
            return geometry::quantised(shape, world, share);
        }
        let share = |packet_bytes: u64| bytes.div_ceil(packet_bytes).div_ceil(world.into());
        match plan.algorithm {
            Algorithm::OneShotLL => geometry::push(shape, world, bytes.div_ceil(8), 512),
            Algorithm::OneShotSentinel => geometry::push(shape, world, bytes.div_ceil(16), 512),
            Algorithm::TwoShotLL => geometry::push(shape, world, share(8), 1024),
            Algorithm::TwoShotSentinel => geometry::push(shape, world, share(16), 1024),
            Algorithm::Ring => geometry::ring(shape, share(16), self.group.capabilities().multiprocessors),
            // In each step a rank receives from one peer.
            Algorithm::RecursiveDoubling => geometry::push(shape, 1, bytes.div_ceil(8), 512),
            Algorithm::MulticastOneShot => geometry::zero_copy(shape, bytes.div_ceil(16)),
            Algorithm::TwoShotZeroCopy | Algorithm::MulticastTwoShot | Algorithm::Auto => {
                geometry::zero_copy(shape, share(16))
            }
        }
    }
}
