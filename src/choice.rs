//! The table of a choice by size. Algorithms of all-reduces and of norms, transports, methods of experts and modes of grids are
//! such tables: ascending rows of a largest size, a choice and a reason. A tuning replaces rows, the `explain` functions return
//! rows, and `symmetra info` prints rows.
//!
//! Two choices have no rows. A GEMM plan takes the schedule whose predicted time is shorter, and the prediction depends on all
//! shapes of the plan, not on one size (`fused/cost.rs`). The codec of a group is a setting with one range of sizes
//! (`backend/quantised.rs`).

use std::ops::Deref;

use crate::error::Result;
use crate::group::TunedRow;

/// A range of sizes, and the choice that serves the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Range<K> {
    /// Largest size of the range, in bytes; `u64::MAX`: no limit.
    pub up_to_bytes: u64,
    /// The algorithm, transport, method or mode that serves the range.
    pub choice: K,
    /// The reason of the choice.
    pub reason: &'static str,
}

impl<K> Range<K> {
    /// A range that ends at `up_to_bytes` bytes.
    pub const fn new(up_to_bytes: u64, choice: K, reason: &'static str) -> Self {
        Self { up_to_bytes, choice, reason }
    }
}

/// The choice for every size: ranges in ascending order, of which the last has no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<K>(Vec<Range<K>>);

impl<K: Clone + PartialEq> Ranges<K> {
    /// Collects ranges of ascending limits. A range whose limit is not above the previous limit serves no size and is left
    /// out. Neighbours with equal choices and reasons become one range.
    pub fn new(rows: impl IntoIterator<Item = Range<K>>) -> Self {
        let mut ranges: Vec<Range<K>> = Vec::new();
        for row in rows {
            match ranges.last_mut() {
                _ if row.up_to_bytes == 0 => {}
                Some(last) if row.up_to_bytes <= last.up_to_bytes => {}
                Some(last) if (&row.choice, row.reason) == (&last.choice, last.reason) => *last = row,
                _ => ranges.push(row),
            }
        }
        Self(ranges)
    }

    /// Takes ranges of rising limits as they are.
    pub(crate) const fn kept(rows: Vec<Range<K>>) -> Self {
        Self(rows)
    }

    /// The rows of a tuning. `read` returns the choice with a name, and its reason.
    ///
    /// # Errors
    /// The errors of `read`.
    pub(crate) fn tuned(rows: &[TunedRow], read: impl Fn(&str) -> Result<(K, &'static str)>) -> Result<Self> {
        let range = |row: &TunedRow| {
            let (choice, reason) = read(&row.algorithm)?;
            Ok(Range::new(row.up_to_bytes.unwrap_or(u64::MAX), choice, reason))
        };
        rows.iter().map(range).collect::<Result<_>>().map(Self::kept)
    }

    /// The range of `bytes` bytes; the last range if the table ends below. `None` for a table without ranges.
    pub fn at(&self, bytes: u64) -> Option<&Range<K>> {
        self.able_at(bytes, |_| true)
    }

    /// The first range from that of `bytes` bytes on whose choice is able, else the last range below with an able choice.
    pub(crate) fn able_at(&self, bytes: u64, able: impl Fn(&K) -> bool) -> Option<&Range<K>> {
        let is_able = |range: &&Range<K>| able(&range.choice);
        let above = self.iter().filter(is_able).find(|range| bytes <= range.up_to_bytes);
        above.or_else(|| self.iter().rfind(is_able))
    }

    /// The ranges of messages of `from` to `to` bytes, as rows for [`new`](Self::new).
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Range<K>> {
        let of_sizes = self.iter().filter(move |range| from <= range.up_to_bytes);
        of_sizes.map(move |range| Range { up_to_bytes: range.up_to_bytes.min(to), ..range.clone() })
    }
}

impl<K> Deref for Ranges<K> {
    type Target = [Range<K>];

    fn deref(&self) -> &[Range<K>] {
        &self.0
    }
}

impl<K> IntoIterator for Ranges<K> {
    type Item = Range<K>;
    type IntoIter = std::vec::IntoIter<Range<K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
