//! Opening and splitting: every rank leaves with the same group or the same error.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use once_cell::sync::OnceCell;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use super::config::check_world_size;
use super::page::{PAGE_BYTES, PageMapping};
use super::{Capabilities, Config, Group, Health, Inner, NEXT_ID};
use crate::bootstrap::hello::{Agreed, check_agreed, check_complaints, tell};
use crate::bootstrap::mesh::Mesh;
use crate::bootstrap::monitor::Monitor;
use crate::bootstrap::{Bootstrap, until};
use crate::device::{Device, DeviceKind, Memory};
use crate::error::{Error, Result};

/// What the sources of kernels, launches and layouts hash to: `build.rs` says which.
const PLAN: &str = env!("AGREED_SOURCES");

/// What a rank says of itself before there is a group.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// Why it cannot take part.
    error: Option<String>,
    /// What must be equal everywhere, by name.
    agreed: Agreed,
}

impl Group {
    /// Opens a group of all ranks of `bootstrap`. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a world size above 16 or a setting outside its limits,
    /// [`Error::Mismatch`] when ranks differ in version, build (what their memory holds and when), device kind or
    /// settings,
    /// [`Error::Peer`] when another rank cannot take part, [`Error::Timeout`] and
    /// [`Error::PeerLost`] when one does not answer.
    pub fn open(bootstrap: impl Bootstrap, device: &Device, config: Config) -> Result<Self> {
        Self::open_with(bootstrap, device, config, PLAN)
    }

    /// The same for a build with this plan.
    fn open_with(mut bootstrap: impl Bootstrap, device: &Device, config: Config, plan: &str) -> Result<Self> {
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        check_world_size(world_size)?;
        if rank >= world_size {
            return Err(Error::invalid("rank", rank, format!("it must be below the world size {world_size}")));
        }
        let deadline = until(config.deadlines.open);
        let fit = config.validate(world_size).and_then(|()| capable(device));
        let agreed = agreed(device, &config, world_size, plan);
        let hello = Hello { error: fit.as_ref().err().map(ToString::to_string), agreed };
        let hellos = tell(&mut bootstrap, "to open a group", &hello, deadline)?;
        fit?;
        check_complaints(rank, hellos.iter().map(|hello| hello.error.as_ref()))?;
        check_agreed(hellos.iter().map(|hello| &hello.agreed))?;
        let mesh = Mesh::open(&mut bootstrap, deadline)?;
        Self::on_mesh(mesh, device, config, deadline)
    }

    /// Splits the group: ranks with the same colour form a new one, in the order of `key`, then of
    /// rank; `None` takes part in no new group. Collective over all ranks of this group; blocks.
    ///
    /// # Errors
    /// As [`open`](Self::open); the group's error when it failed.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let deadline = until(self.config().deadlines.open);
        let mesh = self.exchange(|mesh, deadline| {
            let all = tell(mesh, "to split a group", &(color, key), deadline)?;
            mesh.split(members(&all, color).as_deref(), deadline)
        })?;
        mesh.map(|mesh| Self::on_mesh(mesh, self.device(), self.config().clone(), deadline)).transpose()
    }

    fn on_mesh(mut mesh: Mesh, device: &Device, config: Config, deadline: Instant) -> Result<Self> {
        let (rank, world_size) = (mesh.rank(), mesh.world_size());
        let processes = processes(&mut mesh, deadline)?;
        let capabilities = Capabilities::agree(&mut mesh, device, deadline)?;
        let own = PageMapping::create();
        let own = mesh.agree("create a control page", own, deadline)?;
        let fds = mesh.all_gather_fds(own.fd(), deadline)?;
        let pages = map_pages(own, fds);
        let pages = mesh.agree("map the control pages", pages, deadline)?;
        // SAFETY: the page is mapped for PAGE_BYTES until `pages` is dropped, after the pin, here and in `Health`.
        let pinned = unsafe { Memory::pin(device, pages[rank].address(), PAGE_BYTES) };
        let pinned = mesh.agree("pin the control page", pinned, deadline)?;
        let health =
            Arc::new(Health { rank, _pinned: pinned, pages, failure: OnceCell::new(), deadlines: config.deadlines });
        let watched = health.clone();
        let monitor = Monitor::start(&mesh, move |lost| watched.lost(lost));
        let monitor = mesh.agree("watch the other ranks", monitor, deadline)?;
        Ok(Self(Arc::new(Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rank,
            world_size,
            device: device.clone(),
            config,
            health,
            processes,
            capabilities,
            mesh: Mutex::new(mesh),
            monitor: Mutex::new(Some(monitor)),
            closed: RwLock::new(false),
        })))
    }
}

