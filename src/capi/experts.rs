//! Experts of a communicator or of a parallel group.

mod halves;

use super::collectives::GroupHandle;
use super::mirror::{Mirrored, nth, value};
use super::report::guard;
use super::tensor::{held, maybe_held, target};
use super::{Communicator, Report};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::experts::{
    Combine, ExpertConfig, Experts, Layout, MethodExplanation, Placement, Received, Routing, ScaleOrder, Survivors,
    Wire,
};
use crate::group::Config;
use crate::op::Held;
use crate::stream::Target;
use bridge::{
    AskedPlacement, AskedReceived, AskedRouting, AskedSums, ExpertSettings, ExplainedMethod, Left, Operand, Queue,
    SentRows, Settings,
};
use halves::{Arriving, Returning, arriving_receive, experts_dispatch_begin, returning_receive, routed_combine_begin};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    /// The experts of a rank.
    struct ExpertsOfRank {
        experts: Vec<usize>,
    }

    /// Mirrors `symmetra::Placement`: a table, or a rule.
    struct AskedPlacement {
        round_robin: bool,
        is_table: bool,
        table: Vec<ExpertsOfRank>,
    }

    /// Mirrors `symmetra::ExpertConfig`.
    struct ExpertSettings {
        experts: usize,
        top_k: usize,
        hidden: usize,
        max_tokens: usize,
        dtype: u32,
        wire: u32,
        scales: u32,
        row_bytes: usize,
        layout: u32,
        align: usize,
        padded_rows: usize,
        method: u32,
        placement: AskedPlacement,
        /// The number of a determinism.
        determinism: MaybeSize,
        capacity: MaybeSize,
        in_flight: usize,
        blocks: MaybeSize,
    }

    /// Mirrors `symmetra::Routing`.
    struct AskedRouting {
        ids: Operand,
        weights: MaybeOperand,
        tokens: MaybeOperand,
    }

    /// Mirrors `symmetra::Received`.
    struct AskedReceived {
        rows: Operand,
        scales: MaybeOperand,
        counts: MaybeOperand,
        offsets: MaybeOperand,
        ids: MaybeOperand,
        weights: MaybeOperand,
        sources: MaybeOperand,
        index: MaybeOperand,
        columns: bool,
    }

    /// The rows that a dispatch sends.
    struct SentRows {
        rows: Operand,
        scales: MaybeOperand,
    }

    /// The output of a combine, with `symmetra::CombineOptions`.
    struct AskedSums {
        output: Operand,
        weighted: bool,
        add: MaybeOperand,
    }

    /// `symmetra::Survivors`, without the experts.
    #[derive(Default)]
    struct Left {
        lost: Vec<usize>,
        ended: u64,
    }

    /// `symmetra::MethodExplanation`.
    struct ExplainedMethod {
        method: u32,
        serves: bool,
        reason: String,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type Communicator = crate::collective::Communicator;
        type GroupHandle = crate::capi::collectives::GroupHandle;
        type MaybeOperand = crate::capi::bridge::MaybeOperand;
        type MaybeSize = crate::capi::bridge::MaybeSize;
        type Operand = crate::capi::bridge::Operand;
        type Settings = crate::capi::bridge::Settings;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        fn expert_backend(settings: &mut ExpertSettings, name: &CxxString, world_size: usize) -> Result<()>;
        fn expert_bytes(world_size: usize, group: &Settings, settings: &ExpertSettings) -> Result<u64>;

        type Experts;
        fn experts_open(group: &GroupHandle, settings: &ExpertSettings) -> Result<Box<Experts>>;
        unsafe fn experts_place(experts: &Experts, placement: &AskedPlacement, queue: Queue) -> Result<()>;
        fn experts_without(experts: &Experts, lost: &[usize], left: &mut Left) -> Result<Box<Experts>>;
        fn experts_communicator(experts: &Experts) -> &Communicator;
        unsafe fn experts_synchronize(experts: &Experts, queue: Queue) -> Result<()>;
        fn experts_local(experts: &Experts) -> Vec<usize>;
        fn experts_capacity(experts: &Experts) -> usize;
        fn experts_method(experts: &Experts) -> u32;
        fn experts_explain(experts: &Experts) -> Vec<ExplainedMethod>;
        unsafe fn experts_plan(experts: &Experts, routing: &AskedRouting, queue: Queue) -> Result<Box<Routed>>;
        unsafe fn experts_dispatch(
            experts: &Experts,
            routing: &AskedRouting,
            sent: &SentRows,
            into: &AskedReceived,
            queue: Queue,
        ) -> Result<Box<Routed>>;

        type Routed;
        unsafe fn routed_dispatch(routed: &Routed, sent: &SentRows, into: &AskedReceived, queue: Queue) -> Result<()>;
        unsafe fn routed_combine(routed: &Routed, rows: &Operand, asked: &AskedSums, queue: Queue) -> Result<()>;
        fn routed_counts(routed: &Routed) -> Result<Vec<usize>>;

        type Arriving;
        unsafe fn experts_dispatch_begin(
            experts: &Experts,
            routing: &AskedRouting,
            sent: &SentRows,
            queue: Queue,
        ) -> Result<Box<Arriving>>;
        unsafe fn arriving_receive(arriving: &Arriving, into: &AskedReceived, queue: Queue) -> Result<Box<Routed>>;

        type Returning;
        unsafe fn routed_combine_begin(routed: &Routed, rows: &Operand, queue: Queue) -> Result<Box<Returning>>;
        unsafe fn returning_receive(returning: &Returning, asked: &AskedSums, queue: Queue) -> Result<()>;
    }
}

