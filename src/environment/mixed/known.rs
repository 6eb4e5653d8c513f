//! The plans of the last call of each operation. A call of the same shape uses the plans again, and allocates nothing.

use super::mode::{MixedMode, MixedOperation};
use super::parts::Rows;
use super::steps::Plan;
use crate::error::Result;

/// What plans depend on beside the grid and the operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape<'a> {
    pub(super) mode: MixedMode,
    /// Bytes of an element: the workspace has room for so many bytes.
    pub(super) elem_bytes: usize,
    pub(super) rows: Rows<'a>,
}

/// The plans of a call, and its shape.
struct Known {
    mode: MixedMode,
    elem_bytes: usize,
    rows: OwnRows,
    plans: Vec<Plan>,
}

/// [`Rows`] that are kept.
enum OwnRows {
    Equal(usize),
    Of(Vec<usize>),
}

impl Known {
    fn shape(&self) -> Shape<'_> {
        let rows = match &self.rows {
            OwnRows::Equal(count) => Rows::Equal(*count),
            OwnRows::Of(counts) => Rows::Of(counts),
        };
        Shape { mode: self.mode, elem_bytes: self.elem_bytes, rows }
    }
}

/// The plans of the last call of every operation.
#[derive(Default)]
pub(super) struct KnownPlans([Option<Known>; MixedOperation::ALL.len()]);

impl KnownPlans {
    /// The plans of a call: those of the last call of this operation if its shape was the same, else what `make` gives.
    pub(super) fn of(
        &mut self,
        operation: MixedOperation,
        shape: Shape<'_>,
        make: impl FnOnce() -> Result<Vec<Plan>>,
    ) -> Result<&[Plan]> {
        let known = &mut self.0[operation as usize];
        let known = match known.take().filter(|known| known.shape() == shape) {
            Some(same) => known.insert(same),
            None => {
                let plans = make()?;
                let rows = match shape.rows {
                    Rows::Equal(count) => OwnRows::Equal(count),
                    Rows::Of(counts) => OwnRows::Of(counts.to_vec()),
                };
                known.insert(Known { mode: shape.mode, elem_bytes: shape.elem_bytes, rows, plans })
            }
        };
        Ok(&known.plans)
    }
}
