//! The parts that all plans share.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::cost::Cost;
use super::division::Division;
use super::options::{FusedOptions, Planned, Way};
use crate::backend::{GroupCalls, NamedSettings};
use crate::collective::{Communicator, workspace_bytes};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::group::{Determinism, MAX_WORLD_SIZE};
use crate::matmul::{Multiplier, Order, Product, Scaling, Tensor};
use crate::memory::{DeviceBuffer, SymmetricBuffer, View, WithView, buffer_bytes};
use crate::op::{ALL_GATHER, Call, Held, Numbers, RankMessage, SEND_RECEIVE};
use crate::stream::Target;
use crate::types::{Dtype, Reduction};

/// The group, the GEMM handle and the schedule of a plan.
pub(super) struct Plan {
    /// The name of the plan in errors.
    what: &'static str,
    pub(super) over: Arc<dyn GroupCalls>,
    pub(super) multiplier: Multiplier,
    pub(super) planned: Planned,
    /// Whether a row must have the same bits in the GEMM of a part as in the GEMM of all rows.
    pub(super) whole_sums: bool,
    /// Held while a call is enqueued, because only one call at a time uses the memory of the plan.
    calls: Mutex<()>,
}

/// The facts from which a plan chooses its schedule.
pub(super) struct PlanRequest<'a> {
    /// The name of the plan in errors.
    pub(super) what: &'static str,
    pub(super) division: &'a Division,
    pub(super) options: &'a FusedOptions,
    /// The predicted times of both schedules on a GPU.
    pub(super) cost: Cost,
    /// The reason why the shape does not support a pipeline, if any.
    pub(super) refused: Option<&'static str>,
    /// The GEMM handle, if another plan of the same calls already has one.
    pub(super) multiplier: Option<&'a Multiplier>,
}

impl Plan {
    /// Compares the settings of all ranks, and chooses a schedule. Collective; blocks.
    pub(super) fn new(
        over: Arc<dyn GroupCalls>,
        settings: &NamedSettings<'_>,
        asked: &PlanRequest<'_>,
    ) -> Result<Self> {
        over.agree(asked.what, settings)?;
        let device = over.device().clone();
        let multiplier = match asked.multiplier {
            Some(multiplier) => multiplier.clone(),
            None => over.together(asked.what, Multiplier::new(&device))?,
        };
        let (way, reason) = choose(asked, &*over, &device)?;
        let parts = if way == Way::Pipeline { over.world_size() } else { 1 };
        let on_gpu = device.kind() != DeviceKind::Host;
        let predicted_us = on_gpu.then_some(match way {
            Way::Pipeline => asked.cost.pipeline_us,
            _ => asked.cost.sequence_us,
        });
        let bound_us = on_gpu.then_some(asked.cost.bound_us);
        let planned = Planned { way, parts, library: multiplier.library().to_owned(), predicted_us, bound_us, reason };
        let whole_sums = over.local().group().config().determinism == Determinism::Exact;
        Ok(Self { what: asked.what, over, multiplier, planned, whole_sums, calls: Mutex::new(()) })
    }

    /// Runs a call, which uses the memory of the plan after the previous call.
    pub(super) fn call(&self, queue: Target<'_>, work: impl FnOnce() -> Result<()>) -> Result<()> {
        // Before the lock, because another thread may hold the lock and wait for the call whose callback makes this call.
        self.over.refuse_within(self.what)?;
        self.multiplier.refuse_captured(self.what, queue)?;
        let _call = self.calls.lock();
        let order = || self.over.local().order(self.what, queue);
        order()?;
        let done = work();
        // The last work may be a GEMM or a local sum, which the communicator has not recorded as a call.
        let ordered = order();
        done.and(ordered)
    }

    /// The communicator whose copy engines move parts, if the plan is a pipeline.
    pub(super) fn pipeline(&self) -> Option<&Communicator> {
        self.over.own().filter(|_| self.planned.way == Way::Pipeline)
    }

    /// Memory for operands of this plan: symmetric if symmetra kernels serve the group. Collective; blocks.
    pub(super) fn memory(&self, bytes: usize) -> Result<PlanMemory> {
        match self.over.own() {
            Some(own) => own.symmetric(bytes.max(1)).map(PlanMemory::Symmetric),
            None => {
                let made = DeviceBuffer::new(self.over.device(), bytes);
                self.over.together("memory of a plan", made).map(PlanMemory::Plain)
            }
        }
    }

