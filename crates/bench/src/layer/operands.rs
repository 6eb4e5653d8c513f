//! The activations of a rank, and their initial contents.

use std::ops::Range;

use symmetra::half::bf16;
use symmetra::{Communicator, DeviceBuffer, Ref, Stream, SymmetricBuffer, SymmetricSlice};

use super::LayerRace;
use super::weights::spread;
use crate::collective::data::CollectiveData;
use crate::pattern::Pattern;
use harness::comparison::work::BufferPart;

/// How many states of the rows are kept. A state is the rows before or after a half of a layer. At the end the three
/// states of the last layer are kept, so that each step of this layer can be compared with its definition.
pub(super) const STATES: usize = 3;

/// The activations of a rank. A row is at its place among all rows.
pub(super) struct LayerOperands {
    pub(super) tokens: usize,
    pub(super) hidden: usize,
    /// The rows of this rank's share, where ranks have equal shares.
    pub(super) own: Option<Range<usize>>,
    /// The stream of activations to which halves add.
    x: [DeviceBuffer<bf16>; STATES],
    normed: [SymmetricBuffer<bf16>; STATES],
    /// The first product of each half.
    first: [DeviceBuffer<bf16>; 2],
    /// The second product of this rank, before the sum over the ranks.
    partial: SymmetricBuffer<bf16>,
    /// The output of collectives that reduce.
    sum: SymmetricBuffer<bf16>,
}

impl LayerOperands {
    pub(super) fn new(race: &LayerRace, communicator: &Communicator, tokens: usize) -> symmetra::Result<Self> {
        let (hidden, device) = (race.shape.hidden, communicator.device());
        let elems = tokens * hidden;
        let symmetric = || communicator.symmetric(elems);
        let plain = |elems| DeviceBuffer::new(device, elems);
        let firsts = race.shape.halves(race.pace.ranks).map(|half| tokens * half.first.columns);
        let share = tokens / race.pace.ranks;
        let own = communicator.rank() * share..(communicator.rank() + 1) * share;
        Ok(Self {
            tokens,
            hidden,
            own: tokens.is_multiple_of(race.pace.ranks).then_some(own),
            x: [plain(elems)?, plain(elems)?, plain(elems)?],
            normed: [symmetric()?, symmetric()?, symmetric()?],
            first: [plain(firsts[0])?, plain(firsts[1])?],
            partial: symmetric()?,
            sum: symmetric()?,
        })
    }

    fn elems(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.hidden..rows.end * self.hidden
    }

    /// The stream of activations before half `state`, which is that after the half before.
    pub(super) fn x(&self, state: usize, rows: &Range<usize>) -> symmetra::Result<Ref<'_, bf16>> {
        self.x[state % STATES].borrow().slice(self.elems(rows))
    }

    /// Normed rows that only this rank reads.
    pub(super) fn normed_here(&self, state: usize, rows: &Range<usize>) -> symmetra::Result<Ref<'_, bf16>> {
        self.normed[state % STATES].borrow().slice(self.elems(rows))
    }

    pub(super) fn normed(&self, state: usize, rows: &Range<usize>) -> symmetra::Result<SymmetricSlice<'_, bf16>> {
        self.normed[state % STATES].slice(self.elems(rows))
    }

    pub(super) fn normed_part(&self, state: usize, rows: &Range<usize>) -> BufferPart<'_, bf16> {
        BufferPart { buffer: &self.normed[state % STATES], elems: self.elems(rows) }
    }

    pub(super) fn sum(&self, rows: &Range<usize>) -> symmetra::Result<SymmetricSlice<'_, bf16>> {
        self.sum.slice(self.elems(rows))
    }

    pub(super) fn sum_part(&self, rows: &Range<usize>) -> BufferPart<'_, bf16> {
        BufferPart { buffer: &self.sum, elems: self.elems(rows) }
    }

    pub(super) fn partial(&self) -> symmetra::Result<SymmetricSlice<'_, bf16>> {
        self.partial.slice(..)
    }

    pub(super) fn partial_here(&self) -> Ref<'_, bf16> {
        self.partial.borrow()
    }

    pub(super) fn partial_part(&self) -> BufferPart<'_, bf16> {
        BufferPart { buffer: &self.partial, elems: 0..self.partial.len() }
    }

    /// The first elements of a half's first GEMM result.
    pub(super) fn first(&self, half: usize, elems: Range<usize>) -> symmetra::Result<Ref<'_, bf16>> {
        self.first[half % 2].borrow().slice(elems)
    }

    /// Writes the inputs of the first layer: the normed rows numbered `normed` into the rows `at` of their buffer, and
    /// a value that no result has elsewhere. Blocks until all is written.
    pub(super) fn write(
        &self,
        inputs: &LayerInputs,
        [normed, at]: [&Range<usize>; 2],
        stream: &Stream,
    ) -> symmetra::Result<()> {
        let poison = |elems| CollectiveData::<bf16>::poison(elems);
        for state in 0..STATES {
            self.x[state].write(&poison(self.x[state].len()), stream)?;
            self.normed[state].write(&poison(self.normed[state].len()), stream)?;
        }
        for plain in &self.first {
            plain.write(&poison(plain.len()), stream)?;
        }
        for symmetric in [&self.partial, &self.sum] {
            symmetric.write(&poison(symmetric.len()), stream)?;
        }
        let all = self.elems(&(0..self.tokens));
        self.x[0].write(&inputs.x.elems(all.clone()), stream)?;
        let mut rows = poison(all.len());
        rows[self.elems(at)].copy_from_slice(&inputs.normed.elems(self.elems(normed)));
        self.normed[0].write(&rows, stream)
    }
}

/// The inputs of the first layer, equal on all ranks.
pub(super) struct LayerInputs {
    x: Pattern<bf16>,
    normed: Pattern<bf16>,
}

impl LayerInputs {
    pub(super) fn new(seed: u64, elems: usize) -> Self {
        // A variance of 1.
        let of = |what: &str| spread((seed, what, elems), elems, [0.0, 3f32.sqrt()]);
        Self { x: of("x"), normed: of("normed") }
    }
}
