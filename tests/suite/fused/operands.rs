//! Operands of plans: overlap, the places of scales and bias, and errors of one rank.
#![allow(unsafe_code)]

use symmetra::float8::F8E4M3;
use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter, Way};
use symmetra::half::bf16;
use symmetra::matmul::{F8, Numeric, Product, Scaling, Tensor};
use symmetra::{Adopted, DeviceBuffer, Error};

use crate::support::refusal::invalid;
use crate::support::{Rank, config, fits, threads};

const WAYS: [Way; 2] = [Way::Sequence, Way::Pipeline];

fn options(way: Way) -> FusedOptions {
    let mut options = FusedOptions::default();
    options.way = way;
    options
}

/// In each schedule, an operand that is written may overlap no other; nothing is enqueued, so that ranks still agree.
#[test]
fn operands_that_overlap_are_refused() {
    let world = 2;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let product = with_bias(8, 8);
        for way in WAYS {
            // Parts of one memory: 16 elements are a shard, 32 the whole and a result, 64 a right factor, 8 a bias.
            let memory = DeviceBuffer::<f32>::new(device, 512).unwrap();
            let at = |start: usize, elems: usize| memory.borrow().slice(start..start + elems).unwrap();
            let tensor = |start: usize, elems: usize| Tensor::of(at(start, elems));
            let right = |start: usize| tensor(start, 64).biased(at(400, 8));
            let plan = communicator.plan_all_gather_matmul(&[2, 8], 0, &[product; 2], options(way)).unwrap();
            let gather = |shard: usize, gathered: Option<usize>, products: [(usize, usize); 2]| {
                let products = products.map(|(factor, result)| (right(factor), tensor(result, 32)));
                plan.enqueue(tensor(shard, 16), gathered.map(|start| tensor(start, 32)), products, stream)
            };
            let [first, second] = [(64, 128), (192, 256)];
            for (result, expected) in [
                (gather(128, None, [first, second]), "the shard is 64 bytes at"),
                (gather(287, None, [first, second]), "the result of product 1 is 128 bytes at"),
                (gather(0, Some(8), [first, second]), "the gathered memory is 128 bytes at"),
                (gather(0, Some(255), [first, second]), "the left factor is 128 bytes at"),
                (gather(0, Some(287), [first, second]), "the left factor is 128 bytes at"),
                (gather(0, Some(250), [first, (192, 300)]), "the right factor of product 1 is 256 bytes at"),
                (gather(0, None, [first, (192, 33)]), "the right factor of product 0 is 256 bytes at"),
                (gather(0, None, [first, (192, 159)]), "the result of product 0 is 128 bytes at"),
                (gather(0, None, [first, (192, 376)]), "the bias"),
            ] {
                let words = result.unwrap_err().to_string();
                assert!(words.contains(expected) && words.contains(" bytes at 0x"), "{words}\n{expected}");
            }
            // The shard may be its part of the gathered memory.
            let me = communicator.rank();
            memory.write(&[1.0; 512], stream).unwrap();
            gather(304 + 16 * me, Some(304), [first, second]).unwrap();
            communicator.synchronize(stream).unwrap();
            assert_eq!(memory.read(stream).unwrap()[128..160], [9.0; 32]);
            invalid(gather(304 + 16 * (1 - me), Some(304), [first, second]), &["in place they are"]);

            let scatter = communicator.plan_matmul_reduce_scatter(&[4, 8], 0, product, options(way)).unwrap();
            let reduce = communicator.plan_matmul_all_reduce(&[4, 8], product, options(way)).unwrap();
            // The left factor and the result.
            for (left, result, factor) in [(0, 16, 64), (15, 0, 64), (0, 63, 64), (0, 394, 64), (0, 127, 64)] {
                let ran = scatter.enqueue(tensor(left, 32), right(factor), tensor(result, 16), stream);
                invalid(ran, &["they may not overlap"]);
                let ran = reduce.enqueue(tensor(left, 32), right(factor), tensor(result, 32), stream);
                invalid(ran, &["they may not overlap"]);
            }
            memory.write(&[1.0; 512], stream).unwrap();
            scatter.enqueue(tensor(0, 32), right(64), tensor(128, 16), stream).unwrap();
            reduce.enqueue(tensor(0, 32), right(64), tensor(160, 32), stream).unwrap();
            communicator.synchronize(stream).unwrap();
            let found = memory.read(stream).unwrap();
            assert_eq!((&found[128..144], &found[160..192]), ([17.0; 16].as_slice(), [17.0; 32].as_slice()), "{way}");
        }
    });
}

