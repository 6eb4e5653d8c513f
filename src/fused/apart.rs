//! Which operands of a call may overlap: a call writes nothing that it also reads, and nothing twice.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Result;
use crate::matmul::Tensor;
use crate::op::{Held, check_apart, span};

/// Operands of one call; on the stack for as many as a layer has.
pub(super) struct Operands<'a> {
    read: SmallVec<[Operand<'a>; 12]>,
    written: SmallVec<[Operand<'a>; 6]>,
}

/// An operand with its name in errors.
struct Operand<'a> {
    what: &'static str,
    /// The number of the product, if a call has several.
    product: Option<usize>,
    held: &'a Held,
    /// Where the operand that is written may hold this one.
    in_place: Option<(&'a Held, Range<usize>)>,
}

impl<'a> Operands<'a> {
    pub(super) fn new() -> Self {
        Self { read: SmallVec::new(), written: SmallVec::new() }
    }

    /// The right factor of a product.
    pub(super) fn right(&mut self, product: Option<usize>, right: &'a Tensor<'_>) {
        self.reads("the right factor", product, Some(&right.memory));
        self.reads("the right factor's scales", product, right.scales.as_ref());
        self.reads("the bias", product, right.bias.as_ref());
    }

    pub(super) fn reads(&mut self, what: &'static str, product: Option<usize>, held: Option<&'a Held>) {
        self.read.extend(held.map(|held| Operand { what, product, held, in_place: None }));
    }

    /// An operand that is read, which may lie in an operand that is written: there it is these elements.
    pub(super) fn reads_in_place(
        &mut self,
        what: &'static str,
        held: Option<&'a Held>,
        place: Option<(&'a Held, Range<usize>)>,
    ) {
        self.read.extend(held.map(|held| Operand { what, product: None, held, in_place: place }));
    }

    pub(super) fn writes(&mut self, what: &'static str, product: Option<usize>, held: Option<&'a Held>) {
        self.written.extend(held.map(|held| Operand { what, product, held, in_place: None }));
    }

    /// Refuses operands that overlap.
    pub(super) fn check(&self) -> Result<()> {
        for (number, written) in self.written.iter().enumerate() {
            for other in self.written[..number].iter().chain(&self.read) {
                let place = other.place_in(written.held)?;
                check_apart((other, other.span()), (written, written.span()), place)?;
            }
        }
        Ok(())
    }
}

impl Operand<'_> {
    fn span(&self) -> Range<usize> {
        span(&self.held.view(), self.held.dtype)
    }

    /// Where in `written` this operand may lie.
    fn place_in(&self, written: &Held) -> Result<Option<Range<usize>>> {
        let place = self.in_place.as_ref().filter(|(whole, _)| std::ptr::eq(*whole, written));
        let span_of = |(whole, elems): &(&Held, Range<usize>)| {
            whole.view().part(elems.clone(), whole.dtype).map(|part| span(&part, whole.dtype))
        };
        place.map(span_of).transpose()
    }
}

impl fmt::Display for Operand<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.product {
            None => out.write_str(self.what),
            Some(product) => write!(out, "{} of product {product}", self.what),
        }
    }
}
