//! Tests of `src/collective/norm/choice.rs`, whose module they are.

use super::*;
use crate::group::{TunedNorm, TunedRow};

const KIB: u64 = 1 << 10;

fn sums() -> Ranges<Algorithm> {
    Ranges::new([
        Range::new(KIB, Algorithm::OneShotLL, ""),
        Range::new(4 * KIB, Algorithm::OneShotSentinel, ""),
        Range::new(64 << 20, Algorithm::TwoShotZeroCopy, ""),
        Range::new(u64::MAX, Algorithm::Ring, ""),
    ])
}

fn rows(ranges: &[Range<Algorithm>]) -> Vec<(u64, Algorithm, bool)> {
    ranges.iter().map(|range| (range.up_to_bytes, range.choice, range.reason.starts_with("one kernel"))).collect()
}

#[test]
fn every_size_is_in_one_range_and_the_choice_is_that_of_its_range() {
    for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
        for world in 1..=16 {
            for fits in [false, true] {
                let table = NormTable::new(kind, world, None).unwrap();
                let ranges = table.ranges(&sums(), true, |_| fits);
                assert!(ranges.is_sorted_by_key(|range| range.up_to_bytes));
                assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes), "{ranges:?}");
                assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
                for bytes in (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]) {
                    let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
                    let fused = table.choice(bytes).filter(|_| fits && world > 1);
                    let apart = sums().into_iter().find(|sum| bytes <= sum.up_to_bytes).unwrap().choice;
                    assert_eq!(range.choice, fused.unwrap_or(apart), "{bytes}: {ranges:?}");
                }
            }
        }
    }
}

#[test]
fn a_row_that_fits_no_scratch_goes_by_all_reduces_alone() {
    let table = NormTable::new(DeviceKind::Cuda, 4, None).unwrap();
    let ranges = table.ranges(&sums(), true, |algorithm| *algorithm == Algorithm::TwoShotSentinel);
    let expected = [
        (KIB, Algorithm::OneShotLL, false),
        (4 * KIB, Algorithm::OneShotSentinel, false),
        (224 * KIB, Algorithm::TwoShotZeroCopy, false),
        (16 << 20, Algorithm::TwoShotSentinel, true),
        (64 << 20, Algorithm::TwoShotZeroCopy, false),
        (u64::MAX, Algorithm::Ring, false),
    ];
    assert_eq!(rows(&ranges), expected);
}

/// The reported ranges agree with the function that calls use to choose.
#[test]
fn a_sum_without_a_place_stays_in_the_scratch() {
    let table = NormTable::new(DeviceKind::Cuda, 4, None).unwrap();
    let ranges = table.ranges(&sums(), false, |_| true);
    let expected = [(224 * KIB, Algorithm::OneShotSentinel, true), (u64::MAX, Algorithm::TwoShotSentinel, true)];
    assert_eq!(rows(&ranges), expected);
    // AMD GPUs quantise in the two-shot alone.
    let two_shot = |algorithm: &Algorithm| *algorithm == Algorithm::TwoShotSentinel;
    let ranges = table.ranges(&sums(), false, two_shot);
    assert_eq!(rows(&ranges), [(u64::MAX, Algorithm::TwoShotSentinel, true)]);
    for bytes in [1, 224 * KIB, 224 * KIB + 1, 16 << 20, 1 << 40] {
        for placed in [false, true] {
            let ranges = table.ranges(&sums(), placed, |_| true);
            let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
            let fused = table.fused(bytes, || placed, |_| true);
            let apart = sums().into_iter().find(|sum| bytes <= sum.up_to_bytes).unwrap().choice;
            assert_eq!(range.choice, fused.unwrap_or(apart), "{bytes}, {placed}");
            assert!(placed || fused.is_some(), "{bytes}");
        }
    }
}

/// The conditions that calls and explanations share: whether a row fits the scratch, and which algorithms quantise.
#[test]
fn amd_gpus_quantise_in_the_two_shot_alone() {
    let (one, two) = (Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel);
    for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
        for quantised in [false, true] {
            let serving = |row_packets| {
                let fits = fits(kind, 4, row_packets, quantised, |_| 104);
                [one, two, Algorithm::TwoShotZeroCopy].map(|algorithm| fits(&algorithm))
            };
            let all = !quantised || kind != DeviceKind::Hip;
            assert_eq!(serving(96), [all, true, all], "{kind:?}, {quantised}");
            // The two-shot has a line of eight packets more a row.
            assert_eq!(serving(97), [all, false, all], "{kind:?}, {quantised}");
            assert_eq!(serving(104), [all, false, all], "{kind:?}, {quantised}");
            assert_eq!(serving(105), [false, false, all], "{kind:?}, {quantised}");
        }
    }
}

