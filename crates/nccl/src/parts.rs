//! Communicators of some ranks of another communicator: splits and shrinks.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::{Code, Handle};
use crate::birth::Birth;
use crate::comm::{Comm, OwnComm, ServingLibrary};
use crate::config::CommConfig;
use crate::error::{CallFailure, Result, argument};
use crate::group;
use crate::out::not_null;
use crate::parting::Parting;
use crate::place::RankAndSize;
use crate::reunion::Reunion;
use crate::route;
use crate::settings::settings;
use crate::wish::{NO_PART, SplitRequest};

/// The flag of a shrink that aborts the work of the communicator first.
const ABORT: c_int = 1;

/// The settings of a part: those of the communicator without a config of its own. The real NCCL takes its own from its
/// communicator.
fn config_of_part(parent: &Comm, config: *const c_void) -> Result<CommConfig> {
    match config.is_null() {
        true => Ok(CommConfig { raw: Vec::new(), ..parent.config.clone() }),
        // SAFETY: NCCL's contract: an `ncclConfig_t`.
        false => unsafe { CommConfig::read(config, settings()?) },
    }
}

/// `ncclCommSplit`, also of a revoked communicator. The color -1 is no part. `pass` is for handles of the real NCCL that this
/// library did not make.
pub(crate) fn split(
    parent: Handle,
    wish: SplitRequest,
    out: *mut Handle,
    config: *const c_void,
    pass: impl FnOnce() -> Result<Code>,
) -> Result<Code> {
    let Some(parent) = route::made_here(parent)? else { return pass() };
    let out = not_null("the new communicator", out)?;
    // SAFETY: the caller's `ncclComm_t`, which is not null.
    unsafe { out.write(std::ptr::null_mut()) };
    if wish.color < NO_PART {
        return Err(argument("the color", wish.color, "colors are -1 (no part) and numbers from 0 on"));
    }
    parent.check_process()?;
    let config = config_of_part(&parent, config)?;
    let way = match (parent.real(), parent.own().filter(|_| parent.is_revoked())) {
        (Some(real), _) => SplitWay::Parting(Parting::new(&parent, real, wish, config.clone())?),
        (_, Some(own)) => {
            SplitWay::Reunion(Reunion::new(own, &parent.next_split(), parent.open_place()?, config.clone())?)
        }
        _ => SplitWay::Parent(parent.clone(), config.clone()),
    };
    let open = move || way.split(wish);
    let birth = match wish.color {
        NO_PART => Birth::of_others(config.returns_early, open),
        _ => {
            let comm = Comm::opening(None, parent.device, config);
            // SAFETY: the caller's `ncclComm_t`, which stays until the opening or the group ends, by NCCL's contract.
            unsafe { Birth::new(out, comm, open) }?
        }
    };
    group::give_birth(birth.in_step_of(parent))
}

/// How the ranks of a communicator split it.
enum SplitWay {
    /// Over the communicator, on symmetra's kernels, with the settings of the part.
    Parent(Arc<Comm>, CommConfig),
    /// Without the communicator, which is revoked.
    Reunion(Reunion),
    /// The real NCCL serves the communicator.
    Parting(Parting),
}

impl SplitWay {
    /// Collective; blocks. `None`: a rank without a part.
    fn split(self, wish: SplitRequest) -> Result<Option<ServingLibrary>> {
        let part = match self {
            Self::Parting(parting) => return parting.run(),
            Self::Reunion(reunion) => reunion.split(wish)?,
            Self::Parent(parent, config) => {
                let own = parent.own().ok_or_else(|| CallFailure::usage("the communicator ended during its split"))?;
                let CommConfig { most_blocks, graph_mixing, .. } = config;
                let part = own.communicator.split_within(wish.color(), wish.key, most_blocks, graph_mixing)?;
                part.map(OwnComm::new).transpose()?
            }
        };
        Ok(part.map(ServingLibrary::Own))
    }
}

/// The ranks that a shrink leaves out, as the program has them.
#[derive(Clone, Copy)]
pub(crate) struct Excluded {
    pub(crate) list: *const c_int,
    pub(crate) count: c_int,
}

impl Excluded {
    /// The other ranks, in their order.
    fn survivors(self, RankAndSize { rank, ranks }: RankAndSize) -> Result<Vec<usize>> {
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
    let Some(own) = parent.own() else { return Err(CallFailure::usage("the communicator is not open")) };
    if flags == ABORT {
        parent.abort();
    }
    let name = format!("{}-{:x}", parent.next_shrink(), survivors.iter().fold(0_u32, |ranks, rank| ranks | 1 << rank));
    let rank = survivors.iter().position(|survivor| *survivor == place.rank).unwrap_or_default();
    let place = RankAndSize { rank, ranks: survivors.len() };
    let reunion = Reunion::new(own, &name, place, config.clone())?;
    let open = move || reunion.open().map(|own| Some(ServingLibrary::Own(own)));
    let comm = Comm::opening(Some(place), parent.device, config);
    // SAFETY: the caller's `ncclComm_t`, which stays until the opening or the group ends, by NCCL's contract.
    let birth = unsafe { Birth::new(out, comm, open) }?;
    group::give_birth(birth)
}
