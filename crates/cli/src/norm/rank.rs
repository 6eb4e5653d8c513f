//! One rank's part: every number of tokens verified, then timed.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{
    Algorithm, AnyQueue, Communicator, Config, DeviceBuffer, DeviceKind, Dtype, Reduction, RowNorm, Stream,
};

use super::NormMeasurement;
use harness::buffer::TestBuffer;
use harness::codes::{CodeMemory, Codes};
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::{Mode, Turns};
use harness::failure::CommandFailure;
use harness::form::{self, elems_of};
use harness::guarded::{self, GUARD_BYTES};
use harness::margins::Margins;
use harness::ranks::{Say, Task};
use reference::data::Data;
use reference::element::Real;
use reference::found::{UNWRITTEN, known, unlike, unwritten, wrong_codes};
use reference::norm::{biased, padded, with_residual};
use reference::quantised::Format;

/// The measurement of one number of tokens on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NormSample {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) algorithm: String,
    /// Time of one operation in each batch.
    pub(super) batches_us: Vec<f64>,
    pub(super) wrong: u64,
}

impl Task for NormMeasurement {
    const NAME: &'static str = "norms";
    type Found = NormSample;

    /// Room for four buffers of the most tokens, for values of at most a byte each, for scales, and for the buffer in which
    /// ranks meet; each with its signals and guards.
    fn heap_bytes(&self) -> u64 {
        let tokens = self.tokens.iter().max().copied().unwrap_or(0);
        let values = tokens * self.width();
        let codes = self.quantise.map_or(0, |form| values + form.scales_bytes(tokens, self.width()));
        if self.plain { 1 << 20 } else { (4 * values * self.dtype.bytes() + codes) as u64 + 7 * (64 << 10) }
    }

    fn configure(&self, config: &mut Config) {
        config.guard_bytes = GUARD_BYTES;
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, NormSample>) -> Result<(), CommandFailure> {
        let (launches, operations) = Repeats::batches(self.iterations, self.warmup);
        Turns::open(communicator, communicator, launches, |turns| {
            for (size, tokens) in self.tokens.iter().copied().enumerate() {
                let bench = TokenBench { norms: self, communicator, turns, operations, size, tokens };
                say(match self.dtype {
                    Dtype::F16 => bench.of_type::<f16>(),
                    Dtype::BF16 => bench.of_type::<bf16>(),
                    _ => bench.of_type::<f32>(),
                }?)?;
            }
            Ok(())
        })
    }
}

/// One number of tokens.
struct TokenBench<'a, 'w> {
    norms: &'a NormMeasurement,
    communicator: &'a Communicator,
    turns: &'a Turns<'w>,
    /// Operations of a batch.
    operations: u32,
    size: usize,
    tokens: usize,
}

/// The operands of a rank.
struct RowOperands<T: symmetra::Element, M: CodeMemory> {
    input: M::Of<T>,
    residual: M::Of<T>,
    /// In place these are `input` and `residual`.
    apart: Option<[M::Of<T>; 2]>,
    weight: DeviceBuffer<T>,
    bias: Option<DeviceBuffer<T>>,
    codes: Option<Codes<M>>,
}

impl<T: Real, M: CodeMemory> RowOperands<T, M> {
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

/// The operation on one number of tokens.
struct Normed<'a, 'w, T: Real, M: CodeMemory> {
    bench: &'a TokenBench<'a, 'w>,
    operands: &'a RowOperands<T, M>,
    weights: &'a [T],
    bias: Option<&'a [T]>,
    rows: Data,
    residual: Vec<T>,
}

impl<'a, T: Real, M: CodeMemory> Candidate<'a> for Normed<'a, '_, T, M> {
    fn name(&self) -> String {
        self.bench.norms.op.name().to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 'a>) -> symmetra::Result<()> {
        (0..operations).try_for_each(|_| self.bench.enqueue(self.operands, queue))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        let RowOperands { input, residual, apart, codes, .. } = self.operands;
        input.write(&self.rows.of::<T>(self.bench.communicator.rank()), stream)?;
        residual.write(&self.residual, stream)?;
        if let Some(apart) = apart {
            apart[0].write(&unwritten(self.bench.tokens * self.bench.norms.width()), stream)?;
            apart[1].write(&unwritten(self.bench.elems()), stream)?;
        }
        codes.iter().try_for_each(|codes| codes.fill(UNWRITTEN, stream))
    }

    /// In place, the next operation takes the result of the last one.
    fn verified(&self, _: u32) -> u32 {
        1
    }

