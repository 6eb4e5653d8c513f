//! Tests of `src/bootstrap/notice.rs`, whose module they are.

use super::*;

#[test]
fn a_notice_reads_back_as_the_error_it_was_made_of() {
    let lost = Error::PeerLost { rank: 3, detail: ": its connection closed".into() };
    let Error::PeerLost { rank, detail } = read_notice(0, &notice(0, &lost).payload) else {
        unreachable!("not PeerLost");
    };
    assert_eq!((rank, detail.as_str()), (3, ": its connection closed; found by rank 0"));

    let late = |detail: &str| {
        let (operation, waited, detail) = (Operation::Broadcast, Duration::from_millis(7), detail.to_owned());
        Error::Timeout { operation, sequence: 5, rank: Some(2), waited, detail }
    };
    let (found, passed_on) = (late(": it did not call"), late(": it did not call; found by rank 1"));
    assert_eq!(read_notice(1, &notice(1, &found).payload), passed_on);
    assert_eq!(read_notice(3, &notice(3, &passed_on).payload), passed_on);

    let [what, ours, theirs] = ["the call", "barrier", "close"].map(str::to_owned);
    let differs = Error::Mismatch { what, against: 2, ours, rank: 1, theirs };
    assert_eq!(read_notice(2, &notice(2, &differs).payload), differs);
    let aborted = Error::Aborted { detail: ": by rank 2".into() };
    assert_eq!(decode(1, &encode(&aborted)), aborted);
    let ended = Error::Peer { rank: 1, message: aborted.to_string() };
    assert_eq!(read_notice(1, &notice(1, &aborted).payload), ended);
    let long = Error::Aborted { detail: format!("x{}", "ä".repeat(MAX_BYTES)) };
    assert_eq!(encode(&long).len(), MAX_BYTES - 1, "a text is cut between characters");

    let other = Error::bootstrap("nonsense");
    let expected = Error::Peer { rank: 1, message: "bootstrap: nonsense".into() };
    assert_eq!(read_notice(1, &notice(1, &other).payload), expected);
    assert_eq!(read_notice(0, &notice(0, &expected).payload), expected, "passed on");
}

#[test]
fn a_clipped_text_ends_between_characters() {
    for (bytes, start) in [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (4, "aäb"), (9, "aäb")] {
        assert_eq!(clipped("aäb", bytes), start, "at most {bytes} bytes");
    }
    assert_eq!(clipped("ä", 1), "");
}

#[test]
fn a_mangled_notice_is_an_error_of_its_sender() {
    for length in 0..25 {
        let error = read_notice(4, &vec![0xff; length]);
        assert!(matches!(error, Error::Peer { rank: 4, .. }), "{error:?}");
    }
}
