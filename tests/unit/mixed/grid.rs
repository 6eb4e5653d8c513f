use super::*;

fn grid(local: [Option<usize>; 2], across: [Option<usize>; 2]) -> Grid {
    Grid { local_tensor: local[0], local_data: local[1], across_tensor: across[0], across_data: across[1] }
}

#[test]
fn missing_sizes_are_what_is_left() {
    let of = |local, across| grid(local, across).sizes(4, 6).unwrap();
    let sizes = |sizes: GridSizes| [sizes.local_tensor, sizes.local_data, sizes.across_tensor, sizes.across_data];
    assert_eq!(sizes(of([None, None], [None, None])), [4, 1, 6, 1]);
    assert_eq!(sizes(of([Some(2), None], [None, Some(3)])), [2, 2, 2, 3]);
    assert_eq!(sizes(of([None, Some(4)], [Some(6), None])), [1, 4, 6, 1]);
    assert_eq!(sizes(of([Some(1), Some(4)], [Some(3), Some(2)])), [1, 4, 3, 2]);
}

#[test]
fn sizes_that_do_not_make_up_the_level_show_the_arithmetic() {
    for (local, shown) in [
        ([Some(3), None], "3 x ?"),
        ([None, Some(0)], "? x 0"),
        ([Some(2), Some(3)], "2 x 3"),
        ([Some(0), Some(0)], "0 x 0"),
        ([Some(usize::MAX), Some(2)], "x 2"),
    ] {
        let error = grid(local, [None; 2]).sizes(4, 1).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
        assert!(message.contains(shown) && message.contains("there are 4 ranks of a host"), "{message}");
    }
    let message = grid([None; 2], [Some(2), None]).sizes(4, 3).unwrap_err().to_string();
    assert!(message.contains("across_tensor x across_data") && message.contains("there are 3 hosts"), "{message}");
}

#[test]
fn ranks_and_hosts_that_no_world_has_are_refused_with_the_limit() {
    let config = crate::mixed::MixedConfig { most_bytes: 1 << 40, ..Default::default() };
    for (local, hosts, what, value, limit) in [
        (0, 2, "the ranks of a host", "0", "at most 16"),
        (17, 1, "the ranks of a host", "17", "at most 16"),
        (usize::MAX, usize::MAX, "the ranks of a host", "18446744073709551615", "at most 16"),
        (2, 0, "the hosts", "0", "at most 128"),
        (2, 129, "the hosts", "129", "at most 128"),
        (16, usize::MAX, "the hosts", "18446744073709551615", "at most 16"),
    ] {
        let error = Grid::default().sizes(local, hosts).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
        assert!([what, value, limit].iter().all(|word| message.contains(word)), "{local} x {hosts}: {message}");
        assert_eq!(config.required_bytes(local, hosts), Err(error));
    }
    assert!(config.required_bytes(16, 16).is_ok() && config.required_bytes(1, 256).is_ok());
}

/// Each kind of group divides all ranks into groups of one size, numbered from 0.
#[test]
fn every_rank_is_in_one_group_of_each_kind() {
    for [local_tensor, local_data, across_tensor, across_data] in
        [[1, 1, 1, 1], [2, 1, 1, 1], [1, 3, 2, 1], [2, 2, 2, 3], [4, 1, 1, 2]]
    {
        let sizes = GridSizes { local_tensor, local_data, across_tensor, across_data, sums_apart: true };
        for part in GridPart::ALL {
            let mut seen = std::collections::BTreeSet::new();
            for host in 0..sizes.hosts() {
                for local in 0..sizes.local() {
                    let (group, number) = part.of(&sizes, sizes.position(host, local));
                    assert!(number < part.size(&sizes) && group < sizes.world() / part.size(&sizes), "{part:?}");
                    assert!(seen.insert((group, number)), "{part:?}: two ranks are number {number} of group {group}");
                }
            }
            assert_eq!(seen.len(), sizes.world());
        }
    }
}
