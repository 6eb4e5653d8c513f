use symmetra::half::bf16;

use super::{Dot, far, is_sum, unlike};

fn row(elems: usize, seed: u64) -> Vec<bf16> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..elems).map(|_| bf16::from_f32(random.f32() - 0.5)).collect()
}

#[test]
fn a_product_is_its_rounded_sum() {
    let dot = Dot::new(&row(64, 1), &row(64, 2));
    let rounded = bf16::from_f64(dot.sum);
    assert!(dot.is(rounded, 64, false));
    assert!(!dot.is(bf16::from_f64(dot.sum + 0.02 * dot.magnitude), 64, false));
    assert!(!dot.is(bf16::NAN, 64, false));
    let negative = Dot { sum: -dot.sum.abs(), ..dot };
    assert!(negative.is(bf16::ZERO, 64, true) && !negative.is(bf16::ZERO, 64, false));
}

#[test]
fn a_sum_has_every_rank_once() {
    let dots: Vec<Dot> =
        (0..4).map(|rank| Dot::new(&row(64, rank), &row(64, 9))).map(|dot| Dot { sum: 1.0, ..dot }).collect();
    let residual = bf16::from_f32(0.5);
    assert!(is_sum(bf16::from_f32(4.5), &dots, 64, residual));
    for wrong in [3.5, 5.5, 4.0, f32::NAN] {
        assert!(!is_sum(bf16::from_f32(wrong), &dots, 64, residual), "{wrong}");
    }
}

#[test]
fn ways_may_differ_by_roundings_only() {
    let (right, hidden, share) = (row(256, 3), 64, far(8));
    assert_eq!(unlike(&right, &right, hidden, share), 0);
    let nudged: Vec<bf16> = right.iter().map(|value| bf16::from_bits(value.to_bits() ^ 1)).collect();
    assert_eq!(unlike(&nudged, &right, hidden, share), 0);
    let mut wrong = right.clone();
    wrong[100] = bf16::from_f32(4.0);
    assert_eq!(unlike(&wrong, &right, hidden, share), 2);
    wrong[100] = bf16::NAN;
    assert_eq!(unlike(&wrong, &right, hidden, share), 2);
    // A row of another place.
    wrong = [&right[64..128], &right[64..]].concat();
    assert!(unlike(&wrong, &right, hidden, share) > 32);
    assert_eq!(unlike(&right[..192], &right, hidden, share), 64);
}
