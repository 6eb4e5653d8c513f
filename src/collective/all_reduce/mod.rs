//! Planning an all-reduce on symmetra kernels: the algorithm, and the size and shape of each launch.

mod bound;
mod launch_plan;

use super::reach::{Located, Peers};
use super::select::Reach;
use super::turn::Recorded;
use super::{Inner, limits_of, multicast};
use crate::error::{Error, Result};
use crate::group::{Determinism, Group};
use crate::kernel::args;
use crate::kernel::geometry::{self, Launch};
use crate::memory::{Arena, ArenaLayout, Scratch, View};
use crate::op::{Algorithm, AllReduceOptions, Call, Codec};
use crate::types::{Dtype, Reduction};

pub use bound::BoundAllReduce;
pub(in crate::collective) use launch_plan::{Prepared, sum_args};

/// Most bytes of one launch: kernels count packets in 32 bits.
const MOST_CALL_BYTES: u64 = 1 << 33;

/// Most units of one launch with a codec: kernels count packets of 16 bytes of the message in 32 bits.
const MOST_CALL_UNITS: u64 = 1 << 23;

/// The plan for one message.
struct AllReducePlan {
    algorithm: Algorithm,
    reduction: Reduction,
    codec: Codec,
    dtype: Dtype,
    /// Input and output, for algorithms in which peers address the operands.
    peers: Option<[Peers; 2]>,
    /// Most elements of one launch.
    call_elems: usize,
}

/// An all-reduce that is being planned.
struct Planning<'a> {
    inner: &'a Inner,
    options: AllReduceOptions,
    dtype: Dtype,
    bytes: usize,
    /// Input and output.
    operands: [&'a View<'a>; 2],
    located: [Located<'a>; 2],
    recorded: Option<&'a Recorded>,
}

impl Planning<'_> {
    /// Whether peers can address these operands.
    fn reach(&self, operands: &[Located<'_>]) -> Reach {
        let direct = operands.iter().all(|operand| self.inner.reaches(&operand.view, self.recorded.is_some()));
        if direct { Reach::Direct } else { Reach::Pushed }
    }

    fn algorithm(&self) -> Algorithm {
        let Self { inner, options: AllReduceOptions { reduction, codec, algorithm, .. }, dtype, .. } = *self;
        let bytes = self.bytes as u64;
        match algorithm {
            Algorithm::Auto if codec != Codec::None => codec.algorithm(inner.group.world_size()),
            Algorithm::Auto if multicast::prefers_sum(&inner.arena, dtype, reduction, self.operands, bytes) => {
                Algorithm::MulticastTwoShot
            }
            Algorithm::Auto => inner.table.select(dtype, reduction, self.reach(&self.located), bytes),
            named => named,
        }
    }

    /// Refuses an algorithm that cannot serve the message.
    fn check(&self, algorithm: Algorithm) -> Result<()> {
        let (dtype, reduction) = (self.dtype, self.options.reduction);
        let (world, determinism) = (self.inner.group.world_size(), self.inner.group.config().determinism);
        if !algorithm.is_multicast() && determinism == Determinism::Exact && !algorithm.is_exact(dtype, world) {
            return Err(Error::unsupported(
                format!("{algorithm} of {dtype} over {world} ranks"),
                "the configuration asks for exact determinism, and its sums are not in rank order",
            ));
        }
        if algorithm.is_multicast() {
            multicast::check_sum(&self.inner.arena, algorithm, dtype, reduction, self.operands)?;
        }
        if !algorithm.carries(dtype) {
            return Err(Error::unsupported(format!("{algorithm} of {dtype}"), "it carries floating types only"));
        }
        if !algorithm.reduces(dtype, reduction) {
            let what = format!("{algorithm} of the {reduction} of {dtype}");
            return Err(Error::unsupported(what, "its partial sums would wrap"));
        }
        if !algorithm.is_multicast() && algorithm.needs_reach() && self.reach(&self.located) == Reach::Pushed {
            return Err(Error::unsupported(
                format!("{algorithm} on plain memory"),
                "peers cannot address it: use symmetric or adopted memory",
            ));
        }
        Ok(())
    }

    /// Input and output, if peers address the operands.
    fn peers(&self, algorithm: Algorithm) -> Result<Option<[Peers; 2]>> {
        let [input, output] = &self.located;
        let peers = |operand, number| self.inner.peers(operand, self.bytes, self.recorded, number);
        Ok(match algorithm {
            Algorithm::MulticastOneShot => Some([peers(input, 0)?, Peers::NONE]),
            Algorithm::TwoShotZeroCopy | Algorithm::MulticastTwoShot => Some([peers(input, 0)?, peers(output, 1)?]),
            // No rank reads the input of another rank.
            Algorithm::Ring if self.reach(std::slice::from_ref(output)) == Reach::Direct => {
                Some([Peers::NONE, peers(output, 1)?])
            }
            _ => None,
        })
    }
}

