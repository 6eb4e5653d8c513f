//! Plans and calls that are refused, and heaps that are large enough.

use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Way};
use symmetra::matmul::{F8, Numeric, Order, Product, Scaling, Tensor};
use symmetra::{DeviceBuffer, Error, Reduction};

use crate::support::{Rank, config, fits, threads};

/// The error of a bad plan contains the value and the limit on every rank.
#[test]
fn bad_plans_are_refused() {
    let world = 2;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, .. } = rank;
        let product = Product::new(8, 4, Numeric::F32);
        let with = |change: &dyn Fn(&mut FusedOptions)| {
            let mut options = FusedOptions::default();
            change(&mut options);
            options
        };
        let usual = FusedOptions::default;
        let rows = |rows: &[usize]| with(&|options| options.rows = Some(rows.to_vec()));
        let mut scaled = Product::new(32, 16, Numeric::F8 { left: F8::E4M3, right: F8::E4M3 });
        scaled.scaling = Scaling::Rows;
        let pipeline = || with(&|options| options.way = Way::Pipeline);
        let gather = |shard: &[usize], dim: usize, products: &[Product], options: FusedOptions| {
            communicator.plan_all_gather_matmul(shard, dim, products, options).map(drop).unwrap_err()
        };
        let scatter = |left: &[usize], dim: usize, product: Product, options: FusedOptions| {
            communicator.plan_matmul_reduce_scatter(left, dim, product, options).map(drop).unwrap_err()
        };
        let reduce = |left: &[usize], product: Product, options: FusedOptions| {
            communicator.plan_matmul_all_reduce(left, product, options).map(drop).unwrap_err()
        };
        let changed = |change: &dyn Fn(&mut Product)| {
            let mut changed = product;
            change(&mut changed);
            changed
        };
        let mine = rank.rank() + 1;
        for (error, expected) in [
            (gather(&[8], 0, &[product], usual()), "the number of dimensions is 1, but a matrix has 2 or more"),
            (gather(&[2, 8], 2, &[product], usual()), "the dimension is 2, but the shape [2, 8] has 2"),
            (gather(&[2, 8], 0, &[], usual()), "the number of products is 0, but a plan has 1 or more"),
            (gather(&[2, 9], 0, &[product], usual()), "inner of product 0 is 8, but the gathered rows have 9 elements"),
            (gather(&[2, 8], 0, &[product], rows(&[2])), "the length of rows is 1, but the world size is 2"),
            (gather(&[2, 8], 0, &[product], rows(&[3, 3])), "dimension 0 of [2, 8] is 2, but rows["),
            (gather(&[2, 4], 1, &[product], pipeline()), "part by part is not supported: the last dimension is cut"),
            (gather(&[3, 2, 8], 1, &[product], pipeline()), "part by part is not supported: parts are not contiguous"),
            (
                gather(&[2, 8], 0, &[product, Product::new(8, 4, Numeric::F16)], usual()),
                "type and scaling of product 1 is",
            ),
            (
                gather(&[2, 8], 0, &[changed(&|product| product.left = Order::Columns)], usual()),
                "a left factor column after column is not supported",
            ),
            (gather(&[2, 8], 0, &[changed(&|product| product.count = 2)], usual()), "count is 2, but"),
            (scatter(&[3, 8], 0, product, usual()), "is 3, but it must be a multiple of the world size, 2"),
            (
                scatter(&[4, 7], 0, product, usual()),
                "the last dimension of the left factor is 7, but inner of the product is 8",
            ),
            (scatter(&[4, 8], 0, product, rows(&[1, 2])), "the sum of rows is 3, but dimension 0 of [4, 4] is 4"),
            (scatter(&[4, 8], 0, changed(&|product| product.relu = true), usual()), "relu of a partial product"),
            (gather(&[2, 32], 0, &[scaled], pipeline()), "the scales of a part do not begin at a multiple of 16 bytes"),
            (reduce(&[6, 32], scaled, pipeline()), "the scales of a part do not begin at a multiple of 16 bytes"),
            (
                scatter(&[4, 8], 0, product, with(&|options| options.reduction = Reduction::Max)),
                "the max of partial products is not supported: they are summed or averaged",
            ),
            (reduce(&[4, 8], product, rows(&[2, 2])), "every rank gets all rows"),
            (reduce(&[3, 8], product, pipeline()), "the world size does not divide the rows"),
            // A rank whose arguments differ, and a rank alone whose arguments are bad.
            (
                gather(&[2, 8], 0, &[changed(&|product| product.columns = 4 * mine)], usual()),
                "a plan of all-gather + matmul",
            ),
            (scatter(&[2 * mine, 8], 0, product, usual()), "a plan of matmul + reduce-scatter"),
        ] {
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
        }
        // The error of a heap without room contains the required size.
        let huge = Product::new(8, 1 << 20, Numeric::F32);
        let error = communicator.plan_matmul_all_reduce(&[64, 8], huge, usual()).map(drop).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    });
}

