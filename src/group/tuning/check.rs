//! The allowed contents of a tuning. Names of other layers are listed here; a test compares the lists with the types
//! from which they come.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{TunedRow, Tuning};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;

const KINDS: [&str; 3] = [DeviceKind::Host.name(), DeviceKind::Cuda.name(), DeviceKind::Hip.name()];
/// Algorithms of all-reduces.
const ALGORITHMS: [&str; 7] = [
    "one-shot-ll",
    "one-shot-sentinel",
    "two-shot-ll",
    "two-shot-sentinel",
    "two-shot-zero-copy",
    "ring",
    "recursive-doubling",
];
const CODECS: [&str; 4] = ["fp8", "int8", "int6", "int4"];
/// Algorithms of norms: those that sum and norm in one kernel, and `apart` for separate kernels.
const NORMS: [&str; 3] = ["one-shot-sentinel", "two-shot-sentinel", "apart"];
/// Methods of experts.
const METHODS: [&str; 2] = ["packets", "direct"];
/// Operations of grids.
const OPERATIONS: [&str; 5] =
    ["all-reduce", "all-gather", "reduce-scatter", "all-reduce-all-gather", "reduce-scatter-all-reduce"];
/// Modes of grids.
const MODES: [&str; 5] = ["one-shot", "two-shot", "two-shot-across", "one-collective", "two-collectives"];

/// The most hosts of a grid: the most ranks of a bootstrap.
const MAX_HOSTS: usize = 256;
const ANY: RangeInclusive<usize> = 1..=usize::MAX;

/// Refuses unknown values, tables with equal keys, and tables that do not serve every size once.
pub(super) fn check(tuning: &Tuning, place: &str) -> Result<()> {
    let at = FieldPath { place, field: String::new() };
    // A tuning without choices may have no kind.
    if tuning.chooses() {
        at.of("kind").named(&tuning.kind, &KINDS)?;
    }
    at.each("tables", &tuning.tables, |at, table| {
        at.world_size(table.world_size)?;
        at.rows(&table.rows, &ALGORITHMS)?;
        Ok((table.world_size, table.floating, table.direct, table.exact))
    })?;
    at.each("codecs", &tuning.codecs, |at, codec| {
        at.world_size(codec.world_size)?;
        at.of("codec").named(&codec.codec, &CODECS)?;
        Ok((codec.world_size, codec.codec.clone()))
    })?;
    at.each("norms", &tuning.norms, |at, norm| {
        at.world_size(norm.world_size)?;
        at.of("hidden").size(norm.hidden, ANY)?;
        at.rows(&norm.rows, &NORMS)?;
        Ok(norm.world_size)
    })?;
    at.each("experts", &tuning.experts, |at, experts| {
        at.world_size(experts.world_size)?;
        at.of("experts").size(experts.experts, ANY)?;
        at.of("top_k").size(experts.top_k, 1..=experts.experts)?;
        at.of("hidden").size(experts.hidden, ANY)?;
        at.rows(&experts.rows, &METHODS)?;
        Ok(experts.world_size)
    })?;
    at.each("grids", &tuning.grids, |at, grid| {
        at.of("local_tensor").size(grid.local_tensor, 1..=MAX_WORLD_SIZE)?;
        at.of("local_data").size(grid.local_data, 1..=MAX_WORLD_SIZE / grid.local_tensor)?;
        at.of("across_tensor").size(grid.across_tensor, 1..=MAX_HOSTS)?;
        at.of("across_data").size(grid.across_data, 1..=MAX_HOSTS / grid.across_tensor)?;
        at.of("operation").named(&grid.operation, &OPERATIONS)?;
        if let Some([least, most]) = grid.measured_bytes.filter(|[least, most]| least > most) {
            let limit = "the first must be at most the second";
            return Err(at.of("measured_bytes").refused(format_args!("[{least}, {most}]"), limit));
        }
        at.rows(&grid.rows, &MODES)?;
        let sizes = [grid.local_tensor, grid.local_data, grid.across_tensor, grid.across_data];
        Ok((sizes, grid.operation.clone(), grid.direct))
    })?;
    for (number, timing) in tuning.timings.iter().enumerate() {
        at.of(format!("timings[{number}]")).world_size(timing.world_size)?;
    }
    Ok(())
}

/// A field of a tuning, for messages.
struct FieldPath<'a> {
    /// The tuning.
    place: &'a str,
    field: String,
}

impl FieldPath<'_> {
    fn of(&self, name: impl Display) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        Self { place: self.place, field: format!("{}{dot}{name}", self.field) }
    }

    /// Checks the entries of a list. `check` returns the key of an entry; no two entries have equal keys.
    fn each<E, K: Ord>(&self, list: &str, entries: &[E], check: impl Fn(&Self, &E) -> Result<K>) -> Result<()> {
        let mut keys = BTreeSet::new();
        for (number, entry) in entries.iter().enumerate() {
            let at = self.of(format!("{list}[{number}]"));
            if !keys.insert(check(&at, entry)?) {
                return Err(at.refused("a second choice for the same calls", "each kind of call must have one"));
            }
        }
        Ok(())
    }

    fn refused(&self, value: impl Display, limit: impl Display) -> Error {
        Error::invalid(&format!("{} of {}", self.field, self.place), value, limit)
    }

    fn size(&self, size: usize, limits: RangeInclusive<usize>) -> Result<()> {
        match limits.contains(&size) {
            true => Ok(()),
            false if *limits.end() == usize::MAX => {
                Err(self.refused(size, format!("it must be at least {}", limits.start())))
            }
            false => Err(self.refused(size, format!("it must be {} to {}", limits.start(), limits.end()))),
        }
    }

    fn world_size(&self, size: usize) -> Result<()> {
        self.of("world_size").size(size, 1..=MAX_WORLD_SIZE)
    }

    fn named(&self, name: &str, names: &[&str]) -> Result<()> {
        match names.contains(&name) {
            true => Ok(()),
            // The name may be any text of a file.
            false => {
                let shown = crate::bootstrap::shown(name.as_bytes());
                Err(self.refused(shown, format!("it must be one of {}", names.join(", "))))
            }
        }
    }

    /// Checks that every size has one row, which has one of `names`.
    fn rows(&self, rows: &[TunedRow], names: &[&str]) -> Result<()> {
        let limits: Vec<u64> = rows.iter().map(|row| row.up_to_bytes.unwrap_or(u64::MAX)).collect();
        let rises = limits.windows(2).all(|pair| pair[0] < pair[1]);
        if !rises || limits.last() != Some(&u64::MAX) {
            let limit = "its limits up_to_bytes must rise and end without a limit";
            return Err(self.of("rows").refused(format_args!("{limits:?}"), limit));
        }
        let mut rows = rows.iter().enumerate();
        rows.try_for_each(|(number, row)| self.of(format!("rows[{number}].algorithm")).named(&row.algorithm, names))
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/group/tuning_check.rs"]
mod tests;
