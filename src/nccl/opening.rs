//! Opening a communicator with all ranks.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::communicator::Communicator;
use super::library::{Library, UniqueId};
use super::session::{NcclHandle, NcclSession, RankOfWorld};
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::settings::written;

/// A rank's message to the others before they join.
#[derive(Serialize, Deserialize)]
struct NcclCard {
    error: Option<String>,
    version: String,
    /// The communicator's identity, only from rank 0.
    id: Vec<u8>,
}

impl Communicator {
    /// Opens a communicator of all ranks that call it. `exchange` gathers bytes from every rank in rank order, as
    /// [`Group::all_gather_bytes`](crate::Group::all_gather_bytes) does. `library` is this rank's result of loading; a
    /// rank without a library takes part too, to report the error. Collective; blocks. All ranks succeed or all fail,
    /// as long as `exchange` connects them.
    ///
    /// No call waits longer than `limit`. NCCL does not block, and a call that is not done by then is aborted, here and
    /// later. The price: newer releases of NCCL start a thread for each operation outside a graph.
    ///
    /// # Errors
    /// The reason why this rank cannot take part: the error of `library`, [`Error::Unsupported`] for a device that is
    /// not a GPU, [`Error::Nccl`], [`Error::Timeout`] if other ranks do not join. [`Error::Peer`] with another rank's
    /// error, [`Error::Mismatch`] for different versions of NCCL, or the error of `exchange`.
    pub fn open(
        library: Result<Library>,
        device: &Device,
        rank: usize,
        world_size: usize,
        limit: Duration,
        mut exchange: impl FnMut(&[u8]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Self> {
        let library = library.and_then(|library| served(device).map(|()| library));
        let place = RankOfWorld { rank, world_size };
        meet(library, device, place, limit, &mut exchange).map(|session| Self(Arc::new(session)))
    }

    /// Joins the other ranks with equal `id` through NCCL's blocking calls, its fastest mode, for comparisons.
    /// Collective; blocks.
    ///
    /// A separate thread opens the communicator and is abandoned if `limit` passes first. A later call that waits for a
    /// lost rank may block forever.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the world size, [`Error::Unsupported`] for a device that is not a
    /// GPU, [`Error::Timeout`] if other ranks do not join, [`Error::Nccl`].
    #[doc(hidden)] // for `symmetra-bench` alone
    pub fn init(
        library: &Library,
        device: &Device,
        rank: usize,
        world_size: usize,
        id: UniqueId,
        limit: Duration,
    ) -> Result<Self> {
        served(device)?;
        let place = RankOfWorld { rank, world_size };
        join_blocking(library, device, place, id, limit).map(|session| Self(Arc::new(session)))
    }
}

fn served(device: &Device) -> Result<()> {
    match device.kind() {
        DeviceKind::Cuda | DeviceKind::Hip => Ok(()),
        DeviceKind::Host => Err(Error::unsupported(format!("NCCL on {device:?}"), "it works on GPUs only")),
    }
}

/// Gathers bytes from every rank, in rank order.
type ByteExchange<'a> = dyn FnMut(&[u8]) -> Result<Vec<Vec<u8>>> + 'a;

/// Agrees on an identity, joins, and agrees that all ranks have joined.
pub(super) fn meet(
    library: Result<Library>,
    device: &Device,
    place: RankOfWorld,
    limit: Duration,
    exchange: &mut ByteExchange<'_>,
) -> Result<NcclSession> {
    let (library, id) = agree(library, place, exchange)?;
    let session = NcclSession::open(&library, device, place, id, limit);
    let words = session.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let all = exchange(words.as_bytes());
    let session = session?;
    match all?.iter().enumerate().find(|(_, words)| !words.is_empty()) {
        None => Ok(session),
        Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(words).into_owned() }),
    }
}

/// Checks that every rank has a library of one version, and returns rank 0's identity on all ranks.
fn agree(library: Result<Library>, place: RankOfWorld, exchange: &mut ByteExchange<'_>) -> Result<(Library, UniqueId)> {
    let own = library.and_then(|library| {
        place.numbers()?;
        let id = if place.rank == 0 { library.unique_id()?.to_bytes().to_vec() } else { Vec::new() };
        Ok((library, id))
    });
    let card = match &own {
        Ok((library, id)) => NcclCard { error: None, version: library.version().to_string(), id: id.clone() },
        Err(error) => NcclCard { error: Some(error.to_string()), version: String::new(), id: Vec::new() },
    };
    let card = written(serde_json::to_vec(&card))?;
    let all = exchange(&card);
    let (library, _) = own?;
    let cards = all?.into_iter().enumerate().map(|(rank, card)| {
        serde_json::from_slice(&card)
            .map_err(|error| Error::bootstrap(format!("rank {rank} sent malformed data about its NCCL: {error}")))
    });
    let cards = cards.collect::<Result<Vec<NcclCard>>>()?;
    if let Some((rank, message)) = cards.iter().enumerate().find_map(|(rank, card)| Some((rank, card.error.clone()?))) {
        return Err(Error::Peer { rank, message });
    }
    let first = cards.first().ok_or_else(|| Error::bootstrap("no rank sent data about NCCL"))?;
    if let Some((rank, card)) = cards.iter().enumerate().find(|(_, card)| card.version != first.version) {
        let (ours, theirs) = (first.version.clone(), card.version.clone());
        return Err(Error::Mismatch { what: "the version of NCCL".to_owned(), against: 0, ours, rank, theirs });
    }
    let id = first.id.as_slice().try_into().map_err(|_| Error::bootstrap("rank 0 sent no identity for NCCL"))?;
    Ok((library, UniqueId::from_bytes(id)))
}

fn join_blocking(
    library: &Library,
    device: &Device,
    place: RankOfWorld,
    id: UniqueId,
    limit: Duration,
) -> Result<NcclSession> {
    let (rank, ranks) = place.numbers()?;
    let (sender, made) = mpsc::channel();
    let (theirs, bound) = (library.clone(), device.clone());
    let join = move || {
        let made = bound.make_current().and_then(|()| {
            let mut comm = std::ptr::null_mut();
            // SAFETY: writes one handle; the rank's device is current.
            let code = unsafe { (theirs.symbols().ncclCommInitRank)(&raw mut comm, ranks, id.0, rank) };
            theirs.check("ncclCommInitRank", code, std::ptr::null_mut()).map(|()| NcclHandle(comm))
        });
        if let Err(mpsc::SendError(Ok(late))) = sender.send(made) {
            // SAFETY: made a moment ago and known to no other thread.
            unsafe { (theirs.symbols().ncclCommAbort)(late.0) };
        }
    };
    let thread = std::thread::Builder::new().name("symmetra-nccl".to_owned()).spawn(join);
    thread.map_err(|error| Error::system("start a thread", &error))?;
    let comm = match made.recv_timeout(limit) {
        Ok(made) => made?,
        Err(_) => return Err(Error::exchange_timeout(None, limit, format!("ncclCommInitRank, in {}", library.name()))),
    };
    Ok(NcclSession::adopt(library, device, place, comm, limit))
}
