//! Openings of communicators: `ncclCommInitRank` and its forms.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Joined, Meeting, Tcp, Threads, UniqueId as Address};
use symmetra::{Communicator, Config as Group, Deadlines, Device, DeviceKind};

use crate::abi::{Code, Handle, UniqueId};
use crate::birth::Birth;
use crate::comm::{Comm, OwnComm, ServingLibrary, WORKSPACE_BYTES};
use crate::config::CommConfig;
use crate::error::{CallFailure, Result, argument};
use crate::group;
use crate::log;
use crate::numbers;
use crate::out::not_null;
use crate::place::RankAndSize;
use crate::real;
use crate::served::{Kin, RealComm};
use crate::settings::{FrontSettings, settings};
use crate::variables::variable;
use crate::verdict::{self, CommonSettings, RankFacts};
use crate::windows;

/// The most time of an opening, and of a wait in a call. A rank may wait for a whole night of another.
const OPEN: Duration = Duration::from_secs(600);
const STEADY: Duration = Duration::from_secs(24 * 3600);

/// Room for the signals of a communicator's workspace.
const WORKSPACE_SIGNALS_BYTES: usize = 4096;

/// `ncclGetUniqueId`.
pub(crate) fn unique_id(id: *mut UniqueId) -> Result {
    let place = not_null("the id", id)?;
    let settings = settings()?;
    let made = match settings.is_off() {
        true => real::unique_id()?,
        false => UniqueId::from(Meeting::id(variable("NCCL_SOCKET_IFNAME").as_deref())?),
    };
    // SAFETY: the caller's `ncclUniqueId`, which is not null.
    unsafe { place.write(made) };
    Ok(())
}

/// The number and count of a rank, checked.
fn place(ranks: c_int, rank: c_int) -> Result<RankAndSize> {
    let ranks = usize::try_from(ranks)
        .ok()
        .filter(|count| (1..=65_535).contains(count))
        .ok_or_else(|| argument("the number of ranks", ranks, "it must be 1 to 65535"))?;
    Ok(RankAndSize { rank: numbers::rank("the rank", rank, ranks)?, ranks })
}

/// `ncclCommInitRankConfig`. `config` is null for the default.
pub(crate) fn init(out: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *const c_void) -> Result<Code> {
    let out = not_null("the communicator", out)?;
    // SAFETY: the caller's `ncclComm_t`, which is not null.
    unsafe { out.write(std::ptr::null_mut()) };
    let place = place(ranks, rank)?;
    let settings = settings()?;
    // SAFETY: NCCL's contract: null or an `ncclConfig_t`.
    let config = unsafe { CommConfig::read(config, settings) }?;
    let bytes = id.bytes();
    if settings.has_comm_id || !Meeting::is_id(&bytes) {
        return init_real(out, place, id, config);
    }
    let device = settings.current_device()?;
    let comm = Comm::opening(Some(place), device.ordinal().max(0), config.clone());
    let open = move || open(&bytes, place, &device, settings, &config).map(Some);
    // SAFETY: the caller's `ncclComm_t`, which stays until the opening or the group ends, by NCCL's contract.
    let birth = unsafe { Birth::new(out, comm, open) }?;
    group::give_birth(birth)
}

/// `ncclCommInitRankScalable`: the first id decides.
pub(crate) fn init_scalable(
    out: *mut Handle,
    [ranks, rank]: [c_int; 2],
    ids: *const UniqueId,
    count: c_int,
    config: *const c_void,
) -> Result<Code> {
    if !(1..=ranks).contains(&count) {
        return Err(argument("the number of ids", count, format!("it must be 1 to {ranks}")));
    }
    if ids.is_null() {
        return Err(argument("the ids", "null", format!("{count} ids are needed")));
    }
    // SAFETY: NCCL's contract: `count` ids, at least one.
    let first = unsafe { ids.read() };
    init(out, ranks, first, rank, config)
}

/// Opens a communicator of the real library, for an id that the real library made.
fn init_real(out: *mut Handle, place: RankAndSize, id: UniqueId, config: CommConfig) -> Result<Code> {
    group::enter_real()?;
    let (handle, code) = real::init(place.ranks as c_int, id, place.rank as c_int, &config.raw)?;
    // SAFETY: the caller's `ncclComm_t`, which is not null. The real library's own handle needs no other.
    unsafe { out.write(handle) };
    Ok(code)
}

