//! A sweep's result: a row for each size once every rank has sampled it.

use harness::columns::Column;
use serde::Serialize;
use symmetra::Algorithm;

use super::sweep::{Sweep, SweepSample};
use harness::collective::CollectiveCommand;
use harness::failure::CommandFailure;
use harness::gathering::Gathering;
use harness::ranks::{RanksAs, Run};
use harness::statistics::{busbw_gbps, median, slowest};

/// One size, as `--json` prints it.
#[derive(Debug, Serialize)]
struct SweepRow {
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

/// Runs a sweep. Prints its rows, and fails if an element is wrong.
pub(super) fn measure(run: &Run<Sweep>, ranks_as: RanksAs, json: bool) -> Result<(), CommandFailure> {
    let (sweep, seed) = (&run.task, run.task.seed);
    let mut gathering = Gathering::new(run.ranks(), sweep.sizes_elems.len(), columns(sweep), json)?;
    // The first size at which ranks ended with different bits.
    let mut unequal_bytes = None;
    run.attend(ranks_as, |rank, sample: SweepSample| {
        gathering.add(rank, sample.size, sample, |samples| {
            let row = row(run, samples);
            let is_unequal = samples.iter().any(|sample| sample.checksum != samples[0].checksum);
            if sweep.collective.equalises() && is_unequal {
                unequal_bytes.get_or_insert(row.bytes);
            }
            vec![row]
        })
    })?;
    let rows = gathering.finish(|rows| {
        let average_gbps = rows.iter().map(|row| row.busbw_gbps).sum::<f64>() / rows.len().max(1) as f64;
        Some(format!("average bus bandwidth: {average_gbps:.3} GB/s"))
    })?;
    let wrong: u64 = rows.iter().map(|row| row.wrong).sum();
    let elements: u64 = rows.iter().map(|row| (row.elements * row.ranks) as u64).sum();
    match (wrong, unequal_bytes) {
        (0, None) => Ok(()),
        (0, Some(bytes)) => Err(CommandFailure::failed(format!(
            "the ranks' results differ in their bits at {bytes} bytes (seed {seed})"
        ))),
        _ => Err(CommandFailure::failed(format!("{wrong} of {elements} elements are wrong (seed {seed})"))),
    }
}

/// The row of a size, from the samples of all ranks.
fn row(run: &Run<Sweep>, samples: &[SweepSample]) -> SweepRow {
    let (ranks, sweep) = (run.ranks(), &run.task);
    let elements = sweep.sizes_elems[samples[0].size];
    let bytes = (elements * sweep.dtype.bytes()) as u64;
    let time_us = median(slowest(samples.iter().map(|sample| sample.batches_us.as_slice())));
    SweepRow {
        ranks,
        device: run.device_kind().name(),
        collective: sweep.collective.name(),
        op: if sweep.collective.reduces() { sweep.reduction.name() } else { "-" },
        dtype: sweep.dtype.name(),
        bytes,
        elements,
        algorithm: samples[0].algorithm.clone(),
        memory: sweep.memory.name(),
        in_place: sweep.in_place,
        codec: sweep.codec.name(),
        bound: sweep.bound,
        along: sweep.along,
        graph: sweep.graph,
        seed: sweep.seed,
        time_us,
        algbw_gbps: busbw_gbps(bytes, 1.0, time_us),
        busbw_gbps: busbw_gbps(bytes, sweep.collective.bus_factor(ranks), time_us),
        wrong: samples.iter().map(|sample| sample.wrong).sum(),
    }
}

fn columns(sweep: &Sweep) -> Vec<Column<SweepRow>> {
    let (bytes, elements) = (sweep.largest_bytes(), sweep.sizes_elems.iter().max().copied().unwrap_or(0));
    let longest =
        [Algorithm::TwoShotZeroCopy, sweep.algorithm].map(Algorithm::name).into_iter().max_by_key(|name| name.len());
    let algorithm = longest.filter(|_| sweep.collective == CollectiveCommand::AllReduce).unwrap_or("direct");
    vec![
        Column::count("bytes", |row: &SweepRow| row.bytes).expecting(bytes.to_string()),
        Column::count("elements", |row: &SweepRow| row.elements as u64).expecting(elements.to_string()),
        Column::text("dtype", |row: &SweepRow| row.dtype.to_owned()),
        Column::text("op", |row: &SweepRow| row.op.to_owned()),
        Column::text("algorithm", |row: &SweepRow| row.algorithm.clone()).expecting(algorithm),
        Column::number("time us", 2, |row: &SweepRow| Some(row.time_us)).expecting("99999.99"),
        Column::number("algbw GB/s", 3, |row: &SweepRow| Some(row.algbw_gbps)).expecting("999.999"),
        Column::number("busbw GB/s", 3, |row: &SweepRow| Some(row.busbw_gbps)).expecting("999.999"),
        Column::count("wrong", |row: &SweepRow| row.wrong).expecting("0"),
    ]
}
