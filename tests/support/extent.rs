//! How much a run tries: all there is on GPUs and with `SYMMETRA_TEST_FULL`, less on the CPU without.

use super::device::is_host;

/// Whether a run tries all there is.
pub fn full() -> bool {
    !is_host() || std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// Whether a world runs every case. Worlds of 5, 6, 7 and 16 ranks differ little from their neighbours: without
/// [`full`] they run a quarter of the cases.
pub fn all_cases(world: usize) -> bool {
    full() || ![5, 6, 7, 16].contains(&world)
}

/// The cases of a world for one of its types, which are numbered: all of them, or one in four. Four types with
/// successive numbers take every case between them, and each type takes cases of every kind.
pub fn cases_of<T>(world: usize, number: usize, cases: Vec<T>) -> Vec<T> {
    let (first, step) = if all_cases(world) { (0, 1) } else { ((number + world) % 4, 4) };
    cases.into_iter().skip(first).step_by(step).collect()
}

/// How often a test repeats what it does: as often as the variable says, else `most` times in a full run and
/// `few` times in another.
pub fn repeats(variable: &str, few: usize, most: usize) -> usize {
    let asked = std::env::var(variable).ok().map(|times| times.parse().unwrap());
    asked.unwrap_or(if full() { most } else { few })
}
