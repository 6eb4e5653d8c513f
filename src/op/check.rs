//! The check of a call: one body for every operation, backend and language.

use std::fmt::Display;
use std::ops::Range;

use super::{Apart, Call, Cut, InPlace, Numbers, PartCounts, RankMessage, Size, Strip};
use crate::device::Device;
use crate::error::{Error, Parameter, Result};
use crate::memory::View;
use crate::types::Dtype;

/// A checked call on this rank.
#[derive(Clone, Copy)]
pub(crate) struct CheckedShape {
    pub(crate) rank: usize,
    pub(crate) world: usize,
    /// The root, or the distance between ranks.
    pub(crate) parameter: usize,
    pub(crate) dtype: Dtype,
    /// How an operand of [`Size::PerRank`] is cut into parts. Each part has the element count on which the ranks agree. For
    /// parts with a count for each rank: parts of the largest count.
    pub(crate) cut: Cut,
}

impl CheckedShape {
    /// Bytes of the element count on which the ranks agree.
    pub(crate) fn bytes(&self) -> u64 {
        (self.cut.part_elems().unwrap_or(0) * self.dtype.bytes()) as u64
    }

    /// Offset of the part of `rank` in an operand of parts.
    pub(crate) fn offset_bytes(&self, rank: usize) -> u64 {
        self.cut.offset_bytes(rank, self.dtype)
    }

    /// The part of `rank` in an operand of parts of the call.
    pub(super) fn part(&self, call: &Call<'_>, view: &View<'_>, rank: usize) -> Strip {
        let (offset, bytes) = match call.numbers {
            Numbers::Parts(counts) => (counts.start(rank) * self.dtype.bytes(), counts.0[rank] * self.dtype.bytes()),
            _ => (self.offset_bytes(rank) as usize, self.bytes() as usize),
        };
        Strip { address: view.address.wrapping_add(offset), bytes: bytes as u64 }
    }

    /// The rank `distance` further, modulo the world size.
    pub(crate) fn after(&self, distance: usize) -> usize {
        (self.rank + distance) % self.world
    }
}

