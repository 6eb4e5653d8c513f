//! The candidates of one number of tokens.

use std::ops::Range;

use symmetra::{Algorithm, Communicator, Element, Reduction, SymmetricBuffer};

use super::candidate::{Holds, NormCandidate};
use super::expected::NormInputs;
use super::kernel::{NormKernel, NormOutput};
use super::operands::NormOperands;
use super::{NormRace, NormWay, UNQUANTISED};
use harness::codes::{Codes, RowScales, Values};
use harness::collective::CollectiveCommand;
use harness::comparison::work::{BufferPart, ComparedLibrary, Work};
use harness::form::{self, Form};
use reference::element::Real;

/// One number of tokens.
#[derive(Clone, Copy)]
pub(super) struct NormRound<'s, T: Real> {
    pub(super) race: &'s NormRace,
    pub(super) communicator: &'s Communicator,
    /// A group of only this rank, which norms.
    pub(super) alone: &'s Communicator,
    pub(super) inputs: &'s NormInputs<T>,
    pub(super) operands: &'s NormOperands<T>,
}

impl<'s, T: Real> NormRound<'s, T> {
    /// Our candidates: all of --algorithm, the first one without quantisation where there is one, and the operation
    /// without its norm.
    pub(super) fn ours(self) -> symmetra::Result<Vec<NormCandidate<'s, T>>> {
        let written = if self.race.quantise.is_some() { NormOutput::Codes } else { NormOutput::Rows };
        let ways = self.race.ways.iter().map(|way| (way.name(), *way, written));
        let first = ways.clone().next().filter(|_| written == NormOutput::Codes);
        let first = first.map(|(_, way, _)| (UNQUANTISED, way, NormOutput::Rows));
        let candidate = |(name, way, written)| match way {
            NormWay::Call(named) => self.call(name, named, written),
            NormWay::Apart => self.apart((name, self.communicator), Some(self.chosen()), written),
        };
        ways.chain(first).map(candidate).chain([self.sum()]).collect()
    }

    /// A peer: its collectives, and our kernel that norms.
    pub(super) fn peer(
        self,
        name: &'static str,
        library: &'s impl ComparedLibrary,
    ) -> symmetra::Result<NormCandidate<'s, T>> {
        self.apart(
            (name, library),
            None,
            if self.race.quantise.is_some() { NormOutput::Codes } else { NormOutput::Rows },
        )
    }

    /// One call.
    fn call(self, name: &'static str, named: Algorithm, written: NormOutput) -> symmetra::Result<NormCandidate<'s, T>> {
        let NormOperands { input, places, .. } = self.operands;
        let keeps_apart = written == NormOutput::Codes && self.race.sums_first(named);
        let norm = NormKernel {
            communicator: self.communicator,
            op: self.race.op,
            norm: self.race.norm.norm(0.0),
            algorithm: named,
            input: input.slice(..)?,
            rows: places.normed.clone(),
            written,
            keeps_apart,
            operands: self.operands,
        };
        let holds = if keeps_apart { Holds::WithResidual } else { Holds::Nothing };
        Ok(self.candidate((name, vec![norm.work()]), Some(self.runs(named, written)?), holds, Some(written)))
    }

    /// Single collectives of a library, and a kernel that norms between them.
    fn apart(
        self,
        (name, library): (&'static str, &'s impl ComparedLibrary),
        sums_by: Option<Algorithm>,
        written: NormOutput,
    ) -> symmetra::Result<NormCandidate<'s, T>> {
        let NormOperands { sum, output, codes, places, .. } = self.operands;
        let norm = NormKernel {
            communicator: self.alone,
            op: Form::AllReduce,
            norm: self.race.norm.norm(0.0),
            algorithm: Algorithm::Auto,
            input: sum.slice(self.operands.elems(&places.kept))?,
            rows: places.kept.clone(),
            written,
            keeps_apart: false,
            operands: self.operands,
        };
        let mut steps: Vec<Work<'s>> = vec![self.reduce(library)?, norm.work()];
        match (written, codes) {
            _ if self.race.op != Form::ReduceScatterAllGather => {}
            (NormOutput::Codes, Some(codes)) => steps.extend(self.gather_codes(library, codes)?),
            _ => steps.push(self.gather(library, output)?),
        }
        Ok(self.candidate((name, steps), sums_by, Holds::Sum, Some(written)))
    }

    /// The operation without its norm.
    fn sum(self) -> symmetra::Result<NormCandidate<'s, T>> {
        let mut steps = vec![self.reduce(self.communicator)?];
        if self.race.op == Form::ReduceScatterAllGather {
            steps.push(self.gather(self.communicator, &self.operands.sum)?);
        }
        Ok(self.candidate((self.race.op.name(), steps), Some(self.chosen()), Holds::Sum, None))
    }

    /// A candidate whose sum goes by an algorithm; `Auto` is a reduce-scatter.
    fn candidate(
        self,
        (name, steps): (&'static str, Vec<Work<'s>>),
        sums_by: Option<Algorithm>,
        holds: Holds,
        written: Option<NormOutput>,
    ) -> NormCandidate<'s, T> {
        let Self { race, communicator, operands, inputs, .. } = self;
        let (algorithm, sums_by) = (sums_by.map(form::name), sums_by.map(|algorithm| race.op.sums_as(algorithm)));
        NormCandidate { name, steps, sums_by, algorithm, holds, written, race, communicator, operands, inputs }
    }

    /// A sum into the buffer of the sum.
    fn reduce(self, library: &'s impl ComparedLibrary) -> symmetra::Result<Work<'s>> {
        let NormOperands { input, sum, .. } = self.operands;
        let (collective, output) = match self.race.op {
            Form::AllReduce => (CollectiveCommand::AllReduce, self.operands.all(sum)),
            _ => (CollectiveCommand::ReduceScatter, self.operands.kept(sum)),
        };
        library.collective(collective, [self.operands.all(input), output])
    }

    /// In place: every rank has its own part of the buffer's elements, which are as many for every row.
    fn gather<V: Element>(
        self,
        library: &'s impl ComparedLibrary,
        buffer: &'s SymmetricBuffer<V>,
    ) -> symmetra::Result<Work<'s>> {
        let places = &self.operands.places;
        let own = form::elems_of(&places.kept, buffer.len() / places.tokens);
        let part = |elems: Range<usize>| BufferPart { buffer, elems };
        library.collective(CollectiveCommand::AllGather, [part(own), part(0..buffer.len())])
    }

    /// Values, and scales if the format has any.
    fn gather_codes(
        self,
        library: &'s impl ComparedLibrary,
        codes: &'s Codes<Communicator>,
    ) -> symmetra::Result<Vec<Work<'s>>> {
        let values = match &codes.values {
            Values::E4M3(buffer) => self.gather(library, buffer),
            Values::E5M2(buffer) => self.gather(library, buffer),
            Values::I8(buffer) => self.gather(library, buffer),
            Values::Pairs(buffer) => self.gather(library, buffer),
        }?;
        let scales = match &codes.scales {
            RowScales::Single(buffer) => Some(self.gather(library, buffer)?),
            RowScales::Bytes(buffer) if !buffer.is_empty() => Some(self.gather(library, buffer)?),
            RowScales::Bytes(_) => None,
        };
        Ok([values].into_iter().chain(scales).collect())
    }

    /// The algorithm of a sum by a collective of its own: the library's choice of an all-reduce, or a reduce-scatter.
    fn chosen(self) -> Algorithm {
        match self.race.op {
            Form::AllReduce => {
                let bytes = self.race.bytes(self.operands.places.tokens);
                self.communicator.chosen(self.race.dtype, Reduction::Sum, true, bytes)
            }
            _ => Algorithm::Auto,
        }
    }

    /// The algorithm of a sum within a call that norms.
    fn runs(self, named: Algorithm, written: NormOutput) -> symmetra::Result<Algorithm> {
        let NormRace { op, dtype, hidden, .. } = *self.race;
        let bytes = self.race.bytes(self.operands.places.tokens);
        // Quantised values are written with the residual in place and without an output, so there is no memory for
        // their sum.
        let placed = written == NormOutput::Rows;
        let quantise = self.race.quantise.filter(|_| !placed);
        op.algorithm(self.communicator, named, (dtype, hidden, bytes), (true, placed), quantise)
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/norm_round.rs"]
mod tests;
