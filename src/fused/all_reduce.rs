//! Matmul + all-reduce.

use std::fmt;
use std::sync::Arc;

use super::cost::PlanWork;
use super::division::{Division, check_bytes};
use super::options::{FusedOptions, Planned, Way};
use super::plan::{
    Plan, PlanMemory, PlanRequest, check_operand, check_partial, check_world, heap_bytes, scales_refused,
};
use super::reduce_scatter::{MatmulReduceScatter, Partial, partial_of, result_shape};
use crate::backend::{GroupCalls, NamedSettings, ProcessGroup};
use crate::error::{Error, Result};
use crate::matmul::{Product, Tensor};
use crate::op::{ALL_GATHER, ALL_REDUCE, Call};
use crate::stream::{Queue, Target};
use crate::types::Reduction;

/// A plan of `result = the sum over the ranks of left right`. Made by [`ProcessGroup::plan_matmul_all_reduce`]; usable from
/// any thread, for any number of layers of the same shape.
#[must_use = "a plan runs only when it is enqueued"]
pub struct MatmulAllReduce {
    plan: Plan,
    /// The requested GEMM, equal on all ranks.
    product: Product,
    /// The GEMM of this rank, possibly without the bias.
    own_product: Product,
    rows: usize,
    reduction: Reduction,
    parts: SumWay,
}

/// How the sum is computed.
enum SumWay {
    /// An all-reduce of the partial result in this memory.
    Whole(PlanMemory),
    /// A pipelined reduce-scatter into memory for this rank's part, followed by an all-gather.
    Parts(Box<MatmulReduceScatter>, PlanMemory),
}

impl ProcessGroup {
    /// Plans a GEMM on each rank, and the all-reduce of these partial results. Collective; blocks: the ranks compare their
    /// arguments, load the GEMM library and allocate memory, so that calls need not.
    ///
    /// The left factor is `[.., K]`, row after row. Each rank rounds its partial result to the result's type; the partial
    /// results are combined as an [`all_reduce`](Self::all_reduce) does. For a sum only rank 0 adds the bias to its partial
    /// result, so that the sum has the bias once; for an average every rank adds the bias.
    ///
    /// The plan allocates from the symmetric heap if symmetra kernels serve the group, else from the device: the
    /// partial result of a rank, and for [`Way::Pipeline`] also a workspace and a part.
    ///
    /// # Errors
    /// The errors of [`plan_matmul_reduce_scatter`](Self::plan_matmul_reduce_scatter);
    /// [`Error::Unsupported`](crate::Error::Unsupported) for [`FusedOptions::rows`].
    pub fn plan_matmul_all_reduce(
        &self,
        left: &[usize],
        product: Product,
        options: FusedOptions,
    ) -> Result<MatmulAllReduce> {
        MatmulAllReduce::new(self.calls.share(), left, product, &options)
    }
}

/// Checks the arguments of a plan. All rows are one dimension: parts of a pipeline are rows.
fn divide(left: &[usize], product: &Product, options: &FusedOptions, world_size: usize) -> Result<Division> {
    check_partial(product, options.reduction)?;
    if let Some(rows) = &options.rows {
        return Err(Error::unsupported(format!("rows {rows:?} of an all-reduce"), "every rank gets all rows"));
    }
    let shape = result_shape(left, product)?;
    check_bytes(&shape, world_size)?;
    let rows: usize = shape.iter().rev().skip(1).product();
    let lens = if rows.is_multiple_of(world_size) { vec![rows / world_size; world_size] } else { vec![rows] };
    Ok(Division { shape: vec![rows, product.columns], dim: 0, lens })
}

