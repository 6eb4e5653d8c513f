//! Grids: a call of the same shape as the last call of its operation allocates nothing.

use symmetra::DeviceBuffer;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::mixed::{Grid, Mixed, MixedConfig, MixedMode, MixedOperation, MixedOptions};

use crate::allocations::allocations;
use crate::support::config;
use crate::support::device::device;
use crate::support::process::apart;
use crate::support::world::meet;

/// Of a data rank.
const ROWS: usize = 300;
const CALLS: usize = 100;

/// A grid of two tensor ranks and two data ranks on one host.
fn open(bootstrap: Threads) -> (Coordinator, Mixed) {
    let device = device(bootstrap.rank());
    let mut settings = GroupConfig::default();
    settings.communicator = config();
    settings.communicator.heap_bytes = 4 << 20;
    let world = Coordinator::open(bootstrap, &device, settings).unwrap();
    let mut grid = Grid::default();
    (grid.local_tensor, grid.local_data) = (Some(2), Some(2));
    let mut config = MixedConfig::default();
    (config.grid, config.most_bytes) = (grid, 16 << 10);
    let mixed = Mixed::open(&world, &config).unwrap();
    (world, mixed)
}

/// Two operations take turns, as in a layer: in every mode, in one piece, in several, and with unequal rows.
#[test]
fn pitfall_19_calls_of_grids_allocate_nothing() {
    if !apart("grids::pitfall_19_calls_of_grids_allocate_nothing") {
        return;
    }
    meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let (world, mixed) = open(bootstrap);
        let stream = symmetra::Stream::new(world.device()).unwrap();
        let own = ROWS - 1 + 2 * mixed.data_rank();
        let unequal = [ROWS - 1, ROWS + 1];
        let most = 40 * ROWS;
        let [small, large] = [1, 2].map(|blocks| DeviceBuffer::<f32>::new(world.device(), blocks * most).unwrap());
        let call = |operation: MixedOperation, count: usize, options: MixedOptions<'_>| {
            let all: usize = options.rows.map_or(2 * count, |rows| rows.iter().sum());
            let [one, both] = [small.borrow().slice(..count).unwrap(), large.borrow().slice(..all).unwrap()];
            let [input, output] =
                if operation == MixedOperation::AllReduceAllGather { [one, both] } else { [both, one] };
            mixed.perform(operation, input, output, options, &stream).unwrap();
        };
        let operations = mixed.operations();
        assert_eq!(operations.len(), 2);
        for mode in [MixedMode::Auto].into_iter().chain(mixed.modes(operations[0])) {
            for (count, rows) in [(ROWS, None), (most, None), (own, Some(&unequal[..]))] {
                let mut options = MixedOptions::from(mode);
                options.rows = rows;
                let layer = || operations.iter().for_each(|operation| call(*operation, count, options));
                layer();
                let before = allocations();
                (0..CALLS).for_each(|_| layer());
                assert_eq!(allocations() - before, 0, "{mode}, {count} elements, rank {rank}");
                mixed.synchronize(&stream).unwrap();
            }
        }
        mixed.close().unwrap();
        world.close().unwrap();
    });
}
