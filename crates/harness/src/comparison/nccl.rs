//! NCCL as a candidate of a benchmark.
#![allow(unsafe_code)]

use std::time::Duration;

use symmetra::environment::nccl_library;
use symmetra::nccl::{self, UniqueId, Window};
use symmetra::{Communicator, Device, DeviceKind, Element, Reduction, Ref, Stream};

use super::ROOT;
use super::competitor::Competitor;
use super::work::{BufferPart, ComparedLibrary, ComparedMessages, MessageEnd, Payload, Work};
use crate::collective::CollectiveCommand;
use crate::failure::CommandFailure;

/// NVLink multicast.
const MULTICAST: &str = "NCCL_NVLS_ENABLE";
/// How long the ranks have to meet in NCCL.
const MEET: Duration = Duration::from_secs(120);

/// Turns multicast off for NCCL, unless the user has set the variable.
pub fn keep_multicast_off() {
    if std::env::var_os(MULTICAST).is_none() {
        // SAFETY: called before this program has opened a device or started a rank, while it has one
        // thread. Ranks inherit the variable.
        unsafe { std::env::set_var(MULTICAST, "0") };
    }
}

/// Looks whether NCCL is there. Returns a line about the library, and its version.
pub fn describe() -> Result<(String, String), CommandFailure> {
    let (library, multicast) = (nccl_library(DeviceKind::Cuda)?, std::env::var(MULTICAST).unwrap_or_default());
    Ok((format!("{}, {MULTICAST}={multicast}", library.name()), library.version().to_string()))
}

/// One rank of NCCL, which works on our memory.
pub struct Nccl(nccl::Communicator);

impl Nccl {
    /// NCCL with the ranks of `ours`; `None` without competitors. Collective; blocks.
    pub fn among(competitors: &[Competitor], ours: &Communicator) -> Result<Option<Self>, CommandFailure> {
        let everyone: Vec<usize> = (0..ours.world_size()).collect();
        (!competitors.is_empty()).then(|| Self::open(ours, &everyone)).transpose()
    }

    /// NCCL with some ranks of `ours`, in the order of their numbers in `ours`. All ranks call this at once, each with
    /// the ranks of its own part. Collective; blocks.
    pub fn open(ours: &Communicator, members: &[usize]) -> Result<Self, CommandFailure> {
        let library = nccl_library(DeviceKind::Cuda)?;
        let at = members.iter().position(|rank| *rank == ours.rank());
        let at = at.ok_or_else(|| CommandFailure::failed("a rank is no member of its part"))?;
        let own = if at == 0 { library.unique_id()?.to_bytes().to_vec() } else { Vec::new() };
        let all = ours.group().all_gather_bytes(&own)?;
        let id = members.first().and_then(|first| all[*first].as_slice().try_into().ok());
        let id =
            UniqueId::from_bytes(id.ok_or_else(|| CommandFailure::failed("the first rank sent no identity for NCCL"))?);
        Ok(Self(nccl::Communicator::init(&library, ours.device(), at, members.len(), id, MEET)?))
    }

    /// Two symmetric windows of `bytes` bytes. Collective; blocks.
    pub fn windows(&self, ours: &Communicator, bytes: usize) -> symmetra::Result<Windows> {
        let window = || Window::new(&self.0, bytes);
        Ok(Windows { device: ours.device().clone(), windows: [window()?, window()?] })
    }

    /// A collective on memory of any kind.
    pub fn on<'s, T: Element>(&'s self, collective: CollectiveCommand, [input, output]: [Ref<'s, T>; 2]) -> Work<'s> {
        let call = NcclCollective { communicator: &self.0, collective, input, output };
        Box::new(move |queue| call.enqueue(queue.stream()))
    }

    /// Fails if NCCL has failed and the group has not noticed the failure.
    pub fn check(&self) -> symmetra::Result<()> {
        self.0.check()
    }
}

/// Memory of NCCL in symmetric windows: an input and an output.
pub struct Windows {
    device: Device,
    windows: [Window; 2],
}

impl Windows {
    /// Input and output of these numbers of elements.
    ///
    /// # Errors
    /// More elements than a window has.
    pub fn operands<T: Element>(&self, elems: [usize; 2]) -> symmetra::Result<[Ref<'_, T>; 2]> {
        let of = |window: &Window, elems: usize| {
            if elems * size_of::<T>() > window.bytes() {
                let reason =
                    format!("{elems} elements of {} do not fit a window of {} bytes", T::DTYPE, window.bytes());
                return Err(symmetra::Error::Unsupported { what: "an operand in a window".to_owned(), reason });
            }
            // SAFETY: the window has this many elements and outlives the borrow; only NCCL and the copies of one
            // candidate use it, on one stream.
            unsafe { Ref::from_raw(&self.device, window.as_raw().cast(), elems) }
        };
        let [input, output] = &self.windows;
        Ok([of(input, elems[0])?, of(output, elems[1])?])
    }
}

impl ComparedLibrary for Nccl {
    fn collective<'s, T: Element>(
        &'s self,
        collective: CollectiveCommand,
        operands: [BufferPart<'s, T>; 2],
    ) -> symmetra::Result<Work<'s>> {
        let [input, output] = operands;
        let of = |part: BufferPart<'s, T>| part.buffer.borrow().slice(part.elems);
        Ok(self.on(collective, [of(input)?, of(output)?]))
    }

