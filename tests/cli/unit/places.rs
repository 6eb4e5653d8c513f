//! Tests of `crates/cli/src/all_reduce/places.rs`, whose module they are.

use super::*;

#[test]
fn elements_that_are_written_by_mistake_are_counted() {
    let unwritten = u32::from_ne_bytes([UNWRITTEN; 4]);
    let mut result = vec![unwritten; 12];
    result[3..6].fill(7);
    result[8..10].fill(9);
    let count = |result: &[u32]| count_strays(result, vec![8..10, 3..6]);
    assert_eq!(count(&result), 0);
    for (at, strays) in [(11, 1), (6, 2), (2, 3), (4, 3)] {
        result[at] = 1;
        assert_eq!(count(&result), strays, "{at}");
    }
    assert_eq!(count_strays::<u32>(&result, vec![6..12, 0..6]), 0);
}

#[test]
fn counts_of_pairs_fill_the_operands_of_every_rank() {
    for (world, elems) in [(1, 7), (2, 10), (3, 9), (4, 100), (5, 55)] {
        let sweep =
            Sweep { collective: CollectiveCommand::named("all-to-all-v").unwrap(), ..Sweep::probe(Algorithm::Auto) };
        let places = sweep.places(world, elems);
        for rank in 0..world {
            let sums = [0, 1].map(|side| {
                let pair = |peer| if side == 0 { places.pair(rank, peer) } else { places.pair(peer, rank) };
                (0..world).map(pair).sum::<usize>()
            });
            assert!(sums[0] == sums[1] && sums[0] <= elems, "{world} ranks, {elems} elements: {sums:?}");
        }
    }
}
