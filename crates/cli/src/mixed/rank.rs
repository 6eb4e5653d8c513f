//! One rank's part of a measurement of grids.

use serde::{Deserialize, Serialize};
use symmetra::environment::{Coordinator, Mixed, MixedMode};
use symmetra::{Communicator, DeviceBuffer, Event, Graph, Stream};

use super::Grids;
use super::oracle::{Oracle, Place, Whole};
use crate::all_reduce::Buffer;
use crate::failure::Failure;
use crate::ranks::{Say, Task};

/// Most batches: enough for a median.
const BATCHES: u32 = 10;

/// What a rank found for one size in one mode.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Number of the mode, times the number of sizes, and number of the size.
    pub(super) step: usize,
    pub(super) tensor_ranks: usize,
    pub(super) data_ranks: usize,
    /// The mode that ran.
    pub(super) runs: String,
    pub(super) batches_us: Vec<f64>,
    pub(super) wrong: u64,
}

impl Task for Grids {
    const NAME: &'static str = "grids";
    type Found = Sample;

    /// The ranks only meet in this group.
    fn heap_bytes(&self) -> u64 {
        0
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Sample>) -> Result<(), Failure> {
        // Input and output of the largest size, each with its signal pad.
        let operands = (self.world.ranks as u64 + 1) * self.world.most_bytes as u64 + 4 * (64 << 10);
        let group = self.world.open(communicator, if self.plain { 0 } else { operands }, |config| {
            self.group.set(config);
            config.tuning = self.tuning.clone();
        })?;
        let mixed = Mixed::open(&group, &self.world.config())?;
        let places = communicator.group().all_gather_bytes(&(mixed.data_rank() as u64).to_le_bytes())?;
        let place = |bytes: &Vec<u8>| {
            let bytes = bytes.as_slice().try_into().map_err(|_| Failure::failed("a place of another length"))?;
            Ok(Place { data_rank: u64::from_le_bytes(bytes) as usize })
        };
        let places = places.iter().map(place).collect::<Result<Vec<_>, Failure>>()?;
        let stream = Stream::new(group.device())?;
        for (number, mode) in self.modes.iter().enumerate() {
            for (size, count) in self.sizes_elems.iter().copied().enumerate() {
                let oracle = Oracle {
                    operation: self.operation,
                    seed: self.seed ^ count as u64,
                    count,
                    places: places.clone(),
                    data_ranks: mixed.data_size(),
                };
                let call = Call { grids: self, group: &group, mixed: &mixed, stream: &stream, mode: *mode, oracle };
                let step = number * self.sizes_elems.len() + size;
                let sample = with_element!(self.dtype, T => match self.plain {
                    true => call.measure(step, |elems| DeviceBuffer::<T>::new(group.device(), elems)),
                    false => call.measure(step, |elems| group.local().symmetric::<T>(elems)),
                })?;
                say(sample)?;
            }
        }
        mixed.close()?;
        Ok(group.close()?)
    }
}

/// One size in one mode.
struct Call<'a> {
    grids: &'a Grids,
    group: &'a Coordinator,
    mixed: &'a Mixed,
    stream: &'a Stream,
    mode: MixedMode,
    oracle: Oracle,
}

impl<'a> Call<'a> {
    fn measure<T: Whole, B: Buffer<T>>(
        &self,
        step: usize,
        make: impl Fn(usize) -> symmetra::Result<B>,
    ) -> Result<Sample, Failure> {
        let Self { grids, group, mixed, stream, mode, ref oracle } = *self;
        let operation = grids.operation;
        let [takes, gives] = oracle.lens();
        let (input, output) = (make(takes)?, make(gives)?);
        let whole = |values: Vec<i64>| -> Vec<T> { values.into_iter().map(T::whole).collect() };
        input.write(&whole(oracle.input(group.rank())), stream)?;
        // No sum is this.
        output.write(&vec![T::whole(3 << 3); gives], stream)?;
        group.barrier()?;
        let ops = grids.iterations.div_ceil(BATCHES);
        let graphs = match grids.graph {
            true => Some([1, ops].map(|ops| {
                group.capture(stream, |capture| {
                    (0..ops).try_for_each(|_| {
                        mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, mode, capture)
                    })
                })
            })),
            false => None,
        };
        let graphs: Option<[Graph<'_>; 2]> = match graphs {
            Some([one, batch]) => Some([one?, batch?]),
            None => None,
        };
        let launch = |times: u32| match &graphs {
            Some([one, batch]) => if times == 1 { one } else { batch }.launch(stream),
            None => (0..times).try_for_each(|_| {
                mixed.perform(operation, input.part(0..takes)?, output.part(0..gives)?, mode, stream)
            }),
        };
        launch(1)?;
        mixed.synchronize(stream)?;
        let expected = whole(oracle.output(group.rank()));
        let count_wrong = |result: Vec<T>| result.iter().zip(&expected).filter(|(got, due)| got != due).count() as u64;
        let mut wrong = count_wrong(output.read(stream)?);
        let (start, end) = (Event::new(group.device())?, Event::new(group.device())?);
        let mut batches_us = Vec::new();
        for _ in 0..grids.iterations.min(BATCHES) {
            // Ranks meet in an operation that is not timed.
            launch(1)?;
            stream.record(&start)?;
            launch(ops)?;
            stream.record(&end)?;
            mixed.synchronize(stream)?;
            batches_us.push(end.elapsed_us(&start)? / f64::from(ops));
        }
        wrong += count_wrong(output.read(stream)?);
        let bytes = (oracle.count * grids.dtype.bytes()) as u64;
        let runs = match mode {
            MixedMode::Auto => mixed.select(operation, grids.dtype, !grids.plain, bytes)?,
            mode => mode,
        };
        let (tensor_ranks, data_ranks) = (mixed.tensor_size(), mixed.data_size());
        Ok(Sample { step, tensor_ranks, data_ranks, runs: runs.to_string(), batches_us, wrong })
    }
}
