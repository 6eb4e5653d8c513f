//! Random plans and calls on them.

use symmetra::matmul::Numeric;
use symmetra::{Dtype, Transport};

use super::{OpenPlan, Writer};
use crate::products::{Asked, Combines, Factor, Multiply, NUMERICS, Products};
use crate::program::Step;

impl Writer {
    /// A new plan with its first calls, or calls on plans that are there.
    pub(super) fn products(&mut self) {
        let open = self.plans.len();
        if open == 0 || (open < 4 && self.random.below(3) == 0) {
            let (group, members) = self.random.pick(&self.groups).clone();
            let (number, asked) = (self.number(), self.plan(members.len()));
            self.push(Step::Plan { plan: number, group, asked });
            self.plans.push(OpenPlan { number, group });
        }
        let group = self.random.pick(&self.plans).group;
        let plans: Vec<usize> = self.plans.iter().filter(|plan| plan.group == group).map(|plan| plan.number).collect();
        // Ranks exchange no plain memory directly.
        let direct = self.program.settings.transport() == Transport::Direct;
        let count = 1 + self.random.below(3);
        let random = &mut self.random;
        let mut call = || Multiply {
            plan: *random.pick(&plans),
            seed: random.next(),
            symmetric: [direct || random.below(2) == 0, direct || random.below(2) == 0],
            keeps: random.below(2) == 0,
        };
        let calls = (0..count).map(|_| call()).collect();
        let (replays, spread, on) = ([0, 0, 1, 2][self.random.below(4)], self.random.below(2) == 0, self.streams());
        self.push(Step::Products { products: Products { calls, replays, spread }, on });
    }

    /// The shape of a tensor whose last dimension has `last` elements, its parts for `world` ranks, and whether the
    /// parts are equal and contiguous.
    fn division(&mut self, world: usize, last: usize, cuts_last: bool) -> (Vec<usize>, usize, Vec<usize>) {
        let random = &mut self.random;
        let len = *random.pick(&[1, 2, 3, 4, 8]);
        let mut uneven: Vec<usize> = (0..world).map(|_| random.below(6)).collect();
        uneven[random.below(world)] = 1 + random.below(5);
        let sum = uneven.iter().sum();
        match random.below(6) {
            _ if cuts_last => (vec![1 + random.below(5), last], 1, vec![last / world; world]),
            0 => (vec![1, len * world, 2, last], 1, vec![len; world]),
            1 => (vec![3, 2 * world, last], 1, vec![2; world]),
            2 => (vec![2, 3, world, last], 2, vec![1; world]),
            3 => (vec![sum, last], 0, uneven),
            4 => (vec![1, sum, 3, last], 1, uneven),
            _ => (vec![len * world, last], 0, vec![len; world]),
        }
    }

    fn plan(&mut self, world: usize) -> Asked {
        let random = &mut self.random;
        let combines = *random.pick(&[Combines::Gather, Combines::Gather, Combines::Scatter, Combines::Reduce]);
        let numeric = random.below(NUMERICS.len());
        let of_f8 = matches!(NUMERICS[numeric], Numeric::F8 { .. });
        let scaling = if of_f8 { random.below(3) } else { 0 };
        // 8-bit floats have sizes that are multiples of 16.
        let (unit, most) = if of_f8 { (16, 2) } else { (1, 24) };
        let cuts_last = combines != Combines::Reduce && random.below(5) == 0;
        let last = if cuts_last { unit * world } else { unit } * (1 + random.below(if cuts_last { 1 } else { most }));
        let other = unit * (1 + random.below(most));
        let (shape, mut dim, mut lens) = self.division(world, last, cuts_last);
        let rows: usize = shape.iter().rev().skip(1).product();
        if combines == Combines::Reduce {
            // All rows are one dimension, which the plan cuts if the world size divides it.
            (dim, lens) = (0, vec![shape[0]; world]);
        }
        let even = lens.windows(2).all(|pair| pair[0] == pair[1]) && rows.is_multiple_of(world);
        let contiguous = shape[..dim].iter().all(|len| *len == 1) && !cuts_last;
        // Scales of a part begin at a multiple of 16 bytes.
        let by_parts = world > 1 && even && contiguous && (scaling != 2 || (rows / world).is_multiple_of(4));
        let random = &mut self.random;
        let way = *random.pick(if by_parts { &[0, 1, 2, 2, 2] } else { &[0, 1] });
        let gathers = combines == Combines::Gather;
        let count = if gathers { 1 + random.below(3) } else { 1 };
        let mut factor = || {
            let result = random.below(NUMERICS[numeric].results().len());
            let biased = !of_f8 || NUMERICS[numeric].results()[result] != Dtype::F32;
            Factor {
                columns: if gathers { unit * (1 + random.below(most)) } else { last },
                by_rows: !of_f8 && random.below(2) == 0,
                result,
                bias: biased && random.below(2) == 0,
                relu: gathers && random.below(2) == 0,
            }
        };
        let factors = (0..count).map(|_| factor()).collect();
        let inner = if gathers { last } else { other };
        let average = !gathers && self.random.below(3) == 0;
        Asked { combines, shape, dim, lens, inner, numeric, scaling, factors, way, average }
    }
}
