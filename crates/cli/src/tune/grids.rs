//! The times of operations over a mesh, in every mode of the mesh.

use harness::with_element;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::environment::Coordinator;
use symmetra::mixed::{Mixed, MixedMode, MixedOperation};
use symmetra::{Device, DeviceBuffer, Dtype, Error, Graph, SymmetricBuffer};

use super::crossovers::Choice;
use super::timing::Timing;
use crate::grid::GridWorld;
use harness::failure::Failure;
use harness::names::by_name;
use harness::own::Own;
use harness::ranks::Say;
use reference::element::Summand;

/// The bytes of symmetric buffers in addition to their elements, and of the buffer in which ranks meet.
const BESIDE: u64 = 4 * (64 << 10);

/// The operations of a mesh, by sizes of `x` or of a slice, the smallest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Grids {
    pub(super) world: GridWorld,
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) sizes_elems: Vec<usize>,
}

/// One size of an operation, agreed among the ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GridLap {
    pub(super) world: GridWorld,
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    #[serde(with = "by_name")]
    pub(super) operation: MixedOperation,
    /// Whether peers could address the operands.
    pub(super) direct: bool,
    /// Bytes of `x`, or of a slice.
    pub(super) bytes: u64,
    /// Times of one operation, by the name of the mode.
    pub(super) times_ns: BTreeMap<String, u64>,
    /// The choice of the table that was in force.
    pub(super) before: String,
}

impl Grids {
    pub(super) fn laps(&self) -> Result<u64, Failure> {
        let operations = self.world.config().operations(self.world.local(), self.world.hosts)?;
        Ok(2 * (operations.len() * self.sizes_elems.len()) as u64)
    }

    pub(super) fn run(&self, timing: &Timing<'_, '_>, say: Say<'_, GridLap>) -> Result<(), Failure> {
        let config = self.world.config();
        let operand_bytes = 2 * (self.world.ranks * self.world.most_bytes) as u64 + BESIDE;
        let group = self.world.open(timing.communicator, operand_bytes, |_| ())?;
        let mixed = Mixed::open(&group, &config)?;
        let laps = Laps { grids: self, timing, group: &group, mixed: &mixed };
        with_element!(self.dtype, T => {
            laps.run::<T, SymmetricBuffer<T>>(true, say)?;
            laps.run::<T, DeviceBuffer<T>>(false, say)
        })?;
        mixed.close()?;
        Ok(group.close()?)
    }
}

/// The trials of a mesh whose groups are open.
struct Laps<'g, 't, 'w> {
    grids: &'g Grids,
    timing: &'g Timing<'t, 'w>,
    group: &'g Coordinator,
    mixed: &'g Mixed,
}

impl Laps<'_, '_, '_> {
    /// All operations and sizes in one kind of memory.
    fn run<T: Summand, B: Own<T>>(&self, direct: bool, say: Say<'_, GridLap>) -> Result<(), Failure> {
        let Self { grids: Grids { world, dtype, sizes_elems }, timing, group, mixed } = self;
        let data = mixed.data_size();
        let largest = data * sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::own(group.local(), largest)?, B::own(group.local(), largest)?];
        // Ordinary numbers: some hardware is slower with denormals and NaNs.
        let mut random = fastrand::Rng::with_seed(group.rank() as u64);
        let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
        let values: Vec<T> = values.iter().copied().cycle().take(largest).collect();
        input.write(&values, timing.stopwatch.stream())?;
        group.barrier()?;
        for operation in mixed.operations() {
            let first = |mode| world.config().first_alike((world.local(), world.hosts), operation, mode);
            // Of several modes with the same steps only the first is measured: noise would decide between them.
            let modes: Vec<MixedMode> =
                mixed.modes(operation).into_iter().filter(|mode| first(*mode) == Ok(*mode)).collect();
            let names: Vec<String> = modes.iter().map(MixedMode::to_string).collect();
            for count in sizes_elems.iter().copied() {
                let times_us = self.times(operation, &modes, [&input, &output], [count, data * count])?;
                let times_ns = timing.agree(&names, &times_us)?;
                let bytes = (count * dtype.bytes()) as u64;
                let before = first(mixed.select(operation, *dtype, direct, bytes)?)?.to_string();
                if group.rank() == 0 {
                    say(GridLap { world: *world, dtype: *dtype, operation, direct, bytes, times_ns, before })?;
                }
            }
        }
        Ok(())
    }

    /// This rank's time of one operation, for every mode and launch: from graphs, or of calls where a step blocks.
    fn times<T: Summand, B: Own<T>>(
        &self,
        operation: MixedOperation,
        modes: &[MixedMode],
        [input, output]: [&B; 2],
        [part, all]: [usize; 2],
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let Self { timing, group, mixed, .. } = *self;
        let stream = timing.stopwatch.stream();
        let operations = timing.operations((part * T::DTYPE.bytes()) as u64);
        let [takes, gives] = match operation {
            MixedOperation::AllReduce => [part, part],
            MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce => [all, part],
            _ => [part, all],
        };
        let capture = |mode: &MixedMode| {
            group.capture(stream, |capture| {
                (0..operations).try_for_each(|_| {
                    mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, *mode, capture)
                })
            })
        };
        let graphs: symmetra::Result<Vec<Graph<'_>>> = modes.iter().map(capture).collect();
        let times_us = match graphs {
            Ok(graphs) => timing.time(&graphs, operations)?,
            Err(Error::Unsupported { .. }) => timing.time_ways(modes.len(), operations, |way| {
                (0..operations).try_for_each(|_| {
                    mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, modes[way], stream)
                })
            })?,
            Err(error) => return Err(error.into()),
        };
        mixed.synchronize(stream)?;
        Ok(times_us)
    }
}

/// The built-in choices for every number of bytes.
pub(super) fn built_in(device: &Device, lap: &GridLap) -> Result<Vec<Choice>, Failure> {
    let GridLap { world, operation, direct, .. } = lap;
    let (config, ranks) = (world.config(), (world.local(), world.hosts));
    let ranges = config.choices(ranks, *operation, (device.kind(), *direct), None)?;
    let choice = |range: symmetra::mixed::MixedRange| {
        let mode = config.first_alike(ranks, *operation, range.mode)?;
        Ok(Choice { up_to_bytes: range.up_to_bytes, algorithm: mode.to_string() })
    };
    ranges.into_iter().map(choice).collect()
}
