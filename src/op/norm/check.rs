//! The check of a norm: its rows, and its operands other than input and output.

use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::kernel::args::{kMostHidden as MOST_HIDDEN, kMostWidth as MOST_WIDTH};
use crate::memory::View;
use crate::op::quantise::unneeded;
use crate::op::{Algorithm, Call, Held, NamedSpan, Norm, NormRows, Size, check_apart, span};
use crate::types::Dtype;

/// An operand of rows, with its name in messages.
type NormOperand<'a> = (&'static str, View<'a>, Dtype);

fn named<'a>(what: &'static str, held: &'a Held) -> NormOperand<'a> {
    (what, held.view(), held.dtype)
}

/// Refuses rows that no norm supports. `hidden` and `width` are the elements of a row and of an output row.
pub(crate) fn check_lengths(hidden: usize, width: usize) -> Result<()> {
    if hidden == 0 || hidden > MOST_HIDDEN as usize {
        return Err(Error::invalid("the weight's length", hidden, format!("a row has 1 to {MOST_HIDDEN} elements")));
    }
    if width < hidden || width > MOST_WIDTH as usize {
        let limit = format!("a row has {hidden} elements, and an output row at most {MOST_WIDTH}");
        return Err(Error::invalid("the width of an output row", width, limit));
    }
    Ok(())
}

impl NormRows {
    /// Refuses a bias that the norm has not, or that is not like the weight.
    fn check_bias(&self, operation: Operation) -> Result<()> {
        let Some(bias) = &self.bias else { return Ok(()) };
        let weight = self.weight.dtype;
        if !matches!(self.norm, Norm::Layer(_)) {
            return Err(Error::unsupported(
                format!("{operation} by RMSNorm with a bias"),
                "LayerNorm alone has a bias",
            ));
        }
        if bias.dtype != weight {
            let reason = format!("the bias has the type of the weight, {weight}");
            return Err(Error::unsupported(format!("{operation} with a bias of {}", bias.dtype), reason));
        }
        match bias.elems == self.hidden() {
            true => Ok(()),
            false => Err(Error::invalid("the bias's length", bias.elems, format!("the weight's is {}", self.hidden()))),
        }
    }
}