    /// Gathers the parts of all ranks into the whole.
    pub(super) fn gather(&self, division: &Division, part: &Held, whole: &Held, queue: Target<'_>) -> Result<()> {
        let dtype = part.dtype;
        if division.is_equal() {
            let shape = division.part_shape(self.over.rank());
            let call = Call::new(&ALL_GATHER, dtype).input(part.view()).output(whole.view());
            return self.over.run(&call.numbers(Numbers::Along(division.dim, &shape)), queue);
        }
        let rank = self.over.rank();
        let peers = (0..self.over.world_size()).filter(|peer| division.part_elems(*peer) > 0);
        let received = peers.map(|peer| message_of(peer, false, whole, division.part(peer)));
        let sends = (0..self.over.world_size()).filter(|_| division.part_elems(rank) > 0);
        let sent = sends.map(|peer| Ok(RankMessage::new(peer, true, dtype, &part.view())));
        let messages = received.chain(sent).collect::<Result<PlanMessages>>()?;
        self.over.run(&Call::new(&SEND_RECEIVE, Dtype::U8).numbers(Numbers::Messages(&messages)), queue)
    }
}

/// The schedule of a plan, and the reason for it.
fn choose(asked: &PlanRequest<'_>, over: &dyn GroupCalls, device: &Device) -> Result<(Way, String)> {
    let refused = match asked.refused {
        _ if over.world_size() == 1 => Some("there is one rank"),
        _ if over.own().is_none() => Some("another backend than own kernels serves the group"),
        _ if !asked.division.is_equal() => Some("ranks have unequal parts"),
        _ if asked.division.cuts_rows() => Some("the last dimension is cut: parts would be added in the result's type"),
        _ if !asked.division.is_contiguous() => Some("parts are not contiguous"),
        refused => refused,
    };
    match (asked.options.way, refused) {
        (Way::Sequence, _) => Ok((Way::Sequence, "asked for".to_owned())),
        (Way::Pipeline, None) => Ok((Way::Pipeline, "asked for".to_owned())),
        (Way::Pipeline, Some(reason)) => Err(Error::unsupported(format!("{} part by part", asked.what), reason)),
        (Way::Auto, Some(reason)) => Ok((Way::Sequence, reason.to_owned())),
        (Way::Auto, None) if device.kind() == DeviceKind::Host => {
            Ok((Way::Sequence, "the CPU multiplies and copies with the same processors".to_owned()))
        }
        (Way::Auto, None) => {
            let Cost { sequence_us, pipeline_us, .. } = asked.cost;
            let way = if asked.cost.pipelines() { Way::Pipeline } else { Way::Sequence };
            Ok((way, format!("by the model {pipeline_us:.0} us part by part, {sequence_us:.0} one after the other")))
        }
    }
}

/// Messages from and to each rank; on the stack, because calls allocate no memory.
pub(super) type PlanMessages = SmallVec<[RankMessage; 2 * MAX_WORLD_SIZE]>;

/// Memory of a plan.
pub(super) enum PlanMemory {
    Symmetric(SymmetricBuffer<u8>),
    Plain(DeviceBuffer<u8>),
}

impl PlanMemory {
    /// The first elements of the memory.
    ///
    /// # Errors
    /// [`Error::Internal`] for more elements than the memory has.
    pub(super) fn held(&self, dtype: Dtype, elems: usize) -> Result<Held> {
        match self {
            Self::Symmetric(buffer) => first(&buffer.view_of(), dtype, elems),
            Self::Plain(buffer) => first(&buffer.view_of(), dtype, elems),
        }
    }

    pub(super) fn symmetric(&self) -> Option<&SymmetricBuffer<u8>> {
        match self {
            Self::Symmetric(buffer) => Some(buffer),
            Self::Plain(_) => None,
        }
    }
}

/// The first elements of bytes.
fn first(bytes: &View<'_>, dtype: Dtype, elems: usize) -> Result<Held> {
    let part = bytes.part(0..elems.saturating_mul(dtype.bytes()), Dtype::U8)?;
    Ok(Held::new(dtype, &View { elems, ..part }))
}

