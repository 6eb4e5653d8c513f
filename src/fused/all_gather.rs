//! All-gather + matmul.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::apart::UnfusedOperands;
use super::cost::PlanWork;
use super::division::Division;
use super::options::{FusedOptions, Planned};
use super::plan::{
    Plan, PlanMemory, PlanRequest, check_operand, check_product, check_world, heap_bytes, rows_of, scales_refused,
};
use crate::backend::{GroupCalls, NamedSettings, ProcessGroup};
use crate::collective::CopyParts;
use crate::error::{Error, Result};
use crate::matmul::{Numeric, Product, Scaling, Tensor, check_unit};
use crate::op::{ALL_GATHER, Call, Held};
use crate::stream::{Queue, Target};
use crate::types::Dtype;

/// A plan of `result_i = gathered right_i`: the shards of all ranks are gathered along a dimension, and the gathered matrix is
/// multiplied by one or more right factors. Made by [`ProcessGroup::plan_all_gather_matmul`]; usable from any thread, for
/// any number of layers of the same shape.
#[must_use = "a plan runs only when it is enqueued"]
pub struct AllGatherMatmul {
    plan: Plan,
    /// How the left factor is divided among the ranks.
    division: Division,
    products: Vec<Product>,
    /// Rows of each GEMM.
    rows: usize,
    /// Memory for the gathered left factor if the caller passes none.
    gathered: PlanMemory,
    /// The scales of the gathered rows, and how they are cut.
    scales: Option<(Division, PlanMemory)>,
}

impl ProcessGroup {
    /// Plans an all-gather of shards of this shape along dimension `dim`, and the GEMMs of the gathered matrix with right
    /// factors. Collective; blocks: the ranks compare their arguments, load the GEMM library and allocate memory, so that calls
    /// need not.
    ///
    /// The shard is `[.., K]`, row after row; `dim` is any of its dimensions. If `dim` is the last dimension, the gathered matrix
    /// is `[.., world size x K]`, and `inner` of each GEMM is world size x K; else `inner` is K. GEMMs share the left factor: its
    /// type, its layout, which is rows, and its scales. With [`Scaling::Tensor`] the left factor has one scale, equal on all
    /// ranks. With [`Scaling::Rows`] each shard has a scale for each of its rows, and scales are gathered too; if the last
    /// dimension is cut, a row's scale must be equal on all ranks.
    ///
    /// The plan allocates the gathered matrix and its scales: from the symmetric heap if symmetra kernels serve the
    /// group, else from the device.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks request different plans; [`Error::InvalidArgument`] for a shape of fewer than two
    /// dimensions, a nonexistent dimension, [`FusedOptions::rows`] that do not fit, an empty list of GEMMs, and the errors of
    /// [`Product::check`]; [`Error::Unsupported`] for a schedule that the shape or the group does not support, for unequal parts
    /// if an earlier dimension is not 1, and without a library; [`Error::OutOfMemory`] if the heap has no room.
    pub fn plan_all_gather_matmul(
        &self,
        shard: &[usize],
        dim: usize,
        products: &[Product],
        options: FusedOptions,
    ) -> Result<AllGatherMatmul> {
        AllGatherMatmul::new(self.calls.share(), shard, dim, products, &options)
    }
}

/// Checks that the GEMMs fit the left factor, which they share.
fn check_products(products: &[Product], inner: usize) -> Result<()> {
    let Some(first) = products.first() else {
        return Err(Error::invalid("the number of products", 0, "a plan has 1 or more"));
    };
    for (number, product) in products.iter().enumerate() {
        check_product(product)?;
        if product.inner != inner {
            let limit = format!("the gathered rows have {inner} elements");
            return Err(Error::invalid(&format!("inner of product {number}"), product.inner, limit));
        }
        let of = |product: &Product| (product.numeric.dtypes()[0], product.scaling);
        if of(product) != of(first) {
            let limit = format!("product 0 has {:?}, and all share the left factor", of(first));
            return Err(Error::invalid(
                &format!("type and scaling of product {number}"),
                format!("{:?}", of(product)),
                limit,
            ));
        }
    }
    Ok(())
}

