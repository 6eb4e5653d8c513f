use super::*;
use crate::group::{TunedGrid, TunedRow};

use MixedOperation::{AllReduce, AllReduceAllGather, ReduceScatterAllReduce};

fn grids() -> impl Iterator<Item = GridSizes> {
    let of = |number: usize| {
        let of = |place: u32| 1 + number / 3usize.pow(place) % 3;
        GridSizes { local_tensor: of(0), local_data: of(1), across_tensor: of(2), across_data: of(3), sums_apart: true }
    };
    (0..81).map(of).filter(|sizes| sizes.world() > 1)
}

fn built_in(sizes: GridSizes) -> ModeChoices {
    ModeChoices::new(sizes, DeviceKind::Host, None).unwrap()
}

fn ask(operation: MixedOperation, direct: bool, once: bool) -> Ask {
    Ask { operation, direct, once }
}

fn tuning(kind: DeviceKind, grids: Vec<TunedGrid>) -> Tuning {
    Tuning { kind: kind.name().to_owned(), grids, ..Tuning::default() }
}

fn tuned(sizes: GridSizes, operation: MixedOperation, direct: bool, rows: &[(Option<u64>, &str)]) -> TunedGrid {
    let row = |(up_to_bytes, mode): &(Option<u64>, &str)| TunedRow {
        up_to_bytes: *up_to_bytes,
        algorithm: (*mode).to_owned(),
    };
    let [local_tensor, local_data, across_tensor, across_data] = sizes.by_level();
    let operation = operation.name().to_owned();
    let rows = rows.iter().map(row).collect();
    TunedGrid { local_tensor, local_data, across_tensor, across_data, operation, direct, measured_bytes: None, rows }
}

#[test]
fn the_choice_is_a_mode_that_the_grid_has() {
    let mut choices = 0;
    for sizes in grids() {
        let table = built_in(sizes);
        for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
            for bytes in [0, 1 << 10, 16 << 10, 64 << 10, (64 << 10) + 1, 1 << 20, 1 << 30] {
                for once in [false, true] {
                    let mode = table.choose(ask(operation, true, once), bytes);
                    // Of a mode that rounds once a grid may have none: it would sum more parts than a kernel takes.
                    let none = once && sizes.world() > MAX_WORLD_SIZE;
                    let has = table.modes(operation).contains(&mode);
                    assert!(has || none && mode == OneCollective, "{operation} of {bytes} on {sizes:?}");
                    let exact = plan::plan(&sizes, operation, mode, 5).roundings() <= 1;
                    assert!(!once || exact, "{operation} of {bytes} on {sizes:?} by {mode} rounds more than once");
                    choices += 1;
                }
            }
        }
    }
    assert!(choices > 1000, "{choices}");
}

