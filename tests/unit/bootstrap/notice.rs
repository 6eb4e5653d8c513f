//! Tests of `src/bootstrap/notice.rs`, whose module they are.

use super::*;

#[test]
fn a_notice_reads_back_as_the_error_it_was_made_of() {
    let lost = Error::PeerLost { rank: 3, detail: ": its connection closed".into() };
    let Error::PeerLost { rank, detail } = read_notice(0, &notice(0, &lost).payload) else {
        unreachable!("not PeerLost");
    };
    assert_eq!((rank, detail.as_str()), (3, ": its connection closed; found by rank 0"));

    let late = Error::exchange_timeout(Some(2), Duration::from_millis(7), "it did not call");
    let expected = Error::exchange_timeout(Some(2), Duration::from_millis(7), "it did not call; found by rank 1");
    assert_eq!(read_notice(1, &notice(1, &late).payload), expected);

    let other = Error::bootstrap("nonsense");
    let expected = Error::Peer { rank: 1, message: "bootstrap: nonsense".into() };
    assert_eq!(read_notice(1, &notice(1, &other).payload), expected);
    assert_eq!(read_notice(0, &notice(0, &expected).payload), expected, "passed on");
}

#[test]
fn a_mangled_notice_is_an_error_of_its_sender() {
    for length in 0..13 {
        let error = read_notice(4, &vec![0xff; length]);
        assert!(matches!(error, Error::Peer { rank: 4, .. }), "{error:?}");
    }
}
