use super::*;
use crate::types::Dtype;

/// Messages on made-up memory; nothing follows the addresses.
fn messages(device: &Device, of: &[(usize, bool, usize, usize)]) -> Vec<RankMessage> {
    let view = |address: usize, elems| crate::memory::Ref::<u8>::new(address as *mut u8, elems, device);
    of.iter()
        .map(|&(peer, sends, address, bytes)| RankMessage::new(peer, sends, Dtype::U8, &view(address, bytes).view_of()))
        .collect()
}

fn check(of: &[(usize, bool, usize, usize)]) -> Result<(), String> {
    let device = Device::host().unwrap();
    check_pairs(&messages(&device, of), 0, 4, &device).map_err(|error| error.to_string())
}

#[test]
fn received_memory_is_used_once() {
    assert_eq!(check(&[]), Ok(()));
    // Reads may overlap reads; adjacent memory does not overlap; nothing overlaps empty memory.
    let apart = [(1, true, 64, 32), (2, true, 80, 32), (1, false, 112, 16), (2, false, 128, 8), (3, false, 120, 0)];
    assert_eq!(check(&apart), Ok(()));
    let refused = [
        ([(1, false, 64, 16), (2, false, 79, 1)], "what is received from rank"),
        ([(1, true, 64, 16), (2, false, 60, 5)], "what is received from rank 2"),
        ([(1, false, 64, 16), (1, true, 64, 16)], "what is received from rank 1"),
    ];
    for (overlapping, named) in refused {
        let said = check(&overlapping).unwrap_err();
        assert!(said.contains(named) && said.contains("may not overlap"), "{said}");
    }
    // A short message inside a long one that began far before.
    let inside = [(1, false, 1000, 500), (1, true, 1, 10), (2, true, 900, 50), (3, true, 1400, 1), (2, true, 960, 20)];
    assert!(check(&inside).unwrap_err().contains("what is received from rank 1"));
}

#[test]
fn messages_that_may_overlap_are_compared_with_no_other() {
    let device = Device::host().unwrap();
    let check_with = |loose: [bool; 3]| {
        let of = messages(&device, &[(1, false, 64, 16), (2, false, 72, 16), (3, true, 84, 2)]);
        let messages: Vec<_> = of.into_iter().zip(loose).map(|(message, loose)| message.may_overlap(loose)).collect();
        check_pairs(&messages, 0, 4, &device)
    };
    assert_eq!(check_with([true; 3]), Ok(()));
    assert_eq!(check_with([false, true, false]), Ok(()));
    assert!(check_with([true, false, false]).is_err());
    assert!(check_with([false, false, true]).is_err());
}

#[test]
fn a_rank_sends_itself_what_it_receives() {
    assert_eq!(check(&[(0, true, 64, 4), (0, false, 128, 4), (0, true, 96, 8), (0, false, 136, 8)]), Ok(()));
    let said = check(&[(0, true, 64, 4), (0, false, 128, 4), (0, true, 96, 8)]).unwrap_err();
    assert!(said.contains("a rank sends itself is 2, but it receives 1"), "{said}");
    let said = check(&[(0, true, 64, 4), (0, false, 128, 4), (0, true, 96, 8), (0, false, 136, 9)]).unwrap_err();
    assert!(said.contains("message 1 that a rank sends itself is 8 bytes, but it expects 9 bytes"), "{said}");
}

#[test]
fn a_peer_is_in_the_group() {
    let said = check(&[(1, true, 64, 4), (4, false, 128, 4)]).unwrap_err();
    assert!(said.contains("the peer is 4, but the world size is 4"), "{said}");
}

#[test]
fn parts_hold_lanes_and_keep_an_order_that_all_ranks_have() {
    let device = Device::host().unwrap();
    let of = [
        (3, true, 1, 1),
        (1, true, 2, 1),
        (3, true, 3, 1),
        (2, false, 4, 1),
        (3, false, 5, 1),
        (0, true, 6, 1),
        (3, true, 7, 1),
        (2, false, 8, 1),
    ];
    let parts = |most| {
        let mut seen = Vec::new();
        let list = |part: &mut dyn Iterator<Item = &RankMessage>| {
            seen.push(part.map(|message| message.strip().address as usize).collect::<Vec<_>>());
            Ok(())
        };
        each_part(&messages(&device, &of), 0, most, list).unwrap();
        seen
    };
    assert_eq!(parts(100), [vec![2, 1, 3, 7, 4, 8, 5]]);
    assert_eq!(parts(5), [vec![2, 1, 3, 4, 5], vec![7, 8]]);
    assert_eq!(parts(2), [vec![2, 1], vec![4, 5], vec![3, 8], vec![7]]);
}