/// The reported ranges agree with the choice, at their ends and one byte beyond.
#[test]
fn ranges_are_what_is_chosen() {
    for sizes in grids() {
        let rows = [(Some(100), "one-collective"), (Some(1 << 22), "one-shot"), (None, "one-collective")];
        let rows = MixedOperation::ALL.map(|operation| tuned(sizes, operation, true, &rows));
        let table = ModeChoices::new(sizes, DeviceKind::Host, Some(&tuning(DeviceKind::Host, rows.into()))).unwrap();
        for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
            for (direct, once) in [(false, false), (false, true), (true, false), (true, true)] {
                let ask = ask(operation, direct, once);
                let ranges = table.ranges(ask);
                assert_eq!(ranges.last().unwrap().up_to_bytes, u64::MAX);
                assert!(ranges.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes), "{ranges:?}");
                let ends = ranges.iter().map(|range| range.up_to_bytes);
                for bytes in ends.flat_map(|end| [end, end.saturating_add(1)]).chain([0, 1, 4095]) {
                    let range = ranges.iter().find(|range| bytes <= range.up_to_bytes).unwrap();
                    assert_eq!(
                        range.choice,
                        table.choose(ask, bytes),
                        "{operation} of {bytes} on {sizes:?}: {ranges:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_tuning_is_obeyed_where_it_has_measured() {
    let sizes = GridSizes { local_tensor: 2, local_data: 2, across_tensor: 1, across_data: 1, sums_apart: true };
    let operation = ReduceScatterAllReduce;
    let rows = [(Some(1000), "two-shot"), (None, "two-collectives")];
    let of = |kind, grid| {
        ModeChoices::new(grid, kind, Some(&tuning(DeviceKind::Host, vec![tuned(sizes, operation, true, &rows)])))
    };
    let table = of(DeviceKind::Host, sizes).unwrap();
    assert_eq!(table.choose(ask(operation, true, false), 1000), TwoShot);
    assert_eq!(table.choose(ask(operation, true, false), 1001), TwoCollectives);
    // Two collectives round twice.
    assert_eq!(table.choose(ask(operation, true, true), 1001), OneShot);
    let reasons = |table: &ModeChoices, direct| {
        let ranges = table.ranges(ask(operation, direct, false));
        ranges.into_iter().map(|range| (range.up_to_bytes, range.choice, range.reason)).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&table, true), [(1000, TwoShot, TUNED), (u64::MAX, TwoCollectives, TUNED)]);
    let mut some = tuned(sizes, operation, true, &rows);
    some.measured_bytes = Some([64, 4096]);
    let some = ModeChoices::new(sizes, DeviceKind::Host, Some(&tuning(DeviceKind::Host, vec![some]))).unwrap();
    let (of_tuning, beyond) =
        ([(1000, TwoShot, TUNED), (4096, TwoCollectives, TUNED)], (u64::MAX, TwoCollectives, ESTIMATED));
    assert_eq!(reasons(&some, true), [(63, TwoShot, ESTIMATED), of_tuning[0], of_tuning[1], beyond]);
    // Of other memory, another grid and another kind of device nothing was measured.
    let estimated =
        [(704 << 10, OneShot, ESTIMATED), (6 << 20, TwoCollectives, ESTIMATED), (u64::MAX, TwoShot, ESTIMATED)];
    assert_eq!(reasons(&table, false), estimated);
    assert_eq!(reasons(&of(DeviceKind::Cuda, sizes).unwrap(), true), estimated);
    let other = GridSizes { local_tensor: 1, across_tensor: 2, ..sizes };
    assert!(
        of(DeviceKind::Host, other)
            .unwrap()
            .ranges(ask(operation, true, false))
            .iter()
            .all(|range| range.reason == ESTIMATED)
    );
    let unknown = tuned(sizes, operation, true, &[(None, "three-shot")]);
    let error =
        ModeChoices::new(sizes, DeviceKind::Host, Some(&tuning(DeviceKind::Host, vec![unknown]))).err().unwrap();
    assert!(error.to_string().contains("three-shot") && error.to_string().contains("two-shot-across"), "{error}");
}

/// The fastest mode of each size that was measured on 4 GPUs of one host, within 5 %. On more nothing was measured.
#[test]
fn four_ranks_of_a_host_take_the_mode_that_was_fastest() {
    let sizes = GridSizes { local_tensor: 2, local_data: 2, across_tensor: 1, across_data: 1, sums_apart: true };
    let (four, eight) = (built_in(sizes), built_in(GridSizes { local_tensor: 4, ..sizes }));
    for operation in [AllReduceAllGather, ReduceScatterAllReduce] {
        let ask = |once| ask(operation, true, once);
        for k in 0..15 {
            let fastest = match k {
                0..=6 => OneShot,
                7..=9 => TwoCollectives,
                _ => TwoShot,
            };
            let bytes = 8 << (10 + k);
            assert_eq!(four.choose(ask(false), bytes), fastest, "{operation} of {bytes}");
            // A reduce-scatter and an all-reduce round twice.
            let twice = fastest == TwoCollectives && operation == ReduceScatterAllReduce;
            assert_eq!(four.choose(ask(true), bytes), if twice { TwoShot } else { fastest }, "{operation} of {bytes}");
            assert_eq!(
                eight.choose(ask(false), bytes),
                if k < 4 { OneShot } else { TwoShot },
                "{operation} of {bytes}"
            );
        }
    }
    let in_order = |once| four.in_order(ask(ReduceScatterAllReduce, true, once), 1 << 20).collect::<Vec<_>>();
    assert_eq!(in_order(false), [TwoCollectives, TwoShot, OneShot, OneCollective]);
    assert_eq!(in_order(true), [TwoShot, OneShot, OneCollective]);
}

/// Where nothing serves the choice, the modes that are left are tried in the order of the table.
#[test]
fn behind_the_choice_come_the_other_modes_that_are_able() {
    let sizes = GridSizes { local_tensor: 2, local_data: 1, across_tensor: 2, across_data: 1, sums_apart: true };
    let table = built_in(sizes);
    let order = |bytes, once| table.in_order(ask(AllReduce, true, once), bytes).collect::<Vec<_>>();
    assert_eq!(order(64, false), [OneShot, TwoShotAcross, TwoShot, OneCollective]);
    assert_eq!(order(16 << 10, false), [TwoShotAcross, TwoShot, OneShot, OneCollective]);
    assert_eq!(order(16 << 10, true), [OneCollective]);
    let rows = tuned(sizes, AllReduce, true, &[(None, "one-collective")]);
    let table = ModeChoices::new(sizes, DeviceKind::Host, Some(&tuning(DeviceKind::Host, vec![rows]))).unwrap();
    let order = table.in_order(ask(AllReduce, true, false), 64).collect::<Vec<_>>();
    assert_eq!(order, [OneCollective, OneShot, TwoShotAcross, TwoShot]);
}

/// Where a kernel sums fewer parts than a mode needs, another mode is chosen.
#[test]
fn a_mode_of_more_parts_than_a_kernel_sums_is_not_chosen() {
    let wide = GridSizes { local_tensor: 2, local_data: 1, across_tensor: 17, across_data: 1, sums_apart: true };
    let table = built_in(wide);
    for (bytes, once, chosen) in
        [(64, false, TwoShotAcross), (1 << 20, false, TwoShotAcross), (64, true, OneCollective)]
    {
        assert_eq!(table.choose(ask(AllReduce, false, once), bytes), chosen, "{bytes}");
    }
}
