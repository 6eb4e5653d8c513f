//! Collectives on two tiers: over grids of tensor and data parallelism, inside hosts and across hosts.
//!
//! A grid gives every rank a tensor rank and a data rank. Each operation runs in one of several modes, which are lists of
//! collectives over groups of the grid: own kernels inside a host, NCCL or Gloo between hosts, as for any
//! [`Coordinator`]. The operations and modes are those of FlashInfer's MixedComm, by steps of our own; docs/mixed.md has the
//! tables.

mod grid;
mod mode;
mod steps;

use std::fmt;

use parking_lot::Mutex;

use super::Coordinator;
use super::over::Over;
use crate::collective::Lane;
use crate::error::{Error, Result};
use crate::group::{Determinism, MAX_WORLD_SIZE};
use crate::memory::{Operand, SymmetricBuffer, View, WithView};
use crate::op::{AllReduceOptions, Call, Numbers, check_apart, span};
use crate::stream::{Enqueue, Queue, Stream};
use crate::types::{Dtype, Element, Reduction};

pub use grid::Grid;
use grid::{Part, Position, Sizes};
pub use mode::{MixedMode, MixedOperation};
use steps::{Plan, Space, Step, Stretch};

/// The largest `most_bytes`: workspaces of all ranks of a world can be counted.
const MOST_BYTES: usize = 1 << 40;

/// The settings of a [`Mixed`], equal on all ranks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MixedConfig {
    /// How ranks and hosts divide. By default all is tensor parallelism.
    pub grid: Grid,
    /// Bytes of the largest `x` or slice. The workspace is made for it.
    pub most_bytes: usize,
}

impl Default for MixedConfig {
    fn default() -> Self {
        Self { grid: Grid::default(), most_bytes: 1 << 20 }
    }
}

/// The settings of a call.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MixedOptions {
    /// How the operation runs.
    pub mode: MixedMode,
    /// How values become one. An average runs in modes that round once.
    pub reduction: Reduction,
}

impl From<MixedMode> for MixedOptions {
    fn from(mode: MixedMode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// Collectives over a grid of tensor and data parallelism.
///
/// All ranks make the same calls in the same order. A call enqueues, unless a step goes through the CPU between hosts: then it
/// blocks, and cannot be captured. Operands are read and written in stream order; calls may change streams, but graphs and
/// eager calls of one `Mixed` belong on one stream. A value is rounded once a step that reduces, and is equal, bit for bit, on
/// all ranks of a tensor group.
pub struct Mixed {
    world: Coordinator,
    sizes: Sizes,
    at: Position,
    /// [part]; none where the group is this rank alone.
    groups: Vec<Option<Over>>,
    /// Groups that were split off, to be closed.
    split: Vec<Coordinator>,
    work: SymmetricBuffer<u8>,
    most_bytes: usize,
    lane: Mutex<Lane>,
}

impl Mixed {
    /// Makes the groups of a grid over the ranks of `world`, which may be numbered in any order, and a workspace from the heap
    /// of the ranks of this host. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where ranks differ in settings; [`Error::InvalidArgument`] for a grid that does not fit the hosts,
    /// with the arithmetic; [`Error::Unsupported`] where hosts have unequal numbers of ranks, with the hosts;
    /// [`Error::OutOfMemory`] for a workspace beyond the heap; else those of [`Coordinator::split`].
    pub fn open(world: &Coordinator, config: &MixedConfig) -> Result<Self> {
        let whole = Over::Coordinator(world.clone());
        whole.agree("the settings of a grid", &format!("{config:?}"))?;
        let hosts = world.origin().hosts.parts(world.ranks());
        let local = hosts[0].len();
        if hosts.iter().any(|ranks| ranks.len() != local) {
            let sizes: Vec<String> = hosts.iter().map(|ranks| ranks.len().to_string()).collect();
            let reason = format!("the hosts have {} ranks", sizes.join(", "));
            return Err(Error::unsupported("a grid over hosts of unequal size", reason));
        }
        let sizes = config.grid.sizes(local, hosts.len())?;
        if config.most_bytes > MOST_BYTES {
            return Err(Error::invalid("most_bytes", config.most_bytes, format!("it may be at most {MOST_BYTES}")));
        }
        let positions = positions(&sizes, &hosts, world.ranks());
        let (mut groups, mut split, mut made) = (Vec::new(), Vec::new(), Vec::<(Vec<usize>, Over)>::new());
        let everyone: Vec<usize> = (0..world.world_size()).collect();
        made.push((layout(&everyone.iter().map(|rank| (0, *rank)).collect::<Vec<_>>()), whole.clone()));
        if hosts.len() > 1 {
            let places: Vec<(usize, usize)> = positions.iter().map(|at| Part::Local.of(&sizes, *at)).collect();
            made.push((layout(&places), Over::Communicator(world.local().clone())));
        }
        for part in Part::ALL {
            if part.size(&sizes) == 1 {
                groups.push(None);
                continue;
            }
            let places: Vec<(usize, usize)> = positions.iter().map(|at| part.of(&sizes, *at)).collect();
            let layout = layout(&places);
            if let Some((_, group)) = made.iter().find(|(known, _)| *known == layout) {
                groups.push(Some(group.clone()));
                continue;
            }
            let (color, key) = places[world.rank()];
            let group = world.split(Some(color as u32), key as i32)?;
            let group = group.ok_or_else(|| Error::Internal { message: "a part of a grid has no group".to_owned() })?;
            split.push(group.clone());
            made.push((layout, Over::Coordinator(group.clone())));
            groups.push(Some(Over::Coordinator(group)));
        }
        let own = || {
            let work = world.local().symmetric::<u8>(work_bytes(&sizes, config.most_bytes))?;
            Ok((work, Mutex::new(Lane::new(world.device())?)))
        };
        let (work, lane) = whole.together("make the workspace of a grid", own())?;
        let at = positions[world.rank()];
        Ok(Self { world: world.clone(), sizes, at, groups, split, work, most_bytes: config.most_bytes, lane })
    }

    /// The operations of this grid.
    pub fn operations(&self) -> Vec<MixedOperation> {
        MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&self.sizes)).collect()
    }

