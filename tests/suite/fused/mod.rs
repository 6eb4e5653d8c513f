//! GEMMs fused with collectives: values against an exact reference.

use fastrand::Rng;
use reference::element::{Real, WideElement};
use reference::gemm::{GemmCase, shard, stored, summed};
use symmetra::float8::F8E4M3;
use symmetra::fused::{FusedOptions, Way};
use symmetra::half::{bf16, f16};
use symmetra::matmul::{F8, Numeric, Order, Product, Scaling, Tensor};
use symmetra::{DeviceBuffer, Element, Reduction, Result, SymmetricBuffer};

use crate::support::extent::one_in;
use crate::support::{Rank, config, fits, is_host, threads};

/// Enqueues once, or in a graph that is launched twice, and waits.
macro_rules! run {
    ($rank:expr, $captured:expr, |$queue:ident| $enqueue:expr) => {{
        let Rank { communicator, stream, .. } = $rank;
        let ran: Result<()> = match $captured {
            false => (|$queue| $enqueue)(stream),
            true => stream
                .capture(|$queue| $enqueue)
                .and_then(|graph| graph.register().and_then(|()| (0..2).try_for_each(|_| graph.launch(stream)))),
        };
        ran.and_then(|()| communicator.synchronize(stream))
    }};
}

mod beside;
mod bits;
mod operands;
mod parts;
mod refused;
mod within;

const F8_CODES: Numeric = Numeric::F8 { left: F8::E4M3, right: F8::E4M3 };

/// Memory of an operand.
enum Room<T: Element> {
    Plain(DeviceBuffer<T>),
    Symmetric(SymmetricBuffer<T>),
}

impl<T: Element> Room<T> {
    /// Memory that holds these elements; of the symmetric heap, `most` elements on every rank, which is collective.
    fn holding(rank: &Rank, values: &[T], most: usize, symmetric: bool) -> Self {
        if !symmetric {
            return Self::Plain(DeviceBuffer::from_slice(values, &rank.stream).unwrap());
        }
        let buffer = rank.communicator.symmetric::<T>(most.max(1)).unwrap();
        let mut all = vec![T::zeroed(); buffer.len()];
        all[..values.len()].copy_from_slice(values);
        buffer.write(&all, &rank.stream).unwrap();
        Self::Symmetric(buffer)
    }

    /// The first elements.
    fn tensor(&self, elems: usize) -> Tensor<'_> {
        match self {
            Self::Plain(buffer) => Tensor::of(buffer.borrow().slice(0..elems).unwrap()),
            Self::Symmetric(buffer) => Tensor::of(buffer.slice(0..elems).unwrap()),
        }
    }

    fn read(&self, rank: &Rank, elems: usize) -> Vec<T> {
        let mut all = match self {
            Self::Plain(buffer) => buffer.read(&rank.stream).unwrap(),
            Self::Symmetric(buffer) => buffer.read(&rank.stream).unwrap(),
        };
        all.truncate(elems);
        all
    }
}

/// How a plan is created and used, equal on all ranks.
#[derive(Clone, Debug)]
struct Setup {
    /// Of the tensor that is cut.
    shape: Vec<usize>,
    dim: usize,
    lens: Vec<usize>,
    way: Way,
    captured: bool,
    /// Whether shard and result are symmetric.
    symmetric: [bool; 2],
    /// Whether the caller has memory for the gathered factor.
    keeps: bool,
    reduction: Reduction,
}

impl Setup {
    fn options(&self) -> FusedOptions {
        let mut options = FusedOptions::default();
        (options.way, options.reduction) = (self.way, self.reduction);
        options.rows = self.lens.windows(2).any(|pair| pair[0] != pair[1]).then(|| self.lens.clone());
        options
    }

