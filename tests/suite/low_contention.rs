//! Low-contention collectives against an independent reference, bit for bit: types, reductions, worlds, memories and
//! alignments, in place or not, eager and captured, among other calls on other streams; handles, workspaces, and ranks
//! that fail.

use std::time::Duration;

use half::bf16;
use symmetra::{
    Config, DeviceBuffer, Error, Operand, Operation, Pending, Queue, Reduction, Ref, Result, Stream, SymmetricBuffer,
    SymmetricSlice,
};

use crate::support::data::{Random, assert_same, mix};
use crate::support::extent::{full, one_in};
use crate::support::world::meet;
use crate::support::{Data, Rank, Sample, fits, is_host, threads};

/// Elements of the buffers that contain the operands.
const ROOM: usize = 40_000;
/// Most elements between an aligned address and the start of an operand.
const OFFSETS: usize = 16;
/// Elements of a part.
const COUNTS: [usize; 14] = [0, 1, 3, 4, 7, 8, 15, 16, 17, 63, 129, 256, 1000, 2001];

fn config(world: usize) -> Config {
    let mut config = crate::support::config();
    config.check_calls = world.is_multiple_of(2);
    config
}

/// One call, whose operands start at `from` and `to`.
#[derive(Clone, Copy, Debug)]
struct Call {
    gathers: bool,
    reduction: Reduction,
    count: usize,
    /// Whether input and output are symmetric.
    symmetric: [bool; 2],
    in_place: bool,
    from: usize,
    to: usize,
    /// How its handle ends: dropped, awaited at once, or after all calls.
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Dropped,
    AtOnce,
    Late,
}

/// Calls enqueued without a pause, each into its own part of the output buffers.
fn batches(seed: u64, world: usize) -> Vec<(bool, Vec<Call>)> {
    let mut random = Random(mix(seed));
    let mut batches: Vec<(bool, Vec<Call>)> = Vec::new();
    let mut end = ROOM;
    let rounds = (4 / one_in(world)).max(1);
    for case in 0..rounds * COUNTS.len() {
        let count = COUNTS[case % COUNTS.len()];
        let offset = |random: &mut Random| if random.below(3) == 0 { 0 } else { random.below(OFFSETS) };
        let room = count * world + OFFSETS;
        let mut to = end.next_multiple_of(OFFSETS) + OFFSETS + offset(&mut random);
        if to + room > ROOM || batches.last().is_some_and(|(_, calls)| calls.len() == 8) {
            batches.push((random.below(2) == 0, Vec::new()));
            to = OFFSETS + offset(&mut random);
        }
        end = to + room;
        let in_place = random.below(3) == 0;
        let symmetric = [random.below(2) == 0, random.below(2) == 0];
        batches.last_mut().unwrap().1.push(Call {
            gathers: random.below(2) == 0,
            reduction: *random.pick(&Reduction::ALL),
            count,
            symmetric: if in_place { [symmetric[1]; 2] } else { symmetric },
            in_place,
            from: random.below((ROOM - room) / OFFSETS) * OFFSETS + offset(&mut random),
            to,
            end: *random.pick(&[End::Dropped, End::AtOnce, End::Late]),
        });
    }
    batches
}

/// The buffers of one rank. [0] is only read; [1] is written.
struct Bench<'a, T: Sample> {
    rank: &'a Rank,
    other: Stream,
    data: &'a Data<T>,
    symmetric: [SymmetricBuffer<T>; 2],
    plain: [DeviceBuffer<T>; 2],
    busy: SymmetricBuffer<i32>,
}

impl<'a, T: Sample> Bench<'a, T> {
    fn new(rank: &'a Rank, data: &'a Data<T>) -> Self {
        let symmetric = [0; 2].map(|_| rank.communicator.symmetric::<T>(ROOM).unwrap());
        let plain = [0; 2].map(|_| DeviceBuffer::<T>::new(&rank.device, ROOM).unwrap());
        symmetric[0].write(&data.inputs[rank.rank()], &rank.stream).unwrap();
        plain[0].write(&data.inputs[rank.rank()], &rank.stream).unwrap();
        let busy = rank.communicator.symmetric(3000).unwrap();
        Self { rank, other: Stream::new(&rank.device).unwrap(), data, symmetric, plain, busy }
    }

