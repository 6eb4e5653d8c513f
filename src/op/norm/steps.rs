//! The steps of a norm where no kernel both sums and norms: collectives of rows, and kernels that run on this rank only.
//! Every backend runs the collectives in its own way.

use crate::error::{Error, Result};
use crate::memory::{Place, View};
use crate::op::{ALL_GATHER, BROADCAST, Call, CheckedShape, Cut, Held, NormRows, Numbers, REDUCE};

/// One step.
pub(crate) enum NormStep<'a> {
    /// A collective of all ranks.
    Collective(Call<'a>, CheckedShape),
    /// A kernel that runs on this rank only, and the operands of the norm of which the kernel is a part.
    Local(LocalRows<'a>, &'a NormRows),
}

/// Rows on this rank, and the operands of the kernel that processes them.
pub(crate) struct LocalRows<'a> {
    /// The rows, or only the first row.
    pub(crate) input: View<'a>,
    /// Elements from one row to the next.
    pub(crate) pitch: usize,
    pub(crate) count: usize,
    pub(crate) residual: Option<View<'a>>,
    /// Receives the rows with the residual.
    pub(crate) kept: Option<View<'a>>,
    /// Whether the rows are normed into the outputs of the call.
    pub(crate) finishes: bool,
}

/// The steps of one call.
pub(crate) struct NormSteps<'a> {
    call: &'a Call<'a>,
    rows: &'a NormRows,
    shape: CheckedShape,
    /// Rows of this rank's share; all rows if the operation does not scatter.
    share: usize,
    /// This rank's share of the output; the whole output if ranks do not gather it.
    own: Option<View<'a>>,
    /// Where collectives leave the sum.
    place: View<'a>,
    /// Elements from one summed row to the next.
    pitch: usize,
}

impl<'a> Call<'a> {
    /// The steps of a checked norm. They leave the sum in the output, or in residual_out if that is not the residual. Rows
    /// of a padded output have gaps, so each row is a separate collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no output can hold the sum.
    pub(crate) fn steps(&'a self, rows: &'a NormRows, shape: &CheckedShape) -> Result<NormSteps<'a>> {
        let (hidden, width) = (rows.hidden(), rows.width());
        let share = shape.cut.part_elems().unwrap_or(0) / hidden;
        let own = self.output.as_ref().map(|output| match self.op.gathers_rows() {
            true => output.part(shape.rank * share * width..(shape.rank + 1) * share * width, self.dtype),
            false => Ok(output.clone()),
        });
        let own = own.transpose()?;
        if self.op.gathers_rows() && rows.quantised.is_some() && own.is_none() {
            let reason = "the rows of all ranks need a place: ask for an output";
            return Err(Error::unsupported(
                "a norm of gathered rows that writes quantised values and no output",
                reason,
            ));
        }
        // Without rows, writing over the residual changes nothing.
        let kept = rows.residual_out.as_ref().map(Held::view).filter(|_| share == 0 || !rows.is_over_residual());
        let (place, pitch) = match (&own, kept) {
            (Some(own), _) if width == hidden => (own.clone(), hidden),
            (_, Some(kept)) => (kept, hidden),
            (Some(own), None) => (own.clone(), width),
            (None, None) => {
                let reason = "the sum needs a place: ask for an output, or for a residual_out that is not the residual";
                let what = match rows.residual_out {
                    Some(_) => "a norm that writes over its residual, and no output",
                    None => "a norm that writes quantised values alone",
                };
                return Err(Error::unsupported(what, reason));
            }
        };
        Ok(NormSteps { call: self, rows, shape: *shape, share, own, place, pitch })
    }
}

impl<'a> NormSteps<'a> {
    /// Whether the outputs have a contiguous place for the sum of all rows, so that one collective makes the sum.
    pub(crate) fn is_one_sum(&self) -> bool {
        self.pitch == self.rows.hidden()
    }

    /// The steps, if the sum of all rows has a contiguous place.
    pub(crate) fn in_one_sum(self) -> Result<Self> {
        if self.is_one_sum() {
            return Ok(self);
        }
        let reason = "the sum needs a place in one piece: ask for a residual_out that is not the residual";
        Err(Error::unsupported("a norm with a wider output alone", reason))
    }