    /// The shape of a rank's part.
    fn part_shape(&self, rank: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.dim] = self.lens[rank];
        shape
    }

    /// A rank's part of a tensor of this shape, or of a tensor with another last dimension.
    fn part<T: Copy>(&self, whole: &[T], rank: usize) -> Vec<T> {
        shard(whole, &self.shape, self.dim, &self.lens, rank)
    }

    /// Whether a pipeline has such parts.
    fn goes_part_by_part(&self) -> bool {
        let equal = self.lens.windows(2).all(|pair| pair[0] == pair[1]);
        let contiguous = self.shape[..self.dim].iter().all(|len| *len == 1);
        equal && contiguous && self.dim + 1 < self.shape.len() && self.lens.len() > 1
    }
}

/// Shapes whose last dimension is `last`, cut for `world` ranks.
fn setups(world: usize, last: usize, random: &mut Rng) -> Vec<Setup> {
    let uneven: Vec<usize> = (0..world).map(|rank| [3, 0, 5, 1][rank % 4]).collect();
    let sum = uneven.iter().sum();
    let mut all = Vec::new();
    for (shape, dim, lens) in [
        (vec![world, last], 0, vec![1; world]),
        (vec![20 * world, last], 0, vec![20; world]),
        (vec![1, 4 * world, 2, last], 1, vec![4; world]),
        (vec![3, 2 * world, last], 1, vec![2; world]),
        (vec![2, 3, world, last], 2, vec![1; world]),
        (vec![5, last], 1, vec![last / world; world]),
        (vec![sum, last], 0, uneven.clone()),
        (vec![1, sum, 3, last], 1, uneven),
    ] {
        let mut setup = Setup {
            shape,
            dim,
            lens,
            way: Way::Auto,
            captured: false,
            symmetric: [false; 2],
            keeps: random.bool(),
            reduction: Reduction::Sum,
        };
        let ways: &[Way] =
            if setup.goes_part_by_part() { &[Way::Sequence, Way::Pipeline] } else { &[Way::Auto, Way::Sequence] };
        for way in ways {
            setup.way = *way;
            setup.captured = random.bool();
            setup.symmetric = [random.bool(), random.bool()];
            setup.reduction =
                if world.is_power_of_two() && random.bool() { Reduction::Average } else { Reduction::Sum };
            all.push(setup.clone());
        }
    }
    // Every shape at some time, if not in each run.
    all.retain(|_| random.usize(0..one_in(world)) == 0);
    all
}

/// The factors of a rank: the left factor of all ranks, and its own right factors.
fn gather_cases<L: Real, R: Real, D: Real>(
    products: &[Product],
    rows: usize,
    (seed, rank): (u64, usize),
    draw: fn(&mut Rng) -> f32,
) -> Vec<GemmCase<L, R, D>> {
    let shared = GemmCase::<L, R, D>::draw(products[0], rows, &mut Rng::with_seed(seed), draw);
    let own = products.iter().enumerate().map(|(number, product)| {
        let mut random = Rng::with_seed(seed ^ (1 + number as u64 + 16 * rank as u64));
        let mut case = GemmCase::draw(*product, rows, &mut random, draw);
        case.left.clone_from(&shared.left);
        case.scales[0].clone_from(&shared.scales[0]);
        case
    });
    own.collect()
}

