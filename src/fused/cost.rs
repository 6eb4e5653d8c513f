//! What a call of a plan costs on NVIDIA GPUs, by a model: a pure function, equal on all ranks.
//!
//! The constants are those of H200 with NVLink, clocks as they come: products of bf16 at 740 TFLOP/s (675 for K up to 1024),
//! 1.75 times that for 8-bit floats, copies between GPUs at 360 GB/s, reads of the own memory at 3.3 TB/s.

use crate::matmul::{Numeric, Product};

/// The times of both ways, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) sequence_us: f64,
    pub(super) pipeline_us: f64,
    /// The longer of the product alone and of the copies alone.
    pub(super) bound_us: f64,
}

/// What parts of a whole are multiplied, and how many bytes go from rank to rank.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) world: usize,
    /// The time of all products, one after the other.
    pub(super) products_us: f64,
    /// Bytes of a part.
    pub(super) part_bytes: u64,
}

const COPY_BYTES_PER_US: f64 = 360e3;
const READ_BYTES_PER_US: f64 = 3.3e6;
/// Before the first copy: a barrier, and the start of the copy engine.
const START_US: f64 = 10.0;
/// A product of few rows is slower than its share of the whole.
const TAIL: f64 = 1.35;
/// Joins of the streams.
const END_US: f64 = 4.0;
/// What a collective by kernels takes beside its bytes.
const COLLECTIVE_US: f64 = 8.0;

/// The time of a product of so many rows.
pub(super) fn product_us(product: &Product, rows: usize) -> f64 {
    let rate = match (product.numeric, product.inner) {
        (Numeric::F8 { .. }, _) => 740e6 * 1.75,
        (Numeric::F32, _) => 50e6,
        (Numeric::Tf32, _) => 370e6,
        (_, ..=1024) => 675e6,
        _ => 740e6,
    };
    2.0 * rows as f64 * product.columns as f64 * product.inner as f64 / rate + 4.0
}

impl Work {
    fn copy_us(&self) -> f64 {
        self.part_bytes as f64 / COPY_BYTES_PER_US
    }

    /// All-gather, then products; or own products while parts arrive one after the other.
    pub(super) fn gathered(self) -> Cost {
        let (peers, copy_us) = (self.world - 1, self.copy_us());
        let share_us = self.products_us / self.world as f64;
        // Part i arrives, and all that is left then is multiplied.
        let left_us = |arrival: usize| match peers - arrival {
            0 => TAIL * share_us,
            more => share_us * (more as f64 + TAIL),
        };
        let waits = (1..=peers).map(|arrival| START_US + arrival as f64 * copy_us + left_us(arrival));
        let pipeline_us = waits.fold(self.products_us, f64::max) + END_US;
        let copies_us = peers as f64 * copy_us;
        let sequence_us = copies_us + COLLECTIVE_US + self.products_us;
        Cost { sequence_us, pipeline_us, bound_us: self.products_us.max(copies_us) }
    }

    /// Products, then reduce-scatter; or parts that are sent as soon as they are there.
    pub(super) fn scattered(self) -> Cost {
        let (peers, copy_us) = (self.world - 1, self.copy_us());
        let share_us = self.products_us / self.world as f64;
        let reduce_us = self.world as f64 * self.part_bytes as f64 / READ_BYTES_PER_US + 6.0;
        let copies_us = peers as f64 * copy_us;
        let sent_us = share_us + copies_us.max(peers as f64 * share_us) + copy_us.min(share_us);
        let pipeline_us = sent_us.max(self.products_us) + reduce_us + END_US;
        let sequence_us = self.products_us + copies_us + COLLECTIVE_US;
        Cost { sequence_us, pipeline_us, bound_us: self.products_us.max(copies_us) }
    }
}

impl Work {
    /// Products, then all-reduce; or a reduce-scatter part by part, and an all-gather.
    pub(super) fn all_reduced(self) -> Cost {
        let Cost { sequence_us, pipeline_us, .. } = self.scattered();
        let copies_us = (self.world - 1) as f64 * self.copy_us();
        Cost {
            sequence_us: sequence_us + copies_us,
            pipeline_us: pipeline_us + copies_us + COLLECTIVE_US,
            bound_us: self.products_us.max(2.0 * copies_us),
        }
    }
}

impl Cost {
    /// Whether part by part is so much faster that the model may be a little wrong.
    pub(super) fn pipelines(&self) -> bool {
        self.pipeline_us * 1.05 <= self.sequence_us
    }
}

#[cfg(test)]
#[path = "../../tests/unit/fused/cost.rs"]
mod tests;
