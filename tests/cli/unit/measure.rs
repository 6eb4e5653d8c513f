//! Tests of `crates/cli/src/tune/measure.rs`, whose module they are.

use super::*;

#[test]
fn only_what_sends_whole_messages_is_given_up() {
    let mut field = Field::new(Dtype::BF16, true);
    assert_eq!(field.algorithms(), Algorithm::ALL);
    let times = |slow_ns: u64| {
        let time = |algorithm: Algorithm| if algorithm == Algorithm::TwoShotLL { 10 } else { slow_ns };
        Algorithm::ALL.map(|algorithm| (algorithm.to_string(), time(algorithm))).into()
    };
    for slow_ns in [41, 40, 41] {
        field.drop_hopeless(&times(slow_ns));
        assert_eq!(field.algorithms(), Algorithm::ALL);
    }
    field.drop_hopeless(&times(41));
    let left = [Algorithm::TwoShotLL, Algorithm::TwoShotSentinel, Algorithm::TwoShotZeroCopy, Algorithm::Ring];
    assert_eq!(field.algorithms(), left);
}

#[test]
fn every_kind_of_call_has_its_algorithms() {
    assert!(!Field::new(Dtype::I32, true).algorithms().contains(&Algorithm::OneShotSentinel));
    assert!(!Field::new(Dtype::BF16, false).algorithms().contains(&Algorithm::TwoShotZeroCopy));
}
