//! Meshes of tensor and data parallelism.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Report;
use super::mirror::{Mirrored, value};
use super::report::guard;
use super::tensor::{resolve, target};
use crate::environment::Coordinator;
use crate::error::{Error, Result};
use crate::mixed::{Grid, Mixed, MixedConfig, MixedMode, MixedOperation, MixedOptions};
use crate::stream::Target;
use bridge::{AskedMixed, MixedPlaces, MixedSettings, Operand, Queue};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    /// Mirrors `symmetra::MixedConfig`.
    struct MixedSettings {
        local_tensor: MaybeSize,
        local_data: MaybeSize,
        across_tensor: MaybeSize,
        across_data: MaybeSize,
        most_bytes: usize,
    }

    /// A call, with `symmetra::MixedOptions`. No rows: equal counts.
    struct AskedMixed<'a> {
        operation: u32,
        mode: u32,
        reduction: u32,
        has_rows: bool,
        rows: &'a [usize],
    }

    /// The position of a rank.
    struct MixedPlaces {
        tensor_rank: usize,
        tensor_size: usize,
        data_rank: usize,
        data_size: usize,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type Coordinator = crate::environment::Coordinator;
        type MaybeSize = crate::capi::bridge::MaybeSize;
        type Operand = crate::capi::bridge::Operand;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        fn mixed_operation_name(operation: u32) -> Result<&'static str>;
        fn mixed_mode_name(mode: u32) -> Result<&'static str>;
        fn mixed_bytes(settings: &MixedSettings, local: usize, hosts: usize) -> Result<u64>;

        type MixedGrid;
        fn mixed_open(world: &Coordinator, settings: &MixedSettings) -> Result<Box<MixedGrid>>;
        fn mixed_places(grid: &MixedGrid) -> MixedPlaces;
        fn mixed_operations(grid: &MixedGrid) -> Vec<u32>;
        fn mixed_modes(grid: &MixedGrid, operation: u32) -> Result<Vec<u32>>;
        fn mixed_select(grid: &MixedGrid, operation: u32, dtype: u32, direct: bool, bytes: u64) -> Result<u32>;
        fn mixed_explain(grid: &MixedGrid, operation: u32, mode: u32) -> Result<Vec<String>>;
        unsafe fn mixed_run(
            grid: &MixedGrid,
            asked: &AskedMixed,
            input: &Operand,
            output: &Operand,
            queue: Queue,
        ) -> Result<()>;
        unsafe fn mixed_synchronize(grid: &MixedGrid, queue: Queue) -> Result<()>;
        fn mixed_close(grid: &MixedGrid) -> Result<()>;
    }
}

/// A grid, which graphs of its calls keep alive.
pub struct MixedGrid(Arc<Mixed>, AtomicBool);

impl MixedGrid {
    fn open(&self) -> Result<&Arc<Mixed>> {
        if self.1.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(&self.0) }
    }
}

impl MixedSettings {
    fn config(&self) -> Result<MixedConfig> {
        let (mut grid, mut config) = (Grid::default(), MixedConfig::default());
        grid.local_tensor = Mirrored::of_mirror(&self.local_tensor)?;
        grid.local_data = Mirrored::of_mirror(&self.local_data)?;
        grid.across_tensor = Mirrored::of_mirror(&self.across_tensor)?;
        grid.across_data = Mirrored::of_mirror(&self.across_data)?;
        (config.grid, config.most_bytes) = (grid, self.most_bytes);
        Ok(config)
    }
}

fn mixed_operation_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(MixedOperation::name))
}

fn mixed_mode_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(MixedMode::name))
}

fn mixed_bytes(settings: &MixedSettings, local: usize, hosts: usize) -> Result<u64, Report> {
    guard(|| settings.config()?.required_bytes(local, hosts))
}

fn mixed_open(world: &Coordinator, settings: &MixedSettings) -> Result<Box<MixedGrid>, Report> {
    guard(|| Ok(Box::new(MixedGrid(Arc::new(Mixed::open(world, &settings.config()?)?), AtomicBool::new(false)))))
}

fn mixed_places(grid: &MixedGrid) -> MixedPlaces {
    MixedPlaces {
        tensor_rank: grid.0.tensor_rank(),
        tensor_size: grid.0.tensor_size(),
        data_rank: grid.0.data_rank(),
        data_size: grid.0.data_size(),
    }
}

fn mixed_operations(grid: &MixedGrid) -> Vec<u32> {
    grid.0.operations().into_iter().map(|operation| operation as u32).collect()
}

fn mixed_modes(grid: &MixedGrid, number: u32) -> Result<Vec<u32>, Report> {
    guard(|| Ok(grid.0.modes(value(number)?).into_iter().map(|mode| mode as u32).collect()))
}

fn mixed_select(grid: &MixedGrid, number: u32, of: u32, direct: bool, bytes: u64) -> Result<u32, Report> {
    guard(|| Ok(grid.0.select(value(number)?, value(of)?, direct, bytes)? as u32))
}

fn mixed_explain(grid: &MixedGrid, number: u32, by: u32) -> Result<Vec<String>, Report> {
    guard(|| grid.0.explain(value(number)?, value(by)?))
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn mixed_run(
    grid: &MixedGrid,
    asked: &AskedMixed<'_>,
    input: &Operand,
    output: &Operand,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        let mixed = grid.open()?;
        // SAFETY: passed on.
        let resolved = |operand: &Operand| unsafe { resolve(mixed.device(), operand) };
        let ((from, dtype), (into, other)) = (resolved(input)?, resolved(output)?);
        if other != dtype {
            return Err(Error::invalid("the output's type", other, format!("the input's is {dtype}")));
        }
        let mut options = MixedOptions::from(value::<MixedMode>(asked.mode)?);
        options.reduction = value(asked.reduction)?;
        options.rows = asked.has_rows.then_some(asked.rows);
        let operation = value(asked.operation)?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [input, output]) }?;
        queue.keep(mixed);
        mixed.run(operation, dtype, [from, into], options, queue)
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn mixed_synchronize(grid: &MixedGrid, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue, []) }? {
        Target::Eager(stream) => grid.open()?.synchronize(stream),
        Target::Captured(_) => Err(Error::unsupported("to wait for a capture", "a capture does not run")),
    })
}

fn mixed_close(grid: &MixedGrid) -> Result<(), Report> {
    guard(|| match grid.1.swap(true, Ordering::AcqRel) {
        true => Err(Error::Closed),
        false => {
            // Nothing was closed, so the grid stays open.
            let refused = grid.0.may_close().inspect_err(|_| grid.1.store(false, Ordering::Release));
            refused.and_then(|()| grid.0.close_groups())
        }
    })
}