    /// The modes of an operation on this grid, without `Auto`; none if the grid does not have the operation.
    pub fn modes(&self, operation: MixedOperation) -> Vec<MixedMode> {
        let on = |mode: &MixedMode| operation.is_on(&self.sizes) && mode.is_on(&self.sizes, operation);
        MixedMode::ALL.into_iter().filter(on).collect()
    }

    /// This rank's number among the ranks that hold parts of one tensor.
    pub fn tensor_rank(&self) -> usize {
        self.sizes.tensor_rank(self.at)
    }

    /// The number of tensor ranks.
    pub fn tensor_size(&self) -> usize {
        self.sizes.tensor()
    }

    /// This rank's number among the ranks that work on different data.
    pub fn data_rank(&self) -> usize {
        self.sizes.data_rank(self.at)
    }

    /// The number of data ranks.
    pub fn data_size(&self) -> usize {
        self.sizes.data()
    }

    /// The mode that `Auto` stands for, for so many bytes of `x` or of a slice. Equal on all ranks. The crossovers are
    /// estimates from the times of the steps; they have not been measured.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation that this grid does not have.
    pub fn select(&self, operation: MixedOperation, dtype: Dtype, bytes: u64) -> Result<MixedMode> {
        mode::check(&self.sizes, operation, MixedMode::Auto)?;
        Ok(mode::choose(&self.sizes, operation, bytes, self.rounds_once(dtype)))
    }

    /// The steps of an operation in a mode, in words, in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what this grid does not have, with what it has.
    pub fn explain(&self, operation: MixedOperation, mode: MixedMode) -> Result<Vec<String>> {
        mode::check(&self.sizes, operation, mode)?;
        let mode = self.mode(operation, mode, Dtype::F32, self.most_bytes as u64);
        let plan = steps::plan(&self.sizes, operation, mode, self.most_bytes / Dtype::F32.bytes());
        Ok(plan.steps.iter().map(Step::to_string).collect())
    }