    fn check(&self, captured: bool, calls: &[Call]) {
        let Rank { communicator, stream, .. } = self.rank;
        let own = &self.data.inputs[self.rank.rank()];
        let mut expected = [own.clone(), own.clone()];
        for call in calls {
            for (start, elements) in self.effects(call) {
                expected[usize::from(call.symmetric[1])][start..start + elements.len()].copy_from_slice(&elements);
            }
        }
        self.plain[1].write(own, stream).unwrap();
        self.symmetric[1].write(own, stream).unwrap();
        self.busy.write(&vec![1; 3000], &self.other).unwrap();
        // No rank writes to a peer before that has written.
        communicator.group().barrier().unwrap();
        let context = (T::DTYPE, self.rank.rank(), self.rank.world(), captured, calls);
        let ran = match captured {
            true => self.replay(calls),
            false => self.eager(calls),
        };
        ran.unwrap_or_else(|error| panic!("{error}: {context:?}"));
        communicator.synchronize(stream).unwrap();
        communicator.synchronize(&self.other).unwrap();
        assert_same(&self.plain[1].read(stream).unwrap(), &expected[0], &context);
        assert_same(&self.symmetric[1].read(stream).unwrap(), &expected[1], &context);
        let sums = (self.rank.world() as i32).pow(calls.len() as u32 % 3);
        assert_eq!(self.busy.read(&self.other).unwrap(), vec![sums; 3000]);
    }

    /// Where a call leaves which elements in the output buffer.
    fn effects(&self, call: &Call) -> Vec<(usize, Vec<T>)> {
        let (rank, world) = (self.rank.rank(), self.rank.world());
        let Call { count, from, to, in_place, .. } = *call;
        if call.gathers {
            let start = |source: usize| if in_place { to + source * count } else { from };
            let part = |source: usize| self.data.inputs[source][start(source)..start(source) + count].to_vec();
            return (0..world).map(|source| (to + source * count, part(source))).collect();
        }
        let start = if in_place { to } else { from } + rank * count;
        let to = if in_place { to + rank * count } else { to };
        vec![(to, self.data.result(call.reduction)[start..start + count].to_vec())]
    }

    /// Every call, among all-reduces on another stream, and the handles that are awaited later.
    fn eager(&self, calls: &[Call]) -> Result<()> {
        let Rank { communicator, stream, .. } = self.rank;
        let mut late = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            late.extend(self.call(call, stream)?);
            if number < calls.len() % 3 {
                communicator.all_reduce_in_place(&self.busy, &self.other)?;
            }
        }
        // The last handle covers all calls, on any stream; but each handle may be awaited.
        late.iter().rev().try_for_each(|pending| pending.wait(&self.other).and_then(|()| pending.wait(stream)))
    }

    fn replay(&self, calls: &[Call]) -> Result<()> {
        let Rank { communicator, stream, .. } = self.rank;
        let graph = stream.capture(|capture| {
            let mut late = Vec::new();
            for call in calls {
                late.extend(self.call(call, capture)?);
            }
            late.iter().try_for_each(|pending| pending.wait(capture))
        })?;
        for launch in 0..3 {
            graph.launch(stream)?;
            if launch < calls.len() % 3 {
                communicator.all_reduce_in_place(&self.busy, &self.other)?;
            }
            // In place it is the input of the next: the same again once it is where it was.
            if launch < 2 {
                communicator.synchronize(stream)?;
                communicator.group().barrier()?;
                self.plain[1].write(&self.data.inputs[self.rank.rank()], stream)?;
                self.symmetric[1].write(&self.data.inputs[self.rank.rank()], stream)?;
                communicator.group().barrier()?;
            }
        }
        Ok(())
    }

    /// The handle, if it is awaited later.
    fn call<'op, Q: Queue<'op> + Copy>(&'op self, call: &Call, queue: Q) -> Result<Option<Pending<'op>>> {
        let pending = match call.symmetric {
            [true, true] => self.enqueue(call, queue, |w, s, c| self.slice(w, s, c), |w, s, c| self.slice(w, s, c)),
            [true, false] => self.enqueue(call, queue, |w, s, c| self.slice(w, s, c), |w, s, c| self.window(w, s, c)),
            [false, true] => self.enqueue(call, queue, |w, s, c| self.window(w, s, c), |w, s, c| self.slice(w, s, c)),
            [false, false] => self.enqueue(call, queue, |w, s, c| self.window(w, s, c), |w, s, c| self.window(w, s, c)),
        }?;
        if call.end == End::AtOnce {
            pending.wait(queue)?;
        }
        Ok((call.end == End::Late).then_some(pending))
    }

    fn enqueue<'op, I: Operand<'op, T>, O: Operand<'op, T>>(
        &'op self,
        call: &Call,
        queue: impl Queue<'op>,
        input: impl Fn(usize, usize, usize) -> I,
        output: impl Fn(usize, usize, usize) -> O,
    ) -> Result<Pending<'op>> {
        let communicator = &self.rank.communicator;
        let Call { count, from, to, in_place, reduction, .. } = *call;
        let (whole, part) = (count * self.rank.world(), to + self.rank.rank() * count);
        let which = usize::from(in_place);
        if call.gathers {
            let input = input(which, if in_place { part } else { from }, count);
            return communicator.low_contention_all_gather(input, output(1, to, whole), queue);
        }
        let input = input(which, if in_place { to } else { from }, whole);
        let output = output(1, if in_place { part } else { to }, count);
        communicator.low_contention_reduce_scatter(input, output, reduction, queue)
    }

    fn slice(&self, which: usize, start: usize, count: usize) -> SymmetricSlice<'_, T> {
        self.symmetric[which].slice(start..start + count).unwrap()
    }

    fn window(&self, which: usize, start: usize, count: usize) -> Ref<'_, T> {
        self.plain[which].borrow().slice(start..start + count).unwrap()
    }
}

