//! Finds the rank for which a group waits, and states the state of the group in a sentence.

use std::time::Duration;

use serde::Serialize;

use super::processes::ProcessState;
use super::rank::{ObservedRank, ObservedWait, RankState, WaitPlace};

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The state in a sentence, with rank numbers of the group.
    pub words: String,
    /// The ranks for which the others wait, that are stopped or dead, or that found the failure. Empty if there are none.
    pub culprits: Vec<usize>,
    /// The number of ranks that wait.
    pub waiting: usize,
    /// How long the longest wait has lasted, in seconds; 0 without a wait.
    pub seconds: f64,
    /// Whether the group cannot go on: it has failed, or a process is stopped or dead.
    pub broken: bool,
}

impl Verdict {
    /// Whether the group goes on and no wait has lasted as long as `patience`.
    pub fn is_healthy(&self, patience: Duration) -> bool {
        !self.broken && self.seconds < patience.as_secs_f64()
    }

    fn broken(words: String, culprits: Vec<usize>) -> Self {
        Self { words, culprits, waiting: 0, seconds: 0.0, broken: true }
    }
}

/// The state of a group of these ranks, in rank order. Fills in the ranks for which exchanges of the host wait. Ranks that
/// are not here may wait too if the group meets on several hosts.
pub(super) fn judge(ranks: &mut [ObservedRank], world_size: usize, several_hosts: bool) -> Verdict {
    let absent: Vec<usize> = (0..world_size).filter(|rank| ranks.iter().all(|other| other.rank != *rank)).collect();
    let blamed = if several_hosts { &[] } else { absent.as_slice() };
    let targets: Vec<Vec<usize>> = ranks.iter().map(|rank| targets(rank, ranks, blamed)).collect();
    for (rank, targets) in ranks.iter_mut().zip(targets) {
        if let Some(wait) = &mut rank.wait {
            wait.ranks = targets;
        }
    }
    let group = JudgedGroup { ranks };
    let mut verdict = group.failed().or_else(|| group.waits()).unwrap_or_else(|| group.without_wait());
    verdict.waiting = group.waiting().count();
    verdict.seconds = group.waiting().map(|(_, wait)| wait.seconds).fold(0.0, f64::max);
    if several_hosts && !absent.is_empty() {
        let (named, verb) = (ranks_in_words(&absent), if absent.len() == 1 { "is" } else { "are" });
        verdict.words += &format!("; {named} {verb} not on this host, or not started");
    }
    verdict
}

/// The longest wait in which the devices of a failed group gave up, in a sentence, and the ranks for which they waited. `None`
/// if no device gave up a wait.
pub(super) fn last_wait(ranks: &[ObservedRank]) -> Option<(String, Vec<usize>)> {
    let gave_up = |rank: &ObservedRank| ObservedRank { wait: rank.gave_up.clone(), ..rank.clone() };
    let ranks: Vec<ObservedRank> = ranks.iter().map(gave_up).collect();
    let Verdict { words, culprits, .. } = JudgedGroup { ranks: &ranks }.waits()?;
    Some((words, culprits))
}

/// The ranks for which a rank waits.
fn targets(rank: &ObservedRank, ranks: &[ObservedRank], absent: &[usize]) -> Vec<usize> {
    let Some(wait) = &rank.wait else { return Vec::new() };
    let numbers = |of: &dyn Fn(&&ObservedRank) -> bool| -> Vec<usize> {
        ranks.iter().filter(|other| other.rank != rank.rank).filter(of).map(|other| other.rank).collect()
    };
    let halted = || numbers(&|other| matches!(other.state, RankState::Stopped | RankState::Dead));
    let first = match wait.place {
        WaitPlace::Kernel => return wait.ranks.clone(),
        WaitPlace::Open => absent.to_vec(),
        WaitPlace::Host => numbers(&|other| other.host_calls < rank.host_calls && other.state != RankState::Left),
    };
    match first.is_empty() {
        // All ranks have begun the exchange, and one of them does not end it.
        true => halted(),
        false => first,
    }
}

/// A group whose waits have their ranks.
struct JudgedGroup<'a> {
    ranks: &'a [ObservedRank],
}

