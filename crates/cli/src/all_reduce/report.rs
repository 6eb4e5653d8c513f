//! A sweep's result: a row for each size once every rank has sampled it.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;

use super::job::{Job, Said};
use super::sweep::{Sample, Sweep};
use crate::failure::Failure;
use crate::{bytes, output};

/// One size, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    ranks: usize,
    device: &'static str,
    collective: &'static str,
    op: &'static str,
    dtype: &'static str,
    bytes: u64,
    elements: usize,
    algorithm: String,
    graph: bool,
    time_us: f64,
    algbw_gbps: f64,
    busbw_gbps: f64,
    wrong: u64,
}

/// Gathers what the ranks say.
pub(super) struct Report<'a> {
    ranks: usize,
    device: &'static str,
    sweep: &'a Sweep,
    json: bool,
    /// For each size, what was heard of it.
    samples: Vec<Vec<(usize, Sample)>>,
    rows: Vec<Row>,
    /// Sizes at which ranks ended with different bits.
    unequal_bytes: Vec<u64>,
    progress: ProgressBar,
}

impl<'a> Report<'a> {
    pub(super) fn new(job: &Job, sweep: &'a Sweep, json: bool) -> Self {
        let sizes = sweep.sizes_elems.len();
        // Hidden unless standard error is a terminal.
        let progress = ProgressBar::new(sizes as u64).with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
            progress.set_style(style);
        }
        Self {
            ranks: job.ranks(),
            device: job.device_kind().name(),
            sweep,
            json,
            samples: std::iter::repeat_with(Vec::new).take(sizes).collect(),
            rows: Vec::new(),
            unequal_bytes: Vec::new(),
            progress,
        }
    }

    pub(super) fn hear(&mut self, rank: usize, said: Said) -> Result<(), Failure> {
        let Said::Sampled(sample) = said else {
            return Err(Failure::failed(format!("rank {rank} said what has no place in a sweep: {said:?}")));
        };
        let size = sample.size;
        let samples = self.samples.get_mut(size);
        let samples =
            samples.ok_or_else(|| Failure::failed(format!("rank {rank} measured a size {size} there is not")))?;
        samples.push((rank, sample));
        if samples.len() < self.ranks {
            return Ok(());
        }
        let samples = std::mem::take(samples);
        let row = self.row(size, &samples);
        let first = samples.first().map(|(_, sample)| sample.checksum);
        if self.sweep.collective.equalises() && samples.iter().any(|(_, sample)| Some(sample.checksum) != first) {
            self.unequal_bytes.push(row.bytes);
        }
        self.progress.set_message(bytes::format(row.bytes));
        self.progress.inc(1);
        if self.json {
            self.progress.suspend(|| output::json(&row))?;
        }
        self.rows.push(row);
        Ok(())
    }

    fn row(&self, size: usize, samples: &[(usize, Sample)]) -> Row {
        let dtype = self.sweep.dtype;
        let elements = self.sweep.sizes_elems[size];
        let bytes = (elements * dtype.bytes()) as u64;
        let time_us = median(slowest(samples));
        let algbw_gbps = if time_us > 0.0 { bytes as f64 / time_us / 1e3 } else { 0.0 };
        Row {
            ranks: self.ranks,
            device: self.device,
            collective: self.sweep.collective.name(),
            op: if self.sweep.collective.reduces() { self.sweep.reduction.name() } else { "-" },
            dtype: dtype.name(),
            bytes,
            elements,
            algorithm: samples.first().map(|(_, sample)| sample.algorithm.clone()).unwrap_or_default(),
            graph: self.sweep.graph,
            time_us,
            algbw_gbps,
            busbw_gbps: algbw_gbps * self.sweep.collective.bus_factor(self.ranks),
            wrong: samples.iter().map(|(_, sample)| sample.wrong).sum(),
        }
    }

    /// Prints the table, and fails if anything was wrong.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.progress.finish_and_clear();
        if !self.json {
            output::line(table(&self.rows))?;
        }
        let wrong: u64 = self.rows.iter().map(|row| row.wrong).sum();
        let elements: u64 = self.rows.iter().map(|row| (row.elements * row.ranks) as u64).sum();
        if wrong > 0 {
            return Err(Failure::failed(format!(
                "{wrong} of {elements} elements are wrong (seed {})",
                self.sweep.seed
            )));
        }
        if let Some(bytes) = self.unequal_bytes.first() {
            let seed = self.sweep.seed;
            return Err(Failure::failed(format!(
                "the ranks' results differ in their bits at {bytes} bytes (seed {seed})"
            )));
        }
        Ok(())
    }
}

/// For every batch the time of the slowest rank.
fn slowest(samples: &[(usize, Sample)]) -> Vec<f64> {
    let batches = samples.iter().map(|(_, sample)| sample.batches_us.len()).min().unwrap_or(0);
    (0..batches).map(|batch| samples.iter().map(|(_, sample)| sample.batches_us[batch]).fold(0.0, f64::max)).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

const HEADINGS: [&str; 9] =
    ["bytes", "elements", "dtype", "op", "algorithm", "time us", "algbw GB/s", "busbw GB/s", "wrong"];

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(HEADINGS);
    for row in rows {
        table.add_row([
            row.bytes.to_string(),
            row.elements.to_string(),
            row.dtype.to_owned(),
            row.op.to_owned(),
            row.algorithm.clone(),
            format!("{:.2}", row.time_us),
            format!("{:.3}", row.algbw_gbps),
            format!("{:.3}", row.busbw_gbps),
            row.wrong.to_string(),
        ]);
    }
    for column in [0, 1, 5, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(batches_us: &[f64]) -> (usize, Sample) {
        let batches_us = batches_us.to_vec();
        (0, Sample { size: 0, algorithm: String::new(), batches_us, wrong: 0, checksum: 0 })
    }

    #[test]
    fn time_is_the_median_of_the_slowest() {
        let samples = [sample(&[1.0, 9.0, 2.0]), sample(&[3.0, 1.0, 4.0])];
        assert_eq!(slowest(&samples), [3.0, 9.0, 4.0]);
        assert_eq!(median(slowest(&samples)), 4.0);
        assert_eq!(median(vec![1.0, 2.0]), 1.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
