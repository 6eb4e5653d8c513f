//! The variables by which a launcher sends each rank its place.

use super::lookup::{Lookup, number};
use super::setting::SettingSource;
use crate::error::{Error, Result};

/// A number, and its source.
type NumberAndSource = (usize, SettingSource);

/// The variables of a launcher.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) rank: &'static str,
    pub(crate) world_size: &'static str,
    pub(crate) local_rank: &'static str,
}

/// The launchers, in order of precedence. `mpirun` inside a SLURM job sets its own variables in addition to those of
/// SLURM, which then describe the job.
const LAUNCHERS: [Launcher; 4] = [
    Launcher { rank: "RANK", world_size: "WORLD_SIZE", local_rank: "LOCAL_RANK" },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    },
    Launcher { rank: "PMI_RANK", world_size: "PMI_SIZE", local_rank: "MPI_LOCALRANKID" },
    Launcher { rank: "SLURM_PROCID", world_size: "SLURM_NTASKS", local_rank: "SLURM_LOCALID" },
];

impl Launcher {
    /// The launcher whose variables are used, all of them: rank and world size of two launchers may belong to two
    /// worlds. It is the first that set a rank; `RANK` and `WORLD_SIZE` are used if one of the two is set, or if no
    /// launcher set a rank.
    pub(crate) fn of(lookup: &impl Lookup) -> &'static Self {
        // A text that is not Unicode counts as set, and is refused when it is read.
        let set = |name| !matches!(lookup.get(name), Ok(None));
        let [usual, others @ ..] = &LAUNCHERS;
        let other = others.iter().find(|launcher| set(launcher.rank));
        other.filter(|_| !set(usual.rank) && !set(usual.world_size)).unwrap_or(usual)
    }

    /// Rank and world size: the program's, else the variables'.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a malformed variable, and for a missing variable, with instructions.
    pub(crate) fn place(
        &self,
        lookup: &impl Lookup,
        rank: Option<usize>,
        world_size: Option<usize>,
    ) -> Result<(NumberAndSource, NumberAndSource)> {
        let rank = number(lookup, rank, self.rank)?;
        let world_size = number(lookup, world_size, self.world_size)?;
        match (rank, world_size) {
            (Some(rank), Some(world_size)) => Ok((rank, world_size)),
            (None, None) => Err(Error::invalid(
                self.rank,
                "unset",
                "it must be set: `symmetra launch`, torchrun, mpirun and srun tell each rank its place; or the program \
                 gives rank and world size itself",
            )),
            (Some(_), None) => Err(Error::invalid(self.world_size, "unset", format!("{} is set", self.rank))),
            (None, Some(_)) => Err(Error::invalid(self.rank, "unset", format!("{} is set", self.world_size))),
        }
    }

    /// The number of this rank's device on the host: the program's, else that of `LOCAL_RANK`, else that of the
    /// launcher that set `rank`. Other launchers may have started all ranks as one task.
    pub(crate) fn local_rank(
        &self,
        lookup: &impl Lookup,
        set: Option<usize>,
        rank: SettingSource,
    ) -> Result<Option<NumberAndSource>> {
        match number(lookup, set, LAUNCHERS[0].local_rank)? {
            None if rank == SettingSource::Variable(self.rank) => number(lookup, None, self.local_rank),
            found => Ok(found),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/variables/launcher.rs"]
mod tests;
