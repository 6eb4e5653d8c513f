//! The check of a call of experts: every operand, before anything is enqueued.

use super::config::{ExpertConfig, Layout, Scales, Wire};
use super::form::ExpertForm;
use super::operands::{Combine, Received, Routing, ScaleOrder, TokenRows};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::{Held, NamedSpan, check_apart, span};
use crate::types::Dtype;

/// An operand, by its name in messages.
type NamedOperand<'a> = (&'static str, &'a Held);

/// Most operands that a call reads, and most operands that a call writes.
const MOST: usize = 9;

/// A list of operands, which allocates nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct OperandList<'a>([Option<NamedOperand<'a>>; MOST]);

impl<'a> OperandList<'a> {
    /// The operands that are given.
    pub(super) fn of(operands: impl IntoIterator<Item = (&'static str, Option<&'a Held>)>) -> Self {
        let mut list = Self::default();
        let given = operands.into_iter().filter_map(|(what, held)| Some((what, held?)));
        list.0.iter_mut().zip(given).for_each(|(place, operand)| *place = Some(operand));
        list
    }

    /// These operands, and one more if it is given.
    fn and(mut self, what: &'static str, held: Option<&'a Held>) -> Self {
        let place = self.0.iter_mut().find(|place| place.is_none());
        place.into_iter().for_each(|place| *place = held.map(|held| (what, held)));
        self
    }

    fn iter(&self) -> impl Iterator<Item = &NamedOperand<'a>> {
        self.0.iter().flatten()
    }
}

/// The operands that a call reads and writes.
struct ExpertOperands<'a> {
    read: OperandList<'a>,
    written: OperandList<'a>,
}

impl<'a> ExpertOperands<'a> {
    /// Refuses operands of another device, and written operands that overlap others. `in_place`: the names of a written and a
    /// read operand that may be the same memory.
    fn check(&self, device: &Device, in_place: Option<[&str; 2]>) -> Result<()> {
        let place = |(what, held): &NamedOperand<'a>| NamedSpan::new(*what, span(&held.view(), held.dtype));
        for (what, held) in self.read.iter().chain(self.written.iter()) {
            device.check_same(what, held.view().device)?;
        }
        for (number, one) in self.written.iter().enumerate() {
            one.1.view().check_writable(one.0)?;
            for other in self.written.iter().skip(number + 1) {
                check_apart(place(one), place(other), None)?;
            }
            for other in self.read.iter() {
                let same = in_place == Some([one.0, other.0]);
                let read = place(other);
                let in_place = same.then(|| read.span.clone());
                check_apart(place(one), read, in_place)?;
            }
        }
        Ok(())
    }
}

/// Refuses operands of another device, in a call without written operands.
pub(super) fn places(read: OperandList<'_>, device: &Device) -> Result<()> {
    ExpertOperands { read, written: OperandList::default() }.check(device, None)
}

/// Checks types and lengths of a routing, but not devices and overlaps. Returns the number of tokens.
pub(super) fn routing(routing: &Routing<'_>, form: &ExpertForm) -> Result<usize> {
    let ExpertForm { top_k, max_tokens, .. } = *form;
    let ids = &routing.ids;
    typed("the ids", ids, &[Dtype::I32, Dtype::I64])?;
    if !ids.elems.is_multiple_of(top_k) || ids.elems / top_k > max_tokens {
        let limit = format!("each of at most {max_tokens} tokens has {top_k}");
        return Err(Error::invalid("the number of ids", ids.elems, limit));
    }
    let tokens = ids.elems / top_k;
    if let Some(weights) = &routing.weights {
        typed("the weights", weights, &[Dtype::F32])?;
        exactly("the number of weights", weights, ids.elems)?;
    }
    if let Some(count) = &routing.tokens {
        typed("the count of tokens", count, &[Dtype::U32])?;
        exactly("the length of the count of tokens", count, 1)?;
    }
    Ok(tokens)
}

