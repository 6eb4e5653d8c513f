//! Collectives on two tiers: over grids of tensor and data parallelism, inside hosts and across hosts.
//!
//! A grid gives every rank a tensor rank and a data rank. Each operation runs in one of several modes. A mode is a list
//! of collectives over groups of the grid: symmetra kernels inside a host, NCCL or Gloo between hosts, as for any
//! [`Coordinator`]. Operations and modes are those of FlashInfer's MixedComm; the steps are our own. docs/mixed.md has
//! the tables.

mod call;
mod choice;
mod config;
mod graph_part;
mod grid;
mod known;
mod mode;
mod parts;
mod places;
mod plan;
mod steps;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::GroupCalls;
use crate::choice::Ranges;
use crate::device::Device;
use crate::environment::Coordinator;
use crate::error::{Error, Result};
use crate::group::{Config, Multicast, joined};
use crate::memory::{Operand, SymmetricBuffer, WithView};
use crate::settings::setters;
use crate::stream::{Queue, Stream, StreamOrder, Target};
use crate::types::{Dtype, Element, Reduction, Transport};

use choice::{Ask, ModeChoices};
pub use config::MixedConfig;
pub use grid::Grid;
use grid::{GridPart, GridSizes, Position};
use known::KnownPlans;
pub use mode::{MixedMode, MixedOperation};
use places::{layout, positions, work_bytes};
use steps::GridStep;

/// The settings of a call, equal on all ranks.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MixedOptions<'a> {
    /// How the operation runs.
    pub mode: MixedMode,
    /// The reduction. An average needs a mode that rounds once.
    pub reduction: Reduction,
    /// For data ranks with unequal numbers of tokens: the elements of `x`, or of the slice, of each data rank. The
    /// blocks of the other operand are contiguous. They are staged in the workspace.
    pub rows: Option<&'a [usize]>,
}

setters! { MixedOptions<'a> { mode: MixedMode, reduction: Reduction, rows: Option<&'a [usize]> } }

