//! The operands of a rank, and the places of rows.

use std::ops::Range;

use symmetra::{Communicator, DeviceBuffer, Stream, SymmetricBuffer};

use super::NormRace;
use super::expected::NormInputs;
use harness::codes::Codes;
use harness::comparison::work::BufferPart;
use harness::form::elems_of;
use reference::element::Real;
use reference::found::{UNWRITTEN, known, unwritten};

/// The rows of this rank, by their numbers.
#[derive(Clone, Debug)]
pub(super) struct NormPlaces {
    /// Rows of all ranks.
    pub(super) tokens: usize,
    /// The rows that this rank reduces and keeps.
    pub(super) kept: Range<usize>,
    /// The rows that this rank has normed at the end.
    pub(super) normed: Range<usize>,
    /// Elements of a row.
    pub(super) hidden: usize,
    /// Elements of a quantised row.
    pub(super) width: usize,
}

/// The operands of a rank. Buffers of rows have room for all rows, and a row is at its place among all rows.
pub(super) struct NormOperands<T: Real> {
    pub(super) places: NormPlaces,
    pub(super) input: SymmetricBuffer<T>,
    /// The output of collectives that reduce. Also the sum with the residual, where a call may not overwrite the
    /// residual.
    pub(super) sum: SymmetricBuffer<T>,
    pub(super) output: SymmetricBuffer<T>,
    /// The residual of the rows that this rank keeps; summed in place.
    pub(super) residual: DeviceBuffer<T>,
    pub(super) weight: DeviceBuffer<T>,
    pub(super) bias: Option<DeviceBuffer<T>>,
    /// The quantised rows that this rank has normed at the end.
    pub(super) codes: Option<Codes<Communicator>>,
}

impl<T: Real> NormOperands<T> {
    pub(super) fn new(
        race: &NormRace,
        communicator: &Communicator,
        tokens: usize,
        inputs: &NormInputs<T>,
        stream: &Stream,
    ) -> symmetra::Result<Self> {
        let (of, hidden, width) = ([communicator.rank(), communicator.world_size()], race.hidden, race.width());
        let (kept, normed) = (race.op.kept(tokens, of), race.op.normed(tokens, of));
        let (elems, shape) = (tokens * hidden, [normed.len(), width, 0]);
        let codes = |form| Codes::new(communicator, form, shape, known(form), stream);
        Ok(Self {
            input: communicator.symmetric(elems)?,
            sum: communicator.symmetric(elems)?,
            output: communicator.symmetric(elems)?,
            residual: DeviceBuffer::new(communicator.device(), kept.len() * hidden)?,
            weight: DeviceBuffer::from_slice(inputs.weight(), stream)?,
            bias: inputs.bias().map(|bias| DeviceBuffer::from_slice(bias, stream)).transpose()?,
            codes: race.quantise.map(codes).transpose()?,
            places: NormPlaces { tokens, kept, normed, hidden, width },
        })
    }

    /// The elements of these rows.
    pub(super) fn elems(&self, rows: &Range<usize>) -> Range<usize> {
        elems_of(rows, self.places.hidden)
    }

    /// All rows of a buffer.
    pub(super) fn all<'s>(&self, buffer: &'s SymmetricBuffer<T>) -> BufferPart<'s, T> {
        BufferPart { buffer, elems: 0..buffer.len() }
    }

    /// The rows of a buffer that this rank reduces and keeps.
    pub(super) fn kept<'s>(&self, buffer: &'s SymmetricBuffer<T>) -> BufferPart<'s, T> {
        BufferPart { buffer, elems: self.elems(&self.places.kept) }
    }

    /// Writes all operands. Blocks until they are written.
    pub(super) fn write(&self, inputs: &NormInputs<T>, stream: &Stream) -> symmetra::Result<()> {
        let unwritten = unwritten(self.input.len());
        self.input.write(inputs.own(), stream)?;
        self.residual.write(&inputs.residual()[self.elems(&self.places.kept)], stream)?;
        self.sum.write(&unwritten, stream)?;
        self.output.write(&unwritten, stream)?;
        self.codes.iter().try_for_each(|codes| codes.fill(UNWRITTEN, stream))
    }
}
