//! The task of a run, and one rank's part in it.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use symmetra::bootstrap::Bootstrap;
use symmetra::{Communicator, Config, Deadlines, DeviceKind};

use super::GroupArgs;
use crate::devices::RankDevice;
use crate::failure::CommandFailure;

/// The work of every rank of a run.
pub trait Task: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// The name by which the process of a rank selects its task.
    const NAME: &'static str;

    /// A result of a rank.
    type Found: Serialize + DeserializeOwned + Send + 'static;

    /// Bytes of symmetric memory that a rank needs.
    fn heap_bytes(&self) -> u64;

    /// Variables that the process of a rank gets.
    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// Changes settings of the group.
    fn configure(&self, _: &mut Config) {}

    /// Does one rank's part and reports the results of the rank.
    fn run(&self, communicator: &Communicator, say: Say<'_, Self::Found>) -> Result<(), CommandFailure>;
}

/// The function with which a rank reports a result.
pub type Say<'a, F> = &'a mut dyn FnMut(F) -> Result<(), CommandFailure>;

/// A task and the ranks that do it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run<T> {
    /// The device of every rank.
    pub devices: Vec<RankDevice>,
    pub group: GroupArgs,
    /// How long any wait may last, in seconds; none: the library's defaults.
    pub deadline_s: Option<u64>,
    pub task: T,
}

/// A report of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said<F> {
    /// The group is open.
    Open,
    Found(F),
    /// The rank did its part.
    Done,
    /// The rank gave up. An echo may only report that another rank failed.
    Failed {
        message: String,
        echo: bool,
    },
}

impl<T> Run<T> {
    pub fn new(devices: &[RankDevice], task: T) -> Self {
        Self { devices: devices.to_vec(), group: GroupArgs::default(), deadline_s: None, task }
    }

    pub fn ranks(&self) -> usize {
        self.devices.len()
    }

    pub fn device_kind(&self) -> DeviceKind {
        self.devices.first().map_or(DeviceKind::Host, |device| device.kind())
    }
}

impl<T: Task> Run<T> {
    /// Does one rank's part and reports how it ended.
    pub(super) fn work(
        &self,
        rank: usize,
        bootstrap: Result<impl Bootstrap, CommandFailure>,
        say: Say<'_, Said<T::Found>>,
    ) {
        let done = bootstrap.and_then(|bootstrap| self.part(rank, bootstrap, say));
        let last = match done {
            Ok(()) => Said::Done,
            Err(failure) => {
                let message = failure.message().unwrap_or_else(|| "the output is closed".to_owned());
                Said::Failed { message, echo: failure.is_echo() }
            }
        };
        // Fails if the command no longer reads.
        let _ = say(last);
    }

    fn part(&self, rank: usize, bootstrap: impl Bootstrap, say: Say<'_, Said<T::Found>>) -> Result<(), CommandFailure> {
        let device =
            self.devices.get(rank).ok_or_else(|| CommandFailure::failed(format!("there is no rank {rank}")))?.open()?;
        let communicator = Communicator::open(bootstrap, &device, self.config())?;
        say(Said::Open)?;
        match self.task.run(&communicator, &mut |found| say(Said::Found(found))) {
            Ok(()) => Ok(communicator.close()?),
            Err(failure) => {
                // The other ranks are refused alike, and no rank waits. This failure matters more than a failure to
                // depart.
                if failure.is_refusal() {
                    let _ = communicator.depart();
                }
                Err(failure)
            }
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        self.group.set(&mut config);
        if let Some(limit) = self.deadline_s.map(Duration::from_secs) {
            config.deadlines = Deadlines::default().open(limit).first_use(limit).steady(limit);
        }
        config.heap_bytes = self.task.heap_bytes();
        self.task.configure(&mut config);
        config
    }
}