/// Some elements of an operand.
fn part(held: &Held, range: Range<usize>) -> Result<Held> {
    Ok(Held::new(held.dtype, &held.view().part(range, held.dtype)?))
}

/// Some elements of an operand as a message to a rank, or from a rank unless the message `sends`.
pub(super) fn message_of(peer: usize, sends: bool, held: &Held, range: Range<usize>) -> Result<RankMessage> {
    Ok(RankMessage::new(peer, sends, held.dtype, &held.view().part(range, held.dtype)?))
}

/// The operands of part `number` of a GEMM that is cut into parts of `rows` rows.
pub(super) fn rows_of<'a>(
    product: &Product,
    operands: &[Tensor<'a>; 3],
    number: usize,
    rows: usize,
) -> Result<[Tensor<'a>; 3]> {
    let [left, right, result] = operands;
    let cut = |held: &Held, row: usize| part(held, number * rows * row..(number + 1) * rows * row);
    let scales = left.scales.as_ref().map(|scales| match product.scaling {
        Scaling::Rows => cut(scales, 1),
        _ => Ok(scales.again()),
    });
    let left = Tensor::held(cut(&left.memory, product.inner)?, scales.transpose()?);
    Ok([left, right.again(), Tensor::held(cut(&result.memory, product.columns)?, None)])
}

/// Refuses an operand of another type or length.
pub(super) fn check_operand(name: &str, held: &Held, dtype: Dtype, elems: usize, device: &Device) -> Result<()> {
    if held.dtype != dtype {
        return Err(Error::invalid(&format!("the {name}'s type"), held.dtype, format!("the plan has {dtype}")));
    }
    if held.elems != elems {
        return Err(Error::invalid(
            &format!("the {name}'s length"),
            held.elems,
            format!("the plan has {elems} elements"),
        ));
    }
    device.check_same(name, held.view().device)
}

/// Refuses GEMMs that plans do not support.
pub(super) fn check_product(product: &Product) -> Result<()> {
    product.check()?;
    if product.count != 1 {
        return Err(Error::invalid("count", product.count, "a plan multiplies one pair of factors"));
    }
    if product.left != Order::Rows {
        return Err(Error::unsupported("a left factor column after column", "a plan cuts the left factor into rows"));
    }
    Ok(())
}

/// Refuses reductions of partial results other than a sum and an average.
pub(super) fn check_reduction(reduction: Reduction) -> Result<()> {
    match reduction {
        Reduction::Sum | Reduction::Average => Ok(()),
        other => Err(Error::unsupported(format!("the {other} of partial products"), "they are summed or averaged")),
    }
}

/// Refuses a GEMM whose result is not a sum of partial results of the ranks.
pub(super) fn check_partial(product: &Product, reduction: Reduction) -> Result<()> {
    check_product(product)?;
    check_reduction(reduction)?;
    if product.relu {
        return Err(Error::unsupported("relu of a partial product", "the sum over the ranks comes after"));
    }
    Ok(())
}

/// The reason why the scales of rows prevent multiplying the parts of a GEMM separately, if they do: cuBLASLt needs scales that
/// begin at a multiple of 16 bytes.
pub(super) fn scales_refused(product: &Product, part_rows: usize) -> Option<&'static str> {
    let begin_apart = product.scaling == Scaling::Rows && !part_rows.is_multiple_of(4);
    begin_apart.then_some("the scales of a part do not begin at a multiple of 16 bytes")
}

/// Refuses invalid world sizes.
pub(super) fn check_world(world_size: usize) -> Result<()> {
    match world_size {
        1..=MAX_WORLD_SIZE => Ok(()),
        other => Err(Error::invalid("the world size", other, format!("a group has 1 to {MAX_WORLD_SIZE} ranks"))),
    }
}

/// Bytes of the heap for buffers of `buffers` bytes, and for a workspace, if any, for operands of up to `operand` bytes.
pub(super) fn heap_bytes(world_size: usize, buffers: &[usize], operand: Option<usize>) -> u64 {
    let all = buffers.iter().copied().chain(operand.map(|bytes| workspace_bytes(bytes, world_size)));
    all.map(|bytes| buffer_bytes(bytes.max(1) as u64, world_size)).sum()
}

#[cfg(test)]
#[path = "../../tests/unit/fused/plan.rs"]
mod tests;
