//! The sides of a race: who sums, on which memory.

use symmetra::{Algorithm, Capture, Communicator, Element, Stream, SymmetricBuffer};

/// One library, with an input and an output.
pub(super) trait Side<'a, T> {
    /// Enqueues one operation that runs.
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()>;
    /// Enqueues one operation that a graph holds.
    fn record(&self, capture: &Capture<'a>) -> symmetra::Result<()>;
    /// Blocks until the values are in the input and in the output.
    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()>;
    /// Copies the output out. Blocks.
    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>>;
    /// Whether its sums are rounded once, in rank order.
    fn is_exact(&self) -> bool;
}

/// This library.
pub(super) struct Ours<'a, T: Element> {
    pub(super) communicator: &'a Communicator,
    pub(super) algorithm: Algorithm,
    /// Whether what runs sums in rank order.
    pub(super) exact: bool,
    pub(super) input: &'a SymmetricBuffer<T>,
    pub(super) output: &'a SymmetricBuffer<T>,
}

impl<'a, T: Element> Side<'a, T> for Ours<'a, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.communicator.all_reduce_with(self.algorithm, self.input, self.output, stream)
    }

    fn record(&self, capture: &Capture<'a>) -> symmetra::Result<()> {
        self.communicator.all_reduce_with(self.algorithm, self.input, self.output, capture)
    }

    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()> {
        self.input.write(input, stream)?;
        self.output.write(output, stream)
    }

    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        self.output.read(stream)
    }

    fn is_exact(&self) -> bool {
        self.exact
    }
}
