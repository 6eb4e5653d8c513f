//! The rows of a comparison of messages: one for each size and mode.

use std::collections::BTreeMap;

use serde::Serialize;
use symmetra::Config;

use super::{OURS, PairsRace};
use crate::pace::Pace;
use crate::race::{Bench, Combined, Outcome, Race};
use harness::columns::Column;
use harness::failure::Failure;
use harness::statistics::busbw_gbps;

/// One size.
#[derive(Debug, Serialize)]
pub(crate) struct Fields {
    /// Bytes of a message.
    bytes: usize,
    /// Bytes that a rank sends in a time, in GB/s.
    gbps: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    collective: &'static str,
    messages: usize,
    way: &'static str,
    pair_bytes: u64,
}

type SizeRow = Outcome<Fields>;

impl Race for PairsRace {
    const NAME: &'static str = "pairs";
    type Notes = ();
    type Settings = Settings;
    type Row = SizeRow;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> Settings {
        let Self { messages, way, pair_bytes, .. } = *self;
        Settings { collective: "pairs", messages, way: way.name(), pair_bytes }
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

    fn measure(&self, bench: &mut Bench<'_, '_, ()>) -> Result<(), Failure> {
        self.measure_sizes(bench)
    }

    fn rows(&self, size: usize, combined: Combined<()>) -> Vec<SizeRow> {
        let bytes = self.sizes[size];
        let gbps = |us: f64| busbw_gbps((self.messages * bytes) as u64, 1.0, us);
        let ratio = combined.ratio(OURS, &self.pace.peers());
        let gbps = combined.time_us.iter().map(|(name, us)| (name.clone(), gbps(*us))).collect();
        vec![combined.outcome(Fields { bytes, gbps }, ratio)]
    }

    fn columns(&self) -> Vec<Column<SizeRow>> {
        let candidates = self.candidates();
        let mut columns = vec![Column::count("bytes", |row: &SizeRow| row.fields.bytes as u64), Outcome::mode()];
        columns.extend(Outcome::times(&candidates));
        columns.push(Outcome::ratio());
        columns.extend(candidates.into_iter().map(|name| {
            Column::number(format!("{name} GB/s"), 2, move |row: &SizeRow| row.fields.gbps.get(name).copied())
        }));
        columns.push(Outcome::wrong());
        columns
    }
}
