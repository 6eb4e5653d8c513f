//! Tests of `crates/cli/src/postmortem.rs`, whose module they are.

use serde_json::json;

use super::*;

/// The record of a rank that has made these calls, at intervals of a millisecond.
fn record(rank: usize, calls: &[&str], failure: Option<&str>, culprit: Option<usize>) -> Record {
    let made = |(number, text): (usize, &&str)| {
        json!({
            "number": number, "at_ns": 1_000_000 * (number + 10), "graph": false, "operation": "all-reduce", "bytes": 8,
            "dtype": "f32", "algorithm": null, "text": text,
        })
    };
    let calls: Vec<_> = calls.iter().enumerate().map(made).collect();
    let record = json!({
        "version": 1, "group": 5, "name": "tp", "rank": rank, "world_size": 3, "world_rank": rank, "process": 7,
        "host": "here", "begun_ns": 1, "written_ns": 90_000_000, "by": rank, "reason": "a < b", "failure": failure,
        "culprit": culprit, "enqueued": calls.len(), "pairs": 0, "ended": 1, "gave_up": culprit.map(|_| 1),
        "last_wait": null, "calls": calls,
    });
    serde_json::from_value(record).unwrap()
}

fn words(records: &[Record]) -> (String, Vec<usize>) {
    let merged = merge(records);
    (merged.words, merged.culprits)
}

/// Two processes, as ranks 0 and 2, try to open a group of three ranks twice. Rank 1 did not come. Another process opens another
/// group meanwhile.
#[test]
fn every_opening_that_fails_is_a_group() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, world_size, begun_ns, written_ns) in
        [(0, 3, 10, 20), (2, 3, 11, 21), (0, 3, 20, 30), (2, 3, 22, 30), (1, 2, 12, 25)]
    {
        let mut record = record(rank, &[], Some("peer_lost"), Some(1));
        (record.group, record.world_size, record.begun_ns, record.written_ns) = (0, world_size, begun_ns, written_ns);
        let path = folder.path().join(format!("symmetra-opening-{begun_ns}-rank-{rank}.json"));
        std::fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
    }
    let begun = |records: &Vec<Record>| records.iter().map(|record| record.begun_ns).collect::<Vec<_>>();
    let found: Vec<Vec<u64>> = groups(folder.path()).unwrap().iter().map(begun).collect();
    assert_eq!(found, [vec![10, 11], vec![12], vec![20, 22]]);
}

/// Two hosts, or two boots of one host, may give the same number to their groups.
#[test]
fn groups_of_different_boots_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, boot) in [(0, "one"), (1, "one"), (0, "other"), (2, "other")] {
        let mut record = record(rank, &[], None, None);
        record.boot = boot.to_owned();
        let path = folder.path().join(format!("symmetra-group-{boot}-5-rank-{rank}.json"));
        std::fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
    }
    let ranks = |records: &Vec<Record>| records.iter().map(|record| record.rank).collect::<Vec<_>>();
    let found: Vec<Vec<usize>> = groups(folder.path()).unwrap().iter().map(ranks).collect();
    assert_eq!(found, [[0, 1], [0, 2]]);
}

#[test]
fn the_first_call_in_which_ranks_differ_is_named() {
    let differs = |rank| record(rank, &["a", "b", "x", "y"], Some("mismatch"), Some(1));
    let equal = |rank| record(rank, &["a", "b", "c"], Some("mismatch"), Some(1));
    let found = words(&[equal(0), differs(1), equal(2)]);
    assert_eq!(found, ("ranks differ in call 2: rank 1 made x; ranks 0 and 2 made c".to_owned(), vec![1]));
}

#[test]
fn the_rank_that_has_not_made_a_call_is_named() {
    let all = |rank, failure, culprit| record(rank, &["a", "b"], failure, culprit);
    let behind = record(2, &["a"], None, None);
    let waited = words(&[all(0, Some("timeout"), Some(2)), all(1, Some("timeout"), Some(2)), behind.clone()]);
    let sentence = "rank 2 has not made all-reduce 1 (b), which 2 ranks have made";
    assert_eq!(waited, (sentence.to_owned(), vec![2]));
    let lost = words(&[all(0, Some("peer_lost"), Some(2)), behind]);
    let sentence = "rank 2 has not made all-reduce 1 (b), which 1 rank has made; rank 2 is gone; rank 1 left no file";
    assert_eq!(lost, (sentence.to_owned(), vec![2]));
    // Another rank had no time for the call.
    let short = |rank| record(rank, &["a"], Some("peer_lost"), Some(2));
    let found = words(&[all(0, Some("peer_lost"), Some(2)), short(1), short(2)]);
    let sentence = "rank 2 has not made all-reduce 1 (b), which 1 rank has made; rank 2 is gone";
    assert_eq!(found, (sentence.to_owned(), vec![2]));
}

/// Files that a running program asked for, one after the other. The record of call `number` is of `10 + number` ms.
#[test]
fn a_file_that_is_older_than_a_call_is_no_reproach() {
    let mut early = record(0, &["a"], None, None);
    early.written_ns = 11_000_000;
    let late = |rank| record(rank, &["a", "b", "c"], None, None);
    let sentence = "the ranks had made 1 to 3 calls when they wrote their files, at different times; the calls that all have \
                    made are the same";
    assert_eq!(words(&[early.clone(), late(1), late(2)]), (sentence.to_owned(), vec![]));
    early.written_ns += 1;
    assert_eq!(words(&[early, late(1), late(2)]).1, [0]);
}

