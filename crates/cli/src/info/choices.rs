//! The choices by size, for every feature: as JSON, and as rows of a table.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use symmetra::Range;

use harness::bytes;
use harness::table::Table;

/// A range of sizes, and the name of the choice that serves the range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangeInfo {
    /// The smallest size, for features whose tables begin ranges.
    pub(super) from_bytes: Option<u64>,
    /// `None`: no limit.
    pub(super) up_to_bytes: Option<u64>,
    /// The key of the choice in JSON: `algorithm`, `transport`, `method` or `mode`.
    key: &'static str,
    pub(super) choice: &'static str,
    pub(super) reason: &'static str,
}

impl RangeInfo {
    pub(super) fn all<K: Copy>(key: &'static str, ranges: &[Range<K>], name: impl Fn(K) -> &'static str) -> Vec<Self> {
        let info = |range: &Range<K>| Self {
            from_bytes: None,
            up_to_bytes: (range.up_to_bytes < u64::MAX).then_some(range.up_to_bytes),
            key,
            choice: name(range.choice),
            reason: range.reason,
        };
        ranges.iter().map(info).collect()
    }

    /// Adds the smallest size of each range.
    pub(super) fn begun(mut ranges: Vec<Self>) -> Vec<Self> {
        let mut from_bytes = 0;
        for range in &mut ranges {
            range.from_bytes = Some(from_bytes);
            from_bytes = range.up_to_bytes.map_or(u64::MAX, |up_to_bytes| up_to_bytes + 1);
        }
        ranges
    }

    fn bytes(&self) -> String {
        match (self.up_to_bytes, self.from_bytes) {
            (Some(up_to), _) => format!("up to {}", bytes::format(up_to)),
            (None, Some(from)) => format!("above {}", bytes::format(from.saturating_sub(1))),
            (None, None) => "any more".to_owned(),
        }
    }
}

impl Serialize for RangeInfo {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(None)?;
        if let Some(from_bytes) = self.from_bytes {
            map.serialize_entry("from_bytes", &from_bytes)?;
        }
        map.serialize_entry("up_to_bytes", &self.up_to_bytes)?;
        map.serialize_entry(self.key, self.choice)?;
        map.serialize_entry("reason", self.reason)?;
        map.end()
    }
}

/// The choices for some calls on operands in some memory.
#[derive(Debug, Serialize)]
pub(super) struct Choices<C> {
    #[serde(flatten)]
    pub(super) calls: C,
    pub(super) memory: &'static str,
    pub(super) ranges: Vec<RangeInfo>,
}

/// The types of calls with equal choices.
#[derive(Debug, Serialize)]
pub(super) struct Types {
    pub(super) dtypes: Vec<&'static str>,
}

impl Types {
    pub(super) fn name(&self) -> String {
        self.dtypes.join(" ")
    }
}

/// A table of the calls, the memory, the bytes, the choice and the reason of each range.
pub(super) fn explained<'r>(
    headings: [&str; 5],
    rows: impl IntoIterator<Item = (String, &'static str, &'r RangeInfo)>,
) -> Table {
    let mut table = Table::new(headings, []);
    for (calls, memory, range) in rows {
        table.add_row([calls.as_str(), memory, &range.bytes(), range.choice, range.reason]);
    }
    table
}

/// The rows of choices for [`explained`]. `name` names the calls.
pub(super) fn rows<C>(
    all: &[Choices<C>],
    name: impl Fn(&C) -> String,
) -> impl Iterator<Item = (String, &'static str, &RangeInfo)> {
    all.iter().flat_map(move |Choices { calls, memory, ranges }| {
        let name = name(calls);
        ranges.iter().map(move |range| (name.clone(), *memory, range))
    })
}
