//! Memory for the operands of a measurement: symmetric, or plain.

use std::ops::Range;

use symmetra::{Communicator, DeviceBuffer, Element, Operand, Ref, Stream, SymmetricBuffer, SymmetricSlice};

/// Memory for operands.
pub(crate) trait Buffer<T: Element>: Sized {
    /// Some of its elements, as an operand.
    type Part<'b>: Operand<'b, T>
    where
        Self: 'b;
    fn part(&self, range: Range<usize>) -> symmetra::Result<Self::Part<'_>>;
    fn new(communicator: &Communicator, elems: usize) -> symmetra::Result<Self>;
    fn write(&self, values: &[T], stream: &Stream) -> symmetra::Result<()>;
    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>>;
}

macro_rules! buffer {
    ($buffer:ident, $part:ident, part $slice:expr, new $new:expr) => {
        impl<T: Element> Buffer<T> for $buffer<T> {
            type Part<'b> = $part<'b, T>;
            fn part(&self, range: Range<usize>) -> symmetra::Result<Self::Part<'_>> {
                $slice(self, range)
            }
            fn new(communicator: &Communicator, elems: usize) -> symmetra::Result<Self> {
                $new(communicator, elems)
            }
            fn write(&self, values: &[T], stream: &Stream) -> symmetra::Result<()> {
                self.write(values, stream)
            }
            fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
                self.read(stream)
            }
        }
    };
}

fn borrow<T: Element>(buffer: &DeviceBuffer<T>, range: Range<usize>) -> symmetra::Result<Ref<'_, T>> {
    buffer.borrow().slice(range)
}

buffer!(SymmetricBuffer, SymmetricSlice, part Self::slice, new Communicator::symmetric);
buffer!(DeviceBuffer, Ref, part borrow, new |of: &Communicator, elems| Self::new(of.device(), elems));
