//! Connections between hosts in a build without Gloo: only messages, by the library's own TCP. NCCL moves operands.

use std::time::Instant;

use super::{Across, Hosts, interface_unknown, unsupported};
use crate::bootstrap::hello::{SentId, tell, together};
use crate::bootstrap::{Bootstrap, Tcp, UniqueId};
use crate::error::{Error, Result};
use crate::memory::View;
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// The message of a build that cannot open groups on several hosts.
const NEITHER: &str =
    "nothing between hosts was built: build with the feature `nccl`, or with the feature `gloo` (Debian: libgloo-dev)";
/// The message of a build that cannot move operands through the CPU.
const LACKING: &str = "no engine between hosts was built: build with the feature `gloo` (Debian: libgloo-dev)";
/// The most bytes that a rank sends the others at a time.
const SLICE_BYTES: usize = 32 << 20;

/// The engines of this build, on one interface.
pub(crate) struct Engines {
    interface: String,
}

impl Engines {
    /// # Errors
    /// [`Error::Unsupported`] with the hosts: without an interface, and in a build that cannot move operands between
    /// hosts.
    pub(crate) fn open(interface: Option<&str>, hosts: &Hosts) -> Result<Self> {
        if cfg!(not(feature = "nccl")) {
            return Err(unsupported(hosts, NEITHER));
        }
        let interface = interface.ok_or_else(|| interface_unknown(hosts))?.to_owned();
        Ok(Self { interface })
    }

    /// The reason why the CPU moves no operands between hosts.
    pub(crate) fn check_operands() -> std::result::Result<(), String> {
        Err(LACKING.to_owned())
    }

    /// Connects sets of ranks. Every rank of `bootstrap` calls this, with its set in order, or with none. Every rank gets
    /// the same result. Blocks.
    pub(crate) fn connect(
        &self,
        bootstrap: &mut dyn Bootstrap,
        members: Option<&[usize]>,
        deadline: Instant,
    ) -> Result<Option<Box<dyn Across>>> {
        let members = members.unwrap_or_default();
        let own = members.iter().position(|member| *member == bootstrap.rank());
        let listened = (own == Some(0)).then(|| UniqueId::listen_at(&self.interface)).transpose();
        let place: SentId = match &listened {
            Ok(id) => id.as_ref().map(|id| Ok(id.to_string())),
            Err(error) => Some(Err(error.to_string())),
        };
        let places = tell(bootstrap, "to connect hosts", &place, deadline)?;
        let joined = listened.and_then(|id| own.map(|own| join(id, members, own, &places, deadline)).transpose());
        let wire = together("connect the hosts", joined, |words| bootstrap.all_gather(words, deadline))?;
        Ok(wire.map(|wire| Box::new(wire) as Box<dyn Across>))
    }
}

/// Meets the ranks of a wire at the address of its first rank. `id`: the id of this rank, if it listens.
fn join(id: Option<UniqueId>, members: &[usize], own: usize, places: &[SentId], deadline: Instant) -> Result<Words> {
    let first = members[0];
    let id = match (id, &places[first]) {
        (Some(id), _) => id,
        (None, Some(Ok(text))) => text.parse()?,
        (None, Some(Err(message))) => return Err(Error::Peer { rank: first, message: message.clone() }),
        (None, None) => return Err(Error::bootstrap(format!("rank {first} sent no address to meet at"))),
    };
    Ok(Words(Tcp::from_id(id, own, members.len(), deadline)?))
}

/// A rank's end of a wire.
struct Words(Tcp);

impl Across for Words {
    fn all_reduce(&mut self, _: Dtype, _: Reduction, _: &View<'_>, _: &Stream, _: Instant) -> Result<()> {
        Err(no_operands())
    }

    fn wait_first(&mut self, _: &[usize]) -> Result<()> {
        Ok(())
    }

    fn all_gather(&mut self, own: &[u8], all: &mut [u8], deadline: Instant) -> Result<()> {
        for (number, slice) in own.chunks(SLICE_BYTES).enumerate() {
            let came = self.0.all_gather(slice, deadline).map_err(between_hosts)?;
            let start = number * SLICE_BYTES;
            for (block, came) in all.chunks_exact_mut(own.len()).zip(came) {
                match block.get_mut(start..start + slice.len()) {
                    Some(place) if place.len() == came.len() => place.copy_from_slice(&came),
                    _ => return Err(Error::bootstrap("a host sent words of another length")),
                }
            }
        }
        Ok(())
    }

    fn all_to_all(&mut self, _: &[u8], _: &mut [u8], _: Instant) -> Result<()> {
        Err(no_operands())
    }

    fn reduce(&self, _: Dtype, _: Reduction, _: &[u8], _: &mut [u8]) -> Result<()> {
        Err(no_operands())
    }
}

fn no_operands() -> Error {
    Error::unsupported("operands between hosts through the CPU", LACKING)
}

/// An error without a rank number: a wire numbers its ends by host, but callers number ranks.
fn between_hosts(error: Error) -> Error {
    match error {
        Error::Timeout { operation, sequence, waited, detail, .. } => {
            Error::Timeout { operation, sequence, rank: None, waited, detail }
        }
        error @ Error::Bootstrap { .. } => error,
        error => Error::bootstrap(format!("between hosts, where a rank's number is that of its host: {error}")),
    }
}
