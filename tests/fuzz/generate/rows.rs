//! Random calls that norm the rows that they sum.

use symmetra::op::{
    ALL_REDUCE, ALL_REDUCE_NORM, Op, REDUCE_SCATTER, REDUCE_SCATTER_NORM, REDUCE_SCATTER_NORM_ALL_GATHER,
};
use symmetra::{Algorithm, Codec, Reduction, Transport};

use super::{Bench, Writer};
use crate::narrow::Narrow;
use crate::norm::{Layer, Norm, Place, parts};
use crate::program::{Form, Kind, Placed, ROOM};

/// Elements of longer rows: whole packets, and packets and a part of one.
const HIDDEN: [usize; 8] = [64, 100, 128, 129, 256, 511, 1000, 2000];

impl Writer {
    /// A call on rows.
    pub(super) fn rows(&mut self, bench: Bench, captured: bool) -> Placed {
        let ops = [&ALL_REDUCE_NORM, &ALL_REDUCE_NORM, &REDUCE_SCATTER_NORM, &REDUCE_SCATTER_NORM_ALL_GATHER];
        let op = *self.random.pick(&ops);
        let (norm, rows) = self.norm(op, bench);
        let count = norm.hidden * rows;
        let kind = self.kind_of_rows(op, &norm, captured, count);
        let algorithm = self.algorithm_of_rows(op, &norm, bench, (kind, captured));
        Placed {
            bench: bench.number,
            op: op.name().to_owned(),
            count,
            rows: 1,
            reduction: Reduction::Sum.name().to_owned(),
            algorithm: algorithm.name().to_owned(),
            codec: Codec::None.name().to_owned(),
            root: 0,
            kind,
            in_place: norm.sums_in_output() && norm.x != Some(Place::Input) && self.random.below(3) == 0,
            flip: self.random.below(2) == 0,
            form: Form::Ordinary,
            from: self.start(count),
            to: self.start(norm.width * rows),
            seed: self.random.next(),
            norm: Some(norm),
        }
    }

    /// Whether the scratch of the two-shot in sentinel packets has room for a row and the line of eight packets after
    /// it.
    fn fits(&self, bench: Bench, hidden: usize) -> bool {
        let slot_packets = self.program.settings.scratch[3].div_ceil(16).div_ceil(bench.world as u64);
        let row_packets = (hidden * bench.dtype.bytes()).div_ceil(16) as u64;
        row_packets.next_multiple_of(8) + 8 <= slot_packets
    }

    /// A norm that an operation serves, and the number of rows, which may be cut into equal parts.
    fn norm(&mut self, op: &Op, bench: Bench) -> (Norm, usize) {
        let parts = parts(op, bench.world);
        // A residual and a separate x share a buffer, and have the rows of one part.
        let most = if parts == 1 { ROOM / 2 - 16 } else { ROOM - 16 };
        let random = &mut self.random;
        let narrow = (random.below(2) == 0).then(|| Narrow::any(random));
        let step = narrow.as_ref().map_or(1, Narrow::step);
        let hidden = match random.below(3) {
            0 => 1 + random.below(40),
            _ => {
                let fitting: Vec<usize> =
                    HIDDEN.into_iter().filter(|hidden| hidden.next_multiple_of(step) * parts <= most).collect();
                *random.pick(&fitting)
            }
        };
        let padded = if random.below(4) == 0 { hidden + random.below(20) } else { hidden };
        let width = padded.next_multiple_of(step);
        let most = most / width / parts;
        let few = most.min(6usize.div_ceil(parts));
        let share = if random.below(3) == 0 { random.below(most + 1) } else { random.below(few + 1) };
        let mut start = || random.below(ROOM / 2 + 1 - share * hidden);
        let (residual, apart) = (start(), ROOM / 2 + start());
        let residual = (random.below(4) > 0).then_some(residual);
        let x = match random.below(5) {
            0 | 1 => residual.map(Place::Kept),
            2 => Some(Place::Input),
            3 => Some(Place::Kept(apart)),
            _ => None,
        };
        let [weight, bias] = [0; 2].map(|_| random.below(ROOM + 1 - hidden));
        let (wide, gemma) = (random.below(3) == 0, random.below(3) == 0);
        let layer = match random.below(4) {
            0 => Some(Layer { bias: None }),
            1 => Some(Layer { bias: Some(bias) }),
            _ => None,
        };
        let norm = Norm { hidden, width, weight, wide, gemma, layer, residual, x, has_output: false, narrow };
        let fits = self.fits(bench, hidden);
        let has_output = !norm.is_served(op, fits) || self.random.below(3) > 0;
        (Norm { has_output, ..norm }, share * parts)
    }

