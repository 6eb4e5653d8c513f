//! How ranks ended: the rank that failed first, and one message for all that failed.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use harness::failure::CommandFailure;
use harness::signals;

/// The end of a rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RankEnd {
    Status(i32),
    /// The signal, and whether this command had sent it.
    Killed(i32, bool),
    /// Why the status is unknown.
    Unknown(String),
}

/// A rank that failed.
#[derive(Debug)]
struct FailedRank {
    rank: usize,
    end: RankEnd,
    /// Whether the rank had failed because another rank failed.
    follows: bool,
    /// Whether the rank ended after this command had asked the ranks to end.
    asked: bool,
}

/// The ranks that failed, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct LaunchVerdict {
    failed: Vec<FailedRank>,
    /// The signals that this command sent to the ranks.
    sent: Vec<i32>,
}

impl LaunchVerdict {
    /// Records a signal that the ranks get.
    pub(super) fn send(&mut self, signal: i32) {
        self.sent.push(signal);
    }

    /// Records a rank's end. `follows`: the rank had failed because another rank failed. Returns a text for the user
    /// if the rank failed.
    pub(super) fn end(&mut self, rank: usize, status: std::io::Result<ExitStatus>, follows: bool) -> Option<String> {
        let end = match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(0), _) => return None,
                (Some(code), _) => RankEnd::Status(code),
                (None, Some(signal)) => RankEnd::Killed(signal, self.sent.contains(&signal)),
                (None, None) => RankEnd::Unknown("neither a status nor a signal".to_owned()),
            },
            Err(error) => RankEnd::Unknown(error.to_string()),
        };
        let words = sentence(&[rank], &end);
        self.failed.push(FailedRank { rank, end, follows, asked: !self.sent.is_empty() });
        Some(words)
    }

    /// Whether any rank failed.
    pub(super) fn any(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether a rank failed by itself.
    pub(super) fn has_cause(&self) -> bool {
        self.failed.iter().any(|failed| !failed.follows)
    }

    /// The failure of the rank that failed first, with the ends of all other ranks that failed. Ranks that this command
    /// had asked to end come after the others, and ranks that failed because of another rank come after the rank that
    /// caused it.
    pub(super) fn failure(mut self) -> Option<CommandFailure> {
        let first = (0..self.failed.len()).min_by_key(|at| (self.failed[*at].asked, self.failed[*at].follows, *at))?;
        let first = self.failed.remove(first);
        let code = match first.end {
            RankEnd::Status(code) => code,
            RankEnd::Killed(signal, _) => 128 + signal,
            RankEnd::Unknown(_) => 1,
        };
        let (alike, others): (Vec<_>, Vec<_>) =
            self.failed.into_iter().partition(|failed| first.asked && failed.end == first.end);
        let mut ranks = vec![first.rank];
        ranks.extend(alike.iter().map(|failed| failed.rank));
        ranks.sort_unstable();
        let mut message = sentence(&ranks, &first.end);
        let mut ends: Vec<(RankEnd, Vec<usize>)> = Vec::new();
        for FailedRank { rank, end, .. } in others {
            match ends.iter_mut().find(|(other, _)| *other == end) {
                Some((_, ranks)) => ranks.push(rank),
                None => ends.push((end, vec![rank])),
            }
        }
        for (number, (end, ranks)) in ends.iter_mut().enumerate() {
            ranks.sort_unstable();
            message += if number == 0 { "; then " } else { ", " };
            message += &sentence(ranks, end);
        }
        Some(CommandFailure::Program { message, code: u8::try_from(code).unwrap_or(1) })
    }
}

/// `ranks 1 and 2 were killed by SIGTERM of this command`.
fn sentence(ranks: &[usize], end: &RankEnd) -> String {
    let (name, verb) = if ranks.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
    let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
    let names = match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    };
    match end {
        RankEnd::Status(code) => format!("{name} {names} ended with status {code}"),
        RankEnd::Killed(signal, ours) => {
            let by = if *ours { " of this command" } else { "" };
            format!("{name} {names} {verb} killed by {}{by}", signals::name(*signal))
        }
        RankEnd::Unknown(why) => format!("{name} {names} ended in an unknown way ({why})"),
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/verdict.rs"]
mod tests;