/// The error of a bad call contains the value and the limit, and nothing is enqueued.
#[test]
fn bad_calls_of_plans_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let product = Product::new(8, 4, Numeric::F32);
        let plan = communicator.plan_all_gather_matmul(&[2, 8], 0, &[product], FusedOptions::default()).unwrap();
        let buffer = |elems: usize| DeviceBuffer::<f32>::new(device, elems).unwrap();
        let (shard, right, result, short) = (buffer(16), buffer(32), buffer(16), buffer(15));
        let other = DeviceBuffer::<i32>::new(device, 16).unwrap();
        result.write(&[7.0; 16], stream).unwrap();
        let refused = |shard: Tensor<'_>, gathered: Option<Tensor<'_>>, products: Vec<(Tensor<'_>, Tensor<'_>)>| {
            plan.enqueue(shard, gathered, products, stream).unwrap_err().to_string()
        };
        let usual = || vec![(Tensor::of(&right), Tensor::of(&result))];
        for (words, expected) in [
            (refused(Tensor::of(&short), None, usual()), "the shard's length is 15, but the plan has 16 elements"),
            (refused(Tensor::of(&other), None, usual()), "the shard's type is i32, but the plan has f32"),
            (refused(Tensor::of(&shard), Some(Tensor::of(&shard)), usual()), "the gathered memory's length is 16, but"),
            (refused(Tensor::of(&shard), None, vec![]), "the number of products is 0, but the plan has 1"),
            (
                refused(Tensor::of(&shard), None, vec![(Tensor::of(&right), Tensor::of(&short))]),
                "the result's length is 15, but the product has 16 elements",
            ),
            (
                refused(Tensor::of(&shard).scaled(&short), None, usual()),
                "the left factor's scales is given, but the product has none",
            ),
            (
                refused(
                    Tensor::of(&shard),
                    None,
                    vec![(Tensor::of(&right), Tensor::of(right.borrow().slice(..16).unwrap()))],
                ),
                "they may not overlap",
            ),
        ] {
            assert!(words.contains(expected), "{words}\n{expected}");
        }
        assert_eq!(result.read(stream).unwrap(), [7.0; 16]);
    });
}

/// A heap of `heap_bytes` bytes has room for the plan.
#[test]
fn plans_fit_the_heap_that_they_ask_for() {
    let world = 3;
    if !fits(world) {
        return;
    }
    let product = Product::new(64, 96, Numeric::F32);
    for way in [Way::Sequence, Way::Pipeline] {
        let mut options = FusedOptions::default();
        options.way = way;
        let bytes = [
            AllGatherMatmul::heap_bytes(world, &[11, 64], 0, &[product], &options).unwrap(),
            MatmulReduceScatter::heap_bytes(world, &[33, 64], 0, &product, &options).unwrap(),
            MatmulAllReduce::heap_bytes(world, &[33, 64], &product, &options).unwrap(),
        ];
        for (which, heap_bytes) in bytes.into_iter().enumerate() {
            let mut config = config();
            (config.heap_bytes, config.guard_bytes) = (heap_bytes, 0);
            let options = &options;
            threads(world, &config, |rank| {
                let (communicator, options) = (&rank.communicator, options.clone());
                match which {
                    0 => communicator.plan_all_gather_matmul(&[11, 64], 0, &[product], options).map(drop).unwrap(),
                    1 => communicator.plan_matmul_reduce_scatter(&[33, 64], 0, product, options).map(drop).unwrap(),
                    _ => communicator.plan_matmul_all_reduce(&[33, 64], product, options).map(drop).unwrap(),
                }
            });
        }
    }
}