fn with_bias(inner: usize, columns: usize) -> Product {
    let mut product = Product::new(inner, columns, Numeric::F32);
    product.bias = true;
    product
}

/// Every rank passes a bias if the GEMM has one, and no bias if not; scales and a bias elsewhere are refused on every rank.
#[test]
fn scales_and_bias_are_checked_on_every_rank() {
    let world = 2;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let buffer = |elems: usize| DeviceBuffer::<f32>::new(device, elems).unwrap();
        let (left, factor, bias, wrong) = (buffer(32), buffer(64), buffer(8), buffer(7));
        let (part, whole) = (buffer(16), buffer(32));
        for way in WAYS {
            for biased in [false, true] {
                let mut product = with_bias(8, 8);
                product.bias = biased;
                let gather = communicator.plan_all_gather_matmul(&[2, 8], 0, &[product], options(way)).unwrap();
                let scatter = communicator.plan_matmul_reduce_scatter(&[4, 8], 0, product, options(way)).unwrap();
                let reduce = communicator.plan_matmul_all_reduce(&[4, 8], product, options(way)).unwrap();
                let right = || if biased { Tensor::of(&factor).biased(&bias) } else { Tensor::of(&factor) };
                let (left, part, whole) = (|| Tensor::of(&left), || Tensor::of(&part), || Tensor::of(&whole));
                let expected = match biased {
                    true => "the bias is not given, but the product has 8 elements",
                    false => "the bias is given, but the product has none",
                };
                let other = || if biased { Tensor::of(&factor) } else { Tensor::of(&factor).biased(&bias) };
                let off = || Tensor::of(&factor).biased(&wrong);
                invalid(scatter.enqueue(left(), other(), part(), stream), &[expected]);
                invalid(reduce.enqueue(left(), other(), whole(), stream), &[expected]);
                if biased {
                    let expected = "the bias's length is 7, but the product has 8 elements";
                    invalid(scatter.enqueue(left(), off(), part(), stream), &[expected]);
                    invalid(reduce.enqueue(left(), off(), whole(), stream), &[expected]);
                }
                let expected = "a bias of the left factor";
                invalid(scatter.enqueue(left().biased(&bias), right(), part(), stream), &[expected]);
                invalid(reduce.enqueue(left().biased(&bias), right(), whole(), stream), &[expected]);
                let expected = "scales of the result";
                invalid(scatter.enqueue(left(), right(), part().scaled(&bias), stream), &[expected]);
                invalid(reduce.enqueue(left(), right(), whole().scaled(&bias), stream), &[expected]);
                let expected = "a bias of the result";
                invalid(scatter.enqueue(left(), right(), part().biased(&bias), stream), &[expected]);
                invalid(reduce.enqueue(left(), right(), whole().biased(&bias), stream), &[expected]);

                let products = || [(right(), whole())];
                let gathered = DeviceBuffer::<f32>::new(device, 32).unwrap();
                let gathered = || Tensor::of(&gathered);
                let ran = gather.enqueue(part().biased(&bias), None, products(), stream);
                invalid(ran, &["a bias of the shard"]);
                let ran = gather.enqueue(part(), Some(gathered().biased(&bias)), products(), stream);
                invalid(ran, &["a bias of the gathered memory"]);
                let ran = gather.enqueue(part(), Some(gathered().scaled(&bias)), products(), stream);
                invalid(ran, &["the gathered memory's scales is given, but the plan gathers no scales"]);
                // Nothing was enqueued, so the ranks still agree.
                scatter.enqueue(left(), right(), part(), stream).unwrap();
                communicator.synchronize(stream).unwrap();
            }
        }
    });
}

