//! Random grids and calls on them.

use symmetra::mixed::{MixedMode, MixedOperation};
use symmetra::{Codec, Dtype, Reduction, Transport};

use super::{OpenGrid, TYPES, Writer};
use crate::grids::{Mix, Mixes, Shape};
use crate::program::{Kind, Step};
use crate::support::data::shuffle;

impl Writer {
    /// A new grid with its first calls, or calls on grids that are there.
    pub(super) fn grids(&mut self) {
        if self.grids.is_empty() || (self.grids.len() < 3 && self.random.below(3) == 0) {
            let group = self.coordinator();
            let members =
                self.groups.iter().find(|(number, _)| *number == group).map_or(1, |(_, members)| members.len());
            let (number, shape) = (self.number(), self.shape(members));
            self.push(Step::Grid { grid: number, group, shape: shape.clone() });
            self.grids.push(OpenGrid { number, group, shape });
        }
        let group = self.random.pick(&self.grids).group;
        let grids: Vec<OpenGrid> = self.grids.iter().filter(|grid| grid.group == group).cloned().collect();
        let count = 1 + self.random.below(4);
        let calls = (0..count).map(|_| self.random.below(grids.len())).collect::<Vec<_>>();
        let calls = calls.into_iter().map(|grid| self.mix(&grids[grid])).collect();
        let (replays, spread, on) = ([0, 0, 1, 2][self.random.below(4)], self.random.below(2) == 0, self.streams());
        self.push(Step::Mixes { mixes: Mixes { calls, replays, spread }, on });
    }

    /// A group for a grid: often one that is there.
    pub(super) fn coordinator(&mut self) -> usize {
        if !self.coordinators.is_empty() && (self.coordinators.len() > 1 || self.random.below(2) == 0) {
            return *self.random.pick(&self.coordinators);
        }
        let mut members: Vec<usize> = (0..self.program.world).collect();
        if self.random.below(2) == 0 {
            shuffle(self.random.next(), &mut members);
        }
        if self.random.below(4) == 0 {
            members.truncate(1 + self.random.below(self.program.world));
        }
        let group = self.number();
        self.groups.push((group, members.clone()));
        self.coordinators.push(group);
        self.push(Step::Coordinator { group, members });
        group
    }

    fn shape(&mut self, world: usize) -> Shape {
        let divisors: Vec<usize> = (1..=world).filter(|tensor| world.is_multiple_of(*tensor)).collect();
        let tensor = *self.random.pick(&divisors);
        Shape { tensor, data: world / tensor, most_bytes: *self.random.pick(&[4096, 4000, 5001, 9999, 16_384]) }
    }

    fn mix(&mut self, grid: &OpenGrid) -> Mix {
        let Shape { tensor, data, most_bytes } = grid.shape;
        let exact = self.program.settings.exact;
        let direct = self.program.settings.transport() == Transport::Direct;
        let random = &mut self.random;
        let operation = *random.pick(match (tensor > 1, data > 1) {
            (false, false) => &MixedOperation::ALL[..],
            (true, false) => &[MixedOperation::AllReduce],
            (false, true) => &[MixedOperation::AllGather, MixedOperation::ReduceScatter],
            (true, true) => &[MixedOperation::AllReduceAllGather, MixedOperation::ReduceScatterAllReduce],
        });
        let dtype = *random.pick(&TYPES);
        let reductions = Reduction::ALL.into_iter().filter(|reduction| Codec::None.carries(dtype, *reduction));
        let reductions: Vec<Reduction> = reductions.collect();
        let reduction = if random.below(2) == 0 { Reduction::Sum } else { *random.pick(&reductions) };
        let mode = *random.pick(&modes(&grid.shape, operation, is_once(dtype, reduction, exact)));
        let most = 3 * most_bytes / dtype.bytes();
        let mut count = || match random.below(4) {
            0 => *random.pick(&[0, 1, 7, 8, 127, 128, 129, 1000]),
            1 => random.below(most_bytes / dtype.bytes() + 2),
            _ => random.below(most + 1),
        };
        let equal = count();
        let rows: Vec<usize> = match data > 1 && equal % 3 == 0 {
            true => (0..data).map(|_| count()).collect(),
            false => vec![equal; data],
        };
        let kind = *random.pick(&[Kind::Symmetric, Kind::Symmetric, Kind::Plain, Kind::Plain, Kind::Adopted]);
        Mix {
            grid: grid.number,
            operation: operation.name().to_owned(),
            mode: mode.name().to_owned(),
            dtype: dtype.name().to_owned(),
            reduction: reduction.name().to_owned(),
            rows,
            // Ranks exchange no plain memory directly.
            kind: if direct { Kind::Symmetric } else { kind },
            in_place: operation == MixedOperation::AllReduce && random.below(3) == 0,
            at: [0; 2].map(|_| if random.below(2) == 0 { 0 } else { random.below(20) }),
            seed: random.next(),
        }
    }
}

/// Whether a mode must round once.
fn is_once(dtype: Dtype, reduction: Reduction, exact: bool) -> bool {
    reduction == Reduction::Average || (exact && dtype.is_float())
}

/// The modes of an operation on one host, by docs/mixed.md.
fn modes(shape: &Shape, operation: MixedOperation, once: bool) -> Vec<MixedMode> {
    let moves_only = matches!(operation, MixedOperation::AllGather | MixedOperation::ReduceScatter);
    let mut modes = vec![MixedMode::Auto, MixedMode::OneShot, MixedMode::OneCollective];
    if !moves_only && shape.tensor > 1 {
        modes.push(MixedMode::TwoShot);
        if shape.data > 1 && !(once && operation == MixedOperation::ReduceScatterAllReduce) {
            modes.push(MixedMode::TwoCollectives);
        }
    }
    modes
}
