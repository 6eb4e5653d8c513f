//! One rank's part: every number of tokens verified, then timed.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{
    Algorithm, Communicator, DeviceBuffer, DeviceKind, Dtype, Event, Graph, Queue, Reduction, RowNorm, Stream,
    SymmetricBuffer,
};

use super::codes::Codes;
use super::quantised::{Bytes, Format, quantised};
use super::reference::{Rows, normed, padded, with_residual};
use super::{Form, Norms};
use crate::all_reduce::{Buffer, Data};
use crate::failure::Failure;
use crate::ranks::{Say, Task};

/// What a rank found for one number of tokens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) algorithm: String,
    /// Time of one operation in each batch.
    pub(super) batches_us: Vec<f64>,
    pub(super) wrong: u64,
}

/// Most batches.
const BATCHES: u32 = 10;

impl Task for Norms {
    const NAME: &'static str = "norms";
    type Found = Sample;

    /// Room for four buffers of the most tokens, each with its signals.
    fn heap_bytes(&self) -> u64 {
        let tokens = self.tokens.iter().max().copied().unwrap_or(0);
        let bytes = tokens * self.width() * self.dtype.bytes();
        if self.plain { 1 << 20 } else { 4 * (bytes as u64 + (64 << 10)) }
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Sample>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let bench = Bench { norms: self, communicator, stream: &stream, size, tokens };
            say(match self.dtype {
                Dtype::F16 => bench.of_type::<f16>(),
                Dtype::BF16 => bench.of_type::<bf16>(),
                _ => bench.of_type::<f32>(),
            }?)?;
        }
        Ok(())
    }
}

/// One number of tokens.
struct Bench<'a> {
    norms: &'a Norms,
    communicator: &'a Communicator,
    stream: &'a Stream,
    size: usize,
    tokens: usize,
}

/// The operands of a rank.
struct Operands<T: symmetra::Element, B> {
    input: B,
    residual: B,
    /// In place these are `input` and `residual`.
    apart: Option<[B; 2]>,
    weight: DeviceBuffer<T>,
    codes: Option<Codes>,
}

/// Bits of no result, so that what is not written is found.
const UNWRITTEN: u8 = 0xa5;
/// The static scale, at which some of the largest values saturate, and the global scale.
const STATIC_SCALE: f32 = 0.011;
const GLOBAL_SCALE: f32 = 341.3;

impl<T: Rows, B: Buffer<T>> Operands<T, B> {
    /// The buffer that holds the output. A buffer is as long as all rows, and the rows of a rank's share lie where they do
    /// among all rows.
    fn output(&self) -> &B {
        self.apart.as_ref().map_or(&self.input, |[output, _]| output)
    }

    /// The buffer that holds x.
    fn kept(&self) -> &B {
        self.apart.as_ref().map_or(&self.residual, |[_, kept]| kept)
    }
}

