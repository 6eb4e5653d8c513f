//! One rank's part: the matmul and the collective, each alone and both together.

use symmetra::half::bf16;
use symmetra::{AllReduceOptions, Communicator, Event, Reduction, Stream, SymmetricBuffer};

use super::{KindTimes, Overlap, OverlapTimes};
use crate::collective::candidate::{OwnMeans, ours};
use crate::collective::data::CollectiveData;
use crate::collective::shape::CollectiveShape;
use crate::squares::Squares;
use harness::collective::CollectiveCommand;
use harness::comparison::turns::Turns;
use harness::comparison::work::Work;
use harness::failure::CommandFailure;

/// One kind of collective and the streams of both.
struct Concurrent<'a, 'w> {
    communicator: &'a Communicator,
    collective: CollectiveCommand,
    how: OwnMeans,
    input: &'a SymmetricBuffer<bf16>,
    output: &'a SymmetricBuffer<bf16>,
    matmul: &'a Squares,
    turns: &'a Turns<'w>,
    /// The collective without other work.
    alone: Work<'a>,
    /// The stream on which kernels of the collective run.
    other: &'a Stream,
    fork: Event,
    join: Event,
    multiplied: Event,
}

/// One rank's times.
pub(super) fn times(task: &Overlap, communicator: &Communicator) -> Result<OverlapTimes, CommandFailure> {
    Turns::open(communicator, communicator, task.launches, |turns| times_in(task, communicator, turns))
}

fn times_in(task: &Overlap, communicator: &Communicator, turns: &Turns<'_>) -> Result<OverlapTimes, CommandFailure> {
    let (stream, shape) =
        (turns.stream(), CollectiveShape { collective: task.collective, elems: task.elems, ranks: task.ranks });
    communicator.reserve_workspace(shape.larger_elems() * size_of::<bf16>())?;
    let matmul = Squares::new(task.size, task.matmuls, task.seed, stream)?;
    let other = Stream::new(communicator.device())?;
    let input = communicator.symmetric::<bf16>(task.elems)?;
    let output = communicator.symmetric::<bf16>(shape.output_elems())?;
    let data = CollectiveData::<bf16>::new(task.seed, task.elems, task.ranks);
    let mut kinds = Vec::new();
    for how in [OwnMeans::Kernels(AllReduceOptions::default()), OwnMeans::CopyEngine] {
        let event = || Event::new(communicator.device());
        let concurrent = Concurrent {
            communicator,
            collective: task.collective,
            how,
            input: &input,
            output: &output,
            matmul: &matmul,
            turns,
            alone: ours::<bf16, _>(communicator, task.collective, how, [&input, &output]),
            other: &other,
            fork: event()?,
            join: event()?,
            multiplied: event()?,
        };
        input.write(&data.of(communicator.rank()), stream)?;
        output.write(&CollectiveData::poison(shape.output_elems()), stream)?;
        communicator.group().barrier()?;
        concurrent.both()?;
        communicator.synchronize(stream)?;
        let wrong = data.count_unequal(&output.read(stream)?, &shape.stretches(communicator.rank()));
        kinds.push(concurrent.time(wrong)?);
    }
    Ok(OverlapTimes { matmul_us: turns.times_us(1.0, || matmul.enqueue(stream))?, kinds })
}

impl Concurrent<'_, '_> {
    fn time(&self, wrong: u64) -> symmetra::Result<KindTimes> {
        let mut times = KindTimes { alone_us: Vec::new(), together_us: Vec::new(), overlapped_us: Vec::new(), wrong };
        for timed in self.turns.launches().runs() {
            let alone = self.turns.time(|| (self.alone)(self.turns.stream().into()))?;
            let together = self.turns.time(|| self.both())?;
            if timed {
                times.alone_us.push(alone.device_us);
                times.together_us.push(together.device_us);
                times.overlapped_us.push(self.multiplied.elapsed_us(&self.fork)?);
            }
        }
        Ok(times)
    }

    /// The collective is enqueued first: it is the host's shorter part.
    fn both(&self) -> symmetra::Result<()> {
        let Self { communicator, collective, how, input, output, .. } = *self;
        let stream = self.turns.stream();
        stream.record(&self.fork)?;
        if how == OwnMeans::CopyEngine {
            let pending = match collective {
                CollectiveCommand::AllGather => communicator.low_contention_all_gather(input, output, stream)?,
                _ => communicator.low_contention_reduce_scatter(input, output, Reduction::Sum, stream)?,
            };
            self.matmul.enqueue(stream)?;
            stream.record(&self.multiplied)?;
            return pending.wait(stream);
        }
        self.other.wait(&self.fork)?;
        (self.alone)(self.other.into())?;
        self.other.record(&self.join)?;
        self.matmul.enqueue(stream)?;
        stream.record(&self.multiplied)?;
        stream.wait(&self.join)
    }
}
