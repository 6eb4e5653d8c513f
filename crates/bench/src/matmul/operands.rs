//! The operands of a rank, and their initial contents.

use symmetra::matmul::{Product, Tensor};
use symmetra::{Communicator, DeviceBuffer, Element, Stream, SymmetricBuffer, SymmetricSlice};

use super::MatmulRace;
use super::layers::GemmLayer;
use super::numbers::{FactorScales, GemmElement};
use super::oracle::GemmOracle;
use crate::collective::data::CollectiveData;
use crate::pattern::Pattern;
use harness::comparison::work::BufferPart;
use reference::element::Real;

/// The operands of a rank. A buffer that the collective does not need has one element.
pub(super) struct GemmOperands<F: GemmElement> {
    pub(super) product: Product,
    pub(super) layer: GemmLayer,
    /// How many of the shared rows each rank has.
    pub(super) shares: Vec<usize>,
    /// Rows of the left factor that this rank has.
    pub(super) left_rows: std::ops::Range<usize>,
    /// Rows of the result that this rank has at the end.
    pub(super) result_rows: std::ops::Range<usize>,
    left: SymmetricBuffer<F>,
    right: DeviceBuffer<F>,
    /// The left factor of all ranks, for an all-gather.
    gathered: SymmetricBuffer<F>,
    /// This rank's GEMM result, for sums.
    partial: SymmetricBuffer<F::Result>,
    result: SymmetricBuffer<F::Result>,
    scales: Option<ScaledFactors>,
}

/// The scales of both factors.
struct ScaledFactors {
    /// Whether each row of the left factor has a scale.
    by_row: bool,
    left: SymmetricBuffer<f32>,
    /// How many of the scales this rank has.
    own: usize,
    right: DeviceBuffer<f32>,
    /// The scales of the left factor of all ranks.
    gathered: SymmetricBuffer<f32>,
}

impl<F: GemmElement> GemmOperands<F> {
    pub(super) fn new(
        race: &MatmulRace,
        communicator: &Communicator,
        layer: &GemmLayer,
        oracle: &GemmOracle,
    ) -> symmetra::Result<Self> {
        let (rank, ranks, device) = (communicator.rank(), race.pace.ranks, communicator.device());
        let (shares, all) = (layer.shares(ranks), 0..layer.tokens);
        let before: usize = shares[..rank].iter().sum();
        let own = before..before + shares[rank];
        let (left_rows, result_rows) =
            if race.fusion.sums() { (all.clone(), if race.shares_result() { own } else { all }) } else { (own, all) };
        let elems = race.elems(layer);
        let by_row = race.scales == FactorScales::Rows;
        let scales = match (oracle.left_scales(), oracle.right_scales()) {
            ([], _) => None,
            (left, right) => Some(ScaledFactors {
                left: communicator.symmetric(left.len())?,
                own: if by_row { left_rows.len() } else { 1 },
                by_row,
                right: DeviceBuffer::new(device, right.len())?,
                gathered: communicator.symmetric(left.len())?,
            }),
        };
        Ok(Self {
            product: race.product(layer),
            layer: layer.clone(),
            shares,
            left_rows,
            result_rows,
            left: communicator.symmetric(elems.left)?,
            right: DeviceBuffer::new(device, layer.inner * layer.columns)?,
            gathered: communicator.symmetric(elems.gathered)?,
            partial: communicator.symmetric(elems.partial)?,
            result: communicator.symmetric(elems.result)?,
            scales,
        })
    }

    /// Whether every rank has equally many of the shared rows.
    pub(super) fn is_equal(&self) -> bool {
        self.shares.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn own_left(&self) -> symmetra::Result<SymmetricSlice<'_, F>> {
        self.left.slice(..self.left_rows.len() * self.layer.inner)
    }

    fn own_result(&self) -> symmetra::Result<SymmetricSlice<'_, F::Result>> {
        self.result.slice(..self.result_rows.len() * self.layer.columns)
    }

    /// This rank's left factor or part of it.
    pub(super) fn left(&self) -> symmetra::Result<Tensor<'_>> {
        let left = Tensor::of(self.own_left()?);
        Ok(match &self.scales {
            Some(scales) => left.scaled(scales.left.slice(..scales.own)?),
            None => left,
        })
    }

    /// The left factor of a GEMM alone.
    pub(super) fn whole_left(&self, sums: bool) -> symmetra::Result<Tensor<'_>> {
        if sums {
            return self.left();
        }
        let left = Tensor::of(&self.gathered);
        Ok(match &self.scales {
            Some(scales) => left.scaled(&scales.gathered),
            None => left,
        })
    }

    pub(super) fn right(&self) -> Tensor<'_> {
        let right = Tensor::of(&self.right);
        match &self.scales {
            Some(scales) => right.scaled(&scales.right),
            None => right,
        }
    }

    pub(super) fn result(&self) -> symmetra::Result<Tensor<'_>> {
        Ok(Tensor::of(self.own_result()?))
    }

    /// The result of a GEMM alone.
    pub(super) fn whole_result(&self, sums: bool) -> symmetra::Result<Tensor<'_>> {
        if sums { Ok(Tensor::of(&self.partial)) } else { self.result() }
    }

    /// The operands of an all-gather, where ranks have equally many rows.
    pub(super) fn gather(&self) -> [BufferPart<'_, F>; 2] {
        [part(&self.left, self.left_rows.len() * self.layer.inner), part(&self.gathered, self.gathered.len())]
    }

    /// The scales that an all-gather moves, if each row has one.
    pub(super) fn gather_scales(&self) -> Option<[BufferPart<'_, f32>; 2]> {
        let scales = self.scales.as_ref().filter(|scales| scales.by_row)?;
        Some([part(&scales.left, scales.own), part(&scales.gathered, scales.gathered.len())])
    }

    /// The operands of a sum over the ranks, where ranks have equally many rows.
    pub(super) fn reduce(&self) -> [BufferPart<'_, F::Result>; 2] {
        [part(&self.partial, self.partial.len()), part(&self.result, self.result_rows.len() * self.layer.columns)]
    }
}

