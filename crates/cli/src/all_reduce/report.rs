//! A sweep's result: a row for each size once every rank has sampled it.

use harness::output::ProgressBar;
use serde::Serialize;
use symmetra::{Algorithm, DeviceKind};

use super::sweep::{Sample, Sweep};
use harness::collective::Collective;
use harness::failure::Failure;
use harness::live::Live;
use harness::statistics::{busbw_gbps, median, slowest};
use harness::table::Table;
use harness::{bytes, output};

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
    memory: &'static str,
    in_place: bool,
    codec: &'static str,
    /// Whether the call was planned once.
    bound: bool,
    /// The dimension that the operation works along.
    along: Option<usize>,
    graph: bool,
    seed: u64,
    time_us: f64,
    algbw_gbps: f64,
    busbw_gbps: f64,
    wrong: u64,
}

/// Gathers the samples of all ranks.
pub(super) struct Report<'a> {
    ranks: usize,
    device: &'static str,
    sweep: &'a Sweep,
    /// The table; `None` with --json.
    live: Option<Live>,
    /// The samples of each size so far.
    samples: Vec<Vec<Sample>>,
    rows: Vec<Row>,
    /// The first size at which ranks ended with different bits.
    unequal_bytes: Option<u64>,
    progress: ProgressBar,
}

impl<'a> Report<'a> {
    pub(super) fn new(ranks: usize, device: DeviceKind, sweep: &'a Sweep, json: bool) -> Result<Self, Failure> {
        let sizes = sweep.sizes_elems.len();
        Ok(Self {
            ranks,
            device: device.name(),
            sweep,
            live: (!json).then(Live::new).transpose()?,
            samples: std::iter::repeat_with(Vec::new).take(sizes).collect(),
            rows: Vec::new(),
            unequal_bytes: None,
            progress: output::progress(sizes as u64),
        })
    }

    pub(super) fn hear(&mut self, rank: usize, sample: Sample) -> Result<(), Failure> {
        let size = sample.size;
        let Some(samples) = self.samples.get_mut(size) else {
            return Err(Failure::failed(format!("rank {rank} measured an unknown size {size}")));
        };
        samples.push(sample);
        if samples.len() < self.ranks {
            return Ok(());
        }
        let samples = std::mem::take(samples);
        let row = self.row(size, &samples);
        if self.sweep.collective.equalises() && samples.iter().any(|sample| sample.checksum != samples[0].checksum) {
            self.unequal_bytes.get_or_insert(row.bytes);
        }
        self.progress.set_message(bytes::format(row.bytes));
        self.progress.inc(1);
        self.rows.push(row);
        let Self { live, rows, sweep, progress, .. } = self;
        progress.suspend(|| match live {
            Some(live) => live.show(&table(rows, sweep)),
            None => rows.last().map_or(Ok(()), output::json),
        })
    }

    /// Makes a row from the samples of all ranks.
    fn row(&self, size: usize, samples: &[Sample]) -> Row {
        let dtype = self.sweep.dtype;
        let elements = self.sweep.sizes_elems[size];
        let bytes = (elements * dtype.bytes()) as u64;
        let time_us = median(slowest(samples.iter().map(|sample| sample.batches_us.as_slice())));
        Row {
            ranks: self.ranks,
            device: self.device,
            collective: self.sweep.collective.name(),
            op: if self.sweep.collective.reduces() { self.sweep.reduction.name() } else { "-" },
            dtype: dtype.name(),
            bytes,
            elements,
            algorithm: samples[0].algorithm.clone(),
            memory: self.sweep.memory.name(),
            in_place: self.sweep.in_place,
            codec: self.sweep.codec.name(),
            bound: self.sweep.bound,
            along: self.sweep.along,
            graph: self.sweep.graph,
            seed: self.sweep.seed,
            time_us,
            algbw_gbps: busbw_gbps(bytes, 1.0, time_us),
            busbw_gbps: busbw_gbps(bytes, self.sweep.collective.bus_factor(self.ranks), time_us),
            wrong: samples.iter().map(|sample| sample.wrong).sum(),
        }
    }

    /// Prints the table, and fails if anything was wrong.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.progress.finish_and_clear();
        if let Some(live) = self.live {
            live.finish()?;
            let average_gbps = self.rows.iter().map(|row| row.busbw_gbps).sum::<f64>() / self.rows.len().max(1) as f64;
            output::line(format_args!("average bus bandwidth: {average_gbps:.3} GB/s"))?;
        }
        let wrong: u64 = self.rows.iter().map(|row| row.wrong).sum();
        let elements: u64 = self.rows.iter().map(|row| (row.elements * row.ranks) as u64).sum();
        if wrong > 0 {
            return Err(Failure::failed(format!(
                "{wrong} of {elements} elements are wrong (seed {})",
                self.sweep.seed
            )));
        }
        if let Some(bytes) = self.unequal_bytes {
            let seed = self.sweep.seed;
            return Err(Failure::failed(format!(
                "the ranks' results differ in their bits at {bytes} bytes (seed {seed})"
            )));
        }
        Ok(())
    }
}

fn table(rows: &[Row], sweep: &Sweep) -> Table {
    let headings = ["bytes", "elements", "dtype", "op", "algorithm", "time us", "algbw GB/s", "busbw GB/s", "wrong"];
    let (bytes, elements) = (sweep.largest_bytes(), sweep.sizes_elems.iter().max().copied().unwrap_or(0));
    let [bytes, elements] = [bytes, elements].map(|most| most.to_string());
    let longest =
        [Algorithm::TwoShotZeroCopy, sweep.algorithm].map(Algorithm::name).into_iter().max_by_key(|name| name.len());
    let algorithm = longest.filter(|_| sweep.collective == Collective::AllReduce).unwrap_or("direct");
    let expected = [bytes.as_str(), &elements, "", "", algorithm, "99999.99", "999.999", "999.999", "0"];
    let mut table = Table::new(headings, [0, 1, 5, 6, 7, 8]).expecting(expected);
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
    table
}
