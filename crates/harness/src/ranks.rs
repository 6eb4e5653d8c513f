//! Ranks as processes or threads that do one task together.

mod listen;
mod processes;
mod task;
mod threads;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Codec, Config, Determinism, DeviceKind, Dtype, Multicast};

use crate::devices::{self, Choice, RankDevice};
use crate::failure::CommandFailure;
use crate::{bytes, names};
pub use processes::RankProcess;
pub use task::{Run, Say, Task};

/// Flags that select how ranks run and on which devices they work.
#[derive(clap::Args)]
pub struct RankArgs {
    /// The devices on which the ranks work
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    device: Choice,

    /// Put several ranks on one GPU when there are too few; `--device auto` then takes GPUs where there is one
    #[arg(long)]
    share_devices: bool,

    /// Whether ranks are processes or threads
    #[arg(long, value_enum, default_value_t = RanksAs::Processes)]
    pub ranks_as: RanksAs,
}

/// Flags that are settings of the group.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, clap::Args)]
pub struct GroupArgs {
    /// Compare every call across ranks before it runs
    #[arg(long)]
    pub check_calls: bool,

    /// Most blocks of any kernel [default: as many as each has use for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    most_blocks: Option<u32>,

    /// The settings on which the bits of sums may depend
    #[arg(long, default_value = "per-algorithm", value_parser = names::determinism_parser())]
    #[serde(with = "names::by_name")]
    determinism: Determinism,

    /// Whether to open multicast, which needs the feature `multicast`
    #[arg(long, value_name = "WHETHER", default_value = "off", value_parser = names::multicast_parser())]
    #[serde(with = "names::by_name")]
    multicast: Multicast,
}

impl GroupArgs {
    /// The flags of a group whose calls are compared.
    pub const COMPARED: Self = Self {
        check_calls: true,
        most_blocks: None,
        determinism: Determinism::PerAlgorithm,
        multicast: Multicast::Off,
    };

    /// Refuses an algorithm that the settings of the group exclude.
    pub fn check_algorithm(self, algorithm: Algorithm, dtype: Dtype, ranks: usize) -> Result<(), CommandFailure> {
        if Algorithm::MULTICAST.contains(&algorithm) {
            self.check_multicast(&format!("--algorithm {algorithm}"))?;
        }
        if self.determinism == Determinism::Exact && !algorithm.is_exact(dtype, ranks) {
            return Err(CommandFailure::usage(format!(
                "--determinism exact: {algorithm} of {dtype} over {ranks} ranks does not sum in rank order"
            )));
        }
        Ok(())
    }

    /// Refuses a codec that the settings of the group exclude.
    pub fn check_codec(self, codec: Codec) -> Result<(), CommandFailure> {
        match codec != Codec::None && self.determinism == Determinism::Exact {
            true => Err(CommandFailure::usage(format!("--determinism exact: --codec {codec} rounds what it sends"))),
            false => Ok(()),
        }
    }

    /// Refuses flags that need multicast where the group opens no multicast.
    pub fn check_multicast(self, what: &str) -> Result<(), CommandFailure> {
        match self.multicast == Multicast::Off {
            true => Err(CommandFailure::usage(format!("{what} needs --multicast try or --multicast require"))),
            false => Ok(()),
        }
    }

    /// Refuses multicast that devices of this kind cannot have.
    fn check_on(self, kind: DeviceKind) -> Result<(), CommandFailure> {
        if self.multicast != Multicast::Require {
            return Ok(());
        }
        if !cfg!(feature = "multicast") {
            return Err(CommandFailure::usage("--multicast require needs a build with the feature `multicast`"));
        }
        match symmetra::Multicast::is_allowed(kind)? {
            true => Ok(()),
            false => {
                Err(CommandFailure::usage(format!("--multicast require: on {kind} it needs SYMMETRA_MULTICAST=1")))
            }
        }
    }

    pub fn set(self, config: &mut Config) {
        config.check_calls |= self.check_calls;
        (config.most_blocks, config.determinism) = (self.most_blocks, self.determinism);
        config.multicast = self.multicast;
    }
}

impl RankArgs {
    /// The devices of that many ranks.
    pub fn devices(&self, ranks: usize) -> Result<Vec<RankDevice>, CommandFailure> {
        devices::assign(devices::kind(self.device, ranks, self.share_devices), ranks, self.share_devices)
    }
}

/// Whether the ranks of a run are processes or threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RanksAs {
    /// A process each.
    Processes,
    /// Threads of this process.
    Threads,
}

impl RanksAs {
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
        }
    }
}

/// Bytes of memory of the machine; `None` if the system does not report them.
fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

impl<T: Task> Run<T> {
    /// Refuses, before ranks start, settings with which every rank would fail.
    fn check(&self) -> Result<(), CommandFailure> {
        self.group.check_on(self.device_kind())?;
        let (ranks, bytes) = (self.ranks() as u64, self.task.heap_bytes());
        match machine_bytes().filter(|_| self.device_kind() == DeviceKind::Host) {
            Some(machine) if bytes.saturating_mul(ranks) > machine => Err(CommandFailure::usage(format!(
                "{ranks} ranks need {} each for the largest size, but the machine has {}",
                bytes::format(bytes),
                bytes::format(machine)
            ))),
            _ => Ok(()),
        }
    }

    /// Starts the ranks, blocks until every rank ended, and passes on each result of each rank. If a rank fails, the
    /// others are ended.
    pub fn attend(
        &self,
        ranks_as: RanksAs,
        hear: impl FnMut(usize, T::Found) -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        self.check()?;
        let ranks = match ranks_as {
            RanksAs::Processes => processes::start(self),
            RanksAs::Threads => threads::start(self),
        };
        ranks?.attend(hear)
    }

    /// Runs the task and returns the results of all ranks, in no order.
    pub fn collect(&self, ranks_as: RanksAs) -> Result<Vec<T::Found>, CommandFailure> {
        let mut all = Vec::new();
        self.attend(ranks_as, |_, found| {
            all.push(found);
            Ok(())
        })?;
        Ok(all)
    }
}
