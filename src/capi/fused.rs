//! GEMMs fused with collectives, of a communicator or of a parallel group.

use std::sync::Arc;

use super::collectives::GroupHandle;
use super::mirror::{Mirrored, value};
use super::report::guard;
use super::tensor::{held, maybe_held, target};
use super::{Device, Report};
use crate::error::Result;
use crate::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Planned, Way};
use crate::matmul::{Product, Tensor};
use crate::stream::Target;
use bridge::{
    AskedFactor, AskedFused, AskedOperands, AskedProduct, ExplainedPlan, MaybeOperand, MaybeTime, Operand, Queue,
};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    /// Mirrors `symmetra::FusedOptions`. No rows: equal parts.
    struct AskedFused<'a> {
        way: u32,
        reduction: u32,
        has_rows: bool,
        rows: &'a [usize],
    }

    /// The right factor and the result of a GEMM.
    struct AskedOperands {
        right: AskedFactor,
        result: Operand,
    }

    /// Mirrors `std::optional<double>`.
    struct MaybeTime {
        set: bool,
        us: f64,
    }

    /// Mirrors `symmetra::Planned`.
    struct ExplainedPlan {
        way: u32,
        parts: usize,
        library: String,
        predicted: MaybeTime,
        bound: MaybeTime,
        reason: String,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/matmul.rs.h");
        include!("symmetra/src/capi/mod.rs.h");

        type AskedFactor = crate::capi::matmul::bridge::AskedFactor;
        type AskedProduct = crate::capi::matmul::bridge::AskedProduct;
        type GroupHandle = crate::capi::collectives::GroupHandle;
        type MaybeOperand = crate::capi::bridge::MaybeOperand;
        type Operand = crate::capi::bridge::Operand;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        fn way_name(way: u32) -> Result<&'static str>;

        type GatheringPlan;
        fn plan_all_gather_matmul(
            group: &GroupHandle,
            shard: &[usize],
            dim: usize,
            products: &[AskedProduct],
            options: &AskedFused,
        ) -> Result<Box<GatheringPlan>>;
        fn gathering_explain(plan: &GatheringPlan) -> ExplainedPlan;
        fn gathering_heap_bytes(
            world_size: usize,
            shard: &[usize],
            dim: usize,
            products: &[AskedProduct],
            options: &AskedFused,
        ) -> Result<u64>;
        unsafe fn gathering_enqueue(
            plan: &GatheringPlan,
            shard: &AskedFactor,
            gathered: &MaybeOperand,
            products: &[AskedOperands],
            queue: Queue,
        ) -> Result<()>;

        type SummingPlan;
        fn plan_matmul_reduce_scatter(
            group: &GroupHandle,
            left: &[usize],
            dim: usize,
            product: &AskedProduct,
            options: &AskedFused,
        ) -> Result<Box<SummingPlan>>;
        fn plan_matmul_all_reduce(
            group: &GroupHandle,
            left: &[usize],
            product: &AskedProduct,
            options: &AskedFused,
        ) -> Result<Box<SummingPlan>>;
        fn summing_explain(plan: &SummingPlan) -> ExplainedPlan;
        fn scattering_heap_bytes(
            world_size: usize,
            left: &[usize],
            dim: usize,
            product: &AskedProduct,
            options: &AskedFused,
        ) -> Result<u64>;
        fn reducing_heap_bytes(
            world_size: usize,
            left: &[usize],
            product: &AskedProduct,
            options: &AskedFused,
        ) -> Result<u64>;
        unsafe fn summing_enqueue(
            plan: &SummingPlan,
            left: &AskedFactor,
            operands: &AskedOperands,
            queue: Queue,
        ) -> Result<()>;
    }
}

fn way_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Way::name))
}

impl TryFrom<&AskedFused<'_>> for FusedOptions {
    type Error = crate::Error;

    fn try_from(asked: &AskedFused<'_>) -> Result<Self> {
        let rows = asked.has_rows.then(|| asked.rows.to_vec());
        Ok(Self { way: value(asked.way)?, reduction: value(asked.reduction)?, rows })
    }
}

impl From<&Planned> for ExplainedPlan {
    fn from(planned: &Planned) -> Self {
        let time = |us: Option<f64>| MaybeTime { set: us.is_some(), us: us.unwrap_or(0.0) };
        Self {
            way: planned.way.mirror(),
            parts: planned.parts,
            library: planned.library.clone(),
            predicted: time(planned.predicted_us),
            bound: time(planned.bound_us),
            reason: planned.reason.clone(),
        }
    }
}

/// An all-gather with GEMMs, which graphs of its calls keep alive.
pub struct GatheringPlan {
    plan: Arc<AllGatherMatmul>,
    device: Device,
}

/// A GEMM whose partial results are summed.
enum Summing {
    Scattered(MatmulReduceScatter),
    Whole(MatmulAllReduce),
}

/// A GEMM with a sum over the ranks, which graphs of its calls keep alive.
pub struct SummingPlan {
    plan: Arc<Summing>,
    device: Device,
}

fn plan_all_gather_matmul(
    group: &GroupHandle,
    shard: &[usize],
    dim: usize,
    products: &[AskedProduct],
    options: &AskedFused<'_>,
) -> Result<Box<GatheringPlan>, Report> {
    guard(|| {
        let products = products.iter().map(Product::try_from).collect::<Result<Vec<_>>>()?;
        let options = FusedOptions::try_from(options)?;
        let plan = group.plan_all_gather_matmul(shard, dim, &products, options)?;
        Ok(Box::new(GatheringPlan { plan: Arc::new(plan), device: group.device().clone() }))
    })
}

