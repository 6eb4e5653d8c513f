//! The rows of a measurement of meshes: one for each size and candidate, once every rank has measured the size.

use harness::output::ProgressBar;
use serde::Serialize;

use super::Grids;
use super::rank::Sample;
use crate::grid::GridWorld;
use harness::failure::Failure;
use harness::live::Live;
use harness::output;
use harness::ranks::Run;
use harness::statistics::{median, ratio, slowest};
use harness::table::Table;

/// One size of one candidate, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    ranks: usize,
    hosts: usize,
    device: &'static str,
    operation: &'static str,
    tensor_ranks: usize,
    data_ranks: usize,
    /// The requested mode, and the mode that ran. For NCCL: `nccl`, and its collectives.
    mode: &'static str,
    runs: String,
    dtype: &'static str,
    bytes: u64,
    elements: usize,
    /// Bytes of one piece.
    piece_bytes: usize,
    memory: &'static str,
    graph: bool,
    seed: u64,
    time_us: f64,
    /// NCCL's time for the same operation.
    nccl_us: Option<f64>,
    /// NCCL's time divided by the time of the mode.
    ratio: Option<f64>,
    wrong: u64,
}

/// Gathers the samples of all ranks.
pub(super) struct Hearing<'a> {
    run: &'a Run<Grids>,
    /// The table; `None` with --json.
    live: Option<Live>,
    /// [size]
    samples: Vec<Vec<Sample>>,
    rows: Vec<Row>,
    progress: ProgressBar,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(run: &'a Run<Grids>, json: bool) -> Result<Self, Failure> {
        let sizes = run.task.sizes_elems.len();
        let samples = (0..sizes).map(|_| Vec::new()).collect();
        let live = (!json).then(Live::new).transpose()?;
        Ok(Self { run, live, samples, rows: Vec::new(), progress: output::progress(sizes as u64) })
    }

    /// # Errors
    /// A sample of an unknown size.
    pub(super) fn hear(&mut self, rank: usize, sample: Sample) -> Result<(), Failure> {
        let size = sample.size;
        let of_size = self.samples.get_mut(size);
        let of_size = of_size.ok_or_else(|| Failure::failed(format!("rank {rank} measured an unknown size {size}")))?;
        of_size.push(sample);
        if of_size.len() == self.run.task.world.ranks {
            let rows = rows(self.run, size, of_size);
            self.progress.inc(1);
            let first = self.rows.len();
            self.rows.extend(rows);
            let (live, rows, against) = (&mut self.live, &self.rows, self.run.task.against.is_some());
            return self.progress.suspend(|| match live {
                Some(live) => live.show(&table(rows, against)),
                None => rows[first..].iter().try_for_each(output::json),
            });
        }
        Ok(())
    }

    /// Prints the table, and fails if an element is wrong.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.progress.finish_and_clear();
        self.live.map_or(Ok(()), Live::finish)?;
        match self.rows.iter().map(|row| row.wrong).sum::<u64>() {
            0 => Ok(()),
            wrong => Err(Failure::failed(format!("{wrong} elements are wrong (seed {})", self.run.task.seed))),
        }
    }
}

fn rows(run: &Run<Grids>, size: usize, samples: &[Sample]) -> Vec<Row> {
    let Grids { world: GridWorld { ranks, hosts, .. }, operation, dtype, graph, seed, .. } = run.task;
    let elements = run.task.sizes_elems[size];
    let names = run.task.side_names();
    let time = |side: usize| median(slowest(samples.iter().map(|sample| sample.sides[side].times_us.as_slice())));
    let modes = run.task.modes.len();
    // The engine follows the modes.
    let nccl_us = (names.len() > modes).then(|| time(modes));
    let row = |(side, mode)| {
        let (time_us, first) = (time(side), &samples[0]);
        let nccl_us = nccl_us.filter(|_| side < modes);
        Row {
            ranks,
            hosts,
            device: run.device_kind().name(),
            operation: operation.name(),
            tensor_ranks: first.tensor_ranks,
            data_ranks: first.data_ranks,
            mode,
            runs: first.runs[side].clone(),
            dtype: dtype.name(),
            bytes: (elements * dtype.bytes()) as u64,
            elements,
            piece_bytes: run.task.world.most_bytes,
            memory: if run.task.plain { "plain" } else { "symmetric" },
            graph,
            seed,
            time_us,
            nccl_us,
            ratio: nccl_us.and_then(|nccl_us| ratio(time_us, &[nccl_us])),
            wrong: samples.iter().map(|sample| sample.sides[side].wrong).sum(),
        }
    };
    names.into_iter().enumerate().map(row).collect()
}

fn table(rows: &[Row], against: bool) -> Table {
    let peer = |shown: &[&'static str]| if against { shown.to_vec() } else { Vec::new() };
    let start = ["bytes", "elements", "dtype", "tensor", "data", "mode", "runs", "time us"];
    let headings: Vec<&str> = start.into_iter().chain(peer(&["nccl us", "ratio"])).chain(["wrong"]).collect();
    let right = [0, 1, 3, 4].into_iter().chain(7..headings.len());
    let mut table = Table::new(headings, right);
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    for row in rows {
        let start = [
            row.bytes.to_string(),
            row.elements.to_string(),
            row.dtype.to_owned(),
            row.tensor_ranks.to_string(),
            row.data_ranks.to_string(),
            row.mode.to_owned(),
            row.runs.clone(),
            number(Some(row.time_us)),
        ];
        let peer = if against { vec![number(row.nccl_us), number(row.ratio)] } else { Vec::new() };
        table.add_row(start.into_iter().chain(peer).chain([row.wrong.to_string()]));
    }
    table
}
