//! A call over a grid: its check, its pieces, and its steps one after the other.

use super::choice::Ask;
use super::grid::GridPart;
use super::known::{KnownPlans, PlanKey};
use super::mode::{self, MixedMode, MixedOperation};
use super::parts::{self, DataRows};
use super::plan::GridPlan;
use super::steps::{ElementRange, GridStep, Space};
use super::{Mixed, MixedOptions, graph_part};
use crate::backend::GroupCalls;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::group::{Determinism, MAX_WORLD_SIZE};
use crate::memory::{View, WithView};
use crate::op::{ALL_REDUCE, AllReduceOptions, Apart, Call, NamedSpan, Numbers, Op, REDUCE_SCATTER, check_apart, span};
use crate::stream::Target;
use crate::types::{Dtype, Reduction};

/// The arguments of a call, without its mode and its rows.
struct GridCall<'a> {
    operation: MixedOperation,
    dtype: Dtype,
    operands: &'a [View<'a>; 2],
    work: &'a View<'a>,
    reduction: Reduction,
}

impl GridCall<'_> {
    /// The call of a step that is a collective.
    fn call<'s>(
        &'s self,
        op: &'static Op,
        numbers: Numbers<'s>,
        from: ElementRange,
        into: ElementRange,
    ) -> Result<Call<'s>> {
        let options = AllReduceOptions { reduction: self.reduction, ..AllReduceOptions::default() };
        let call = Call::new(op, self.dtype).options(options).numbers(numbers);
        Ok(call.input(self.view(from)?).output(self.view(into)?))
    }

    fn view(&self, stretch: ElementRange) -> Result<View<'_>> {
        let (range, dtype) = (stretch.start..stretch.start + stretch.elems, self.dtype);
        match stretch.space {
            Space::Input => self.operands[0].part(range, dtype),
            Space::Output => self.operands[1].part(range, dtype),
            Space::Work => Ok(View {
                elems: stretch.elems,
                ..self.work.part(range.start * dtype.bytes()..range.end * dtype.bytes(), Dtype::U8)?
            }),
        }
    }
}

/// The arguments of a collective along the second dimension of a tensor; none for a tensor of one row.
fn along(shape: &[usize; 2]) -> Numbers<'_> {
    if shape[0] > 1 { Numbers::Along(1, shape) } else { Numbers::None }
}

impl Mixed {
    pub(super) fn rounds_once(&self, dtype: Dtype) -> bool {
        dtype.is_float() && self.world.local().group().config().determinism == Determinism::Exact
    }