    /// Runs all steps, in order.
    pub(crate) fn each(&self, mut run: impl FnMut(NormStep<'_>) -> Result<()>) -> Result<()> {
        self.reduce(&mut run)?;
        let (residual, kept) = (self.residual(), self.kept());
        let (input, pitch, count) = (self.place.clone(), self.pitch, self.share);
        if !self.call.op.gathers_rows() {
            return run(self.local(LocalRows { input, pitch, count, residual, kept, finishes: true }));
        }
        if kept.is_some() {
            run(self.local(LocalRows { input, pitch, count, residual, kept, finishes: false }))?;
        }
        let (Some(output), Some(own)) = (&self.call.output, &self.own) else { return Ok(()) };
        match self.rows.width() == self.rows.hidden() {
            true => self.gather(output, &mut run),
            false => self.gather_by_row(output, own, &mut run),
        }?;
        let (pitch, count) = (self.rows.width(), self.all());
        let input = output.clone();
        run(self.local(LocalRows { input, pitch, count, residual: None, kept: None, finishes: true }))
    }

    fn local<'b>(&self, rows: LocalRows<'b>) -> NormStep<'b>
    where
        'a: 'b,
    {
        NormStep::Local(rows, self.rows)
    }

    fn residual(&self) -> Option<View<'a>> {
        self.rows.residual.as_ref().map(Held::view)
    }

    fn kept(&self) -> Option<View<'a>> {
        self.rows.residual_out.as_ref().map(Held::view)
    }

    /// Rows of the input.
    fn all(&self) -> usize {
        self.call.elems() / self.rows.hidden()
    }

    /// Writes the sum of all rows, or of this rank's share, to its place.
    fn reduce(&self, run: &mut impl FnMut(NormStep<'_>) -> Result<()>) -> Result<()> {
        let call = Call::new(self.call.op, self.call.dtype).options(self.call.options).numbers(self.call.numbers);
        if self.is_one_sum() || self.share == 0 {
            let call = call.input(self.call.input.clone()).output(self.place.clone());
            return run(NormStep::Collective(call, self.shape));
        }
        let Some(input) = &self.call.input else { return Ok(()) };
        let op = if call.op.scatters_rows() { &REDUCE } else { call.op };
        (0..self.all()).try_for_each(|number| {
            let (from, into) = (self.row(input, number, self.rows.hidden())?, number % self.share);
            let call = Call { op, numbers: Numbers::Row(self.rows, self.all()), ..call.clone() }
                .input(from)
                .output(self.row(&self.place, into, self.pitch)?);
            run(self.of_row(call, number))
        })
    }

    /// Gathers the rows of x of all ranks contiguously.
    fn gather(&self, output: &View<'a>, run: &mut impl FnMut(NormStep<'_>) -> Result<()>) -> Result<()> {
        let from = self.kept().unwrap_or_else(|| self.place.clone());
        if let (None, Some(residual)) = (self.kept(), self.residual()) {
            run(self.local(LocalRows {
                input: from.clone(),
                pitch: self.pitch,
                count: self.share,
                residual: Some(residual),
                kept: Some(from.clone()),
                finishes: false,
            }))?;
        }
        let call = Call::new(&ALL_GATHER, self.call.dtype).input(from).output(output.clone());
        run(NormStep::Collective(call, self.shape))
    }

    /// Gathers the rows of x of all ranks with gaps between rows. This rank first copies its own rows to their places, then
    /// broadcasts each row.
    fn gather_by_row(
        &self,
        output: &View<'a>,
        own: &View<'a>,
        run: &mut impl FnMut(NormStep<'_>) -> Result<()>,
    ) -> Result<()> {
        let (hidden, width) = (self.rows.hidden(), self.rows.width());
        let (kept, residual) = (self.kept(), self.residual());
        for number in 0..self.share {
            let into = self.row(own, number, width)?;
            let (input, residual) = match (&kept, &residual) {
                (Some(kept), _) => (self.row(kept, number, hidden)?, None),
                (None, Some(residual)) => (into.clone(), Some(self.row(residual, number, hidden)?)),
                (None, None) => break,
            };
            let (kept, pitch) = (Some(into), hidden);
            run(self.local(LocalRows { input, pitch, count: 1, residual, kept, finishes: false }))?;
        }
        (0..self.all()).try_for_each(|number| {
            let call = Call::new(&BROADCAST, self.call.dtype).numbers(Numbers::None);
            run(self.of_row(call.output(self.row(output, number, width)?), number))
        })
    }

    /// The collective of one row, whose root is its owner.
    fn of_row<'b>(&self, call: Call<'b>, number: usize) -> NormStep<'b> {
        let (parameter, cut) = (number / self.share, Cut::line(self.rows.hidden(), self.shape.world));
        NormStep::Collective(call.parameter(parameter), CheckedShape { parameter, cut, ..self.shape })
    }

    /// A row of an operand whose rows are `pitch` elements apart.
    fn row(&self, view: &View<'a>, number: usize, pitch: usize) -> Result<View<'a>> {
        let row = view.part(number * pitch..number * pitch + self.rows.hidden(), self.call.dtype)?;
        // A graph can register only a limited number of addresses, and there may be many rows.
        let place = if row.place == Place::Part { Place::Pushed } else { row.place };
        Ok(View { place, ..row })
    }
}
