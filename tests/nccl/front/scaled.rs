//! Reductions that the program makes: sums of products with a factor of each rank, against a model of its own.

use std::ffi::{c_int, c_void};

use crate::library::{self, Comm, last_error, ok};
use crate::values::{Memory, TYPES, bytes_of, rounded, value};
use crate::world::{Rank, threads};

const U8: c_int = 1;
const F32: c_int = 7;
/// Where the factor of a reduction is.
const DEVICE: c_int = 0;
const HOST: c_int = 1;

fn make(comm: Comm, dtype: c_int, factor: *mut c_void, residence: c_int) -> c_int {
    let mut op = 0;
    ok(library::ncclRedOpCreatePreMulSum(&raw mut op, factor, dtype, residence, comm));
    assert!(op >= 5, "{op} is a reduction of NCCL");
    op
}

/// A call whose elements and factors are given by functions of rank and index.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    dtype: c_int,
    residence: c_int,
    count: usize,
    in_place: bool,
}

/// The factor of a rank, and the element of a rank at an index.
struct Numbers<'a> {
    factor: &'a (dyn Fn(usize) -> f64 + Sync),
    element: &'a (dyn Fn(usize, usize) -> f64 + Sync),
}

impl Case {
    /// The sum of the rounded products of all ranks.
    fn sum(self, ranks: usize, numbers: &Numbers<'_>, index: usize) -> f64 {
        let in_type = |number: f64| rounded(self.dtype, number);
        let product = |rank| in_type(in_type((numbers.element)(rank, index)) * in_type((numbers.factor)(rank)));
        in_type((0..ranks).map(product).sum())
    }

    fn check(self, Rank { comm, rank, ranks }: Rank, numbers: &Numbers<'_>) {
        let Self { name, dtype, residence, count, in_place } = self;
        let root = ranks - 1;
        let parts = if name == "reduce-scatter" { ranks } else { 1 };
        let values: Vec<f64> = (0..parts * count).map(|index| (numbers.element)(rank, index)).collect();
        let mut send = Memory::new(dtype, &values);
        let mut receive = if in_place { send.clone() } else { Memory::new(dtype, &vec![1.0; count]) };
        let part = if in_place && parts > 1 { rank * count } else { 0 };
        let (from, to) = match in_place {
            true => (receive.start(), receive.at(part)),
            false => (send.start(), receive.start()),
        };
        let mut factor = Memory::new(dtype, &[(numbers.factor)(rank)]);
        let op = make(comm, dtype, factor.start(), residence);
        ok(match name {
            "all-reduce" => library::ncclAllReduce(from, to, count, dtype, op, comm, 0),
            "reduce" => library::ncclReduce(from, to, count, dtype, op, root as c_int, comm, 0),
            _ => library::ncclReduceScatter(from, to, count, dtype, op, comm, 0),
        });
        ok(library::ncclRedOpDestroy(op, comm));
        if !in_place {
            assert_eq!(send.values(), Memory::new(dtype, &values).values(), "the send buffer of {self:?}");
        }
        if name == "reduce" && rank != root {
            return;
        }
        let first = if parts > 1 { rank * count } else { 0 };
        let expected: Vec<f64> = (first..first + count).map(|index| self.sum(ranks, numbers, index)).collect();
        let found = &receive.values()[part..part + count];
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "rank {rank} of {ranks}, {self:?}: {:?}", wrong.map(|at| (found[at], expected[at])));
    }
}

fn cases(types: impl Iterator<Item = c_int> + Clone, counts: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["all-reduce", "reduce", "reduce-scatter"] {
        for dtype in types.clone() {
            for (residence, in_place) in [(HOST, false), (DEVICE, true), (DEVICE, false), (HOST, true)] {
                cases.extend(counts.iter().map(|count| Case { name, dtype, residence, count: *count, in_place }));
            }
        }
    }
    cases
}

/// Small integers, whose products and sums every type has.
#[test]
fn every_type_form_and_place_of_the_factor() {
    let cases = cases(TYPES, &[1, 129, 1000]);
    let numbers =
        Numbers { factor: &|rank| [2.0, 1.0, 3.0][rank % 3], element: &|rank, index| value(41, rank, index, 1) };
    for ranks in [1, 3] {
        threads(ranks, |rank| cases.iter().for_each(|case| case.check(rank, &numbers)));
    }
}

/// Products that the type rounds before the sum.
#[test]
fn a_product_is_rounded_once_in_its_type() {
    let cases = cases([6, F32, 8, 9, 10].into_iter(), &[513]);
    let element = |rank: usize, index: usize| 1.0 + value(7, rank, index, 1 << 20) / f64::from(1 << 20);
    let numbers = Numbers { factor: &|rank| [0.7, 1.0 / 3.0][rank], element: &element };
    threads(2, |rank| cases.iter().for_each(|case| case.check(rank, &numbers)));
}

/// More products than a rank keeps at once, of rows that do not start at whole packets.
#[test]
fn products_in_several_parts() {
    let numbers = Numbers { factor: &|rank| 1.0 + rank as f64, element: &|rank, index| value(3, rank, index, 2) };
    for (name, dtype, count) in [("reduce-scatter", U8, 4_300_001), ("reduce", F32, 2_200_003)] {
        let case = Case { name, dtype, residence: HOST, count, in_place: false };
        assert!(count * bytes_of(dtype) * (if dtype == U8 { 2 } else { 1 }) > 8 << 20, "{case:?} is one part");
        threads(2, |rank| case.check(rank, &numbers));
    }
}

/// A call of a group has its factor after the reduction is destroyed. A factor of the device is read when the group ends.
#[test]
fn a_group_keeps_the_factor_of_a_destroyed_reduction() {
    threads(2, |rank| {
        let (mut buffer, mut half) = (Memory::new(F32, &[1.0, 4.0]), Memory::new(F32, &[0.5]));
        let mut late = Memory::new(F32, &[3.0]);
        ok(library::ncclGroupStart());
        for (factor, residence) in [(half.start(), HOST), (late.start(), DEVICE)] {
            let op = make(rank.comm, F32, factor, residence);
            ok(library::ncclAllReduce(buffer.start(), buffer.start(), 2, F32, op, rank.comm, 0));
            ok(library::ncclRedOpDestroy(op, rank.comm));
            unsafe { factor.cast::<f32>().write(2.0) };
        }
        ok(library::ncclGroupEnd());
        assert_eq!(buffer.values(), [4.0, 16.0], "half of the sum of 2 ranks, then twice that sum");
    });
}

/// A reduction belongs to one communicator: a part of a split makes its own.
#[test]
fn a_part_of_a_split_makes_reductions_of_its_own() {
    threads(3, |rank| {
        let mut part = 0;
        let color = if rank.rank == 1 { -1 } else { 0 };
        ok(library::ncclCommSplit(rank.comm, color, 0, &raw mut part, std::ptr::null()));
        let (mut buffer, mut factor) = (Memory::new(F32, &[1.0]), Memory::new(F32, &[4.0]));
        let of_all = make(rank.comm, F32, factor.start(), HOST);
        if part == 0 {
            return;
        }
        let mut sum = |op| library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, op, part, 0);
        assert_eq!(sum(of_all), 4, "a reduction of another communicator");
        assert!(last_error().contains(&format!("the reduction is {of_all}")), "{}", last_error());
        let own = make(part, F32, factor.start(), HOST);
        ok(sum(own));
        assert_eq!(buffer.values(), [8.0]);
        ok(library::ncclCommDestroy(part));
    });
}
