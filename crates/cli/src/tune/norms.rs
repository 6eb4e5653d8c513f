//! The times of norms: one kernel that sums and norms, or an all-reduce and then a kernel that norms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{
    Algorithm, Communicator, Config, Device, DeviceBuffer, Dtype, Graph, Queue, RmsNorm, RowNorm, Stream,
    SymmetricBuffer, explain_norm,
};

use super::crossovers::Choice;
use super::timing::Timing;
use harness::alone::alone;
use harness::failure::Failure;
use harness::names::by_name;
use harness::ranks::Say;
use reference::element::Summand;

/// The name of an unfused all-reduce and norm in a tuning.
pub(super) const APART: &str = "apart";
const FUSED: [Algorithm; 2] = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];
const NORM: RmsNorm = RmsNorm::new(1e-6);

/// Rows of one length, the fewest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Norms {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) hidden: usize,
    pub(super) tokens: Vec<usize>,
}

/// One number of rows, agreed among the ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NormLap {
    #[serde(with = "by_name")]
    pub(super) dtype: Dtype,
    pub(super) hidden: usize,
    /// Bytes of all rows.
    pub(super) bytes: u64,
    /// Times of one operation, by the name of the fused algorithm, or `apart` for unfused calls.
    pub(super) times_ns: BTreeMap<String, u64>,
    /// The choice of the table that was in force.
    pub(super) before: String,
}

impl Norms {
    /// Bytes of the most rows.
    pub(super) fn largest_bytes(&self) -> u64 {
        (self.tokens.last().unwrap_or(&0) * self.hidden * self.dtype.bytes()) as u64
    }

    pub(super) fn run(&self, timing: &Timing<'_, '_>, say: Say<'_, NormLap>) -> Result<(), Failure> {
        match self.dtype {
            Dtype::F16 => self.time::<f16>(timing, say),
            Dtype::BF16 => self.time::<bf16>(timing, say),
            _ => self.time::<f32>(timing, say),
        }
    }

    fn time<T: Summand>(&self, timing: &Timing<'_, '_>, say: Say<'_, NormLap>) -> Result<(), Failure> {
        let (communicator, stream) = (timing.communicator, timing.stopwatch.stream());
        let alone = alone(communicator)?;
        let mut random = fastrand::Rng::with_seed(communicator.rank() as u64);
        let values: Vec<T> = (0..4093).map(|_| T::draw(&mut random)).collect();
        let values = |elems: usize| values.iter().copied().cycle().take(elems).collect::<Vec<T>>();
        let weight = DeviceBuffer::from_slice(&values(self.hidden), stream)?;
        for tokens in self.tokens.iter().copied() {
            let elems = tokens * self.hidden;
            let operands = Operands::<T> {
                input: communicator.symmetric(elems)?,
                sum: communicator.symmetric(elems)?,
                output: communicator.symmetric(elems)?,
                residual: DeviceBuffer::from_slice(&values(elems), stream)?,
                residual_out: DeviceBuffer::new(communicator.device(), elems)?,
                weight: &weight,
            };
            operands.input.write(&values(elems), stream)?;
            let bytes = (elems * self.dtype.bytes()) as u64;
            let operations = timing.operations(bytes);
            let way = |fused| Way { communicator, alone: &alone, fused, operands: &operands };
            let ways: Vec<Way<'_, T>> = FUSED.map(Some).into_iter().chain([None]).map(way).collect();
            let graphs = ways.iter().map(|way| way.capture(stream, operations));
            let graphs: Vec<Graph<'_>> = graphs.collect::<symmetra::Result<_>>()?;
            let names: Vec<String> = ways.iter().map(|way| name(way.fused).to_owned()).collect();
            let times_ns = timing.agree(&names, &timing.time(&graphs, operations)?)?;
            if communicator.rank() == 0 {
                let (dtype, hidden) = (self.dtype, self.hidden);
                let before = chosen(&communicator.explain_norm(dtype, hidden, true), bytes).to_owned();
                say(NormLap { dtype, hidden, bytes, times_ns, before })?;
            }
        }
        Ok(())
    }
}

struct Operands<'w, T: Summand> {
    input: SymmetricBuffer<T>,
    sum: SymmetricBuffer<T>,
    output: SymmetricBuffer<T>,
    residual: DeviceBuffer<T>,
    /// Not the residual, which would grow with every operation.
    residual_out: DeviceBuffer<T>,
    weight: &'w DeviceBuffer<T>,
}

/// One kernel, or an all-reduce by the choice of the table and then a norm.
struct Way<'o, T: Summand> {
    communicator: &'o Communicator,
    /// The group of this rank.
    alone: &'o Communicator,
    fused: Option<Algorithm>,
    operands: &'o Operands<'o, T>,
}

impl<'o, T: Summand> Way<'o, T> {
    fn capture(&self, stream: &Stream, operations: u32) -> symmetra::Result<Graph<'o>> {
        // The first call of a communicator waits for all ranks, and must not be in a graph.
        self.enqueue(stream)?;
        self.communicator.synchronize(stream)?;
        let graph = stream.capture(|capture| (0..operations).try_for_each(|_| self.enqueue(capture)))?;
        graph.register()?;
        Ok(graph)
    }

    fn enqueue(&self, queue: impl Queue<'o> + Copy) -> symmetra::Result<()> {
        let Operands { input, sum, output, residual, residual_out, weight } = self.operands;
        let rows = |input: &'o SymmetricBuffer<T>| {
            RowNorm::new(input, *weight, NORM).residual(residual).residual_out(residual_out).output(output)
        };
        match self.fused {
            Some(algorithm) => self.communicator.all_reduce_norm(rows(input).algorithm(algorithm), queue),
            None => {
                self.communicator.all_reduce(input, sum, queue)?;
                self.alone.all_reduce_norm(rows(sum), queue)
            }
        }
    }
}

fn name(fused: Option<Algorithm>) -> &'static str {
    fused.map_or(APART, Algorithm::name)
}

/// The name of a table's choice in a tuning.
fn named(algorithm: Algorithm) -> &'static str {
    name(Some(algorithm).filter(|algorithm| FUSED.contains(algorithm)))
}

/// The choice for `bytes` bytes.
fn chosen(ranges: &[symmetra::Range], bytes: u64) -> &'static str {
    ranges.iter().find(|range| bytes <= range.up_to_bytes).map_or(APART, |range| named(range.algorithm))
}

/// The built-in choices for every number of bytes.
pub(super) fn built_in(device: &Device, ranks: usize, lap: &NormLap) -> Result<Vec<Choice>, Failure> {
    let ranges = explain_norm(device.kind(), Some(device), ranks, &Config::default())?(lap.dtype, lap.hidden, true);
    let mut choices: Vec<Choice> = Vec::new();
    for range in ranges {
        let (up_to_bytes, algorithm) = (range.up_to_bytes, named(range.algorithm));
        match choices.last_mut() {
            Some(last) if last.algorithm == algorithm => last.up_to_bytes = up_to_bytes,
            _ => choices.push(Choice { up_to_bytes, algorithm: algorithm.to_owned() }),
        }
    }
    Ok(choices)
}