    /// Runs a call. The caller has checked its types and lifetimes.
    pub(crate) fn run(
        &self,
        operation: MixedOperation,
        dtype: Dtype,
        operands: [View<'_>; 2],
        options: MixedOptions<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        // Before the lock, because another thread may hold the lock and wait for the call whose callback makes this call.
        self.world.local().refuse_within(operation)?;
        self.groups.iter().flatten().try_for_each(|group| group.refuse_within(operation))?;
        let known = &mut *self.known.lock();
        let recorded = queue.recording().is_some();
        let captured = recorded || (self.sizes.hosts() > 1 && queue.stream().is_capturing()?);
        let work = &self.work;
        let asked =
            GridCall { operation, dtype, operands: &operands, work: &work.view_of(), reduction: options.reduction };
        let plans = self.plans(&asked, options, recorded, captured, known)?;
        self.world.check()?;
        match queue.recording() {
            Some(recording) => graph_part::record(&self.order, recording),
            None => self.order.lock().order(queue.stream())?,
        }
        let mut steps = plans.iter().flat_map(|plan| &plan.steps);
        let enqueued = steps.try_for_each(|step| self.step(step, &asked, queue));
        let ended = if recorded { Ok(()) } else { self.order.lock().end_on(queue.stream()) };
        self.spread(enqueued.and(ended))
    }

    /// Aborts all groups of the grid when one has failed: a rank that shares no group with the lost rank waits for a
    /// rank that does share one.
    pub(super) fn spread(&self, result: Result<()>) -> Result<()> {
        let groups = || self.groups.iter().flatten();
        if let Err(error) = &result
            && (self.world.check().is_err() || groups().any(|group| group.check().is_err()))
        {
            let reason = error.to_string();
            self.world.abort(&reason);
            groups().for_each(|group| group.abort(&reason));
        }
        result
    }

    /// Checks a call and plans it in as many pieces as the workspace requires. Enqueues nothing. `captured`: whether any API
    /// captures the call.
    fn plans<'k>(
        &self,
        asked: &GridCall<'_>,
        options: MixedOptions<'_>,
        recorded: bool,
        captured: bool,
        known: &'k mut KnownPlans,
    ) -> Result<&'k [GridPlan]> {
        let GridCall { operation, dtype, operands, .. } = *asked;
        mode::check(&self.sizes, operation, options.mode)?;
        let [input, output] = operands;
        let device = self.world.device();
        device.check_same("input", input.device)?;
        device.check_same("output", output.device)?;
        output.check_writable("the output")?;
        // The operand that holds `x`, or one slice.
        let (scattered, _) = operation.elems(&self.sizes, 1);
        let count = if scattered == 1 { input.elems } else { output.elems };
        let rows = self.rows(options.rows, count)?;
        let (takes, gives) = operation.elems_of(&self.sizes, rows, self.data_rank());
        for (what, view, needed) in [("input", input, takes), ("output", output, gives)] {
            if view.elems != needed {
                let limit =
                    format!("{operation} of {count} elements on {} data ranks takes {needed}", self.data_size());
                return Err(Error::invalid(&format!("the {what}'s length"), view.elems, limit));
            }
        }
        let spans = [span(input, dtype), span(output, dtype)];
        let in_place = (operation == MixedOperation::AllReduce).then(|| spans[1].clone());
        let [from, into] = spans;
        check_apart(NamedSpan::new("the input", from), NamedSpan::new("the output", into), in_place)?;
        let bytes = rows.most() * dtype.bytes();
        let shape = |mode| PlanKey { mode, elem_bytes: dtype.bytes(), rows };
        if options.mode != MixedMode::Auto {
            let shape = shape(options.mode);
            let plans = known.of(operation, shape, || self.pieces(operation, shape))?;
            return self.check_plans(asked, shape.mode, plans, recorded, captured).map(|()| plans);
        }
        let direct = operands.iter().all(|view| view.place.is_direct());
        let once = self.rounds_once(dtype) || options.reduction == Reduction::Average;
        let mut refused = None;
        // The chosen mode first; if a step of it is not served, the next modes of the built-in table. The result is
        // equal on all ranks, because it depends only on values that are equal on all ranks.
        for mode in self.choices.in_order(Ask { operation, direct, once }, bytes as u64) {
            let shape = shape(mode);
            let plans = known.of(operation, shape, || self.pieces(operation, shape))?;
            match self.check_plans(asked, mode, plans, recorded, captured) {
                // The plans are cached by now.
                Ok(()) => return known.of(operation, shape, || self.pieces(operation, shape)),
                Err(error @ Error::Unsupported { .. }) => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::unsupported(operation.to_string(), "the grid has no mode of it")))
    }

    /// Refuses plans with a step that no backend serves, or that round more often than allowed. Enqueues nothing.
    fn check_plans(
        &self,
        asked: &GridCall<'_>,
        mode: MixedMode,
        plans: &[GridPlan],
        recorded: bool,
        captured: bool,
    ) -> Result<()> {
        let GridCall { operation, dtype, reduction, .. } = *asked;
        // All pieces have equal sums and roundings.
        let Some(plan) = plans.first() else { return Ok(()) };
        let parts = plan.most_parts();
        if parts > MAX_WORLD_SIZE {
            let reason = format!("the mode sums {parts} parts on a rank, and a kernel takes {MAX_WORLD_SIZE}");
            return Err(Error::unsupported(format!("{operation} by {mode} over {} ranks", self.sizes.world()), reason));
        }
        let roundings = plan.roundings();
        let how = || format!("{operation} ({reduction}) of {dtype} by {mode}");
        if operation.reduces() && roundings > 1 && reduction == Reduction::Average {
            let reason = format!("the mode reduces in {roundings} steps, and an average of averages rounds otherwise");
            return Err(Error::unsupported(how(), reason));
        }
        if operation.reduces() && roundings > 1 && self.rounds_once(dtype) {
            let reason = format!("the configuration asks for exact determinism, and the mode rounds {roundings} times");
            return Err(Error::unsupported(how(), reason));
        }
        // Steps of pieces can differ: a part that is staged in one piece is an operand of the caller in another.
        plans.iter().flat_map(|plan| &plan.steps).try_for_each(|step| match *step {
            GridStep::Collective { kind, part, from, into, rows } => {
                let shape = [rows, from.elems / rows];
                let call = asked.call(kind.op(), along(&shape), from, into)?;
                self.group(part)?.check_served(&call, recorded, captured)
            }
            _ => Ok(()),
        })
    }

    /// The rows of each data rank; this rank has `count`.
    fn rows<'r>(&self, rows: Option<&'r [usize]>, count: usize) -> Result<DataRows<'r>> {
        let Some(rows) = rows else { return Ok(DataRows::Equal(count)) };
        if rows.len() != self.data_size() {
            return Err(Error::invalid(
                "the length of rows",
                rows.len(),
                format!("there are {} data ranks", self.data_size()),
            ));
        }
        if rows.iter().try_fold(0usize, |sum, rows| sum.checked_add(*rows)).is_none() {
            return Err(Error::invalid("rows", format!("{rows:?}"), "their sum exceeds the largest length"));
        }
        match rows[self.data_rank()] {
            own if own == count => Ok(DataRows::Of(rows)),
            own => {
                Err(Error::invalid("the length of x or of a slice", count, format!("rows gives this data rank {own}")))
            }
        }
    }

    /// The plans of a call: one if the workspace has room for the whole call, else several. Pieces of equal length can
    /// need unequal workspace: a piece that the tensor ranks do not divide is padded, and a piece of which a data rank
    /// lacks elements is staged. So each piece is cut until it fits. The cuts depend only on values that are equal on
    /// all ranks.
    fn pieces(
        &self,
        operation: MixedOperation,
        PlanKey { mode, elem_bytes, rows }: PlanKey<'_>,
    ) -> Result<Vec<GridPlan>> {
        let (at, most) = (self.data_rank(), rows.most());
        let room = self.work.len() / elem_bytes;
        let (mut plans, mut start, mut longest) = (Vec::new(), 0, most);
        loop {
            let len = longest.min(most - start);
            let piece = parts::plan_part(&self.sizes, at, operation, mode, rows, start, len);
            if piece.work <= room {
                plans.push(piece);
                start += len;
                if start == most {
                    return Ok(plans);
                }
            } else if let Some(shorter) = parts::shorter(len) {
                longest = shorter;
            } else {
                let limit = format!(
                    "a piece takes {} bytes of workspace, which was made for {} (most_bytes) and has {}",
                    piece.work * elem_bytes,
                    self.most_bytes,
                    self.work.len()
                );
                return Err(Error::invalid("the bytes of x or of a slice", most * elem_bytes, limit));
            }
        }
    }

    fn group(&self, part: GridPart) -> Result<&dyn GroupCalls> {
        let group = self.groups[part as usize].as_deref();
        group.ok_or_else(|| Error::internal(format!("{} contains only this rank", part.name())))
    }

    /// The communicator of the host, whose kernels alone sum the tensor groups of the host separately.
    fn sums_apart(&self) -> Result<&Communicator> {
        let reason = "only symmetra kernels have it, and they do not serve the group";
        let refusal = || Error::unsupported("a sum of the tensor groups of a host", reason);
        self.group(GridPart::Local)?.own().ok_or_else(refusal)
    }

    fn step(&self, step: &GridStep, asked: &GridCall<'_>, queue: Target<'_>) -> Result<()> {
        let local = self.world.local();
        let view = |stretch| asked.view(stretch);
        match *step {
            GridStep::Copy { from, into } => local.copy_own(asked.dtype, &view(from)?, &view(into)?, queue),
            GridStep::Sum { parts, from, into } => {
                local.reduce_own(asked.dtype, asked.reduction, parts, &view(from)?, &view(into)?, queue)
            }
            GridStep::ReduceApart { groups, from, into, rows } => {
                let apart = Numbers::Apart(Apart { ranks: self.sizes.local() / groups, rows });
                self.sums_apart()?.run(&asked.call(&ALL_REDUCE, apart, from, into)?, queue)
            }
            GridStep::ReduceShared { groups, from, into } => {
                let shared = Numbers::Shared(self.sizes.local() / groups);
                self.sums_apart()?.run(&asked.call(&REDUCE_SCATTER, shared, from, into)?, queue)
            }
            GridStep::Collective { kind, part, from, into, rows } => {
                let shape = [rows, from.elems / rows];
                self.group(part)?.run(&asked.call(kind.op(), along(&shape), from, into)?, queue)
            }
        }
    }
}