/// Bytes of the memory of a plan.
struct GatherBytes {
    /// Bytes of the gathered left factor.
    whole: usize,
    /// Bytes of the scales of its rows, if they are gathered.
    scales: Option<usize>,
}

/// Checks the arguments of a plan of one rank.
fn sizes(
    shard: &[usize],
    dim: usize,
    products: &[Product],
    options: &FusedOptions,
    rank: usize,
    world: usize,
) -> Result<(Division, GatherBytes)> {
    let division = Division::of_part(shard, dim, options.rows.as_deref(), rank, world)?;
    let inner = division.shape.last().copied().unwrap_or(0);
    check_products(products, inner)?;
    let element = products[0].numeric.dtypes()[0].bytes();
    let scaled = products[0].scaling == Scaling::Rows && !division.cuts_rows();
    let scales = scaled.then(|| division.elems() / inner * Dtype::F32.bytes());
    let sizes = GatherBytes { whole: division.elems() * element, scales };
    Ok((division, sizes))
}

impl AllGatherMatmul {
    fn new(
        over: Arc<dyn GroupCalls>,
        shard: &[usize],
        dim: usize,
        products: &[Product],
        options: &FusedOptions,
    ) -> Result<Self> {
        const WHAT: &str = "a plan of all-gather + matmul";
        let world = over.world_size();
        let checked = sizes(shard, dim, products, options, over.rank(), world);
        let (division, sizes) = over.together(WHAT, checked)?;
        let inner = division.shape.last().copied().unwrap_or(1);
        let rows = division.elems() / inner;
        let dtype = products[0].numeric.dtypes()[0];
        let part_rows = rows / world;
        let work = PlanWork { world, products, rows, part_bytes: division.part_elems(0) * dtype.bytes() };
        let refused = scales_refused(&products[0], part_rows);
        let settings: &NamedSettings<'_> = &[
            ("shape", &division.shape),
            ("dim", &dim),
            ("rows", &division.lens),
            ("products", &products),
            ("options", options),
        ];
        let asked =
            PlanRequest { what: WHAT, division: &division, options, cost: work.gathered(), refused, multiplier: None };
        let plan = Plan::new(over, settings, &asked)?;
        let pipelined = plan.planned.parts > 1;
        let part_rows = if pipelined { part_rows } else { rows };
        let prepared =
            products.iter().try_for_each(|product| plan.multiplier.prepare(product, part_rows, plan.whole_sums));
        plan.over.together(WHAT, prepared)?;
        let gathered = plan.memory(sizes.whole)?;
        let scales = sizes.scales.map(|bytes| plan.memory(bytes)).transpose()?;
        let scales = scales.map(|memory| (division.with_last(None), memory));
        Ok(Self { plan, products: products.to_vec(), rows, division, gathered, scales })
    }

    /// Enqueues the all-gather and the GEMMs, and returns. On [`Backend::Host`](crate::environment::Backend::Host)
    /// the call blocks until its results are complete. `shard` is this rank's part of the left factor, with its
    /// scales.
    /// `gathered`, if given, receives the gathered left factor, and its scales if scales are gathered and `gathered` has memory
    /// for them. `products` are right factor and result of each GEMM, in the order of the plan. Results have all rows of the
    /// gathered matrix. A symmetric shard lies at the same offset on every rank. Either all ranks or none pass `gathered`. The
    /// shard may be this rank's part of `gathered`, if parts are equal and contiguous. In a capture, the graph borrows the plan.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number of GEMMs than the plan's, operands whose type, length or device does not
    /// fit, a shard of 8-bit floats that does not begin at a multiple of 16 bytes, missing or unneeded scales or bias, and
    /// written memory that overlaps another operand; [`Error::Unsupported`] on a stream that is being captured. After these
    /// errors nothing is enqueued. Also the errors of [`all_gather`](ProcessGroup::all_gather) and of
    /// [`Multiplier::enqueue`](crate::matmul::Multiplier::enqueue).
    pub fn enqueue<'op>(
        &'op self,
        shard: Tensor<'op>,
        gathered: Option<Tensor<'op>>,
        products: impl IntoIterator<Item = (Tensor<'op>, Tensor<'op>)>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(shard, gathered, products, Target::of(&queue))
    }

    /// The schedule of the plan, and the reason for it.
    pub fn explain(&self) -> &Planned {
        &self.plan.planned
    }

    /// An upper bound for the bytes of the symmetric heap that such a plan uses on each rank, for
    /// [`Config::heap_bytes`](crate::Config::heap_bytes). `shard` is the shape of rank 0's shard. Not collective.
    ///
    /// # Errors
    /// The errors of [`plan_all_gather_matmul`](ProcessGroup::plan_all_gather_matmul) that depend only on the arguments.
    pub fn heap_bytes(
        world_size: usize,
        shard: &[usize],
        dim: usize,
        products: &[Product],
        options: &FusedOptions,
    ) -> Result<u64> {
        check_world(world_size)?;
        let (_, sizes) = sizes(shard, dim, products, options, 0, world_size)?;
        let buffers: Vec<usize> = [sizes.whole].into_iter().chain(sizes.scales).collect();
        Ok(heap_bytes(world_size, &buffers, None))
    }

    pub(crate) fn run<'op>(
        &self,
        shard: Tensor<'op>,
        gathered: Option<Tensor<'op>>,
        operands: impl IntoIterator<Item = (Tensor<'op>, Tensor<'op>)>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (plan, division) = (&self.plan, &self.division);
        let dtype = self.dtype();
        self.check_factor(&shard, gathered.as_ref())?;
        let whole = gathered.as_ref().map(|gathered| gathered.memory.again());
        let whole = whole.map_or_else(|| self.gathered.held(dtype, division.elems()), Ok)?;
        let scales = self.gathered_scales(&shard, gathered.as_ref())?;
        // On the stack for the usual number of GEMMs, so that a call allocates no memory.
        let mut calls: SmallVec<[[Tensor<'_>; 3]; 3]> = operands
            .into_iter()
            .map(|(right, result)| [Tensor::held(whole.again(), scales.as_ref().map(Held::again)), right, result])
            .collect();
        if calls.len() != self.products.len() {
            let limit = format!("the plan has {}", self.products.len());
            return Err(Error::invalid("the number of products", calls.len(), limit));
        }
        for (product, call) in self.products.iter().zip(&calls) {
            plan.multiplier.check(product, self.rows, call)?;
        }
        self.check_apart(&shard, gathered.as_ref(), &calls)?;
        plan.call(queue, || {
            if let (Some(own), Some((all, _)), Some(scales)) = (&shard.scales, &self.scales, &scales) {
                plan.gather(all, own, scales, queue)?;
            }
            let Some((own, kept)) = plan.pipeline().zip(self.gathered.symmetric()) else {
                plan.gather(division, &shard.memory, &whole, queue)?;
                let mut both = self.products.iter().zip(&calls);
                return both.try_for_each(|(product, call)| {
                    plan.multiplier.enqueue_checked(product, self.rows, call, plan.whole_sums, queue)
                });
            };
            // Peers write into the memory of the plan, which outlives a call that they have given up.
            let kept_whole = self.gathered.held(dtype, division.elems())?;
            calls.iter_mut().for_each(|[left, ..]| left.memory = kept_whole.again());
            let mut multiply = |source: usize| self.multiply_part(source, &shard.memory, &calls, queue);
            let call = Call::new(&ALL_GATHER, dtype).input(shard.memory.view()).output(whole.view());
            own.run_by_parts(&call, Some(CopyParts::pushed(kept, &mut multiply)), queue)?.wait_untyped(queue)
        })
    }

    /// The type of the left factor.
    fn dtype(&self) -> Dtype {
        self.products[0].numeric.dtypes()[0]
    }

    /// Checks this rank's part of the left factor, and the memory for the gathered matrix.
    fn check_factor(&self, shard: &Tensor<'_>, gathered: Option<&Tensor<'_>>) -> Result<()> {
        let (division, rank, dtype) = (&self.division, self.plan.over.rank(), self.dtype());
        let device = self.plan.over.device();
        check_operand("shard", &shard.memory, dtype, division.part_elems(rank), device)?;
        if matches!(self.products[0].numeric, Numeric::F8 { .. }) {
            // A pipeline multiplies this rank's part in place.
            check_unit("shard", shard.memory.strip().address as usize)?;
        }
        if shard.bias.is_some() {
            return Err(Error::invalid("operand", "a bias of the shard", "the bias belongs to the right factor"));
        }
        if let Some((all, _)) = &self.scales {
            let needed = all.part_elems(rank);
            let Some(scales) = &shard.scales else {
                let limit = format!("the plan has {needed} elements");
                return Err(Error::invalid("the shard's scales", "not given", limit));
            };
            check_operand("shard's scales", scales, Dtype::F32, needed, device)?;
        }
        let Some(gathered) = gathered else { return Ok(()) };
        check_operand("gathered memory", &gathered.memory, dtype, division.elems(), device)?;
        if gathered.bias.is_some() {
            return Err(Error::invalid(
                "operand",
                "a bias of the gathered memory",
                "the bias belongs to the right factor",
            ));
        }
        match (&gathered.scales, &self.scales) {
            (Some(scales), Some(_)) => check_operand("gathered memory's scales", scales, Dtype::F32, self.rows, device),
            (Some(_), None) => {
                Err(Error::invalid("the gathered memory's scales", "given", "the plan gathers no scales"))
            }
            (None, _) => Ok(()),
        }
    }

    /// The scales of the gathered matrix, in the caller's memory or the plan's. If scales are not gathered, the scales of the
    /// shard.
    fn gathered_scales(&self, shard: &Tensor<'_>, gathered: Option<&Tensor<'_>>) -> Result<Option<Held>> {
        let Some((_, memory)) = &self.scales else {
            // The check of the GEMM does the rest.
            return Ok(shard.scales.as_ref().map(Held::again));
        };
        let given = gathered.and_then(|gathered| gathered.scales.as_ref().map(Held::again));
        given.map_or_else(|| memory.held(Dtype::F32, self.rows), Ok).map(Some)
    }

    /// Refuses operands that overlap, except for a shard that is its part of the gathered memory.
    fn check_apart(&self, shard: &Tensor<'_>, gathered: Option<&Tensor<'_>>, calls: &[[Tensor<'_>; 3]]) -> Result<()> {
        let rank = self.plan.over.rank();
        let place =
            |division: &Division| (division.is_equal() && division.is_contiguous()).then(|| division.part(rank));
        let whole = gathered.map(|gathered| &gathered.memory);
        let scales = gathered.and_then(|gathered| gathered.scales.as_ref());
        let mut operands = UnfusedOperands::new();
        operands.reads_in_place("the shard", Some(&shard.memory), whole.zip(place(&self.division)));
        let part = self.scales.as_ref().and_then(|(division, _)| place(division));
        operands.reads_in_place("the shard's scales", shard.scales.as_ref(), scales.zip(part));
        operands.writes("the gathered memory", None, whole);
        operands.writes("the gathered memory's scales", None, scales);
        for (number, [_, right, result]) in calls.iter().enumerate() {
            operands.right(Some(number), right);
            operands.writes("the result", Some(number), Some(&result.memory));
        }
        operands.check()
    }

    /// Multiplies the part of one rank. This rank's part is read from the caller's memory.
    fn multiply_part(&self, source: usize, shard: &Held, calls: &[[Tensor<'_>; 3]], queue: Target<'_>) -> Result<()> {
        let rows = self.rows / self.plan.over.world_size();
        for (product, call) in self.products.iter().zip(calls) {
            let mut operands = rows_of(product, call, source, rows)?;
            if source == self.plan.over.rank() {
                operands[0].memory = shard.again();
            }
            self.plan.multiplier.enqueue_checked(product, rows, &operands, self.plan.whole_sums, queue)?;
        }
        Ok(())
    }
}

impl fmt::Debug for AllGatherMatmul {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "AllGatherMatmul({:?} along {}, {})", self.division.shape, self.division.dim, self.plan.planned)
    }
}
