//! The extent of a run: every case on GPUs, a sample of the cases on the CPU, which is larger with `SYMMETRA_TEST_FULL`.

use super::device::is_host;

/// Whether a run tries every case.
pub fn full() -> bool {
    !is_host() || std::env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// A world runs one case of this many. Without [`full`], worlds of up to 4 ranks run an eighth of the cases, of up to 8 a
/// sixteenth, and larger worlds a thirty-second part: ranks that share few cores wait for each other. A full run on the CPU
/// runs a quarter, an eighth and a sixteenth of them, and on GPUs every case.
pub fn one_in(world: usize) -> usize {
    let share = match world {
        ..=4 => 8,
        5..=8 => 16,
        _ => 32,
    };
    match (full(), is_host()) {
        (true, false) => 1,
        (true, true) => share / 2,
        (false, _) => share,
    }
}

/// The number of the sample that a run takes of all cases: the value of `SYMMETRA_TEST_SAMPLE`, else 0. Sixteen successive
/// numbers of full runs cover every case.
fn sample() -> usize {
    std::env::var("SYMMETRA_TEST_SAMPLE").map_or(0, |sample| sample.parse().unwrap())
}

/// The cases of a world for one of its types, which are numbered. Types with successive numbers take other cases, and each
/// type takes cases of every kind.
pub fn cases_of<T>(world: usize, number: usize, cases: Vec<T>) -> Vec<T> {
    let step = one_in(world);
    cases.into_iter().skip((number + world + sample()) % step).step_by(step).collect()
}

/// The number of repetitions of a test: the value of the variable if it is set, else `most` in a full run and `few` in
/// another run.
pub fn repeats(variable: &str, few: usize, most: usize) -> usize {
    let asked = std::env::var(variable).ok().map(|times| times.parse().unwrap());
    asked.unwrap_or(if full() { most } else { few })
}
