//! Tests of `src/collective/norm_choice.rs`, whose module they are.

use super::*;

const KIB: u64 = 1 << 10;

fn sums() -> Vec<Range> {
    let range = |up_to_bytes, algorithm| Range { up_to_bytes, algorithm, reason: "" };
    vec![
        range(KIB, Algorithm::OneShotLL),
        range(4 * KIB, Algorithm::OneShotSentinel),
        range(64 << 20, Algorithm::TwoShotZeroCopy),
        range(u64::MAX, Algorithm::Ring),
    ]
}

fn rows(ranges: &[Range]) -> Vec<(u64, Algorithm, bool)> {
    ranges.iter().map(|range| (range.up_to_bytes, range.algorithm, range.reason.starts_with("one kernel"))).collect()
}

#[test]
fn every_size_is_in_one_range_and_the_choice_is_that_of_its_range() {
    for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
        for world in 1..=16 {
            for fits in [false, true] {
                let ranges = ranges(kind, world, &sums(), |_| fits);
                assert!(ranges.is_sorted_by_key(|range| range.up_to_bytes));
                assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes), "{ranges:?}");
                assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
                for bytes in (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]) {
                    let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
                    let fused = choice(kind, world, bytes).filter(|_| fits && world > 1);
                    let apart = sums().into_iter().find(|sum| bytes <= sum.up_to_bytes).unwrap().algorithm;
                    assert_eq!(range.algorithm, fused.unwrap_or(apart), "{bytes}: {ranges:?}");
                }
            }
        }
    }
}

#[test]
fn a_row_that_fits_no_scratch_goes_by_all_reduces_alone() {
    let ranges = ranges(DeviceKind::Cuda, 4, &sums(), |algorithm| algorithm == Algorithm::TwoShotSentinel);
    let expected = [
        (KIB, Algorithm::OneShotLL, false),
        (4 * KIB, Algorithm::OneShotSentinel, false),
        (128 * KIB, Algorithm::TwoShotZeroCopy, false),
        (8 << 20, Algorithm::TwoShotSentinel, true),
        (64 << 20, Algorithm::TwoShotZeroCopy, false),
        (u64::MAX, Algorithm::Ring, false),
    ];
    assert_eq!(rows(&ranges), expected);
}

#[test]
fn every_size_of_scattered_rows_is_in_one_range() {
    for (world, direct, fits) in
        [(1, true, true), (2, true, true), (4, false, true), (8, true, false), (3, false, false)]
    {
        let ranges = scattered_ranges(world, direct, |algorithm| fits || algorithm == Algorithm::TwoShotZeroCopy);
        assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].algorithm != pair[1].algorithm), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
        for bytes in (0..40).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]) {
            let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
            let fused = scattered_choice(bytes, direct).filter(|_| world > 1);
            let fused = fused.filter(|algorithm| fits || *algorithm == Algorithm::TwoShotZeroCopy);
            assert_eq!(range.algorithm, fused.unwrap_or(Algorithm::Auto), "{bytes}: {ranges:?}");
        }
    }
}
