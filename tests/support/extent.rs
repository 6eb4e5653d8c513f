//! How much a run tries: all there is on GPUs and with `SYMMETRA_TEST_FULL`, less on the CPU without.

use super::device::is_host;

/// Whether a run tries all there is.
pub fn full() -> bool {
    !is_host() || std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// A world runs one case in so many. Without [`full`], worlds of up to 8 ranks run an eighth of the cases, and larger ones
/// a sixteenth.
pub fn one_in(world: usize) -> usize {
    match (full(), world) {
        (true, _) => 1,
        (false, ..=8) => 8,
        (false, _) => 16,
    }
}

/// The cases of a world for one of its types, which are numbered. Types with successive numbers take other cases, and each
/// type takes cases of every kind.
pub fn cases_of<T>(world: usize, number: usize, cases: Vec<T>) -> Vec<T> {
    let step = one_in(world);
    cases.into_iter().skip((number + world) % step).step_by(step).collect()
}

/// How often a test repeats what it does: as often as the variable says, else `most` times in a full run and
/// `few` times in another.
pub fn repeats(variable: &str, few: usize, most: usize) -> usize {
    let asked = std::env::var(variable).ok().map(|times| times.parse().unwrap());
    asked.unwrap_or(if full() { most } else { few })
}