impl Call<'_> {
    /// Checks a call against the limits of its operation, before anything runs. `device` is this rank's.
    pub(crate) fn check(&self, rank: usize, world: usize, device: &Device) -> Result<CheckedShape> {
        let what = match self.op.operation.parameter() {
            Parameter::None => None,
            Parameter::Root => Some("root"),
            Parameter::Distance => Some("distance"),
        };
        if let Some(what) = what.filter(|_| self.parameter >= world) {
            return Err(Error::invalid(what, self.parameter, format!("the world size is {world}")));
        }
        let shape = |cut| CheckedShape { rank, world, parameter: self.parameter, dtype: self.dtype, cut };
        if let Numbers::Messages(messages) = self.numbers {
            check_messages(messages, rank, world, device)?;
            return Ok(shape(Cut::line(0, world)));
        }
        if let Numbers::Norm(rows) = self.numbers {
            return Ok(shape(Cut::line(self.check_norm(rows, rank, world, device)?, world)));
        }
        let input = self.operand("input", self.input.as_ref(), self.op.input, rank, device)?;
        let output = self.operand("output", self.output.as_ref(), self.op.output, rank, device)?;
        output.map_or(Ok(()), |output| output.check_writable("the output"))?;
        if let (Numbers::Apart(apart), Some((input, output))) = (self.numbers, input.zip(output)) {
            return self.check_sums(apart, input, output, world).map(|()| shape(Cut::line(input.elems, world)));
        }
        if let (Numbers::Shared(ranks), Some((input, output))) = (self.numbers, input.zip(output)) {
            return self.check_shared(ranks, input, output, world).map(|()| shape(Cut::line(output.elems, world)));
        }
        if let (Numbers::Parts(counts), Some((input, output))) = (self.numbers, input.zip(output)) {
            self.check_parts(counts, input, output, rank, world)?;
            return Ok(shape(Cut::line(counts.largest(), world)));
        }
        if let Numbers::Counts([send, receive]) = self.numbers {
            if let Some((input, output)) = input.zip(output) {
                self.check_counts(input, output, send, receive, rank, world)?;
            }
            return Ok(shape(Cut::line(0, world)));
        }
        let cut = self.cut(input, output, world)?;
        for (what, view, extent) in [("input", input, self.op.input), ("output", output, self.op.output)] {
            let needed = if extent.size == Size::PerRank { cut.whole_elems() } else { cut.part_elems() };
            if let Some(view) = view.filter(|view| Some(view.elems) != needed) {
                return Err(self.misfit(what, view.elems, needed, world));
            }
        }
        if let Some((input, output)) = input.zip(output) {
            self.check_overlap(input, output, cut, rank)?;
        }
        Ok(shape(cut))
    }

    /// An operand, or `None` if this rank does not have it.
    fn operand<'a, 'v>(
        &self,
        what: &str,
        view: Option<&'a View<'v>>,
        extent: super::Extent,
        rank: usize,
        device: &Device,
    ) -> Result<Option<&'a View<'v>>> {
        if extent.size == Size::None || (extent.at_root && rank != self.parameter) {
            return Ok(None);
        }
        let Some(view) = view else {
            return Err(match extent.at_root {
                true => Error::invalid(&format!("the root's {what}"), "missing", format!("rank {rank} is the root")),
                false => self.missing(what),
            });
        };
        device.check_same(what, view.device)?;
        Ok(Some(view))
    }

    /// The error of a call without an operand that every rank has.
    pub(super) fn missing(&self, what: &str) -> Error {
        Error::invalid(&format!("the {what}"), "missing", format!("every {} has one", self.op.operation))
    }

    /// The elements on which the ranks agree, from a tensor's shape or from the operand that every rank has.
    fn cut(&self, input: Option<&View<'_>>, output: Option<&View<'_>>, world: usize) -> Result<Cut> {
        let (what, view, extent) = match input.filter(|_| !self.op.input.at_root) {
            Some(input) => ("input", Some(input), self.op.input),
            None => ("output", output, self.op.output),
        };
        let elems = view.map_or(0, |view| view.elems);
        match (self.numbers, extent.size) {
            (Numbers::Along(dim, shape), Size::PerRank) => Cut::of_whole(shape, dim, world),
            (Numbers::Along(dim, shape), _) => Cut::of_parts(shape, dim, world),
            (_, Size::PerRank) if !elems.is_multiple_of(world) => {
                let limit = format!("it must be a multiple of the world size, {world}");
                Err(Error::invalid(&format!("the {what}'s length"), elems, limit))
            }
            (_, Size::PerRank) => Ok(Cut::line(elems / world, world)),
            _ => Ok(Cut::line(elems, world)),
        }
    }

    fn misfit(&self, what: &str, elems: usize, needed: Option<usize>, world: usize) -> Error {
        let needed = needed.map_or_else(|| "more than there can be".to_owned(), |needed| needed.to_string());
        let limit = match self.numbers {
            Numbers::Along(dim, shape) => format!("the shape {shape:?} along {dim} over {world} ranks makes {needed}"),
            Numbers::Shared(ranks) => format!("a part for each {ranks} of {world} ranks makes {needed}"),
            Numbers::Apart(Apart { ranks, .. }) => format!("results of {ranks} of {world} ranks make {needed}"),
            _ if self.op.input.size == self.op.output.size => format!("the input has {needed}"),
            _ => format!("{} over {world} ranks makes {needed}", self.op.operation),
        };
        Error::invalid(&format!("the {what}'s length"), elems, limit)
    }

    /// [`check_apart`], unless the operands may overlap.
    fn check_apart(
        &self,
        first: NamedSpan<impl Display>,
        second: NamedSpan<impl Display>,
        in_place: Option<Range<usize>>,
    ) -> Result<()> {
        if self.may_overlap { Ok(()) } else { check_apart(first, second, in_place) }
    }

    fn check_overlap(&self, input: &View<'_>, output: &View<'_>, cut: Cut, rank: usize) -> Result<()> {
        let (from, into) = self.spans(input, output);
        let (part, whole) = if from.span.len() <= into.span.len() { (from, into) } else { (into, from) };
        let (own, all) = (part.span.clone(), whole.span.clone());
        let start = match self.op.in_place {
            InPlace::Same => {
                let (bytes, apart) = (own.len(), own.start.abs_diff(all.start));
                if apart == 0 || apart >= bytes || self.may_overlap {
                    return Ok(());
                }
                let limit = format!("operands of {bytes} bytes must be the same or {bytes} bytes apart");
                return Err(Error::invalid("the distance of input and output", format!("{apart} bytes"), limit));
            }
            InPlace::OwnPart if cut.is_line() => Some(all.start + rank * own.len()),
            InPlace::OwnPart | InPlace::Never => None,
        };
        let in_place = start.map(|start| start..start + own.len());
        self.check_apart(part, whole, in_place)
    }

    /// The addresses of input and output.
    fn spans(&self, input: &View<'_>, output: &View<'_>) -> (NamedSpan<&'static str>, NamedSpan<&'static str>) {
        let (from, into) = (span(input, self.dtype), span(output, self.dtype));
        (NamedSpan::new("the input", from), NamedSpan::new("the output", into))
    }

    /// Refuses operands that overlap or do not fit the results of groups of ranks.
    fn check_sums(&self, apart: Apart, input: &View<'_>, output: &View<'_>, world: usize) -> Result<()> {
        let Apart { ranks, rows } = apart;
        check_divides("the ranks of a result", ranks, world)?;
        if rows == 0 || !input.elems.is_multiple_of(rows) {
            return Err(Error::invalid(
                "the rows of the input",
                rows,
                format!("they must divide its {} elements", input.elems),
            ));
        }
        let needed = input.elems.checked_mul(world / ranks);
        if needed != Some(output.elems) {
            return Err(self.misfit("output", output.elems, needed, world));
        }
        let (from, into) = self.spans(input, output);
        self.check_apart(from, into, None)
    }

    /// Refuses operands that overlap, or do not fit parts that several ranks receive.
    fn check_shared(&self, ranks: usize, input: &View<'_>, output: &View<'_>, world: usize) -> Result<()> {
        check_divides("the ranks of a part", ranks, world)?;
        let needed = output.elems.checked_mul(world / ranks);
        if needed != Some(input.elems) {
            return Err(self.misfit("input", input.elems, needed, world));
        }
        let (from, into) = self.spans(input, output);
        self.check_apart(from, into, None)
    }

    /// Refuses counts that do not fit the world or the operands, and operands that overlap elsewhere than in place.
    fn check_parts(
        &self,
        counts: PartCounts<'_>,
        input: &View<'_>,
        output: &View<'_>,
        rank: usize,
        world: usize,
    ) -> Result<()> {
        if counts.0.len() != world {
            return Err(Error::invalid("the number of counts", counts.0.len(), format!("the world size is {world}")));
        }
        let (input, output) = (("input", input), ("output", output));
        let ((part, own), (whole, all)) =
            if self.op.input.size == Size::OwnPart { (input, output) } else { (output, input) };
        if counts.sum() != Some(all.elems) {
            let limit = format!("the counts are {:?}", counts.0);
            return Err(Error::invalid(&format!("the {whole}'s length"), all.elems, limit));
        }
        if counts.0[rank] != own.elems {
            let limit = format!("the count of rank {rank} is {}", counts.0[rank]);
            return Err(Error::invalid(&format!("the {part}'s length"), own.elems, limit));
        }
        let (own, all) = (span(own, self.dtype), span(all, self.dtype));
        let start = all.start + counts.start(rank) * self.dtype.bytes();
        let place = start..start + own.len();
        self.check_apart(
            NamedSpan::new(format_args!("the {part}"), own),
            NamedSpan::new(format_args!("the {whole}"), all),
            Some(place),
        )
    }

    fn check_counts(
        &self,
        input: &View<'_>,
        output: &View<'_>,
        send: &[usize],
        receive: &[usize],
        rank: usize,
        world: usize,
    ) -> Result<()> {
        for (what, view, counts) in [("input", input, send), ("output", output, receive)] {
            if counts.len() != world {
                let what = format!("the number of counts of the {what}");
                return Err(Error::invalid(&what, counts.len(), format!("the world size is {world}")));
            }
            let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            if sum.is_none_or(|sum| sum > view.elems) {
                let limit = format!("the {what} has {} elements", view.elems);
                return Err(Error::invalid(&format!("the sum of the {what}'s counts"), format!("{counts:?}"), limit));
            }
        }
        if send[rank] != receive[rank] {
            let limit = format!("receive_counts[{rank}] is {}", receive[rank]);
            return Err(Error::invalid(&format!("send_counts[{rank}] of rank {rank}"), send[rank], limit));
        }
        let (from, into) = self.spans(input, output);
        self.check_apart(from, into, None)
    }
}

