//! Openings by ranks whose communicator cannot serve them: it lost a rank, failed or was revoked. The ranks meet in a
//! directory of their user, whose name they know from the communicator.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use symmetra::Device;
use symmetra::bootstrap::{Bootstrap, Local};

use crate::comm::OwnComm;
use crate::config::CommConfig;
use crate::error::Result;
use crate::opening::{group_config, open_own};
use crate::place::RankAndSize;
use crate::settings::{FrontSettings, settings};
use crate::verdict::CommonSettings;
use crate::wish::{SplitRequest, parts};

/// The most time in which all ranks have to come.
const MEET: Duration = Duration::from_secs(60);

/// The ranks that meet, and the settings of their communicator.
pub(crate) struct Reunion {
    directory: PathBuf,
    place: RankAndSize,
    device: Device,
    config: CommConfig,
    common: CommonSettings,
    settings: &'static FrontSettings,
    deadline: Instant,
}

impl Reunion {
    /// Ranks of the communicator `of` that meet by a name: equal on these ranks, and of no other meeting of `of`.
    pub(crate) fn new(of: &OwnComm, name: &str, place: RankAndSize, config: CommConfig) -> Result<Self> {
        let settings = settings()?;
        let group = of.communicator.group().config();
        let common = CommonSettings { check_calls: group.check_calls, most_blocks: group.most_blocks };
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        Ok(Self {
            directory: base.join(format!("symmetra-nccl-{}-{name}", of.token)),
            place,
            device: of.communicator.device().clone(),
            common,
            config,
            settings,
            deadline: Instant::now() + settings.timeout.unwrap_or(MEET),
        })
    }

    fn connect(&self) -> Result<Local> {
        Ok(Local::connect(&self.directory, self.place.rank, self.place.ranks, self.deadline)?)
    }

    /// Removes the directory after all ranks have met. A directory that stays is empty, and no other meeting has its name.
    fn remove(&self) {
        drop(std::fs::remove_dir(&self.directory));
    }

    /// Opens a communicator of all ranks, with the least of their limits of blocks. Collective; blocks.
    pub(crate) fn open(self) -> Result<OwnComm> {
        let mut ranks = self.connect()?;
        // 0: no limit.
        let own = self.config.most_blocks.unwrap_or(0).to_le_bytes();
        let all = ranks.all_gather(&own, self.deadline)?;
        let limits = all.iter().filter_map(|bytes| bytes.as_slice().try_into().ok()).map(u32::from_le_bytes);
        let common = self.common.at_most(limits.filter(|limit| *limit > 0).min());
        let own = open_own(ranks, &self.device, group_config(self.settings, common, self.place, &self.config))?;
        self.remove();
        Ok(own)
    }

    /// Opens a communicator of the ranks of each color, in the order of their keys. Collective over all ranks; blocks.
    pub(crate) fn split(self, wish: SplitRequest) -> Result<Option<OwnComm>> {
        let mut all = self.connect()?;
        let wishes = all.all_gather(&wish.bytes(), self.deadline)?;
        drop(all);
        self.remove();
        let Some(color) = wish.color() else { return Ok(None) };
        let members = parts(&SplitRequest::read_all(&wishes)?).remove(&color).unwrap_or_default();
        let rank = members.iter().position(|rank| *rank == self.place.rank).unwrap_or_default();
        let place = RankAndSize { rank, ranks: members.len() };
        let mut name = self.directory.into_os_string();
        name.push(format!("-{color}"));
        Self { directory: name.into(), place, ..self }.open().map(Some)
    }
}
