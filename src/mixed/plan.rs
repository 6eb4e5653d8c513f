//! The plan of every operation in every mode, as a list of steps. Pure: the test of the plans runs the steps on sets of
//! contributions.

use super::grid::{GridPart, GridSizes};
use super::mode::{MixedMode, MixedOperation};
use super::steps::{ElementRange, GridCollective, GridStep, Space};

/// Steps, and the number of workspace elements that they use.
pub(super) struct GridPlan {
    pub(super) steps: Vec<GridStep>,
    pub(super) work: usize,
}

impl GridPlan {
    /// The largest number of parts that a rank sums by itself.
    pub(super) fn most_parts(&self) -> usize {
        let parts = |step: &GridStep| if let GridStep::Sum { parts, .. } = step { *parts } else { 0 };
        self.steps.iter().map(parts).max().unwrap_or(0)
    }

    /// How often a value is rounded. Consecutive sums of gathered parts count once.
    pub(super) fn roundings(&self) -> usize {
        let mut sums = 0;
        let mut summing = false;
        for step in &self.steps {
            let sum = matches!(step, GridStep::Sum { .. });
            sums += usize::from(step.reduces() && !(sum && summing));
            summing = sum;
        }
        sums
    }
}

/// Parts of the workspace are aligned to this many elements: 128 bytes or more of any type.
pub(super) const ALIGN: usize = 128;

/// The modes in which a grid has an operation, if a rank sums at most `most_parts` parts by itself.
pub(super) fn modes(sizes: &GridSizes, operation: MixedOperation, most_parts: usize) -> Vec<MixedMode> {
    let on =
        |mode: &MixedMode| mode.is_on(sizes, operation) && plan(sizes, operation, *mode, 1).most_parts() <= most_parts;
    MixedMode::ALL.into_iter().filter(|_| operation.is_on(sizes)).filter(on).collect()
}

/// Plans an operation on a rank. `count`: elements of `x` where every rank has one whole tensor, else of a slice. The
/// grid has the operation and the mode.
pub(super) fn plan(sizes: &GridSizes, operation: MixedOperation, mode: MixedMode, count: usize) -> GridPlan {
    let (input, output) = operation.elems(sizes, count);
    let input = ElementRange { space: Space::Input, start: 0, elems: input };
    let output = ElementRange { space: Space::Output, start: 0, elems: output };
    let mut planner = Planner::new(sizes, count, input, output);
    planner.operate(operation, mode);
    planner.plan
}

pub(super) struct Planner {
    sizes: GridSizes,
    count: usize,
    /// Elements of a rank's share in two-shot. The last share may be shorter; the workspace has padding for it.
    share: usize,
    pub(super) input: ElementRange,
    pub(super) output: ElementRange,
    pub(super) plan: GridPlan,
}

impl Planner {
    pub(super) fn new(sizes: &GridSizes, count: usize, input: ElementRange, output: ElementRange) -> Self {
        let plan = GridPlan { steps: Vec::new(), work: 0 };
        Self { sizes: *sizes, count, share: count.div_ceil(sizes.local_tensor), input, output, plan }
    }

    pub(super) fn operate(&mut self, operation: MixedOperation, mode: MixedMode) {
        if self.sizes.world() == 1 {
            return self.copy(self.input, self.output);
        }
        match operation {
            MixedOperation::AllReduce => self.all_reduce(mode),
            MixedOperation::AllGather => self.all_gather(mode),
            MixedOperation::ReduceScatter => self.reduce_scatter(mode),
            MixedOperation::AllReduceAllGather => self.all_reduce_all_gather(mode),
            MixedOperation::ReduceScatterAllReduce => self.reduce_scatter_all_reduce(mode),
        }
    }

    pub(super) fn take(&mut self, elems: usize) -> ElementRange {
        let start = self.plan.work;
        self.plan.work += elems.next_multiple_of(ALIGN);
        ElementRange { space: Space::Work, start, elems }
    }

    pub(super) fn copy(&mut self, from: ElementRange, into: ElementRange) {
        if from != into && from.elems > 0 {
            self.plan.steps.push(GridStep::Copy { from, into });
        }
    }

    /// A group of one rank copies instead.
    fn run(&mut self, kind: GridCollective, part: GridPart, from: ElementRange, into: ElementRange, rows: usize) {
        match part.size(&self.sizes) {
            1 => self.copy(from, into),
            _ => self.plan.steps.push(GridStep::Collective { kind, part, from, into, rows }),
        }
    }

    /// As [`run`](Self::run), into workspace. With a group of one rank the elements stay in place.
    fn staged(
        &mut self,
        kind: GridCollective,
        part: GridPart,
        from: ElementRange,
        elems: usize,
        rows: usize,
    ) -> ElementRange {
        if part.size(&self.sizes) == 1 {
            return from;
        }
        let into = self.take(elems);
        self.run(kind, part, from, into, rows);
        into
    }

