//! Grids of tensor and data parallelism on the command line: their sizes, and the group of ranks that they run over.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use symmetra::bootstrap::{Tcp, UniqueId};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::mixed::{Grid, MixedConfig};
use symmetra::{Communicator, Config};

use harness::failure::CommandFailure;

/// How long ranks wait for each other when the group opens.
const PATIENCE: Duration = Duration::from_secs(60);

/// How ranks and hosts are divided. If only one of the two sizes of a level is given, the other follows from it; if
/// neither is given, the level is tensor parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub(crate) struct GridArgs {
    /// Ranks of a host that hold parts of one tensor
    #[arg(long, value_name = "N")]
    local_tp: Option<usize>,

    /// Ranks of a host that work on different data
    #[arg(long, value_name = "N")]
    local_dp: Option<usize>,

    /// Hosts that hold parts of one tensor
    #[arg(long, value_name = "N")]
    across_tp: Option<usize>,

    /// Hosts that work on different data
    #[arg(long, value_name = "N")]
    across_dp: Option<usize>,
}

impl GridArgs {
    /// Whether any size was given.
    pub(crate) fn is_given(self) -> bool {
        [self.local_tp, self.local_dp, self.across_tp, self.across_dp].iter().any(Option::is_some)
    }
}

/// A mesh over `ranks` ranks, on `hosts` hosts by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GridWorld {
    pub(crate) ranks: usize,
    pub(crate) hosts: usize,
    grid: GridArgs,
    /// Bytes of the largest `x` or slice that goes in one piece.
    pub(crate) most_bytes: usize,
}

impl GridWorld {
    /// # Errors
    /// Wrong usage, where the hosts do not divide the ranks, or the mesh does not fit.
    pub(crate) fn new(ranks: usize, hosts: usize, grid: GridArgs, most_bytes: usize) -> Result<Self, CommandFailure> {
        if !ranks.is_multiple_of(hosts) {
            return Err(CommandFailure::usage(format!(
                "--hosts: {ranks} ranks are not divided equally by {hosts} hosts"
            )));
        }
        let world = Self { ranks, hosts, grid, most_bytes };
        world
            .config()
            .required_bytes(world.local(), hosts)
            .map_err(|error| CommandFailure::usage(error.to_string()))?;
        Ok(world)
    }

    /// Ranks of a host.
    pub(crate) fn local(&self) -> usize {
        self.ranks / self.hosts
    }

    pub(crate) fn config(&self) -> MixedConfig {
        let (mut grid, mut config) = (Grid::default(), MixedConfig::default());
        (grid.local_tensor, grid.local_data) = (self.grid.local_tp, self.grid.local_dp);
        (grid.across_tensor, grid.across_data) = (self.grid.across_tp, self.grid.across_dp);
        (config.grid, config.most_bytes) = (grid, self.most_bytes);
        config
    }

    /// Opens the group of all ranks, which have met as `communicator`, with a heap for the workspace and
    /// `operand_bytes` bytes of operands. Collective.
    pub(crate) fn open(
        &self,
        communicator: &Communicator,
        operand_bytes: u64,
        set: impl FnOnce(&mut Config),
    ) -> Result<Coordinator, CommandFailure> {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let own = if rank == 0 { Some(UniqueId::listen()?) } else { None };
        let text = own.as_ref().map_or_else(String::new, UniqueId::to_string);
        let all = communicator.group().all_gather_bytes(text.as_bytes())?;
        let id = match own {
            Some(id) => id,
            None => String::from_utf8_lossy(&all[0]).parse()?,
        };
        let bootstrap = Tcp::from_id(id, rank, world, Instant::now() + PATIENCE)?;
        let mut config = GroupConfig::default();
        config.communicator = Config::default();
        config.communicator.deadlines = communicator.group().config().deadlines;
        config.communicator.heap_bytes = self.config().required_bytes(self.local(), self.hosts)? + operand_bytes;
        set(&mut config.communicator);
        config.host = Some(format!("host-{}", rank * self.hosts / world));
        config.interface = Some("127.0.0.1".to_owned());
        Ok(Coordinator::open(bootstrap, communicator.device(), config)?)
    }
}