/// The first elements of a buffer.
fn part<T: Element>(buffer: &SymmetricBuffer<T>, elems: usize) -> BufferPart<'_, T> {
    BufferPart { buffer, elems: 0..elems }
}

/// The inputs and the expected results of a rank.
pub(super) struct GemmInputs<F: GemmElement> {
    left: Vec<F>,
    right: Vec<F>,
    /// The left factor after an all-gather.
    pub(super) gathered: Vec<F>,
    /// This rank's GEMM result, for sums.
    pub(super) partial: Vec<F::Result>,
    pub(super) result: Vec<F::Result>,
    left_scales: Vec<f32>,
    all_scales: Vec<f32>,
    right_scales: Vec<f32>,
    /// Factors whose bits are random, as those of a model are: multiplying small integers takes less power.
    noise: Pattern<F>,
}

impl<F: GemmElement> GemmInputs<F> {
    pub(super) fn new(race: &MatmulRace, operands: &GemmOperands<F>, oracle: &GemmOracle, rank: usize) -> Self {
        let GemmOperands { layer, left_rows, result_rows, .. } = operands;
        let sums = race.fusion.sums();
        let all = oracle.left_scales();
        let own = if race.scales == FactorScales::Rows { &all[left_rows.clone()] } else { all };
        let most = layer.inner * layer.columns.max(left_rows.len());
        Self {
            left: oracle.left(rank, left_rows.clone()),
            right: oracle.right(rank),
            gathered: if sums { Vec::new() } else { oracle.left(rank, 0..layer.tokens) },
            partial: if sums { oracle.product(rank) } else { Vec::new() },
            result: oracle.result(rank, result_rows.clone()),
            left_scales: own.to_vec(),
            all_scales: all.to_vec(),
            right_scales: oracle.right_scales().to_vec(),
            noise: Pattern::new((race.pace.seed, rank), most, |random| F::of_single(random.f32() - 0.5)),
        }
    }
}

/// The contents of a buffer before a candidate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// A value that no result has.
    Poison,
    /// The result of the other operation, which the candidate needs.
    Right,
}

impl<F: GemmElement> GemmOperands<F> {
    /// Writes factors whose results are known, and their scales. Blocks until all are written.
    pub(super) fn write_factors(&self, inputs: &GemmInputs<F>, stream: &Stream) -> symmetra::Result<()> {
        self.left.write(&padded(&inputs.left, self.left.len()), stream)?;
        self.right.write(&inputs.right, stream)?;
        let Some(scales) = &self.scales else { return Ok(()) };
        scales.left.write(&padded(&inputs.left_scales, scales.left.len()), stream)?;
        scales.right.write(&inputs.right_scales, stream)
    }

    /// Writes factors whose bits are random. Blocks until both are written.
    pub(super) fn write_noise(&self, inputs: &GemmInputs<F>, stream: &Stream) -> symmetra::Result<()> {
        self.left.write(&inputs.noise.elems(0..self.left.len()), stream)?;
        self.right.write(&inputs.noise.elems(0..self.right.len()), stream)
    }

    /// Writes the outputs of a candidate, and `before` into the buffers that a collective reads or writes. Blocks until
    /// all is written.
    pub(super) fn write_rest(&self, inputs: &GemmInputs<F>, before: Before, stream: &Stream) -> symmetra::Result<()> {
        fill(&self.gathered, (before == Before::Right).then_some(&inputs.gathered), stream)?;
        fill(&self.partial, (before == Before::Right).then_some(&inputs.partial), stream)?;
        fill(&self.result, None, stream)?;
        let Some(scales) = &self.scales else { return Ok(()) };
        // A single scale for the whole factor is already there, because no rank gathers it.
        let gathers = self.gather_scales().is_some() && before == Before::Poison;
        fill(&scales.gathered, (!gathers).then_some(&inputs.all_scales), stream)
    }

    pub(super) fn read_gathered(&self, stream: &Stream) -> symmetra::Result<Vec<F>> {
        self.gathered.read(stream)
    }

    pub(super) fn read_partial(&self, stream: &Stream) -> symmetra::Result<Vec<F::Result>> {
        self.partial.read(stream)
    }

    pub(super) fn read_result(&self, stream: &Stream) -> symmetra::Result<Vec<F::Result>> {
        let mut result = self.result.read(stream)?;
        result.truncate(self.result_rows.len() * self.layer.columns);
        Ok(result)
    }
}

/// Writes these values, if the buffer has as many, else values that no result has.
fn fill<T: Real>(buffer: &SymmetricBuffer<T>, values: Option<&Vec<T>>, stream: &Stream) -> symmetra::Result<()> {
    match values.filter(|values| values.len() == buffer.len()) {
        Some(values) => buffer.write(values, stream),
        None => buffer.write(&CollectiveData::poison(buffer.len()), stream),
    }
}

/// The values, followed by zeros.
fn padded<T: Real>(values: &[T], elems: usize) -> Vec<T> {
    let mut padded = values.to_vec();
    padded.resize(elems, T::of_single(0.0));
    padded
}