    fn sum_into(&mut self, parts: usize, from: ElementRange, into: ElementRange) {
        match parts {
            1 => self.copy(from, into),
            _ => self.plan.steps.push(GridStep::Sum { parts, from, into }),
        }
    }

    fn sum(&mut self, parts: usize, from: ElementRange, elems: usize) -> ElementRange {
        if parts == 1 {
            return from;
        }
        let into = self.take(elems);
        self.sum_into(parts, from, into);
        into
    }

    /// Copies blocks of `count` elements, each followed by padding that makes shares equal.
    fn padded(&mut self, from: ElementRange, blocks: usize) -> ElementRange {
        let (count, whole) = (self.count, self.share * self.sizes.local_tensor);
        if count == whole {
            return from;
        }
        let into = self.take(blocks * whole);
        (0..blocks).for_each(|block| self.copy(from.part(block, count), into.part(block, whole).first(count)));
        into
    }

    /// All-gathers shares into the output. A block of the output has at most as many elements as its shares together.
    fn gather_shares(&mut self, part: GridPart, from: ElementRange, blocks: usize, rows: usize) {
        let (count, whole) = (self.count, self.share * self.sizes.local_tensor);
        if count == whole {
            return self.run(GridCollective::AllGather, part, from, self.output, rows);
        }
        let all = self.staged(GridCollective::AllGather, part, from, blocks * whole, rows);
        let output = self.output;
        (0..blocks).for_each(|block| self.copy(all.part(block, whole).first(count), output.part(block, count)));
    }

    /// Repeats every part once for each rank that needs the part.
    fn repeated(&mut self, from: ElementRange, parts: usize, times: usize, elems: usize) -> ElementRange {
        if times == 1 {
            return from;
        }
        let into = self.take(parts * times * elems);
        for number in 0..parts * times {
            self.copy(from.part(number / times, elems), into.part(number, elems));
        }
        into
    }

    /// Sends each host its part and sums the received parts. Hosts of one tensor group receive the same part.
    fn exchanged(&mut self, from: ElementRange, elems: usize) -> ElementRange {
        let (hosts, data, tensor) = (self.sizes.hosts(), self.sizes.across_data, self.sizes.across_tensor);
        if hosts == 1 {
            return from;
        }
        let parts = self.repeated(from, data, tensor, elems);
        let all = self.staged(GridCollective::AllToAll, GridPart::Hosts, parts, hosts * elems, 1);
        self.sum(hosts, all, elems)
    }

    fn all_reduce(&mut self, mode: MixedMode) {
        let (hosts, count, share) = (self.sizes.hosts(), self.count, self.share);
        let (input, output) = (self.input, self.output);
        match mode {
            MixedMode::OneShot if hosts == 1 => self.run(GridCollective::AllReduce, GridPart::Local, input, output, 1),
            MixedMode::OneShot => {
                let local = self.staged(GridCollective::AllReduce, GridPart::Local, input, count, 1);
                let all = self.staged(GridCollective::AllGather, GridPart::Hosts, local, hosts * count, 1);
                self.sum_into(hosts, all, output);
            }
            MixedMode::TwoShot | MixedMode::TwoShotAcross => {
                let own = self.shares_of_host(input);
                let own = self.across(mode, own, share);
                self.gather_shares(GridPart::LocalTensor, own, 1, 1);
            }
            _ => self.run(GridCollective::AllReduce, GridPart::World, input, output, 1),
        }
    }

    /// The share of this rank of the sum over the host's tensor group.
    fn shares_of_host(&mut self, input: ElementRange) -> ElementRange {
        let padded = self.padded(input, 1);
        self.staged(GridCollective::ReduceScatter, GridPart::LocalTensor, padded, self.share, 1)
    }

    /// Reduces over the hosts of a tensor group: each host reduces everything, or each host reduces a part and gathers
    /// all parts.
    fn across(&mut self, mode: MixedMode, own: ElementRange, elems: usize) -> ElementRange {
        let hosts = self.sizes.across_tensor;
        match mode {
            MixedMode::TwoShotAcross => self.staged(GridCollective::AllReduce, GridPart::HostsTensor, own, elems, 1),
            _ => {
                let all = self.staged(GridCollective::AllGather, GridPart::HostsTensor, own, hosts * elems, 1);
                self.sum(hosts, all, elems)
            }
        }
    }

    fn all_gather(&mut self, mode: MixedMode) {
        let (hosts, count, input, output) = (self.sizes.hosts(), self.count, self.input, self.output);
        match mode {
            MixedMode::OneShot => {
                if self.sizes.local() == 1 {
                    return self.run(GridCollective::AllGather, GridPart::Hosts, input, output, 1);
                }
                let all = self.staged(GridCollective::AllGather, GridPart::Hosts, input, hosts * count, 1);
                self.run(GridCollective::AllGather, GridPart::Local, all, output, hosts);
            }
            _ => self.run(GridCollective::AllGather, GridPart::World, input, output, 1),
        }
    }

