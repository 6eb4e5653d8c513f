//! Tests of `src/group/silence.rs`, whose module they are.

use super::*;

#[test]
fn a_rank_that_stays_behind_is_named_after_five_seconds_and_every_thirty() {
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let behind = |waited: u64| Some(Behind { calls: 2, ranks: vec![1, 3], waited: Duration::from_secs(waited) });
    let mut silence = Silence::new(start);
    // The other ranks have made fewer calls, but go on.
    assert_eq!(silence.look(at(1), 0, &[4, 0, 4, 1]), None);
    assert_eq!(silence.look(at(7), 0, &[4, 1, 4, 1]), None);
    assert_eq!(silence.look(at(8), 0, &[4, 2, 4, 2]), None);
    let calls = [4, 2, 4, 2];
    assert_eq!(silence.look(at(12), 0, &calls), None);
    assert_eq!(silence.look(at(13), 0, &calls), behind(5));
    assert_eq!(silence.look(at(42), 0, &calls), None);
    assert_eq!(silence.look(at(43), 0, &calls), behind(35));
    // The ranks that have made fewer calls wait for no rank.
    let mut silence = Silence::new(start);
    for second in 0..60 {
        assert_eq!(silence.look(at(second), 1, &calls), None);
    }
}
