//! Rounds of every operation in a group, and a model of the outputs.

use symmetra::environment::Coordinator;
use symmetra::{DeviceBuffer, Queue, Reduction, Ref, Result, Stream};

use crate::support::Sample;
use crate::support::data::{Random, assert_same, mix};

/// The description of one round of operations, equal on every rank of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Elements of a part.
    pub(crate) count: usize,
    /// Elements before an operand in its buffer.
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) reduction: Reduction,
    pub(crate) root: usize,
}

impl Plan {
    pub(crate) fn new(seed: u64, reductions: &[Reduction], world: usize) -> Self {
        let mut random = Random(mix(seed));
        let rows = 1 + random.below(3);
        let count = [0, 1, 3, 17, 100, 700][random.below(6)] * rows;
        let reduction = *random.pick(reductions);
        Self { seed, count, offset: random.below(9), rows, reduction, root: random.below(world) }
    }

    /// How far a shift goes, in either direction and more than once round.
    fn by(&self) -> isize {
        (mix(self.seed) % 41) as isize - 20
    }

    /// The number of elements that rank `from` sends to rank `to` where each pair has its own count.
    fn pair(&self, from: usize, to: usize) -> usize {
        (mix(self.seed ^ ((from * 16 + to) as u64) << 20) % (self.count as u64 + 1)) as usize
    }
}

/// Operands of every operation, and their expected contents.
pub(crate) struct Round<'a, T: Sample> {
    pub(crate) group: &'a Coordinator,
    plan: Plan,
    /// Of the group: a rank there is numbered in the world.
    ranks: Vec<usize>,
    input: DeviceBuffer<T>,
    outputs: Vec<DeviceBuffer<T>>,
    sends: Vec<usize>,
    receives: Vec<usize>,
    /// Elements of each rank's part.
    parts: Vec<usize>,
}

const OPERATIONS: usize = 16;

impl<'a, T: Sample> Round<'a, T> {
    pub(crate) fn new(group: &'a Coordinator, plan: Plan) -> Self {
        let (world, rank) = (group.world_size(), group.rank());
        let elems = plan.count * world + plan.offset;
        let buffer = |_| DeviceBuffer::<T>::new(group.device(), elems).unwrap();
        let sends = (0..world).map(|peer| plan.pair(rank, peer)).collect();
        let receives = (0..world).map(|peer| plan.pair(peer, rank)).collect();
        let parts = (0..world).map(|peer| plan.pair(peer, peer)).collect();
        let (input, outputs) = (buffer(0), (0..OPERATIONS).map(buffer).collect());
        Self { group, plan, ranks: group.ranks().to_vec(), input, outputs, sends, receives, parts }
    }

    fn value(&self, member: usize, index: usize, fresh: u64) -> T {
        T::sample(mix(self.plan.seed ^ fresh << 40 ^ (self.ranks[member] as u64) << 20 ^ index as u64))
    }

    /// Writes the inputs, and fills the outputs with values that no rank sends.
    pub(crate) fn fill(&self, stream: &Stream, fresh: u64) {
        let elems = self.input.len() - self.plan.offset;
        let values: Vec<T> = (0..elems).map(|index| self.value(self.group.rank(), index, fresh)).collect();
        self.from(elems).write(&values, stream).unwrap();
        let nothing = vec![T::sample(mix(fresh)); self.input.len()];
        self.outputs.iter().for_each(|output| output.write(&nothing, stream).unwrap());
        let own = &values[..self.plan.count];
        [5, 12].into_iter().for_each(|number| self.to(number, own.len()).write(own, stream).unwrap());
    }

