//! Gloo over TCP, for memory that the CPU can copy.

use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::{Across, Hosts, interface_unknown};
use crate::bootstrap::Bootstrap;
use crate::bootstrap::hello::tell;
use crate::engine::{GlooWire, Interface, reduce};
use crate::error::{Error, Result};
use crate::memory::{Ref, View};
use crate::stream::Stream;
use crate::types::{Dtype, Element, Reduction, with_type};

/// Attempts to connect. An unknown process that connects to a port of Gloo before the rank does takes the rank's place
/// and makes the attempt fail.
const ATTEMPTS: u32 = 4;
/// Time limit of an attempt. Ranks begin an attempt together.
const ATTEMPT: Duration = Duration::from_secs(10);
const TOKEN_BYTES: usize = 16;

/// The engines of this build, on one interface.
pub(crate) struct Engines {
    interface: Interface,
}

/// A rank's description of its end of a wire.
#[derive(Default, Serialize, Deserialize)]
struct WireCard {
    /// The reason why the rank cannot take part.
    error: Option<String>,
    /// Proves the rank's identity on each connection.
    token: [u8; TOKEN_BYTES],
    /// Addresses at which it listens for each rank of the wire.
    addresses: Vec<Vec<u8>>,
}

impl Engines {
    /// Opens an interface: an IP address of this host or the name of an interface.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an interface, [`Error::InvalidArgument`] for an unknown one.
    pub(crate) fn open(interface: Option<&str>, hosts: &Hosts) -> Result<Self> {
        let interface = interface.ok_or_else(|| interface_unknown(hosts))?;
        Ok(Self { interface: Interface::open(interface)? })
    }

    /// The reason why the CPU moves no operands between hosts.
    pub(crate) fn check_operands() -> std::result::Result<(), String> {
        Ok(())
    }

    /// Connects sets of ranks. Every rank of `bootstrap` calls this, with its set in order, or with none. Every rank
    /// gets the same result. Blocks.
    pub(crate) fn connect(
        &self,
        bootstrap: &mut dyn Bootstrap,
        members: Option<&[usize]>,
        deadline: Instant,
    ) -> Result<Option<Box<dyn Across>>> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let until = deadline.min(Instant::now() + ATTEMPT);
            let wire = self.attempt(bootstrap, members, until, deadline)?;
            let words = wire.as_ref().err().map(ToString::to_string).unwrap_or_default();
            let all = bootstrap.all_gather(words.as_bytes(), deadline)?;
            let Some(rank) = all.iter().position(|words| !words.is_empty()) else {
                return Ok(wire?.map(|wire| Box::new(wire) as Box<dyn Across>));
            };
            let message = String::from_utf8_lossy(&all[rank]).into_owned();
            crate::log!(WARN, "attempt {attempt} of {ATTEMPTS} to connect the hosts failed: rank {rank}: {message}");
            if attempt == ATTEMPTS || Instant::now() >= deadline {
                return Err(wire.err().unwrap_or(Error::Peer { rank, message }));
            }
        }
    }

    /// Listens, exchanges addresses, connects, and checks the identity of each peer. The outer error is that of the
    /// bootstrap: another attempt would not help.
    fn attempt(
        &self,
        bootstrap: &mut dyn Bootstrap,
        members: Option<&[usize]>,
        until: Instant,
        deadline: Instant,
    ) -> Result<Result<Option<GlooWire>>> {
        let members = members.unwrap_or_default();
        let own = members.iter().position(|member| *member == bootstrap.rank());
        let wire = own.map(|rank| self.listen(rank, members.len(), until)).transpose();
        let (wire, card) = match wire {
            Ok(Some((wire, card))) => (Ok(Some(wire)), card),
            Ok(None) => (Ok(None), WireCard::default()),
            Err(error) => {
                let card = WireCard { error: Some(error.to_string()), ..WireCard::default() };
                (Err(error), card)
            }
        };
        let cards = tell(bootstrap, "to connect hosts", &card, deadline)?;
        Ok(wire.and_then(|wire| wire.map(|wire| meet(wire, members, &cards, until)).transpose()))
    }

    fn listen(&self, rank: usize, world_size: usize, until: Instant) -> Result<(GlooWire, WireCard)> {
        let wire = GlooWire::listen(&self.interface, rank, world_size, until)?;
        let mut token = [0; TOKEN_BYTES];
        getrandom(&mut token, GetRandomFlags::empty())
            .map_err(|errno| Error::system("get random bytes", &errno.into()))?;
        let card = WireCard { error: None, token, addresses: wire.addresses()? };
        Ok((wire, card))
    }
}

/// Connects and compares tokens: only the rank itself has the token that it sent over the bootstrap.
fn meet(mut wire: GlooWire, members: &[usize], cards: &[WireCard], until: Instant) -> Result<GlooWire> {
    let rank = wire.rank();
    let mut addresses: Vec<&[u8]> = Vec::with_capacity(members.len());
    for member in members {
        let card = &cards[*member];
        if let Some(message) = &card.error {
            return Err(Error::Peer { rank: *member, message: message.clone() });
        }
        let address = card.addresses.get(rank);
        addresses.push(address.ok_or_else(|| Error::bootstrap(format!("rank {member} listens for others only")))?);
    }
    wire.connect(&addresses)?;
    let mut tokens = vec![0; TOKEN_BYTES * wire.world_size()];
    wire.all_gather(&cards[members[rank]].token, &mut tokens, until)?;
    let (tokens, _) = tokens.as_chunks::<TOKEN_BYTES>();
    match members.iter().zip(tokens).find(|(member, token)| cards[**member].token != **token) {
        None => Ok(wire),
        Some((member, _)) => Err(Error::bootstrap(format!("an unknown process connected in place of rank {member}"))),
    }
}

impl Across for GlooWire {
    fn all_reduce(
        &mut self,
        dtype: Dtype,
        reduction: Reduction,
        memory: &View<'_>,
        stream: &Stream,
        deadline: Instant,
    ) -> Result<()> {
        with_type!(dtype, T => through_host::<T>(self, reduction, memory, stream, deadline))
    }

    fn wait_first(&mut self, ranks: &[usize]) -> Result<()> {
        Self::wait_first(self, ranks)
    }

    fn all_gather(&mut self, own: &[u8], all: &mut [u8], deadline: Instant) -> Result<()> {
        Self::all_gather(self, own, all, deadline)
    }

    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8], deadline: Instant) -> Result<()> {
        Self::all_to_all(self, send, receive, deadline)
    }

    fn reduce(&self, dtype: Dtype, reduction: Reduction, blocks: &[u8], result: &mut [u8]) -> Result<()> {
        with_type!(dtype, T => reduce_bytes::<T>(reduction, blocks, result));
        Ok(())
    }
}

/// Reduces blocks of bytes at any alignment.
fn reduce_bytes<T: Element>(reduction: Reduction, blocks: &[u8], result: &mut [u8]) {
    let values: Vec<T> = blocks.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
    let mut reduced = vec![T::zeroed(); result.len() / size_of::<T>()];
    reduce(reduction, &values, &mut reduced);
    result.copy_from_slice(bytemuck::cast_slice(&reduced));
}

/// Copies to the CPU, reduces, and copies back.
fn through_host<T: Element>(
    wire: &mut GlooWire,
    reduction: Reduction,
    memory: &View<'_>,
    stream: &Stream,
    deadline: Instant,
) -> Result<()> {
    let memory = Ref::<T>::new(memory.address.cast(), memory.elems, memory.device);
    let mut values = memory.read(stream)?;
    wire.all_reduce(reduction, &mut values, deadline)?;
    memory.write(&values, stream)
}
