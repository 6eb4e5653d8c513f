//! Communicators of some ranks of another communicator: splits and shrinks.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symmetra::bootstrap::Local;

use crate::abi::{Code, Handle};
use crate::birth::Birth;
use crate::comm::{Comm, Own, Place, Side};
use crate::config::Config;
use crate::error::{Failure, Result, argument};
use crate::group;
use crate::opening::{group_config, open_own};
use crate::out::not_null;
use crate::settings::settings;

/// The most time in which all survivors of a shrink have to come.
const MEET: Duration = Duration::from_secs(60);

/// The flag of a shrink that aborts the work of the communicator first.
const ABORT: c_int = 1;

/// The settings of a part: those of the communicator without a config of its own.
fn config_of_part(parent: &Comm, config: *const c_void) -> Result<Config> {
    match config.is_null() {
        true => Ok(parent.config.clone()),
        // SAFETY: NCCL's contract: an `ncclConfig_t`.
        false => unsafe { Config::read(config, settings()?) },
    }
}

/// `ncclCommSplit` of a communicator on symmetra's kernels. A negative color, -1, is no part.
pub(crate) fn split(
    parent: &Arc<Comm>,
    color: c_int,
    key: c_int,
    out: *mut Handle,
    config: *const c_void,
) -> Result<Code> {
    let out = not_null("the new communicator", out)?;
    // SAFETY: the caller's `ncclComm_t`, which is not null.
    unsafe { out.write(std::ptr::null_mut()) };
    if color < -1 {
        return Err(argument("the color", color, "colors are -1 (no part) and numbers from 0 on"));
    }
    let config = config_of_part(parent, config)?;
    let color = u32::try_from(color).ok();
    // The split is a step of the parent until all parts are open.
    let step = parent.begin_step();
    let of = parent.clone();
    let open = move || {
        let _step = step;
        let Some(own) = of.own() else { return Err(Failure::usage("the communicator ended during its split")) };
        let part = own.communicator.split(color, key)?;
        Ok(part.map(Own::new).transpose()?.map(Side::Own))
    };
    let birth = match color {
        None => Birth::of_others(config.returns_early, open),
        Some(_) => {
            let comm = Comm::opening(None, parent.device, config);
            // SAFETY: the caller's `ncclComm_t`, which stays until the opening or the group ends, by NCCL's contract.
            unsafe { Birth::new(out, comm, open) }?
        }
    };
    group::give_birth(birth)
}

/// The ranks that a shrink leaves out, as the program has them.
#[derive(Clone, Copy)]
pub(crate) struct Excluded {
    pub(crate) list: *const c_int,
    pub(crate) count: c_int,
}

impl Excluded {
    /// The other ranks, in their order.
    fn survivors(self, Place { rank, ranks }: Place) -> Result<Vec<usize>> {
        let count = usize::try_from(self.count).ok().filter(|count| (1..ranks).contains(count));
        let Some(count) = count else {
            return Err(argument(
                "the number of excluded ranks",
                self.count,
                format!("of {ranks} ranks it must be 1 to {}", ranks - 1),
            ));
        };
        if self.list.is_null() {
            return Err(argument("the list of excluded ranks", "null", format!("{count} ranks are needed")));
        }
        // SAFETY: NCCL's contract: `count` numbers.
        let list = unsafe { std::slice::from_raw_parts(self.list, count) };
        let mut survivors: Vec<usize> = (0..ranks).collect();
        for number in list {
            let found =
                usize::try_from(*number).ok().and_then(|number| survivors.iter().position(|rank| *rank == number));
            let Some(index) = found else {
                return Err(argument("an excluded rank", number, format!("ranks are 0 to {}, each once", ranks - 1)));
            };
            survivors.remove(index);
        }
        match survivors.contains(&rank) {
            true => Ok(survivors),
            false => Err(argument("an excluded rank", rank, "the calling rank is a survivor")),
        }
    }
}

/// The directory in which the survivors of a shrink meet: equal on all of them, and of no other shrink.
fn directory(own: &Own, number: u32, survivors: &[usize]) -> PathBuf {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
    let ranks = survivors.iter().fold(0_u32, |ranks, rank| ranks | 1 << rank);
    base.join(format!("symmetra-nccl-{}-{number}-{ranks:x}", own.token))
}

/// `ncclCommShrink` of a communicator on symmetra's kernels: a communicator of the other ranks, which alone call. Works on a
/// failed communicator too.
pub(crate) fn shrink(
    parent: &Arc<Comm>,
    excluded: Excluded,
    out: *mut Handle,
    config: *const c_void,
    flags: c_int,
) -> Result<Code> {
    let out = not_null("the new communicator", out)?;
    // SAFETY: the caller's `ncclComm_t`, which is not null.
    unsafe { out.write(std::ptr::null_mut()) };
    if !(0..=ABORT).contains(&flags) {
        return Err(argument("the flags of the shrink", flags, "flags are 0 and 1"));
    }
    let place = parent.open_place()?;
    let survivors = excluded.survivors(place)?;
    let config = config_of_part(parent, config)?;
    let settings = settings()?;
    let Some(own) = parent.own() else { return Err(Failure::usage("the communicator is not open")) };
    if flags == ABORT {
        parent.abort();
    }
    let directory = directory(own, parent.next_shrink(), &survivors);
    let device = own.communicator.device().clone();
    let rank = survivors.iter().position(|survivor| *survivor == place.rank).unwrap_or_default();
    let place = Place { rank, ranks: survivors.len() };
    let group = group_config(settings, place, &config);
    let deadline = Instant::now() + settings.timeout.unwrap_or(MEET);
    let open = move || {
        let bootstrap = Local::connect(&directory, place.rank, place.ranks, deadline)?;
        let own = open_own(bootstrap, &device, group)?;
        // All survivors have met. A directory that stays is empty, and no other shrink has the name.
        drop(std::fs::remove_dir(&directory));
        Ok(Some(Side::Own(own)))
    };
    let comm = Comm::opening(Some(place), parent.device, config);
    // SAFETY: the caller's `ncclComm_t`, which stays until the opening or the group ends, by NCCL's contract.
    let birth = unsafe { Birth::new(out, comm, open) }?;
    group::give_birth(birth)
}
