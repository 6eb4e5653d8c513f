//! One rank's part: every number of tokens verified, then timed.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{
    Algorithm, Communicator, DeviceBuffer, DeviceKind, Dtype, Event, Graph, Queue, Reduction, RowNorm, Stream,
};

use super::Norms;
use harness::buffer::Buffer;
use harness::codes::{Codes, Memory};
use harness::failure::Failure;
use harness::form::{self, elems_of};
use harness::guarded::{self, GUARD_BYTES};
use harness::margins::Margins;
use harness::ranks::{Say, Task};
use reference::data::Data;
use reference::element::Real;
use reference::found::{UNWRITTEN, known, unlike, unwritten, wrong_codes};
use reference::norm::{normed, padded, with_residual};
use reference::quantised::Format;

/// The measurement of one number of tokens on one rank.
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

    /// Room for four buffers of the most tokens, and for values of at most a byte each, and scales; each with its
    /// signals and guards.
    fn heap_bytes(&self) -> u64 {
        let tokens = self.tokens.iter().max().copied().unwrap_or(0);
        let values = tokens * self.width();
        let codes = self.quantise.map_or(0, |form| values + form.scales_bytes(tokens, self.width()));
        if self.plain { 1 << 20 } else { (4 * values * self.dtype.bytes() + codes) as u64 + 6 * (64 << 10) }
    }

    fn guard_bytes(&self) -> u64 {
        GUARD_BYTES
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
struct Operands<T: symmetra::Element, M: Memory> {
    input: M::Of<T>,
    residual: M::Of<T>,
    /// In place these are `input` and `residual`.
    apart: Option<[M::Of<T>; 2]>,
    weight: DeviceBuffer<T>,
    codes: Option<Codes<M>>,
}

impl<T: Real, M: Memory> Operands<T, M> {
    /// The buffer that holds the output. A buffer is as long as all rows, and the rows of a rank's share are at their
    /// places among all rows.
    fn output(&self) -> &M::Of<T> {
        self.apart.as_ref().map_or(&self.input, |[output, _]| output)
    }

    /// The buffer that holds x.
    fn kept(&self) -> &M::Of<T> {
        self.apart.as_ref().map_or(&self.residual, |[_, kept]| kept)
    }

    /// Plain memory compares its margins when it is read.
    fn read_all(&self, stream: &Stream) -> symmetra::Result<()> {
        let mut buffers = [&self.input, &self.residual].into_iter().chain(self.apart.iter().flatten());
        buffers.try_for_each(|buffer| buffer.read(stream).map(drop))?;
        self.codes.as_ref().map_or(Ok(()), |codes| codes.read(stream).map(drop))
    }
}

impl Bench<'_> {
    fn of_type<T: Real>(&self) -> Result<Sample, Failure> {
        match self.norms.plain {
            true => self.measure::<T, _>(&Margins(self.communicator.device().clone())),
            false => self.measure::<T, _>(self.communicator),
        }
    }

    fn measure<T: Real, M: Memory>(&self, memory: &M) -> Result<Sample, Failure> {
        let Self { norms, communicator, stream, tokens, .. } = *self;
        let (elems, wide) = (self.elems(), tokens * norms.width());
        let new = |elems| memory.room::<T>(elems);
        let weights = Data { seed: norms.seed ^ 2, elems: norms.hidden }.of::<T>(0);
        let operands = Operands {
            input: new(elems)?,
            residual: new(elems)?,
            apart: if norms.in_place { None } else { Some([new(wide)?, new(elems)?]) },
            weight: DeviceBuffer::from_slice(&weights, stream)?,
            codes: norms.quantise.map(|form| self.codes(memory, form)).transpose()?,
        };
        let graphs = norms.graph.then(|| self.capture(&operands)).transpose()?;
        let rows = Data { seed: norms.seed, elems };
        let residual = Data { seed: norms.seed ^ 1, elems }.of::<T>(0);
        operands.input.write(&rows.of::<T>(communicator.rank()), stream)?;
        operands.residual.write(&residual, stream)?;
        if let Some(apart) = &operands.apart {
            apart[0].write(&unwritten(wide), stream)?;
            apart[1].write(&unwritten(elems), stream)?;
        }
        operands.codes.iter().try_for_each(|codes| codes.fill(UNWRITTEN, stream))?;
        self.once(&operands, graphs.as_ref())?;
        communicator.synchronize(stream)?;
        let sum: Vec<T> = rows.reduced(Reduction::Sum, communicator.world_size(), self.sums_as()?, 0).collect();
        let x = with_residual(&sum, norms.residual.then_some(&residual[..]));
        let width = norms.width();
        let [of_y, of_x] = [elems_of(&self.normed(), width), elems_of(&self.kept(), norms.hidden)];
        let y = &padded(&normed(&x, &weights, norms.norm()), norms.hidden, width)[of_y.clone()];
        let wrong_codes = match (&operands.codes, norms.quantise) {
            (Some(codes), Some(form)) => wrong_codes(&codes.read(stream)?, y, width, form),
            _ => 0,
        };
        let wrong = unlike(&operands.output().read(stream)?[of_y], y)
            + unlike(&operands.kept().read(stream)?[of_x.clone()], &x[of_x])
            + wrong_codes;
        // The memory in which the ranks meet may have been overwritten too, so it is also checked before the timed
        // batches.
        guarded::check(communicator)?;
        let batches_us = self.time(&operands, graphs.as_ref())?;
        guarded::check(communicator)?;
        operands.read_all(stream)?;
        Ok(Sample { size: self.size, algorithm: self.name()?, batches_us, wrong })
    }

    fn elems(&self) -> usize {
        self.tokens * self.norms.hidden
    }

    fn codes<M: Memory>(&self, memory: &M, form: Format) -> symmetra::Result<Codes<M>> {
        let shape = [self.normed().len(), self.norms.width(), 0];
        Codes::new(memory, form, shape, known(form), self.stream)
    }

    fn enqueue<'b, T: Real, M: Memory>(
        &self,
        operands: &'b Operands<T, M>,
        queue: impl Queue<'b>,
    ) -> symmetra::Result<()> {
        let rows = RowNorm::new(operands.input.part(0..self.elems())?, &operands.weight, self.norms.norm());
        let own = |buffer: &'b M::Of<T>| buffer.part(elems_of(&self.kept(), self.norms.hidden));
        let wide = operands.output().part(elems_of(&self.normed(), self.norms.width()))?;
        let rows = rows.output(wide).padded_to(self.norms.width()).residual_out(own(operands.kept())?);
        let rows = if let Some(codes) = &operands.codes { codes.asked(rows)? } else { rows };
        let rows = if self.norms.residual { rows.residual(own(&operands.residual)?) } else { rows };
        let rows = rows.algorithm(self.norms.algorithm);
        self.norms.op.enqueue(self.communicator, rows, queue)
    }

    /// The number of this rank.
    fn place(&self) -> [usize; 2] {
        [self.communicator.rank(), self.communicator.world_size()]
    }

    /// Numbers of the rows that this rank reduces and keeps.
    fn kept(&self) -> Range<usize> {
        self.norms.op.kept(self.tokens, self.place())
    }

    /// Numbers of the rows that this rank has normed.
    fn normed(&self) -> Range<usize> {
        self.norms.op.normed(self.tokens, self.place())
    }

    /// A graph of one operation, and one of a batch.
    fn capture<'b, T: Real, M: Memory>(&self, operands: &'b Operands<T, M>) -> Result<[Graph<'b>; 2], Failure>
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

    fn once<T: Real, M: Memory>(
        &self,
        operands: &Operands<T, M>,
        graphs: Option<&[Graph<'_>; 2]>,
    ) -> symmetra::Result<()> {
        graphs.map_or_else(|| self.enqueue(operands, self.stream), |[one, _]| one.launch(self.stream))
    }

    fn batch<T: Real, M: Memory>(
        &self,
        operands: &Operands<T, M>,
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

    /// Microseconds of an operation in each batch. A batch starts after an operation that is not timed, in which the
    /// ranks meet.
    fn time<T: Real, M: Memory>(
        &self,
        operands: &Operands<T, M>,
        graphs: Option<&[Graph<'_>; 2]>,
    ) -> Result<Vec<f64>, Failure> {
        let (start, end) = (Event::new(self.stream.device())?, Event::new(self.stream.device())?);
        for _ in 0..self.norms.warmup {
            self.batch(operands, graphs)?;
            self.communicator.synchronize(self.stream)?;
        }
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

    /// The algorithm of the sum: the requested algorithm, or the library's choice. For `Auto`, scattered rows go by a
    /// reduce-scatter.
    fn runs(&self) -> symmetra::Result<Algorithm> {
        let Norms { algorithm, dtype, hidden, plain, graph, one_process, op, .. } = *self.norms;
        let quantise = self.norms.quantise;
        let registers = graph && (self.communicator.device().kind() != DeviceKind::Host || one_process);
        let bytes = (self.elems() * dtype.bytes()) as u64;
        // The output of rows in place is not padded, and other rows have an x of their own.
        op.algorithm(self.communicator, algorithm, (dtype, hidden, bytes), (!plain || registers, true), quantise)
    }

    /// An algorithm whose sum has the same bits.
    fn sums_as(&self) -> symmetra::Result<Algorithm> {
        Ok(self.norms.op.sums_as(self.runs()?))
    }

    fn name(&self) -> symmetra::Result<String> {
        Ok(if self.communicator.world_size() == 1 { "rows".to_owned() } else { form::name(self.runs()?) })
    }
}
