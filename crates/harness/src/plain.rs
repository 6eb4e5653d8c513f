//! Plain memory between margins as the operand of a measurement.

use std::ops::Range;

use symmetra::{Element, Ref, Result, Stream};

use crate::buffer::TestBuffer;
use crate::guarded::Guarded;

impl<T: Element> TestBuffer<T> for Guarded<T> {
    type Part<'b> = Ref<'b, T>;

    fn part(&self, range: Range<usize>) -> Result<Ref<'_, T>> {
        self.elements()?.slice(range)
    }

    fn write(&self, values: &[T], stream: &Stream) -> Result<()> {
        self.elements()?.write(values, stream)
    }

    /// Compares the margins too: a margin that was overwritten is an error.
    fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        self.check_margins(stream)?;
        self.elements()?.read(stream)
    }
}
