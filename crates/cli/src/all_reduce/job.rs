//! What the ranks are told to do, and what each of them does and says.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use symmetra::bootstrap::Bootstrap;
use symmetra::{Communicator, Config, Deadlines, DeviceKind};

use super::shards;
use super::shards::Shards;
use super::sweep::{self, Sample, Sweep};
use crate::bench;
use crate::devices::RankDevice;
use crate::failure::Failure;
use crate::names::Mover;

/// A run, the same for every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The device of every rank.
    pub(super) devices: Vec<RankDevice>,
    pub(super) check_calls: bool,
    /// How long any wait may last, in seconds, where that is not the library's default.
    pub(super) deadline_s: Option<u64>,
    pub(super) work: Work,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    Sweep(Sweep),
    Shards(Shards),
    Bench(bench::Task),
}

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// Every rank is there.
    Open,
    /// One size of a sweep is done.
    Sampled(Sample),
    /// The sum of the shards is there; ranks compare its checksum.
    Summed { checksum: u64 },
    /// Something of a `bench` is measured.
    Found(bench::Found),
    /// All is done.
    Done,
    /// It gave up. An echo may only report that another rank failed.
    Failed { message: String, echo: bool },
}

/// Where a rank says it.
pub(super) type Say<'a> = &'a mut dyn FnMut(Said) -> Result<(), Failure>;

impl Job {
    pub(super) fn ranks(&self) -> usize {
        self.devices.len()
    }

    pub(super) fn device_kind(&self) -> DeviceKind {
        self.devices.first().map_or(DeviceKind::Host, |device| device.kind())
    }

    /// Does one rank's part and says how it went.
    pub(super) fn run(&self, rank: usize, bootstrap: Result<impl Bootstrap, Failure>, say: Say<'_>) {
        let done = bootstrap.and_then(|bootstrap| self.work(rank, bootstrap, say));
        let last = match done {
            Ok(()) => Said::Done,
            Err(failure) => {
                let message = failure.message().unwrap_or_else(|| "nobody listens".to_owned());
                Said::Failed { message, echo: failure.is_echo() }
            }
        };
        // When nobody listens there is nobody to tell.
        let _ = say(last);
    }

    fn work(&self, rank: usize, bootstrap: impl Bootstrap, say: Say<'_>) -> Result<(), Failure> {
        let device =
            self.devices.get(rank).ok_or_else(|| Failure::failed(format!("there is no rank {rank}")))?.open()?;
        let communicator = Communicator::open(bootstrap, &device, self.config())?;
        say(Said::Open)?;
        match &self.work {
            Work::Sweep(sweep) => sweep::run(sweep, &communicator, say)?,
            Work::Shards(shards) => shards::run(shards, &communicator, say)?,
            Work::Bench(task) => task.run(&communicator, &mut |found| say(Said::Found(found)))?,
        }
        Ok(communicator.close()?)
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.check_calls |= self.check_calls;
        if let Some(limit) = self.deadline_s.map(Duration::from_secs) {
            config.deadlines = Deadlines { open: limit, first_use: limit, steady: limit };
        }
        if let Work::Sweep(Sweep { transport: Mover::Kernels(transport), .. }) = &self.work {
            config.transport = *transport;
        }
        config.heap_bytes = match &self.work {
            Work::Sweep(sweep) => sweep.heap_bytes(),
            Work::Shards(shards) => shards.heap_bytes(),
            Work::Bench(task) => task.heap_bytes(),
        };
        config
    }
}
