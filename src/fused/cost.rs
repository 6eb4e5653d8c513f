//! A model of the time of a plan's call on NVIDIA GPUs: a pure function, equal on all ranks.
//!
//! The constants are for H100 and H200 with NVLink, without fixed clocks. GEMMs of bf16 run at 700 TFLOP/s, of 8-bit floats 1.75
//! times as fast, in waves of tiles on 132 multiprocessors, and at most as fast as their factors can be read. Copies between GPUs
//! run at 390 GB/s, collectives by kernels at 340 GB/s. PERFORMANCE.md compares the model with measured times, and the tests
//! contain the measurements from which the constants are derived.

use crate::matmul::{Numeric, Product};

/// The times of both schedules, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) sequence_us: f64,
    pub(super) pipeline_us: f64,
    /// The longer of the times of only the GEMMs and of only the copies.
    pub(super) bound_us: f64,
}

/// The GEMMs of a call, and the bytes from rank to rank.
#[derive(Clone, Copy)]
pub(super) struct PlanWork<'a> {
    pub(super) world: usize,
    /// GEMMs that run one after the other, with the same left factor.
    pub(super) products: &'a [Product],
    pub(super) rows: usize,
    /// Bytes of a part.
    pub(super) part_bytes: usize,
}

const FLOPS_PER_US: f64 = 700e6;
const COPY_BYTES_PER_US: f64 = 390e3;
const COLLECTIVE_BYTES_PER_US: f64 = 340e3;
/// Reads of the GPU's own memory.
const READ_BYTES_PER_US: f64 = 3e6;
/// Before the first copy: a barrier, and the start of the copy engine.
const START_US: f64 = 10.0;
/// Joins of the streams.
const END_US: f64 = 4.0;
/// A barrier and the launch of a reduction.
const REDUCE_US: f64 = 6.0;
/// Fixed time of a collective by kernels, in addition to the time of its bytes.
const COLLECTIVE_US: f64 = 7.0;
/// Fixed time of a copy, in addition to the time of its bytes.
const COPY_US: f64 = 3.0;
/// Fixed time of a GEMM, in addition to the time of its arithmetic.
const PRODUCT_US: f64 = 1.0;
/// Additional time of the GEMMs of a part in a pipeline, because they share memory bandwidth with copies. `CAME_US` is for a
/// received part, whose GEMMs also wait for its arrival word; `GOES_US` is for a part that is sent.
const CAME_US: f64 = 4.0;
const GOES_US: f64 = 2.0;
/// The factor by which the model must predict a pipeline to be faster before it is chosen, because the model is not exact.
const MARGIN: f64 = 1.01;
const MULTIPROCESSORS: f64 = 132.0;
const TILE_ROWS: usize = 128;
/// Columns of tiles, and their relative speed. The library chooses the tiles that fill the waves of a GEMM best.
const TILES: [(usize, f64); 2] = [(128, 1.0), (160, 0.95)];

/// The time of a GEMM of `rows` rows.
fn product_us(product: &Product, rows: usize) -> f64 {
    let flops_per_us = match product.numeric {
        Numeric::F8 { .. } => FLOPS_PER_US * 1.75,
        Numeric::F32 => 50e6,
        Numeric::Tf32 => FLOPS_PER_US / 2.0,
        _ => FLOPS_PER_US,
    };
    let [left, right] = product.numeric.dtypes().map(|dtype| dtype.bytes());
    let read = product.inner as f64 * (rows as f64 * left as f64 + product.columns as f64 * right as f64);
    let tiled_us = TILES.map(|(columns, speed)| {
        // In floats, because the product of three sizes may overflow an integer.
        let tiles = rows.div_ceil(TILE_ROWS) as f64 * product.columns.div_ceil(columns) as f64;
        let tile_flops = 2.0 * (TILE_ROWS * columns) as f64 * product.inner as f64;
        let tile_us = tile_flops / (speed * flops_per_us / MULTIPROCESSORS);
        // The mean of two cases: a last wave that waits for its slowest tile, and smaller tiles with which the library fills the
        // wave. For less than one wave the library uses more blocks.
        let waves = tiles / MULTIPROCESSORS;
        let waves = if waves < 1.0 { 0.25 + 0.75 * waves } else { (waves + waves.ceil()) / 2.0 };
        waves * tile_us
    });
    let tiled_us = tiled_us.into_iter().fold(f64::INFINITY, f64::min);
    tiled_us.max(read / READ_BYTES_PER_US) + PRODUCT_US
}

