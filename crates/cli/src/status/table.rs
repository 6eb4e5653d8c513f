//! A snapshot as text: for each group a heading, a table with a row a rank, and the verdict.

use symmetra::observe::{ObservedCall, ObservedGroup, ObservedRank, Snapshot, WaitPlace};

use super::{Args, timings};
use harness::failure::CommandFailure;
use harness::output;
use harness::table::Table;

/// Clears a terminal and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints a snapshot, after the previous one or, with `--watch` on a terminal, in its place.
pub(super) fn print(snapshot: &Snapshot, args: &Args) -> Result<(), CommandFailure> {
    let clear = if args.watch && rustix::termios::isatty(rustix::stdio::stdout()) { CLEAR } else { "" };
    let whole = |group: &ObservedGroup| match args.timings {
        true => format!("{}\n\n{}", text(group), timings::text(group)),
        false => text(group),
    };
    let mut parts: Vec<String> = snapshot.groups.iter().map(whole).collect();
    let unreadable = snapshot.unreadable.iter().map(|page| {
        let processes: Vec<String> = page.processes.iter().map(ToString::to_string).collect();
        format!("a page of process {}: {}", processes.join(", "), page.reason)
    });
    parts.extend((!snapshot.unreadable.is_empty()).then(|| unreadable.collect::<Vec<_>>().join("\n")));
    match parts.is_empty() && clear.is_empty() {
        true => Ok(()),
        false => output::line(format_args!("{clear}{}", parts.join("\n\n"))),
    }
}

/// A group as text.
pub(super) fn text(group: &ObservedGroup) -> String {
    let headings = ["rank", "world", "process", "state", "enqueued", "ended", "call", "waits for"];
    let mut table = Table::new(headings, [0, 1, 2, 4, 5]);
    group.ranks.iter().for_each(|rank| table.add_row(row(rank)));
    let name = group.name.as_deref().map_or_else(|| "group".to_owned(), |name| format!("group `{name}`"));
    let mut devices: Vec<String> = group
        .ranks
        .iter()
        .map(|rank| format!("{} on {}", rank.device.unwrap_or("an unknown device"), or_dash(&rank.host)))
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let ranks = if group.world_size == 1 { "1 rank".to_owned() } else { format!("{} ranks", group.world_size) };
    format!("{name} of {ranks}, {}\n{table}\n{}", devices.join(", "), group.verdict.words)
}

fn row(rank: &ObservedRank) -> [String; 8] {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let enqueued = match rank.pairs {
        0 => rank.enqueued.to_string(),
        pairs => format!("{} + {pairs} of pairs", rank.enqueued),
    };
    [
        rank.rank.to_string(),
        number(rank.world_rank.map(|rank| rank as u64)),
        rank.process.to_string(),
        rank.state.name().replace('_', " "),
        enqueued,
        number(rank.ended),
        call(rank),
        waits(rank),
    ]
}

/// The call in which the rank is, or its last call.
fn call(rank: &ObservedRank) -> String {
    let of_wait = rank.wait.as_ref().filter(|wait| wait.place == WaitPlace::Kernel);
    match (&rank.call, of_wait) {
        (Some(call), None) => in_words(call),
        (Some(call), Some(wait)) if wait.call == Some(call.number) => in_words(call),
        (_, Some(wait)) => match wait.call {
            Some(number) => format!("{} {number}", wait.operation),
            None => wait.operation.clone(),
        },
        (None, None) => "-".to_owned(),
    }
}

fn in_words(call: &ObservedCall) -> String {
    let algorithm = call.algorithm.map_or_else(String::new, |name| format!(" by {name}"));
    format!("{} {}, {} bytes of {}{algorithm}", call.operation, call.number, call.bytes, call.dtype)
}

fn waits(rank: &ObservedRank) -> String {
    let Some(wait) = &rank.wait else { return rank.detail.clone().unwrap_or_else(|| "-".to_owned()) };
    let ranks: Vec<String> = wait.ranks.iter().map(ToString::to_string).collect();
    let ranks = match ranks.as_slice() {
        [] => String::new(),
        [rank] => format!("rank {rank}, "),
        ranks => format!("ranks {}, ", ranks.join(" ")),
    };
    let place = match wait.place {
        WaitPlace::Kernel => String::new(),
        _ => format!(" in {}", wait.operation),
    };
    format!("{ranks}{:.1} s{place}", wait.seconds)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
