//! Tests of `src/fused/plan.rs`, whose module they are.

use super::*;
use crate::bootstrap::Threads;
use crate::group::Config;
use crate::matmul::Numeric;
use crate::stream::Stream;

/// Before anything is in the caller's graph: the error is that of the plan, not that of its GEMM.
#[test]
fn a_plan_on_a_natively_captured_stream_is_refused_before_its_collective() {
    let run = |bootstrap: Threads| {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let config = Config { heap_bytes: 1 << 16, ..Config::default() };
        let communicator = Communicator::open(bootstrap, &device, config).unwrap();
        let product = Product::new(4, 4, Numeric::F32);
        let ways = [Way::Sequence, Way::Pipeline].map(|way| FusedOptions { way, ..FusedOptions::default() });
        let gathers = ways
            .each_ref()
            .map(|way| communicator.plan_all_gather_matmul(&[1, 4], 0, &[product], way.clone()).unwrap());
        let scatters = ways
            .each_ref()
            .map(|way| communicator.plan_matmul_reduce_scatter(&[2, 4], 0, product, way.clone()).unwrap());
        let reduces = ways.map(|way| communicator.plan_matmul_all_reduce(&[2, 4], product, way).unwrap());
        let ones = |elems: usize| DeviceBuffer::from_slice(&vec![1f32; elems], &stream).unwrap();
        let (part, whole, weight, other) = (ones(4), ones(8), ones(16), ones(8));
        for way in 0..2 {
            let gather = || {
                let products = [(Tensor::of(&weight), Tensor::of(&whole))];
                gathers[way].enqueue(Tensor::of(&part), None, products, &stream)
            };
            let factors = || [&other, &weight].map(Tensor::of);
            let scatter = || {
                let [left, right] = factors();
                scatters[way].enqueue(left, right, Tensor::of(&part), &stream)
            };
            let reduce = || {
                let [left, right] = factors();
                reduces[way].enqueue(left, right, Tensor::of(&whole), &stream)
            };
            let calls: [(&str, &dyn Fn() -> Result<()>); 3] = [
                ("all-gather + matmul", &gather),
                ("matmul + reduce-scatter", &scatter),
                ("matmul + all-reduce", &reduce),
            ];
            for (what, call) in calls {
                // On one rank alone: the other does not learn of the error.
                if communicator.rank() == 0 {
                    let error = stream.capture_natively(call).unwrap().unwrap_err().to_string();
                    assert!(
                        error.starts_with(&format!("a plan of {what} on a stream that is being captured")),
                        "{error}"
                    );
                }
                call().unwrap();
                communicator.synchronize(&stream).unwrap();
            }
            assert_eq!(whole.read(&stream).unwrap(), [8.0; 8]);
        }
        drop((gathers, scatters, reduces));
        communicator.close().unwrap();
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    });
}
