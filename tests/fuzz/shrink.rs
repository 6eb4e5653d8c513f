//! Makes a failing program short and plain: drops steps, calls of graphs, options of norms, calls of experts with their
//! options, and calls of plans and grids, as long as the program fails.

use std::time::{Duration, Instant};

use crate::experts::Rounds;
use crate::grids::Mixes;
use crate::norm::parts;
use crate::products::Products;
use crate::program::{Placed, Program, Step};

/// How long a program is made shorter.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a program runs before it counts as right: its findings may depend on the time.
const TRIES: usize = 4;

/// The shortest program found that fails, and its error.
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
            if !shorter.steps.get_mut(step).is_some_and(|step| drop_call(step, call)) {
                break;
            }
            match failing(shorter.repaired(), &run) {
                Some(found) => best = found,
                None => call += 1,
            }
        }
    }
    for number in 0..norms(&mut best.0).len() {
        for plainer in PLAINER {
            let (mut changed, groups, benches) = (best.0.clone(), best.0.groups(), best.0.benches());
            let call = &mut norms(&mut changed)[number];
            let world = groups[&benches[&call.bench].0].len();
            if plainer(call, world) && start.elapsed() < LIMIT {
                best = failing(changed, &run).unwrap_or(best);
            }
        }
    }
    for step in 0..best.0.steps.len() {
        for number in 0..PLAINER_ROUNDS.len().max(PLAINER_PRODUCTS.len()).max(PLAINER_MIXES.len()) {
            while start.elapsed() < LIMIT {
                let mut changed = best.0.clone();
                let is_plainer = match changed.steps.get_mut(step) {
                    Some(Step::Rounds { rounds, .. }) => {
                        PLAINER_ROUNDS.get(number).is_some_and(|plainer| plainer(rounds))
                    }
                    Some(Step::Products { products, .. }) => {
                        PLAINER_PRODUCTS.get(number).is_some_and(|plainer| plainer(products))
                    }
                    Some(Step::Objects(objects)) if number == 0 && objects.count > 1 => {
                        objects.count -= 1;
                        true
                    }
                    Some(Step::Mixes { mixes, .. }) => PLAINER_MIXES.get(number).is_some_and(|plainer| plainer(mixes)),
                    _ => false,
                };
                if !is_plainer {
                    break;
                }
                match failing(changed, &run) {
                    Some(found) => best = found,
                    None => break,
                }
            }
        }
    }
    best
}

/// Drops one of several calls of a step. `false`: the step has no such call.
fn drop_call(step: &mut Step, mut call: usize) -> bool {
    match step {
        Step::Capture { calls, .. } if calls.len() > 1 && call < calls.len() => drop(calls.remove(call)),
        Step::Interleaved { lanes, .. } if lanes.iter().map(|lane| lane.calls.len()).sum::<usize>() > 1 => {
            for lane in lanes {
                if call < lane.calls.len() {
                    lane.calls.remove(call);
                    return true;
                }
                call -= lane.calls.len();
            }
            return false;
        }
        _ => return false,
    }
    true
}

/// A change of calls on experts to plainer calls. `false`: no plainer calls exist.
type PlainerRounds = fn(&mut Rounds) -> bool;

const PLAINER_ROUNDS: [PlainerRounds; 12] = [
    |rounds| rounds.rounds.len() > 1 && rounds.rounds.pop().is_some(),
    |rounds| {
        let rest = rounds.rounds.len() - 1;
        rest > 0 && rounds.rounds.drain(..1).count() > 0
    },
    |rounds| rounds.place.take().is_some(),
    |rounds| std::mem::take(&mut rounds.replays) > 0,
    |rounds| std::mem::replace(&mut rounds.together, 1) > 1,
    |rounds| std::mem::take(&mut rounds.halves[0]),
    |rounds| std::mem::take(&mut rounds.halves[1]),
    |rounds| std::mem::take(&mut rounds.plans),
    |rounds| std::mem::take(&mut rounds.again),
    |rounds| std::mem::take(&mut rounds.reversed),
    |rounds| std::mem::take(&mut rounds.unweighted),
    |rounds| std::mem::take(&mut rounds.counts),
];

/// A change of calls on plans to plainer calls. `false`: no plainer calls exist.
type PlainerProducts = fn(&mut Products) -> bool;

const PLAINER_PRODUCTS: [PlainerProducts; 5] = [
    |products| products.calls.len() > 1 && products.calls.pop().is_some(),
    |products| {
        let rest = products.calls.len() - 1;
        rest > 0 && products.calls.drain(..1).count() > 0
    },
    |products| std::mem::take(&mut products.replays) > 0,
    |products| std::mem::take(&mut products.spread),
    |products| products.calls.iter_mut().any(|call| std::mem::take(&mut call.keeps)),
];

/// A change of calls on grids to plainer calls. `false`: no plainer calls exist.
type PlainerMixes = fn(&mut Mixes) -> bool;

const PLAINER_MIXES: [PlainerMixes; 6] = [
    |mixes| mixes.calls.len() > 1 && mixes.calls.pop().is_some(),
    |mixes| {
        let rest = mixes.calls.len() - 1;
        rest > 0 && mixes.calls.drain(..1).count() > 0
    },
    |mixes| std::mem::take(&mut mixes.replays) > 0,
    |mixes| std::mem::take(&mut mixes.spread),
    |mixes| mixes.calls.iter_mut().any(|call| std::mem::take(&mut call.at) != [0; 2]),
    |mixes| mixes.calls.iter_mut().any(|call| std::mem::take(&mut call.in_place)),
];

/// The norms of a program, except the norm of a fault, which not all ranks make.
fn norms(program: &mut Program) -> Vec<&mut Placed> {
    let calls = program.steps.iter_mut().flat_map(|step| match step {
        Step::Call { call, .. } => std::slice::from_mut(call),
        Step::Capture { calls, .. } => &mut calls[..],
        _ => &mut [],
    });
    calls.filter(|call| call.norm.is_some()).collect()
}

/// A change of a norm of a group of this many ranks to a plainer norm that is served too. `false`: no plainer norm
/// exists.
type Plainer = fn(&mut Placed, usize) -> bool;

const PLAINER: [Plainer; 8] = [
    // A row for each rank that has a share.
    |call, world| {
        let least = call.norm.as_ref().map_or(0, |norm| norm.hidden * parts(call.call().op, world));
        let fewer = least.min(call.count);
        std::mem::replace(&mut call.count, fewer) > fewer
    },
    |call, _| call.norm.as_mut().is_some_and(|norm| norm.has_output && norm.narrow.take().is_some()),
    |call, _| call.norm.as_mut().is_some_and(|norm| norm.has_output && norm.x.take().is_some()),
    |call, _| call.norm.as_mut().is_some_and(|norm| norm.residual.take().is_some()),
    |call, _| call.norm.as_mut().is_some_and(|norm| std::mem::take(&mut norm.wide)),
    |call, _| call.norm.as_mut().is_some_and(|norm| std::mem::take(&mut norm.gemma)),
    |call, _| call.norm.as_mut().and_then(|norm| norm.layer.as_mut()).is_some_and(|layer| layer.bias.take().is_some()),
    |call, _| call.norm.as_mut().is_some_and(|norm| norm.layer.take().is_some()),
];

fn failing(program: Program, run: &impl Fn(&Program) -> Result<(), String>) -> Option<(Program, String)> {
    let wrong = (0..TRIES).find_map(|_| run(&program).err())?;
    Some((program, wrong))
}