impl Call<'_> {
    /// Checks a norm, and returns how many elements of the sum this rank has.
    pub(in crate::op) fn check_norm(
        &self,
        rows: &NormRows,
        rank: usize,
        world: usize,
        device: &Device,
    ) -> Result<usize> {
        let (operation, weight) = (self.op.operation, rows.weight.dtype);
        if !self.op.dtypes().contains(&self.dtype) {
            let names: Vec<_> = self.op.dtypes().iter().map(|dtype| dtype.name()).collect();
            let reason = format!("its rows are {}", names.join(", "));
            return Err(Error::unsupported(format!("{operation} of {}", self.dtype), reason));
        }
        if weight != self.dtype && weight != Dtype::F32 {
            let reason = format!("the weight of rows of {} is {} or f32", self.dtype, self.dtype);
            return Err(Error::unsupported(format!("{operation} with a weight of {weight}"), reason));
        }
        let (hidden, width, epsilon) = (rows.hidden(), rows.width(), rows.norm.epsilon());
        check_lengths(hidden, width)?;
        if epsilon.is_nan() || epsilon < 0.0 {
            return Err(Error::invalid("epsilon", epsilon, "it must be a number of at least 0"));
        }
        rows.check_bias(operation)?;
        let input = self.input.as_ref().ok_or_else(|| self.missing("input"))?;
        if !input.elems.is_multiple_of(hidden) {
            let limit = format!("it must be a multiple of the weight's length, {hidden}");
            return Err(Error::invalid("the input's length", input.elems, limit));
        }
        let (count, scatters) = (input.elems / hidden, self.op.scatters_rows());
        if scatters && !count.is_multiple_of(world) {
            let limit = format!("it must be a multiple of the world size, {world}");
            return Err(Error::invalid("the number of rows", count, limit));
        }
        let named = self.options.algorithm;
        if scatters && named != Algorithm::Auto && !named.norms(self.op) {
            let served = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.norms(self.op));
            let reason = format!("its algorithms are {}", served.map(Algorithm::name).collect::<Vec<_>>().join(", "));
            return Err(Error::unsupported(format!("{operation} by {named}"), reason));
        }
        let share = if scatters { count / world } else { count };
        let normed = if self.op.output.size == Size::OwnRows { share } else { count };
        if self.output.is_none() && rows.residual_out.is_none() && rows.quantised.is_none() {
            let limit = "at least one of output, residual_out and quantised values is needed";
            return Err(Error::invalid("the number of outputs", 0, limit));
        }
        let held = |operand: &Option<Held>| operand.as_ref().map(|held| held.view().elems);
        for (what, elems, count, row) in [
            ("residual", held(&rows.residual), share, hidden),
            ("residual_out", held(&rows.residual_out), share, hidden),
            ("output", self.output.as_ref().map(|output| output.elems), normed, width),
        ] {
            if let Some(elems) = elems.filter(|elems| count.checked_mul(row) != Some(*elems)) {
                let limit = format!("{count} rows of {row} elements are needed");
                return Err(Error::invalid(&format!("the {what}'s length"), elems, limit));
            }
        }
        match (&rows.quantised, &rows.global_scale) {
            (Some(quantised), global) => quantised.check(normed, width, global.as_ref())?,
            (None, Some(_)) => return Err(unneeded()),
            (None, None) => {}
        }
        let first = if scatters { rank * share * hidden } else { 0 };
        let own = input.part(first..first + share * hidden, self.dtype)?;
        self.check_norm_operands(input, &own, rows, device)?;
        Ok(share * hidden)
    }

    /// Refuses operands of another device, and operands that overlap. Allowed are: residual_out that is the residual, and
    /// output or residual_out that is the input. An operand for only this rank's rows may be `own`: these rows of the
    /// input.
    fn check_norm_operands(&self, input: &View<'_>, own: &View<'_>, rows: &NormRows, device: &Device) -> Result<()> {
        let weight = ("the weight", rows.weight.view(), rows.weight.dtype);
        let bias = rows.bias.as_ref().map(|held| named("the bias", held));
        let residual = rows.residual.as_ref().map(|residual| ("the residual", residual.view(), self.dtype));
        let kept = rows.residual_out.as_ref().map(|kept| ("residual_out", kept.view(), self.dtype));
        let output = self.output.as_ref().map(|output| ("the output", output.clone(), self.dtype));
        let quantised = rows.quantised.as_ref();
        let values = quantised.map(|quantised| named("the quantised values", &quantised.values));
        let scales = quantised.and_then(|quantised| quantised.scales.as_ref()).map(|held| named("the scales", held));
        let known =
            quantised.and_then(|quantised| quantised.known.as_ref()).map(|held| named("the static scale", held));
        let global = rows.global_scale.as_ref().map(|held| named("the global scale", held));
        let read = [Some(("the input", input.clone(), self.dtype)), Some(weight), bias, residual, known, global];
        let written = [kept, output, values, scales];
        let places = |(what, view, dtype): &NormOperand<'_>| NamedSpan::new(*what, span(view, *dtype));
        for (what, view, _) in read.iter().chain(&written).flatten() {
            device.check_same(what, view.device)?;
        }
        for (number, one) in written.iter().enumerate() {
            let Some(one) = one else { continue };
            one.1.check_writable(one.0)?;
            for other in written[number + 1..].iter().flatten() {
                check_apart(places(one), places(other), None)?;
            }
            for other in read.iter().flatten() {
                let whole = places(other);
                let in_place = match (one.0, other.0) {
                    ("the output", "the input") if self.op.gathers_rows() => Some(whole.span.clone()),
                    ("the output" | "residual_out", "the input") => Some(span(own, self.dtype)),
                    ("residual_out", "the residual") => Some(whole.span.clone()),
                    _ => None,
                };
                check_apart(places(one), whole, in_place)?;
            }
        }
        Ok(())
    }
}
