//! Work of the caller part by part: each part's work comes after its arrival, or before it is sent, in the order of ranks.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::{DeviceBuffer, Error, Operand, Queue, Result};

use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config, fits, threads};

/// The state of a rank that computes part by part.
struct ByParts<'a> {
    rank: &'a Rank,
    captured: bool,
    multiplier: Multiplier,
    /// The identity: work of the caller that copies rows.
    identity: DeviceBuffer<f32>,
    /// Where the caller's work takes parts from, or puts them.
    apart: DeviceBuffer<f32>,
}

impl<'a> ByParts<'a> {
    const ROWS: usize = 7;
    const WIDTH: usize = 5;
    const COUNT: usize = Self::ROWS * Self::WIDTH;

    fn copy<'op>(
        &'op self,
        from: impl Operand<'op, f32>,
        to: impl Operand<'op, f32>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let product = Product::new(Self::WIDTH, Self::WIDTH, Numeric::F32);
        let operands = [Tensor::of(from), Tensor::of(&self.identity), Tensor::of(to)];
        self.multiplier.enqueue(&product, Self::ROWS, operands, queue)
    }

    /// The own part first or last, then or before that in the order of ranks.
    fn check_order(&self, number: &AtomicUsize, rank: usize, first: usize) {
        let step = number.fetch_add(1, Ordering::Relaxed) + first;
        assert_eq!(rank, (self.rank.rank() + step) % self.rank.world());
    }

    fn gather<'op, O: Operand<'op, f32>>(&'op self, input: impl Fn() -> O, output: impl Fn(Range<usize>) -> O) {
        let order = AtomicUsize::new(0);
        let world = self.rank.world();
        run!(self.rank, self.captured, |queue| {
            order.store(0, Ordering::Relaxed);
            let consume = |source: usize| {
                self.check_order(&order, source, 0);
                let part = source * Self::COUNT..(source + 1) * Self::COUNT;
                self.copy(output(part.clone()), self.apart.borrow().slice(part)?, queue)
            };
            self.rank.communicator.all_gather_and_consume(input(), output(0..world * Self::COUNT), queue, consume)
        })
        .unwrap();
        assert_eq!(order.load(Ordering::Relaxed), world);
    }

    fn scatter<'op, O: Operand<'op, f32>>(&'op self, [input, output]: [&dyn Fn(Range<usize>) -> O; 2]) {
        let order = AtomicUsize::new(0);
        let world = self.rank.world();
        run!(self.rank, self.captured, |queue| {
            order.store(0, Ordering::Relaxed);
            let produce = |destination: usize| {
                self.check_order(&order, destination, 1);
                let part = destination * Self::COUNT..(destination + 1) * Self::COUNT;
                self.copy(self.apart.borrow().slice(part.clone())?, input(part), queue)
            };
            let all = 0..world * Self::COUNT;
            self.rank.communicator.produce_and_all_to_all(input(all.clone()), output(all), queue, produce)
        })
        .unwrap();
        assert_eq!(order.load(Ordering::Relaxed), world);
    }
}

#[test]
fn work_of_the_caller_part_by_part() {
    const COUNT: usize = ByParts::COUNT;
    for world in [1, 2, 3, 4] {
        if !fits(world) {
            continue;
        }
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, device, .. } = rank;
            let (me, all) = (rank.rank(), world * COUNT);
            communicator.reserve_workspace(all * size_of::<f32>()).unwrap();
            // The data of rank `from` for rank `to`.
            let values = |from: usize, to: usize| (0..COUNT).map(move |at| (at * 256 + from * 16 + to) as f32);
            let identity: Vec<f32> = (0..25).map(|at| f32::from(at / 5 == at % 5)).collect();
            for (symmetric, captured) in [(false, false), (true, false), (true, true)] {
                let work = ByParts {
                    rank,
                    captured,
                    multiplier: Multiplier::new(device).unwrap(),
                    identity: DeviceBuffer::from_slice(&identity, stream).unwrap(),
                    apart: DeviceBuffer::new(device, all).unwrap(),
                };
                let own: Vec<f32> = values(me, 0).collect();
                let gathered: Vec<f32> = (0..world).flat_map(|from| values(from, 0)).collect();
                let sent: Vec<f32> = (0..world).flat_map(|to| values(me, to)).collect();
                let received: Vec<f32> = (0..world).flat_map(|from| values(from, me)).collect();
                let plain = [COUNT, all, all].map(|elems| DeviceBuffer::<f32>::new(device, elems).unwrap());
                let shared = [COUNT, all, all].map(|elems| communicator.symmetric::<f32>(elems).unwrap());
                if symmetric {
                    shared[0].write(&own, stream).unwrap();
                    work.gather(|| shared[0].slice(..).unwrap(), |range| shared[1].slice(range).unwrap());
                    assert_eq!(shared[1].read(stream).unwrap(), gathered);
                } else {
                    plain[0].write(&own, stream).unwrap();
                    work.gather(|| plain[0].borrow(), |range| plain[1].borrow().slice(range).unwrap());
                    assert_eq!(plain[1].read(stream).unwrap(), gathered);
                }
                assert_eq!(work.apart.read(stream).unwrap(), gathered);
                work.apart.write(&sent, stream).unwrap();
                if symmetric {
                    let of = |which: usize| {
                        let shared = &shared;
                        move |range| shared[which].slice(range).unwrap()
                    };
                    work.scatter([&of(1), &of(2)]);
                    assert_eq!(shared[2].read(stream).unwrap(), received);
                } else {
                    let of = |which: usize| {
                        let plain = &plain;
                        move |range| plain[which].borrow().slice(range).unwrap()
                    };
                    work.scatter([&of(1), &of(2)]);
                    assert_eq!(plain[2].read(stream).unwrap(), received);
                }
            }
        });
    }
}