impl Bench<'_> {
    fn of_type<T: Rows>(&self) -> Result<Sample, Failure> {
        match self.norms.plain {
            true => self.measure::<T, DeviceBuffer<T>>(),
            false => self.measure::<T, SymmetricBuffer<T>>(),
        }
    }

    fn measure<T: Rows, B: Buffer<T>>(&self) -> Result<Sample, Failure> {
        let Self { norms, communicator, stream, tokens, .. } = *self;
        let (elems, wide) = (self.elems(), tokens * norms.width());
        let new = |elems| B::new(communicator, elems);
        let weights = Data { seed: norms.seed ^ 2, elems: norms.hidden }.of::<T>(0);
        let operands = Operands {
            input: new(elems)?,
            residual: new(elems)?,
            apart: if norms.in_place { None } else { Some([new(wide)?, new(elems)?]) },
            weight: DeviceBuffer::from_slice(&weights, stream)?,
            codes: norms.quantise.map(|form| self.codes(form)).transpose()?,
        };
        let graphs = norms.graph.then(|| self.capture(&operands)).transpose()?;
        let rows = Data { seed: norms.seed, elems };
        let residual = Data { seed: norms.seed ^ 1, elems }.of::<T>(0);
        operands.input.write(&rows.of::<T>(communicator.rank()), stream)?;
        operands.residual.write(&residual, stream)?;
        if let Some(apart) = &operands.apart {
            let unwritten = |elems| vec![bytemuck::pod_read_unaligned(&[UNWRITTEN; 4][..size_of::<T>()]); elems];
            apart[0].write(&unwritten(wide), stream)?;
            apart[1].write(&unwritten(elems), stream)?;
        }
        operands.codes.iter().try_for_each(|codes| codes.fill(UNWRITTEN, stream))?;
        self.once(&operands, graphs.as_ref())?;
        communicator.synchronize(stream)?;
        let sum: Vec<T> = rows.reduced(Reduction::Sum, communicator.world_size(), self.sums_as(), 0).collect();
        let x = if norms.residual { with_residual(&sum, &residual) } else { sum };
        let unlike = |found: Vec<T>, right: &[T], range: Range<usize>| {
            let pairs = found[range.clone()].iter().zip(&right[range]);
            pairs.filter(|(found, right)| !right.matches(**found)).count() as u64
        };
        let (width, shares) = (norms.width(), (self.normed(), self.share()));
        let y = padded(&normed(&x, &weights, norms.norm()), norms.hidden, width);
        let right = &y[elems_of(&shares.0, width)];
        let wrong = unlike(operands.output().read(stream)?, &y, elems_of(&shares.0, width))
            + unlike(operands.kept().read(stream)?, &x, elems_of(&shares.1, norms.hidden))
            + operands.codes.as_ref().map_or(Ok(0), |codes| self.wrong_codes(codes, right))?;
        let batches_us = self.time(&operands, graphs.as_ref())?;
        Ok(Sample { size: self.size, algorithm: self.name(), batches_us, wrong })
    }

    fn elems(&self) -> usize {
        self.tokens * self.norms.hidden
    }

    fn codes(&self, form: Format) -> symmetra::Result<Codes> {
        let shape = [self.normed().len(), self.norms.width(), 0];
        Codes::new(self.communicator.device(), form, shape, known(form), self.stream)
    }

    /// Bytes of values and scales that are not those of the normed rows.
    fn wrong_codes<T: Rows>(&self, codes: &Codes, y: &[T]) -> symmetra::Result<u64> {
        let Some(form) = self.norms.quantise else { return Ok(0) };
        let y: Vec<f32> = y.iter().map(|y| y.single()).collect();
        // No row of random values has an infinite factor.
        let right = quantised(&y, self.norms.width(), form, known(form), UNWRITTEN, |_| false);
        let Bytes { values, scales } = codes.read(self.stream)?;
        let unlike = |found: &[u8], right: &[u8]| {
            let wrong = found.iter().zip(right).filter(|(found, right)| found != right).count();
            (wrong + found.len().abs_diff(right.len())) as u64
        };
        Ok(unlike(&values, &right.values) + unlike(&scales, &right.scales))
    }

    fn enqueue<'b, T: Rows, B: Buffer<T>>(
        &self,
        operands: &'b Operands<T, B>,
        queue: impl Queue<'b>,
    ) -> symmetra::Result<()> {
        let rows = RowNorm::new(operands.input.part(0..self.elems())?, &operands.weight, self.norms.norm());
        let own = |buffer: &'b B| buffer.part(elems_of(&self.share(), self.norms.hidden));
        let wide = operands.output().part(elems_of(&self.normed(), self.norms.width()))?;
        let rows = rows.output(wide).padded_to(self.norms.width()).residual_out(own(operands.kept())?);
        let rows = if let Some(codes) = &operands.codes { codes.asked(rows)? } else { rows };
        let rows = if self.norms.residual { rows.residual(own(&operands.residual)?) } else { rows };
        let rows = rows.algorithm(self.norms.algorithm);
        match self.norms.op {
            Form::AllReduce => self.communicator.all_reduce_norm(rows, queue),
            Form::ReduceScatter => self.communicator.reduce_scatter_norm(rows, queue),
            Form::ReduceScatterAllGather => self.communicator.reduce_scatter_norm_all_gather(rows, queue),
        }
    }

    /// Numbers of the rows that this rank reduces and keeps.
    fn share(&self) -> Range<usize> {
        let (rank, share) = (self.communicator.rank(), self.tokens / self.communicator.world_size());
        match self.norms.op {
            Form::AllReduce => 0..self.tokens,
            _ => rank * share..(rank + 1) * share,
        }
    }

    /// Numbers of the rows that this rank has normed.
    fn normed(&self) -> Range<usize> {
        if self.norms.op == Form::ReduceScatter { self.share() } else { 0..self.tokens }
    }

    /// A graph of one operation, and one of a batch.
    fn capture<'b, T: Rows, B: Buffer<T>>(&self, operands: &'b Operands<T, B>) -> Result<[Graph<'b>; 2], Failure>
    where
        Self: 'b,
    {
        let capture = |ops: u32| {
            let graph = self.stream.capture(|capture| (0..ops).try_for_each(|_| self.enqueue(operands, capture)))?;
            graph.register()?;
            Ok::<_, Failure>(graph)
        };
        Ok([capture(1)?, capture(self.ops())?])
    }

    fn once<T: Rows, B: Buffer<T>>(
        &self,
        operands: &Operands<T, B>,
        graphs: Option<&[Graph<'_>; 2]>,
    ) -> symmetra::Result<()> {
        graphs.map_or_else(|| self.enqueue(operands, self.stream), |[one, _]| one.launch(self.stream))
    }

    fn batch<T: Rows, B: Buffer<T>>(
        &self,
        operands: &Operands<T, B>,
        graphs: Option<&[Graph<'_>; 2]>,
    ) -> symmetra::Result<()> {
        let eager = || (0..self.ops()).try_for_each(|_| self.enqueue(operands, self.stream));
        graphs.map_or_else(eager, |[_, batch]| batch.launch(self.stream))
    }

    /// Operations of a batch.
    fn ops(&self) -> u32 {
        self.norms.iterations.div_ceil(self.batches())
    }

    fn batches(&self) -> u32 {
        self.norms.iterations.clamp(1, BATCHES)
    }

    /// Microseconds an operation takes in each batch. A batch starts after an operation that is not timed, in which the
    /// ranks meet.
    fn time<T: Rows, B: Buffer<T>>(
        &self,
        operands: &Operands<T, B>,
        graphs: Option<&[Graph<'_>; 2]>,
    ) -> Result<Vec<f64>, Failure> {
        let (start, end) = (Event::new(self.stream.device())?, Event::new(self.stream.device())?);
        let mut batches_us = Vec::new();
        for _ in 0..self.batches() {
            self.once(operands, graphs)?;
            self.stream.record(&start)?;
            self.batch(operands, graphs)?;
            self.stream.record(&end)?;
            self.communicator.synchronize(self.stream)?;
            batches_us.push(end.elapsed_us(&start)? / f64::from(self.ops()));
        }
        Ok(batches_us)
    }

    /// The algorithm of the sum: the one asked for, or the library's choice. `Auto`: scattered rows go by a reduce-scatter.
    fn runs(&self) -> Algorithm {
        let Norms { algorithm, dtype, hidden, plain, graph, one_process, op, .. } = *self.norms;
        let registers = self.communicator.device().kind() != DeviceKind::Host || one_process;
        let bytes = (self.elems() * dtype.bytes()) as u64;
        let direct = !plain || (graph && registers);
        let ranges = match op {
            Form::AllReduce => self.communicator.explain_norm(dtype, hidden, direct),
            Form::ReduceScatter => self.communicator.explain_scattered_norm(dtype, hidden, direct, false),
            Form::ReduceScatterAllGather => self.communicator.explain_scattered_norm(dtype, hidden, direct, true),
        };
        let chosen = ranges.iter().find(|range| bytes <= range.up_to_bytes).map_or(algorithm, |range| range.algorithm);
        if algorithm == Algorithm::Auto { chosen } else { algorithm }
    }

    /// An algorithm with the bits of the sum.
    fn sums_as(&self) -> Algorithm {
        // A reduce-scatter adds in rank order.
        if self.norms.op == Form::AllReduce { self.runs() } else { Algorithm::TwoShotSentinel }
    }

    fn name(&self) -> String {
        match (self.communicator.world_size(), self.runs()) {
            (1, _) => "rows".to_owned(),
            (_, Algorithm::Auto) => "reduce-scatter".to_owned(),
            (_, algorithm) => algorithm.to_string(),
        }
    }
}

/// The elements of rows that are `pitch` elements apart.
fn elems_of(rows: &Range<usize>, pitch: usize) -> Range<usize> {
    rows.start * pitch..rows.end * pitch
}

/// The scale that a format takes from its caller.
fn known(form: Format) -> f32 {
    if matches!(form, Format::Static(_)) { STATIC_SCALE } else { GLOBAL_SCALE }
}
