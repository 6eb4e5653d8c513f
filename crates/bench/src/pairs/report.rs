//! The rows of a comparison of messages: one for each size and mode.

use std::collections::BTreeMap;

use serde::Serialize;
use symmetra::Config;

use super::{OURS, PairsRace};
use crate::pace::Pace;
use crate::race::{Combined, Race, RaceRank, SizeOutcome};
use harness::columns::Column;
use harness::failure::CommandFailure;
use harness::statistics::busbw_gbps;

/// One size.
#[derive(Debug, Serialize)]
pub(crate) struct PairFields {
    /// Bytes of a message.
    bytes: usize,
    /// Bytes that a rank sends in a time, in GB/s.
    gbps: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PairSettings {
    collective: &'static str,
    messages: usize,
    way: &'static str,
    pair_bytes: u64,
}

type PairSizes = SizeOutcome<PairFields>;

impl Race for PairsRace {
    const NAME: &'static str = "pairs";
    type Notes = ();
    type Settings = PairSettings;
    type Row = PairSizes;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> PairSettings {
        let Self { messages, way, pair_bytes, .. } = *self;
        PairSettings { collective: "pairs", messages, way: way.name(), pair_bytes }
    }

    fn about(&self) -> String {
        format!("pairs, {} messages, {} way", self.messages, self.way.name())
    }

    /// Buffers in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        1 << 20
    }

    fn configure(&self, config: &mut Config) {
        config.pair_bytes = self.pair_bytes;
    }

    fn candidates(&self) -> Vec<&'static str> {
        [OURS].into_iter().chain(self.pace.peers()).collect()
    }

    fn sizes(&self) -> Vec<String> {
        self.sizes.iter().map(|bytes| format!("{bytes} bytes")).collect()
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, ()>) -> Result<(), CommandFailure> {
        self.measure_sizes(bench)
    }

    fn rows(&self, size: usize, combined: Combined<()>) -> Vec<PairSizes> {
        let bytes = self.sizes[size];
        let gbps = |us: f64| busbw_gbps((self.messages * bytes) as u64, 1.0, us);
        let ratio = combined.ratio(OURS, &self.pace.peers());
        let gbps = combined.time_us.iter().map(|(name, us)| (name.clone(), gbps(*us))).collect();
        vec![combined.outcome(PairFields { bytes, gbps }, ratio)]
    }

    fn columns(&self) -> Vec<Column<PairSizes>> {
        let candidates = self.candidates();
        let mut columns = vec![Column::count("bytes", |row: &PairSizes| row.fields.bytes as u64), SizeOutcome::mode()];
        columns.extend(SizeOutcome::times(&candidates));
        columns.push(SizeOutcome::ratio());
        columns.extend(candidates.into_iter().map(|name| {
            Column::number(format!("{name} GB/s"), 2, move |row: &PairSizes| row.fields.gbps.get(name).copied())
        }));
        columns.push(SizeOutcome::wrong());
        columns
    }
}
