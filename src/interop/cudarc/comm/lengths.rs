//! The parts of operands that a call uses.

use crate::error::{Error, Result};
use crate::op::{Extent, Op, Size};

/// How many elements of input and output a call uses, where the operands may be longer. The input gives the count if it has
/// one count of elements, else the output does.
///
/// # Errors
/// [`Error::InvalidArgument`] if the other operand is shorter than the count requires.
pub(super) fn used(op: &Op, input: usize, output: usize, world: usize) -> Result<[usize; 2]> {
    let by_input = op.input.size == Size::One;
    let count = if by_input { input } else { output };
    let needed = |extent: Extent| count.checked_mul(if extent.size == Size::PerRank { world } else { 1 });
    let fits = |what: &str, elems: usize, extent: Extent| {
        needed(extent).filter(|needed| *needed <= elems).ok_or_else(|| {
            let limit = format!("{} of {count} elements over {world} ranks needs more", op.name());
            Error::invalid(&format!("the {what}'s length"), elems, limit)
        })
    };
    Ok([fits("input", input, op.input)?, fits("output", output, op.output)?])
}

#[cfg(test)]
#[path = "../../../../tests/unit/interop/lengths.rs"]
mod tests;