fn every_call<T: Sample>(world: usize) {
    let seed = fastrand::u64(..);
    eprintln!("{} of {world} ranks: seed {seed}", T::DTYPE);
    let data = Data::<T>::new(seed, world, ROOM);
    let batches = batches(seed, world);
    threads(world, &config(world), |rank| {
        // The most that a call needs: graphs cannot make it.
        rank.communicator.reserve_workspace(world * 2001 * size_of::<T>()).unwrap();
        let bench = Bench::new(rank, &data);
        batches.iter().for_each(|(captured, calls)| bench.check(*captured, calls));
    });
}

/// Two types without `SYMMETRA_TEST_FULL`, others in the next world.
fn every_type(world: usize) {
    let types = [every_call::<f32>, every_call::<i64>, every_call::<bf16>, every_call::<u8>];
    for (number, call) in types.into_iter().enumerate() {
        if fits(world) && (full() || (number + world).is_multiple_of(2)) {
            call(world);
        }
    }
}

macro_rules! worlds {
    ($($name:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            every_type($world);
        }
    )*};
}

worlds! {
    every_call_world_1: 1;
    every_call_world_2: 2;
    every_call_world_3: 3;
    every_call_world_4: 4;
    every_call_world_5: 5;
    every_call_world_6: 6;
    every_call_world_7: 7;
    every_call_world_8: 8;
    every_call_world_16: 16;
}

fn values(rank: usize, len: usize, salt: u64) -> Vec<i64> {
    (0..len).map(|index| mix(salt ^ (rank * 1_000_000 + index) as u64) as i64).collect()
}

#[test]
fn adopted_memory_is_read_where_it_lies() {
    let (world, count) = (3, 1000);
    let salt = fastrand::u64(..);
    threads(world, &config(world), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let shard = DeviceBuffer::from_slice(&values(rank.rank(), count, salt), stream).unwrap();
        // SAFETY: ranks are threads, and drop it after the barrier that follows their last successful calls with it.
        let adopted = unsafe { communicator.adopt(shard.borrow()) }.unwrap();
        assert!(!is_host() || adopted.is_shared());
        if !is_host() {
            // Copy engines do not bring plain memory from threads of the same process.
            communicator.reserve_workspace(count * size_of::<i64>()).unwrap();
        }
        let all = DeviceBuffer::<i64>::new(&rank.device, world * count).unwrap();
        // On the host it needs no workspace: captured at once.
        let graph = stream
            .capture(|capture| communicator.low_contention_all_gather(&adopted, &all, capture).map(std::mem::forget))
            .unwrap();
        // No rank is held up in its capture by the work of another: see `Communicator::adopt`.
        communicator.group().barrier().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let expected: Vec<i64> = (0..world).flat_map(|rank| values(rank, count, salt)).collect();
        assert_eq!(all.read(stream).unwrap(), expected);
        // In place it is the outputs that peers read.
        // SAFETY: as above.
        let whole = unsafe { communicator.adopt(all.borrow()) }.unwrap();
        let own = rank.rank() * count..(rank.rank() + 1) * count;
        all.borrow().slice(own.clone()).unwrap().write(&values(rank.rank(), count, salt + 1), stream).unwrap();
        let part = all.borrow().slice(own).unwrap();
        communicator.low_contention_all_gather(part, &whole, stream).unwrap().wait(stream).unwrap();
        let expected: Vec<i64> = (0..world).flat_map(|rank| values(rank, count, salt + 1)).collect();
        assert_eq!(all.read(stream).unwrap(), expected);
        communicator.group().barrier().unwrap();
    });
}

