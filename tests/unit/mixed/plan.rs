use std::collections::BTreeMap;

use super::super::parts::{DataRows, plan_part};
use super::*;

/// The composition of an element: how often it contains each element of each rank's input.
type Made = BTreeMap<(usize, usize), usize>;

struct Rank {
    input: Vec<Made>,
    output: Vec<Made>,
    work: Vec<Made>,
}

impl Rank {
    fn get(&self, stretch: ElementRange) -> Vec<Made> {
        let space = match stretch.space {
            Space::Input => &self.input,
            Space::Output => &self.output,
            Space::Work => &self.work,
        };
        space[stretch.start..stretch.start + stretch.elems].to_vec()
    }

    fn put(&mut self, stretch: ElementRange, values: Vec<Made>) {
        assert_eq!(values.len(), stretch.elems, "as many as there is room for");
        let space = match stretch.space {
            Space::Input => panic!("a step writes the input"),
            Space::Output => &mut self.output,
            Space::Work => &mut self.work,
        };
        space[stretch.start..stretch.start + stretch.elems].clone_from_slice(&values);
    }
}

fn sum(all: &[Vec<Made>]) -> Vec<Made> {
    let mut total = vec![Made::new(); all[0].len()];
    for part in all {
        for (total, made) in total.iter_mut().zip(part) {
            made.iter().for_each(|(key, times)| *total.entry(*key).or_default() += times);
        }
    }
    total
}

/// Runs a collective of the ranks of a group on the input of each rank.
fn collective(kind: GridCollective, rows: usize, all: &[Vec<Made>]) -> Vec<Vec<Made>> {
    let (world, elems) = (all.len(), all[0].len());
    match kind {
        GridCollective::AllReduce => vec![sum(all); world],
        GridCollective::AllGather => {
            let row = elems / rows;
            let gathered = (0..rows).flat_map(|r| all.iter().flat_map(move |own| own[r * row..(r + 1) * row].to_vec()));
            vec![gathered.collect(); world]
        }
        GridCollective::ReduceScatter => {
            let (total, row) = (sum(all), elems / rows / world);
            let of = |rank: usize| (0..rows).flat_map(move |r| (r * world + rank) * row..(r * world + rank + 1) * row);
            (0..world).map(|rank| of(rank).map(|at| total[at].clone()).collect()).collect()
        }
        GridCollective::AllToAll => {
            let part = elems / world;
            (0..world).map(|to| all.iter().flat_map(|own| own[to * part..(to + 1) * part].to_vec()).collect()).collect()
        }
    }
}

/// The sums of `groups` groups of consecutive ranks, next to each other in each row.
fn sums_apart(groups: usize, rows: usize, all: &[Vec<Made>]) -> Vec<Made> {
    let sums: Vec<Vec<Made>> = all.chunks(all.len() / groups).map(sum).collect();
    collective(GridCollective::AllGather, rows, &sums).swap_remove(0)
}