/// An error that no library call returns.
fn refused() -> Error {
    Error::InvalidArgument { message: "the caller has enough".to_owned() }
}

/// The work of one rank fails. The rank has its memory back when its stream is done, and the group works on.
#[test]
fn an_error_of_a_consumer_ends_the_call_alone() {
    const COUNT: usize = 1000;
    let gate = Gate::new(2);
    if !fits(2) {
        return;
    }
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, device } = rank;
        communicator.reserve_workspace(COUNT * size_of::<i32>()).unwrap();
        let input = DeviceBuffer::from_slice(&[rank.rank() as i32 + 1; COUNT], stream).unwrap();
        let output = DeviceBuffer::<i32>::new(device, 2 * COUNT).unwrap();
        let gather = |consume: &dyn Fn(usize) -> Result<()>| {
            communicator.all_gather_and_consume(&input, &output, stream, consume)
        };
        gather(&|_| Ok(())).unwrap();
        rank.finish();
        if rank.rank() == 1 {
            let error = gather(&|_| Err(refused()));
            assert_eq!(error, Err(refused()));
        }
        std::thread::scope(|scope| {
            // The copies of rank 1 wait for rank 0, and its next use of the memory waits for them.
            let used = (rank.rank() == 1).then(|| scope.spawn(|| output.write(&[7; 2 * COUNT], stream).unwrap()));
            if rank.rank() == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
            gate.pass();
            if rank.rank() == 0 {
                gather(&|_| Ok(())).unwrap();
                assert_eq!(output.read(stream).unwrap(), [[1; COUNT], [2; COUNT]].concat());
            }
            used.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let other = DeviceBuffer::<i32>::new(device, 2 * COUNT).unwrap();
        communicator.all_gather_and_consume(&input, &other, stream, |_| Ok(())).unwrap();
        assert_eq!(other.read(stream).unwrap(), [[1; COUNT], [2; COUNT]].concat());
        if rank.rank() == 1 {
            assert_eq!(output.read(stream).unwrap(), [7; 2 * COUNT]);
        }
    });
}

/// Others wait for the parts of a rank whose work fails: they get an error, and take no other call for this one.
#[test]
fn an_error_of_a_producer_ends_the_group() {
    const COUNT: usize = 100;
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let mut config = config();
        config.check_calls = false;
        let rank = open(bootstrap, &config).unwrap();
        let Rank { communicator, stream, device } = &rank;
        communicator.reserve_workspace(2 * COUNT * size_of::<i32>()).unwrap();
        let [input, output] = [0; 2].map(|_| DeviceBuffer::<i32>::new(device, 2 * COUNT).unwrap());
        let call = |fails: bool| {
            let produce = |_| if fails { Err(refused()) } else { Ok(()) };
            communicator.produce_and_all_to_all(&input, &output, stream, produce)
        };
        call(false).unwrap();
        rank.finish();
        communicator.group().barrier().unwrap();
        let first = call(rank.rank() == 1);
        if rank.rank() == 1 {
            assert_eq!((first, call(false)), (Err(refused()), Err(refused())));
        } else {
            let start = Instant::now();
            let error = loop {
                if let Err(error) = communicator.synchronize(stream) {
                    break error;
                }
                assert!(start.elapsed() < Duration::from_secs(10), "rank 0 never learned of it");
                std::thread::sleep(Duration::from_millis(2));
            };
            assert_eq!(error, Error::Aborted { detail: format!(": by rank 1: {}", refused()) });
        }
        gate.pass();
    });
}

/// Parts without elements come too, in the same order, and nothing is copied.
#[test]
fn work_for_parts_without_elements() {
    for world in [1, 3] {
        if !fits(world) {
            continue;
        }
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, device, .. } = rank;
            let [input, output] = [(); 2].map(|()| DeviceBuffer::<f32>::new(device, 0).unwrap());
            let me = rank.rank();
            for captured in [false, true] {
                let seen = std::cell::RefCell::new(Vec::new());
                let see = |part: usize| {
                    // Work within the call cannot call the communicator.
                    assert!(matches!(
                        communicator.all_reduce_in_place(&output, stream),
                        Err(Error::Unsupported { .. })
                    ));
                    seen.borrow_mut().push(part);
                    Ok(())
                };
                run!(rank, captured, |queue| communicator.all_gather_and_consume(&input, &output, queue, see)).unwrap();
                let order: Vec<usize> = (0..world).map(|step| (me + step) % world).collect();
                assert_eq!(seen.take(), order);
                run!(rank, captured, |queue| communicator.produce_and_all_to_all(&input, &output, queue, see)).unwrap();
                let order: Vec<usize> = (1..=world).map(|step| (me + step) % world).collect();
                assert_eq!(seen.take(), order);
            }
        });
    }
}
