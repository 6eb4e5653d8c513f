//! Opening and splitting a group. Every rank gets the same group or the same error.
#![allow(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use once_cell::sync::OnceCell;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use super::config::check_world_size;
use super::control_page::{PAGE_BYTES, PAGE_NAME, PageMapping};
use super::silence::Silence;
use super::timed::Labels;
use super::{Capabilities, Config, Group, Health, Inner, NEXT_ID};
use crate::bootstrap::hello::{Agreed, ClaimedPlace, check_agreed, check_complaints, check_places, tell};
use crate::bootstrap::host::boot_id;
use crate::bootstrap::mesh::{Mesh, Observer};
use crate::bootstrap::monitor::Monitor;
use crate::bootstrap::{Bootstrap, until};
use crate::device::{Allocation, Device, DeviceKind};
use crate::error::{Error, Result};
use crate::variables::{Process, flag, optional, report_consequence};

/// The version of the data that ranks write into each other's memory. Raised by every change that makes ranks of the
/// older and the newer build incompatible; `tests/source/bindings.rs` pins the sources that decide this.
pub(super) const PROTOCOL: u32 = 28;

/// The variable that turns [`Config::check_calls`] on.
pub(super) const CHECK_CALLS: &str = "SYMMETRA_CHECK_CALLS";
/// The variable that times the calls of all groups.
const TIMING: &str = "SYMMETRA_TIMING";

/// The variable with the folder of the records that failures write.
pub(super) const DUMP: &str = "SYMMETRA_DUMP";

/// A rank's message before the group exists.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// The rank's number and world size in its bootstrap. Older builds do not send it.
    #[serde(default)]
    place: Option<ClaimedPlace>,
    error: Option<String>,
    /// Values that must be equal on all ranks, by name.
    agreed: Agreed,
}

impl Group {
    /// Opens a group of all ranks of `bootstrap`. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a world size above 16 or a setting outside its limits (a deadline is refused
    /// before this rank sends anything to the others), [`Error::Bootstrap`] if two ranks have the same number,
    /// [`Error::Mismatch`] if ranks differ in world size, version, protocol (the data that they write into each other's
    /// memory), device kind or settings, [`Error::Peer`] if another rank cannot take part, [`Error::Timeout`] and
    /// [`Error::PeerLost`] if a rank does not answer.
    pub fn open(bootstrap: impl Bootstrap, device: &Device, config: Config) -> Result<Self> {
        Self::open_with(bootstrap, device, config, PROTOCOL).inspect_err(report_consequence)
    }

    /// Opens a group like a build with this protocol number.
    fn open_with(bootstrap: impl Bootstrap, device: &Device, config: Config, protocol: u32) -> Result<Self> {
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        check_world_size(world_size)?;
        if rank >= world_size {
            return Err(Error::invalid("rank", rank, format!("it must be below the world size {world_size}")));
        }
        config.check_deadlines()?;
        // Before the first wait, so that the page shows the wait to observers.
        let page = page(rank, world_size, device, protocol);
        let folder = dump_folder().and_then(|folder| Some((folder, page.as_ref().ok()?.again().ok()?)));
        Self::on_page(bootstrap, device, config, protocol, page).inspect_err(|error| {
            if let Some((folder, page)) = &folder {
                page.dump_opening(rank, world_size, folder, error);
            }
        })
    }

    /// As [`open_with`](Self::open_with), with the control page of this rank.
    fn on_page(
        mut bootstrap: impl Bootstrap,
        device: &Device,
        mut config: Config,
        protocol: u32,
        page: Result<PageMapping>,
    ) -> Result<Self> {
        let (rank, world_size, deadline) = (bootstrap.rank(), bootstrap.world_size(), until(config.deadlines.open));
        let asked = flag(&Process, CHECK_CALLS).map(|asked| config.check_calls |= asked);
        let asked = asked.and_then(|()| flag(&Process, TIMING).map(|asked| config.timing |= asked));
        let asked = asked.and_then(|()| config.check_timing(device.kind()));
        let fit = asked.and_then(|()| config.validate(world_size)).and_then(|()| capable(device));
        let fit = fit.and_then(|()| config.multicast.check(device.kind(), world_size, &Process));
        let agreed = agreed(device, &config, world_size, protocol);
        let (error, place) = (fit.as_ref().err().map(ToString::to_string), Some([rank, world_size]));
        let hello = Hello { place, error, agreed };
        let hellos = tell(&mut bootstrap, "to open a group", &hello, deadline)?;
        check_places(hellos.iter().map(|hello| hello.place))?;
        fit?;
        check_complaints(rank, hellos.iter().map(|hello| hello.error.as_ref()))?;
        check_agreed(hellos.iter().map(|hello| &hello.agreed))?;
        let mesh = Mesh::open(&mut bootstrap, deadline)?;
        Self::on_mesh(mesh, device, config, deadline, page)
    }

