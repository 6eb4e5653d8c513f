//! The rows of a comparison of norms: one for each number of tokens and mode.

use std::collections::BTreeMap;

use serde::Serialize;
use symmetra::Dtype;
use symmetra::half::{bf16, f16};

use super::rank::NormNotes;
use super::{NormRace, UNQUANTISED};
use crate::pace::Pace;
use crate::race::{Combined, Race, RaceRank, SizeOutcome, of_tokens};
use harness::columns::Column;
use harness::failure::CommandFailure;
use harness::form::Form;
use harness::norms::NormKind;
use harness::statistics::ratio;

/// One number of tokens.
#[derive(Debug, Serialize)]
pub(crate) struct NormFields {
    tokens: usize,
    /// Bytes of a rank's input.
    bytes: u64,
    /// The algorithm of the sum, by candidate of this library.
    algorithm: BTreeMap<String, String>,
    /// The time of our first candidate, unquantised, minus that of the operation without its norm.
    norm_us: Option<f64>,
    /// The time of our first candidate minus its time unquantised.
    quantise_us: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NormSettings {
    op: Form,
    norm: NormKind,
    dtype: &'static str,
    hidden: usize,
    quantise: Option<String>,
}

type NormSizes = SizeOutcome<NormFields>;

impl Race for NormRace {
    const NAME: &'static str = "norm race";
    type Notes = NormNotes;
    type Settings = NormSettings;
    type Row = NormSizes;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> NormSettings {
        let quantise = self.quantise.map(|format| format.to_string());
        NormSettings { op: self.op, norm: self.norm, dtype: self.dtype.name(), hidden: self.hidden, quantise }
    }

    fn about(&self) -> String {
        let quantised = self.quantise.map_or_else(String::new, |format| format!(", quantised as {format}"));
        let norm = if self.norm == NormKind::Layer { ", LayerNorm" } else { "" };
        format!("{}, rows of {} {}{norm}{quantised}", self.op.name(), self.hidden, self.dtype)
    }

    /// Input, sum, output and quantised rows of the most tokens, and the buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        7 * (64 << 10) + 3 * self.largest_bytes() + self.largest_codes_bytes()
    }

    fn candidates(&self) -> Vec<&'static str> {
        self.own().into_iter().chain(self.pace.peers()).collect()
    }

    fn sizes(&self) -> Vec<String> {
        of_tokens(&self.tokens)
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, NormNotes>) -> Result<(), CommandFailure> {
        match self.dtype {
            Dtype::F16 => self.measure_as::<f16>(bench),
            Dtype::BF16 => self.measure_as::<bf16>(bench),
            _ => self.measure_as::<f32>(bench),
        }
    }

    fn rows(&self, size: usize, combined: Combined<NormNotes>) -> Vec<NormSizes> {
        let (candidates, tokens) = (self.candidates(), self.tokens[size]);
        let time = |name: &str| combined.time_us.get(name).copied();
        let (ours, unquantised, sum) = (time(candidates[0]), time(UNQUANTISED), time(self.op.name()));
        let less = |more: Option<f64>, less: Option<f64>| Some(more? - less?);
        let ratio = ours.and_then(|ours| ratio(ours, &combined.times(&candidates[self.own().len()..])));
        let fields = NormFields {
            tokens,
            bytes: self.bytes(tokens),
            algorithm: combined.notes.clone(),
            norm_us: less(unquantised.or(ours), sum),
            quantise_us: less(ours, unquantised),
        };
        vec![combined.outcome(fields, ratio)]
    }

    fn columns(&self) -> Vec<Column<NormSizes>> {
        let (candidates, first) = (self.candidates(), self.own()[0]);
        let mut columns = vec![
            Column::count("tokens", |row: &NormSizes| row.fields.tokens as u64),
            Column::count("bytes", |row: &NormSizes| row.fields.bytes),
            SizeOutcome::mode(),
            Column::text("algorithm", move |row: &NormSizes| {
                row.fields.algorithm.get(first).cloned().unwrap_or_default()
            }),
        ];
        columns.extend(SizeOutcome::times(&candidates));
        columns.push(Column::number("norm us", 2, |row: &NormSizes| row.fields.norm_us));
        if self.quantise.is_some() {
            columns.push(Column::number("quantise us", 2, |row: &NormSizes| row.fields.quantise_us));
        }
        columns.extend([SizeOutcome::ratio(), SizeOutcome::wrong()]);
        columns
    }
}