/// The results of a plan of all-gather + matmul, and whether the gathered factor is right.
fn gather<L: Real, R: Real, D: Real>(rank: &Rank, setup: &Setup, cases: &[GemmCase<L, R, D>]) -> Vec<Vec<D>> {
    let me = rank.rank();
    let products: Vec<Product> = cases.iter().map(|case| case.product).collect();
    let (whole, rows) = (&cases[0].left, cases[0].rows);
    let shard = setup.part(whole, me);
    let cuts_rows = setup.dim + 1 == setup.shape.len();
    let scales = match products[0].scaling {
        Scaling::Rows if !cuts_rows => setup.part(&cases[0].scales[0], me),
        _ => cases[0].scales[0].clone(),
    };
    let plan = rank
        .communicator
        .plan_all_gather_matmul(&setup.part_shape(me), setup.dim, &products, setup.options())
        .unwrap_or_else(|error| panic!("{setup:?}: {error}"));
    let runs = plan.explain().way;
    assert!(setup.way == Way::Auto || runs == setup.way, "{setup:?} runs as {runs}");
    let [from, into] = setup.symmetric;
    let left = Room::holding(rank, &shard, whole.len(), from);
    let left_scales = DeviceBuffer::from_slice(&scales, &rank.stream).unwrap();
    let gathered = Room::holding(rank, &vec![L::zeroed(); whole.len()], whole.len(), into);
    let rights: Vec<_> = cases
        .iter()
        .map(|case| {
            let Product { inner, columns, right, .. } = case.product;
            let values = stored(&case.right, right, [1, inner, columns]);
            (
                DeviceBuffer::from_slice(&values, &rank.stream).unwrap(),
                DeviceBuffer::from_slice(&case.bias, &rank.stream).unwrap(),
                DeviceBuffer::from_slice(&case.scales[1], &rank.stream).unwrap(),
                Room::holding(rank, &vec![D::zeroed(); rows * columns], rows * columns, into),
            )
        })
        .collect();
    let scaled = products[0].scaling != Scaling::None;
    let operands = || {
        let shard = left.tensor(shard.len());
        let shard = if scaled { shard.scaled(&left_scales) } else { shard };
        let each = cases.iter().zip(&rights).map(|(case, (right, bias, scales, result))| {
            let mut factor = Tensor::of(right);
            if scaled {
                factor = factor.scaled(scales);
            }
            if case.product.bias {
                factor = factor.biased(bias);
            }
            (factor, result.tensor(rows * case.product.columns))
        });
        (shard, setup.keeps.then(|| gathered.tensor(whole.len())), each.collect::<Vec<_>>())
    };
    let ran = run!(rank, setup.captured, |queue| {
        let (shard, gathered, products) = operands();
        plan.enqueue(shard, gathered, products, queue)
    });
    ran.unwrap_or_else(|error| panic!("{setup:?}: {error}"));
    if setup.keeps {
        let found = gathered.read(rank, whole.len());
        assert!(bytemuck::cast_slice::<L, u8>(&found) == bytemuck::cast_slice::<L, u8>(whole), "{setup:?}");
    }
    rights.iter().zip(cases).map(|((.., result), case)| result.read(rank, rows * case.product.columns)).collect()
}

/// Small whole numbers: sums are exact in every type.
fn whole_numbers(random: &mut Rng) -> f32 {
    if random.u8(0..3) == 0 { random.i32(-2..=2) as f32 } else { 0.0 }
}

/// GEMMs of one left factor.
fn products<D: Real>(inner: usize, numeric: Numeric, random: &mut Rng) -> Vec<Product> {
    let f8 = matches!(numeric, Numeric::F8 { .. });
    let scaling =
        if f8 { *random.choice(&[Scaling::None, Scaling::Tensor, Scaling::Rows]).unwrap() } else { Scaling::None };
    (0..random.usize(1..=3))
        .map(|_| {
            let mut product = Product::new(inner, if f8 { 16 } else { random.usize(1..40) }, numeric);
            (product.result, product.scaling) = (D::DTYPE, scaling);
            product.bias = random.bool() && !(f8 && D::DTYPE == symmetra::Dtype::F32);
            product.relu = random.bool();
            if !f8 && random.bool() {
                product.right = Order::Rows;
            }
            product
        })
        .collect()
}

/// Whether the device under test has GEMMs of a type with these scales.
fn has(numeric: Numeric, scaling: Scaling, rank: &Rank) -> bool {
    let f8 = matches!(numeric, Numeric::F8 { .. });
    let capability = rank.device.compute_capability();
    is_host() || !f8 || (capability >= (8, 9) && (scaling != Scaling::Rows || capability == (9, 0)))
}