    /// Splits the group. Ranks with equal `color` form a new group, ordered by `key`, then by rank. A rank with `None`
    /// joins no new group. Collective over all ranks of this group; blocks. If one rank fails, all ranks of all colours
    /// fail.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), with rank numbers of this group; the group's error if the group has failed.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        self.split_into(color, key, self.config().clone(), Ok)
    }

    /// Splits the group and calls `finish`, a collective, on each new group, which has the settings `config`. Returns
    /// the result of `finish`.
    pub(crate) fn split_into<T>(
        &self,
        color: Option<u32>,
        key: i32,
        config: Config,
        finish: impl FnOnce(Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let deadline = until(self.config().deadlines.open);
        let part = self.exchange(|mesh, deadline| Self::part(mesh, color, key, deadline))?;
        let made = part.map(|(members, mut mesh)| {
            let (health, of_part) = (self.0.health.clone(), members.clone());
            mesh.heed(Some(Box::new(move || health.check().map_err(|error| error.among(&of_part)))));
            let page = page(mesh.rank(), mesh.world_size(), self.device(), PROTOCOL);
            let part = Self::on_mesh(mesh, self.device(), config, deadline, page).and_then(finish);
            part.map_err(|error| self.reason_of(error.of_members(&members), true))
        });
        self.with_all(made.transpose())
    }

    /// This rank's result of a split, if every rank succeeded; else this rank's error, or that of the rank that failed.
    /// Collective.
    fn with_all<T>(&self, made: Result<T>) -> Result<T> {
        if let Err(late @ Error::Timeout { .. }) = &made {
            // The late rank does not take part in an exchange of all ranks either; the notice spares the others the
            // wait.
            let _ = self.exchange(|mesh, _| -> Result<()> {
                mesh.fail(late);
                Err(late.clone())
            });
            return made;
        }
        let named = |error: &Error| match error {
            Error::PeerLost { rank, .. } | Error::Peer { rank, .. } => *rank,
            _ => self.rank(),
        };
        let failed = made.as_ref().err().map(|error| (named(error), error.to_string()));
        // Ranks of another part may have begun their own wait at the end of this rank's wait.
        let deadline = until(self.config().deadlines.open.saturating_mul(2));
        let all = self.exchange(|mesh, _| tell(mesh, "to end a split", &failed, deadline));
        match (made, all) {
            // The rank that this rank lost may have left because of the rank that the whole group names.
            (Err(Error::PeerLost { .. }), Err(cause @ Error::PeerLost { .. })) => Err(cause),
            (made, all) => made.and_then(|made| self.complaint(all?).map_or(Ok(made), Err)),
        }
    }

    /// The error for the rank that failed, in its own words if it reported its failure. Each rank reports the rank that
    /// it names, and the reason.
    fn complaint(&self, all: Vec<Option<(usize, String)>>) -> Option<Error> {
        let told =
            || all.iter().enumerate().filter_map(|(by, told)| told.as_ref().map(|(named, why)| (by, *named, why)));
        let (by, named, why) = told().find(|(by, named, _)| by == named).or_else(|| told().next())?;
        // This rank has not failed, even if another rank names it.
        let rank = if named == self.rank() { by } else { named };
        Some(Error::Peer { rank, message: format!("split: {why}") })
    }

    /// The members of this rank's new group, and their mesh.
    fn part(mesh: &mut Mesh, color: Option<u32>, key: i32, deadline: Instant) -> Result<Option<(Vec<usize>, Mesh)>> {
        let all = tell(mesh, "to split a group", &(color, key), deadline)?;
        let members = members(&all, color);
        let part = mesh.split(members.as_deref(), deadline)?;
        Ok(members.zip(part))
    }

    /// Opens the group of the ranks of `mesh`. `own` is the control page of this rank.
    fn on_mesh(
        mut mesh: Mesh,
        device: &Device,
        config: Config,
        deadline: Instant,
        own: Result<PageMapping>,
    ) -> Result<Self> {
        let (rank, world_size) = (mesh.rank(), mesh.world_size());
        if let Ok(page) = own.as_ref().map_err(Clone::clone).and_then(PageMapping::again) {
            mesh.observe(Box::new(HostCalls(page)));
        }
        let processes = processes(&mut mesh, deadline)?;
        let capabilities = Capabilities::agree(&mut mesh, device, deadline)?;
        let own = mesh.agree("create a control page", own, deadline)?;
        let fds = mesh.all_gather_fds(own.fd(), deadline)?;
        let pages = map_pages(own, fds).and_then(|pages| {
            pages[rank].identity().join(pages[0].number()?);
            Ok(pages)
        });
        let pages = mesh.agree("map the control pages", pages, deadline)?;
        // SAFETY: `pages` keeps the page mapped for PAGE_BYTES and is dropped after the pin, here and in `Health`.
        let pinned = unsafe { Allocation::pin(device, pages[rank].address(), PAGE_BYTES) };
        let pinned = mesh.agree("pin the control page", pinned, deadline)?;
        let health = Arc::new(Health {
            rank,
            _pinned: pinned,
            pages,
            failure: OnceCell::new(),
            deadlines: config.deadlines,
            check_calls: config.check_calls,
            silent: config.silence,
            dump_folder: dump_folder(),
            heap_bytes: config.heap_bytes,
            heap_channels: config.heap_channels,
            equal: (0..world_size).map(|_| AtomicU64::new(0)).collect(),
            departed: AtomicBool::new(false),
            place: OnceCell::new(),
        });
        health.live();
        if config.hold_after_failure {
            health.hold();
        }
        let (watched, seen, mut silence) = (health.clone(), health.clone(), Silence::new(Instant::now()));
        let on_lost = move |lost| watched.hung_up(lost);
        let monitor = Monitor::start(&mesh, on_lost, move || seen.look(&mut silence));
        let monitor = mesh.agree("watch the other ranks", monitor, deadline)?;
        // From here on the new group's own failures end exchanges.
        mesh.heed(None);
        let group = Self(Arc::new(Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rank,
            world_size,
            device: device.clone(),
            labels: config.timing.then(Labels::default),
            config,
            health,
            processes,
            capabilities,
            mesh: Mutex::new(mesh),
            monitor: Mutex::new(Some(monitor)),
            closed: RwLock::new(false),
            done: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        }));
        group.0.health.pages[rank].identity().open();
        crate::log!(INFO, "open: {group:?}");
        Ok(group)
    }
}

