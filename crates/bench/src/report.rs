//! The result of a comparison: a row for each size and mode once every rank has run it.

use std::collections::BTreeMap;

use harness::output::ProgressBar;
use serde::Serialize;

use super::floor::{self, Times};
use super::plot::{FASTER, HIGHER, Panel, Points};
use super::race::{Lap, OURS, Race};
use harness::contest::turns::{Mode, SideLap};
use harness::devices::RankDevice;
use harness::failure::Failure;
use harness::ranks::RanksAs;
use harness::statistics::{busbw_gbps, median, ratio, slowest};
use harness::table::Table;
use harness::{bytes, output};

/// One size in one mode.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Bytes of a rank's input.
    bytes: u64,
    mode: Mode,
    algorithm: String,
    operations: u32,
    /// Times by candidate.
    time_us: BTreeMap<&'static str, f64>,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    host_us: BTreeMap<&'static str, f64>,
    busbw_gbps: BTreeMap<&'static str, f64>,
    /// The best peer's time divided by ours.
    ratio: Option<f64>,
    /// Our time without a codec divided by the time of each of our candidates with a codec.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    codec_ratio: BTreeMap<&'static str, f64>,
    wrong: BTreeMap<&'static str, u64>,
}

/// Gathers the trials of all ranks.
pub(super) struct Hearing<'a> {
    race: &'a Race,
    floors: Vec<Times>,
    laps: Vec<(usize, Lap)>,
    progress: ProgressBar,
    report: Report,
}

/// The result, as `--json` writes it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ranks: usize,
    device: &'static str,
    ranks_as: &'static str,
    collective: &'static str,
    op: &'static str,
    dtype: &'static str,
    seed: u64,
    launches: u32,
    sides: Vec<&'static str>,
    /// How many of the candidates are ours.
    #[serde(skip)]
    own_sides: usize,
    #[serde(skip)]
    has_eager: bool,
    /// Our candidates with codecs.
    #[serde(skip)]
    coded: Vec<&'static str>,
    /// Versions and settings.
    about_peers: Option<String>,
    floor: Vec<floor::Line>,
    rows: Vec<Row>,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(devices: &[RankDevice], ranks_as: RanksAs, race: &'a Race, about_peers: Option<String>) -> Self {
        let steps = race.sizes_elems.len() * race.modes.len();
        let progress = output::progress(steps as u64);
        let report = Report {
            ranks: devices.len(),
            device: devices.first().map_or("host", |device| device.kind().name()),
            ranks_as: ranks_as.name(),
            collective: race.collective.name(),
            op: if race.collective.reduces() { "sum" } else { "" },
            dtype: race.dtype.name(),
            seed: race.seed,
            launches: race.launches.timed,
            sides: race.side_names(),
            own_sides: race.own_sides(),
            has_eager: race.modes.contains(&Mode::Eager),
            coded: race.coded_sides(),
            about_peers,
            floor: Vec::new(),
            rows: Vec::new(),
        };
        Self { race, floors: Vec::new(), laps: Vec::new(), progress, report }
    }

    pub(super) fn hear_floor(&mut self, floor: Times) {
        self.floors.push(floor);
        if self.floors.len() == self.report.ranks {
            self.report.floor = floor::lines(&self.floors.iter().collect::<Vec<_>>());
        }
    }

    pub(super) fn hear(&mut self, rank: usize, lap: Lap) -> Result<(), Failure> {
        if lap.size >= self.race.sizes_elems.len() || lap.sides.len() != self.report.sides.len() {
            return Err(Failure::failed(format!("rank {rank} ran another race: size {}", lap.size)));
        }
        let (size, mode) = (lap.size, lap.mode);
        self.laps.push((rank, lap));
        let (here, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.laps).into_iter().partition(|(_, lap)| (lap.size, lap.mode) == (size, mode));
        self.laps = others;
        if here.len() < self.report.ranks {
            self.laps.extend(here);
            return Ok(());
        }
        self.check_equal(&here)?;
        let laps: Vec<Lap> = here.into_iter().map(|(_, lap)| lap).collect();
        let row = self.row(&laps);
        self.progress.set_message(bytes::format(row.bytes));
        self.progress.inc(1);
        self.report.rows.push(row);
        Ok(())
    }

    /// Refuses ranks that ended with different bits for one of our candidates, in operations that leave equal bits on
    /// all ranks.
    fn check_equal(&self, laps: &[(usize, Lap)]) -> Result<(), Failure> {
        let Some(((first, lap), others)) = laps.split_first() else { return Ok(()) };
        let sides = if self.race.collective.equalises() { self.race.own_sides() } else { 0 };
        for side in 0..sides {
            let unequal = |(_, other): &&(usize, Lap)| other.sides[side].checksum != lap.sides[side].checksum;
            if let Some((rank, _)) = others.iter().find(unequal) {
                let (bytes, seed) = (self.race.bytes(self.race.sizes_elems[lap.size]), self.race.seed);
                return Err(Failure::failed(format!(
                    "{}: the results of ranks {first} and {rank} differ in their bits at {bytes} bytes (seed {seed})",
                    self.report.sides[side]
                )));
            }
        }
        Ok(())
    }

    /// Makes a row from the trials of all ranks. There is at least one trial.
    fn row(&self, laps: &[Lap]) -> Row {
        let elems = self.race.sizes_elems[laps[0].size];
        let larger_bytes = self.race.bytes(self.race.shape(elems).larger_elems());
        let factor = self.race.collective.bus_factor(self.report.ranks);
        let of_side = |side: usize, times: fn(&SideLap) -> &[f64]| {
            median(slowest(laps.iter().filter_map(|lap| lap.sides.get(side)).map(times)))
        };
        let by_side = |value: &dyn Fn(usize) -> f64| -> BTreeMap<&'static str, f64> {
            self.report.sides.iter().enumerate().map(|(side, name)| (*name, value(side))).collect()
        };
        let times_us: Vec<f64> = (0..self.report.sides.len()).map(|side| of_side(side, |lap| &lap.times_us)).collect();
        let codec_ratio = |name: &&'static str| {
            let side = self.report.sides.iter().position(|side| side == name)?;
            Some((*name, ratio(times_us[side], &times_us[..1])?))
        };
        let wrong = |side: usize| laps.iter().filter_map(|lap| lap.sides.get(side)).map(|lap| lap.wrong).sum();
        Row {
            bytes: self.race.bytes(elems),
            mode: laps[0].mode,
            algorithm: laps[0].algorithm.clone(),
            operations: laps[0].operations,
            time_us: by_side(&|side| times_us[side]),
            host_us: by_side(&|side| of_side(side, |lap| &lap.host_us)),
            busbw_gbps: by_side(&|side| busbw_gbps(larger_bytes, factor, times_us[side])),
            ratio: ratio(times_us[0], &times_us[self.race.own_sides()..]),
            codec_ratio: self.report.coded.iter().filter_map(codec_ratio).collect(),
            wrong: self.report.sides.iter().enumerate().map(|(side, name)| (*name, wrong(side))).collect(),
        }
    }

    /// The rows so far.
    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    /// Runs `print` while the progress is not on the terminal.
    pub(super) fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.progress.suspend(print)
    }

    pub(super) fn finish(self) -> Report {
        self.progress.finish_and_clear();
        self.report
    }
}

