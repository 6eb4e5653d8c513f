//! NCCL as a candidate of a benchmark.
#![allow(unsafe_code)]

use std::time::Duration;

use symmetra::environment::nccl_library;
use symmetra::nccl::{self, UniqueId, Window};
use symmetra::{Capture, Communicator, DeviceKind, Element, Reduction, Ref, Stream};

use super::ROOT;
use super::competitor::Competitor;
use super::step::{Cargo, Library, Parcel, Part, Step};
use crate::collective::Collective;
use crate::failure::Failure;

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

/// Looks whether NCCL is there. Returns a line about it.
pub fn describe() -> Result<String, Failure> {
    let multicast = std::env::var(MULTICAST).unwrap_or_default();
    Ok(format!("{}, {MULTICAST}={multicast}", nccl_library(DeviceKind::Cuda)?.name()))
}

/// One rank of NCCL, which works on our memory.
pub struct Nccl(nccl::Communicator);

impl Nccl {
    /// NCCL with the ranks of `ours`; `None` without competitors. Collective; blocks.
    pub fn among(competitors: &[Competitor], ours: &Communicator) -> Result<Option<Self>, Failure> {
        let everyone: Vec<usize> = (0..ours.world_size()).collect();
        (!competitors.is_empty()).then(|| Self::open(ours, &everyone)).transpose()
    }

    /// NCCL with some ranks of `ours`, in the order of their numbers in `ours`. All ranks call this at once, each with
    /// the ranks of its own part. Collective; blocks.
    pub fn open(ours: &Communicator, members: &[usize]) -> Result<Self, Failure> {
        let library = nccl_library(DeviceKind::Cuda)?;
        let at = members.iter().position(|rank| *rank == ours.rank());
        let at = at.ok_or_else(|| Failure::failed("a rank is no member of its part"))?;
        let own = if at == 0 { library.unique_id()?.to_bytes().to_vec() } else { Vec::new() };
        let all = ours.group().all_gather_bytes(&own)?;
        let id = members.first().and_then(|first| all[*first].as_slice().try_into().ok());
        let id = UniqueId::from_bytes(id.ok_or_else(|| Failure::failed("the first rank sent no identity for NCCL"))?);
        Ok(Self(nccl::Communicator::init(&library, ours.device(), at, members.len(), id, MEET)?))
    }

    /// Memory for a symmetric window. Collective; blocks.
    pub fn window(&self, bytes: usize) -> symmetra::Result<Window> {
        Window::new(&self.0, bytes)
    }

    /// A collective on memory of any kind.
    pub fn on<'s, T: Element>(&'s self, collective: Collective, [input, output]: [Ref<'s, T>; 2]) -> Call<'s, T> {
        Call { communicator: &self.0, collective, input, output }
    }
}

impl Library for Nccl {
    fn step<'s, T: Element>(
        &'s self,
        collective: Collective,
        [input, output]: [Part<'s, T>; 2],
    ) -> symmetra::Result<Box<dyn Step<'s> + 's>> {
        let of = |part: Part<'s, T>| part.buffer.borrow().slice(part.elems);
        Ok(Box::new(self.on(collective, [of(input)?, of(output)?])))
    }

    fn exchange<'s>(&'s self, cargo: Vec<Cargo<'s>>) -> Box<dyn Step<'s> + 's> {
        Box::new(Exchange { communicator: &self.0, cargo })
    }
}

/// All parcels in one group of sends and receives.
struct Exchange<'s> {
    communicator: &'s nccl::Communicator,
    cargo: Vec<Cargo<'s>>,
}

impl Exchange<'_> {
    fn call(&self, stream: &Stream) -> symmetra::Result<()> {
        self.communicator.group(|| {
            self.cargo.iter().try_for_each(|cargo| match cargo {
                Cargo::Rows(parcel) => self.send(parcel, stream),
                Cargo::Codes(parcel) => self.send(parcel, stream),
                Cargo::Scales(parcel) => self.send(parcel, stream),
            })
        })
    }

    fn send<T: Element>(&self, parcel: &Parcel<'_, T>, stream: &Stream) -> symmetra::Result<()> {
        let Parcel { from, into, counts: [sent, came] } = parcel;
        let mut begin = 0;
        for (peer, elems) in sent.iter().enumerate().filter(|(_, elems)| **elems > 0) {
            let message = from.slice(begin..begin + elems)?.as_raw().cast_const().cast();
            // SAFETY: the slice has this many elements; every rank makes the same calls in one thread; buffers and
            // communicator outlive the graphs of a size, which are dropped before them.
            unsafe { self.communicator.send(message, *elems, T::DTYPE, peer, stream) }?;
            begin += elems;
        }
        begin = 0;
        for (peer, elems) in came.iter().enumerate().filter(|(_, elems)| **elems > 0) {
            let message = into.slice(begin..begin + elems)?.as_raw().cast();
            // SAFETY: as above; each rank sends what the other one expects.
            unsafe { self.communicator.recv(message, *elems, T::DTYPE, peer, stream) }?;
            begin += elems;
        }
        Ok(())
    }
}

impl<'a> Step<'a> for Exchange<'_> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call(capture.stream())
    }

    fn check(&self) -> symmetra::Result<()> {
        self.communicator.check()
    }
}

/// A collective of NCCL with its operands.
pub struct Call<'s, T: Element> {
    communicator: &'s nccl::Communicator,
    collective: Collective,
    input: Ref<'s, T>,
    output: Ref<'s, T>,
}

impl<T: Element> Call<'_, T> {
    fn call(&self, stream: &Stream) -> symmetra::Result<()> {
        let nccl = self.communicator;
        let (from, to) = (self.input.as_raw().cast_const().cast(), self.output.as_raw().cast());
        let (given, got, dtype) = (self.input.len(), self.output.len(), T::DTYPE);
        match self.collective {
            // SAFETY: for this and the rest: the operands have this many elements; every rank makes the same calls in
            // one thread; buffers and communicator outlive the graphs of a size, which are dropped before them.
            Collective::AllReduce => unsafe { nccl.all_reduce(from, to, given, dtype, Reduction::Sum, stream) },
            // SAFETY: as above; the output has a place for the input of every rank.
            Collective::AllGather => unsafe { nccl.all_gather(from, to, given, dtype, stream) },
            // SAFETY: as above; the input has a part for every rank.
            Collective::ReduceScatter => unsafe { nccl.reduce_scatter(from, to, got, dtype, Reduction::Sum, stream) },
            // SAFETY: as above; in place.
            Collective::Broadcast => unsafe { nccl.broadcast(to.cast_const(), to, got, dtype, ROOT, stream) },
            Collective::AllToAll => self.all_to_all(stream),
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
                // SAFETY: as in `call`; both operands have a part for every rank, and all ranks send and
                // receive alike.
                unsafe { self.communicator.send(from, part, T::DTYPE, peer, stream) }?;
                // SAFETY: as above.
                unsafe { self.communicator.recv(to, part, T::DTYPE, peer, stream) }
            })
        })
    }
}

impl<'a, T: Element> Step<'a> for Call<'_, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.call(stream)
    }

    fn record(&self, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        self.call(capture.stream())
    }

    fn check(&self) -> symmetra::Result<()> {
        self.communicator.check()
    }
}
