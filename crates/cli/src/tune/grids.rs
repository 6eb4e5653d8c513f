//! The times of operations over a mesh, in every mode of the mesh.

use serde::{Deserialize, Serialize};
use symmetra::environment::Coordinator;
use symmetra::mixed::{Mixed, MixedMode, MixedOperation};
use symmetra::{DeviceBuffer, Dtype, Error, Graph, SymmetricBuffer};

use super::calls::{AgreedSize, TunedCalls};
use super::timing::{TimedSize, Timing, ordinary};
use crate::grid::GridWorld;
use harness::failure::CommandFailure;
use harness::names::by_name;
use harness::own::Own;
use harness::ranks::Say;
use harness::with_element;
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

impl Grids {
    pub(super) fn trials(&self) -> Result<u64, CommandFailure> {
        let operations = self.world.config().operations(self.world.local(), self.world.hosts)?;
        Ok(2 * (operations.len() * self.sizes_elems.len()) as u64)
    }

    pub(super) fn run(&self, timing: &Timing<'_, '_>, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        let config = self.world.config();
        let operand_bytes = 2 * (self.world.ranks * self.world.most_bytes) as u64 + BESIDE;
        let group = self.world.open(timing.communicator, operand_bytes, |_| ())?;
        let mixed = Mixed::open(&group, &config)?;
        let open = OpenGrid { grids: self, timing, group: &group, mixed: &mixed };
        with_element!(self.dtype, T => {
            open.run::<T, SymmetricBuffer<T>>(true, say)?;
            open.run::<T, DeviceBuffer<T>>(false, say)
        })?;
        mixed.close()?;
        Ok(group.close()?)
    }
}

/// A mesh whose groups are open.
struct OpenGrid<'g, 't, 'w> {
    grids: &'g Grids,
    timing: &'g Timing<'t, 'w>,
    group: &'g Coordinator,
    mixed: &'g Mixed,
}

impl OpenGrid<'_, '_, '_> {
    /// All operations and sizes in one kind of memory.
    fn run<T: Summand, B: Own<T>>(&self, direct: bool, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        let Self { grids: Grids { world, dtype, sizes_elems }, timing, group, mixed } = self;
        let data = mixed.data_size();
        let largest = data * sizes_elems.last().copied().unwrap_or(0);
        let [input, output] = [B::own(group.local(), largest)?, B::own(group.local(), largest)?];
        input.write(&ordinary(group.rank(), largest), timing.stopwatch.stream())?;
        group.barrier()?;
        for operation in mixed.operations() {
            let first = |mode| world.config().first_alike(world.local(), world.hosts, operation, mode);
            // Of several modes with the same steps only the first is measured: noise would decide between them.
            let modes: Vec<MixedMode> =
                mixed.modes(operation).into_iter().filter(|mode| first(*mode) == Ok(*mode)).collect();
            let calls = TunedCalls::Grid { world: *world, dtype: *dtype, operation, direct };
            for count in sizes_elems.iter().copied() {
                let times_us = self.times(operation, &modes, [&input, &output], [count, data * count])?;
                let size = TimedSize { calls: &calls, bytes: (count * dtype.bytes()) as u64 };
                timing.report(size, modes.iter().map(|mode| mode.name()), &times_us, say)?;
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
    ) -> Result<Vec<Vec<f64>>, CommandFailure> {
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
            Err(Error::Unsupported { .. }) => timing.time_each(modes.len(), operations, |number| {
                (0..operations).try_for_each(|_| {
                    mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, modes[number], stream)
                })
            })?,
            Err(error) => return Err(error.into()),
        };
        mixed.synchronize(stream)?;
        Ok(times_us)
    }
}