/// The operands that a dispatch reads: routing, and rows with their scales.
pub(super) fn read<'a>(routing: Option<&'a Routing<'_>>, sent: Option<TokenRows<'a>>) -> OperandList<'a> {
    OperandList::of([
        ("the ids", routing.map(|routing| &routing.ids)),
        ("the weights", routing.and_then(|routing| routing.weights.as_ref())),
        ("the count of tokens", routing.and_then(|routing| routing.tokens.as_ref())),
        ("the rows", sent.map(|sent| sent.rows)),
        ("the scales", sent.and_then(|sent| sent.scales)),
    ])
}

/// Checks types and lengths of the rows of `tokens` tokens that a dispatch sends, and of their scales, but not devices and
/// overlaps.
pub(super) fn sent(sent: TokenRows<'_>, tokens: usize, config: &ExpertConfig, form: &ExpertForm) -> Result<()> {
    let TokenRows { rows, scales } = sent;
    let (elems, dtypes): (usize, &[Dtype]) = match config.wire {
        Wire::Same | Wire::F8(_) => (form.hidden, &[config.dtype]),
        Wire::GivenF8 => (form.hidden, &CODES),
        Wire::Bytes(bytes) => (bytes, &[Dtype::U8]),
    };
    typed("the rows", rows, dtypes)?;
    exactly("the length of the rows", rows, tokens * elems)?;
    match (scales, config.wire) {
        (Some(scales), Wire::GivenF8) => {
            typed("the scales", scales, &[Dtype::F32])?;
            exactly("the number of scales", scales, tokens * form.groups)?;
        }
        (None, Wire::GivenF8) => {
            return Err(Error::invalid("the scales", "missing", "rows that are codes travel with their scales"));
        }
        (Some(scales), _) => {
            let limit = format!("{:?} takes none", config.wire);
            return Err(Error::invalid("the number of scales", scales.elems, limit));
        }
        (None, _) => {}
    }
    Ok(())
}

/// Checks the outputs of a dispatch, and devices and overlaps of all operands. `rows`: the number of rows that outputs must have.
/// `read`: the operands that the call reads.
pub(super) fn received(
    into: &Received<'_>,
    rows: usize,
    config: &ExpertConfig,
    form: &ExpertForm,
    read: OperandList<'_>,
    device: &Device,
) -> Result<()> {
    let by_token = config.layout.is_by_token();
    let (elems, dtypes): (usize, &[Dtype]) = match config.wire {
        Wire::Same => (form.hidden, &[config.dtype]),
        Wire::F8(_) | Wire::GivenF8 => (form.hidden, &CODES),
        Wire::Bytes(bytes) => (bytes, &[Dtype::U8]),
    };
    typed("the received rows", &into.rows, dtypes)?;
    at_least("the length of the received rows", &into.rows, rows * elems)?;
    if let Some((scales, order)) = &into.scales {
        let dtype = match config.wire {
            Wire::F8(Scales::E8M0) => Dtype::U8,
            Wire::F8(_) | Wire::GivenF8 => Dtype::F32,
            Wire::Same | Wire::Bytes(_) => {
                let limit = format!("{:?} has none", config.wire);
                return Err(Error::invalid("the number of received scales", scales.elems, limit));
            }
        };
        typed("the received scales", scales, &[dtype])?;
        at_least("the number of received scales", scales, rows * form.groups)?;
        let columns = *order == ScaleOrder::Columns && !matches!(config.layout, Layout::Padded { .. });
        if columns && !scales.elems.is_multiple_of(form.groups) {
            let limit = format!("a row has {} in columns of equal length", form.groups);
            return Err(Error::invalid("the number of received scales", scales.elems, limit));
        }
    }
    if config.layout == Layout::BySource {
        let counted = [
            ("counts", &into.counts),
            ("offsets", &into.offsets),
            ("index of rows in the order of experts", &into.index),
        ];
        if let Some((what, _)) = counted.iter().find(|(_, held)| held.is_some()) {
            let limit = "rows by source are not counted: their ids show which rows were received";
            return Err(Error::invalid(&format!("the received {what}"), "given", limit));
        }
    }
    if into.index.is_some() && !by_token {
        let limit = format!("rows that are {:?} are in that order", config.layout);
        return Err(Error::invalid("the index of rows in the order of experts", "given", limit));
    }
    let pairs = if by_token { rows * form.top_k } else { rows };
    let others = [
        ("the received counts", &into.counts, Dtype::U32, form.local),
        ("the received offsets", &into.offsets, Dtype::U32, form.local + 1),
        ("the received ids", &into.ids, Dtype::I32, pairs),
        ("the received weights", &into.weights, Dtype::F32, pairs),
        ("the sources", &into.sources, Dtype::U32, rows * 2),
        ("the index", &into.index, Dtype::U32, pairs),
    ];
    for (what, held, dtype, length) in others {
        if let Some(held) = held {
            typed(what, held, &[dtype])?;
            at_least(format_args!("the length of {what}"), held, length)?;
        }
    }
    let written = OperandList::of([
        ("the received rows", Some(&into.rows)),
        ("the received scales", into.scales.as_ref().map(|(scales, _)| scales)),
        ("the received counts", into.counts.as_ref()),
        ("the received offsets", into.offsets.as_ref()),
        ("the received ids", into.ids.as_ref()),
        ("the received weights", into.weights.as_ref()),
        ("the sources", into.sources.as_ref()),
        ("the index", into.index.as_ref()),
    ]);
    ExpertOperands { read, written }.check(device, None)
}

