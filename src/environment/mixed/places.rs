//! Where the ranks of a grid stand, which groups are one, and how much workspace calls take. Pure.

use super::grid::{Position, Sizes};
use super::mode::{MixedMode, MixedOperation};
use super::steps;

/// Where every rank of the world stands.
pub(super) fn positions(sizes: &Sizes, hosts: &[Vec<usize>], ranks: &[usize]) -> Vec<Position> {
    let place = |rank: &usize| {
        let host = hosts.iter().position(|host| host.contains(rank)).unwrap_or(0);
        let local = hosts[host].iter().position(|other| other == rank).unwrap_or(0);
        sizes.position(host, local)
    };
    ranks.iter().map(place).collect()
}

/// What tells two ways to divide the ranks apart: of every rank, the first rank of its group and its number there.
pub(super) fn layout(places: &[(usize, usize)]) -> Vec<usize> {
    let first = |color: usize| places.iter().position(|(other, _)| *other == color).unwrap_or(0);
    places.iter().flat_map(|(color, key)| [first(*color), *key]).collect()
}

/// Bytes of workspace for every operation in every mode of so many bytes, of any type, and to stage the operands of data
/// ranks that have unequally much: a mode that takes workspace besides runs in pieces then.
pub(super) fn work_bytes(sizes: &Sizes, most_bytes: usize) -> usize {
    let mut most = 0;
    // Several launches take more room than one.
    let sizes = &Sizes { sums_apart: false, ..*sizes };
    // A count that the ranks do not divide takes room for what makes their shares equal.
    let counts = |bytes: usize| [most_bytes / bytes, (most_bytes / bytes).saturating_sub(1)];
    for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(sizes)) {
        for bytes in [1, 2, 4, 8] {
            for count in counts(bytes) {
                for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(sizes, operation)) {
                    most = most.max(steps::plan(sizes, operation, mode, count).work * bytes);
                }
                let staged = |blocks: usize| (blocks * count).next_multiple_of(steps::ALIGN);
                let (input, output) = operation.elems(sizes, 1);
                most = most.max(if sizes.data() > 1 { (staged(input) + staged(output)) * bytes } else { 0 });
            }
        }
    }
    most
}