impl JudgedGroup<'_> {
    fn rank(&self, number: usize) -> Option<&ObservedRank> {
        self.ranks.iter().find(|rank| rank.rank == number)
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, &ObservedWait)> {
        self.ranks.iter().filter_map(|rank| Some((rank.rank, rank.wait.as_ref()?)))
    }

    /// The verdict about a group that has failed.
    fn failed(&self) -> Option<Verdict> {
        let rank = self.ranks.iter().find(|rank| rank.state == RankState::Failed)?;
        let (waited, mut culprits) = last_wait(self.ranks).unwrap_or_default();
        let mut dead = self.in_state(RankState::Dead);
        dead.retain(|rank| !culprits.contains(rank));
        let gone = if dead.is_empty() { String::new() } else { self.named(&dead) };
        let detail = rank.detail.clone().unwrap_or_else(|| "without a reason".to_owned());
        let parts: Vec<String> = [detail, waited, gone].into_iter().filter(|part| !part.is_empty()).collect();
        culprits.extend(dead);
        culprits.sort_unstable();
        Some(Verdict::broken(format!("the group has failed: {}", parts.join("; ")), culprits))
    }

    /// The verdict about a group of which a rank waits, by the longest wait.
    fn waits(&self) -> Option<Verdict> {
        let (by, wait) = self.waiting().max_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds))?;
        let culprits = self.culprits(by, wait);
        let broken = culprits.iter().filter_map(|rank| self.rank(*rank)).any(is_halted);
        let words = self.words(by, wait, &culprits);
        Some(Verdict { words, culprits, waiting: 0, seconds: 0.0, broken })
    }

    /// The ranks for which the group waits, given that rank `by` waits: ranks that have not made the call, else the rank at
    /// the end of the chain of ranks that wait for each other.
    fn culprits(&self, by: usize, wait: &ObservedWait) -> Vec<usize> {
        if wait.place != WaitPlace::Kernel {
            return wait.ranks.clone();
        }
        if let Some(call) = wait.call {
            let behind: Vec<usize> =
                self.ranks.iter().filter(|rank| rank.enqueued <= call).map(|rank| rank.rank).collect();
            if !behind.is_empty() {
                return behind;
            }
        }
        let mut chain = vec![by];
        let mut next = wait.ranks.first().copied();
        while let Some(rank) = next.filter(|rank| !chain.contains(rank)) {
            chain.push(rank);
            next = self.rank(rank).and_then(|rank| rank.wait.as_ref()?.ranks.first().copied());
        }
        chain.last().copied().filter(|rank| *rank != by).into_iter().collect()
    }

    fn words(&self, by: usize, wait: &ObservedWait, culprits: &[usize]) -> String {
        let waiting = self.waiting().count();
        let lasted = in_words(wait.seconds);
        let (who, have) = match waiting {
            1 => (format!("rank {by}"), "has"),
            many => (format!("{many} ranks"), "have"),
        };
        let what = match (wait.place, wait.call) {
            (WaitPlace::Open, _) => "open".to_owned(),
            (WaitPlace::Host, _) => format!("the exchange `{}`", wait.operation),
            (WaitPlace::Kernel, Some(call)) => match self.rank(by).and_then(|rank| rank.call.as_ref()) {
                Some(made) if made.number == call => format!("{} {call}", made.operation),
                _ => format!("{} {call}", wait.operation),
            },
            (WaitPlace::Kernel, None) => wait.operation.clone(),
        };
        let named = self.named(culprits);
        let verb = if culprits.len() == 1 { "has" } else { "have" };
        let behind = |rank: &usize| match wait.place {
            WaitPlace::Open => self.rank(*rank).is_none(),
            WaitPlace::Host => self.rank(*rank).is_some_and(|rank| rank.host_calls < self.host_calls(by)),
            WaitPlace::Kernel => {
                wait.call.is_some_and(|call| self.rank(*rank).is_some_and(|rank| rank.enqueued <= call))
            }
        };
        if culprits.is_empty() {
            format!("{who} {have} waited {lasted} in {what}")
        } else if !culprits.iter().all(behind) {
            format!("{who} {have} waited {lasted} in {what} for {named}")
        } else if wait.place == WaitPlace::Open {
            format!("{named} {verb} not begun to open the group, for which {who} {have} waited {lasted}")
        } else {
            format!("{named} {verb} not made {what}, for which {who} {have} waited {lasted}")
        }
    }

    fn host_calls(&self, rank: usize) -> u64 {
        self.rank(rank).map_or(0, |rank| rank.host_calls)
    }

    /// The verdict about a group without waits.
    fn without_wait(&self) -> Verdict {
        for (state, what) in [(RankState::Dead, "ended without leaving the group"), (RankState::Stopped, "stopped")] {
            let halted = self.in_state(state);
            if !halted.is_empty() {
                let verb = if halted.len() == 1 { "is" } else { "are" };
                let words = match state {
                    RankState::Dead => format!("{}: {what}", self.named(&halted)),
                    _ => format!("{} {verb} {what}; no rank waits", ranks_in_words(&halted)),
                };
                return Verdict::broken(words, halted);
            }
        }
        let busy = self.in_state(RankState::InCall).len();
        let words = match (self.ranks.len() - self.in_state(RankState::Left).len(), busy) {
            (0, _) => "all ranks have left".to_owned(),
            (1, 0) => "1 rank is idle".to_owned(),
            (all, 0) => format!("{all} ranks are idle"),
            (all, busy) => format!("{all} ranks, {busy} with calls that may be in progress; no rank waits"),
        };
        Verdict { words, culprits: Vec::new(), waiting: 0, seconds: 0.0, broken: false }
    }

    fn in_state(&self, state: RankState) -> Vec<usize> {
        self.ranks.iter().filter(|rank| rank.state == state).map(|rank| rank.rank).collect()
    }

    /// The ranks in words, with the processes that are stopped, have ended or are not visible.
    fn named(&self, ranks: &[usize]) -> String {
        let processes: Vec<String> =
            ranks.iter().filter_map(|rank| self.rank(*rank)).filter_map(process_in_words).collect();
        let words = ranks_in_words(ranks);
        if processes.is_empty() { words } else { format!("{words} ({})", processes.join(", ")) }
    }
}

fn is_halted(rank: &ObservedRank) -> bool {
    matches!(rank.state, RankState::Stopped | RankState::Dead)
}

/// The process of a rank in words, if the process is stopped, has ended or is not visible.
fn process_in_words(rank: &ObservedRank) -> Option<String> {
    let is = match (rank.state, rank.process_state) {
        (RankState::Left, _) => return None,
        (RankState::Stopped, _) => "is stopped",
        (RankState::Dead, _) => "has ended",
        (_, ProcessState::Unseen) => "is in a PID namespace that is not visible",
        _ => return None,
    };
    Some(format!("process {} {is}", rank.process))
}

fn ranks_in_words(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match numbers.as_slice() {
        [] => "no rank".to_owned(),
        [rank] => format!("rank {rank}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

/// A time in words.
fn in_words(seconds: f64) -> String {
    match seconds {
        short if short < 1.0 => format!("{:.0} ms", short * 1e3),
        short if short < 10.0 => format!("{short:.1} s"),
        long if long < 600.0 => format!("{long:.0} s"),
        long => format!("{:.0} min", long / 60.0),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/observe/judge.rs"]
mod tests;
