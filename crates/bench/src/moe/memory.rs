//! Memory of a rank's operands: plain memory of the rank, or memory that peers can address.

use symmetra::{Communicator, Device, DeviceBuffer, Element, Ref, Stream, SymmetricBuffer};

/// Where operands lie.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    Own(&'a Device),
    /// In symmetric memory: all ranks make buffers of equal sizes together.
    Shared(&'a Communicator),
}

impl Home<'_> {
    pub(super) fn device(&self) -> &Device {
        match self {
            Self::Own(device) => device,
            Self::Shared(communicator) => communicator.device(),
        }
    }
}

pub(super) enum MoeMemory<T: Element> {
    Own(DeviceBuffer<T>),
    Shared(SymmetricBuffer<T>),
}

/// Evaluates an expression with the buffer of a [`MoeMemory`] of either kind. A call takes a borrowed range of a symmetric
/// buffer as memory that peers do not address.
macro_rules! with_buffer {
    ($memory:expr, $buffer:ident => $value:expr) => {
        match $memory {
            MoeMemory::Own($buffer) => $value,
            MoeMemory::Shared($buffer) => $value,
        }
    };
}
pub(super) use with_buffer;

impl<T: Element> MoeMemory<T> {
    /// Collective where the home is shared.
    pub(super) fn new(home: Home<'_>, elems: usize) -> symmetra::Result<Self> {
        Ok(match home {
            Home::Own(device) => Self::Own(DeviceBuffer::new(device, elems)?),
            Home::Shared(communicator) => Self::Shared(communicator.symmetric(elems)?),
        })
    }

    /// The memory as memory that peers do not address: see [`with_buffer`](super::memory::with_buffer).
    pub(super) fn borrow(&self) -> Ref<'_, T> {
        with_buffer!(self, buffer => buffer.borrow())
    }

    pub(super) fn len(&self) -> usize {
        with_buffer!(self, buffer => buffer.len())
    }

    /// Blocks until all is written.
    pub(super) fn write(&self, values: &[T], stream: &Stream) -> symmetra::Result<()> {
        with_buffer!(self, buffer => buffer.write(values, stream))
    }

    /// Blocks until all is read.
    pub(super) fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        with_buffer!(self, buffer => buffer.read(stream))
    }
}
