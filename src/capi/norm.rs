//! Norms of summed rows, of a communicator or of a parallel group.

use super::Report;
use super::collectives::{GroupHandle, operation};
use super::mirror::value;
use super::report::guard;
use super::tensor::{held, target};
use crate::error::{Error, Result};
use crate::op::{Algorithm, Call, Held, LayerNorm, NormRows, Numbers, Quantised, RmsNorm, RowFormat, ScaleGroup};
use bridge::{AskedNorm, AskedRows, Operand, QuantisedForm, Queue};

#[cxx::bridge(namespace = "symmetra::core")]
pub(super) mod bridge {
    /// Mirrors `symmetra::QuantisedForm`.
    struct QuantisedForm {
        scaling: u32,
        to: u32,
        layout: u32,
        elems: usize,
    }

    /// Mirrors `symmetra::QuantisedRows`.
    struct AskedRows {
        form: QuantisedForm,
        values: Operand,
        has_scales: bool,
        scales: Operand,
        has_known_scale: bool,
        known_scale: Operand,
    }

    /// Mirrors `symmetra::RowNorm`.
    struct AskedNorm<'a> {
        operation: &'a str,
        input: Operand,
        weight: Operand,
        has_bias: bool,
        bias: Operand,
        has_residual: bool,
        residual: Operand,
        has_residual_out: bool,
        residual_out: Operand,
        has_output: bool,
        output: Operand,
        has_quantised: bool,
        quantised: AskedRows,
        /// Whether the norm is a `LayerNorm`.
        is_layer: bool,
        epsilon: f32,
        weight_offset: f32,
        /// Elements of an output row; 0 means the length of the weight.
        width: usize,
        algorithm: u32,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type GroupHandle = crate::capi::collectives::GroupHandle;
        type Operand = crate::capi::bridge::Operand;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        unsafe fn run_norm(group: &GroupHandle, asked: &AskedNorm, queue: Queue) -> Result<()>;
    }
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn run_norm(group: &GroupHandle, asked: &AskedNorm<'_>, queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let held = |operand: &Operand| unsafe { held(group.device(), operand) };
        let (input, weight) = (held(&asked.input)?, held(&asked.weight)?);
        let maybe = |what: &str, given: bool, operand: &Operand| -> Result<Option<Held>> {
            let operand = given.then(|| held(operand)).transpose()?;
            match &operand {
                Some(other) if other.dtype != input.dtype => Err(Error::invalid(
                    &format!("the {what}'s type"),
                    other.dtype,
                    format!("the input's is {}", input.dtype),
                )),
                _ => Ok(operand),
            }
        };
        let format = asked.has_quantised.then(|| format(&asked.quantised.form)).transpose()?;
        let given = |given: bool, operand: &Operand| given.then(|| held(operand)).transpose();
        let AskedRows { ref values, ref scales, ref known_scale, .. } = asked.quantised;
        let mut known = given(format.is_some() && asked.quantised.has_known_scale, known_scale)?;
        let quantised = match format {
            Some(format) => Some(Quantised {
                format,
                values: held(values)?,
                scales: given(asked.quantised.has_scales, scales)?,
                known: if format.scaling == ScaleGroup::Static { known.take() } else { None },
            }),
            None => None,
        };
        let rows = NormRows {
            norm: match asked.is_layer {
                true => LayerNorm { epsilon: asked.epsilon, weight_offset: asked.weight_offset }.into(),
                false => RmsNorm { epsilon: asked.epsilon, weight_offset: asked.weight_offset }.into(),
            },
            weight,
            bias: given(asked.has_bias, &asked.bias)?,
            residual: maybe("residual", asked.has_residual, &asked.residual)?,
            residual_out: maybe("residual_out", asked.has_residual_out, &asked.residual_out)?,
            quantised,
            global_scale: known,
            width: (asked.width != 0).then_some(asked.width),
        };
        let output = maybe("output", asked.has_output, &asked.output)?;
        let call = Call::new(operation(asked.operation)?, input.dtype).options(value::<Algorithm>(asked.algorithm)?);
        let call = call.numbers(Numbers::Norm(&rows)).input(input.view()).output(output.as_ref().map(Held::view));
        let AskedNorm { ref input, ref weight, ref bias, ref residual, ref residual_out, ref output, .. } = *asked;
        let operands = [input, weight, bias, residual, residual_out, output, values, scales, known_scale];
        // SAFETY: passed on.
        group.calls.run(&call, unsafe { target(queue, operands) }?)
    })
}

/// The format of quantised rows, by the numbers of the headers.
pub(super) fn format(asked: &QuantisedForm) -> Result<RowFormat> {
    let (scaling, to, layout) = (value(asked.scaling)?, value(asked.to)?, value(asked.layout)?);
    let format = RowFormat::new(scaling, to, asked.elems, layout);
    if asked.elems != 0 && asked.elems != format.elems {
        let limit = format!("{scaling} has no such number: leave the number 0");
        return Err(Error::invalid("the number of elements of a group", asked.elems, limit));
    }
    Ok(format)
}
