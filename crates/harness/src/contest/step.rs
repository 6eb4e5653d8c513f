//! The steps of an operation: collectives of one library or another, and kernels.

use std::ops::Range;

use symmetra::half::bf16;
use symmetra::{Capture, Communicator, Element, Queue, Ref, Stream, SymmetricBuffer, SymmetricSlice};

use crate::collective::Collective;

/// Work with operands of its own.
pub trait Step<'a> {
    /// Enqueues the work once.
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Enqueues the work into a graph.
    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()>;
    /// Fails if the library that does the work has failed and the group has not noticed the failure.
    fn check(&self) -> symmetra::Result<()> {
        Ok(())
    }
}

/// Some elements of a buffer.
pub struct Part<'a, T: Element> {
    pub buffer: &'a SymmetricBuffer<T>,
    pub elems: Range<usize>,
}

/// Messages between all ranks. `counts[0]` holds the number of elements that go to each rank, one message after the
/// other in `from`; `counts[1]` holds the number of elements that come from each rank into `into`.
pub struct Parcel<'a, T: Element> {
    pub from: Ref<'a, T>,
    pub into: Ref<'a, T>,
    pub counts: [Vec<usize>; 2],
}

impl<'a, T: Element> Parcel<'a, T> {
    pub fn new(from: Ref<'a, T>, into: Ref<'a, T>, counts: [Vec<usize>; 2]) -> Self {
        Self { from, into, counts }
    }
}

/// A parcel of elements that rows of experts consist of.
pub enum Cargo<'a> {
    Rows(Parcel<'a, bf16>),
    Codes(Parcel<'a, u8>),
    Scales(Parcel<'a, f32>),
}

/// A library that has collectives.
pub trait Library {
    /// A collective from the first operand to the second. Reductions are sums.
    fn step<'s, T: Element>(
        &'s self,
        collective: Collective,
        operands: [Part<'s, T>; 2],
    ) -> symmetra::Result<Box<dyn Step<'s> + 's>>;

    /// An all-to-all of each parcel.
    fn exchange<'s>(&'s self, cargo: Vec<Cargo<'s>>) -> Box<dyn Step<'s> + 's>;
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

    fn exchange<'s>(&'s self, cargo: Vec<Cargo<'s>>) -> Box<dyn Step<'s> + 's> {
        Box::new(Exchange { communicator: self, cargo })
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

/// All-to-alls of this library.
struct Exchange<'a> {
    communicator: &'a Communicator,
    cargo: Vec<Cargo<'a>>,
}

impl<'a> Exchange<'a> {
    fn call(&self, queue: impl Queue<'a> + Copy) -> symmetra::Result<()> {
        self.cargo.iter().try_for_each(|cargo| match cargo {
            Cargo::Rows(parcel) => self.send(parcel, queue),
            Cargo::Codes(parcel) => self.send(parcel, queue),
            Cargo::Scales(parcel) => self.send(parcel, queue),
        })
    }

    fn send<T: Element>(&self, parcel: &Parcel<'a, T>, queue: impl Queue<'a>) -> symmetra::Result<()> {
        let Parcel { from, into, counts: [sent, came] } = parcel;
        self.communicator.all_to_all_v(from, sent, into, came, queue)
    }
}

impl<'a> Step<'a> for Exchange<'a> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call(capture)
    }
}
