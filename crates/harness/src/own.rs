//! Buffers that only a communicator makes.

use symmetra::{Communicator, DeviceBuffer, Element, SymmetricBuffer};

use crate::buffer::TestBuffer;

/// Memory that a communicator can allocate.
pub trait Own<T: Element>: TestBuffer<T> {
    fn own(communicator: &Communicator, elems: usize) -> symmetra::Result<Self>;
}

impl<T: Element> Own<T> for SymmetricBuffer<T> {
    fn own(communicator: &Communicator, elems: usize) -> symmetra::Result<Self> {
        communicator.symmetric(elems)
    }
}

impl<T: Element> Own<T> for DeviceBuffer<T> {
    fn own(communicator: &Communicator, elems: usize) -> symmetra::Result<Self> {
        Self::new(communicator.device(), elems)
    }
}
