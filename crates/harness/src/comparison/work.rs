//! The work of candidates: collectives of one library or another.

use std::ops::Range;

use symmetra::half::bf16;
use symmetra::{AnyQueue, Communicator, Element, How, Pairs, ProcessGroup, Ref, Result, SymmetricBuffer};

use crate::collective::CollectiveCommand;

/// Enqueues work with operands of its own, once.
pub type Work<'a> = Box<dyn Fn(AnyQueue<'_, 'a>) -> Result<()> + 'a>;

/// Some elements of a buffer.
pub struct BufferPart<'a, T: Element> {
    pub buffer: &'a SymmetricBuffer<T>,
    pub elems: Range<usize>,
}

/// Messages between all ranks. `counts[0]` holds the number of elements that go to each rank, one message after the
/// other in `from`; `counts[1]` holds the number of elements that come from each rank into `into`.
pub struct ComparedMessages<'a, T: Element> {
    pub from: Ref<'a, T>,
    pub into: Ref<'a, T>,
    pub counts: [Vec<usize>; 2],
}

/// Messages of elements that rows of experts consist of.
pub enum Payload<'a> {
    Rows(ComparedMessages<'a, bf16>),
    Values(ComparedMessages<'a, u8>),
    Scales(ComparedMessages<'a, f32>),
}

/// One end of a message between two ranks.
#[derive(Clone)]
pub struct MessageEnd<'a, T: Element> {
    pub operand: Ref<'a, T>,
    pub peer: usize,
    pub sends: bool,
}

/// A library that has collectives.
pub trait ComparedLibrary {
    /// A collective from the first operand to the second. Reductions are sums.
    fn collective<'s, T: Element>(
        &'s self,
        collective: CollectiveCommand,
        operands: [BufferPart<'s, T>; 2],
    ) -> Result<Work<'s>>;

    /// An all-to-all of each payload.
    fn exchange<'s>(&'s self, payloads: Vec<Payload<'s>>) -> Work<'s>;

    /// Messages between pairs of ranks, as one operation.
    fn pairs<'s, T: Element>(&'s self, ends: Vec<MessageEnd<'s, T>>) -> Work<'s>;
}

impl ComparedLibrary for Communicator {
    fn collective<'s, T: Element>(
        &'s self,
        collective: CollectiveCommand,
        operands: [BufferPart<'s, T>; 2],
    ) -> Result<Work<'s>> {
        let [input, output] = operands;
        let operands = [input.buffer.slice(input.elems)?, output.buffer.slice(output.elems)?];
        Ok(Box::new(move |queue| self.perform(collective.op(), &How::default(), operands.map(Some), queue)))
    }

    fn exchange<'s>(&'s self, payloads: Vec<Payload<'s>>) -> Work<'s> {
        Box::new(move |queue| {
            payloads.iter().try_for_each(|payload| match payload {
                Payload::Rows(messages) => all_to_all(self, messages, queue),
                Payload::Values(messages) => all_to_all(self, messages, queue),
                Payload::Scales(messages) => all_to_all(self, messages, queue),
            })
        })
    }

    fn pairs<'s, T: Element>(&'s self, ends: Vec<MessageEnd<'s, T>>) -> Work<'s> {
        Box::new(move |queue| {
            let add = |messages: &mut Pairs<'s>, end: &MessageEnd<'s, T>| match end.sends {
                true => messages.send(end.operand.clone(), end.peer),
                false => messages.receive(end.operand.clone(), end.peer),
            };
            ProcessGroup::pairs(self, queue, |messages| ends.iter().try_for_each(|end| add(messages, end)))
        })
    }
}

fn all_to_all<'s, T: Element>(
    communicator: &Communicator,
    ComparedMessages { from, into, counts: [sent, came] }: &ComparedMessages<'s, T>,
    queue: AnyQueue<'_, 's>,
) -> Result<()> {
    communicator.all_to_all_v(from, sent, into, came, queue)
}
