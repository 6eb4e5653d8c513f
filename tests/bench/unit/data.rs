//! Tests of `crates/bench/src/data.rs`, whose module they are.

use symmetra::half::bf16;
use symmetra::{Algorithm, Codec};

use super::*;

fn sum_of(elems: usize) -> Vec<Stretch> {
    vec![Stretch { at: 0, source: Source::Reduced, start: 0, count: elems }]
}

#[test]
fn a_result_is_equal_near_or_far() {
    let data = CollectiveData::<f32>::new(3, 1000, 3);
    let inputs: Vec<_> = (0..3).map(|rank| data.of(rank)).collect();
    let counts = |result: &[f32]| (data.count_unequal(result, &sum_of(1000)), data.count_far(result, &sum_of(1000)));
    assert_ne!(inputs[0], inputs[1]);
    let mut sum: Vec<f32> = (0..1000).map(|item| inputs[0][item] + inputs[1][item] + inputs[2][item]).collect();
    assert_eq!(counts(&sum), (0, 0));
    sum[7] = f32::from_bits(sum[7].to_bits() ^ 1);
    assert_eq!(counts(&sum), (1, 0));
    sum[999] = f32::NAN;
    sum[0] += 1.0;
    assert_eq!(counts(&sum), (3, 2));
    assert_eq!(counts(&CollectiveData::poison(1000)).1, 1000);
    assert_eq!(counts(&sum[..999]).1, 2);
}

#[test]
fn what_was_moved_is_equal_or_wrong() {
    let data = CollectiveData::<f32>::new(3, 100, 3);
    let of = |source, at: std::ops::Range<usize>, start| Stretch {
        at: at.start,
        source: Source::Rank(source),
        start,
        count: at.len(),
    };
    let stretches = [of(2, 0..50, 50), of(0, 50..150, 0)];
    let mut result = [&data.of(2)[50..], &data.of(0)].concat();
    assert_eq!((data.count_unequal(&result, &stretches), data.count_far(&result, &stretches)), (0, 0));
    result[60] = f32::from_bits(result[60].to_bits() ^ 1);
    assert_eq!((data.count_unequal(&result, &stretches), data.count_far(&result, &stretches)), (1, 1));
    assert_eq!(data.count_far(&result[..100], &stretches), 51);
}

#[test]
fn data_repeat_after_their_period() {
    let elems = PERIOD + 10;
    let data = CollectiveData::<i32>::new(5, elems, 2);
    let (one, two) = (data.of(0), data.of(1));
    assert_eq!((one.len(), one[..10].to_vec()), (elems, one[PERIOD..].to_vec()));
    let mut sum: Vec<i32> = one.iter().zip(&two).map(|(one, two)| one.wrapping_add(*two)).collect();
    assert_eq!(data.count_unequal(&sum, &sum_of(elems)), 0);
    let end = [Stretch { at: 0, source: Source::Reduced, start: PERIOD - 10, count: 20 }];
    assert_eq!(data.count_unequal(&sum[PERIOD - 10..], &end), 0);
    sum[PERIOD + 3] ^= 1;
    assert_eq!((data.count_unequal(&sum, &sum_of(elems)), data.count_far(&sum, &sum_of(elems))), (1, 1));
    assert_eq!(data.count_unequal(&sum[PERIOD - 10..], &end), 1);
}

#[test]
fn ranks_share_the_groups_of_a_codec() {
    let data = CollectiveData::<bf16>::new(3, 100, 2);
    let sum = |index: usize| data.ranks.iter().map(|values| values.values()[index].to_f32()).sum::<f32>();
    let mut result: Vec<bf16> = (0..100).map(|index| bf16::from_f32(sum(index))).collect();
    let bounds = Bounds { codec: Codec::Int8, reduction: Reduction::Sum, algorithm: Algorithm::OneShotSentinel };
    let counts = |result: &[bf16]| [0, 1].map(|rank| data.count_beyond(&bounds, result, [rank, 2]));
    assert_eq!(counts(&result), [0, 0]);
    // The first group, the second, and the last, of four elements.
    for index in [0, 40, 41, 99] {
        result[index] = bf16::NAN;
    }
    assert_eq!(counts(&result), [1, 3]);
    assert_eq!(counts(&result[..99]), [2, 3]);
}
