//! Tests of `src/variables/launcher.rs`, whose module they are.

use super::*;

struct Set<'a>(&'a [(&'static str, &'static str)]);

impl Lookup for Set<'_> {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        Ok(self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }
}

const OPEN_MPI: [(&str, &str); 3] =
    [("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
const HYDRA: [(&str, &str); 3] = [("PMI_RANK", "5"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "1")];
const SLURM: [(&str, &str); 3] = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "1")];

/// Rank, world size and local rank, with the sources of the first and the last.
fn place(variables: &[(&'static str, &'static str)]) -> Result<(usize, usize, usize, [SettingSource; 2])> {
    let lookup = Set(variables);
    let launcher = Launcher::of(&lookup);
    let (rank, world_size) = launcher.place(&lookup, None, None)?;
    let local_rank = launcher.local_rank(&lookup, None, rank.1)?.unwrap();
    Ok((rank.0, world_size.0, local_rank.0, [rank.1, local_rank.1]))
}

#[test]
fn every_launcher_tells_a_rank_its_place() {
    for of in [OPEN_MPI, HYDRA, SLURM] {
        assert_eq!(place(&of), Ok((5, 8, 1, [SettingSource::Variable(of[0].0), SettingSource::Variable(of[2].0)])));
    }
}

#[test]
fn the_first_launcher_counts_alone() {
    let job = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_LOCALID", "0")];
    for of in [OPEN_MPI, HYDRA] {
        assert_eq!(place(&[job, of].concat()).unwrap().0, 5);
    }
    let ours = [("RANK", "2"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0")];
    assert_eq!(place(&[OPEN_MPI, ours].concat()).unwrap().0, 2);
    // Without LOCAL_RANK the place on the host counts, not another launcher's.
    let lookup = [&OPEN_MPI[..], &ours[..2]].concat();
    let launcher = Launcher::of(&Set(&lookup));
    assert_eq!(launcher.local_rank(&Set(&lookup), None, SettingSource::Variable("RANK")), Ok(None));
    // With LOCAL_RANK alone, the launcher's rank counts and LOCAL_RANK.
    assert_eq!(place(&[&OPEN_MPI[..], &ours[2..]].concat()).unwrap().2, 0);
    // A launcher that started one task, whose program runs all ranks, sets no local rank.
    let lookup = Set(&SLURM);
    assert_eq!(Launcher::of(&lookup).local_rank(&lookup, None, SettingSource::Program), Ok(None));
}

#[test]
fn half_a_place_is_refused() {
    for (variables, words) in [
        (&[][..], "RANK is unset, but it must be set: `symmetra launch`, torchrun, mpirun and srun tell"),
        (&[("RANK", "1")], "WORLD_SIZE is unset, but RANK is set"),
        (&[("WORLD_SIZE", "2")], "RANK is unset, but WORLD_SIZE is set"),
        (&[("PMI_RANK", "1"), ("SLURM_NTASKS", "8")], "PMI_SIZE is unset, but PMI_RANK is set"),
        (&[("SLURM_NTASKS", "8")], "RANK is unset, but it must be set"),
        (&[("SLURM_PROCID", "x"), ("SLURM_NTASKS", "8")], "SLURM_PROCID is `x`, but it must be a number from 0"),
    ] {
        let error = place(variables).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // A world of one launcher's ranks in a world size of another.
    let mixed = [&[("WORLD_SIZE", "4")], &OPEN_MPI[..]].concat();
    assert!(place(&mixed).unwrap_err().to_string().contains("RANK is unset, but WORLD_SIZE is set"));
}