fn gathers_exactly<L: Real, R: Real, D: Real>(world: usize, numeric: Numeric) {
    let seed = fastrand::u64(..);
    eprintln!("{numeric} as {} on {world} ranks: seed {seed}", D::DTYPE);
    threads(world, &config(), |rank| {
        let mut random = Rng::with_seed(seed);
        // A multiple of the world size and of the alignment that 8-bit floats need.
        let last = 16 * world;
        for (number, mut setup) in setups(world, last, &mut random).into_iter().enumerate() {
            let products = products::<D>(last, numeric, &mut random);
            let rows: usize = setup.shape.iter().rev().skip(1).product();
            if products[0].scaling == Scaling::Rows && !(rows / world).is_multiple_of(4) {
                // The scales of a part would not begin at a multiple of 16 bytes.
                setup.way = Way::Auto;
            }
            if !has(numeric, products[0].scaling, rank) {
                continue;
            }
            let cases = gather_cases::<L, R, D>(&products, rows, (seed + number as u64, rank.rank()), whole_numbers);
            for (case, found) in cases.iter().zip(gather(rank, &setup, &cases)) {
                let expected: Vec<f64> = case.expected().iter().map(|[value, _]| *value).collect();
                let found: Vec<f64> = found.into_iter().map(WideElement::wide).collect();
                assert_eq!(found, expected, "rank {}: {setup:?}, {:?}", rank.rank(), case.product);
            }
        }
    });
}

/// The left factor and the right factor of a rank, whose GEMM is a part of a sum.
fn partial_case<L: Real, R: Real, D: Real>(
    product: Product,
    rows: usize,
    (seed, rank): (u64, usize),
    draw: fn(&mut Rng) -> f32,
) -> GemmCase<L, R, D> {
    let mut case = GemmCase::draw(product, rows, &mut Rng::with_seed(seed ^ (1 + rank as u64)), draw);
    // The bias is that of the sum, so every rank has the same.
    case.bias = GemmCase::<L, R, D>::draw(product, 0, &mut Rng::with_seed(seed), draw).bias;
    case
}

/// The plan that sums GEMMs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sums {
    Scattered,
    Everywhere,
}

/// This rank's result of a plan that sums GEMMs.
fn sum<L: Real, R: Real, D: Real>(rank: &Rank, sums: Sums, setup: &Setup, case: &GemmCase<L, R, D>) -> Vec<D> {
    let (me, product, rows) = (rank.rank(), case.product, case.rows);
    let Product { inner, columns, right, .. } = product;
    let mut left_shape = setup.shape.clone();
    *left_shape.last_mut().unwrap() = inner;
    let stream = &rank.stream;
    let left = Room::holding(rank, &case.left, case.left.len(), setup.symmetric[0]);
    let factor = DeviceBuffer::from_slice(&stored(&case.right, right, [1, inner, columns]), stream).unwrap();
    let bias = DeviceBuffer::from_slice(&case.bias, stream).unwrap();
    let scales = case.scales.each_ref().map(|scales| DeviceBuffer::from_slice(scales, stream).unwrap());
    let most = rows * columns;
    let elems = if sums == Sums::Scattered { setup.part_shape(me).iter().product() } else { most };
    let result = Room::holding(rank, &vec![D::zeroed(); elems], most, setup.symmetric[1]);
    let operands = || {
        let (mut first, mut second) = (left.tensor(case.left.len()), Tensor::of(&factor));
        if product.scaling != Scaling::None {
            (first, second) = (first.scaled(&scales[0]), second.scaled(&scales[1]));
        }
        if product.bias {
            second = second.biased(&bias);
        }
        (first, second, result.tensor(elems))
    };
    let (communicator, options) = (&rank.communicator, setup.options());
    let (ran, explained) = match sums {
        Sums::Scattered => {
            let plan = communicator.plan_matmul_reduce_scatter(&left_shape, setup.dim, product, options);
            let plan = plan.unwrap_or_else(|error| panic!("{setup:?}, {product:?}: {error}"));
            let ran = run!(rank, setup.captured, |queue| {
                let (left, right, result) = operands();
                plan.enqueue(left, right, result, queue)
            });
            (ran, plan.explain().way)
        }
        Sums::Everywhere => {
            let plan = communicator.plan_matmul_all_reduce(&left_shape, product, options);
            let plan = plan.unwrap_or_else(|error| panic!("{setup:?}, {product:?}: {error}"));
            let ran = run!(rank, setup.captured, |queue| {
                let (left, right, result) = operands();
                plan.enqueue(left, right, result, queue)
            });
            (ran, plan.explain().way)
        }
    };
    ran.unwrap_or_else(|error| panic!("{sums:?}, {setup:?}, {product:?}: {error}"));
    assert!(setup.way == Way::Auto || explained == setup.way, "{setup:?} runs as {explained}");
    result.read(rank, elems)
}