impl From<&AskedPlacement> for Placement {
    fn from(asked: &AskedPlacement) -> Self {
        match (asked.is_table, asked.round_robin) {
            (true, _) => Self::Table(asked.table.iter().map(|of_rank| of_rank.experts.clone()).collect()),
            (false, true) => Self::RoundRobin,
            (false, false) => Self::Blocks,
        }
    }
}

impl TryFrom<&ExpertSettings> for ExpertConfig {
    type Error = Error;

    fn try_from(asked: &ExpertSettings) -> Result<Self> {
        let scales = value(asked.scales)?;
        let wires = [Wire::Same, Wire::F8(scales), Wire::GivenF8, Wire::Bytes(asked.row_bytes)];
        let (align, rows) = (asked.align, asked.padded_rows);
        let layouts = [Layout::ByRank, Layout::ByExpert { align }, Layout::Padded { rows }, Layout::BySource];
        Ok(Self {
            dtype: value(asked.dtype)?,
            wire: nth("the number of a Wire", wires, asked.wire)?,
            layout: nth("the number of a Layout", layouts, asked.layout)?,
            method: value(asked.method)?,
            placement: Placement::from(&asked.placement),
            determinism: Mirrored::of_mirror(&asked.determinism)?,
            capacity: Mirrored::of_mirror(&asked.capacity)?,
            in_flight: asked.in_flight,
            blocks: Mirrored::of_mirror(&asked.blocks)?,
            ..Self::new(asked.experts, asked.top_k, asked.hidden, asked.max_tokens)
        })
    }
}

/// Sets the method and the layout of a backend in the settings.
fn expert_backend(settings: &mut ExpertSettings, name: &cxx::CxxString, world_size: usize) -> Result<(), Report> {
    guard(|| {
        let config = ExpertConfig::try_from(&*settings)?.backend(&name.to_string_lossy(), world_size)?;
        settings.method = config.method.mirror();
        match config.layout {
            Layout::ByRank => settings.layout = 0,
            Layout::ByExpert { align } => (settings.layout, settings.align) = (1, align),
            Layout::Padded { rows } => (settings.layout, settings.padded_rows) = (2, rows),
            Layout::BySource => settings.layout = 3,
        }
        Ok(())
    })
}

fn expert_bytes(world_size: usize, group: &Settings, settings: &ExpertSettings) -> Result<u64, Report> {
    guard(|| crate::experts::expert_bytes(world_size, &Config::of_mirror(group)?, &ExpertConfig::try_from(settings)?))
}

fn experts_open(group: &GroupHandle, settings: &ExpertSettings) -> Result<Box<Experts>, Report> {
    guard(|| group.experts(ExpertConfig::try_from(settings)?).map(Box::new))
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn experts_place(experts: &Experts, placement: &AskedPlacement, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue, []) }? {
        Target::Eager(stream) => experts.place(&Placement::from(placement), stream),
        Target::Captured(_) => Err(Error::unsupported("a placement of experts", "a graph cannot place them")),
    })
}

fn experts_without(experts: &Experts, lost: &[usize], left: &mut Left) -> Result<Box<Experts>, Report> {
    guard(|| {
        let Survivors { experts, lost, ended, .. } = experts.without(lost)?;
        *left = Left { lost, ended };
        Ok(Box::new(experts))
    })
}

fn experts_communicator(experts: &Experts) -> &Communicator {
    experts.communicator()
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
unsafe fn experts_synchronize(experts: &Experts, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue, []) }? {
        Target::Eager(stream) => experts.synchronize(stream),
        Target::Captured(_) => Err(Error::unsupported("a wait for the device", "a graph cannot wait")),
    })
}

fn experts_local(experts: &Experts) -> Vec<usize> {
    experts.local_experts()
}

fn experts_capacity(experts: &Experts) -> usize {
    experts.capacity()
}

fn experts_method(experts: &Experts) -> u32 {
    experts.method().mirror()
}

fn experts_explain(experts: &Experts) -> Vec<ExplainedMethod> {
    let explained =
        |MethodExplanation { method, serves, reason }| ExplainedMethod { method: method.mirror(), serves, reason };
    experts.explain().into_iter().map(explained).collect()
}

