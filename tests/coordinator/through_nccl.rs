//! Every operation through NCCL.

use symmetra::Reduction::{Average, Max, Min, Product, Sum};
use symmetra::environment::{Backend, Environment};

use crate::round::check;
use crate::support::data::mix;
use crate::support::is_host;
use crate::support::world::meet;
use crate::{config, groups};

/// Set `SYMMETRA_TEST_DEVICE=cuda`. Two ranks add in one order; integers add in any. NCCL is not asked to average
/// integers, whose sums it would wrap.
#[test]
fn every_operation_through_nccl_gives_the_same_values() {
    if is_host() {
        eprintln!("skipped: NCCL works on GPUs only");
        return;
    }
    let seed = fastrand::u64(..);
    for (world, sizes) in [(2, [2, 1, 1]), (4, [2, 1, 2]), (4, [4, 1, 1])] {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            for group in groups(&environment) {
                let nccl = group.through(Backend::Nccl).unwrap();
                for round in 0..4 {
                    let seed = mix(seed ^ round);
                    check::<i32>(group, &nccl, &[Sum, Product, Min, Max], seed, true);
                    check::<u8>(group, &nccl, &[Sum, Product, Min, Max], seed, true);
                    if group.world_size() <= 2 {
                        check::<f32>(group, &nccl, &[Sum, Product, Min, Max, Average], seed, true);
                    }
                }
            }
            environment.close().unwrap();
        });
    }
}
