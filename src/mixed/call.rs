//! A call over a grid: its check, its pieces, and its steps one after the other.

use super::choice::Ask;
use super::grid::Part;
use super::known::{KnownPlans, Shape};
use super::mode::{self, MixedMode, MixedOperation};
use super::parts::{self, Rows};
use super::steps::{Plan, Space, Step, Stretch};
use super::{Mixed, MixedOptions, graph_part};
use crate::backend::GroupCalls;
use crate::error::{Error, Result};
use crate::group::{Determinism, MAX_WORLD_SIZE};
use crate::memory::{View, WithView};
use crate::op::{ALL_REDUCE, AllReduceOptions, Apart, Call, Numbers, REDUCE_SCATTER, check_apart, span};
use crate::stream::Target;
use crate::types::{Dtype, Reduction};

/// The arguments of a call, without its mode and its rows.
struct Asked<'a> {
    operation: MixedOperation,
    dtype: Dtype,
    operands: &'a [View<'a>; 2],
    work: &'a View<'a>,
    reduction: Reduction,
}

impl Asked<'_> {
    fn view(&self, stretch: Stretch) -> Result<View<'_>> {
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
        let known = &mut *self.known.lock();
        let recorded = queue.recording().is_some();
        let captured = recorded || (self.sizes.hosts() > 1 && queue.stream().is_capturing()?);
        let work = &self.work;
        let asked =
            Asked { operation, dtype, operands: &operands, work: &work.view_of(), reduction: options.reduction };
        let plans = self.plans(&asked, options, [recorded, captured], known)?;
        self.world.check()?;
        self.world.local().refuse_within(operation)?;
        self.groups.iter().flatten().try_for_each(|group| group.refuse_within(operation))?;
        match queue.recording() {
            Some(recording) => graph_part::record(&self.order, recording),
            None => self.order.lock().order(queue.stream())?,
        }
        let mut steps = plans.iter().flat_map(|plan| &plan.steps);
        self.spread(steps.try_for_each(|step| self.step(step, &asked, queue)))
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

    /// Checks a call and plans it in as many pieces as the workspace requires. Enqueues nothing. `queue`: whether the
    /// call is recorded, and whether it is captured by any API.
    fn plans<'k>(
        &self,
        asked: &Asked<'_>,
        options: MixedOptions<'_>,
        queue: [bool; 2],
        known: &'k mut KnownPlans,
    ) -> Result<&'k [Plan]> {
        let Asked { operation, dtype, operands, .. } = *asked;
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
        check_apart(("the input", spans[0].clone()), ("the output", spans[1].clone()), in_place)?;
        let bytes = rows.most() * dtype.bytes();
        let shape = |mode| Shape { mode, elem_bytes: dtype.bytes(), rows };
        if options.mode != MixedMode::Auto {
            let shape = shape(options.mode);
            let plans = known.of(operation, shape, || self.pieces(operation, shape))?;
            return self.check_plans(asked, shape.mode, plans, queue).map(|()| plans);
        }
        let direct = operands.iter().all(|view| view.place.is_direct());
        let once = self.rounds_once(dtype) || options.reduction == Reduction::Average;
        let mut refused = None;
        // The chosen mode first; if a step of it is not served, the next modes of the built-in table. The result is
        // equal on all ranks, because it depends only on values that are equal on all ranks.
        for mode in self.choices.in_order(Ask { operation, direct, once }, bytes as u64) {
            let shape = shape(mode);
            let plans = known.of(operation, shape, || self.pieces(operation, shape))?;
            match self.check_plans(asked, mode, plans, queue) {
                // The plans are cached by now.
                Ok(()) => return known.of(operation, shape, || self.pieces(operation, shape)),
                Err(error @ Error::Unsupported { .. }) => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::internal(format!("{operation} in no mode was found right"))))
    }

    /// Refuses plans with a step that no backend serves, or that round more often than allowed. Enqueues nothing.
    fn check_plans(&self, asked: &Asked<'_>, mode: MixedMode, plans: &[Plan], queue: [bool; 2]) -> Result<()> {
        let Asked { operation, dtype, reduction, .. } = *asked;
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
            Step::Collective { part, .. } => {
                self.collective(step, asked, |call| self.group(part)?.check_served(call, queue))
            }
            _ => Ok(()),
        })
    }

    /// The rows of each data rank; this rank has `count`.
    fn rows<'r>(&self, rows: Option<&'r [usize]>, count: usize) -> Result<Rows<'r>> {
        let Some(rows) = rows else { return Ok(Rows::Equal(count)) };
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
            own if own == count => Ok(Rows::Of(rows)),
            own => {
                Err(Error::invalid("the length of x or of a slice", count, format!("rows gives this data rank {own}")))
            }
        }
    }

    /// The plans of a call: one if the workspace has room for the whole call, else several. Pieces of equal length can
    /// need unequal workspace: a piece that the tensor ranks do not divide is padded, and a piece of which a data rank
    /// lacks elements is staged. So each piece is cut until it fits. The cuts depend only on values that are equal on
    /// all ranks.
    fn pieces(&self, operation: MixedOperation, Shape { mode, elem_bytes, rows }: Shape<'_>) -> Result<Vec<Plan>> {
        let (at, most) = (self.data_rank(), rows.most());
        let room = self.work.len() / elem_bytes;
        let (mut plans, mut start, mut longest) = (Vec::new(), 0, most);
        loop {
            let len = longest.min(most - start);
            let piece = parts::plan_part((&self.sizes, at), operation, mode, (rows, start, len));
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

    fn group(&self, part: Part) -> Result<&dyn GroupCalls> {
        let group = self.groups[part as usize].as_deref();
        group.ok_or_else(|| Error::internal(format!("{} contains only this rank", part.name())))
    }

    /// Calls `run` with the call of a step that is a collective.
    fn collective(&self, step: &Step, asked: &Asked<'_>, run: impl FnOnce(&Call<'_>) -> Result<()>) -> Result<()> {
        let options = AllReduceOptions { reduction: asked.reduction, ..AllReduceOptions::default() };
        let call = |op, numbers, from, into| {
            let call = Call::new(op, asked.dtype).options(options).numbers(numbers);
            run(&call.input(asked.view(from)?).output(asked.view(into)?))
        };
        match *step {
            Step::Collective { kind, from, into, rows, .. } => {
                let shape = [rows, from.elems / rows];
                call(kind.op(), if rows > 1 { Numbers::Along(1, &shape) } else { Numbers::None }, from, into)
            }
            Step::ReduceApart { groups, from, into, rows } => {
                let apart = Apart { ranks: self.sizes.local() / groups, rows };
                call(&ALL_REDUCE, Numbers::Apart(apart), from, into)
            }
            Step::ReduceShared { groups, from, into } => {
                call(&REDUCE_SCATTER, Numbers::Shared(self.sizes.local() / groups), from, into)
            }
            Step::Sum { .. } | Step::Copy { .. } => {
                Err(Error::internal(format!("the step {step} is not a collective")))
            }
        }
    }

    fn step(&self, step: &Step, asked: &Asked<'_>, queue: Target<'_>) -> Result<()> {
        let local = self.world.local();
        let view = |stretch| asked.view(stretch);
        match *step {
            Step::Copy { from, into } => local.copy_own(asked.dtype, [&view(from)?, &view(into)?], queue),
            Step::Sum { parts, from, into } => {
                local.reduce_own(asked.dtype, asked.reduction, parts, [&view(from)?, &view(into)?], queue)
            }
            Step::ReduceApart { .. } | Step::ReduceShared { .. } => {
                let own = self.group(Part::Local)?.own().ok_or_else(|| {
                    Error::internal("a step that only symmetra kernels have was planned for a group without them")
                })?;
                self.collective(step, asked, |call| own.run(call, queue))
            }
            Step::Collective { part, .. } => self.collective(step, asked, |call| self.group(part)?.run(call, queue)),
        }
    }
}
