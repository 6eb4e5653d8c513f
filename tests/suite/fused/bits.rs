//! Plans of both schedules have equal bits, eagerly, in graphs, and again and again.

use std::time::Duration;

use fastrand::Rng;
use reference::gemm::{GemmCase, stored};
use symmetra::fused::{FusedOptions, Way};
use symmetra::half::bf16;
use symmetra::matmul::{Multiplier, Numeric, Order, Product, Tensor};
use symmetra::{Determinism, DeviceBuffer, Reduction, Stream};

use super::{Setup, Sums, gather, gather_cases, partial_case, sum};
use crate::support::{Rank, config, fits, is_host, threads};

fn any_numbers(random: &mut Rng) -> f32 {
    random.f32() * 2.0 - 1.0
}

/// Equal bits of both schedules, of the parts of a GEMM and of the GEMM of all rows.
#[test]
fn both_ways_have_the_bits_of_collective_and_product() {
    if !is_host() {
        // How cuBLASLt sums a part of the rows is its own.
        return;
    }
    for world in [1, 2, 3, 4] {
        threads(world, &config(), |rank| {
            let mut random = Rng::with_seed(world as u64);
            let (rows, inner, columns) = (world * 36, 300, 24 * world);
            let mut setup = Setup {
                shape: vec![rows, inner],
                dim: 0,
                lens: vec![36; world],
                way: Way::Sequence,
                captured: false,
                symmetric: [true; 2],
                keeps: true,
                reduction: Reduction::Sum,
            };
            let mut product = Product::new(inner, columns, Numeric::BF16);
            product.bias = true;
            let multiplier = Multiplier::new(&rank.device).unwrap();
            let alone = |case: &GemmCase<bf16, bf16, bf16>| {
                let upload = |values: &[bf16]| DeviceBuffer::from_slice(values, &rank.stream).unwrap();
                let (left, bias) = (upload(&case.left), upload(&case.bias));
                let right = upload(&stored(&case.right, Order::Columns, [1, inner, columns]));
                let result = DeviceBuffer::<bf16>::new(&rank.device, rows * columns).unwrap();
                let right = Tensor::of(&right);
                let right = if case.product.bias { right.biased(&bias) } else { right };
                let operands = [Tensor::of(&left), right, Tensor::of(&result)];
                multiplier.enqueue(&case.product, rows, operands, &rank.stream).unwrap();
                result
            };
            let cases = gather_cases::<bf16, bf16, bf16>(&[product], rows, (random.u64(..), rank.rank()), any_numbers);
            let expected = alone(&cases[0]).read(&rank.stream).unwrap();
            let mut case = partial_case::<bf16, bf16, bf16>(product, rows, (random.u64(..), rank.rank()), any_numbers);
            case.product.bias = rank.rank() == 0;
            let partial = alone(&case);
            case.product.bias = true;
            let [scattered, summed] =
                [36 * columns, rows * columns].map(|elems| DeviceBuffer::<bf16>::new(&rank.device, elems).unwrap());
            rank.communicator.reduce_scatter(&partial, &scattered, Reduction::Sum, &rank.stream).unwrap();
            rank.communicator.all_reduce(&partial, &summed, &rank.stream).unwrap();
            let [scattered, summed] = [scattered, summed].map(|buffer| buffer.read(&rank.stream).unwrap());
            let ways: &[Way] = if world > 1 { &[Way::Sequence, Way::Pipeline] } else { &[Way::Sequence] };
            for way in ways {
                for captured in [false, true] {
                    (setup.way, setup.captured) = (*way, captured);
                    setup.shape = vec![rows, inner];
                    assert!(gather(rank, &setup, &cases)[0] == expected, "{setup:?}");
                    setup.shape = vec![rows, columns];
                    assert!(sum(rank, Sums::Scattered, &setup, &case) == scattered, "{setup:?}");
                    assert!(sum(rank, Sums::Everywhere, &setup, &case) == summed, "{setup:?}");
                }
            }
        });
    }
}

