use std::collections::BTreeMap;

use super::super::mode::choose;
use super::*;

/// What an element is made of: how often it has each element of each rank's input.
type Made = BTreeMap<(usize, usize), usize>;

struct Rank {
    input: Vec<Made>,
    output: Vec<Made>,
    work: Vec<Made>,
}

impl Rank {
    fn get(&self, stretch: Stretch) -> Vec<Made> {
        let space = match stretch.space {
            Space::Input => &self.input,
            Space::Output => &self.output,
            Space::Work => &self.work,
        };
        space[stretch.start..stretch.start + stretch.elems].to_vec()
    }

    fn put(&mut self, stretch: Stretch, values: Vec<Made>) {
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

/// Runs a collective of the ranks of a group, given what each reads.
fn collective(kind: Kind, rows: usize, all: &[Vec<Made>]) -> Vec<Vec<Made>> {
    let (world, elems) = (all.len(), all[0].len());
    match kind {
        Kind::AllReduce => vec![sum(all); world],
        Kind::AllGather => {
            let row = elems / rows;
            let gathered = (0..rows).flat_map(|r| all.iter().flat_map(move |own| own[r * row..(r + 1) * row].to_vec()));
            vec![gathered.collect(); world]
        }
        Kind::ReduceScatter => {
            let (total, row) = (sum(all), elems / rows / world);
            let of = |rank: usize| (0..rows).flat_map(move |r| (r * world + rank) * row..(r * world + rank + 1) * row);
            (0..world).map(|rank| of(rank).map(|at| total[at].clone()).collect()).collect()
        }
        Kind::AllToAll => {
            let part = elems / world;
            (0..world).map(|to| all.iter().flat_map(|own| own[to * part..(to + 1) * part].to_vec()).collect()).collect()
        }
    }
}

/// The outputs of all ranks, in the order of hosts.
fn simulate(sizes: &Sizes, plan: &Plan, (input, output): (usize, usize)) -> Vec<Vec<Made>> {
    let own = |rank: usize| (0..input).map(|elem| Made::from([((rank, elem), 1)])).collect();
    let mut ranks: Vec<Rank> = (0..sizes.world())
        .map(|rank| Rank { input: own(rank), output: vec![Made::new(); output], work: vec![Made::new(); plan.work] })
        .collect();
    for step in &plan.steps {
        match *step {
            Step::Copy { from, into } => ranks.iter_mut().for_each(|rank| rank.put(into, rank.get(from))),
            Step::Sum { parts, from, into } => {
                for rank in &mut ranks {
                    let all: Vec<_> = (0..parts).map(|part| rank.get(from.part(part, into.elems))).collect();
                    rank.put(into, sum(&all));
                }
            }
            Step::Collective { kind, part, from, into, rows } => {
                let mut groups: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
                for rank in 0..ranks.len() {
                    let at = sizes.position(rank / sizes.local(), rank % sizes.local());
                    let (group, number) = part.of(sizes, at);
                    groups.entry(group).or_default().insert(number, rank);
                }
                for members in groups.values() {
                    let all: Vec<_> = members.values().map(|rank| ranks[*rank].get(from)).collect();
                    let results = collective(kind, rows, &all);
                    members.values().zip(results).for_each(|(rank, result)| ranks[*rank].put(into, result));
                }
            }
        }
    }
    ranks.into_iter().map(|rank| rank.output).collect()
}

/// What a rank's output is made of, by the table of operations.
fn expected(sizes: &Sizes, operation: MixedOperation, count: usize, rank: usize) -> Vec<Made> {
    let place = |rank: usize| {
        let at = sizes.position(rank / sizes.local(), rank % sizes.local());
        (sizes.tensor_rank(at), sizes.data_rank(at))
    };
    let own = place(rank).1;
    let everyone = || 0..sizes.world();
    let of = |elem: usize| -> Made {
        match operation {
            MixedOperation::AllReduce => everyone().map(|other| ((other, elem), 1)).collect(),
            MixedOperation::AllGather | MixedOperation::AllReduceAllGather => {
                let gives = everyone().filter(|other| place(*other).1 == elem / count);
                gives.map(|other| ((other, elem % count), 1)).collect()
            }
            MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce => {
                everyone().map(|other| ((other, own * count + elem), 1)).collect()
            }
        }
    };
    (0..operation.elems(sizes, count).1).map(of).collect()
}

fn grids() -> impl Iterator<Item = Sizes> {
    let levels = |most: usize| (1..=most).flat_map(move |a| (1..=most / a).map(move |b| (a, b)));
    levels(4).flat_map(move |(local_tensor, local_data)| {
        levels(4).map(move |(across_tensor, across_data)| Sizes {
            local_tensor,
            local_data,
            across_tensor,
            across_data,
        })
    })
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
                    let plan = plan(&sizes, operation, mode, count);
                    let outputs = simulate(&sizes, &plan, operation.elems(&sizes, count));
                    for (rank, output) in outputs.iter().enumerate() {
                        let expected = expected(&sizes, operation, count, rank);
                        assert_eq!(*output, expected, "{operation} by {mode} on {sizes:?}, {count}, rank {rank}");
                    }
                }
            }
        }
    }
    assert_eq!(pairs.len(), 18, "the pairs of the table: {pairs:?}");
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

#[test]
fn the_choice_is_a_mode_that_the_grid_has() {
    for sizes in grids() {
        for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)) {
            for bytes in [0, 1 << 10, 16 << 10, 64 << 10, (64 << 10) + 1, 1 << 20, 1 << 30] {
                for once in [false, true] {
                    let mode = choose(&sizes, operation, bytes, once);
                    assert!(
                        mode != MixedMode::Auto && mode.is_on(&sizes, operation),
                        "{operation} of {bytes} on {sizes:?}"
                    );
                    let exact = plan(&sizes, operation, mode, 5).roundings() <= 1;
                    assert!(!once || exact, "{operation} of {bytes} on {sizes:?} by {mode} rounds more than once");
                }
            }
        }
    }
}

/// A workspace that was made for a number of bytes holds every call of at most so many.
#[test]
fn the_workspace_holds_every_smaller_call() {
    for sizes in grids() {
        for most in [0, 1, 7, 64, 1000, 1024] {
            let made = super::super::work_bytes(&sizes, most);
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
