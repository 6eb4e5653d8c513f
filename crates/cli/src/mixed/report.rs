//! The rows of a measurement of meshes: one for each size and candidate, once every rank has measured the size.

use harness::columns::Column;
use serde::Serialize;

use super::GridSettings;
use super::rank::GridSample;
use crate::grid::GridWorld;
use harness::failure::CommandFailure;
use harness::gathering::Gathering;
use harness::ranks::{RanksAs, Run};
use harness::statistics::{median, ratio, slowest};

/// One size of one candidate, as `--json` prints it.
#[derive(Debug, Serialize)]
struct GridRow {
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

/// Runs a measurement. Prints its rows, and fails if an element is wrong.
pub(super) fn measure(run: &Run<GridSettings>, ranks_as: RanksAs, json: bool) -> Result<(), CommandFailure> {
    let columns = columns(run.task.against.is_some());
    let mut gathering = Gathering::new(run.task.world.ranks, run.task.sizes_elems.len(), columns, json)?;
    run.attend(ranks_as, |rank, sample: GridSample| {
        let size = sample.size;
        gathering.add(rank, size, sample, |samples| rows(run, size, samples))
    })?;
    match gathering.finish(|_| None)?.iter().map(|row| row.wrong).sum::<u64>() {
        0 => Ok(()),
        wrong => Err(CommandFailure::failed(format!("{wrong} elements are wrong (seed {})", run.task.seed))),
    }
}

fn rows(run: &Run<GridSettings>, size: usize, samples: &[GridSample]) -> Vec<GridRow> {
    let GridSettings { world: GridWorld { ranks, hosts, .. }, operation, dtype, graph, seed, .. } = run.task;
    let elements = run.task.sizes_elems[size];
    let names = run.task.side_names();
    let time = |side: usize| median(slowest(samples.iter().map(|sample| sample.sides[side].times_us.as_slice())));
    let modes = run.task.modes.len();
    // The engine follows the modes.
    let nccl_us = (names.len() > modes).then(|| time(modes));
    let row = |(side, mode)| {
        let (time_us, first) = (time(side), &samples[0]);
        let nccl_us = nccl_us.filter(|_| side < modes);
        GridRow {
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

fn columns(against: bool) -> Vec<Column<GridRow>> {
    let mut columns = vec![
        Column::count("bytes", |row: &GridRow| row.bytes),
        Column::count("elements", |row: &GridRow| row.elements as u64),
        Column::text("dtype", |row: &GridRow| row.dtype.to_owned()),
        Column::count("tensor", |row: &GridRow| row.tensor_ranks as u64),
        Column::count("data", |row: &GridRow| row.data_ranks as u64),
        Column::text("mode", |row: &GridRow| row.mode.to_owned()),
        Column::text("runs", |row: &GridRow| row.runs.clone()),
        Column::number("time us", 2, |row: &GridRow| Some(row.time_us)),
    ];
    if against {
        columns.push(Column::number("nccl us", 2, |row: &GridRow| row.nccl_us));
        columns.push(Column::number("ratio", 2, |row: &GridRow| row.ratio));
    }
    columns.push(Column::count("wrong", |row: &GridRow| row.wrong));
    columns
}
