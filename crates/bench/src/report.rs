//! The place of a run, and its report.

use std::path::Path;

use serde::Serialize;
use symmetra::DeviceKind;

use super::flags::{BenchRanks, OutputArgs};
use super::limits::LimitLine;
use super::results::{self, Versions};
use harness::columns::{Column, table};
use harness::devices::RankDevice;
use harness::failure::CommandFailure;
use harness::output;
use harness::ranks::{RanksAs, Run, Task};

/// Where a run runs.
pub(super) struct RunSite {
    pub(super) devices: Vec<RankDevice>,
    pub(super) kind: DeviceKind,
    pub(super) ranks_as: RanksAs,
}

/// The place of a run in its report.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ran {
    pub(super) ranks: usize,
    pub(super) device: &'static str,
    pub(super) ranks_as: &'static str,
}

impl RunSite {
    pub(super) fn new<const LEAST: u64>(ranks: &BenchRanks<LEAST>) -> Result<Self, CommandFailure> {
        let devices = ranks.devices()?;
        let kind = devices.first().map_or(DeviceKind::Host, |device| device.kind());
        Ok(Self { devices, kind, ranks_as: ranks.run.ranks_as })
    }

    pub(super) fn ran(&self) -> Ran {
        Ran { ranks: self.devices.len(), device: self.kind.name(), ranks_as: self.ranks_as.name() }
    }

    /// Writes a line about the run to standard error.
    pub(super) fn note(&self, about: &str, seed: u64) -> Result<(), CommandFailure> {
        let Ran { ranks, device, ranks_as } = self.ran();
        output::note(format_args!("{ranks} ranks as {ranks_as} on {device}, {about}, seed {seed}"))
    }

    /// Runs a task and returns the results of all ranks, in no order.
    pub(super) fn collect<T: Task>(&self, task: T) -> Result<Vec<T::Found>, CommandFailure> {
        Run::new(&self.devices, task).collect(self.ranks_as)
    }

    /// Writes the file of results, and prints the table, with `below` after it, or the object.
    pub(super) fn write<R>(
        &self,
        output: &OutputArgs,
        title: &str,
        columns: &[Column<R>],
        rows: &[R],
        (below, object): (&str, &impl Serialize),
    ) -> Result<(), CommandFailure> {
        // Before the table, whose reader may be gone.
        let save = |path: &Path| results::save(path, title, &self.devices, &Versions::new(), (columns, rows));
        output.output.as_deref().map_or(Ok(()), save)?;
        match output.json {
            true => output::json(object),
            false => output::line(format_args!("{}{below}", table(columns, rows))),
        }
    }
}

/// The result of a run, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(super) struct RaceReport<S, R> {
    #[serde(flatten)]
    pub(super) ran: Ran,
    #[serde(flatten)]
    pub(super) settings: S,
    pub(super) seed: u64,
    pub(super) launches: u32,
    /// The candidates by name; empty where each candidate has rows of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sides: Vec<&'static str>,
    /// Versions and settings.
    pub(super) about_peers: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) floor: Vec<LimitLine>,
    pub(super) rows: Vec<R>,
}

/// The result of a measurement of one library, whose rows have these names and numbers of wrong elements.
pub(super) fn verdict<'r, R: 'r>(
    rows: impl IntoIterator<Item = &'r R>,
    seed: u64,
    wrong: impl Fn(&R) -> (String, u64),
) -> Result<(), CommandFailure> {
    match rows.into_iter().map(wrong).find(|(_, wrong)| *wrong > 0) {
        None => Ok(()),
        Some((name, wrong)) => Err(CommandFailure::failed(format!("{name}: {wrong} elements are wrong (seed {seed})"))),
    }
}
