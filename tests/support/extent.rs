//! The extent of a run: every case on GPUs and with `SYMMETRA_TEST_FULL`, fewer cases on the CPU without the variable.

use super::device::is_host;

/// Whether a run tries every case.
pub fn full() -> bool {
    !is_host() || std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// A world runs one case of this many. Without [`full`], worlds of up to 4 ranks run an eighth of the cases, of up to 8 a
/// sixteenth, and larger worlds a thirty-second part: ranks that share few cores wait for each other. A full run on the CPU runs a quarter of the cases of larger worlds, whose ranks share few cores.
pub fn one_in(world: usize) -> usize {
    match (full(), world) {
        (true, 9..) if is_host() => 4,
        (true, _) => 1,
        (false, ..=4) => 8,
        (false, ..=8) => 16,
        (false, _) => 32,
    }
}

/// The cases of a world for one of its types, which are numbered. Types with successive numbers take other cases, and each
/// type takes cases of every kind.
pub fn cases_of<T>(world: usize, number: usize, cases: Vec<T>) -> Vec<T> {
    let step = one_in(world);
    cases.into_iter().skip((number + world) % step).step_by(step).collect()
}

/// The number of repetitions of a test: the value of the variable if it is set, else `most` in a full run and `few` in
/// another run.
pub fn repeats(variable: &str, few: usize, most: usize) -> usize {
    let asked = std::env::var(variable).ok().map(|times| times.parse().unwrap());
    asked.unwrap_or(if full() { most } else { few })
}