    /// Sums `x` of all ranks. `input` and `output` have equal lengths and may be one operand. See [`MixedOperation::AllReduce`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation or a mode that this grid does not have, with what it has, for an average in a
    /// mode that rounds more than once, and for such a mode under [`Determinism::Exact`]; [`Error::InvalidArgument`] for
    /// lengths that do not fit each other, for more than `most_bytes`, and for operands that overlap; else those of the
    /// steps' operations. Nothing is enqueued then.
    pub fn all_reduce<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllReduce, input, output, options, queue)
    }

    /// Gathers `x` of all data ranks: block `d` of `output` is `input` of data rank `d`. See [`MixedOperation::AllGather`].
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn all_gather<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllGather, input, output, options, queue)
    }

    /// Sums slice `d` of the inputs of all ranks on data rank `d`. See [`MixedOperation::ReduceScatter`].
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::ReduceScatter, input, output, options, queue)
    }

    /// Sums `x` over each tensor group and gathers the sums: block `d` of `output` is that of data rank `d`. See
    /// [`MixedOperation::AllReduceAllGather`].
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_all_gather<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllReduceAllGather, input, output, options, queue)
    }

    /// Sums slice `d` of the inputs of all ranks on all ranks with data rank `d`. See
    /// [`MixedOperation::ReduceScatterAllReduce`].
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter_all_reduce<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::ReduceScatterAllReduce, input, output, options, queue)
    }

    /// Runs an operation by its name, for programs that treat all alike.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    pub fn perform<'op, T: Element>(
        &'op self,
        operation: MixedOperation,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(operation, T::DTYPE, [input.view_of(), output.view_of()], options.into(), &queue)
    }

    /// Blocks until all work of `stream` is done, and returns the error of the first group of the grid that failed.
    ///
    /// # Errors
    /// Those of [`Coordinator::synchronize`].
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.world.synchronize(stream)?;
        self.groups.iter().flatten().try_for_each(|group| group.synchronize(stream))
    }

    /// Closes the groups of the grid; the world stays open. Collective; blocks.
    ///
    /// # Errors
    /// The first error of a group that had failed. All groups are closed nevertheless.
    pub fn close(self) -> Result<()> {
        let closed: Vec<Result<()>> = self.split.iter().rev().map(|group| group.clone().close()).collect();
        closed.into_iter().rev().collect()
    }

    fn rounds_once(&self, dtype: Dtype) -> bool {
        dtype.is_float() && self.world.local().group().config().determinism == Determinism::Exact
    }

    fn mode(&self, operation: MixedOperation, mode: MixedMode, dtype: Dtype, bytes: u64) -> MixedMode {
        match mode {
            MixedMode::Auto => mode::choose(&self.sizes, operation, bytes, self.rounds_once(dtype)),
            mode => mode,
        }
    }

    fn run(
        &self,
        operation: MixedOperation,
        dtype: Dtype,
        operands: [View<'_>; 2],
        options: MixedOptions,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let plan = self.plan(operation, dtype, &operands, options)?;
        self.world.check()?;
        // Ahead of what would be recorded: a group whose calls block cannot be captured.
        let captured = queue.recording().is_some();
        for step in &plan.steps {
            if let Step::Collective { kind, part, .. } = *step {
                self.group(part)?.check_served(&Call::new(kind.op(), dtype), captured)?;
            }
        }
        let mut lane = self.lane.lock();
        lane.order_call(queue)?;
        plan.steps.iter().try_for_each(|step| self.step(step, dtype, &operands, options.reduction, queue))
    }

    /// Checks a call and plans it. Enqueues nothing.
    fn plan(
        &self,
        operation: MixedOperation,
        dtype: Dtype,
        operands: &[View<'_>; 2],
        options: MixedOptions,
    ) -> Result<Plan> {
        mode::check(&self.sizes, operation, options.mode)?;
        let [input, output] = operands;
        let device = self.world.device();
        device.check_same("input", input.device)?;
        device.check_same("output", output.device)?;
        // Of input and output, the one that has `x` or a slice once.
        let (scattered, _) = operation.elems(&self.sizes, 1);
        let count = if scattered == 1 { input.elems } else { output.elems };
        let (takes, gives) = operation.elems(&self.sizes, count);
        for (what, view, needed) in [("input", input, takes), ("output", output, gives)] {
            if view.elems != needed {
                let limit =
                    format!("{operation} of {count} elements on {} data ranks takes {needed}", self.data_size());
                return Err(Error::invalid(&format!("the {what}'s length"), view.elems, limit));
            }
        }
        let bytes = count * dtype.bytes();
        if bytes > self.most_bytes {
            let limit = format!("the workspace was made for {} (most_bytes)", self.most_bytes);
            return Err(Error::invalid("the bytes of x or of a slice", bytes, limit));
        }
        let spans = [span(input, dtype), span(output, dtype)];
        let in_place = (operation == MixedOperation::AllReduce).then(|| spans[1].clone());
        check_apart(("the input", spans[0].clone()), ("the output", spans[1].clone()), in_place)?;
        let mode = self.mode(operation, options.mode, dtype, bytes as u64);
        let plan = steps::plan(&self.sizes, operation, mode, count);
        let parts = plan.most_parts();
        if parts > MAX_WORLD_SIZE {
            let reason = format!("the mode sums {parts} parts on a rank, and a kernel takes {MAX_WORLD_SIZE}");
            return Err(Error::unsupported(format!("{operation} by {mode} over {} ranks", self.sizes.world()), reason));
        }
        let roundings = plan.roundings();
        let how = || format!("{operation} ({}) of {dtype} by {mode}", options.reduction);
        if operation.reduces() && roundings > 1 && options.reduction == Reduction::Average {
            let reason = format!("the mode reduces in {roundings} steps, and an average of averages rounds otherwise");
            return Err(Error::unsupported(how(), reason));
        }
        if operation.reduces() && roundings > 1 && self.rounds_once(dtype) {
            let reason = format!("the configuration asks for exact determinism, and the mode rounds {roundings} times");
            return Err(Error::unsupported(how(), reason));
        }
        Ok(plan)
    }

    fn group(&self, part: Part) -> Result<&Over> {
        let group = self.groups[part as usize].as_ref();
        group.ok_or_else(|| Error::Internal { message: format!("{} is this rank alone", part.name()) })
    }

    fn step(
        &self,
        step: &Step,
        dtype: Dtype,
        operands: &[View<'_>; 2],
        reduction: Reduction,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let work = &self.work;
        let work = work.view_of();
        let view = |stretch: Stretch| {
            let range = stretch.start..stretch.start + stretch.elems;
            match stretch.space {
                Space::Input => operands[0].part(range, dtype),
                Space::Output => operands[1].part(range, dtype),
                Space::Work => View {
                    elems: stretch.elems,
                    ..work.part(range.start * dtype.bytes()..range.end * dtype.bytes(), Dtype::U8)
                },
            }
        };
        match *step {
            Step::Copy { from, into } => self.world.local().copy_own(dtype, [&view(from), &view(into)], queue),
            Step::Sum { parts, from, into } => {
                self.world.local().reduce_own((dtype, reduction), parts, [&view(from), &view(into)], queue)
            }
            Step::Collective { kind, part, from, into, rows } => {
                let shape = [rows, from.elems / rows];
                let numbers = if rows > 1 { Numbers::Along(1, &shape) } else { Numbers::None };
                let options = AllReduceOptions { reduction, ..AllReduceOptions::default() };
                let call = Call::new(kind.op(), dtype).options(options).numbers(numbers);
                self.group(part)?.run(&call.input(view(from)).output(view(into)), queue)
            }
        }
    }
}

impl fmt::Debug for Mixed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes { local_tensor, local_data, across_tensor, across_data } = self.sizes;
        let (tensor, data) = (self.tensor_rank(), self.data_rank());
        write!(
            out,
            "Mixed(tensor rank {tensor} of {local_tensor} x {across_tensor}, data rank {data} of {local_data} x {across_data})"
        )
    }
}