#[test]
fn what_follows_a_dropped_handle_comes_after_it() {
    threads(2, &config(2), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let (own, count) = (rank.rank(), 50_000);
        let shard = communicator.symmetric::<i64>(count).unwrap();
        let all = DeviceBuffer::<i64>::new(&rank.device, 2 * count).unwrap();
        for round in 0..20 {
            shard.write(&values(own, count, round), stream).unwrap();
            drop(communicator.low_contention_all_gather(&shard, &all, stream).unwrap());
            let expected: Vec<i64> = (0..2).flat_map(|rank| values(rank, count, round)).collect();
            assert_eq!(all.read(stream).unwrap(), expected);
        }
        rank.finish();
    });
}

#[test]
fn operands_may_go_as_soon_as_their_handle() {
    threads(2, &config(2), |rank| {
        let Rank { communicator, stream, .. } = rank;
        for round in 0..10 {
            let input = DeviceBuffer::from_slice(&vec![1i32; 20_000], stream).unwrap();
            let output = DeviceBuffer::<i32>::new(&rank.device, 10_000).unwrap();
            let pending = communicator.low_contention_reduce_scatter(&input, &output, Reduction::Sum, stream).unwrap();
            if round % 2 == 0 {
                drop(pending);
            } else {
                // Nothing is ever ordered after it, and still its memory stays until it is done.
                std::mem::forget(pending);
            }
        }
        rank.finish();
    });
}

#[test]
fn a_capture_does_not_grow_the_workspace() {
    threads(3, &config(3), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let input = DeviceBuffer::from_slice(&vec![rank.rank() as f32 + 1.0; 3000], stream).unwrap();
        let output = DeviceBuffer::<f32>::new(&rank.device, 1000).unwrap();
        let all = DeviceBuffer::<f32>::new(&rank.device, 9000).unwrap();
        let scatter = || {
            stream.capture(|capture| {
                communicator.low_contention_reduce_scatter(&input, &output, Reduction::Sum, capture).map(drop)
            })
        };
        for refused in [
            scatter(),
            stream.capture(|capture| communicator.low_contention_all_gather(&input, &all, capture).map(drop)),
        ] {
            let error = refused.map(drop).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("120") && error.to_string().contains("reserve"), "{error}");
        }
        communicator.reserve_workspace(12_000).unwrap();
        let graph = scatter().unwrap();
        // A larger workspace is allocated in addition to that of the graph.
        let large = DeviceBuffer::from_slice(&vec![2.0f32; 30_000], stream).unwrap();
        let part = DeviceBuffer::<f32>::new(&rank.device, 10_000).unwrap();
        for _ in 0..5 {
            let pending =
                communicator.low_contention_reduce_scatter(&large, &part, Reduction::Average, stream).unwrap();
            graph.launch(stream).unwrap();
            pending.wait(stream).unwrap();
        }
        rank.finish();
        assert_eq!(output.read(stream).unwrap(), vec![6.0; 1000]);
        assert_eq!(part.read(stream).unwrap(), vec![2.0; 10_000]);
        communicator.group().barrier().unwrap();
    });
}

