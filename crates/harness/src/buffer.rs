//! Memory for the operands of a measurement: symmetric, plain, or of NVSHMEM.

use std::ops::Range;

#[cfg(feature = "nvshmem")]
use symmetra::AdoptedSlice;
use symmetra::{DeviceBuffer, Element, Operand, Ref, Stream, SymmetricBuffer, SymmetricSlice};

/// Bytes of a symmetric buffer in addition to its elements, at most: its signals and guards.
pub const BUFFER_BYTES: u64 = 64 << 10;

/// Memory for operands.
pub trait TestBuffer<T: Element>: Sized {
    /// Some elements of the memory, as an operand.
    type Part<'b>: Operand<'b, T>
    where
        Self: 'b;
    fn part(&self, range: Range<usize>) -> symmetra::Result<Self::Part<'_>>;
    fn write(&self, values: &[T], stream: &Stream) -> symmetra::Result<()>;
    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>>;
}

macro_rules! buffer {
    ($buffer:ty, $part:ident, part $slice:expr) => {
        impl<T: Element> TestBuffer<T> for $buffer {
            type Part<'b> = $part<'b, T>;
            fn part(&self, range: Range<usize>) -> symmetra::Result<Self::Part<'_>> {
                $slice(self, range)
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

buffer!(SymmetricBuffer<T>, SymmetricSlice, part Self::slice);
buffer!(DeviceBuffer<T>, Ref, part borrow);
#[cfg(feature = "nvshmem")]
buffer!(symmetra::nvshmem::Buffer<T>, AdoptedSlice, part Self::slice);
