//! Matmul + reduce-scatter.

use std::fmt;
use std::sync::Arc;

use super::apart::UnfusedOperands;
use super::cost::PlanWork;
use super::division::Division;
use super::options::{FusedOptions, Planned};
use super::plan::{
    Plan, PlanMemory, PlanMessages, PlanRequest, check_operand, check_partial, check_world, heap_bytes, message_of,
    rows_of, scales_refused,
};
use crate::backend::{GroupCalls, NamedSettings, ProcessGroup};
use crate::collective::CopyParts;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::matmul::{Multiplier, Product, Tensor};
use crate::op::{Call, Held, Numbers, REDUCE_SCATTER, SEND_RECEIVE};
use crate::stream::{Queue, Target};
use crate::types::{Dtype, Reduction};

/// A plan of `result = this rank's part of the sum over the ranks of left right`. Made by
/// [`ProcessGroup::plan_matmul_reduce_scatter`]; usable from any thread, for any number of layers of the same shape.
#[must_use = "a plan runs only when it is enqueued"]
pub struct MatmulReduceScatter {
    plan: Plan,
    /// How the result is divided among the ranks.
    division: Division,
    /// The requested GEMM, equal on all ranks.
    product: Product,
    /// The GEMM of this rank, possibly without the bias.
    own_product: Product,
    rows: usize,
    reduction: Reduction,
    /// The partial result of this rank.
    partial: PlanMemory,
    /// The parts of all ranks for this rank, if parts are unequal.
    received: Option<PlanMemory>,
}

impl ProcessGroup {
    /// Plans a GEMM on each rank, and the reduce-scatter of these partial results along dimension `dim` of the result.
    /// Collective; blocks: the ranks compare their arguments, load the GEMM library and allocate memory, so that calls need not.
    ///
    /// The left factor is `[.., K]`, row after row. The result is `[.., N]`, and `dim` is any of its dimensions. Each rank
    /// rounds its partial result to the result's type. The partial results are summed as
    /// [`reduce_scatter`](Self::reduce_scatter) does, in f32 and in rank order, and rounded once more. For a sum only rank 0
    /// adds the bias to its partial result, so that the sum has the bias once; for an average every rank adds the bias.
    ///
    /// The plan allocates from the symmetric heap if symmetra kernels serve the group, else from the device: the
    /// partial result of a rank; for [`Way::Pipeline`](super::Way::Pipeline) also a workspace of the same size; for
    /// unequal parts also one part of the largest length for each rank.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks request different plans; [`Error::InvalidArgument`] for a shape of fewer than two
    /// dimensions, a nonexistent dimension or one that the world size does not divide, [`FusedOptions::rows`] that do not fit,
    /// and the errors of [`Product::check`]; [`Error::Unsupported`] for `relu`, other reductions than sum and average, a
    /// schedule that the shape or the group does not support, unequal parts if an earlier dimension is not 1, and without a
    /// library; [`Error::OutOfMemory`] if the heap has no room.
    pub fn plan_matmul_reduce_scatter(
        &self,
        left: &[usize],
        dim: usize,
        product: Product,
        options: FusedOptions,
    ) -> Result<MatmulReduceScatter> {
        MatmulReduceScatter::new(self.calls.share(), left, dim, product, &options, None)
    }
}

/// The GEMM of a rank, without the bias on the ranks that do not add the bias.
pub(super) fn partial_of(product: Product, reduction: Reduction, rank: usize) -> Product {
    let bias = product.bias && (rank == 0 || reduction == Reduction::Average);
    Product { bias, ..product }
}

/// The GEMM of a rank in a sum over the ranks.
pub(super) struct Partial<'a> {
    /// The requested GEMM, equal on all ranks.
    pub(super) asked: &'a Product,
    /// The GEMM of this rank, possibly without the bias.
    pub(super) own: &'a Product,
    pub(super) rows: usize,
}

impl Partial<'_> {
    /// The operands of this rank's GEMM, which writes `partial`; the sum of all ranks goes to `result`. Every rank checks the
    /// operands of the requested GEMM. A rank that does not add the bias then omits the bias.
    pub(super) fn operands<'op>(
        &self,
        multiplier: &Multiplier,
        left: Tensor<'op>,
        right: Tensor<'op>,
        partial: &Held,
        result: &Tensor<'op>,
    ) -> Result<[Tensor<'op>; 3]> {
        let mut call = [left, right, result.with_memory(partial.again())];
        multiplier.check(self.asked, self.rows, &call)?;
        check_result_apart(&call[0], &call[1], &result.memory)?;
        if !self.own.bias {
            call[1].bias = None;
        }
        Ok(call)
    }
}