#[test]
fn a_heap_without_room_is_an_error_of_all_ranks() {
    let mut config = config(2);
    config.heap_bytes = 64 << 10;
    threads(2, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let input = DeviceBuffer::<u8>::new(&rank.device, 1 << 20).unwrap();
        let output = DeviceBuffer::<u8>::new(&rank.device, 1 << 19).unwrap();
        let call = communicator.low_contention_reduce_scatter(&input, &output, Reduction::Max, stream);
        assert!(matches!(call, Err(Error::OutOfMemory { .. })), "{call:?}");
        // The group is still usable.
        let small = input.borrow().slice(0..2000).unwrap();
        let half = output.borrow().slice(0..1000).unwrap();
        communicator.low_contention_reduce_scatter(small, half, Reduction::Max, stream).unwrap().wait(stream).unwrap();
        rank.finish();
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    threads(2, &config(2), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = communicator.symmetric::<i32>(1000).unwrap();
        let part = |from: usize, to: usize| buffer.slice(from..to).unwrap();
        for refused in [
            communicator.low_contention_all_gather(part(0, 10), part(100, 119), stream),
            communicator.low_contention_all_gather(part(0, 10), part(5, 25), stream),
            communicator.low_contention_reduce_scatter(part(0, 11), part(100, 105), Reduction::Sum, stream),
            communicator.low_contention_reduce_scatter(part(0, 10), part(100, 106), Reduction::Sum, stream),
            communicator.low_contention_reduce_scatter(part(0, 10), part(8, 13), Reduction::Sum, stream),
        ] {
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        }
        let other = Stream::new(&rank.device).unwrap();
        let graph = stream
            .capture(|capture| {
                let eager = communicator.low_contention_all_gather(part(0, 10), part(100, 120), &other)?;
                let error = eager.wait(capture).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                let error = communicator.low_contention_all_gather(part(0, 10), part(100, 120), stream).unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                let error = eager.wait(stream).unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                eager.wait(&other)?;
                let recorded = communicator.low_contention_all_gather(part(0, 10), part(100, 120), capture)?;
                assert!(matches!(recorded.wait(&other), Err(Error::InvalidArgument { .. })));
                Ok(())
            })
            .unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        communicator.group().barrier().unwrap();
    });
}

#[test]
fn a_graph_ends_with_its_group() {
    threads(2, &config(2), |rank| {
        let communicator = rank.communicator.split(Some(0), 0).unwrap().unwrap();
        let (from, to) = (communicator.symmetric::<f32>(8).unwrap(), communicator.symmetric::<f32>(16).unwrap());
        let own = communicator.clone();
        let graph =
            rank.stream.capture(|capture| own.low_contention_all_gather(&from, &to, capture).map(drop)).unwrap();
        graph.launch(&rank.stream).unwrap();
        communicator.synchronize(&rank.stream).unwrap();
        let pending = communicator.low_contention_all_gather(&from, &to, &rank.stream).unwrap();
        communicator.clone().close().unwrap();
        assert_eq!(graph.launch(&rank.stream), Err(Error::Closed));
        assert_eq!(pending.wait(&rank.stream), Err(Error::Closed));
        let again = communicator.low_contention_all_gather(&from, &to, &rank.stream).map(drop);
        assert_eq!(again, Err(Error::Closed));
    });
}

/// A rank that does not call is named, and so is the operation that waited for it.
#[test]
fn a_rank_that_skips_a_call_is_named() {
    let mut config = config(3);
    config.deadlines = config.deadlines.steady(Duration::from_secs(1));
    meet(3, |bootstrap| {
        let rank = crate::support::world::open(bootstrap, &config).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let buffer = communicator.symmetric::<i32>(3000).unwrap();
        let call = || communicator.low_contention_all_gather(buffer.slice(0..100)?, buffer.slice(1000..1300)?, stream);
        call().unwrap().wait(stream).unwrap();
        rank.finish();
        communicator.group().barrier().unwrap();
        if rank.rank() != 1 {
            call().unwrap().wait(stream).unwrap();
        }
        let error = loop {
            match communicator.synchronize(stream) {
                Err(error) => break error,
                Ok(()) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        match (rank.rank(), &error) {
            (1, Error::Aborted { .. }) => {}
            (_, Error::Timeout { operation: Operation::AllGather, rank: Some(1), .. }) => {}
            (own, _) => panic!("rank {own}: {error}"),
        }
        let later = call().map(drop);
        assert_eq!(later, Err(error));
        rank.device.synchronize().unwrap();
    });
}

#[test]
fn calls_that_differ_are_found() {
    let mut config = config(2);
    config.check_calls = true;
    meet(2, |bootstrap| {
        let rank = crate::support::world::open(bootstrap, &config).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        communicator.reserve_workspace(1000).unwrap();
        let buffer = communicator.symmetric::<f32>(1000).unwrap();
        let plain = DeviceBuffer::<f32>::new(&rank.device, 10).unwrap();
        let to = buffer.slice(500..520).unwrap();
        let called = match rank.rank() {
            0 => communicator.low_contention_all_gather(buffer.slice(0..10).unwrap(), to, stream),
            _ => communicator.low_contention_all_gather(&plain, to, stream),
        };
        drop(called.unwrap());
        let error = loop {
            match communicator.synchronize(stream) {
                Err(error) => break error,
                Ok(()) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    });
}
