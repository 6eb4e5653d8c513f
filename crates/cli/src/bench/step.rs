//! The steps of an operation: collectives of one library or another, and kernels.

use std::ops::Range;

use symmetra::{Capture, Communicator, Element, Queue, Stream, SymmetricBuffer, SymmetricSlice};

use crate::all_reduce::Collective;

/// Work with operands of its own.
pub(super) trait Step<'a> {
    /// Enqueues the work once.
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Enqueues the work into a graph.
    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()>;
    /// Fails if the library that does the work has failed and the group does not know.
    fn check(&self) -> symmetra::Result<()> {
        Ok(())
    }
}

/// Some elements of a buffer.
pub(super) struct Part<'a, T: Element> {
    pub(super) buffer: &'a SymmetricBuffer<T>,
    pub(super) elems: Range<usize>,
}

/// What has collectives.
pub(super) trait Library {
    /// A collective from the first operand to the second. Reductions are sums.
    fn step<'s, T: Element>(
        &'s self,
        collective: Collective,
        operands: [Part<'s, T>; 2],
    ) -> symmetra::Result<Box<dyn Step<'s> + 's>>;
}

impl Library for Communicator {
    fn step<'s, T: Element>(
        &'s self,
        collective: Collective,
        [input, output]: [Part<'s, T>; 2],
    ) -> symmetra::Result<Box<dyn Step<'s> + 's>> {
        let operands = [input.buffer.slice(input.elems)?, output.buffer.slice(output.elems)?];
        Ok(Box::new(Ours { communicator: self, collective, operands }))
    }
}

/// A collective of this library, by its choice.
struct Ours<'a, T: Element> {
    communicator: &'a Communicator,
    collective: Collective,
    operands: [SymmetricSlice<'a, T>; 2],
}

impl<'a, T: Element> Ours<'a, T> {
    fn call(&self, queue: impl Queue<'a>) -> symmetra::Result<()> {
        self.communicator.perform(self.collective.op(), &symmetra::How::default(), self.operands.map(Some), queue)
    }
}

impl<'a, T: Element> Step<'a> for Ours<'a, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call(capture)
    }
}
