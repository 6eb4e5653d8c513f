//! Tests of `src/bootstrap/hello.rs`, whose module they are.

use super::*;

/// A caller's bootstrap: its world size, and the bytes that it gathers from the ranks after the first.
struct Caller(usize, Vec<Vec<u8>>);

impl Bootstrap for Caller {
    fn rank(&self) -> usize {
        0
    }
    fn world_size(&self) -> usize {
        self.0
    }
    fn all_gather(&mut self, bytes: &[u8], _: Instant) -> Result<Vec<Vec<u8>>> {
        Ok([&[bytes.to_vec()], &self.1[..]].concat())
    }
}

#[test]
fn who_does_not_answer_for_all_is_refused() {
    let count = |world_size| tell(&mut Caller(world_size, Vec::new()), "to count", &7, Instant::now());
    assert_eq!(count(1).unwrap(), [7]);
    let message = count(2).unwrap_err().to_string();
    assert!(message.contains("of 2 ranks gave 1"), "{message}");
}

#[test]
fn who_comes_for_something_else_is_named() {
    let told = |theirs: &[u8]| {
        let told = tell(&mut Caller(2, vec![theirs.to_vec()]), "to count", &7, Instant::now());
        told.map_err(|error| error.to_string())
    };
    assert_eq!(told(br#"["to count",8]"#), Ok(vec![7, 8]));
    let words = told(br#"["to split a group",8]"#).unwrap_err();
    let differ = "ranks 0 and 1 disagree on the collective call of the host";
    assert_eq!(words, format!("{differ}: count and split a group"));
    assert_eq!(told(b"").unwrap_err(), format!("{differ}: count and another call"));
    let words = together("wait", Ok(()), |_| Ok(vec![Vec::new(), br#"["to count",8]"#.to_vec()])).unwrap_err();
    assert_eq!(words.to_string(), format!("{differ}: wait and another call"));
    let failed = together("wait", Ok(()), |_| Ok(vec![Vec::new(), b"wait: broken".to_vec()]));
    assert_eq!(failed, Err(Error::Peer { rank: 1, message: "wait: broken".to_owned() }));
}

#[test]
fn ranks_of_unlike_worlds_and_numbers_that_are_taken_are_found() {
    let check =
        |places: &[Option<ClaimedPlace>]| check_places(places.iter().copied()).map_err(|error| error.to_string());
    assert_eq!(check(&[Some([0, 2]), Some([1, 2])]), Ok(()));
    assert_eq!(check(&[None, Some([1, 2])]), Ok(()), "an older build gives none");
    let sizes = check(&[Some([0, 2]), None, Some([1, 3])]).unwrap_err();
    assert_eq!(sizes, "ranks 0 and 2 disagree on the world size: 2 and 3");
    let taken = check(&[Some([0, 2]), Some([0, 2])]).unwrap_err();
    assert!(taken.contains("what rank 0 sent in the place of rank 1: ranks have the numbers 0 to 1"), "{taken}");
}

#[test]
fn the_first_complaint_and_the_first_difference() {
    let complaint = "full".to_owned();
    let all = || [None, Some(&complaint)].into_iter();
    assert_eq!(check_complaints(0, all()), Err(Error::Peer { rank: 1, message: complaint.clone() }));
    assert_eq!(check_complaints(1, all()), Ok(()));
    let settings =
        |values: &[&str]| -> Agreed { values.iter().map(|value| ("size".into(), (*value).into())).collect() };
    let check = |all: &[Agreed]| check_agreed(all.iter()).map_err(|error| error.to_string());
    assert_eq!(check(&[settings(&["1"]), settings(&["1"])]), Ok(()));
    assert!(check(&[settings(&["1"]), settings(&["1"]), settings(&["2"])]).unwrap_err().contains("ranks 0 and 2"));
    assert!(check(&[settings(&["1"]), settings(&["1", "1"])]).unwrap_err().contains("1 settings and 2 settings"));
}

#[test]
fn a_loss_that_local_work_ran_into_is_told_as_the_ranks_tell_it() {
    let lost = |rank| Error::PeerLost { rank, detail: String::new() };
    let outcome = |local, met| together::<()>("map memory", local, |_| met);
    assert_eq!(outcome(Err(lost(1)), Err(lost(2))), Err(lost(2)), "rank 1 left because it had lost rank 2");
    assert_eq!(outcome(Err(lost(1)), Ok(Vec::new())), Err(lost(1)));
    assert_eq!(outcome(Err(Error::Closed), Err(lost(2))), Err(Error::Closed));
    assert_eq!(outcome(Ok(()), Err(lost(2))), Err(lost(2)));
}
