//! The mode of a grid's calls where a tuning has measured the grid: seen by the roundings of the mode.

use half::bf16;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::mixed::{Grid, Mixed, MixedConfig, MixedMode, MixedOperation, MixedOptions};
use symmetra::{DeviceBuffer, Dtype, Error, Operand, Reduction, Result, Stream, TunedGrid, TunedRow, Tuning};

use crate::support::device::{device, kind};
use crate::support::world::meet;

const OPERATION: MixedOperation = MixedOperation::ReduceScatterAllReduce;

/// A tuning that takes `mode` for direct operands of up to 64 bytes a slice, on a host of 2 tensor x 2 data ranks.
fn tuning(mode: &str) -> Tuning {
    let row = |up_to_bytes, mode: &str| TunedRow::default().up_to_bytes(up_to_bytes).algorithm(mode.to_owned());
    let grid = TunedGrid::default()
        .local_tensor(2)
        .local_data(2)
        .across_tensor(1)
        .across_data(1)
        .operation(OPERATION.name().to_owned())
        .direct(true)
        .measured_bytes(Some([16, 1 << 20]))
        .rows(vec![row(Some(64), mode), row(None, "two-shot")]);
    Tuning::default().kind(kind().name().to_owned()).grids(vec![grid])
}

fn open(bootstrap: Threads, tuning: Tuning) -> Result<Coordinator> {
    let device = device(bootstrap.rank());
    let mut config = GroupConfig::default();
    config.communicator = crate::support::config();
    config.communicator.heap_bytes = 4 << 20;
    config.communicator.tuning = Some(tuning);
    Coordinator::open(bootstrap, &device, config)
}

fn grid() -> MixedConfig {
    let (mut grid, mut config) = (Grid::default(), MixedConfig::default());
    grid.local_tensor = Some(2);
    (config.grid, config.most_bytes) = (grid, 16 << 10);
    config
}

/// Of 256, 1, 1 and 0 the sum is 258; where 256 + 1 is rounded first, the sum is 256.
#[test]
fn calls_run_in_the_mode_that_was_measured() {
    meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let group = open(bootstrap, tuning("two-collectives")).unwrap();
        let mixed = Mixed::open(&group, &grid()).unwrap();
        let stream = Stream::new(group.device()).unwrap();
        let value = [256.0, 1.0, 1.0, 0.0][rank];
        let symmetric = |elems: usize| group.local().symmetric::<bf16>(elems).unwrap();
        let options = |reduction| {
            let mut options = MixedOptions::default();
            options.reduction = reduction;
            options
        };
        for (elems, direct, reduction, sum) in [
            (32, true, Reduction::Sum, 256.0),
            (33, true, Reduction::Sum, 258.0),
            (32, false, Reduction::Sum, 258.0),
            // An average is rounded once.
            (32, true, Reduction::Average, 64.5),
        ] {
            let values = vec![bf16::from_f32(value); 2 * elems];
            let got = match direct {
                true => {
                    let (input, output) = (symmetric(2 * elems), symmetric(elems));
                    input.write(&values, &stream).unwrap();
                    group.barrier().unwrap();
                    run(&mixed, &input, &output, options(reduction), &stream);
                    output.read(&stream).unwrap()
                }
                false => {
                    let input = DeviceBuffer::from_slice(&values, &stream).unwrap();
                    let output = DeviceBuffer::new(group.device(), elems).unwrap();
                    run(&mixed, &input, &output, options(reduction), &stream);
                    output.read(&stream).unwrap()
                }
            };
            assert_eq!(got, vec![bf16::from_f32(sum); elems], "{elems} elements, direct: {direct}, {reduction}");
        }
        for (bytes, direct, mode) in
            [(64, true, MixedMode::TwoCollectives), (65, true, MixedMode::TwoShot), (64, false, MixedMode::OneShot)]
        {
            assert_eq!(mixed.select(OPERATION, Dtype::BF16, direct, bytes).unwrap(), mode, "{bytes}");
        }
        let said = |direct| {
            let ranges = mixed.choices(OPERATION, Dtype::BF16, direct).unwrap();
            ranges.into_iter().map(|range| (range.up_to_bytes, range.reason)).collect::<Vec<_>>()
        };
        let tuned = "measured by `symmetra tune`";
        let estimated = "estimated from the steps";
        // Sizes that were not measured are not reported as measured.
        assert_eq!(said(true), [(15, estimated), (64, tuned), (1 << 20, tuned), (u64::MAX, estimated)]);
        assert_eq!(said(false), [(704 << 10, estimated), (6 << 20, estimated), (u64::MAX, estimated)]);
        mixed.close().unwrap();
        group.close().unwrap();
    });
}

fn run<'op>(
    mixed: &'op Mixed,
    input: impl Operand<'op, bf16>,
    output: impl Operand<'op, bf16>,
    options: MixedOptions<'op>,
    stream: &'op Stream,
) {
    mixed.reduce_scatter_all_reduce(input, output, options, stream).unwrap();
    mixed.synchronize(stream).unwrap();
}

#[test]
fn a_tuning_that_names_no_mode_is_refused() {
    meet(4, |bootstrap| {
        let error = open(bootstrap, tuning("three-shot")).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("three-shot") && error.to_string().contains("one-collective"), "{error}");
    });
}