/// For every rank the lowest rank of its process.
fn processes(mesh: &mut Mesh, deadline: Instant) -> Result<Vec<usize>> {
    let lowest = (0..mesh.world_size()).find(|rank| mesh.same_process(*rank)).unwrap_or(mesh.rank());
    let all = mesh.all_gather(&[lowest as u8], deadline)?;
    Ok(all.iter().map(|lowest| lowest.first().copied().unwrap_or(u8::MAX).into()).collect())
}

/// Every page in rank order, the own among them.
fn map_pages(own: PageMapping, fds: Vec<Option<std::os::fd::OwnedFd>>) -> Result<Vec<PageMapping>> {
    let mut own = Some(own);
    let mut pages = Vec::with_capacity(fds.len());
    for fd in fds {
        match (fd, own.take()) {
            (Some(fd), kept) => {
                own = kept;
                pages.push(PageMapping::map(fd)?);
            }
            (None, Some(page)) => pages.push(page),
            (None, None) => return Err(Error::Internal { message: "two own entries in an exchange".to_owned() }),
        }
    }
    Ok(pages)
}

/// Whether the device can hold an arena that peers map.
fn capable(device: &Device) -> Result<()> {
    if device.shares_memory() {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("symmetric memory on {}", device.name()),
        "it cannot share memory by file descriptor",
    ))
}

/// What must be equal on every rank.
fn agreed(device: &Device, config: &Config, world_size: usize, plan: &str) -> Agreed {
    let shape = device.shape();
    let mut agreed = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("plan", plan.to_owned()),
        ("host", boot_id()),
        ("device kind", device.kind().to_string()),
    ];
    if device.kind() == DeviceKind::Host {
        agreed.push(("host launch shape", format!("{} x {}", shape.blocks, shape.threads)));
    }
    agreed.extend(config.entries(world_size));
    agreed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Tells hosts apart where host names do not.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

/// Who has this colour, in the order of key, then rank.
fn members(all: &[(Option<u32>, i32)], color: Option<u32>) -> Option<Vec<usize>> {
    let alike = all.iter().enumerate().filter(|(_, (theirs, _))| *theirs == color);
    let mut chosen: Vec<_> = alike.map(|(rank, (_, key))| (*key, rank)).collect();
    chosen.sort_unstable();
    color.map(|_| chosen.into_iter().map(|(_, rank)| rank).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Threads;

    #[test]
    fn builds_with_different_plans_do_not_meet() {
        let open = |bootstrap: Threads| {
            let plan = if bootstrap.rank() == 2 { "another" } else { PLAN };
            Group::open_with(bootstrap, &Device::host().unwrap(), Config::default(), plan).map(drop)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let ranks = Threads::new(3).unwrap().into_iter();
            let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(|| open(bootstrap))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        for result in results {
            let error = result.unwrap_err();
            let Error::Mismatch { what, against: 0, ours, rank: 2, theirs } = &error else { panic!("{error}") };
            assert_eq!((what.as_str(), ours.as_str(), theirs.as_str()), ("plan", PLAN, "another"));
        }
        assert_eq!(PLAN.len(), 16, "{PLAN}");
    }
}
