//! One rank's part: the matmul and the collective, each alone and both together.

use symmetra::half::bf16;
use symmetra::{AllReduceOptions, Communicator, Event, Reduction, Stream, SymmetricBuffer};

use super::{KindTimes, Overlap, Times};
use crate::data::Data;
use crate::expected::Shape;
use crate::side::{How, Ours, Side};
use crate::squares::Squares;
use harness::collective::Collective;
use harness::contest::repeats::Repeats;
use harness::contest::stopwatch::Stopwatch;
use harness::failure::Failure;

/// One kind of collective and the streams of both.
struct Beside<'a> {
    communicator: &'a Communicator,
    collective: Collective,
    how: How,
    input: &'a SymmetricBuffer<bf16>,
    output: &'a SymmetricBuffer<bf16>,
    matmul: &'a Squares,
    stopwatch: &'a Stopwatch<'a>,
    /// The stream on which kernels of the collective run.
    other: &'a Stream,
    fork: Event,
    join: Event,
    multiplied: Event,
}

/// One rank's times.
pub(super) fn times(task: &Overlap, communicator: &Communicator) -> Result<Times, Failure> {
    let shape = Shape { collective: task.collective, elems: task.elems, ranks: task.ranks };
    communicator.reserve_workspace(shape.larger_elems() * size_of::<bf16>())?;
    let stream = Stream::new(communicator.device())?;
    let matmul = Squares::new(task.size, task.matmuls, task.seed, &stream)?;
    let (meeting, other) = (communicator.symmetric::<f32>(1)?, Stream::new(communicator.device())?);
    let stopwatch = Stopwatch::new(communicator, &meeting, &stream)?;
    let input = communicator.symmetric::<bf16>(task.elems)?;
    let output = communicator.symmetric::<bf16>(shape.output_elems())?;
    let data = Data::<bf16>::new(task.seed, task.elems, task.ranks);
    let mut times = Times { matmul_us: Vec::new(), kinds: Vec::new() };
    for how in [How::Kernels(AllReduceOptions::default()), How::CopyEngine] {
        let event = || Event::new(communicator.device());
        let beside = Beside {
            communicator,
            collective: task.collective,
            how,
            input: &input,
            output: &output,
            matmul: &matmul,
            stopwatch: &stopwatch,
            other: &other,
            fork: event()?,
            join: event()?,
            multiplied: event()?,
        };
        input.write(&data.of(communicator.rank()), &stream)?;
        output.write(&Data::poison(shape.output_elems()), &stream)?;
        communicator.group().barrier()?;
        beside.both()?;
        communicator.synchronize(&stream)?;
        let wrong = data.count_unequal(&output.read(&stream)?, &shape.stretches(communicator.rank()));
        times.kinds.push(beside.time(task.launches, wrong)?);
    }
    for timed in task.launches.runs() {
        let time = stopwatch.time(|| matmul.enqueue(&stream))?;
        times.matmul_us.extend(timed.then_some(time.device_us));
    }
    Ok(times)
}

impl Beside<'_> {
    fn time(&self, launches: Repeats, wrong: u64) -> symmetra::Result<KindTimes> {
        let mut times = KindTimes { alone_us: Vec::new(), together_us: Vec::new(), beside_us: Vec::new(), wrong };
        for timed in launches.runs() {
            let alone = self.stopwatch.time(|| self.alone())?;
            let together = self.stopwatch.time(|| self.both())?;
            if timed {
                times.alone_us.push(alone.device_us);
                times.together_us.push(together.device_us);
                times.beside_us.push(self.multiplied.elapsed_us(&self.fork)?);
            }
        }
        Ok(times)
    }

    fn alone(&self) -> symmetra::Result<()> {
        let Self { communicator, collective, how, input, output, .. } = *self;
        Ours { communicator, collective, how, exact: true, input, output }.enqueue(self.stopwatch.stream())
    }

    /// The collective is enqueued first: it is the host's shorter part.
    fn both(&self) -> symmetra::Result<()> {
        let Self { communicator, collective, how, input, output, .. } = *self;
        let stream = self.stopwatch.stream();
        stream.record(&self.fork)?;
        if how == How::CopyEngine {
            let pending = match collective {
                Collective::AllGather => communicator.low_contention_all_gather(input, output, stream)?,
                _ => communicator.low_contention_reduce_scatter(input, output, Reduction::Sum, stream)?,
            };
            self.matmul.enqueue(stream)?;
            stream.record(&self.multiplied)?;
            return pending.wait(stream);
        }
        self.other.wait(&self.fork)?;
        Ours { communicator, collective, how, exact: true, input, output }.enqueue(self.other)?;
        self.other.record(&self.join)?;
        self.matmul.enqueue(stream)?;
        stream.record(&self.multiplied)?;
        stream.wait(&self.join)
    }
}