/// The scales of a gathered factor are written to the caller's memory, and contain those of all ranks.
#[test]
fn gathered_scales_go_to_the_caller() {
    let world = 2;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let mut product = Product::new(16, 16, Numeric::F8 { left: F8::E4M3, right: F8::E4M3 });
        product.scaling = Scaling::Rows;
        if !super::has(product.numeric, product.scaling, rank) {
            return;
        }
        let (rows, me) = (4, communicator.rank());
        let codes = |elems: usize| DeviceBuffer::from_slice(&vec![F8E4M3::from_f32(1.0); elems], stream).unwrap();
        let scales = |first: usize, elems: usize| {
            let values: Vec<f32> = (first..first + elems).map(|row| (1u32 << row) as f32).collect();
            DeviceBuffer::from_slice(&values, stream).unwrap()
        };
        let (shard, factor) = (codes(rows * 16), codes(256));
        let (own, ones) = (scales(rows * me, rows), DeviceBuffer::from_slice(&[1f32; 16], stream).unwrap());
        for way in WAYS {
            let plan = communicator.plan_all_gather_matmul(&[rows, 16], 0, &[product], options(way)).unwrap();
            let whole = DeviceBuffer::<F8E4M3>::new(device, world * rows * 16).unwrap();
            let all = DeviceBuffer::<f32>::new(device, world * rows).unwrap();
            let result = DeviceBuffer::<bf16>::new(device, world * rows * 16).unwrap();
            let part = || Tensor::of(&shard).scaled(&own);
            let products = || [(Tensor::of(&factor).scaled(&ones), Tensor::of(&result))];
            plan.enqueue(part(), Some(Tensor::of(&whole).scaled(&all)), products(), stream).unwrap();
            communicator.synchronize(stream).unwrap();
            let expected: Vec<f32> = (0..world * rows).map(|row| (1u32 << row) as f32).collect();
            assert_eq!(all.read(stream).unwrap(), expected, "{way}");
            let found = result.read(stream).unwrap();
            for (row, values) in found.chunks_exact(16).enumerate() {
                assert!(values.iter().all(|value| value.to_f32() == 16.0 * expected[row]), "{way}, {row}: {values:?}");
            }
            let short = all.borrow().slice(..7).unwrap();
            let ran = plan.enqueue(part(), Some(Tensor::of(&whole).scaled(short)), products(), stream);
            invalid(ran, &["the gathered memory's scales's length is 7, but the plan has 8 elements"]);
            let ran = plan.enqueue(Tensor::of(&shard), None, products(), stream);
            invalid(ran, &["the shard's scales is not given, but the plan has 4 elements"]);
            let long = codes(rows * 16 + 1);
            let off = Tensor::of(long.borrow().slice(1..).unwrap()).scaled(&own);
            let ran = plan.enqueue(off, None, products(), stream);
            invalid(ran, &["the shard's address is 1 modulo 16, but"]);
        }
    });
}

/// Shapes whose byte counts are no numbers are typed errors on every rank.
#[test]
fn shapes_beyond_memory_are_refused() {
    let world = 2;
    if !fits(world) {
        return;
    }
    let product = Product::new(8, 8, Numeric::F32);
    let usual = FusedOptions::default();
    let (part, whole) = ([1 << 59, 8], [1 << 60, 8]);
    let expected = "4 bytes an element for each of 2 ranks must be at most 2305843009213693951";
    invalid(AllGatherMatmul::heap_bytes(world, &part, 0, &[product], &usual).map(drop), &[expected]);
    invalid(MatmulReduceScatter::heap_bytes(world, &whole, 0, &product, &usual).map(drop), &[expected]);
    invalid(MatmulAllReduce::heap_bytes(world, &whole, &product, &usual).map(drop), &[expected]);
    threads(world, &config(), |Rank { communicator, .. }| {
        invalid(communicator.plan_all_gather_matmul(&part, 0, &[product], usual.clone()).map(drop), &[expected]);
        invalid(communicator.plan_matmul_reduce_scatter(&whole, 0, product, usual.clone()).map(drop), &[expected]);
        invalid(communicator.plan_matmul_all_reduce(&whole, product, usual.clone()).map(drop), &[expected]);
        // The largest shape has no room, and the error states it.
        let error = communicator.plan_all_gather_matmul(&[1 << 54, 8], 0, &[product], usual.clone()).map(drop);
        assert!(matches!(error.unwrap_err(), Error::OutOfMemory { .. } | Error::InvalidArgument { .. }));
    });
}

/// The elements of memory but the first and the last, which a call leaves alone.
fn middle<'a>(plain: &'a DeviceBuffer<f32>, adopted: Option<&'a Adopted<'_, f32>>) -> Tensor<'a> {
    let range = 1..plain.len() - 1;
    match adopted {
        Some(adopted) => Tensor::of(adopted.slice(range).unwrap()),
        None => Tensor::of(plain.borrow().slice(range).unwrap()),
    }
}