impl Report {
    /// Modes and candidates of the columns, in their order.
    fn headings(&self) -> Vec<String> {
        let mut headings = vec!["bytes".to_owned(), "mode".to_owned(), "algorithm".to_owned()];
        headings.extend(self.sides.iter().map(|side| format!("{side} us")));
        headings.push("ratio".to_owned());
        headings.extend(self.coded.iter().map(|side| format!("{side} ratio")));
        if self.has_eager {
            headings.extend(self.sides.iter().map(|side| format!("{side} host us")));
        }
        headings.extend(self.sides[..self.own_sides].iter().map(|side| match *side {
            OURS => "busbw GB/s".to_owned(),
            side => format!("{side} GB/s"),
        }));
        headings.push("wrong".to_owned());
        headings
    }

    /// The lines of the floor in the text output.
    pub(super) fn floor(&self) -> String {
        format!("\n{}", floor::table(&self.floor))
    }

    /// The table of the text output.
    pub(super) fn table(&self) -> Table {
        let headings = self.headings();
        let right = (0..headings.len()).filter(|column| ![1, 2].contains(column));
        let mut table = Table::new(headings, right);
        for row in &self.rows {
            let mut cells = vec![row.bytes.to_string(), row.mode.name().to_owned(), row.algorithm.clone()];
            cells.extend(self.sides.iter().map(|side| format!("{:.2}", row.time_us[side])));
            let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            cells.push(ratio(row.ratio));
            cells.extend(self.coded.iter().map(|side| ratio(row.codec_ratio.get(side).copied())));
            if self.has_eager {
                let host =
                    |side| if row.mode == Mode::Eager { format!("{:.2}", row.host_us[side]) } else { "-".to_owned() };
                cells.extend(self.sides.iter().copied().map(host));
            }
            cells.extend(self.sides[..self.own_sides].iter().map(|side| format!("{:.2}", row.busbw_gbps[side])));
            cells.push(row.wrong.values().sum::<u64>().to_string());
            table.add_row(cells);
        }
        table
    }

    /// The plot: time and bus bandwidth, with the floor.
    pub(super) fn panels(&self) -> [Panel; 2] {
        let over = "input of a rank";
        let title = format!("{}, {}, {} ranks on {}: time", self.collective, self.dtype, self.ranks, self.device);
        let times = Panel {
            title,
            over,
            label: bytes::format,
            unit: FASTER,
            curves: self.curves(|row, side| row.time_us[side]),
            levels: self.levels(|line| line.time_us.filter(|_| line.gbps.is_none())),
        };
        let bandwidths = Panel {
            title: "bus bandwidth".to_owned(),
            over,
            label: bytes::format,
            unit: HIGHER,
            curves: self.curves(|row, side| row.busbw_gbps[side]),
            levels: self.levels(|line| line.gbps),
        };
        [times, bandwidths]
    }

    /// A curve for each candidate in each mode.
    fn curves(&self, value: impl Fn(&Row, &str) -> f64) -> Vec<(String, Points)> {
        let mut curves = Vec::new();
        for (mode, suffix) in [(Mode::Graph, ""), (Mode::Eager, ", eager")] {
            for side in &self.sides {
                let rows = self.rows.iter().filter(|row| row.mode == mode);
                let points: Points =
                    rows.map(|row| (row.bytes as f64, value(row, side))).filter(|(_, y)| *y > 0.0).collect();
                if !points.is_empty() {
                    curves.push((format!("{side}{suffix}"), points));
                }
            }
        }
        curves
    }

    fn levels(&self, value: impl Fn(&floor::Line) -> Option<f64>) -> Vec<(String, f64)> {
        let level = |line: &floor::Line| Some((line.name.to_owned(), value(line).filter(|level| *level > 0.0)?));
        self.floor.iter().filter_map(level).collect()
    }

    /// Fails if any element was wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        for side in &self.sides {
            let wrong: u64 = self.rows.iter().map(|row| row.wrong[side]).sum();
            if wrong > 0 {
                return Err(Failure::failed(format!("{side}: {wrong} elements are wrong (seed {})", self.seed)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/bench/unit/race_report.rs"]
mod tests;
