//! The rows of a comparison of collectives: one for each size and mode.

use std::collections::BTreeMap;

use harness::with_element;
use serde::Serialize;

use super::candidate::With;
use super::rank::CollectiveNotes;
use super::{CollectiveRace, OURS};
use crate::limits::LimitLine;
use crate::pace::Pace;
use crate::plot::{FASTER, HIGHER, Panel, Points};
use crate::race::{Combined, Race, RaceRank, SizeOutcome};
use crate::report::RaceReport;
use harness::bytes;
use harness::columns::Column;
use harness::comparison::turns::Mode;
use harness::failure::CommandFailure;
use harness::nvshmem;
use harness::statistics::{busbw_gbps, ratio};

/// One size.
#[derive(Debug, Serialize)]
pub(crate) struct CollectiveFields {
    /// Bytes of a rank's input.
    bytes: u64,
    algorithm: String,
    busbw_gbps: BTreeMap<String, f64>,
    /// Our time without a codec divided by the time of each of our candidates with a codec.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    codec_ratio: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CollectiveSettings {
    collective: &'static str,
    op: &'static str,
    dtype: &'static str,
}

type CollectiveSizes = SizeOutcome<CollectiveFields>;

impl Race for CollectiveRace {
    const NAME: &'static str = "race";
    const ON_OUR_BUFFERS: bool = false;
    const WITH_FLOOR: bool = true;
    type Notes = CollectiveNotes;
    type Settings = CollectiveSettings;
    type Row = CollectiveSizes;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> CollectiveSettings {
        let op = if self.collective.reduces() { "sum" } else { "" };
        CollectiveSettings { collective: self.collective.name(), op, dtype: self.dtype.name() }
    }

    fn about(&self) -> String {
        format!("{}, {}", self.collective.name(), self.dtype)
    }

    /// Input and output of the largest size, the staging of copy engines, and buffers in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        5 * (64 << 10) + 2 * self.largest_bytes().max(self.floor_bytes) + self.workspace_bytes()
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.with.contains(&With::Nvshmem) { nvshmem::variables() } else { Vec::new() }
    }

    fn candidates(&self) -> Vec<&'static str> {
        self.own().into_iter().chain(self.pace.peers()).collect()
    }

    fn sizes(&self) -> Vec<String> {
        self.sizes_elems.iter().map(|elems| format!("{} bytes", self.bytes(*elems))).collect()
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, CollectiveNotes>) -> Result<(), CommandFailure> {
        if self.workspace_bytes() > 0 {
            bench.communicator.reserve_workspace(self.workspace_bytes() as usize)?;
        }
        with_element!(self.dtype, T => self.measure_as::<T>(bench))
    }

    fn equal_bits(&self) -> Vec<&'static str> {
        if self.collective.equalises() { self.own() } else { Vec::new() }
    }

    fn rows(&self, size: usize, combined: Combined<CollectiveNotes>) -> Vec<CollectiveSizes> {
        let elems = self.sizes_elems[size];
        let factor = self.collective.bus_factor(self.pace.ranks);
        let busbw = |us: f64| busbw_gbps(self.larger_bytes(elems), factor, us);
        let ours = combined.time_us.get(OURS).copied().unwrap_or(0.0);
        let coded = |name: &&'static str| Some((*name, ratio(*combined.time_us.get(*name)?, &[ours])?));
        let ratio = combined.ratio(OURS, &self.pace.peers());
        let fields = CollectiveFields {
            bytes: self.bytes(elems),
            algorithm: combined.notes.clone(),
            busbw_gbps: combined.time_us.iter().map(|(name, us)| (name.clone(), busbw(*us))).collect(),
            codec_ratio: self.coded().iter().filter_map(coded).collect(),
        };
        vec![combined.outcome(fields, ratio)]
    }

    fn columns(&self) -> Vec<Column<CollectiveSizes>> {
        let candidates = self.candidates();
        let mut columns = vec![
            Column::count("bytes", |row: &CollectiveSizes| row.fields.bytes),
            SizeOutcome::mode(),
            Column::text("algorithm", |row: &CollectiveSizes| row.fields.algorithm.clone()),
        ];
        columns.extend(SizeOutcome::times(&candidates));
        columns.push(SizeOutcome::ratio());
        columns.extend(self.coded().into_iter().map(|name| {
            Column::number(format!("{name} ratio"), 2, move |row: &CollectiveSizes| {
                row.fields.codec_ratio.get(name).copied()
            })
        }));
        if self.pace.modes.contains(&Mode::Eager) {
            columns.extend(candidates.into_iter().map(|name| {
                Column::number(format!("{name} host us"), 2, move |row: &CollectiveSizes| {
                    row.host_us.get(name).copied().filter(|_| row.mode == Mode::Eager)
                })
            }));
        }
        columns.extend(self.own().into_iter().map(|name| {
            let heading = if name == OURS { "busbw" } else { name };
            Column::number(format!("{heading} GB/s"), 2, move |row: &CollectiveSizes| {
                row.fields.busbw_gbps.get(name).copied()
            })
        }));
        columns.push(SizeOutcome::wrong());
        columns
    }

    /// Time and bus bandwidth, with the floor.
    fn panels(report: &RaceReport<CollectiveSettings, CollectiveSizes>) -> Option<[Panel; 2]> {
        let panel = |title: String, unit, curves, levels| Panel {
            title,
            over: "input of a rank",
            label: bytes::format,
            unit,
            curves,
            levels,
        };
        let CollectiveSettings { collective, dtype, .. } = report.settings;
        let title = format!("{collective}, {dtype}, {} ranks on {}: time", report.ran.ranks, report.ran.device);
        let times = curves(report, |row| &row.time_us);
        let levels = levels(report, |line| line.time_us.filter(|_| line.gbps.is_none()));
        let bandwidths = curves(report, |row| &row.fields.busbw_gbps);
        Some([
            panel(title, FASTER, times, levels),
            panel("bus bandwidth".to_owned(), HIGHER, bandwidths, self::levels(report, |line| line.gbps)),
        ])
    }
}

/// A curve for each candidate in each mode.
fn curves(
    report: &RaceReport<CollectiveSettings, CollectiveSizes>,
    values: impl Fn(&CollectiveSizes) -> &BTreeMap<String, f64>,
) -> Vec<(String, Points)> {
    let mut curves = Vec::new();
    for (mode, suffix) in [(Mode::Graph, ""), (Mode::Eager, ", eager")] {
        for side in &report.sides {
            let rows = report.rows.iter().filter(|row| row.mode == mode);
            let points = rows.filter_map(|row| Some((row.fields.bytes as f64, *values(row).get(*side)?)));
            let points: Points = points.filter(|(_, y)| *y > 0.0).collect();
            if !points.is_empty() {
                curves.push((format!("{side}{suffix}"), points));
            }
        }
    }
    curves
}

fn levels(
    report: &RaceReport<CollectiveSettings, CollectiveSizes>,
    value: impl Fn(&LimitLine) -> Option<f64>,
) -> Vec<(String, f64)> {
    let level = |line: &LimitLine| Some((line.name.to_owned(), value(line).filter(|level| *level > 0.0)?));
    report.floor.iter().filter_map(level).collect()
}
