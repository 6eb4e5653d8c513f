//! Questions about a communicator.
#![allow(unsafe_code)]

use std::ffi::c_int;

use crate::abi::{Code, CommProperties, MAGIC, SimInfo, Team};
use crate::comm::{Comm, OwnComm};
use crate::error::{CallFailure, Result, argument};
use crate::group;
use crate::out::answer;
use crate::place::RankAndSize;
use crate::real::pass_on;

/// `ncclCommQueryProperties`. The interface for kernels of the program is not served.
pub(crate) fn properties(comm: &Comm, out: *mut CommProperties) -> Result {
    if out.is_null() {
        return Err(argument("the properties", "null", "the call writes them"));
    }
    // SAFETY: the caller's struct, which is not null, begins with its size.
    let size = unsafe { (*out).size };
    // SAFETY: the magic number follows.
    let found = unsafe { (*out).magic };
    if found != MAGIC {
        return Err(CallFailure::usage(format!(
            "the magic number of the properties is {found:#x}: it must be {MAGIC:#x}"
        )));
    }
    let RankAndSize { rank, ranks } = comm.place();
    /// Writes a field if the caller's struct, of any version, has it.
    macro_rules! write {
        ($($field:ident = $value:expr;)*) => {$(
            if std::mem::offset_of!(CommProperties, $field) < size {
                // SAFETY: the field lies in the caller's struct: versions of NCCL end a struct after a field.
                unsafe { (&raw mut (*out).$field).write($value) };
            }
        )*};
    }
    write! {
        rank = rank as c_int;
        ranks = ranks as c_int;
        device = comm.device;
        nvml_device = comm.device;
        device_api = false;
        multimem = false;
        gin_type = 0;
        lsa_teams = 1;
        host_rma = false;
        railed_gin_type = 0;
    }
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

/// `ncclGroupSimulateEnd`: drops the calls of the group. The real library estimates the time of its calls; no time of others is
/// estimated. A real library without this function runs its calls, and the call fails.
pub(crate) fn simulate(out: *mut SimInfo) -> Result<Code> {
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
    group::drop_calls(|| pass_on!(ncclGroupSimulateEnd(out: *mut SimInfo)))
}
