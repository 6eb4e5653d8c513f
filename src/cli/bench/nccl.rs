//! NCCL as a side of a race.
#![allow(unsafe_code)]

use std::time::Duration;

use symmetra::environment::nccl_library;
use symmetra::nccl::{self, UniqueId, Window};
use symmetra::{Capture, DeviceKind, Element, Reduction, Ref, Stream, SymmetricBuffer};

use super::peer::Peer;
use super::side::Side;
use crate::failure::Failure;

/// NVLink multicast.
const MULTICAST: &str = "NCCL_NVLS_ENABLE";
/// How long the ranks have to meet in NCCL.
const MEET: Duration = Duration::from_secs(120);

/// First of all: turns multicast off for NCCL, unless its user has said what to do.
pub(super) fn keep_multicast_off() {
    if std::env::var_os(MULTICAST).is_none() {
        // SAFETY: called before this program has opened a device or started a rank, while it has one
        // thread. Ranks inherit the variable.
        unsafe { std::env::set_var(MULTICAST, "0") };
    }
}

/// Looks whether NCCL is there. Returns a line about it.
pub(super) fn describe() -> Result<String, Failure> {
    let multicast = std::env::var(MULTICAST).unwrap_or_default();
    Ok(format!("{}, {MULTICAST}={multicast}", nccl_library(DeviceKind::Cuda)?.name()))
}

/// NCCL's ranks, and its own memory where it is asked for.
pub(super) struct Entrant<'a> {
    ours: &'a symmetra::Communicator,
    windows: Option<[Window; 2]>,
    communicator: nccl::Communicator,
}

impl<'a> Entrant<'a> {
    /// Windows are of the largest size. Collective; blocks.
    pub(super) fn open(
        peers: &[Peer],
        ours: &'a symmetra::Communicator,
        largest_bytes: usize,
    ) -> Result<Self, Failure> {
        let library = nccl_library(DeviceKind::Cuda)?;
        let (rank, ranks) = (ours.rank(), ours.world_size());
        let own = if rank == 0 { library.unique_id()?.to_bytes().to_vec() } else { Vec::new() };
        let all = ours.group().all_gather_bytes(&own)?;
        let id = all.first().and_then(|id| id.as_slice().try_into().ok());
        let id = UniqueId::from_bytes(id.ok_or_else(|| Failure::failed("rank 0 sent no identity for NCCL"))?);
        let communicator = nccl::Communicator::init(&library, ours.device(), rank, ranks, id, MEET)?;
        let window = || Window::new(&communicator, largest_bytes);
        let windows = match peers.contains(&Peer::NcclSymmetric) {
            true => Some([window()?, window()?]),
            false => None,
        };
        Ok(Self { ours, windows, communicator })
    }

    /// The side of one peer. The plain one works on our buffers.
    pub(super) fn side<'s, T: Element>(
        &'s self,
        peer: Peer,
        input: &'s SymmetricBuffer<T>,
        output: &'s SymmetricBuffer<T>,
    ) -> symmetra::Result<Nccl<'s, T>> {
        let [input, output] = match (&self.windows, peer) {
            (Some([from, to]), Peer::NcclSymmetric) => {
                let device = self.ours.device();
                // SAFETY: the windows are as large as the largest size and outlive the side; only NCCL
                // and the copies of this side use them, on one stream.
                let of_window = |window: &Window| unsafe { Ref::from_raw(device, window.as_raw().cast(), input.len()) };
                [of_window(from)?, of_window(to)?]
            }
            _ => [input.borrow(), output.borrow()],
        };
        Ok(Nccl { communicator: &self.communicator, input, output })
    }
}

/// One peer at one size.
pub(super) struct Nccl<'s, T: Element> {
    communicator: &'s nccl::Communicator,
    input: Ref<'s, T>,
    output: Ref<'s, T>,
}

impl<T: Element> Nccl<'_, T> {
    fn all_reduce(&self, stream: &Stream) -> symmetra::Result<()> {
        let (from, to) = (self.input.as_raw().cast(), self.output.as_raw().cast());
        // SAFETY: both have so many elements; every rank races alike, in one thread; buffers and
        // communicator outlive the graphs of a size, which are dropped before them.
        unsafe { self.communicator.all_reduce(from, to, self.input.len(), T::DTYPE, Reduction::Sum, stream) }
    }
}

impl<'a, T: Element> Side<'a, T> for Nccl<'_, T> {
    fn enqueue(&self, stream: &Stream) -> symmetra::Result<()> {
        self.all_reduce(stream)
    }

    fn record(&self, capture: &Capture<'a>) -> symmetra::Result<()> {
        self.all_reduce(capture.stream())
    }

    fn write(&self, input: &[T], output: &[T], stream: &Stream) -> symmetra::Result<()> {
        self.input.write(input, stream)?;
        self.output.write(output, stream)
    }

    fn read(&self, stream: &Stream) -> symmetra::Result<Vec<T>> {
        self.communicator.check()?;
        self.output.read(stream)
    }

    fn is_exact(&self) -> bool {
        false
    }
}
