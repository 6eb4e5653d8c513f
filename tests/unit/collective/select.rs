//! Tests of `src/collective/select.rs`, whose module they are.

use super::*;
use crate::group::{TunedRow, TunedTable};
use proptest::prelude::*;

fn devices(major: u32) -> Capabilities {
    Capabilities {
        name: String::new(),
        compute_capability: (major, 0),
        multiprocessors: 100,
        native_atomics: true,
        adds_f8: false,
    }
}

proptest! {
    #[test]
    fn every_message_has_an_algorithm_that_carries_it(
        world in 2usize..=16, bytes in 0u64..1 << 40, direct: bool, exact: bool, major in 6u32..13,
    ) {
        let reach = if direct { Reach::Direct } else { Reach::Pushed };
        let determinism = if exact { Determinism::Exact } else { Determinism::PerAlgorithm };
        for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
            let table = AlgorithmTable::new(kind, Some(&devices(major)), world, determinism, None).unwrap();
            for dtype in Dtype::ALL {
                for reduction in Reduction::ALL {
                    let algorithm = table.select(dtype, reduction, reach, bytes);
                    prop_assert!(algorithm.carries(dtype) && algorithm.reduces(dtype, reduction));
                    prop_assert!(direct || !algorithm.needs_reach());
                    prop_assert!(!exact || algorithm.is_exact(dtype, world));
                }
                let algorithm = table.select(dtype, Reduction::Sum, reach, bytes);
                let rows = table.ranges(dtype, reach);
                prop_assert!(rows.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
                prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
                let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
                prop_assert_eq!(row.choice, algorithm);
            }
        }
    }
}

/// Nothing needs less than the default promises.
#[test]
fn less_determinism_chooses_what_the_default_does() {
    let tuned = tuning("two-shot-ll", true, true, false);
    for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
        for (world, tuning) in (2..=16).flat_map(|world| [(world, None), (world, Some(&tuned))]) {
            let table = |determinism| AlgorithmTable::new(kind, Some(&devices(9)), world, determinism, tuning).unwrap();
            let default = table(Determinism::PerAlgorithm);
            for less in [table(Determinism::Free), table(Determinism::PerRun)] {
                for (dtype, reach) in
                    Dtype::ALL.into_iter().flat_map(|dtype| [(dtype, Reach::Direct), (dtype, Reach::Pushed)])
                {
                    assert_eq!(less.ranges(dtype, reach), default.ranges(dtype, reach), "{kind} {world} {dtype}");
                }
            }
        }
    }
}

#[test]
fn each_determinism_promises_more_than_the_one_before() {
    assert!(Determinism::ALL.is_sorted() && Determinism::default() == Determinism::PerAlgorithm);
    for determinism in Determinism::ALL {
        assert_eq!(determinism.name().parse(), Ok(determinism));
    }
    let message = "the determinism is none, but it must be one of free, per-run, per-algorithm, exact".to_owned();
    assert_eq!("none".parse::<Determinism>(), Err(crate::Error::InvalidArgument { message }));
}

fn tuning(algorithm: &str, floating: bool, direct: bool, exact: bool) -> Tuning {
    let row = |up_to_bytes, algorithm: &str| TunedRow { up_to_bytes, algorithm: algorithm.to_owned() };
    let rows = vec![row(Some(100), "one-shot-ll"), row(None, algorithm)];
    Tuning {
        kind: "cuda".to_owned(),
        tables: vec![TunedTable { world_size: 3, floating, direct, exact, rows }],
        ..Tuning::default()
    }
}

#[test]
fn a_tuning_beats_the_table_where_it_has_measured() {
    let tuning = tuning("two-shot-ll", true, true, false);
    let table = |kind, world| AlgorithmTable::new(kind, None, world, Determinism::default(), Some(&tuning)).unwrap();
    let tuned = table(DeviceKind::Cuda, 3);
    assert_eq!(tuned.select(Dtype::F32, Reduction::Sum, Reach::Direct, 100), Algorithm::OneShotLL);
    assert_eq!(tuned.select(Dtype::F32, Reduction::Sum, Reach::Direct, 101), Algorithm::TwoShotLL);
    assert!(tuned.ranges(Dtype::F32, Reach::Direct)[0].reason.contains("symmetra tune"));
    for (table, dtype, reach) in [
        (&tuned, Dtype::I32, Reach::Direct),
        (&tuned, Dtype::F32, Reach::Pushed),
        (&table(DeviceKind::Cuda, 4), Dtype::F32, Reach::Direct),
        (&table(DeviceKind::Host, 3), Dtype::F32, Reach::Direct),
    ] {
        assert!(table.ranges(dtype, reach)[0].reason.contains("built-in"));
    }
    let exact = AlgorithmTable::new(DeviceKind::Cuda, None, 3, Determinism::Exact, Some(&tuning)).unwrap();
    assert!(exact.ranges(Dtype::F32, Reach::Direct)[0].reason.contains("built-in"));
}

#[test]
fn a_tuning_of_another_device_says_so() {
    let tuning = Tuning { device: "A".to_owned(), ..tuning("two-shot-ll", true, true, false) };
    let reason = |name: &str| {
        let here = Capabilities { name: name.to_owned(), ..devices(9) };
        let table =
            AlgorithmTable::new(DeviceKind::Cuda, Some(&here), 3, Determinism::default(), Some(&tuning)).unwrap();
        let range = table.ranges(Dtype::F32, Reach::Direct)[1];
        assert_eq!(range.choice, Algorithm::TwoShotLL);
        range.reason
    };
    assert_eq!([reason("A"), reason("B"), reason("")], [TUNED, TUNED_ELSEWHERE, TUNED_ELSEWHERE]);
}

#[test]
fn a_tuning_that_cannot_serve_is_refused() {
    let refused = |algorithm, floating, direct| {
        let tuning = tuning(algorithm, floating, direct, true);
        AlgorithmTable::new(DeviceKind::Cuda, None, 3, Determinism::Exact, Some(&tuning)).is_err()
    };
    assert!(refused("two-shot-sentinel", false, true));
    assert!(refused("two-shot-zero-copy", true, false));
    assert!(refused("auto", true, true));
    assert!(refused("fastest", true, true));
    assert!(refused("ring", true, true) && !refused("ring", false, false));
    assert!(!refused("two-shot-zero-copy", true, true));
}

#[test]
fn slower_links_move_less_sooner() {
    let limit = |major| {
        let table =
            AlgorithmTable::new(DeviceKind::Cuda, Some(&devices(major)), 8, Determinism::default(), None).unwrap();
        table.ranges(Dtype::F16, Reach::Direct)[0].up_to_bytes
    };
    assert!(limit(7) < limit(8) && limit(8) < limit(9));
    assert_eq!(limit(9), limit(10));
}

#[test]
fn names_read_back() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse::<Algorithm>().unwrap(), algorithm);
    }
    assert!("fastest".parse::<Algorithm>().is_err());
}