    fn reduce_scatter(&mut self, mode: MixedMode) {
        let (local, count, input, output) = (self.sizes.local(), self.count, self.input, self.output);
        match mode {
            MixedMode::OneShot => {
                let own = self.exchanged(input, local * count);
                self.run(GridCollective::ReduceScatter, GridPart::Local, own, output, 1);
            }
            _ => self.run(GridCollective::ReduceScatter, GridPart::World, input, output, 1),
        }
    }

    fn all_reduce_all_gather(&mut self, mode: MixedMode) {
        let GridSizes { local_data, across_tensor, across_data, .. } = self.sizes;
        let (hosts, tensor, data) = (self.sizes.hosts(), self.sizes.tensor(), self.sizes.data());
        let (count, share, input, output) = (self.count, self.share, self.input, self.output);
        match mode {
            MixedMode::OneShot => {
                let first = if local_data == 1 { GridPart::Local } else { GridPart::LocalTensor };
                let own = match local_data {
                    1 => self.staged(GridCollective::AllReduce, first, input, count, 1),
                    _ => input,
                };
                if local_data == 1 && across_tensor == 1 {
                    return self.run(GridCollective::AllGather, GridPart::Hosts, own, output, 1);
                }
                let mut all = self.staged(GridCollective::AllGather, GridPart::Hosts, own, hosts * count, 1);
                if across_tensor > 1 {
                    let sums = if local_data == 1 { output } else { self.take(across_data * count) };
                    for block in 0..across_data {
                        self.sum_into(across_tensor, all.part(block, across_tensor * count), sums.part(block, count));
                    }
                    all = sums;
                }
                if local_data == 1 {
                    return;
                }
                if self.sizes.sums_apart && self.sizes.local_tensor > 1 {
                    let step = GridStep::ReduceApart { groups: local_data, from: all, into: output, rows: across_data };
                    return self.plan.steps.push(step);
                }
                let all = self.staged(GridCollective::AllReduce, first, all, across_data * count, 1);
                self.run(GridCollective::AllGather, GridPart::LocalData, all, output, across_data);
            }
            MixedMode::TwoShot | MixedMode::TwoShotAcross => {
                let own = self.shares_of_host(input);
                let own = self.across(mode, own, share);
                let all = self.staged(GridCollective::AllGather, GridPart::HostsData, own, across_data * share, 1);
                self.gather_shares(GridPart::Local, all, data, across_data);
            }
            MixedMode::OneCollective => {
                let all = self.staged(GridCollective::AllGather, GridPart::World, input, data * tensor * count, 1);
                for block in 0..data {
                    self.sum_into(tensor, all.part(block, tensor * count), output.part(block, count));
                }
            }
            _ => {
                let own = self.staged(GridCollective::AllReduce, GridPart::Tensor, input, count, 1);
                self.run(GridCollective::AllGather, GridPart::Data, own, output, 1);
            }
        }
    }

    fn reduce_scatter_all_reduce(&mut self, mode: MixedMode) {
        let GridSizes { local_tensor, local_data, across_data, .. } = self.sizes;
        let (tensor, data, world) = (self.sizes.tensor(), self.sizes.data(), self.sizes.world());
        let (count, share, input, output) = (self.count, self.share, self.input, self.output);
        match mode {
            MixedMode::OneShot if local_data == 1 => {
                let own = self.staged(GridCollective::AllReduce, GridPart::Local, input, across_data * count, 1);
                let own = self.exchanged(own, count);
                self.copy(own, output);
            }
            MixedMode::OneShot => {
                let own = self.exchanged(input, local_data * count);
                if self.sizes.sums_apart && local_tensor > 1 {
                    let step = GridStep::ReduceShared { groups: local_data, from: own, into: output };
                    return self.plan.steps.push(step);
                }
                let parts = self.repeated(own, local_data, local_tensor, count);
                self.run(GridCollective::ReduceScatter, GridPart::Local, parts, output, 1);
            }
            MixedMode::TwoShot | MixedMode::TwoShotAcross => {
                let padded = self.padded(input, data);
                let own = self.staged(
                    GridCollective::ReduceScatter,
                    GridPart::Local,
                    padded,
                    across_data * share,
                    across_data,
                );
                let own = match mode {
                    MixedMode::TwoShot => self.exchanged(own, share),
                    _ => {
                        let own = self.staged(GridCollective::ReduceScatter, GridPart::HostsData, own, share, 1);
                        self.across(mode, own, share)
                    }
                };
                self.gather_shares(GridPart::LocalTensor, own, 1, 1);
            }
            MixedMode::OneCollective => {
                let parts = self.repeated(input, data, tensor, count);
                let all = self.staged(GridCollective::AllToAll, GridPart::World, parts, world * count, 1);
                self.sum_into(world, all, output);
            }
            _ => {
                let own = self.staged(GridCollective::ReduceScatter, GridPart::Data, input, count, 1);
                self.run(GridCollective::AllReduce, GridPart::Tensor, own, output, 1);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/mixed/plan.rs"]
mod tests;