/// The folder of the records that failures write, if the variable is set.
fn dump_folder() -> Option<PathBuf> {
    optional(DUMP).ok().flatten().map(PathBuf::from)
}

/// Shows in this rank's page in which exchange of the host the rank waits.
struct HostCalls(PageMapping);

impl Observer for HostCalls {
    fn begins(&self, number: u64, call: &str) {
        self.0.host_call.begin(number, call);
    }

    fn ends(&self) {
        self.0.host_call.end();
    }
}

/// A new control page of this rank, which begins to open a group.
fn page(rank: usize, world_size: usize, device: &Device, protocol: u32) -> Result<PageMapping> {
    let page = PageMapping::create(PAGE_NAME)?;
    page.identity().begin(rank, world_size, device.kind(), protocol);
    Ok(page)
}

/// For each rank, the lowest rank of its process.
fn processes(mesh: &mut Mesh, deadline: Instant) -> Result<Vec<usize>> {
    let lowest = (0..mesh.world_size()).find(|rank| mesh.same_process(*rank)).unwrap_or(mesh.rank());
    let all = mesh.all_gather(&[lowest as u8], deadline)?;
    Ok(all.iter().map(|lowest| lowest.first().copied().unwrap_or(u8::MAX).into()).collect())
}

/// The pages of all ranks in rank order. `fds`: the descriptors of the other ranks; `None` for this rank, whose page is `own`.
fn map_pages(own: PageMapping, fds: Vec<Option<std::os::fd::OwnedFd>>) -> Result<Vec<PageMapping>> {
    let rank = fds.iter().take_while(|fd| fd.is_some()).count();
    let mut pages: Vec<_> = fds.into_iter().flatten().map(PageMapping::map).collect::<Result<_>>()?;
    pages.insert(rank, own);
    Ok(pages)
}

/// The part of a split of a rank that gave a color.
pub(crate) fn joined<T>(part: Option<T>) -> Result<T> {
    part.ok_or_else(|| Error::internal("a split gave this rank no group"))
}

/// Checks that the device can have an arena that peers map.
fn capable(device: &Device) -> Result<()> {
    if device.shares_memory() {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("symmetric memory on {}", device.name()),
        "it cannot share memory by file descriptor",
    ))
}

/// The settings that must be equal on every rank.
fn agreed(device: &Device, config: &Config, world_size: usize, protocol: u32) -> Agreed {
    let shape = device.shape();
    let mut agreed = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("protocol", protocol.to_string()),
        ("host", boot_id()),
        ("device kind", device.kind().to_string()),
    ];
    if device.kind() == DeviceKind::Host {
        agreed.push(("host launch shape", format!("{} x {}", shape.blocks, shape.threads)));
    }
    agreed.extend(config.compared(world_size));
    agreed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The ranks of this colour, ordered by key, then rank; `None` without a colour.
pub(crate) fn members(all: &[(Option<u32>, i32)], color: Option<u32>) -> Option<Vec<usize>> {
    let alike = all.iter().enumerate().filter(|(_, (theirs, _))| *theirs == color);
    let mut chosen: Vec<_> = alike.map(|(rank, (_, key))| (*key, rank)).collect();
    chosen.sort_unstable();
    color.map(|_| chosen.into_iter().map(|(_, rank)| rank).collect())
}

#[cfg(test)]
#[path = "../../tests/unit/group/open.rs"]
mod tests;
