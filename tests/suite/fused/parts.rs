//! Work of the caller part by part: each part's work comes after its arrival, or before it is sent, in the order of ranks.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::{DeviceBuffer, Operand, Queue, Result};

use crate::support::{Rank, config, fits, threads};

/// What a rank works with, part by part.
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
            // What rank `from` has for rank `to`.
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