impl From<MixedMode> for MixedOptions<'_> {
    fn from(mode: MixedMode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// Collectives over a grid of tensor and data parallelism.
///
/// All ranks make the same calls in the same order. A call enqueues, unless a step goes through the CPU between hosts:
/// then it blocks, and cannot be captured. Operands are read and written in stream order. All calls share the
/// workspace, so a call or a graph launch on another stream waits for the previous one. A value is rounded once in each
/// reducing step. Results are bitwise equal on all ranks of a tensor group.
#[must_use = "dropping the grid leaves its groups"]
pub struct Mixed {
    world: Coordinator,
    sizes: GridSizes,
    at: Position,
    /// [part]; none where the group contains only this rank.
    groups: Vec<Option<Arc<dyn GroupCalls>>>,
    /// The groups that were split off, to be closed.
    split: Vec<Coordinator>,
    work: SymmetricBuffer<u8>,
    most_bytes: usize,
    choices: ModeChoices,
    /// The order of eager calls and graph launches. Graphs keep it alive.
    order: Arc<Mutex<StreamOrder>>,
    /// Locked during a call, so that calls run one at a time.
    known: Mutex<KnownPlans>,
}

impl Mixed {
    /// Creates the groups of a grid over the ranks of `world`, which may be numbered in any order, and a workspace from
    /// the heap of the ranks of this host. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where ranks differ in settings; [`Error::InvalidArgument`] for a grid that does not fit the
    /// hosts, with the arithmetic; [`Error::Unsupported`] where hosts have unequal numbers of ranks, with the numbers;
    /// [`Error::OutOfMemory`] for a workspace larger than the free heap; else the errors of [`Coordinator::split`].
    pub fn open(world: &Coordinator, config: &MixedConfig) -> Result<Self> {
        let whole = world.share();
        whole.agree("the settings of a grid", &[("", config)])?;
        let hosts = world.ranks_by_host();
        let local = hosts[0].len();
        if hosts.iter().any(|ranks| ranks.len() != local) {
            let sizes: Vec<String> = hosts.iter().map(|ranks| ranks.len().to_string()).collect();
            let reason = format!("the hosts have {} ranks", sizes.join(", "));
            return Err(Error::unsupported("a grid over hosts of unequal size", reason));
        }
        let sizes = config.sizes(local, hosts.len())?;
        let choices = ModeChoices::new(sizes, world.device().kind(), world.local().group().config().tuning.as_ref())?;
        let positions = positions(&sizes, &hosts, world.ranks());
        let everyone: Vec<(usize, usize)> = (0..world.world_size()).map(|rank| (0, rank)).collect();
        let (mut groups, mut split, mut made) = (Vec::new(), Vec::new(), vec![(layout(&everyone), whole.clone())]);
        if hosts.len() > 1 {
            let places: Vec<(usize, usize)> = positions.iter().map(|at| GridPart::Local.of(&sizes, *at)).collect();
            made.push((layout(&places), world.local().share()));
        }
        for part in GridPart::ALL {
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
            let group = joined(world.split_as(Some(color as u32), key as i32, of_part)?)?;
            made.push((layout, group.share()));
            groups.push(Some(group.share()));
            split.push(group);
        }
        let sums_apart = groups[GridPart::Local as usize].as_ref().is_some_and(|group| group.own().is_some());
        let own = || {
            let work = world.local().symmetric::<u8>(work_bytes(&sizes, config.most_bytes))?;
            Ok((work, Arc::new(Mutex::new(StreamOrder::new(world.device())?))))
        };
        let (work, order) = whole.together("make the workspace of a grid", own())?;
        let at = positions[world.rank()];
        let sizes = GridSizes { sums_apart, ..sizes };
        let (world, most_bytes, known) = (world.clone(), config.most_bytes, Mutex::default());
        Ok(Self { choices, world, sizes, at, groups, split, work, most_bytes, order, known })
    }

    pub(crate) fn device(&self) -> &Device {
        self.world.device()
    }

    /// The operations of this grid.
    pub fn operations(&self) -> Vec<MixedOperation> {
        MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&self.sizes)).collect()
    }

    /// The modes of an operation on this grid, without `Auto`; empty if the grid does not have the operation.
    pub fn modes(&self, operation: MixedOperation) -> Vec<MixedMode> {
        self.choices.modes(operation).to_vec()
    }

    /// The number of this rank among the ranks that hold parts of one tensor.
    pub fn tensor_rank(&self) -> usize {
        self.sizes.tensor_rank(self.at)
    }

    /// The number of tensor ranks.
    pub fn tensor_size(&self) -> usize {
        self.sizes.tensor()
    }

    /// The number of this rank among the ranks that work on different data.
    pub fn data_rank(&self) -> usize {
        self.sizes.data_rank(self.at)
    }

    /// The number of data ranks.
    pub fn data_size(&self) -> usize {
        self.sizes.data()
    }

    /// The mode that `Auto` chooses for a sum of `bytes` bytes of `x` or of a slice. The choice comes from the tuning
    /// of the communicator ([`Config::tuning`](crate::Config::tuning)) if the tuning has measured this grid, else
    /// from the built-in table. `direct`: whether peers can address input and output. A call takes another mode if no
    /// backend serves a step of the chosen mode. Equal on all ranks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation that this grid does not have.
    pub fn select(&self, operation: MixedOperation, dtype: Dtype, direct: bool, bytes: u64) -> Result<MixedMode> {
        mode::check(&self.sizes, operation, MixedMode::Auto)?;
        Ok(self.choices.choose(Ask { operation, direct, once: self.rounds_once(dtype) }, bytes))
    }

    /// The choices of `Auto` by bytes of `x` or of a slice, smallest first, with reasons. The last range ends with
    /// `u64::MAX`.
    ///
    /// # Errors
    /// The errors of [`select`](Self::select).
    pub fn choices(&self, operation: MixedOperation, dtype: Dtype, direct: bool) -> Result<Ranges<MixedMode>> {
        mode::check(&self.sizes, operation, MixedMode::Auto)?;
        Ok(self.choices.ranges(Ask { operation, direct, once: self.rounds_once(dtype) }))
    }

    /// Describes the steps of an operation in a mode, in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation or a mode that this grid does not have; the message lists the supported
    /// values.
    pub fn explain(&self, operation: MixedOperation, mode: MixedMode) -> Result<Vec<String>> {
        mode::check(&self.sizes, operation, mode)?;
        let mode = match mode {
            MixedMode::Auto => self.select(operation, Dtype::F32, true, self.most_bytes as u64)?,
            mode => mode,
        };
        let plan = plan::plan(&self.sizes, operation, mode, self.most_bytes / Dtype::F32.bytes());
        Ok(plan.steps.iter().map(GridStep::to_string).collect())
    }

    /// Reduces `x` of all ranks, by a sum unless [`MixedOptions::reduction`] names another reduction. `input` and
    /// `output` have equal lengths and may be one operand. See [`MixedOperation::AllReduce`]. Enqueues and returns;
    /// blocks if a step goes through the CPU between hosts.
    ///
    /// A call with the same lengths, type and mode as the last call of its operation allocates nothing, unless `Auto`
    /// has to skip a mode that no backend serves.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation or a mode that this grid does not have (the message lists the
    /// supported values); for an average in a mode that rounds more than once; for such a mode under [`crate::Determinism::Exact`];
    /// and for a step that no backend serves, or not by the configured transport. [`Error::InvalidArgument`] for
    /// lengths that do not fit each other, for operands that overlap, and for a message of which not even the smallest
    /// piece fits the workspace. Else the errors of the operations of the steps. Nothing is enqueued after an error.
    pub fn all_reduce<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllReduce, input, output, options, queue)
    }

    /// Gathers `x` of all data ranks: block `d` of `output` is `input` of data rank `d`. See [`MixedOperation::AllGather`].
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_gather<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllGather, input, output, options, queue)
    }

    /// Sums slice `d` of the inputs of all ranks on data rank `d`. See [`MixedOperation::ReduceScatter`].
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::ReduceScatter, input, output, options, queue)
    }

    /// Sums `x` over each tensor group and gathers the sums: block `d` of `output` is the sum of data rank `d`. See
    /// [`MixedOperation::AllReduceAllGather`].
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_all_gather<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::AllReduceAllGather, input, output, options, queue)
    }

    /// Sums slice `d` of the inputs of all ranks on all ranks with data rank `d`. See
    /// [`MixedOperation::ReduceScatterAllReduce`].
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter_all_reduce<'op, T: Element>(
        &'op self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.perform(MixedOperation::ReduceScatterAllReduce, input, output, options, queue)
    }

    /// Runs the operation that `operation` names, for programs that treat all operations alike.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn perform<'op, T: Element>(
        &'op self,
        operation: MixedOperation,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: impl Into<MixedOptions<'op>>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(operation, T::DTYPE, [input.view_of(), output.view_of()], options.into(), Target::of(&queue))
    }

    /// Blocks until all work of `stream` is done, and returns the error of the first group of the grid that failed. All
    /// groups of the grid, including the world, are aborted after a failure.
    ///
    /// # Errors
    /// The errors of [`Coordinator::synchronize`].
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        let groups = || self.groups.iter().flatten().try_for_each(|group| group.synchronize(stream));
        self.spread(self.world.synchronize(stream).and_then(|()| groups()))
    }

    /// Closes the groups of the grid; the world stays open. Collective; blocks.
    ///
    /// # Errors
    /// The first error of a group that had failed. All groups are closed nevertheless. [`Error::Unsupported`] in a user
    /// callback that runs inside a call of one of these groups; nothing is closed in this case.
    pub fn close(self) -> Result<()> {
        self.may_close()?;
        self.close_groups()
    }

    /// Refuses to close in a user callback that runs inside a call of a group, and in a forked child. Runs before
    /// anything is closed.
    pub(crate) fn may_close(&self) -> Result<()> {
        self.world.device().check_process("a grid")?;
        self.split.iter().try_for_each(|group| group.local().refuse_within("closing"))
    }

    pub(crate) fn close_groups(&self) -> Result<()> {
        let closed: Vec<Result<()>> = self.split.iter().rev().map(|group| group.clone().close()).collect();
        closed.into_iter().rev().collect()
    }
}

/// The settings of a group that a grid splits off. Such a group never receives symmetric or registered operands, so
/// heap, multicast and direct access are disabled. Its steps accept any device memory.
fn of_part(config: &mut Config) {
    (config.multicast, config.heap_bytes) = (Multicast::Off, 0);
    if matches!(config.transport, Transport::Direct | Transport::Multicast) {
        config.transport = Transport::Auto;
    }
}

impl fmt::Debug for Mixed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GridSizes { local_tensor, local_data, across_tensor, across_data, .. } = self.sizes;
        let (tensor, data) = (self.tensor_rank(), self.data_rank());
        write!(
            out,
            "Mixed(tensor rank {tensor} of {local_tensor} x {across_tensor}, data rank {data} of {local_data} x {across_data})"
        )
    }
}