/// The outputs of all ranks, in the order of hosts: of each data rank, the plans that follow each other. `elems`: those of a data
/// rank's input and output.
fn simulate(sizes: &GridSizes, plans: &[Vec<GridPlan>], elems: impl Fn(usize) -> (usize, usize)) -> Vec<Vec<Made>> {
    let at = |rank: usize| sizes.data_rank(sizes.position(rank / sizes.local(), rank % sizes.local()));
    let work = plans.iter().flatten().map(|plan| plan.work).max().unwrap_or(0);
    let mut ranks: Vec<Rank> = (0..sizes.world())
        .map(|rank| {
            let (input, output) = elems(at(rank));
            let input = (0..input).map(|elem| Made::from([((rank, elem), 1)])).collect();
            Rank { input, output: vec![Made::new(); output], work: vec![Made::new(); work] }
        })
        .collect();
    // Ranks have equal collectives, with their own copies between these.
    let mut left: Vec<_> = (0..ranks.len()).map(|rank| plans[at(rank)].iter().flat_map(|plan| &plan.steps)).collect();
    loop {
        let next: Vec<Option<GridStep>> =
            ranks.iter_mut().zip(&mut left).map(|(rank, left)| own_steps(rank, left)).collect();
        if next.iter().all(Option::is_none) {
            break;
        }
        let next: Vec<GridStep> = next.into_iter().map(|step| step.expect("every rank takes part")).collect();
        let part = match next[0] {
            GridStep::Collective { part, .. } => part,
            GridStep::ReduceApart { .. } | GridStep::ReduceShared { .. } => GridPart::Local,
            GridStep::Sum { .. } | GridStep::Copy { .. } => panic!("a step of one rank"),
        };
        let mut groups: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
        for rank in 0..ranks.len() {
            let at = sizes.position(rank / sizes.local(), rank % sizes.local());
            let (group, number) = part.of(sizes, at);
            groups.entry(group).or_default().insert(number, rank);
        }
        let operands = |rank: usize| match next[rank] {
            GridStep::Collective { from, into, .. }
            | GridStep::ReduceApart { from, into, .. }
            | GridStep::ReduceShared { from, into, .. } => [from, into],
            GridStep::Sum { .. } | GridStep::Copy { .. } => panic!("a step of one rank"),
        };
        for members in groups.values() {
            let all: Vec<_> = members.values().map(|rank| ranks[*rank].get(operands(*rank)[0])).collect();
            let results = match next[0] {
                GridStep::Collective { kind, rows, .. } => collective(kind, rows, &all),
                GridStep::ReduceApart { groups, rows, .. } => vec![sums_apart(groups, rows, &all); all.len()],
                GridStep::ReduceShared { groups, .. } => {
                    let parts = sum(&all);
                    let part = |rank: usize| {
                        parts.chunks(parts.len().div_ceil(groups).max(1)).nth(rank / (all.len() / groups))
                    };
                    (0..all.len()).map(|rank| part(rank).unwrap_or_default().to_vec()).collect()
                }
                GridStep::Sum { .. } | GridStep::Copy { .. } => panic!("a step of one rank"),
            };
            members.values().zip(results).for_each(|(rank, result)| ranks[*rank].put(operands(*rank)[1], result));
        }
    }
    ranks.into_iter().map(|rank| rank.output).collect()
}

/// Runs the steps of one rank up to the next collective.
fn own_steps<'a>(rank: &mut Rank, left: &mut impl Iterator<Item = &'a GridStep>) -> Option<GridStep> {
    for step in left {
        match *step {
            GridStep::Copy { from, into } => rank.put(into, rank.get(from)),
            GridStep::Sum { parts, from, into } => {
                let all: Vec<_> = (0..parts).map(|part| rank.get(from.part(part, into.elems))).collect();
                rank.put(into, sum(&all));
            }
            collective => return Some(collective),
        }
    }
    None
}

/// The composition of a rank's output, by the table of operations.
fn placed(sizes: &GridSizes, operation: MixedOperation, rows: DataRows<'_>, rank: usize) -> Vec<Made> {
    let place = |rank: usize| {
        let at = sizes.position(rank / sizes.local(), rank % sizes.local());
        (sizes.tensor_rank(at), sizes.data_rank(at))
    };
    let own = place(rank).1;
    let everyone = || 0..sizes.world();
    let all = |elem: usize| -> Made { everyone().map(|other| ((other, elem), 1)).collect() };
    match operation {
        MixedOperation::AllReduce => (0..rows.of(0)).map(all).collect(),
        MixedOperation::AllGather | MixedOperation::AllReduceAllGather => {
            let block = |data: usize| {
                let gives = move |elem: usize| -> Made {
                    everyone().filter(|other| place(*other).1 == data).map(|other| ((other, elem), 1)).collect()
                };
                (0..rows.of(data)).map(gives)
            };
            (0..sizes.data()).flat_map(block).collect()
        }
        MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce => {
            (0..rows.of(own)).map(|elem| all(rows.before(own) + elem)).collect()
        }
    }
}

fn grids() -> impl Iterator<Item = GridSizes> {
    let levels = |most: usize| (1..=most).flat_map(move |a| (1..=most / a).map(move |b| (a, b)));
    let all = levels(4).flat_map(move |(local_tensor, local_data)| {
        levels(4).map(move |(across_tensor, across_data)| GridSizes {
            local_tensor,
            local_data,
            across_tensor,
            across_data,
            sums_apart: true,
        })
    });
    all.flat_map(|sizes| [sizes, GridSizes { sums_apart: false, ..sizes }])
}