/// Rows that no cluster takes, of more than 4096 packets or a part of one, and long rows of f32.
#[test]
fn slow_rows_go_apart_where_their_sum_has_a_place() {
    let [one, two] = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];
    let serving = |kind, (dtype, hidden), placed| {
        let suits = suits(kind, dtype, hidden, || placed, |_| true);
        [one, two, Algorithm::TwoShotZeroCopy].map(|algorithm| suits(&algorithm))
    };
    for (dtype, hidden, slow) in [
        (Dtype::BF16, 8, false),
        (Dtype::BF16, 9, true),
        (Dtype::BF16, 32 << 10, false),
        (Dtype::F16, (32 << 10) + 8, true),
        (Dtype::BF16, (8 << 10) + 1, true),
        (Dtype::F32, 4 << 10, false),
        (Dtype::F32, (4 << 10) + 4, true),
    ] {
        let row = (dtype, hidden);
        assert_eq!(serving(DeviceKind::Cuda, row, true), [true, !slow, true], "{row:?}");
        for (kind, placed) in [(DeviceKind::Cuda, false), (DeviceKind::Host, true), (DeviceKind::Hip, true)] {
            assert_eq!(serving(kind, row, placed), [true; 3], "{kind:?}, {row:?}");
        }
    }
}

#[test]
fn quantised_rows_are_checked_and_then_chosen() {
    let table = NormTable::new(DeviceKind::Hip, 4, None).unwrap();
    let micro = RowFormat::from(crate::op::Quantisation::mxfp8());
    let ranges = |(hidden, width), placed, packets| {
        let fits = fits(DeviceKind::Hip, 4, packets, true, |_| 100);
        table.quantised_ranges(&sums(), hidden, width, micro, placed, fits)
    };
    let two_shot = (16 << 20, Algorithm::TwoShotSentinel, true);
    assert!(rows(&ranges((65, 96), true, 9).unwrap()).contains(&two_shot));
    assert_eq!(rows(&ranges((65, 96), false, 9).unwrap()), [(u64::MAX, Algorithm::TwoShotSentinel, true)]);
    assert!(ranges((65, 65), true, 9).unwrap_err().to_string().contains("pad rows to 96"));
    assert!(ranges((65, 64), true, 9).unwrap_err().to_string().contains("width of an output row is 64"));
    assert!(matches!(ranges((64, 64), false, 100), Err(Error::Unsupported { .. })));
    assert!(!rows(&ranges((64, 64), true, 100).unwrap()).iter().any(|(.., fused)| *fused));
}

#[test]
fn every_size_of_scattered_rows_is_in_one_range() {
    let cases = [(1, true, true), (2, true, true), (4, false, true), (8, true, false), (3, false, false)];
    for (kind, (world, direct, fits)) in
        [DeviceKind::Host, DeviceKind::Cuda].into_iter().flat_map(|kind| cases.map(|case| (kind, case)))
    {
        let ranges = scattered_ranges(kind, world, direct, |algorithm| fits || algorithm == Algorithm::TwoShotZeroCopy);
        assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].choice != pair[1].choice), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
        for bytes in (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]) {
            let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
            let fused = scattered_choice(kind, bytes, direct).filter(|_| world > 1);
            let fused = fused.filter(|algorithm| fits || *algorithm == Algorithm::TwoShotZeroCopy);
            assert_eq!(range.choice, fused.unwrap_or(Algorithm::Auto), "{bytes}: {ranges:?}");
        }
    }
}

fn tuning(rows: &[(Option<u64>, &str)]) -> Tuning {
    let row = |(up_to_bytes, name): &(Option<u64>, &str)| TunedRow {
        up_to_bytes: *up_to_bytes,
        algorithm: (*name).to_owned(),
    };
    Tuning {
        kind: "cuda".to_owned(),
        norms: vec![TunedNorm { world_size: 4, hidden: 8192, rows: rows.iter().map(row).collect() }],
        ..Tuning::default()
    }
}

#[test]
fn a_tuning_beats_the_limits_where_it_has_measured() {
    let tuning = tuning(&[(Some(KIB), "apart"), (Some(32 * KIB), "two-shot-sentinel"), (None, "apart")]);
    let table = |kind, world| NormTable::new(kind, world, Some(&tuning)).unwrap();
    let tuned = table(DeviceKind::Cuda, 4);
    let expected = [
        (KIB, Algorithm::OneShotLL, false),
        (32 * KIB, Algorithm::TwoShotSentinel, true),
        (64 << 20, Algorithm::TwoShotZeroCopy, false),
        (u64::MAX, Algorithm::Ring, false),
    ];
    let ranges = tuned.ranges(&sums(), true, |_| true);
    assert_eq!(rows(&ranges), expected);
    assert!(ranges.iter().all(|range| range.reason.contains("symmetra tune")), "{ranges:?}");
    let two = Some(Algorithm::TwoShotSentinel);
    assert_eq!([KIB, KIB + 1, 32 * KIB, 32 * KIB + 1].map(|bytes| tuned.choice(bytes)), [None, two, two, None]);
    // Neither other worlds nor other kinds of devices.
    for (kind, world) in [(DeviceKind::Cuda, 3), (DeviceKind::Hip, 4)] {
        assert_eq!(table(kind, world).choice(KIB), Some(Algorithm::OneShotSentinel));
    }
}

#[test]
fn a_tuning_names_kernels_that_norm() {
    for name in ["ring", "auto", "", "two-shot-ll"] {
        let refused = NormTable::new(DeviceKind::Cuda, 4, Some(&tuning(&[(None, name)]))).err().unwrap();
        assert!(refused.to_string().contains("one-shot-sentinel, two-shot-sentinel, apart"), "{refused}");
    }
}