    fn kind_of_rows(&mut self, op: &Op, norm: &Norm, captured: bool, count: usize) -> Kind {
        // The sum is that of an all-reduce, which carries any memory, or of a reduce-scatter.
        let of_sum = if *op == ALL_REDUCE_NORM { &ALL_REDUCE } else { &REDUCE_SCATTER };
        let kind = self.kind(of_sum, captured, count);
        if norm.width == norm.hidden {
            return kind;
        }
        // Each row of a padded output is a separate collective, whose operands are parts of memory.
        let direct = *op != ALL_REDUCE_NORM && self.program.settings.transport() == Transport::Direct;
        if direct || kind == Kind::Adopted { Kind::Symmetric } else { kind }
    }

    fn algorithm_of_rows(&mut self, op: &Op, norm: &Norm, bench: Bench, (kind, captured): (Kind, bool)) -> Algorithm {
        let reached = self.reached(kind, captured);
        if *op == ALL_REDUCE_NORM {
            return match norm.is_unplaced() {
                true => Algorithm::Auto,
                false => self.algorithm(bench, Reduction::Sum, norm.sums_in_output() && reached),
            };
        }
        let mut served = vec![Algorithm::Auto; 2];
        if self.fits(bench, norm.hidden) {
            served.push(Algorithm::TwoShotSentinel);
        }
        let codes_reached = |narrow: &Narrow| narrow.symmetric || self.registers(captured);
        let gathers = *op == REDUCE_SCATTER_NORM_ALL_GATHER && (norm.has_output || norm.narrow.is_some());
        if gathers && reached && norm.narrow.as_ref().is_none_or(codes_reached) {
            served.extend([Algorithm::TwoShotZeroCopy; 2]);
        }
        *self.random.pick(&served)
    }

    /// A call on rows that needs nothing from other ranks before: neither adopted operands nor symmetric codes.
    pub(super) fn common_rows(&mut self, bench: Bench) -> Placed {
        let alone = |call: &Placed| {
            let narrow = call.norm.as_ref().and_then(|norm| norm.narrow.as_ref());
            call.count > 0 && call.kind != Kind::Adopted && narrow.is_none_or(|narrow| !narrow.symmetric)
        };
        std::iter::repeat_with(|| self.rows(bench, false)).find(alone).unwrap()
    }
}

/// Changes one thing of a call on rows that all ranks must have in common.
pub(super) fn differ(call: &mut Placed, choice: usize, world: usize) {
    let (op, algorithm) = (call.call().op, call.call().options.algorithm);
    let Some(norm) = &mut call.norm else { return };
    let part = norm.hidden * parts(op, world);
    match (choice, &mut norm.narrow) {
        (0, _) if call.count > part => call.count -= part,
        (1, Some(narrow)) => {
            let [one, other] = ["per-token-e4m3", "per-token-int8"];
            (if narrow.format == one { other } else { one }).clone_into(&mut narrow.format);
        }
        (1 | 2, None) if norm.hidden > 1 => (norm.hidden, norm.width) = (1, 1),
        (2, None) if algorithm == Algorithm::Auto && norm.has_output && *op != ALL_REDUCE_NORM => {
            let other = if *op == REDUCE_SCATTER_NORM { &REDUCE_SCATTER_NORM_ALL_GATHER } else { &REDUCE_SCATTER_NORM };
            other.name().clone_into(&mut call.op);
        }
        (3, _) => {
            norm.layer = match norm.layer {
                Some(Layer { bias: Some(_) }) => Some(Layer { bias: None }),
                Some(_) => None,
                None => Some(Layer { bias: None }),
            };
        }
        _ => norm.gemma ^= true,
    }
}