/// Refuses a sum that overlaps a factor.
fn check_result_apart(left: &Tensor<'_>, right: &Tensor<'_>, result: &Held) -> Result<()> {
    let mut operands = UnfusedOperands::new();
    operands.reads("the left factor", None, Some(&left.memory));
    operands.reads("the left factor's scales", None, left.scales.as_ref());
    operands.right(None, right);
    operands.writes("the result", None, Some(result));
    operands.check()
}

/// The shape of the result for a left factor.
pub(super) fn result_shape(left: &[usize], product: &Product) -> Result<Vec<usize>> {
    let Some((inner, rows)) = left.split_last().filter(|(_, rows)| !rows.is_empty()) else {
        return Err(Error::invalid("the number of dimensions", left.len(), "a matrix has 2 or more"));
    };
    if *inner != product.inner {
        let limit = format!("inner of the product is {}", product.inner);
        return Err(Error::invalid("the last dimension of the left factor", inner, limit));
    }
    Ok(rows.iter().copied().chain([product.columns]).collect())
}

/// Checks the arguments of a plan.
fn divide(
    left: &[usize],
    dim: usize,
    product: &Product,
    options: &FusedOptions,
    world_size: usize,
) -> Result<Division> {
    check_partial(product, options.reduction)?;
    let shape = result_shape(left, product)?;
    let division = Division::of_whole(&shape, dim, options.rows.as_deref(), world_size)?;
    if !division.is_equal() && world_size > MAX_WORLD_SIZE {
        let reason = format!("a kernel sums {MAX_WORLD_SIZE} parts");
        return Err(Error::unsupported(format!("unequal parts over {world_size} ranks"), reason));
    }
    Ok(division)
}

impl MatmulReduceScatter {
    pub(super) fn new(
        over: Arc<dyn GroupCalls>,
        left: &[usize],
        dim: usize,
        product: Product,
        options: &FusedOptions,
        multiplier: Option<&Multiplier>,
    ) -> Result<Self> {
        const WHAT: &str = "a plan of matmul + reduce-scatter";
        let (rank, world) = (over.rank(), over.world_size());
        let reduction = options.reduction;
        let division = over.together(WHAT, divide(left, dim, &product, options, world))?;
        let (dtype, rows) = (product.result, division.elems() / product.columns);
        let part_bytes = division.part_elems(rank) * dtype.bytes();
        let work = PlanWork { world, products: &[product], rows, part_bytes };
        let refused = scales_refused(&product, rows / world);
        let settings: &NamedSettings<'_> =
            &[("left", &left), ("dim", &dim), ("rows", &division.lens), ("product", &product), ("options", options)];
        let asked =
            PlanRequest { what: WHAT, division: &division, options, cost: work.scattered(), refused, multiplier };
        let plan = Plan::new(over, settings, &asked)?;
        let part_rows = rows / plan.planned.parts;
        let own_product = partial_of(product, reduction, rank);
        plan.over.together(WHAT, plan.multiplier.prepare(&own_product, part_rows, plan.whole_sums))?;
        if let Some(own) = plan.pipeline() {
            own.reserve_workspace(part_bytes * world)?;
        }
        let partial = plan.memory(division.elems() * dtype.bytes())?;
        let most = division.largest_part() * dtype.bytes();
        let received = (!division.is_equal()).then(|| plan.memory(most * world)).transpose()?;
        Ok(Self { plan, division, product, own_product, rows, reduction, partial, received })
    }

