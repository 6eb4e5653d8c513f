//! What a call of a plan costs on NVIDIA GPUs, by a model: a pure function, equal on all ranks.
//!
//! The constants are those of H100 and H200 with NVLink, clocks as they come: products of bf16 at 700 TFLOP/s, 1.75 times that
//! for 8-bit floats, in waves of tiles on 132 multiprocessors, and never faster than their factors are read; copies between
//! GPUs at 390 GB/s, collectives by kernels at 340 GB/s. PERFORMANCE.md has the model beside measured times, and the tests
//! have those that the constants come from.

use crate::matmul::{Numeric, Product};

/// The times of both ways, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) sequence_us: f64,
    pub(super) pipeline_us: f64,
    /// The longer of the product alone and of the copies alone.
    pub(super) bound_us: f64,
}

/// What is multiplied in all, and how many bytes go from rank to rank.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) world: usize,
    /// One after the other, of one left factor.
    pub(super) products: &'a [Product],
    pub(super) rows: usize,
    /// Bytes of a part.
    pub(super) part_bytes: usize,
}

const FLOPS_PER_US: f64 = 700e6;
const COPY_BYTES_PER_US: f64 = 390e3;
const COLLECTIVE_BYTES_PER_US: f64 = 340e3;
/// Of the own memory.
const READ_BYTES_PER_US: f64 = 3e6;
/// Before the first copy: a barrier, and the start of the copy engine.
const START_US: f64 = 10.0;
/// Joins of the streams.
const END_US: f64 = 4.0;
/// A barrier and the launch of a reduction.
const REDUCE_US: f64 = 6.0;
/// What a collective by kernels takes beside its bytes.
const COLLECTIVE_US: f64 = 7.0;
/// What a copy takes beside its bytes.
const COPY_US: f64 = 3.0;
/// What a product takes beside its work.
const PRODUCT_US: f64 = 1.0;
/// What the products of a part take more than they do alone, as they share the memory with copies: those of a part that came, which
/// also wait for its word, and those of a part that goes.
const CAME_US: f64 = 4.0;
const GOES_US: f64 = 2.0;
/// A pipeline is chosen where the model says that it saves so much: the model may be a little wrong.
const MARGIN: f64 = 1.01;
const MULTIPROCESSORS: f64 = 132.0;
const TILE_ROWS: usize = 128;
/// Columns of tiles, and their speed. The library takes those that fill the waves of a product best.
const TILES: [(usize, f64); 2] = [(128, 1.0), (160, 0.95)];

/// The time of a product of so many rows.
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
        // In floats: a product of three sizes may be no number of the machine.
        let tiles = rows.div_ceil(TILE_ROWS) as f64 * product.columns.div_ceil(columns) as f64;
        let tile_flops = 2.0 * (TILE_ROWS * columns) as f64 * product.inner as f64;
        let tile_us = tile_flops / (speed * flops_per_us / MULTIPROCESSORS);
        // Between a last wave that waits for its slowest tile, and tiles that the library makes smaller to fill the wave. Of less than
        // a wave it makes more blocks.
        let waves = tiles / MULTIPROCESSORS;
        let waves = if waves < 1.0 { 0.25 + 0.75 * waves } else { (waves + waves.ceil()) / 2.0 };
        waves * tile_us
    });
    let tiled_us = tiled_us.into_iter().fold(f64::INFINITY, f64::min);
    tiled_us.max(read / READ_BYTES_PER_US) + PRODUCT_US
}

impl Work<'_> {
    /// All products of so many rows, one after the other.
    fn products_us(&self, rows: usize) -> f64 {
        self.products.iter().map(|product| product_us(product, rows)).sum()
    }

    /// The products of a part, among copies of other parts.
    fn share_us(&self, beside_us: f64) -> f64 {
        self.products_us(self.rows / self.world) + beside_us
    }

    /// The copy of a part.
    fn copy_us(&self) -> f64 {
        self.part_bytes as f64 / COPY_BYTES_PER_US + COPY_US
    }

    /// The bytes of the copies alone.
    fn moved_us(&self) -> f64 {
        self.peers() as f64 * self.part_bytes as f64 / COPY_BYTES_PER_US
    }

    fn peers(&self) -> usize {
        self.world - 1
    }

    /// A collective by kernels, alone.
    fn collective_us(&self) -> f64 {
        self.peers() as f64 * self.part_bytes as f64 / COLLECTIVE_BYTES_PER_US + COLLECTIVE_US
    }

    fn bound_us(&self) -> f64 {
        self.products_us(self.rows).max(self.moved_us())
    }

    /// All-gather, then products; or own products while parts arrive one after the other.
    pub(super) fn gathered(&self) -> Cost {
        let share_us = self.share_us(CAME_US);
        let arrivals = (1..=self.peers()).map(|number| START_US + number as f64 * self.copy_us());
        let pipeline_us = arrivals.fold(share_us, |done, arrival| done.max(arrival) + share_us) + END_US;
        let sequence_us = self.collective_us() + self.products_us(self.rows);
        Cost { sequence_us, pipeline_us, bound_us: self.bound_us() }
    }

    /// Products, then reduce-scatter; or parts that are sent as soon as they are there.
    pub(super) fn scattered(&self) -> Cost {
        let share_us = self.share_us(GOES_US);
        // The first product waits for nothing.
        let (mut multiplied, mut moved) = (0.0, START_US);
        for _ in 0..self.peers() {
            multiplied += share_us;
            moved = multiplied.max(moved) + self.copy_us();
        }
        // The own part is last. All are read, and the sum is written.
        let reduce_us = (self.world + 1) as f64 * self.part_bytes as f64 / READ_BYTES_PER_US + REDUCE_US;
        let pipeline_us = (multiplied + share_us).max(moved) + reduce_us + END_US;
        let sequence_us = self.products_us(self.rows) + self.collective_us();
        Cost { sequence_us, pipeline_us, bound_us: self.bound_us() }
    }

    /// Products, then all-reduce; or a reduce-scatter part by part, and an all-gather.
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
    /// Whether part by part is faster by more than the model may be wrong.
    pub(super) fn pipelines(&self) -> bool {
        self.pipeline_us * MARGIN <= self.sequence_us
    }
}

#[cfg(test)]
#[path = "../../tests/unit/fused/cost.rs"]
mod tests;