    fn from(&self, elems: usize) -> Ref<'_, T> {
        self.input.borrow().slice(self.plan.offset..self.plan.offset + elems).unwrap()
    }

    fn to(&self, number: usize, elems: usize) -> Ref<'_, T> {
        self.outputs[number].borrow().slice(self.plan.offset..self.plan.offset + elems).unwrap()
    }

    pub(crate) fn enqueue<'op>(&'op self, group: &Coordinator, queue: impl Queue<'op> + Copy) -> Result<()> {
        let Plan { count, rows, reduction, root, .. } = self.plan;
        let (world, all) = (group.world_size(), count * group.world_size());
        let mine = group.rank() == root;
        group.all_reduce_with(reduction, self.from(count), self.to(0, count), queue)?;
        group.reduce_scatter(self.from(all), self.to(1, count), reduction, queue)?;
        let (whole, part) = ([rows, count / rows * world], [rows, count / rows]);
        group.reduce_scatter_along(1, &whole, self.from(all), self.to(2, count), reduction, queue)?;
        group.all_gather(self.from(count), self.to(3, all), queue)?;
        group.all_gather_along(1, &part, self.from(count), self.to(4, all), queue)?;
        group.broadcast(self.to(5, count), root, queue)?;
        group.all_to_all(self.from(all), self.to(6, all), queue)?;
        let room = self.receives.iter().sum();
        group.all_to_all_v(self.from(self.sends.iter().sum()), &self.sends, self.to(7, room), &self.receives, queue)?;
        let gathered = self.to(14, self.parts.iter().sum());
        group.all_gather_v(self.from(self.parts[group.rank()]), gathered, &self.parts, queue)?;
        let own = self.to(15, self.parts[group.rank()]);
        group.reduce_scatter_v(self.from(self.parts.iter().sum()), own, &self.parts, reduction, queue)?;
        group.reduce(self.from(count), mine.then(|| self.to(8, count)), reduction, root, queue)?;
        group.gather(self.from(count), mine.then(|| self.to(9, all)), root, queue)?;
        group.scatter(mine.then(|| self.from(all)), self.to(10, count), root, queue)?;
        group.batch(queue, |messages| {
            messages.send_next(self.from(count));
            messages.receive_previous(self.to(11, count));
            Ok(())
        })?;
        group.shift(self.from(count), self.to(13, count), self.plan.by(), queue)?;
        group.all_reduce_in_place(self.to(12, count), queue)
    }

    /// The expected contents of each output, by the definition of the operation; `None` if the rank has no output.
    fn expected(&self, number: usize, fresh: u64) -> Option<Vec<T>> {
        let Plan { count, rows, reduction, root, .. } = self.plan;
        let (world, rank) = (self.ranks.len(), self.group.rank());
        let value = |member: usize, index: usize| self.value(member, index, fresh);
        let reduced = |reduction: Reduction, index: usize| {
            T::reduce(reduction, (0..world).map(|member| value(member, index)).collect::<Vec<_>>().into_iter())
        };
        let width = count / rows;
        let each = |of: &dyn Fn(usize) -> T| (0..count).map(of).collect::<Vec<_>>();
        Some(match number {
            0 => each(&|index| reduced(reduction, index)),
            1 => each(&|index| reduced(reduction, rank * count + index)),
            2 => each(&|index| reduced(reduction, (index / width * world + rank) * width + index % width)),
            3 => (0..world * count).map(|index| value(index / count, index % count)).collect(),
            4 => (0..world * count)
                .map(|index| {
                    let (row, column) = (index / (width * world), index % (width * world));
                    value(column / width, row * width + column % width)
                })
                .collect(),
            5 => each(&|index| value(root, index)),
            6 => (0..world * count).map(|index| value(index / count, rank * count + index % count)).collect(),
            7 => (0..world)
                .flat_map(|peer| {
                    let before: usize = (0..rank).map(|other| self.plan.pair(peer, other)).sum();
                    (before..before + self.plan.pair(peer, rank)).map(move |index| (peer, index))
                })
                .map(|(peer, index)| value(peer, index))
                .collect(),
            8 | 9 if rank != root => return None,
            8 => each(&|index| reduced(reduction, index)),
            9 => (0..world * count).map(|index| value(index / count, index % count)).collect(),
            10 => each(&|index| value(root, rank * count + index)),
            11 => each(&|index| value((rank + world - 1) % world, index)),
            14 => self
                .parts
                .iter()
                .enumerate()
                .flat_map(|(peer, count)| (0..*count).map(move |index| value(peer, index)))
                .collect(),
            15 => {
                let start: usize = self.parts[..rank].iter().sum();
                (start..start + self.parts[rank]).map(|index| reduced(reduction, index)).collect()
            }
            13 => {
                let source = rank as isize - self.plan.by();
                each(&|index| value(source.rem_euclid(world as isize) as usize, index))
            }
            _ => each(&|index| reduced(Reduction::Sum, index)),
        })
    }

    pub(crate) fn verify(&self, stream: &Stream, fresh: u64) {
        self.group.synchronize(stream).unwrap();
        for (number, output) in self.outputs.iter().enumerate() {
            let got = output.read(stream).unwrap();
            let nothing = T::sample(mix(fresh));
            let expected = self.expected(number, fresh).unwrap_or_default();
            let mut all = vec![nothing; got.len()];
            all[self.plan.offset..self.plan.offset + expected.len()].copy_from_slice(&expected);
            let context = (number, self.group.name(), self.group.rank(), &self.ranks, T::DTYPE, fresh, self.plan);
            assert_same(&got, &all, &context);
        }
    }
}

/// Every operation in a group, eager and, where its backend can be captured, from a graph.
pub(crate) fn check<T: Sample>(
    group: &Coordinator,
    through: &Coordinator,
    reductions: &[Reduction],
    seed: u64,
    captured: bool,
) {
    let stream = Stream::new(group.device()).unwrap();
    let round = Round::<T>::new(group, Plan::new(seed ^ T::DTYPE as u64, reductions, group.world_size()));
    round.fill(&stream, 1);
    round.enqueue(through, &stream).unwrap();
    round.verify(&stream, 1);
    if captured {
        let graph = group.capture(&stream, |capture| round.enqueue(through, capture)).unwrap();
        for fresh in 2..4 {
            round.fill(&stream, fresh);
            // Peers write into outputs as soon as they launch, so every rank fills its outputs before the barrier.
            group.barrier().unwrap();
            graph.launch(&stream).unwrap();
            round.verify(&stream, fresh);
        }
    }
}