/// Checks type and length of the results that a combine sends, of `rows` rows, but not device and overlaps.
pub(super) fn results(results: &Held, rows: usize, config: &ExpertConfig, form: &ExpertForm) -> Result<()> {
    typed("the results", results, &[config.dtype])?;
    at_least("the length of the results", results, rows * form.hidden)
}

/// The results, as the operands that a combine reads.
pub(super) fn given(results: &Held) -> OperandList<'_> {
    OperandList::of([("the results", Some(results))])
}

/// Checks the output for the sums of `tokens` tokens, the rows to add, and devices and overlaps of all operands. `read`: the
/// other operands that the call reads.
pub(super) fn sums(
    output: &Held,
    options: &Combine<'_>,
    tokens: usize,
    config: &ExpertConfig,
    form: &ExpertForm,
    read: OperandList<'_>,
    device: &Device,
) -> Result<()> {
    typed("the output", output, &[config.dtype])?;
    exactly("the length of the output", output, tokens * form.hidden)?;
    if let Some(add) = &options.add {
        typed("the rows to add", add, &[config.dtype])?;
        exactly("the length of the rows to add", add, tokens * form.hidden)?;
    }
    let written = OperandList::of([("the output", Some(output))]);
    let read = read.and("the rows to add", options.add.as_ref());
    ExpertOperands { read, written }.check(device, Some(["the output", "the rows to add"]))
}

/// The types of quantised values.
const CODES: [Dtype; 2] = [Dtype::U8, Dtype::F8E4M3];

fn typed(what: &str, held: &Held, dtypes: &[Dtype]) -> Result<()> {
    if dtypes.contains(&held.dtype) {
        return Ok(());
    }
    let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
    Err(Error::invalid(&format!("the type of {what}"), held.dtype, format!("it must be {}", names.join(" or "))))
}

fn exactly(what: &str, held: &Held, elems: usize) -> Result<()> {
    match held.elems == elems {
        true => Ok(()),
        false => Err(Error::invalid(what, held.elems, format!("it must be {elems}"))),
    }
}

fn at_least(what: impl std::fmt::Display, held: &Held, elems: usize) -> Result<()> {
    match held.elems >= elems {
        true => Ok(()),
        false => Err(Error::invalid(&what.to_string(), held.elems, format!("it must be at least {elems}"))),
    }
}