/// The settings of a group.
pub(crate) fn group_config(
    settings: &FrontSettings,
    common: CommonSettings,
    place: RankAndSize,
    config: &CommConfig,
) -> Group {
    let wait = settings.timeout.unwrap_or(STEADY);
    let deadlines = Deadlines::default().open(settings.timeout.unwrap_or(OPEN)).first_use(wait).steady(wait);
    let pair_bytes = match place.ranks {
        0..=2 => 8 << 20,
        3..=4 => 2 << 20,
        _ => 512 << 10,
    };
    Group::default()
        .deadlines(deadlines)
        .heap_bytes((WORKSPACE_BYTES + WORKSPACE_SIGNALS_BYTES) as u64)
        .pair_bytes(pair_bytes)
        // The table of the arenas, and those of the windows; a window needs one while the table of a dropped one is in use.
        .registrations(2 * windows::MOST as u32)
        .check_calls(common.check_calls)
        .most_blocks(common.most_blocks)
        .graph_mixing(config.graph_mixing)
        .silence(!log::is_warn())
        // The host device has no streams of the program: a call returns when its work has ended.
        .hold_after_failure(settings.hold && settings.device != DeviceKind::Host)
}

/// The time until which an opening that begins now may wait.
pub(crate) fn deadline(settings: &FrontSettings) -> Instant {
    Instant::now() + settings.timeout.unwrap_or(OPEN)
}

/// The failure of an opening that symmetra cannot serve where a rank accepts no other library.
fn unserved(what: &str, reason: &str) -> CallFailure {
    CallFailure::usage(format!("symmetra cannot serve {what}: {reason}, and SYMMETRA_NCCL_SERVE is only"))
}

/// A rank that opens a communicator, after all ranks have met.
struct OpeningRank<'a> {
    place: RankAndSize,
    settings: &'a FrontSettings,
    config: &'a CommConfig,
    common: CommonSettings,
    met: Joined,
    deadline: Instant,
}

/// Meets the other ranks, and opens the communicator by the library that all ranks choose. Collective; blocks.
fn open(
    id: &[u8; 128],
    place: RankAndSize,
    device: &Device,
    settings: &FrontSettings,
    config: &CommConfig,
) -> Result<ServingLibrary> {
    let deadline = deadline(settings);
    let claim = RankFacts::new(device, settings, config)?.bytes();
    let met = Meeting::join(id, place.rank, place.ranks, &claim, deadline)?;
    let claims = verdict::read(met.claims())?;
    verdict::check_distinct(&claims)?;
    let common = CommonSettings::of(&claims);
    let mut opening = OpeningRank { place, settings, config, common, met, deadline };
    let objection = opening.objection(device, &claims)?;
    let name = format!("{} of {}, rank {}", config.name(), place.ranks, place.rank);
    match objection {
        Some(reason) if verdict::only(&claims) => Err(unserved(&name, &reason)),
        Some(reason) => {
            log::birth(&format!("{name}: the real NCCL serves: {reason}"));
            let handle = opening.by_the_real_library(device, &reason)?;
            Ok(ServingLibrary::Real(RealComm::new(handle, device.clone(), Some(Kin::new(*id, place, claims)))))
        }
        None => {
            let own = opening.by_symmetra(device)?;
            log::birth(&format!("{name}: symmetra serves"));
            Ok(ServingLibrary::Own(own))
        }
    }
}

impl OpeningRank<'_> {
    /// Why symmetra cannot serve, equal on all ranks; `None` if symmetra can.
    fn objection(&mut self, device: &Device, claims: &[RankFacts]) -> Result<Option<String>> {
        if let Some(objection) = verdict::objection(claims) {
            return Ok(Some(objection));
        }
        let own = verdict::unreachable(device, claims)?.unwrap_or_default();
        let all = self.met.exchange(own.as_bytes(), self.deadline)?;
        let first = all.iter().find(|objection| !objection.is_empty());
        Ok(first.map(|objection| String::from_utf8_lossy(objection).into_owned()))
    }

    fn by_symmetra(mut self, device: &Device) -> Result<OwnComm> {
        let RankAndSize { rank, ranks } = self.place;
        let listening = if rank == 0 { Some(Address::listen()?) } else { None };
        let text = listening.as_ref().map(ToString::to_string).unwrap_or_default();
        let all = self.met.exchange(text.as_bytes(), self.deadline)?;
        let address = match listening {
            Some(address) => address,
            None => String::from_utf8_lossy(&all.into_iter().next().unwrap_or_default()).parse()?,
        };
        let bootstrap = Tcp::from_id(address, rank, ranks, self.deadline)?;
        open_own(bootstrap, device, group_config(self.settings, self.common, self.place, self.config))
    }

    /// Opens by the real library, with an id of rank 0. A rank without a real library sends no bytes, and all ranks fail.
    fn by_the_real_library(mut self, device: &Device, reason: &str) -> Result<Handle> {
        let RankAndSize { rank, ranks } = self.place;
        let own = match rank {
            0 => real::unique_id().map(|id| id.bytes().to_vec()),
            _ => real::version().map(|_| vec![1]),
        };
        let all = self.met.exchange(own.as_deref().unwrap_or_default(), self.deadline)?;
        own?;
        if let Some(lacking) = all.iter().position(Vec::is_empty) {
            return Err(CallFailure::usage(format!("{reason}, and rank {lacking} cannot open by the real NCCL")));
        }
        let id = all.first().and_then(|id| <[u8; 128]>::try_from(id.as_slice()).ok());
        let id = id.ok_or_else(|| CallFailure::system("rank 0 sent no id of the real NCCL"))?;
        // The real library opens on the current device, and the thread may be one of this library.
        let init = || real::init(ranks as c_int, UniqueId::from(id), rank as c_int, &self.config.raw);
        device.with_current(init)?.map(|(handle, _)| handle)
    }
}