fn check_divides(what: &str, ranks: usize, world: usize) -> Result<()> {
    match ranks > 0 && world.is_multiple_of(ranks) {
        true => Ok(()),
        false => Err(Error::invalid(what, ranks, format!("they must divide the world size, {world}"))),
    }
}

/// Refuses messages to or from unknown ranks, several messages of one direction and peer, messages of different sizes
/// from a rank to itself, and received memory that the batch also uses otherwise.
fn check_messages(messages: &[RankMessage], rank: usize, world: usize, device: &Device) -> Result<()> {
    let place = |message| NamedSpan::new(message, span(&RankMessage::view(message), message.dtype()));
    for (number, message) in messages.iter().enumerate() {
        message.check_place(device)?;
        if message.peer >= world {
            return Err(Error::invalid("the peer", message.peer, format!("the world size is {world}")));
        }
        for earlier in &messages[..number] {
            if (earlier.peer, earlier.sends) == (message.peer, message.sends) {
                let what = format!("the number of messages {} rank {}", message.direction(), message.peer);
                return Err(Error::invalid(&what, 2, "a batch holds one at most"));
            }
            let apart = !message.may_overlap && !earlier.may_overlap;
            if apart && (!earlier.sends || !message.sends) {
                check_apart(place(message), place(earlier), None)?;
            }
        }
    }
    let own = |sends: bool| {
        let message = messages.iter().find(|message| (message.peer, message.sends) == (rank, sends));
        message.map_or(0, |message| message.strip().bytes)
    };
    if own(true) == own(false) {
        return Ok(());
    }
    let limit = format!("it expects {} from itself", own(false));
    Err(Error::invalid("what a rank sends itself", format!("{} bytes", own(true)), limit))
}

