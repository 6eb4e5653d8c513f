//! Questions about a communicator.
#![allow(unsafe_code)]

use std::ffi::c_int;

use crate::abi::{CommProperties, MAGIC, SimInfo, Team};
use crate::comm::{Comm, OwnComm};
use crate::error::{CallFailure, Result, argument};
use crate::group;
use crate::out::answer;
use crate::place::RankAndSize;

/// `ncclCommQueryProperties`. The interface for kernels of the program is not served.
pub(crate) fn properties(comm: &Comm, out: *mut CommProperties) -> Result {
    if out.is_null() {
        return Err(argument("the properties", "null", "the call writes them"));
    }
    // SAFETY: the caller's struct, which is not null.
    let properties = unsafe { &mut *out };
    if properties.magic != MAGIC {
        let found = properties.magic;
        return Err(CallFailure::usage(format!(
            "the magic number of the properties is {found:#x}: it must be {MAGIC:#x}"
        )));
    }
    let RankAndSize { rank, ranks } = comm.place();
    (properties.rank, properties.ranks) = (rank as c_int, ranks as c_int);
    (properties.device, properties.nvml_device) = (comm.device, comm.device);
    (properties.device_api, properties.multimem, properties.host_rma) = (false, false, false);
    (properties.gin_type, properties.railed_gin_type, properties.lsa_teams) = (0, 0, 1);
    Ok(())
}

/// The statistics that `ncclCommMemStats` knows: suspendable and suspended bytes, persistent bytes, all bytes.
const STATISTICS: c_int = 4;

/// `ncclCommMemStats`.
pub(crate) fn memory(comm: &Comm, statistic: c_int, out: *mut u64) -> Result {
    let held = |own: &OwnComm| {
        let communicator = &own.communicator;
        symmetra::required_bytes(communicator.world_size(), communicator.group().config())
    };
    let held = comm.own().map_or(Ok(0), held)?;
    match statistic {
        0 | 1 => answer("the value", out, 0),
        2 | 3 => answer("the value", out, held),
        _ => Err(argument("the statistic", statistic, format!("statistics are 0 to {}", STATISTICS - 1))),
    }
}

/// All ranks: `ncclTeamWorld`, and `ncclTeamLsa` on one host.
pub(crate) fn world(comm: &Comm) -> Team {
    let RankAndSize { rank, ranks } = comm.place();
    Team { ranks: ranks as c_int, rank: rank as c_int, stride: 1 }
}

/// The ranks of other hosts at this rank's place: this rank alone.
pub(crate) fn rail(comm: &Comm) -> Team {
    Team { ranks: 1, rank: 0, stride: comm.place().ranks as c_int }
}

/// The rank in the communicator of a rank of a team that this rank is in.
pub(crate) fn team_rank(comm: &Comm, team: Team, rank: c_int) -> c_int {
    (comm.place().rank as c_int).wrapping_add(rank.wrapping_sub(team.rank).wrapping_mul(team.stride))
}

/// `ncclGroupSimulateEnd`: drops the calls of the group. No time is estimated.
pub(crate) fn simulate(out: *mut SimInfo) -> Result {
    if !out.is_null() {
        // SAFETY: the caller's struct, which is not null.
        let simulation = unsafe { &mut *out };
        if simulation.magic != SimInfo::MAGIC {
            let (found, right) = (simulation.magic, SimInfo::MAGIC);
            return Err(argument(
                "the magic number of the simulation",
                format!("{found:#x}"),
                format!("it must be {right:#x}"),
            ));
        }
        simulation.estimated_time = 0.0;
    }
    group::drop_calls()
}
