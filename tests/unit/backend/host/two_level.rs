//! Tests of `src/backend/host/two_level.rs`, whose module they are.

use super::*;

#[test]
fn wires_join_ranks_of_one_place() {
    let parts = [vec![0, 1], vec![4, 6]];
    assert_eq!(wired(&parts, 6), Some(vec![1, 6]));
    assert_eq!(wired(&parts, 0), Some(vec![0, 4]));
    let uneven = [vec![0, 1], vec![4]];
    assert_eq!(wired(&uneven, 0), Some(vec![0, 4]));
    assert_eq!((wired(&uneven, 1), wired(&uneven, 9)), (None, None));
}

#[test]
fn what_the_first_rank_has_travels_in_slices() {
    for (bytes, slices) in [(0, 1), (1, 1), (7, 1), (8, 2), (9, 2), (16, 3), (100, 13)] {
        let words: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let mut sent = Vec::new();
        let first = in_slices(&words, 8, |slice| {
            sent.push(slice.to_vec());
            Ok(slice.to_vec())
        });
        assert_eq!((first.unwrap(), sent.len()), (words, slices));
        // Another rank, whose own data are shorter or longer.
        for own in [&[1][..], &[1; 200]] {
            let mut arriving = sent.iter();
            let heard = in_slices(own, 8, |_| Ok(arriving.next().unwrap().clone()));
            assert_eq!((heard.unwrap(), arriving.len()), (sent.concat(), 0));
        }
    }
}

#[test]
fn strings_unpack_as_packed() {
    let strings = vec![b"a".to_vec(), Vec::new(), vec![7; 300]];
    assert_eq!(unpack(&pack(&strings)), strings);
    assert_eq!(unpack(&pack(&strings)[..12]), strings[..1]);
    assert_eq!(unpack(&[255; 9]), Vec::<Vec<u8>>::new());
}
