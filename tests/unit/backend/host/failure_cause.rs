//! Tests of `src/backend/host/failure_cause.rs`, whose module they are.

use super::*;

#[test]
fn what_ranks_know_makes_the_error_of_those_that_fail_in_their_wake() {
    let broken = || Error::bootstrap("a connection broke");
    let lost = |rank| Error::PeerLost { rank, detail: ": killed".to_owned() };
    let group = [1, 3, 4];
    let word = |error: &Error, ranks: &[usize]| Word::of(error, ranks).to_bytes();
    let silent = || vec![Vec::new(), word(&broken(), &group), Vec::new(), b"nonsense".to_vec(), Vec::new()];
    let heard = |rank: usize, bytes: Vec<u8>| {
        let mut words = silent();
        words[rank] = bytes;
        verdict(0, &group, broken(), Ok(words))
    };
    let gone = Error::PeerLost { rank: 2, detail: ": bootstrap: a connection broke".to_owned() };
    assert_eq!(heard(1, word(&lost(2), &group)), gone);
    assert_eq!(heard(0, word(&lost(1), &[0, 4])), gone, "whoever knows");
    assert_eq!(verdict(0, &group, broken(), Err(lost(4))), gone);
    let ended = Error::Aborted { detail: ": by rank 1: enough".to_owned() };
    assert_eq!(heard(3, word(&aborted("enough"), &group)), ended);
    for unknown in [
        heard(0, word(&lost(0), &[0, 4])),
        heard(3, word(&aborted("enough"), &[3, 4])),
        heard(3, word(&Error::Aborted { detail: ": by rank 0".to_owned() }, &group)),
        verdict(0, &group, broken(), Err(lost(0))),
        verdict(0, &group, broken(), Err(broken())),
    ] {
        assert_eq!(unknown, broken());
    }
}
