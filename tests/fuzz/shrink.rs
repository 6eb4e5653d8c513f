//! Makes a failing program short: drops steps, and calls of graphs, as long as it fails.

use std::time::{Duration, Instant};

use crate::program::{Program, Step};

/// How long a program is made shorter.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a program runs before it counts as right: what it finds may depend on the time.
const TRIES: usize = 4;

/// The shortest program found that fails, and what was wrong.
pub(crate) fn shrunk(
    program: &Program,
    wrong: String,
    run: impl Fn(&Program) -> Result<(), String>,
) -> (Program, String) {
    let start = Instant::now();
    let mut best = (program.clone(), wrong);
    let mut size = best.0.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.0.steps.len() && start.elapsed() < LIMIT {
            let end = (at + size).min(best.0.steps.len());
            let mut shorter = best.0.clone();
            shorter.steps.drain(at..end);
            match failing(shorter.repaired(), &run) {
                Some(found) => best = found,
                None => at = end,
            }
        }
        size /= 2;
    }
    for step in 0..best.0.steps.len() {
        let mut call = 0;
        while start.elapsed() < LIMIT {
            let mut shorter = best.0.clone();
            match shorter.steps.get_mut(step) {
                Some(Step::Capture { calls, .. }) if calls.len() > 1 && call < calls.len() => drop(calls.remove(call)),
                _ => break,
            }
            match failing(shorter.repaired(), &run) {
                Some(found) => best = found,
                None => call += 1,
            }
        }
    }
    best
}

fn failing(program: Program, run: &impl Fn(&Program) -> Result<(), String>) -> Option<(Program, String)> {
    let wrong = (0..TRIES).find_map(|_| run(&program).err())?;
    Some((program, wrong))
}