    /// All messages in one group of sends and receives.
    fn exchange<'s>(&'s self, payloads: Vec<Payload<'s>>) -> Work<'s> {
        let nccl = &self.0;
        Box::new(move |queue| {
            nccl.group(|| {
                payloads.iter().try_for_each(|payload| match payload {
                    Payload::Rows(messages) => send(nccl, messages, queue.stream()),
                    Payload::Values(messages) => send(nccl, messages, queue.stream()),
                    Payload::Scales(messages) => send(nccl, messages, queue.stream()),
                })
            })
        })
    }

    fn pairs<'s, T: Element>(&'s self, ends: Vec<MessageEnd<'s, T>>) -> Work<'s> {
        let nccl = &self.0;
        Box::new(move |queue| nccl.group(|| ends.iter().try_for_each(|end| message(nccl, end, queue.stream()))))
    }
}

fn message<T: Element>(nccl: &nccl::Communicator, end: &MessageEnd<'_, T>, stream: &Stream) -> symmetra::Result<()> {
    let (memory, elems) = (end.operand.as_raw(), end.operand.len());
    match end.sends {
        // SAFETY: the operand has this many elements; the other rank of the message calls the counterpart in one thread;
        // buffers and communicator outlive the graphs of a size, which are dropped before them.
        true => unsafe { nccl.send(memory.cast_const().cast(), elems, T::DTYPE, end.peer, stream) },
        // SAFETY: as above.
        false => unsafe { nccl.recv(memory.cast(), elems, T::DTYPE, end.peer, stream) },
    }
}

fn send<T: Element>(
    nccl: &nccl::Communicator,
    messages: &ComparedMessages<'_, T>,
    stream: &Stream,
) -> symmetra::Result<()> {
    let ComparedMessages { from, into, counts: [sent, came] } = messages;
    let mut begin = 0;
    for (peer, elems) in sent.iter().enumerate().filter(|(_, elems)| **elems > 0) {
        let message = from.slice(begin..begin + elems)?.as_raw().cast_const().cast();
        // SAFETY: the slice has this many elements; every rank makes the same calls in one thread; buffers and
        // communicator outlive the graphs of a size, which are dropped before them.
        unsafe { nccl.send(message, *elems, T::DTYPE, peer, stream) }?;
        begin += elems;
    }
    begin = 0;
    for (peer, elems) in came.iter().enumerate().filter(|(_, elems)| **elems > 0) {
        let message = into.slice(begin..begin + elems)?.as_raw().cast();
        // SAFETY: as above; each rank sends what the other one expects.
        unsafe { nccl.recv(message, *elems, T::DTYPE, peer, stream) }?;
        begin += elems;
    }
    Ok(())
}

/// A collective of NCCL with its operands.
struct NcclCollective<'s, T: Element> {
    communicator: &'s nccl::Communicator,
    collective: CollectiveCommand,
    input: Ref<'s, T>,
    output: Ref<'s, T>,
}

impl<T: Element> NcclCollective<'_, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        let nccl = self.communicator;
        let (from, to) = (self.input.as_raw().cast_const().cast(), self.output.as_raw().cast());
        let (given, got, dtype) = (self.input.len(), self.output.len(), T::DTYPE);
        match self.collective {
            // SAFETY: for this and the rest: the operands have this many elements; every rank makes the same calls in
            // one thread; buffers and communicator outlive the graphs of a size, which are dropped before them.
            CollectiveCommand::AllReduce => unsafe { nccl.all_reduce(from, to, given, dtype, Reduction::Sum, stream) },
            // SAFETY: as above; the output has a place for the input of every rank.
            CollectiveCommand::AllGather => unsafe { nccl.all_gather(from, to, given, dtype, stream) },
            // SAFETY: as above; the input has a part for every rank.
            CollectiveCommand::ReduceScatter => unsafe {
                nccl.reduce_scatter(from, to, got, dtype, Reduction::Sum, stream)
            },
            // SAFETY: as above; in place.
            CollectiveCommand::Broadcast => unsafe { nccl.broadcast(to.cast_const(), to, got, dtype, ROOT, stream) },
            CollectiveCommand::AllToAll => self.all_to_all(stream),
            other => {
                let what = format!("a race of {} against NCCL", other.name());
                Err(symmetra::Error::Unsupported { what, reason: "no benchmark uses it".to_owned() })
            }
        }
    }

    /// NCCL implements an all-to-all as a group of sends and receives, as its documentation recommends.
    fn all_to_all(&self, stream: &Stream) -> symmetra::Result<()> {
        let ranks = self.communicator.world_size();
        let part = self.input.len() / ranks;
        self.communicator.group(|| {
            (0..ranks).try_for_each(|peer| {
                let from = self.input.as_raw().wrapping_add(peer * part).cast_const().cast();
                let to = self.output.as_raw().wrapping_add(peer * part).cast();
                // SAFETY: as in `enqueue`; both operands have a part for every rank, and all ranks send and
                // receive alike.
                unsafe { self.communicator.send(from, part, T::DTYPE, peer, stream) }?;
                // SAFETY: as above.
                unsafe { self.communicator.recv(to, part, T::DTYPE, peer, stream) }
            })
        })
    }
}