impl PlanWork<'_> {
    /// The time of all GEMMs of `rows` rows, one after the other.
    fn products_us(&self, rows: usize) -> f64 {
        self.products.iter().map(|product| product_us(product, rows)).sum()
    }

    /// The time of the GEMMs of a part, concurrently with copies of other parts.
    fn share_us(&self, beside_us: f64) -> f64 {
        self.products_us(self.rows / self.world) + beside_us
    }

    /// The time of the copy of a part.
    fn copy_us(&self) -> f64 {
        self.part_bytes as f64 / COPY_BYTES_PER_US + COPY_US
    }

    /// The time of the bytes of all copies, without fixed times.
    fn moved_us(&self) -> f64 {
        self.peers() as f64 * self.part_bytes as f64 / COPY_BYTES_PER_US
    }

    fn peers(&self) -> usize {
        self.world - 1
    }

    /// The time of a collective by kernels.
    fn collective_us(&self) -> f64 {
        self.peers() as f64 * self.part_bytes as f64 / COLLECTIVE_BYTES_PER_US + COLLECTIVE_US
    }

    fn bound_us(&self) -> f64 {
        self.products_us(self.rows).max(self.moved_us())
    }

    /// Sequence: all-gather, then GEMMs. Pipeline: GEMMs of this rank's part and of arrived parts while other parts arrive.
    pub(super) fn gathered(&self) -> Cost {
        let share_us = self.share_us(CAME_US);
        let arrivals = (1..=self.peers()).map(|number| START_US + number as f64 * self.copy_us());
        let pipeline_us = arrivals.fold(share_us, |done, arrival| done.max(arrival) + share_us) + END_US;
        let sequence_us = self.collective_us() + self.products_us(self.rows);
        Cost { sequence_us, pipeline_us, bound_us: self.bound_us() }
    }

    /// Sequence: GEMMs, then reduce-scatter. Pipeline: parts are sent as soon as they are computed.
    pub(super) fn scattered(&self) -> Cost {
        let share_us = self.share_us(GOES_US);
        // The first GEMM starts immediately.
        let (mut multiplied, mut moved) = (0.0, START_US);
        for _ in 0..self.peers() {
            multiplied += share_us;
            moved = multiplied.max(moved) + self.copy_us();
        }
        // This rank's part is last. The reduction reads all parts and writes the sum.
        let reduce_us = (self.world + 1) as f64 * self.part_bytes as f64 / READ_BYTES_PER_US + REDUCE_US;
        let pipeline_us = (multiplied + share_us).max(moved) + reduce_us + END_US;
        let sequence_us = self.products_us(self.rows) + self.collective_us();
        Cost { sequence_us, pipeline_us, bound_us: self.bound_us() }
    }

    /// Sequence: GEMMs, then all-reduce. Pipeline: pipelined reduce-scatter, then all-gather.
    pub(super) fn all_reduced(&self) -> Cost {
        let Cost { sequence_us, pipeline_us, .. } = self.scattered();
        Cost {
            sequence_us: sequence_us + self.collective_us() - COLLECTIVE_US,
            pipeline_us: pipeline_us + self.collective_us(),
            bound_us: self.products_us(self.rows).max(2.0 * self.moved_us()),
        }
    }
}

impl Cost {
    /// Whether the pipeline is faster by more than the error of the model.
    pub(super) fn pipelines(&self) -> bool {
        self.pipeline_us * MARGIN <= self.sequence_us
    }
}

#[cfg(test)]
#[path = "../../tests/unit/fused/cost.rs"]
mod tests;