/// Every grid of up to 4 ranks a host and 4 hosts: each input is counted once in each output, at the right place.
#[test]
fn every_operation_in_every_mode_makes_what_the_table_says() {
    let mut pairs = std::collections::BTreeSet::new();
    for sizes in grids() {
        for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
            for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                pairs.insert((operation.name(), mode.name()));
                for count in [0, 1, 3, 4] {
                    let plans = || vec![plan(&sizes, operation, mode, count)];
                    let plans: Vec<_> = (0..sizes.data()).map(|_| plans()).collect();
                    let outputs = simulate(&sizes, &plans, |_| operation.elems(&sizes, count));
                    for (rank, output) in outputs.iter().enumerate() {
                        let expected = placed(&sizes, operation, DataRows::Equal(count), rank);
                        assert_eq!(*output, expected, "{operation} by {mode} on {sizes:?}, {count}, rank {rank}");
                    }
                }
            }
        }
    }
    assert_eq!(pairs.len(), 18, "the pairs of the table: {pairs:?}");
}

/// Every grid of up to 4 ranks a host and 4 hosts, with data ranks that have little, much or nothing, whole and in pieces:
/// each input is counted once in each output, at the right place.
#[test]
fn unequal_parts_and_pieces_make_what_the_table_says() {
    let mut staged = 0;
    for sizes in grids() {
        let counts: Vec<usize> = (0..sizes.data()).map(|rank| [3, 0, 5, 1][rank % 4]).collect();
        for rows in [DataRows::Of(&counts), DataRows::Equal(5)] {
            for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
                for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                    for len in [rows.most(), 2] {
                        let of = |at: usize| -> Vec<GridPlan> {
                            let starts = (0..rows.most()).step_by(len);
                            starts.map(|start| plan_part(&sizes, at, operation, mode, rows, start, len)).collect()
                        };
                        let plans: Vec<Vec<GridPlan>> = (0..sizes.data()).map(of).collect();
                        staged += usize::from(plans[0].len() > 1);
                        let outputs = simulate(&sizes, &plans, |rank| operation.elems_of(&sizes, rows, rank));
                        for (rank, output) in outputs.iter().enumerate() {
                            let expected = placed(&sizes, operation, rows, rank);
                            assert_eq!(
                                *output, expected,
                                "{operation} by {mode} on {sizes:?}: {rows:?}, {len}, rank {rank}"
                            );
                        }
                    }
                }
            }
        }
    }
    assert!(staged > 100, "{staged}");
}

/// Ranks with unlike operands would address each other wrongly: every step reads and writes the same place.
#[test]
fn ranks_stage_alike() {
    for sizes in grids() {
        let counts: Vec<usize> = (0..sizes.data()).map(|rank| rank + 1).collect();
        for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
            for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                let collectives = |at: usize| -> Vec<String> {
                    let plan = plan_part(&sizes, at, operation, mode, DataRows::Of(&counts), 0, sizes.data());
                    let steps =
                        plan.steps.iter().filter(|step| !matches!(step, GridStep::Sum { .. } | GridStep::Copy { .. }));
                    steps.map(|step| format!("{step:?}")).collect()
                };
                assert!(
                    (1..sizes.data()).all(|at| collectives(at) == collectives(0)),
                    "{operation} by {mode} on {sizes:?}"
                );
            }
        }
    }
}

/// On one host every mode but two collectives rounds a value once.
#[test]
fn one_host_rounds_once() {
    for sizes in grids().filter(|sizes| sizes.hosts() == 1 && sizes.world() > 1) {
        for operation in MixedOperation::ALL.into_iter().filter(|op| op.is_on(&sizes) && op.reduces()) {
            for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                let roundings = plan(&sizes, operation, mode, 5).roundings();
                let two = mode == MixedMode::TwoCollectives && operation == MixedOperation::ReduceScatterAllReduce;
                assert_eq!(roundings, if two { 2 } else { 1 }, "{operation} by {mode} on {sizes:?}");
            }
        }
    }
}

