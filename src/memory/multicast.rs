//! Opening multicast over the arenas, in a few steps. Each step succeeds on every rank or fails on every rank.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::bootstrap::hello::tell;
use crate::bootstrap::mesh::Mesh;
use crate::device::{Allocation, MulticastSupport};
use crate::error::{Error, Result};
use crate::group::{Group, Multicast as Asked, unavailable};
use crate::kernel::args;
use crate::variables::Process;

/// The result of a step that all ranks made, or the reason why all ranks stop.
pub(super) type Opened<T> = std::result::Result<T, String>;

/// The multicast object to which this rank's arena is bound.
pub(crate) struct Bound {
    /// `None` after the group closes.
    object: Mutex<Option<MulticastSupport>>,
    address: Address,
}

/// A device address. Rust never dereferences it.
struct Address(*mut u8);

// SAFETY: Rust never dereferences the address; devices do, and any thread may launch.
unsafe impl Send for Address {}
// SAFETY: Rust never dereferences the address, which never changes.
unsafe impl Sync for Address {}

impl Bound {
    fn new(object: MulticastSupport) -> Self {
        Self { address: Address(object.address()), object: Mutex::new(Some(object)) }
    }

    /// The data at `offset_bytes` from the start of every arena. `arenas` is the table of their addresses.
    pub(crate) fn at(&self, arenas: *const args::PeerTable, world_size: usize, offset_bytes: u64) -> args::Multicast {
        let (address, world) = (self.address.0.cast(), world_size as u32);
        args::Multicast { address, table: arenas, offset_bytes, world, reserved: 0 }
    }

    /// Ends the use of the object: dropping it unmaps and unbinds.
    pub(super) fn take(&self) -> Option<MulticastSupport> {
        self.object.lock().take()
    }
}

/// A step of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningStep {
    Ask,
    Create,
    Share,
    Import,
    Add,
    Bind,
    Map,
}

impl OpeningStep {
    const fn name(self) -> &'static str {
        match self {
            Self::Ask => "use multicast",
            Self::Create => "create a multicast object",
            Self::Share => "share the multicast object",
            Self::Import => "import the multicast object",
            Self::Add => "add its device to the multicast object",
            Self::Bind => "bind its arena to the multicast object",
            Self::Map => "map the multicast object",
        }
    }
}

/// A rank's failure in a step.
#[derive(Clone, Serialize, Deserialize)]
struct StepFailure {
    why: String,
    /// The fabric manager has not configured the switches yet.
    early: bool,
}

/// CUDA's code for a fabric manager that is not ready.
const NOT_READY: i64 = 802;

/// The pauses before ranks retry because fabric managers were not ready.
#[cfg(not(test))]
const AGAIN: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
#[cfg(test)]
const AGAIN: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

/// The reason why ranks stop.
struct Stopped {
    why: String,
    /// Whether all ranks retry: only fabric managers that are not ready stopped them, and every rank has time.
    again: bool,
}

/// One attempt of the steps.
#[derive(Clone, Copy)]
struct Attempt {
    deadline: Instant,
    /// The pause before the next attempt; `None`: no other attempt follows.
    pause: Option<Duration>,
}

impl Attempt {
    /// Whether this rank has time for another attempt. Deadlines of ranks differ, so each rank sends this to the
    /// others.
    fn has_time(self) -> bool {
        #[cfg(test)]
        if tests::is_in_a_hurry() {
            return false;
        }
        self.pause.is_some_and(|pause| Instant::now() + pause < self.deadline)
    }
}

/// Compares the outcomes of a step. All ranks succeed, or all have the failure of the lowest rank that failed.
fn together<T>(mesh: &mut Mesh, attempt: Attempt, step: OpeningStep, own: Result<T>) -> Result<Result<T, Stopped>> {
    #[cfg(test)]
    let own = tests::fault(step).and(own);
    let failure = own.as_ref().err().map(|error| {
        let early = matches!(error, Error::Device { code: NOT_READY, .. });
        let why = match error {
            Error::Unsupported { what, reason } if what == "multicast" => reason.clone(),
            error => error.to_string(),
        };
        StepFailure { why, early }
    });
    let all = tell(mesh, "to open multicast", &(failure, attempt.has_time()), attempt.deadline)?;
    let first = all.iter().enumerate().find_map(|(rank, (failure, _))| Some((rank, failure.as_ref()?)));
    Ok(match first {
        None => Ok(own?),
        Some((rank, StepFailure { why, .. })) => Err(Stopped {
            why: format!("rank {rank} cannot {}: {why}", step.name()),
            again: all.iter().all(|(failure, has_time)| *has_time && failure.as_ref().is_none_or(|own| own.early)),
        }),
    })
}