/// The addresses of an operand.
pub(crate) fn span(view: &View<'_>, dtype: Dtype) -> Range<usize> {
    let start = view.address as usize;
    start..start + view.elems * dtype.bytes()
}

/// The addresses of an operand, and the name of the operand in messages.
pub(crate) struct NamedSpan<N> {
    name: N,
    pub(crate) span: Range<usize>,
}

impl<N: Display> NamedSpan<N> {
    pub(crate) fn new(name: N, span: Range<usize>) -> Self {
        Self { name, span }
    }
}

/// Refuses operands that overlap, unless the first is exactly at the place of an in-place call. The error names both.
pub(crate) fn check_apart(
    one: NamedSpan<impl Display>,
    other: NamedSpan<impl Display>,
    in_place: Option<Range<usize>>,
) -> Result<()> {
    let (first, second) = (one.span, other.span);
    let overlap = first.start.max(second.start) < first.end.min(second.end);
    if !overlap || in_place.as_ref() == Some(&first) {
        return Ok(());
    }
    let place = match in_place {
        Some(place) => format!("in place they are {:#x} and {:#x}", place.start, second.start),
        None => "they may not overlap".to_owned(),
    };
    let limit = format!("{} is {} bytes at {:#x}; {place}", other.name, second.len(), second.start);
    Err(Error::invalid(&one.name.to_string(), format!("{} bytes at {:#x}", first.len(), first.start), limit))
}

#[cfg(test)]
#[path = "../../tests/unit/op/check.rs"]
mod tests;
