//! Tests of `src/error.rs`, whose module they are.

use super::*;
use crate::kernel::args;

#[test]
fn an_unknown_number_is_no_operation() {
    assert_eq!(Operation::from_number(args::kOpAllReduce), Some(Operation::AllReduce));
    assert_eq!(Operation::from_number(args::kOpCounts), Some(Operation::Counts));
    assert_eq!(Operation::from_number(0x7f), None);
    assert_eq!(Operation::from_number(u32::MAX), None);
}

#[test]
fn an_error_passes_between_a_group_and_a_part_of_it() {
    let members = [5, 2, 7];
    let of_whole = |rank: usize| {
        let [what, ours, theirs] = ["the sizes", "1", "2"].map(str::to_owned);
        [
            Error::PeerLost { rank, detail: ": killed".to_owned() },
            Error::Peer { rank, message: "full".to_owned() },
            Error::exchange_timeout(Some(rank), Duration::from_secs(1), "late"),
            Error::Mismatch { what, against: 2, ours, rank, theirs },
        ]
    };
    for error in (0..9).flat_map(of_whole) {
        assert_eq!(error.clone().among(&members).of_members(&members), error);
    }
    let [lost, .., differs] = of_whole(7).map(|error| error.among(&members));
    assert_eq!(lost, Error::PeerLost { rank: 2, detail: ": killed".to_owned() });
    assert!(matches!(differs, Error::Mismatch { against: 1, rank: 2, .. }), "{differs}");
    let nobody = Error::exchange_timeout(None, Duration::from_secs(1), "late");
    assert_eq!(nobody.clone().of_members(&members), nobody);
}

#[test]
fn durations_are_rounded_for_people() {
    let shown = |nanoseconds| Rounded(Duration::from_nanos(nanoseconds)).to_string();
    let pairs = [
        (0, "0 us"),
        (999, "1 us"),
        (51_300, "51 us"),
        (999_999, "1000 us"),
        (1_000_000, "1 ms"),
        (2_345_678, "2.3 ms"),
        (250_400_000, "250 ms"),
        (1_000_234_567, "1 s"),
        (1_960_000_000, "2 s"),
        (9_960_000_000, "10 s"),
        (12_600_000_000, "13 s"),
        (120_000_400_000, "120 s"),
    ];
    for (nanoseconds, words) in pairs {
        assert_eq!(shown(nanoseconds), words);
    }
    let late = Error::exchange_timeout(Some(1), Duration::from_nanos(2_000_345_678), "late");
    assert_eq!(late.to_string(), "exchange 0: timed out after 2 s waiting for rank 1: late");
}

#[test]
fn no_rank_is_named_to_itself_as_late_or_lost() {
    let late = |operation, rank| {
        let (waited, detail) = (Duration::from_secs(1), ": it did not come".to_owned());
        Error::Timeout { operation, sequence: 7, rank, waited, detail }
    };
    let detail = |error: Error| match error {
        Error::Aborted { detail } => detail,
        other => panic!("{other}"),
    };
    let waited = ": rank 1 had waited too long for this one";
    assert_eq!(detail(late(Operation::Reduce, Some(2)).seen_by(2, 1)), format!("{waited} in reduce 7"));
    assert_eq!(detail(late(Operation::Exchange, Some(2)).seen_by(2, 1)), format!("{waited}: it did not come"));
    let lost = Error::PeerLost { rank: 2, detail: ": its connection closed".to_owned() };
    assert_eq!(detail(lost.clone().seen_by(2, 1)), ": rank 1 took this one for lost: its connection closed");
    for other in [lost, late(Operation::Reduce, Some(2)), late(Operation::Exchange, None)] {
        assert_eq!(other.clone().seen_by(3, 1), other);
    }
}

#[test]
fn an_exception_keeps_its_kind() {
    let from = |kind, rank, message: &str| Error::from_parts(kind, 0, rank, message);
    let lost = Error::PeerLost { rank: 3, detail: ": killed".to_owned() };
    assert_eq!(from(8, 3, "rank 3 is gone: killed"), lost);
    assert_eq!(from(8, 3, "killed"), lost);
    assert_eq!(from(9, -1, "by hand"), Error::Aborted { detail: ": by hand".to_owned() });
    assert!(matches!(from(10, 2, "the sizes"), Error::Mismatch { rank: 2, what, .. } if what == "the sizes"));
    assert_eq!(from(11, -1, "the group is closed"), Error::Closed);
    assert!(matches!(from(12, -1, ""), Error::NotRegistered { .. }));
    let failed = Error::Peer { rank: 1, message: "full".to_owned() };
    assert_eq!(from(13, 1, "full"), failed);
    assert_eq!(from(13, 1, &failed.to_string()), failed);
    assert_eq!(from(8, -1, "who knows"), Error::bootstrap("who knows"));
    assert!(matches!(from(0, -1, "odd"), Error::Internal { .. }));
    for error in [
        Error::Routing { rank: 2, token: 31, expert: -7, experts: 64 },
        Error::Capacity { rank: 3, rows: 129, capacity: 128 },
        Error::Tokens { rank: 3, tokens: 129, ids: 128 },
    ] {
        let kind = if matches!(error, Error::Routing { .. }) { 14 } else { 15 };
        assert_eq!(from(kind, 2, &error.to_string()), error);
        assert_eq!(from(29 - kind, 2, &error.to_string()), Error::bootstrap(error.to_string()));
    }
    assert_eq!(from(14, 2, "1 2 3 4"), Error::bootstrap("1 2 3 4"));
    assert!(matches!(from(16, -1, "odd"), Error::Internal { .. }));
}
