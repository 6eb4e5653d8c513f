//! From times to choices: which algorithm serves which sizes. A pure function of the times and the built-in table.

use std::collections::BTreeMap;

use symmetra::{Range, Ranges};

/// The times of one size.
#[derive(Clone, Debug)]
pub(super) struct CrossoverSize {
    pub(super) bytes: u64,
    /// Times by the name of the algorithm.
    pub(super) times_ns: BTreeMap<String, u64>,
}

/// A choice changes where the change saves more than this share of the time.
pub(super) const MARGIN: f64 = 0.02;

/// The algorithm for every size, where `sizes` rise: the built-in choice unless another algorithm is faster by more
/// than [`MARGIN`], else the choice of the size before under the same condition, else the fastest.
pub(super) fn choose<'s>(sizes: &'s [CrossoverSize], built_in: &Ranges<String>) -> Vec<&'s str> {
    let mut chosen: Vec<&str> = Vec::new();
    for size in sizes {
        let Some((fastest, least)) = size.times_ns.iter().min_by_key(|(_, time)| **time) else { return Vec::new() };
        let usual = built_in.at(size.bytes).map(|range| range.choice.as_str());
        let near = |name: &str| {
            let (name, time) = size.times_ns.get_key_value(name)?;
            (*time as f64 <= *least as f64 * (1.0 + MARGIN)).then_some(name.as_str())
        };
        let kept = [usual, chosen.last().copied()].into_iter().flatten().find_map(near);
        chosen.push(kept.unwrap_or(fastest));
    }
    chosen
}

/// The times of one size: of an all-reduce of unchanged values, and of an all-reduce by a codec.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) bytes: u64,
    pub(super) plain_ns: u64,
    pub(super) coded_ns: u64,
}

/// The smallest size from which a codec saves more than [`MARGIN`] of the time at every size, where `sizes` rise.
pub(super) fn faster_from(sizes: &[Pair]) -> Option<u64> {
    let faster = |pair: &&Pair| pair.coded_ns as f64 * (1.0 + MARGIN) < pair.plain_ns as f64;
    sizes.iter().rev().take_while(faster).last().map(|pair| pair.bytes)
}

/// The ranges for the choices of all sizes.
///
/// The built-in ranges hold for messages smaller or larger than any measured. Between two sizes the
/// built-in ranges hold where both have the built-in choice; else an algorithm ends at the geometric middle.
pub(super) fn ranges(sizes: &[CrossoverSize], chosen: &[&str], built_in: &Ranges<String>) -> Ranges<String> {
    let (Some(smallest), Some(largest), Some(of_largest)) = (sizes.first(), sizes.last(), chosen.last()) else {
        return Ranges::new([]);
    };
    let range = |up_to_bytes, name: &str| Range::new(up_to_bytes, name.to_owned(), "");
    let usual = |number: usize| built_in.at(sizes[number].bytes).is_some_and(|range| range.choice == chosen[number]);
    let mut rows: Vec<Range<String>> = built_in.between(0, smallest.bytes - 1).collect();
    for (number, pair) in sizes.windows(2).enumerate() {
        let [from, to] = [pair[0].bytes, pair[1].bytes];
        if usual(number) && usual(number + 1) {
            rows.extend(built_in.between(from, to - 1));
        } else if chosen[number] != chosen[number + 1] {
            rows.push(range(((from as f64 * to as f64).sqrt() as u64).clamp(from, to - 1), chosen[number]));
        }
    }
    rows.push(range(largest.bytes, of_largest));
    rows.extend(built_in.between(largest.bytes + 1, u64::MAX));
    if let Some(last) = rows.last_mut() {
        last.up_to_bytes = u64::MAX;
    }
    Ranges::new(rows)
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/crossovers.rs"]
mod tests;
