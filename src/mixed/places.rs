//! The positions of the ranks of a grid, equality of groups, and the workspace that calls need. Pure.

use super::grid::{GridPart, GridSizes, Position};
use super::mode::{MixedMode, MixedOperation};
use super::parts::{DataRows, plan_part};
use super::plan;
use super::steps::GridStep;

/// The position of every rank of the world.
pub(super) fn positions(sizes: &GridSizes, hosts: &[Vec<usize>], ranks: &[usize]) -> Vec<Position> {
    let place = |rank: &usize| {
        let host = hosts.iter().position(|host| host.contains(rank)).unwrap_or(0);
        let local = hosts[host].iter().position(|other| other == rank).unwrap_or(0);
        sizes.position(host, local)
    };
    ranks.iter().map(place).collect()
}

/// A canonical form of a division of the ranks into groups: for each rank the first rank of its group and its number in
/// the group. Two divisions are equal if and only if their layouts are.
pub(super) fn layout(places: &[(usize, usize)]) -> Vec<usize> {
    let first = |color: usize| places.iter().position(|(other, _)| *other == color).unwrap_or(0);
    places.iter().flat_map(|(color, key)| [first(*color), *key]).collect()
}

/// The first mode with the same steps as `mode`, over groups of the same ranks in the same order. The grid has both
/// modes.
pub(super) fn first_alike(sizes: &GridSizes, operation: MixedOperation, mode: MixedMode) -> MixedMode {
    let ranks = || (0..sizes.hosts()).flat_map(|host| (0..sizes.local()).map(move |local| sizes.position(host, local)));
    let layouts = GridPart::ALL.map(|part| layout(&ranks().map(|at| part.of(sizes, at)).collect::<Vec<_>>()));
    // Replaces a group by the first group with the same ranks.
    let first = |part: GridPart| layouts.iter().position(|layout| *layout == layouts[part as usize]);
    let steps = |mode, count| {
        let steps = plan::plan(sizes, operation, mode, count).steps.into_iter();
        let named = |step| match step {
            GridStep::Collective { kind, part, from, into, rows } => {
                (first(part), Some((kind, from, into, rows)), None)
            }
            other => (None, None, Some(other)),
        };
        steps.map(named).collect::<Vec<_>>()
    };
    // A count that the ranks divide, and one that they do not divide.
    let counts = [sizes.world(), sizes.world() + 1];
    let alike = |other: &MixedMode| counts.iter().all(|count| steps(*other, *count) == steps(mode, *count));
    let others = MixedMode::ALL.into_iter().filter(|other| other.is_on(sizes, operation));
    others.into_iter().find(alike).unwrap_or(mode)
}

/// The workspace elements of a piece of `len` elements of each data rank, of which one lacks an element, so that
/// everything is staged.
fn staged_work(sizes: &GridSizes, operation: MixedOperation, mode: MixedMode, len: usize) -> usize {
    if sizes.data() == 1 {
        return 0; // nothing to stage
    }
    let mut counts = vec![len; sizes.data()];
    counts[0] = len.saturating_sub(1);
    plan_part(sizes, 0, operation, mode, DataRows::Of(&counts), 0, len).work
}

/// Workspace bytes for every operation in every mode with `most_bytes` bytes of any type, and for staging the operands
/// of data ranks with unequal parts. A mode that needs more workspace for such operands runs in pieces; the shortest
/// piece fits.
pub(super) fn work_bytes(sizes: &GridSizes, most_bytes: usize) -> usize {
    let mut most = 0;
    // Several launches need more workspace than one.
    let sizes = &GridSizes { sums_apart: false, ..*sizes };
    // A count that the ranks do not divide needs padding to equal shares.
    let counts = |bytes: usize| [most_bytes / bytes, (most_bytes / bytes).saturating_sub(1)];
    for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(sizes)) {
        for bytes in [1, 2, 4, 8] {
            for count in counts(bytes) {
                for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(sizes, operation)) {
                    most = most.max(plan::plan(sizes, operation, mode, count).work * bytes);
                    let short = count.min(plan::ALIGN);
                    for len in [short, short.saturating_sub(1)] {
                        most = most.max(staged_work(sizes, operation, mode, len) * bytes);
                    }
                }
                let staged = |blocks: usize| (blocks * count).next_multiple_of(plan::ALIGN);
                let (input, output) = operation.elems(sizes, 1);
                most = most.max(if sizes.data() > 1 { (staged(input) + staged(output)) * bytes } else { 0 });
            }
        }
    }
    most
}