fn gathering_explain(plan: &GatheringPlan) -> ExplainedPlan {
    plan.plan.explain().into()
}

fn gathering_heap_bytes(
    world_size: usize,
    shard: &[usize],
    dim: usize,
    products: &[AskedProduct],
    options: &AskedFused<'_>,
) -> Result<u64, Report> {
    guard(|| {
        let products = products.iter().map(Product::try_from).collect::<Result<Vec<_>>>()?;
        AllGatherMatmul::heap_bytes(world_size, shard, dim, &products, &FusedOptions::try_from(options)?)
    })
}

fn scattering_heap_bytes(
    world_size: usize,
    left: &[usize],
    dim: usize,
    product: &AskedProduct,
    options: &AskedFused<'_>,
) -> Result<u64, Report> {
    guard(|| {
        let (product, options) = (Product::try_from(product)?, FusedOptions::try_from(options)?);
        MatmulReduceScatter::heap_bytes(world_size, left, dim, &product, &options)
    })
}

fn reducing_heap_bytes(
    world_size: usize,
    left: &[usize],
    product: &AskedProduct,
    options: &AskedFused<'_>,
) -> Result<u64, Report> {
    guard(|| {
        let (product, options) = (Product::try_from(product)?, FusedOptions::try_from(options)?);
        MatmulAllReduce::heap_bytes(world_size, left, &product, &options)
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn gathering_enqueue(
    GatheringPlan { plan, device }: &GatheringPlan,
    shard: &AskedFactor,
    gathered: &MaybeOperand,
    products: &[AskedOperands],
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let part = unsafe { shard.resolve(device) }?;
        // SAFETY: passed on.
        let whole = unsafe { maybe_held(device, gathered) }?.map(|whole| Tensor::held(whole, None));
        // SAFETY: passed on.
        let resolved = |asked: &AskedOperands| unsafe { asked.resolve(device) };
        let calls = products.iter().map(resolved).collect::<Result<Vec<_>>>()?;
        let operands = products.iter().flat_map(AskedOperands::operands);
        // SAFETY: passed on.
        let queue = unsafe { target(queue, shard.operands().into_iter().chain([&gathered.operand]).chain(operands)) }?;
        queue.keep(plan);
        plan.run(part, whole, calls, queue)
    })
}

impl AskedOperands {
    fn operands(&self) -> [&Operand; 4] {
        let [right, scales, bias] = self.right.operands();
        [right, scales, bias, &self.result]
    }

    /// The right factor and the result.
    ///
    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    unsafe fn resolve(&self, device: &Device) -> Result<(Tensor<'static>, Tensor<'static>)> {
        // SAFETY: passed on.
        let right = unsafe { self.right.resolve(device) }?;
        // SAFETY: passed on.
        Ok((right, Tensor::held(unsafe { held(device, &self.result) }?, None)))
    }
}

fn plan_matmul_reduce_scatter(
    group: &GroupHandle,
    left: &[usize],
    dim: usize,
    product: &AskedProduct,
    options: &AskedFused<'_>,
) -> Result<Box<SummingPlan>, Report> {
    guard(|| {
        let (product, options) = (Product::try_from(product)?, FusedOptions::try_from(options)?);
        let plan = group.plan_matmul_reduce_scatter(left, dim, product, options)?;
        Ok(SummingPlan::new(Summing::Scattered(plan), group))
    })
}

fn plan_matmul_all_reduce(
    group: &GroupHandle,
    left: &[usize],
    product: &AskedProduct,
    options: &AskedFused<'_>,
) -> Result<Box<SummingPlan>, Report> {
    guard(|| {
        let (product, options) = (Product::try_from(product)?, FusedOptions::try_from(options)?);
        let plan = group.plan_matmul_all_reduce(left, product, options)?;
        Ok(SummingPlan::new(Summing::Whole(plan), group))
    })
}

impl SummingPlan {
    fn new(plan: Summing, group: &GroupHandle) -> Box<Self> {
        Box::new(Self { plan: Arc::new(plan), device: group.device().clone() })
    }
}

fn summing_explain(plan: &SummingPlan) -> ExplainedPlan {
    match &*plan.plan {
        Summing::Scattered(plan) => plan.explain().into(),
        Summing::Whole(plan) => plan.explain().into(),
    }
}

impl Summing {
    fn run(&self, factors: [Tensor<'_>; 2], result: &Tensor<'_>, queue: Target<'_>) -> Result<()> {
        match self {
            Self::Scattered(plan) => plan.run(factors, result, queue),
            Self::Whole(plan) => plan.run(factors, result, queue),
        }
    }
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn summing_enqueue(
    SummingPlan { plan, device }: &SummingPlan,
    left: &AskedFactor,
    operands: &AskedOperands,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let factor = unsafe { left.resolve(device) }?;
        // SAFETY: passed on.
        let (right, result) = unsafe { operands.resolve(device) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, left.operands().into_iter().chain(operands.operands())) }?;
        queue.keep(plan);
        plan.run([factor, right], &result, queue)
    })
}