#[test]
fn ranks_with_equal_calls_are_told_apart_by_their_failures() {
    let of = |failure: Option<&str>, culprit| words(&[0, 1, 2].map(|rank| record(rank, &["a", "b"], failure, culprit)));
    assert_eq!(of(None, None), ("the ranks have made the same 2 calls".to_owned(), vec![]));
    let (lost, culprits) = of(Some("peer_lost"), Some(1));
    assert_eq!(
        (lost.as_str(), culprits),
        ("the ranks have made the same 2 calls; the devices gave up in all-reduce 1; rank 1 is gone", vec![1])
    );
    let (late, culprits) = of(Some("timeout"), Some(0));
    assert_eq!(culprits, [0]);
    assert_eq!(
        late,
        "the ranks have made the same 2 calls; the devices gave up in all-reduce 1; the others gave up a wait for rank 0"
    );
    // Histories that have no call in common, and none at all.
    let mut empty = record(0, &[], None, None);
    assert_eq!(words(&[empty.clone()]).0, "the ranks have made the same 0 calls; ranks 1 and 2 left no file");
    empty.pairs = 4;
    let sentence = "the ranks have made the same 0 calls, and at most 4 of pairs; ranks 1 and 2 left no file";
    assert_eq!(words(&[empty]).0, sentence);
}

/// An exchange of the host that a rank has not begun, or in which a lost rank waited.
#[test]
fn the_exchange_that_a_rank_has_not_made_is_named() {
    let at = |written_ns: [u64; 3], exchanges: [u64; 3], inside: bool, lost: Option<&str>| {
        let records = [0, 1, 2].map(|rank| {
            let mut record = record(rank, &["a"], lost, lost.map(|_| 1));
            (record.exchanges, record.last_exchange) = (exchanges[rank], Some(format!("exchange {}", exchanges[rank])));
            (record.gave_up, record.in_exchange) = (None, inside == (rank == 1) && exchanges[rank] == 4);
            record.exchange_since_ns = if record.in_exchange { 80_000_000 } else { 0 };
            record.written_ns = written_ns[rank];
            record
        });
        words(&records)
    };
    let of = |exchanges, inside, lost| at([90_000_000; 3], exchanges, inside, lost);
    let equal = "the ranks have made the same 1 call".to_owned();
    assert_eq!(of([4, 4, 4], false, None), (equal.clone(), vec![]));
    assert_eq!(of([4, 4, 4], true, None), (equal.clone(), vec![]), "no rank is lost");
    let unmade = format!("{equal}; rank 1 has not made the exchange `exchange 4`, which 2 ranks have begun");
    assert_eq!(of([4, 3, 4], false, Some("peer_lost")), (format!("{unmade}; rank 1 is gone"), vec![1]));
    assert_eq!(of([4, 3, 4], false, None), (unmade, vec![1]));
    // A file that the program asked for before the others began the exchange.
    let early = [90_000_000, 70_000_000, 90_000_000];
    assert_eq!(at(early, [4, 3, 4], false, None), (equal.clone(), vec![]));
    assert_eq!(at(early, [4, 3, 4], false, Some("peer_lost")).1, [1]);
    let waited = format!("{equal}; rank 1 waited in the exchange `exchange 4`; rank 1 is gone");
    assert_eq!(of([4, 4, 3], true, Some("peer_lost")).1, [1]);
    assert_eq!(of([4, 4, 4], true, Some("peer_lost")), (waited, vec![1]));
}

/// A call that the lost rank alone has made.
#[test]
fn a_call_that_the_lost_rank_has_made_is_no_reproach_to_the_others() {
    let lost = |rank, calls| record(rank, calls, Some("peer_lost"), Some(1));
    let found = words(&[lost(0, &["a"]), lost(1, &["a", "b"]), lost(2, &["a"])]);
    let sentence = "rank 1 has made all-reduce 1 (b), which ranks 0 and 2 have not made; rank 1 is gone";
    assert_eq!(found, (sentence.to_owned(), vec![1]));
}

/// The calls of two ranks differ: neither is known to be wrong.
#[test]
fn equal_numbers_of_ranks_that_differ_are_all_named() {
    let differs = |rank, text| record(rank, &["a", text], Some("mismatch"), Some(1));
    assert_eq!(words(&[differs(0, "b"), differs(1, "c")]).1, [0, 1]);
    assert_eq!(words(&[differs(0, "b"), differs(1, "c"), differs(2, "b")]).1, [1]);
}

#[test]
fn a_picture_has_a_row_for_each_rank() {
    let records = [record(0, &["a <", "b"], None, None), record(2, &["a <", "c"], None, None)];
    let merged = merge(&records);
    let picture = timeline::draw([(&records[..], &merged)].into_iter());
    for words in ["rank 0: 2 calls", "rank 1: no file", "rank 2: 2 calls", "ranks differ in call 1", "a &lt;"] {
        assert!(picture.contains(words), "`{words}` is not in {picture}");
    }
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    let opened = picture.matches("<title>").count();
    assert!(opened > 0 && opened == picture.matches("</title>").count());
    // Without calls, and without time between them.
    let records = [record(0, &[], None, None)];
    timeline::draw([(&records[..], &merge(&records))].into_iter());
}

#[test]
fn a_folder_without_histories_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("symmetra-group-1-rank-0.json"), "{}").unwrap();
    let error = groups(folder.path()).unwrap_err();
    assert_eq!((error.code(), error.message().unwrap().contains("has no history of a rank")), (2, true));
    assert_eq!(groups(&folder.path().join("absent")).unwrap_err().code(), 1);
}