/// Where a kernel sums fewer parts than a mode needs, the grid does not have the mode.
#[test]
fn a_mode_of_more_parts_than_a_kernel_sums_is_not_one() {
    use MixedMode::{OneCollective, OneShot, TwoCollectives, TwoShot, TwoShotAcross};
    let of = |across_tensor, across_data| GridSizes {
        local_tensor: 2,
        local_data: 1,
        across_tensor,
        across_data,
        sums_apart: true,
    };
    let (wide, both) = (of(17, 1), of(17, 2));
    let reduce = MixedOperation::AllReduce;
    assert_eq!(modes(&of(16, 1), reduce, 16), [OneShot, TwoShot, TwoShotAcross, OneCollective]);
    assert_eq!(modes(&wide, reduce, 16), [TwoShotAcross, OneCollective]);
    assert_eq!(modes(&both, MixedOperation::ReduceScatterAllReduce, 16), [TwoShotAcross, TwoCollectives]);
}

/// A workspace that was made for a number of bytes holds every call of at most that number.
#[test]
fn the_workspace_holds_every_smaller_call() {
    for sizes in grids() {
        for most in [0, 1, 7, 64, 1000, 1024] {
            let made = super::super::places::work_bytes(&sizes, most);
            for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
                for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                    for bytes in [1, 2, 4, 8] {
                        for count in
                            [most / bytes, most / bytes / 2].into_iter().flat_map(|most| most.saturating_sub(5)..=most)
                        {
                            let used = plan(&sizes, operation, mode, count).work * bytes;
                            assert!(
                                used <= made,
                                "{operation} by {mode} of {count} x {bytes} on {sizes:?}: {used} of {made}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// On one level, one-shot and one collective are the same call, so that noise would choose between them.
#[test]
fn names_of_the_same_steps_are_told() {
    use super::super::places::first_alike;
    use MixedMode::{OneCollective, OneShot, TwoShot};
    use MixedOperation::{AllGather, AllReduce, ReduceScatter, ReduceScatterAllReduce};
    let of = |[local_tensor, local_data, across_tensor, across_data]: [usize; 4]| GridSizes {
        local_tensor,
        local_data,
        across_tensor,
        across_data,
        sums_apart: true,
    };
    assert_eq!(first_alike(&of([4, 1, 1, 1]), AllReduce, OneCollective), OneShot);
    assert_eq!(first_alike(&of([4, 1, 1, 1]), AllReduce, TwoShot), TwoShot);
    assert_eq!(first_alike(&of([1, 3, 1, 1]), AllGather, OneCollective), OneShot);
    assert_eq!(first_alike(&of([1, 3, 1, 1]), ReduceScatter, OneCollective), OneShot);
    // An all-gather of parts and a sum are other steps than a reduce-scatter.
    assert_eq!(first_alike(&of([1, 1, 1, 3]), ReduceScatter, OneCollective), OneCollective);
    for (sizes, operation) in [([2, 2, 1, 1], ReduceScatterAllReduce), ([2, 1, 2, 1], AllReduce)] {
        let sizes = of(sizes);
        for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
            assert_eq!(first_alike(&sizes, operation, mode), mode, "{operation} on {sizes:?}");
        }
    }
}

/// Every mode takes data ranks that have unequally much, in the workspace for as little as one element.
#[test]
fn the_workspace_holds_the_shortest_pieces() {
    for sizes in grids() {
        for most in [1, 3, 7, 64, 127, 128, 129, 1000, 1024] {
            let made = super::super::places::work_bytes(&sizes, most);
            for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
                for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(&sizes, operation)) {
                    for bytes in [1, 2, 4, 8].into_iter().filter(|bytes| most / bytes > 0) {
                        for len in 1..=(most / bytes).min(ALIGN) {
                            let counts: Vec<usize> = (0..sizes.data()).map(|rank| len - rank.min(1)).collect();
                            let used =
                                plan_part(&sizes, 0, operation, mode, DataRows::Of(&counts), 0, len).work * bytes;
                            assert!(
                                used <= made,
                                "{operation} by {mode} of {len} x {bytes} on {sizes:?}: {used} of {made} for {most}"
                            );
                        }
                    }
                }
            }
        }
    }
}