/// A GEMM whose sum over the ranks a plan computes.
fn partial_product<D: Real>(inner: usize, columns: usize, numeric: Numeric, random: &mut Rng) -> Product {
    let mut product = products::<D>(inner, numeric, random).remove(0);
    (product.columns, product.relu) = (columns, false);
    product
}

fn sums_exactly<L: Real, R: Real, D: Real>(world: usize, numeric: Numeric) {
    let seed = fastrand::u64(..);
    eprintln!("{numeric} as {} on {world} ranks: seed {seed}", D::DTYPE);
    threads(world, &config(), |rank| {
        let mut random = Rng::with_seed(seed);
        let columns = 16 * world;
        for (number, mut setup) in setups(world, columns, &mut random).into_iter().enumerate() {
            let product = partial_product::<D>(32, columns, numeric, &mut random);
            let even = setup.options().rows.is_none();
            // An all-reduce has no parts for each rank: all rows are one dimension.
            let rows: usize = setup.shape.iter().rev().skip(1).product();
            let parts = rows.is_multiple_of(world) && world > 1;
            if product.scaling == Scaling::Rows && !(rows / world).is_multiple_of(4) {
                // The scales of a part would not begin at a multiple of 16 bytes.
                setup.way = Way::Auto;
            }
            let everywhere = even && (setup.way != Way::Pipeline || parts) && random.bool();
            let sums = if everywhere { Sums::Everywhere } else { Sums::Scattered };
            if !has(numeric, product.scaling, rank) {
                continue;
            }
            let case = |of: usize| partial_case::<L, R, D>(product, rows, (seed + number as u64, of), whole_numbers);
            let found = sum(rank, sums, &setup, &case(rank.rank()));
            let expected = summed((0..world).map(case), setup.reduction);
            let expected = if sums == Sums::Scattered { setup.part(&expected, rank.rank()) } else { expected };
            let expected: Vec<f64> = expected.into_iter().map(|value| D::of_single(value as f32).wide()).collect();
            let found: Vec<f64> = found.into_iter().map(WideElement::wide).collect();
            assert_eq!(found, expected, "rank {}: {sums:?}, {setup:?}, {product:?}", rank.rank());
        }
    });
}

macro_rules! worlds {
    ($($name:ident, $sums:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            if !fits($world) {
                return;
            }
            gathers_exactly::<f32, f32, f32>($world, Numeric::F32);
            gathers_exactly::<bf16, bf16, bf16>($world, Numeric::BF16);
            gathers_exactly::<F8E4M3, F8E4M3, bf16>($world, F8_CODES);
        }

        #[test]
        fn $sums() {
            if !fits($world) {
                return;
            }
            sums_exactly::<f32, f32, f32>($world, Numeric::F32);
            sums_exactly::<bf16, bf16, f32>($world, Numeric::BF16);
            sums_exactly::<f16, f16, f16>($world, Numeric::F16);
            sums_exactly::<F8E4M3, F8E4M3, bf16>($world, F8_CODES);
        }
    )*};
}

worlds! {
    gathers_world_1, sums_world_1: 1;
    gathers_world_2, sums_world_2: 2;
    gathers_world_3, sums_world_3: 3;
    gathers_world_4, sums_world_4: 4;
    gathers_world_8, sums_world_8: 8;
}
