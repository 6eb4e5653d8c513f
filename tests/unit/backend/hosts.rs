//! Tests of `src/backend/hosts.rs`, whose module they are.

use super::*;
use proptest::prelude::*;

fn hosts(identities: &[&str]) -> Hosts {
    Hosts::new(&identities.iter().map(|identity| (*identity).to_owned()).collect::<Vec<_>>())
}

#[test]
fn ranks_are_counted_within_their_host() {
    let hosts = hosts(&["b", "a", "b", "a", "a"]);
    assert_eq!(hosts.count(), 2);
    assert_eq!(
        (0..6).map(|rank| hosts.node_rank(rank)).collect::<Vec<_>>(),
        [Some(0), Some(1), Some(0), Some(1), Some(1), None]
    );
    assert_eq!((0..5).filter_map(|rank| hosts.local_rank(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    assert_eq!((0..5).filter_map(|rank| hosts.local_size(rank)).collect::<Vec<_>>(), [2, 3, 2, 3, 3]);
    assert_eq!((hosts.local_rank(5), hosts.local_size(5)), (None, None));
    assert_eq!(hosts.to_string(), "b (ranks 0, 2), a (ranks 1, 3, 4)");
    assert_eq!(hosts.parts(&[1, 2, 4]), [vec![2], vec![1, 4]]);
    assert_eq!(hosts.parts(&[3, 4]), [[3, 4]]);
}

proptest! {
    #[test]
    fn node_and_local_rank_name_a_rank(nodes in proptest::collection::vec(0usize..5, 1..40)) {
        let hosts = Hosts::new(&nodes.iter().map(usize::to_string).collect::<Vec<_>>());
        for rank in 0..nodes.len() {
            let (node, local) = (hosts.node_rank(rank).unwrap(), hosts.local_rank(rank).unwrap());
            prop_assert_eq!(hosts.ranks(node)[local], rank);
            prop_assert_eq!(hosts.local_size(rank).unwrap(), nodes.iter().filter(|other| **other == nodes[rank]).count());
        }
        let firsts: Vec<_> = (0..hosts.count()).map(|node| hosts.ranks(node)[0]).collect();
        prop_assert!(firsts.is_sorted());
    }
}