/// Whether every rank may have multicast, and the unit of which the size of an arena must then be a multiple.
/// Collective, unless the configuration disables multicast.
pub(super) fn prepare(group: &Group) -> Result<Opened<usize>> {
    let (asked, world, device) = (group.config().multicast, group.world_size(), group.device());
    let refusal = || asked.refusal(device.kind(), world, &Process);
    if let (Asked::Off, Ok(Some(why))) = (asked, refusal()) {
        return Ok(Err(why));
    }
    group.exchange(|mesh, deadline| {
        trying_again(deadline, |attempt| {
            together(
                mesh,
                attempt,
                OpeningStep::Ask,
                permitted(refusal(), || MulticastSupport::granularity(device, world)),
            )
        })
    })
}

/// Asks the driver, unless multicast is refused without it: then no driver is called for multicast.
fn permitted(refusal: Result<Option<String>>, ask: impl FnOnce() -> Result<usize>) -> Result<usize> {
    match refusal? {
        Some(why) => Err(unavailable(why)),
        None => ask(),
    }
}

/// Opens multicast over the arenas of all ranks, if the ranks are prepared. Collective in this case.
///
/// # Errors
/// [`Error::Unsupported`], equal on all ranks, if the configuration requires multicast and the ranks cannot open it.
pub(super) fn open(group: &Group, arena: &Arc<Allocation>, prepared: Opened<usize>) -> Result<Opened<Bound>> {
    let opened = match prepared {
        Err(why) => Err(why),
        Ok(_) => {
            group.exchange(|mesh, deadline| trying_again(deadline, |attempt| steps(group, arena, mesh, attempt)))?
        }
    };
    match (opened, group.config().multicast) {
        (Err(why), Asked::Require) if group.world_size() > 1 => Err(unavailable(why)),
        (Err(why), Asked::Try | Asked::Require) => {
            crate::log!(INFO, "no multicast in {group:?}: {why}");
            Ok(Err(why))
        }
        (opened, _) => Ok(opened.map(Bound::new)),
    }
}

/// Calls `open` again, on all ranks alike, while the only obstacle is that fabric managers are not ready.
fn trying_again<T>(
    deadline: Instant,
    mut open: impl FnMut(Attempt) -> Result<Result<T, Stopped>>,
) -> Result<Opened<T>> {
    for pause in AGAIN {
        match open(Attempt { deadline, pause: Some(pause) })? {
            Err(stopped) if stopped.again => std::thread::sleep(pause),
            outcome => return Ok(outcome.map_err(|stopped| stopped.why)),
        }
    }
    Ok(open(Attempt { deadline, pause: None })?.map_err(|stopped| stopped.why))
}

/// Makes the steps. If a rank fails, the objects that each rank has created are dropped in reverse order.
fn steps(
    group: &Group,
    arena: &Arc<Allocation>,
    mesh: &mut Mesh,
    attempt: Attempt,
) -> Result<Result<MulticastSupport, Stopped>> {
    /// The value of a step that all ranks made; else the function returns.
    macro_rules! made {
        ($step:expr, $own:expr) => {{
            let own = $own;
            match together(mesh, attempt, $step, own)? {
                Ok(value) => value,
                Err(stopped) => return Ok(Err(stopped)),
            }
        }};
    }
    let (device, world, bytes) = (group.device(), group.world_size(), arena.bytes());
    let creates = group.rank() == 0;
    let create = || creates.then(|| MulticastSupport::create(device, bytes, world)).transpose();
    let created = made!(OpeningStep::Create, create());
    // A rank other than the creator sends a descriptor that no rank reads.
    let export = || created.as_ref().map_or_else(|| arena.export_fd(), MulticastSupport::export_fd);
    let own = made!(OpeningStep::Share, export());
    let mut fds = mesh.all_gather_fds(own.as_fd(), attempt.deadline)?;
    let theirs = fds.get_mut(0).and_then(Option::take);
    // Rank 0 imports too, so that its object addresses its memory by the same path as those of the others.
    let object = MulticastSupport::import(device, if creates { own } else { theirs.unwrap_or(own) }, bytes);
    let mut object = made!(OpeningStep::Import, object);
    made!(OpeningStep::Add, object.add());
    // Binding waits until every device was added; the previous agreement ensures this.
    made!(OpeningStep::Bind, object.bind(arena));
    made!(OpeningStep::Map, object.map());
    // The agreement on the last step is the barrier between mapping and the first use.
    drop(created);
    Ok(Ok(object))
}

#[cfg(test)]
#[path = "../../tests/unit/memory/multicast.rs"]
mod tests;