    fn connects(&self) -> bool {
        false
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let (bench, operands) = (self.bench, self.operands);
        let (norms, world) = (bench.norms, bench.communicator.world_size());
        let sum: Vec<T> = self.rows.reduced(Reduction::Sum, world, bench.sums_as()?, 0).collect();
        let x = with_residual(&sum, norms.residual.then_some(&self.residual[..]));
        let width = norms.width();
        let [of_y, of_x] = [elems_of(&bench.normed(), width), elems_of(&bench.kept(), norms.hidden)];
        let y = &padded(&biased(&x, self.weights, self.bias, norms.norm()), norms.hidden, width)[of_y.clone()];
        let wrong_codes = match (&operands.codes, norms.quantise) {
            (Some(codes), Some(form)) => wrong_codes(&codes.read(stream)?, y, width, form),
            _ => 0,
        };
        let wrong = unlike(&operands.output().read(stream)?[of_y], y)
            + unlike(&operands.kept().read(stream)?[of_x.clone()], &x[of_x])
            + wrong_codes;
        Ok(CandidateVerdict { wrong, checksum: 0 })
    }

    fn check_guards(&self, stream: &Stream) -> symmetra::Result<()> {
        guarded::check(self.bench.communicator)?;
        self.operands.read_all(stream)
    }
}

impl TokenBench<'_, '_> {
    fn of_type<T: Real>(&self) -> Result<NormSample, CommandFailure> {
        match self.norms.plain {
            true => self.measure::<T, _>(&Margins(self.communicator.device().clone())),
            false => self.measure::<T, _>(self.communicator),
        }
    }

    fn measure<T: Real, M: CodeMemory>(&self, memory: &M) -> Result<NormSample, CommandFailure> {
        let Self { norms, turns, tokens, .. } = *self;
        let (elems, wide) = (self.elems(), tokens * norms.width());
        let new = |elems| memory.room::<T>(elems);
        let weights = Data { seed: norms.seed ^ 2, elems: norms.hidden }.of::<T>(0);
        let bias = norms.norm.bias::<T>(Data { seed: norms.seed ^ 3, elems: norms.hidden });
        let bias = bias.as_deref();
        let operands = RowOperands {
            input: new(elems)?,
            residual: new(elems)?,
            apart: if norms.in_place { None } else { Some([new(wide)?, new(elems)?]) },
            weight: DeviceBuffer::from_slice(&weights, turns.stream())?,
            bias: bias.map(|bias| DeviceBuffer::from_slice(bias, turns.stream())).transpose()?,
            codes: norms.quantise.map(|form| self.codes(memory, form)).transpose()?,
        };
        let normed = Normed {
            bench: self,
            operands: &operands,
            weights: &weights,
            bias,
            rows: Data { seed: norms.seed, elems },
            residual: Data { seed: norms.seed ^ 1, elems }.of::<T>(0),
        };
        let mode = if norms.graph { Mode::Graph } else { Mode::Eager };
        let trials = turns.trials(mode, self.operations, std::slice::from_ref(&normed));
        let trial = trials?.pop().unwrap_or_default();
        Ok(NormSample { size: self.size, algorithm: self.name()?, batches_us: trial.times_us, wrong: trial.wrong })
    }

    fn elems(&self) -> usize {
        self.tokens * self.norms.hidden
    }

    fn codes<M: CodeMemory>(&self, memory: &M, form: Format) -> symmetra::Result<Codes<M>> {
        let shape = [self.normed().len(), self.norms.width(), 0];
        Codes::new(memory, form, shape, known(form), self.turns.stream())
    }

    fn enqueue<'b, T: Real, M: CodeMemory>(
        &self,
        operands: &'b RowOperands<T, M>,
        queue: AnyQueue<'_, 'b>,
    ) -> symmetra::Result<()> {
        let rows = RowNorm::new(operands.input.part(0..self.elems())?, &operands.weight, self.norms.norm());
        let own = |buffer: &'b M::Of<T>| buffer.part(elems_of(&self.kept(), self.norms.hidden));
        let wide = operands.output().part(elems_of(&self.normed(), self.norms.width()))?;
        let rows = rows.output(wide).padded_to(self.norms.width()).residual_out(own(operands.kept())?);
        let rows = if let Some(bias) = &operands.bias { rows.bias(bias) } else { rows };
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

    /// The algorithm of the sum: the requested algorithm, or the library's choice. For `Auto`, scattered rows go by a
    /// reduce-scatter.
    fn runs(&self) -> symmetra::Result<Algorithm> {
        let NormMeasurement { algorithm, dtype, hidden, plain, graph, one_process, op, .. } = *self.norms;
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