impl MatmulAllReduce {
    fn new(over: Arc<dyn GroupCalls>, left: &[usize], product: Product, options: &FusedOptions) -> Result<Self> {
        const WHAT: &str = "a plan of matmul + all-reduce";
        let (rank, world, reduction) = (over.rank(), over.world_size(), options.reduction);
        let division = over.together(WHAT, divide(left, &product, options, world))?;
        let rows = division.shape[0];
        let divides = rows.is_multiple_of(world);
        let dtype = product.result;
        let part_bytes = division.part_elems(0) * dtype.bytes();
        let work = PlanWork { world, products: &[product], rows, part_bytes };
        let settings: &NamedSettings<'_> = &[("left", &left), ("product", &product), ("options", options)];
        let refused = (!divides).then_some("the world size does not divide the rows");
        let refused = refused.or_else(|| scales_refused(&product, rows / world));
        let cost = work.all_reduced();
        let asked = PlanRequest { what: WHAT, division: &division, options, cost, refused, multiplier: None };
        let plan = Plan::new(over, settings, &asked)?;
        let own_product = partial_of(product, reduction, rank);
        let parts = match plan.planned.way {
            Way::Pipeline => {
                let pipeline = FusedOptions { way: Way::Pipeline, reduction, rows: None };
                let (over, left) = (plan.over.clone(), [rows, product.inner]);
                let scattered = MatmulReduceScatter::new(over, &left, 0, product, &pipeline, Some(&plan.multiplier))?;
                let bytes = division.part_elems(rank) * dtype.bytes();
                SumWay::Parts(Box::new(scattered), plan.memory(bytes)?)
            }
            _ => {
                plan.over.together(WHAT, plan.multiplier.prepare(&own_product, rows, plan.whole_sums))?;
                SumWay::Whole(plan.memory(division.elems() * dtype.bytes())?)
            }
        };
        Ok(Self { plan, product, own_product, rows, reduction, parts })
    }

    /// Enqueues the GEMM and the all-reduce, and returns. On [`Backend::Host`](crate::environment::Backend::Host) the
    /// call blocks until its result is complete. If the GEMM has a bias, `right` has the bias on every rank. In a
    /// capture, the graph borrows the plan.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for operands whose type, length or device does not fit, missing
    /// or unneeded scales or bias, and a result that overlaps another operand;
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a stream that is being captured. After these errors nothing is
    /// enqueued. Also the errors of [`all_reduce`](ProcessGroup::all_reduce) and of
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
    /// The errors of [`plan_matmul_all_reduce`](ProcessGroup::plan_matmul_all_reduce) that depend only on the arguments.
    pub fn heap_bytes(world_size: usize, left: &[usize], product: &Product, options: &FusedOptions) -> Result<u64> {
        check_world(world_size)?;
        let division = divide(left, product, options, world_size)?;
        let whole = division.elems() * product.result.bytes();
        Ok(heap_bytes(world_size, &[whole, division.largest_part() * product.result.bytes()], Some(whole)))
    }

    pub(crate) fn run(&self, factors: [Tensor<'_>; 2], result: &Tensor<'_>, queue: Target<'_>) -> Result<()> {
        let (plan, dtype, elems) = (&self.plan, self.product.result, self.rows * self.product.columns);
        check_operand("result", &result.memory, dtype, elems, plan.over.device())?;
        let memory = match &self.parts {
            SumWay::Whole(memory) => memory,
            SumWay::Parts(scattered, _) => scattered.partial(),
        };
        let partial = memory.held(dtype, elems)?;
        let call = Partial { asked: &self.product, own: &self.own_product, rows: self.rows };
        let [left, right] = factors;
        let call = call.operands(&plan.multiplier, left, right, &partial, result)?;
        plan.call(queue, || match &self.parts {
            SumWay::Whole(_) => {
                plan.multiplier.enqueue_checked(&self.own_product, self.rows, &call, plan.whole_sums, queue)?;
                let sum = Call::new(&ALL_REDUCE, dtype).options(self.reduction);
                plan.over.run(&sum.input(partial.view()).output(result.memory.view()), queue)
            }
            SumWay::Parts(scattered, memory) => {
                let own = memory.held(dtype, elems / plan.over.world_size())?;
                scattered.run_checked(&call, &partial, &own, queue)?;
                let gather = Call::new(&ALL_GATHER, dtype);
                plan.over.run(&gather.input(own.view()).output(result.memory.view()), queue)
            }
        })
    }
}

impl fmt::Debug for MatmulAllReduce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MatmulAllReduce({} rows, {}, {})", self.rows, self.product, self.plan.planned)
    }
}