impl AllReducePlan {
    /// Plans the all-reduce of a checked call with these operands.
    fn new(inner: &Inner, call: &Call<'_>, operands: [&View<'_>; 2], recorded: Option<&Recorded>) -> Result<Self> {
        let (options, dtype) = (call.options, call.dtype);
        let AllReduceOptions { reduction, codec, .. } = options;
        let bytes = operands[0].elems * dtype.bytes();
        let located = operands.map(|view| inner.locate(view, view.elems * dtype.bytes()));
        let planning = Planning { inner, options, dtype, bytes, operands, located, recorded };
        let algorithm = planning.algorithm();
        planning.check(algorithm)?;
        let peers = planning.peers(algorithm)?;
        let call_elems = match codec {
            Codec::None => {
                scratch(inner.arena.layout(), algorithm).max_bytes.min(MOST_CALL_BYTES) / dtype.bytes() as u64
            }
            codec => codec_launch_elems(&inner.arena, codec, algorithm, operands[0].elems as u64)?,
        };
        Ok(Self { algorithm, reduction, codec, dtype, peers, call_elems: call_elems as usize })
    }

    /// The shape of a launch for `bytes` bytes.
    fn geometry(&self, group: &Group, bytes: u64) -> Launch {
        let (shape, world) = (limits_of(group), group.world_size() as u32);
        if self.codec != Codec::None {
            let units = bytes.div_ceil(u64::from(args::kUnitElems) * self.dtype.bytes() as u64);
            let share = if self.algorithm == Algorithm::TwoShotSentinel { units.div_ceil(world.into()) } else { units };
            return geometry::quantised(shape, world, share);
        }
        let share = |packet_bytes: u64| bytes.div_ceil(packet_bytes).div_ceil(world.into());
        match self.algorithm {
            Algorithm::OneShotLL => geometry::push(shape, world, bytes.div_ceil(8), 512),
            Algorithm::OneShotSentinel => geometry::push(shape, world, bytes.div_ceil(16), 512),
            Algorithm::TwoShotLL => geometry::push(shape, world, share(8), 1024),
            Algorithm::TwoShotSentinel => geometry::push(shape, world, share(16), 1024),
            Algorithm::Ring => geometry::ring(shape, share(16), group.capabilities().multiprocessors),
            // In each step a rank receives from one peer.
            Algorithm::RecursiveDoubling => geometry::push(shape, 1, bytes.div_ceil(8), 512),
            Algorithm::MulticastOneShot => geometry::zero_copy(shape, bytes.div_ceil(16)),
            Algorithm::TwoShotZeroCopy | Algorithm::MulticastTwoShot | Algorithm::Auto => {
                geometry::zero_copy(shape, share(16))
            }
        }
    }
}

/// Elements of each launch with a codec except the last, for a message of `elems` elements.
fn codec_launch_elems(arena: &Arena, codec: Codec, algorithm: Algorithm, elems: u64) -> Result<u64> {
    let most = codec_call_elems(arena, codec, algorithm)?;
    if algorithm != Algorithm::TwoShotSentinel {
        // One-shot sends a unit while the previous unit is in flight, so the largest launch is the fastest.
        return Ok(most);
    }
    let row = arena.group().world_size() as u64 * u64::from(args::kUnitElems);
    Ok(geometry::quantised_share(elems.div_ceil(row), most / row) * row)
}

/// Most elements of one launch with a codec: the units that fit the slots.
pub(in crate::collective) fn codec_call_elems(arena: &Arena, codec: Codec, algorithm: Algorithm) -> Result<u64> {
    let world = arena.group().world_size();
    let slot_packets = geometry::quantised_slot(scratch(arena.layout(), algorithm).slot_packets, world as u64);
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

/// The scratch of an algorithm.
pub(in crate::collective) fn scratch(layout: &ArenaLayout, algorithm: Algorithm) -> &Scratch {
    match algorithm {
        Algorithm::OneShotLL => &layout.one_shot_ll,
        Algorithm::OneShotSentinel => &layout.one_shot_sentinel,
        Algorithm::TwoShotLL => &layout.two_shot_ll,
        Algorithm::TwoShotSentinel => &layout.two_shot_sentinel,
        Algorithm::Ring => &layout.ring,
        Algorithm::RecursiveDoubling => &layout.recursive_doubling,
        Algorithm::TwoShotZeroCopy | Algorithm::MulticastOneShot | Algorithm::MulticastTwoShot | Algorithm::Auto => {
            &layout.flags
        }
    }
}
