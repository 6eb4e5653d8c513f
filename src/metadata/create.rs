//! Making a ring: every rank leaves with its end of it, or with the same error.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::seat::Seat;
use super::{BroadcastRing, Reader, RingConfig, Writer, until};
use crate::bootstrap::Bootstrap;
use crate::bootstrap::mesh::Mesh;
use crate::error::{Error, Result};
use crate::group::Group;

/// What a rank says of itself.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// Why it cannot take part.
    error: Option<String>,
    /// What must be equal everywhere, by name.
    agreed: Vec<(String, String)>,
    host: String,
}

impl BroadcastRing {
    /// Makes a ring of all ranks of `bootstrap`. Collective; blocks until every reader is there.
    /// `bootstrap` is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a setting outside its limits, [`Error::Mismatch`] when ranks
    /// differ in settings, [`Error::Peer`] when another rank cannot take part, [`Error::Timeout`] and
    /// [`Error::PeerLost`] when one does not answer.
    pub fn create(bootstrap: &mut dyn Bootstrap, config: RingConfig) -> Result<Self> {
        let deadline = until(config.limit());
        let members = meet(bootstrap, &config, deadline)?;
        let mesh = Mesh::open(bootstrap, deadline)?;
        finish(bootstrap, mesh, members, &config, deadline)
    }

    /// Makes a ring of all ranks of `group`. Collective; blocks until every reader is there. The
    /// ring stays when the group is closed.
    ///
    /// # Errors
    /// As [`create`](Self::create); the group's error when it failed. A rank that is lost while the
    /// ring is made is lost to the group too.
    pub fn create_in(group: &Group, config: RingConfig) -> Result<Self> {
        let deadline = until(config.limit());
        group.exchange(|mesh, _| {
            let members = meet(mesh, &config, deadline)?;
            let own = mesh.split(Some(&members), deadline)?;
            let own = own.ok_or_else(|| Error::Internal { message: "a split without this rank".to_owned() })?;
            finish(mesh, own, members, &config, deadline)
        })
    }
}

/// Compares settings. The ranks that share the writer's memory.
fn meet(bootstrap: &mut dyn Bootstrap, config: &RingConfig, deadline: Instant) -> Result<Vec<usize>> {
    let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
    let fit = config.validate(world_size);
    let error = fit.as_ref().err().map(ToString::to_string);
    let hello = Hello { error, agreed: config.agreed(), host: config.host.clone().unwrap_or_else(boot_id) };
    let hello = serde_json::to_vec(&hello).map_err(|error| Error::Internal { message: error.to_string() })?;
    let answers = bootstrap.all_gather(&hello, deadline)?;
    fit?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice::<Hello>(bytes)
            .map_err(|error| Error::bootstrap(format!("rank {rank} answered with something else: {error}")))
    };
    let hellos = answers.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
    compare(rank, &hellos)?;
    Ok((0..world_size).collect())
}

/// Takes the seats of one host, and compares notes with all.
fn finish(
    bootstrap: &mut dyn Bootstrap,
    mesh: Mesh,
    members: Vec<usize>,
    config: &RingConfig,
    deadline: Instant,
) -> Result<BroadcastRing> {
    let rank = bootstrap.rank();
    let seat = Seat::take(mesh, members, config, deadline);
    let seat = agree(bootstrap, seat, deadline)?;
    Ok(match rank == config.writer {
        true => BroadcastRing::Writer(Writer::new(seat, config)),
        false => BroadcastRing::Reader(Reader::new(seat, config)),
    })
}

/// `local` if every rank succeeded; else its error, or that of the lowest rank that failed.
fn agree<T>(bootstrap: &mut dyn Bootstrap, local: Result<T>, deadline: Instant) -> Result<T> {
    let words = local.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let all = bootstrap.all_gather(words.as_bytes(), deadline);
    let value = local?;
    match all?.iter().enumerate().find(|(_, words)| !words.is_empty()) {
        None => Ok(value),
        Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(words).into_owned() }),
    }
}

/// The first complaint, else the first difference to rank 0: the same on every rank.
fn compare(own: usize, hellos: &[Hello]) -> Result<()> {
    for (rank, hello) in hellos.iter().enumerate() {
        if let (Some(message), true) = (&hello.error, rank != own) {
            return Err(Error::Peer { rank, message: message.clone() });
        }
    }
    let Some(first) = hellos.first() else { return Ok(()) };
    for (rank, hello) in hellos.iter().enumerate() {
        if let Some((ours, theirs)) = first.agreed.iter().zip(&hello.agreed).find(|(ours, theirs)| ours != theirs) {
            let what = ours.0.clone();
            return Err(Error::Mismatch { what, against: 0, ours: ours.1.clone(), rank, theirs: theirs.1.clone() });
        }
    }
    Ok(())
}

/// Tells hosts apart where host names do not.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}