/// Operands that begin one element after the start of their memory; plain, and adopted.
#[test]
fn operands_one_element_off() {
    let world = 3;
    if !fits(world) {
        return;
    }
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let (rows, width) = (2, 5);
        let product = Product::new(width, width, Numeric::F32);
        let identity: Vec<f32> = (0..width * width).map(|at| f32::from(at / width == at % width)).collect();
        let values = |from: usize| (0..rows * width).map(move |at| (100 * from + at) as f32);
        let framed = |values: &[f32]| [&[-1.0], values, &[-2.0]].concat();
        let own: Vec<f32> = values(rank.rank()).collect();
        let all: Vec<f32> = (0..world).flat_map(values).collect();
        let summed = |values: &[f32]| values.iter().map(|value| world as f32 * value).collect::<Vec<f32>>();
        let (zeros, few) = (vec![0.0; all.len()], vec![0.0; own.len()]);
        let [factor, shard, left, gathered, scattered, reduced] = [&identity, &own, &all, &zeros, &few, &zeros]
            .map(|values| DeviceBuffer::from_slice(&framed(values), stream).unwrap());
        // SAFETY: ranks are threads, and drop it after the barrier that follows their last successful calls with it.
        let lent = [&shard, &left, &reduced].map(|plain| unsafe { communicator.adopt(plain.borrow()) }.unwrap());
        for (way, adopted) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
            let lent = |which: usize| adopted.then(|| &lent[which]);
            let whole = [rows * world, width];
            let gather = communicator.plan_all_gather_matmul(&[rows, width], 0, &[product], options(way)).unwrap();
            let scatter = communicator.plan_matmul_reduce_scatter(&whole, 0, product, options(way)).unwrap();
            let reduce = communicator.plan_matmul_all_reduce(&whole, product, options(way)).unwrap();
            let right = || middle(&factor, None);
            gather.enqueue(middle(&shard, lent(0)), None, [(right(), middle(&gathered, None))], stream).unwrap();
            scatter.enqueue(middle(&left, lent(1)), right(), middle(&scattered, None), stream).unwrap();
            reduce.enqueue(middle(&left, lent(1)), right(), middle(&reduced, lent(2)), stream).unwrap();
            communicator.synchronize(stream).unwrap();
            for (found, expected) in [(&gathered, all.clone()), (&scattered, summed(&own)), (&reduced, summed(&all))] {
                assert_eq!(found.read(stream).unwrap(), framed(&expected), "{way}, {adopted}");
                found.write(&framed(&vec![0.0; expected.len()]), stream).unwrap();
            }
        }
        communicator.group().barrier().unwrap();
    });
}

/// Worlds that the other tests of values leave out.
#[test]
fn large_and_odd_worlds() {
    let product = Product::new(8, 3, Numeric::F32);
    for world in [5, 6, 7, 16] {
        if !fits(world) {
            continue;
        }
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, device, .. } = rank;
            let weight: Vec<f32> = (0..24).map(|at| (at % 5) as f32).collect();
            let factor = DeviceBuffer::from_slice(&weight, stream).unwrap();
            // Each row of rank `from` has one value.
            let rows_of = |from: usize| vec![(from + 1) as f32; 2 * 8];
            let line = |value: usize| {
                (0..3).map(move |column| (0..8).map(|k| ((column * 8 + k) % 5 * value) as f32).sum::<f32>())
            };
            let shard = DeviceBuffer::from_slice(&rows_of(rank.rank()), stream).unwrap();
            let left: Vec<f32> = (0..world).flat_map(rows_of).collect();
            let left = DeviceBuffer::from_slice(&left, stream).unwrap();
            let whole: Vec<f32> = (0..2 * world).flat_map(|row| line(row / 2 + 1)).collect();
            let summed: Vec<f32> = whole.iter().map(|value| world as f32 * value).collect();
            for way in WAYS {
                let result = |elems: usize| DeviceBuffer::<f32>::new(device, elems).unwrap();
                let (gathered, scattered, reduced) = (result(6 * world), result(6), result(6 * world));
                let gather = communicator.plan_all_gather_matmul(&[2, 8], 0, &[product], options(way)).unwrap();
                let products = [(Tensor::of(&factor), Tensor::of(&gathered))];
                gather.enqueue(Tensor::of(&shard), None, products, stream).unwrap();
                let scatter = communicator.plan_matmul_reduce_scatter(&[2 * world, 8], 0, product, options(way));
                let [first, second, third] = [&left, &factor, &scattered].map(Tensor::of);
                scatter.unwrap().enqueue(first, second, third, stream).unwrap();
                let reduce = communicator.plan_matmul_all_reduce(&[2 * world, 8], product, options(way)).unwrap();
                let [first, second, third] = [&left, &factor, &reduced].map(Tensor::of);
                reduce.enqueue(first, second, third, stream).unwrap();
                communicator.synchronize(stream).unwrap();
                assert_eq!(gathered.read(stream).unwrap(), whole, "{world} ranks, {way}");
                let own = 6 * rank.rank()..6 * (rank.rank() + 1);
                assert_eq!(scattered.read(stream).unwrap(), summed[own], "{world} ranks, {way}");
                assert_eq!(reduced.read(stream).unwrap(), summed, "{world} ranks, {way}");
            }
        });
    }
}