impl AskedRouting {
    fn operands(&self) -> [&Operand; 3] {
        [&self.ids, &self.weights.operand, &self.tokens.operand]
    }

    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    unsafe fn resolve(&self, device: &Device) -> Result<Routing<'static>> {
        // SAFETY: passed on.
        let mut routing = Routing::of(unsafe { held(device, &self.ids) }?);
        // SAFETY: passed on.
        let maybe = |asked| unsafe { maybe_held(device, asked) };
        routing.weights = maybe(&self.weights)?;
        routing.tokens = maybe(&self.tokens)?;
        Ok(routing)
    }
}

impl SentRows {
    fn operands(&self) -> [&Operand; 2] {
        [&self.rows, &self.scales.operand]
    }

    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    unsafe fn resolve(&self, device: &Device) -> Result<(Held, Option<Held>)> {
        // SAFETY: passed on.
        Ok((unsafe { held(device, &self.rows) }?, unsafe { maybe_held(device, &self.scales) }?))
    }
}

impl AskedReceived {
    fn operands(&self) -> [&Operand; 8] {
        let Self { rows, scales, counts, offsets, ids, weights, sources, index, .. } = self;
        let others = [scales, counts, offsets, ids, weights, sources, index];
        let [scales, counts, offsets, ids, weights, sources, index] = others.map(|asked| &asked.operand);
        [rows, scales, counts, offsets, ids, weights, sources, index]
    }

    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    unsafe fn resolve(&self, device: &Device) -> Result<Received<'static>> {
        // SAFETY: passed on.
        let maybe = |asked| unsafe { maybe_held(device, asked) };
        let order = if self.columns { ScaleOrder::Columns } else { ScaleOrder::Rows };
        // SAFETY: passed on.
        let mut into = Received::of(unsafe { held(device, &self.rows) }?);
        into.scales = maybe(&self.scales)?.map(|scales| (scales, order));
        into.counts = maybe(&self.counts)?;
        into.offsets = maybe(&self.offsets)?;
        into.ids = maybe(&self.ids)?;
        into.weights = maybe(&self.weights)?;
        into.sources = maybe(&self.sources)?;
        into.index = maybe(&self.index)?;
        Ok(into)
    }
}

impl AskedSums {
    fn operands(&self) -> [&Operand; 2] {
        [&self.output, &self.add.operand]
    }

    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    unsafe fn resolve(&self, device: &Device) -> Result<(Held, Combine<'static>)> {
        let mut options = Combine::default();
        options.unweighted = !self.weighted;
        // SAFETY: passed on.
        options.add = unsafe { maybe_held(device, &self.add) }?;
        // SAFETY: passed on.
        Ok((unsafe { held(device, &self.output) }?, options))
    }
}

/// A dispatch, which owns the resources of its experts that it needs.
pub struct Routed(crate::experts::Routed<'static>);

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn experts_plan(experts: &Experts, routing: &AskedRouting, queue: Queue) -> Result<Box<Routed>, Report> {
    guard(|| {
        let operands = routing.operands();
        // SAFETY: passed on.
        let routing = unsafe { routing.resolve(experts.device()) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        Ok(Box::new(Routed(experts.dispatched(&routing, None, queue)?)))
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn experts_dispatch(
    experts: &Experts,
    routing: &AskedRouting,
    sent: &SentRows,
    into: &AskedReceived,
    queue: Queue,
) -> Result<Box<Routed>, Report> {
    guard(|| {
        let operands = [&routing.operands()[..], &sent.operands(), &into.operands()].concat();
        let device = experts.device();
        // SAFETY: passed on.
        let (routing, (rows, scales)) = unsafe { (routing.resolve(device)?, sent.resolve(device)?) };
        // SAFETY: passed on.
        let into = unsafe { into.resolve(device) }?;
        let sends = Some((crate::experts::TokenRows { rows: &rows, scales: scales.as_ref() }, &into));
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        Ok(Box::new(Routed(experts.dispatched(&routing, sends, queue)?)))
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn routed_dispatch(routed: &Routed, sent: &SentRows, into: &AskedReceived, queue: Queue) -> Result<(), Report> {
    guard(|| {
        let operands = [&sent.operands()[..], &into.operands()].concat();
        let device = routed.0.device();
        // SAFETY: passed on.
        let ((rows, scales), into) = unsafe { (sent.resolve(device)?, into.resolve(device)?) };
        let sent = crate::experts::TokenRows { rows: &rows, scales: scales.as_ref() };
        // SAFETY: passed on.
        routed.0.again(sent, &into, unsafe { target(queue, operands) }?)
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn routed_combine(routed: &Routed, rows: &Operand, asked: &AskedSums, queue: Queue) -> Result<(), Report> {
    guard(|| {
        let operands = [&[rows][..], &asked.operands()].concat();
        let device = routed.0.device();
        // SAFETY: passed on.
        let (results, (output, options)) = unsafe { (held(device, rows)?, asked.resolve(device)?) };
        // SAFETY: passed on.
        routed.0.combined(&results, &output, &options, unsafe { target(queue, operands) }?)
    })
}

fn routed_counts(routed: &Routed) -> Result<Vec<usize>, Report> {
    guard(|| routed.0.counts())
}

#[cfg(test)]
#[path = "../../tests/unit/capi/experts.rs"]
mod tests;