/// Opens a communicator on symmetra's kernels.
pub(crate) fn open_own(bootstrap: impl Bootstrap, device: &Device, config: Group) -> Result<OwnComm> {
    OwnComm::new(Communicator::open(bootstrap, device, config)?)
}

/// `ncclCommInitAll`: a communicator for each device, all in this process. `pass` opens by the real library.
pub(crate) fn init_all(
    out: *mut Handle,
    count: c_int,
    devices: *const c_int,
    pass: impl FnOnce() -> Result<Code>,
) -> Result<Code> {
    let out = not_null("the communicators", out)?;
    let ranks = place(count, 0)?.ranks;
    let settings = settings()?;
    if settings.is_off() {
        return pass();
    }
    let ordinals: Vec<c_int> = match devices.is_null() {
        true => (0..count).collect(),
        // SAFETY: NCCL's contract: `count` numbers, or null.
        false => unsafe { std::slice::from_raw_parts(devices, ranks) }.to_vec(),
    };
    let open_device = |ordinal: &c_int| -> Result<Device> {
        let index =
            usize::try_from(*ordinal).map_err(|_| argument("the device", ordinal, "devices are numbers from 0 on"))?;
        Ok(match settings.device {
            DeviceKind::Host => Device::host()?,
            DeviceKind::Hip => Device::hip(index)?,
            _ => Device::cuda(index)?,
        })
    };
    let devices: Vec<Device> = ordinals.iter().map(open_device).collect::<Result<_>>()?;
    let twice = |index: &usize| ordinals[..*index].contains(&ordinals[*index]);
    if let Some(index) = (0..ranks).find(twice).filter(|_| !settings.share && settings.device != DeviceKind::Host) {
        return Err(CallFailure::usage(format!(
            "device {} is there twice: SYMMETRA_NCCL_SHARE=1 allows that",
            ordinals[index]
        )));
    }
    let config = CommConfig::of(settings);
    let claims: Vec<RankFacts> =
        devices.iter().map(|device| RankFacts::new(device, settings, &config)).collect::<Result<_>>()?;
    let mut objection = verdict::objection(&claims);
    for device in &devices {
        if objection.is_none() {
            objection = verdict::unreachable(device, &claims)?;
        }
    }
    match objection {
        Some(reason) if verdict::only(&claims) => {
            return Err(unserved(&format!("{ranks} devices"), &reason));
        }
        Some(reason) => {
            log::birth(&format!("communicators of {ranks} devices: the real NCCL serves: {reason}"));
            let with_reason =
                |failure: CallFailure| CallFailure { text: format!("{reason}: {}", failure.text), ..failure };
            return pass().map_err(with_reason);
        }
        None => {}
    }
    let common = CommonSettings::of(&claims);
    let bootstraps = Threads::new(ranks)?;
    let mut births = Vec::with_capacity(ranks);
    for ((rank, device), bootstrap) in devices.into_iter().enumerate().zip(bootstraps) {
        let place = RankAndSize { rank, ranks };
        let comm = Comm::opening(Some(place), ordinals[rank], config.clone());
        let group = group_config(settings, common, place, &config);
        let open = move || open_own(bootstrap, &device, group).map(|own| Some(ServingLibrary::Own(own)));
        // SAFETY: NCCL's contract: room for `count` communicators.
        let place = unsafe { out.add(rank) };
        // SAFETY: as above; the place stays until the call returns.
        births.push(unsafe { Birth::new(place, comm, open) }?);
    }
    Birth::run_all(births)
}