/// A plan in a graph that is launched again and again by ranks out of step, among other calls and together with another
/// plan.
#[test]
fn a_graph_of_plans_is_replayed_by_ranks_out_of_step() {
    let world = 3;
    if !fits(world) {
        return;
    }
    let replays = crate::support::extent::repeats("SYMMETRA_TEST_REPLAYS", 60, 1000);
    let mut config = config();
    config.determinism = Determinism::Exact;
    threads(world, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let (rows, width) = (6 * world, 32);
        let product = Product::new(width, width, Numeric::F32);
        let mut options = FusedOptions::default();
        options.way = Way::Pipeline;
        let gathers = communicator.plan_all_gather_matmul(&[6, width], 0, &[product], options.clone()).unwrap();
        let scatters = communicator.plan_matmul_reduce_scatter(&[rows, width], 0, product, options).unwrap();
        // The identity: rows come back as they were, times the world size.
        let identity: Vec<f32> = (0..width * width).map(|at| f32::from(at / width == at % width)).collect();
        let right = DeviceBuffer::from_slice(&identity, stream).unwrap();
        let middle = DeviceBuffer::<f32>::new(&rank.device, rows * width).unwrap();
        let [own, result] = [0; 2].map(|_| communicator.symmetric::<f32>(6 * width).unwrap());
        let busy = communicator.symmetric::<i32>(1000).unwrap();
        let graph = stream.capture(|capture| {
            gathers.enqueue(Tensor::of(&own), None, [(Tensor::of(&right), Tensor::of(&middle))], capture)?;
            communicator.all_reduce_in_place(&busy, capture)?;
            scatters.enqueue(Tensor::of(&middle), Tensor::of(&right), Tensor::of(&result), capture)
        });
        let graph = graph.unwrap();
        let mut random = Rng::with_seed(rank.rank() as u64);
        let mut values: Vec<f32> = Vec::new();
        for replay in 0..replays {
            if replay % 10 == 0 {
                values = (0..6 * width).map(|_| random.i32(-100..100) as f32).collect();
                own.write(&values, stream).unwrap();
            }
            std::thread::sleep(Duration::from_micros(random.u64(0..100)));
            graph.launch(stream).unwrap();
            if replay % 10 == 9 {
                let expected: Vec<f32> = values.iter().map(|value| value * world as f32).collect();
                assert!(result.read(stream).unwrap() == expected, "replay {replay}");
            }
        }
        // The graph keeps the memory of the plans.
        communicator.synchronize(stream).unwrap();
        drop(graph);
    });
}

/// Calls of a plan on several streams run one after another, as calls of a communicator do: the memory of the plan is that
/// of one call at a time. With `graph_mixing` also on streams of the program, of which the library keeps none.
#[test]
fn calls_of_a_plan_on_several_streams_keep_apart() {
    let world = 2;
    if !fits(world) {
        return;
    }
    for (way, mixing) in [(Way::Sequence, false), (Way::Pipeline, false), (Way::Sequence, true), (Way::Pipeline, true)]
    {
        threads(world, &config().graph_mixing(mixing), |rank| {
            let Rank { communicator, device, .. } = rank;
            let engines = [0; 2].map(|_| Stream::new(device).unwrap());
            // SAFETY: the communicator leaves the streams before their end.
            let borrowed = |stream: &Stream| unsafe { Stream::borrow_raw(device, stream.as_raw()) }.unwrap();
            let [stream, other] =
                &engines.each_ref().map(|stream| if mixing { borrowed(stream) } else { stream.clone() });
            let (rows, inner, columns) = if mixing { (256, 256, 256) } else { (64, 96, 128) };
            let product = Product::new(inner, columns, Numeric::F32);
            let mut options = FusedOptions::default();
            options.way = way;
            let sums = communicator.plan_matmul_all_reduce(&[rows, inner], product, options.clone()).unwrap();
            let gathers = communicator.plan_all_gather_matmul(&[rows / world, inner], 0, &[product], options).unwrap();
            let ones = DeviceBuffer::from_slice(&vec![1f32; inner * columns], stream).unwrap();
            let rounds = 20;
            let lefts: Vec<_> = (0..rounds)
                .map(|round| DeviceBuffer::from_slice(&vec![round as f32; rows * inner], stream).unwrap())
                .collect();
            let buffers = || (0..rounds).map(|_| DeviceBuffer::<f32>::new(device, rows * columns).unwrap());
            let (summed, gathered): (Vec<_>, Vec<_>) = (buffers().collect(), buffers().collect());
            let graph = stream.capture(|capture| {
                let (left, right, result) = (Tensor::of(&lefts[0]), Tensor::of(&ones), Tensor::of(&summed[0]));
                sums.enqueue(left, right, result, capture)
            });
            let graph = graph.unwrap();
            graph.register().unwrap();
            stream.synchronize().unwrap();
            for round in 0..rounds {
                let queue = if round % 2 == 0 { stream } else { other };
                match round {
                    0 => graph.launch(queue).unwrap(),
                    _ => {
                        let (left, result) = (Tensor::of(&lefts[round]), Tensor::of(&summed[round]));
                        sums.enqueue(left, Tensor::of(&ones), result, queue).unwrap();
                    }
                }
                let shard = Tensor::of(lefts[round].borrow().slice(..rows / world * inner).unwrap());
                let products = [(Tensor::of(&ones), Tensor::of(&gathered[round]))];
                gathers.enqueue(shard, None, products, queue).unwrap();
                if round % 5 == 4 {
                    graph.launch(queue).unwrap();
                }
            }
            communicator.synchronize(stream).unwrap();
            communicator.synchronize(other).unwrap();
            communicator.leave(stream).unwrap();
            communicator.leave(other).unwrap();
            for round in 0..rounds {
                let alone = (round * inner) as f32;
                assert!(summed[round].read(stream).unwrap().iter().all(|sum| *sum == alone * world as f32), "{round}");
                assert!(gathered[round].read(stream).unwrap().iter().all(|value| *value == alone), "{round}");
            }
            drop(graph);
        });
    }
}