/// Where every rank of the world stands.
fn positions(sizes: &Sizes, hosts: &[Vec<usize>], ranks: &[usize]) -> Vec<Position> {
    let place = |rank: &usize| {
        let host = hosts.iter().position(|host| host.contains(rank)).unwrap_or(0);
        let local = hosts[host].iter().position(|other| other == rank).unwrap_or(0);
        sizes.position(host, local)
    };
    ranks.iter().map(place).collect()
}

/// What tells two ways to divide the ranks apart: of every rank, the first rank of its group and its number there.
fn layout(places: &[(usize, usize)]) -> Vec<usize> {
    let first = |color: usize| places.iter().position(|(other, _)| *other == color).unwrap_or(0);
    places.iter().flat_map(|(color, key)| [first(*color), *key]).collect()
}

/// Bytes of workspace for every operation in every mode of so many bytes, of any type.
fn work_bytes(sizes: &Sizes, most_bytes: usize) -> usize {
    let mut most = 0;
    // A count that the ranks do not divide takes room for what makes their shares equal.
    let counts = |bytes: usize| [most_bytes / bytes, (most_bytes / bytes).saturating_sub(1)];
    for operation in MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(sizes)) {
        for mode in MixedMode::ALL.into_iter().filter(|mode| mode.is_on(sizes, operation)) {
            for bytes in [1, 2, 4, 8] {
                for count in counts(bytes) {
                    most = most.max(steps::plan(sizes, operation, mode, count).work * bytes);
                }
            }
        }
    }
    most
}
