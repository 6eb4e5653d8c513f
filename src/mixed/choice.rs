//! The mode that `Auto` chooses: a pure function of the grid, the operation, the size and the tuning.

use super::grid::GridSizes;
use super::mode::MixedMode::{self, OneCollective, OneShot, TwoCollectives, TwoShot, TwoShotAcross};
use super::mode::MixedOperation;
use super::plan;
use crate::choice::{Range, Ranges};
use crate::device::DeviceKind;
use crate::error::Result;
use crate::group::{MAX_WORLD_SIZE, Tuning};

const TUNED: &str = "measured by `symmetra tune`";
const ESTIMATED: &str = "estimated from the steps";

/// The modes of each operation of a grid, and the choices of its tuning.
pub(super) struct ModeChoices {
    sizes: GridSizes,
    /// [operation]
    modes: Vec<Vec<MixedMode>>,
    /// The modes that round a value at most once. [operation]
    once: Vec<Vec<MixedMode>>,
    /// [operation][whether peers can address the operands]; empty where nothing was tuned.
    tuned: Vec<[Tuned; 2]>,
}

/// The rows of a tuning for one operation.
struct Tuned {
    ranges: Ranges<MixedMode>,
    /// The smallest and the largest measured size; rows outside come from the built-in table.
    measured: Option<[u64; 2]>,
}

/// The properties of a call, other than its size, on which the choice depends. Equal on all ranks.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) operation: MixedOperation,
    /// Whether peers can address input and output.
    pub(super) direct: bool,
    /// Whether values may be rounded only once.
    pub(super) once: bool,
}

impl ModeChoices {
    /// # Errors
    /// [`crate::Error::InvalidArgument`] where the tuning names a mode that does not exist.
    pub(super) fn new(sizes: GridSizes, kind: DeviceKind, tuning: Option<&Tuning>) -> Result<Self> {
        let tuning = tuning.filter(|tuning| tuning.serves(kind));
        let modes = MixedOperation::ALL.map(|operation| plan::modes(&sizes, operation, MAX_WORLD_SIZE)).to_vec();
        let once = MixedOperation::ALL.into_iter().zip(&modes).map(|(operation, modes)| {
            let roundings = |mode: MixedMode| plan::plan(&sizes, operation, mode, 1).roundings();
            modes.iter().copied().filter(|mode| !operation.reduces() || roundings(*mode) <= 1).collect()
        });
        let once = once.collect();
        let rows = |operation: MixedOperation, direct| -> Result<Tuned> {
            let grid = tuning.and_then(|tuning| tuning.grid(sizes.by_level(), operation.name(), direct));
            let rows = grid.map_or(&[][..], |grid| grid.rows.as_slice());
            let ranges = Ranges::tuned(rows, |name| Ok((name.parse()?, TUNED)))?;
            Ok(Tuned { ranges, measured: grid.and_then(|grid| grid.measured_bytes) })
        };
        let tuned =
            MixedOperation::ALL.into_iter().map(|operation| Ok([rows(operation, false)?, rows(operation, true)?]));
        Ok(Self { tuned: tuned.collect::<Result<_>>()?, sizes, modes, once })
    }

    /// The modes of an operation.
    pub(super) fn modes(&self, operation: MixedOperation) -> &[MixedMode] {
        &self.modes[operation as usize]
    }

    /// The mode for `bytes` bytes of `x` or of a slice. The grid has the operation.
    pub(super) fn choose(&self, ask: Ask, bytes: u64) -> MixedMode {
        let tuned = &self.tuned[ask.operation as usize][usize::from(ask.direct)];
        let tuned = tuned.ranges.at(bytes).map(|range| range.choice);
        tuned.filter(|mode| self.is_able(*mode, ask)).unwrap_or_else(|| self.built_in(ask, bytes))
    }

    /// The [choice](Self::choose), then the other usable modes in the order of the built-in table.
    pub(super) fn in_order(&self, ask: Ask, bytes: u64) -> impl Iterator<Item = MixedMode> + use<'_> {
        let first = self.choose(ask, bytes);
        let others = self.wanted(bytes).into_iter().filter(move |mode| *mode != first && self.is_able(*mode, ask));
        std::iter::once(first).chain(others)
    }

    /// The choices for all sizes, smallest first.
    pub(super) fn ranges(&self, ask: Ask) -> Ranges<MixedMode> {
        let Tuned { ranges: tuned, measured } = &self.tuned[ask.operation as usize][usize::from(ask.direct)];
        let built_in = self.table().iter().map(|(up_to_bytes, _)| *up_to_bytes);
        let ends = tuned.iter().map(|range| range.up_to_bytes).chain(built_in);
        // The reason can change at the first and at the last measured size.
        let ends = ends.chain(measured.iter().flat_map(|[least, most]| [least.saturating_sub(1), *most]));
        let mut ends: Vec<u64> = ends.collect();
        ends.sort_unstable();
        Ranges::new(ends.into_iter().map(|up_to_bytes| {
            let mode = self.choose(ask, up_to_bytes);
            let of_tuning = tuned.at(up_to_bytes).map(|range| range.choice) == Some(mode);
            let was_measured = measured.is_none_or(|[least, most]| (least..=most).contains(&up_to_bytes));
            Range::new(up_to_bytes, mode, if of_tuning && was_measured { TUNED } else { ESTIMATED })
        }))
    }

    /// Whether the grid has the mode, and the mode rounds as asked.
    fn is_able(&self, mode: MixedMode, ask: Ask) -> bool {
        let modes = if ask.once { &self.once } else { &self.modes };
        modes[ask.operation as usize].contains(&mode)
    }

    fn built_in(&self, ask: Ask, bytes: u64) -> MixedMode {
        self.wanted(bytes).into_iter().find(|mode| self.is_able(*mode, ask)).unwrap_or(OneCollective)
    }

    fn wanted(&self, bytes: u64) -> ModeOrder {
        let table = self.table();
        table[table.partition_point(|(up_to_bytes, _)| *up_to_bytes < bytes)].1
    }

    /// The built-in table: orders of modes by the largest size in bytes of each, smallest first. The last row has no
    /// limit.
    fn table(&self) -> &'static [(u64, ModeOrder)] {
        let GridSizes { local_tensor, local_data, .. } = self.sizes;
        match (self.sizes.hosts(), self.sizes.local()) {
            // One step, which is one of the communicator's operations.
            (1, _) if local_tensor == 1 || local_data == 1 => &[(u64::MAX, BY_ONE_SHOT)],
            (1, 4) => &[(704 << 10, BY_ONE_SHOT), (6 << 20, BY_TWO_COLLECTIVES), (u64::MAX, BY_TWO_SHOT)],
            (1, _) => &[(64 << 10, BY_ONE_SHOT), (u64::MAX, BY_TWO_SHOT)],
            _ => &[((16 << 10) - 1, BY_ONE_SHOT), (u64::MAX, BY_TWO_SHOT)],
        }
    }
}

/// All modes, best first; the first one that the grid has is taken.
type ModeOrder = [MixedMode; 5];

const BY_ONE_SHOT: ModeOrder = [OneShot, TwoShotAcross, TwoShot, TwoCollectives, OneCollective];
const BY_TWO_SHOT: ModeOrder = [TwoShotAcross, TwoShot, OneShot, TwoCollectives, OneCollective];
const BY_TWO_COLLECTIVES: ModeOrder = [TwoCollectives, TwoShotAcross, TwoShot, OneShot, OneCollective];

#[cfg(test)]
#[path = "../../tests/unit/mixed/choice.rs"]
mod tests;
