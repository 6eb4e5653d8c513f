//! Tests of `crates/cli/src/all_reduce/places.rs`, whose module they are.

use super::*;

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
