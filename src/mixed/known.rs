//! The plans of the last call of each operation. A call of the same shape reuses the plans and allocates nothing.

use super::mode::{MixedMode, MixedOperation};
use super::parts::DataRows;
use super::plan::GridPlan;
use crate::error::Result;

/// The properties, other than the grid and the operation, on which plans depend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PlanKey<'a> {
    pub(super) mode: MixedMode,
    /// Bytes of an element; the capacity of the workspace in elements depends on it.
    pub(super) elem_bytes: usize,
    pub(super) rows: DataRows<'a>,
}

/// The plans of a call, and its shape.
struct Known {
    mode: MixedMode,
    elem_bytes: usize,
    rows: OwnRows,
    plans: Vec<GridPlan>,
}

/// An owned copy of [`DataRows`].
enum OwnRows {
    Equal(usize),
    Of(Vec<usize>),
}

impl Known {
    fn shape(&self) -> PlanKey<'_> {
        let rows = match &self.rows {
            OwnRows::Equal(count) => DataRows::Equal(*count),
            OwnRows::Of(counts) => DataRows::Of(counts),
        };
        PlanKey { mode: self.mode, elem_bytes: self.elem_bytes, rows }
    }
}

/// The plans of the last call of every operation.
#[derive(Default)]
pub(super) struct KnownPlans([Option<Known>; MixedOperation::ALL.len()]);

impl KnownPlans {
    /// The plans of a call: the cached plans if the last call of this operation had the same shape, else the result of
    /// `make`.
    pub(super) fn of(
        &mut self,
        operation: MixedOperation,
        shape: PlanKey<'_>,
        make: impl FnOnce() -> Result<Vec<GridPlan>>,
    ) -> Result<&[GridPlan]> {
        let known = &mut self.0[operation as usize];
        let known = match known.take().filter(|known| known.shape() == shape) {
            Some(same) => known.insert(same),
            None => {
                let plans = make()?;
                let rows = match shape.rows {
                    DataRows::Equal(count) => OwnRows::Equal(count),
                    DataRows::Of(counts) => OwnRows::Of(counts.to_vec()),
                };
                known.insert(Known { mode: shape.mode, elem_bytes: shape.elem_bytes, rows, plans })
            }
        };
        Ok(&known.plans)
    }
}
