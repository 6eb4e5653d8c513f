//! Operations whose data ranks have parts of unequal length, and messages in pieces: the parts are staged in the
//! workspace, and the steps are those of equal parts. Pure.

use super::grid::GridSizes;
use super::mode::{MixedMode, MixedOperation};
use super::plan::{ALIGN, GridPlan, Planner, plan};
use super::steps::{ElementRange, Space};

/// The elements of `x`, or of the slice, of each data rank in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataRows<'a> {
    /// All data ranks have this many elements.
    Equal(usize),
    /// The elements by data rank.
    Of(&'a [usize]),
}

impl DataRows<'_> {
    pub(super) fn of(&self, data_rank: usize) -> usize {
        match self {
            Self::Equal(count) => *count,
            Self::Of(counts) => counts[data_rank],
        }
    }

    pub(super) fn most(&self) -> usize {
        match self {
            Self::Equal(count) => *count,
            Self::Of(counts) => counts.iter().copied().max().unwrap_or(0),
        }
    }

    /// The elements of all ranks before this one.
    pub(super) fn before(&self, data_rank: usize) -> usize {
        (0..data_rank).map(|rank| self.of(rank)).sum()
    }

    fn are_equal(&self) -> bool {
        match self {
            Self::Equal(_) => true,
            Self::Of(counts) => counts.iter().all(|count| *count == counts[0]),
        }
    }

    /// The start, in the operand with the elements of all data ranks, and the length of a part of one data rank: the
    /// part begins at `start` within the elements of the data rank and has at most `len` elements.
    fn part(&self, data_rank: usize, start: usize, len: usize) -> (usize, usize) {
        (self.before(data_rank) + start, self.of(data_rank).saturating_sub(start).min(len))
    }
}

impl MixedOperation {
    /// Elements of the input and of the output of data rank `at`.
    pub(super) fn elems_of(self, sizes: &GridSizes, rows: DataRows<'_>, at: usize) -> (usize, usize) {
        let of = |blocks: usize| if blocks == 1 { rows.of(at) } else { rows.before(sizes.data()) };
        let (input, output) = self.elems(sizes, 1);
        (of(input), of(output))
    }
}

/// The next length to try after a piece of `len` elements took too much workspace; none if no shorter piece exists.
pub(super) fn shorter(len: usize) -> Option<usize> {
    match len {
        0 | 1 => None,
        2..=ALIGN => Some(len / 2),
        _ => Some(len.div_ceil(2).next_multiple_of(ALIGN)),
    }
}

/// Plans the elements, on data rank `at`, of each data rank from `start` on, at most `len`: a piece of a message, or a message whose data
/// ranks have unequal parts. Parts are staged if they are not contiguous, or if the part of any rank is shorter. All
/// ranks make the same decision, so that the operands of every step have equal layouts.
pub(super) fn plan_part(
    sizes: &GridSizes,
    at: usize,
    operation: MixedOperation,
    mode: MixedMode,
    rows: DataRows<'_>,
    start: usize,
    len: usize,
) -> GridPlan {
    let (most, data) = (rows.most(), sizes.data());
    if rows.are_equal() && (start, len) == (0, most) {
        return plan(sizes, operation, mode, most);
    }
    let (blocks_in, blocks_out) = operation.elems(sizes, 1);
    let full = (0..data).all(|rank| rows.part(rank, start, len).1 == len);
    // The start and length of the part of an operand that belongs into each place of `len` elements.
    let parts = |blocks: usize| -> Vec<(usize, usize)> {
        match blocks {
            1 => vec![(start, rows.part(at, start, len).1)],
            _ => (0..blocks).map(|rank| rows.part(rank, start, len)).collect(),
        }
    };
    let direct = |blocks: usize| blocks == 1 && full;
    let mut planner = Planner::new(sizes, len, ElementRange::NONE, ElementRange::NONE);
    let operand = |space: Space, (start, elems): (usize, usize)| ElementRange { space, start, elems };
    let place = |planner: &mut Planner, blocks: usize, space: Space| match direct(blocks) {
        true => operand(space, (start, len)),
        false => planner.take(blocks * len),
    };
    (planner.input, planner.output) =
        (place(&mut planner, blocks_in, Space::Input), place(&mut planner, blocks_out, Space::Output));
    if !direct(blocks_in) {
        for (number, part) in parts(blocks_in).into_iter().enumerate() {
            planner.copy(operand(Space::Input, part), planner.input.part(number, len).first(part.1));
        }
    }
    planner.operate(operation, mode);
    if !direct(blocks_out) {
        for (number, part) in parts(blocks_out).into_iter().enumerate() {
            planner.copy(planner.output.part(number, len).first(part.1), operand(Space::Output, part));
        }
    }
    planner.plan
}
