//! The check for overlapping operands: a call must not write memory that it also reads, or write memory twice.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Result;
use crate::matmul::Tensor;
use crate::op::{Held, NamedSpan, check_apart, span};

/// Operands of one call; on the stack for the usual number of operands of a layer.
pub(super) struct UnfusedOperands<'a> {
    read: SmallVec<[UnfusedOperand<'a>; 12]>,
    written: SmallVec<[UnfusedOperand<'a>; 6]>,
}

/// An operand with its name in errors.
struct UnfusedOperand<'a> {
    what: &'static str,
    /// The number of the GEMM, if a call has several.
    product: Option<usize>,
    held: &'a Held,
    /// The written operand, and the elements of it that this operand may be.
    in_place: Option<(&'a Held, Range<usize>)>,
}

impl<'a> UnfusedOperands<'a> {
    pub(super) fn new() -> Self {
        Self { read: SmallVec::new(), written: SmallVec::new() }
    }

    /// The right factor of a GEMM.
    pub(super) fn right(&mut self, product: Option<usize>, right: &'a Tensor<'_>) {
        self.reads("the right factor", product, Some(&right.memory));
        self.reads("the right factor's scales", product, right.scales.as_ref());
        self.reads("the bias", product, right.bias.as_ref());
    }

    pub(super) fn reads(&mut self, what: &'static str, product: Option<usize>, held: Option<&'a Held>) {
        self.read.extend(held.map(|held| UnfusedOperand { what, product, held, in_place: None }));
    }

    /// A read operand that may be the given elements of a written operand.
    pub(super) fn reads_in_place(
        &mut self,
        what: &'static str,
        held: Option<&'a Held>,
        place: Option<(&'a Held, Range<usize>)>,
    ) {
        self.read.extend(held.map(|held| UnfusedOperand { what, product: None, held, in_place: place }));
    }

    pub(super) fn writes(&mut self, what: &'static str, product: Option<usize>, held: Option<&'a Held>) {
        self.written.extend(held.map(|held| UnfusedOperand { what, product, held, in_place: None }));
    }

    /// Refuses written operands that overlap others or are read-only.
    pub(super) fn check(&self) -> Result<()> {
        for (number, written) in self.written.iter().enumerate() {
            written.held.view().check_writable(written)?;
            for other in self.written[..number].iter().chain(&self.read) {
                let place = other.place_in(written.held)?;
                let written = NamedSpan::new(written, written.span());
                check_apart(NamedSpan::new(other, other.span()), written, place)?;
            }
        }
        Ok(())
    }
}

impl UnfusedOperand<'_> {
    fn span(&self) -> Range<usize> {
        span(&self.held.view(), self.held.dtype)
    }

    /// The place in `written` where this operand may lie.
    fn place_in(&self, written: &Held) -> Result<Option<Range<usize>>> {
        let place = self.in_place.as_ref().filter(|(whole, _)| std::ptr::eq(*whole, written));
        let span_of = |(whole, elems): &(&Held, Range<usize>)| {
            whole.view().part(elems.clone(), whole.dtype).map(|part| span(&part, whole.dtype))
        };
        place.map(span_of).transpose()
    }
}

impl fmt::Display for UnfusedOperand<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.product {
            None => out.write_str(self.what),
            Some(product) => write!(out, "{} of product {product}", self.what),
        }
    }
}