    /// Enqueues the GEMM and the reduce-scatter, and returns. On [`Backend::Host`](crate::environment::Backend::Host)
    /// the call blocks until its result is complete. If the GEMM has a bias, `right` has the bias on every rank.
    /// `result` is this rank's part. In a capture, the graph borrows the plan.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands whose type, length or device does not fit, missing or unneeded scales or bias, and
    /// a result that overlaps another operand; [`Error::Unsupported`] on a stream that is being captured. After these errors
    /// nothing is enqueued. Also the errors of [`reduce_scatter`](ProcessGroup::reduce_scatter) and of
    /// [`Multiplier::enqueue`](crate::matmul::Multiplier::enqueue).
    pub fn enqueue<'op>(
        &'op self,
        left: Tensor<'op>,
        right: Tensor<'op>,
        result: Tensor<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run([left, right], &result, Target::of(&queue))
    }

    /// The schedule of the plan, and the reason for it.
    pub fn explain(&self) -> &Planned {
        &self.plan.planned
    }

    /// An upper bound for the bytes of the symmetric heap that such a plan uses on each rank, for
    /// [`Config::heap_bytes`](crate::Config::heap_bytes). Not collective.
    ///
    /// # Errors
    /// The errors of [`plan_matmul_reduce_scatter`](ProcessGroup::plan_matmul_reduce_scatter) that depend only on the arguments.
    pub fn heap_bytes(
        world_size: usize,
        left: &[usize],
        dim: usize,
        product: &Product,
        options: &FusedOptions,
    ) -> Result<u64> {
        check_world(world_size)?;
        let division = divide(left, dim, product, options, world_size)?;
        let parts = division.largest_part() * product.result.bytes() * world_size;
        let received = (!division.is_equal()).then_some(parts);
        let buffers: Vec<usize> = [division.elems() * product.result.bytes()].into_iter().chain(received).collect();
        Ok(heap_bytes(world_size, &buffers, Some(parts)))
    }

    pub(crate) fn run(&self, factors: [Tensor<'_>; 2], result: &Tensor<'_>, queue: Target<'_>) -> Result<()> {
        let (plan, division, dtype) = (&self.plan, &self.division, self.product.result);
        let rank = plan.over.rank();
        check_operand("result", &result.memory, dtype, division.part_elems(rank), plan.over.device())?;
        let partial = self.partial.held(dtype, division.elems())?;
        let call = Partial { asked: &self.product, own: &self.own_product, rows: self.rows };
        let [left, right] = factors;
        let call = call.operands(&plan.multiplier, left, right, &partial, result)?;
        self.run_checked(&call, &partial, &result.memory, queue)
    }

    /// The memory for the partial result of this rank.
    pub(super) fn partial(&self) -> &PlanMemory {
        &self.partial
    }

    /// Enqueues a call with checked operands. The GEMM writes `partial`, which is the plan's memory.
    pub(super) fn run_checked(
        &self,
        call: &[Tensor<'_>; 3],
        partial: &Held,
        result: &Held,
        queue: Target<'_>,
    ) -> Result<()> {
        let (plan, dtype) = (&self.plan, self.product.result);
        plan.call(queue, || {
            let Some(own) = plan.pipeline() else {
                plan.multiplier.enqueue_checked(&self.own_product, self.rows, call, plan.whole_sums, queue)?;
                return self.scatter(partial, result, queue);
            };
            let mut multiply = |destination: usize| self.multiply_part(destination, call, queue);
            let parts = CopyParts::new(&mut multiply);
            let scatter = Call::new(&REDUCE_SCATTER, dtype).options(self.reduction);
            let scatter = scatter.input(partial.view()).output(result.view());
            own.run_by_parts(&scatter, Some(parts), queue)?.wait_untyped(queue)
        })
    }

    /// Sums the partial results.
    fn scatter(&self, partial: &Held, result: &Held, queue: Target<'_>) -> Result<()> {
        let (plan, division, dtype) = (&self.plan, &self.division, self.product.result);
        let Some(received) = &self.received else {
            let call = Call::new(&REDUCE_SCATTER, dtype).options(self.reduction);
            let call = call.input(partial.view()).output(result.view());
            return plan.over.run(&call.numbers(Numbers::Along(division.dim, &division.shape)), queue);
        };
        let (rank, world) = (plan.over.rank(), plan.over.world_size());
        let own = division.part_elems(rank);
        let received = received.held(dtype, own * world)?;
        let sent = (0..world).filter(|peer| division.part_elems(*peer) > 0);
        let sent = sent.map(|peer| message_of(peer, true, partial, division.part(peer)));
        let arrived = (0..world).filter(|_| own > 0);
        let arrived = arrived.map(|peer| message_of(peer, false, &received, peer * own..(peer + 1) * own));
        let messages = sent.chain(arrived).collect::<Result<PlanMessages>>()?;
        plan.over.run(&Call::new(&SEND_RECEIVE, Dtype::U8).numbers(Numbers::Messages(&messages)), queue)?;
        plan.over.local().reduce_own(dtype, self.reduction, world, &received.view(), &result.view(), queue)
    }

    /// Multiplies the rows for one rank.
    fn multiply_part(&self, destination: usize, call: &[Tensor<'_>; 3], queue: Target<'_>) -> Result<()> {
        let rows = self.rows / self.plan.planned.parts;
        let operands = rows_of(&self.own_product, call, destination, rows)?;
        self.plan.multiplier.enqueue_checked(&self.own_product, rows, &operands, self.plan.whole_sums, queue)
    }
}

impl fmt::Debug for MatmulReduceScatter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MatmulReduceScatter({:?} along {}, {})", self.division.shape, self.division.dim, self.plan.planned)
    }
}
