//! Compares the histories of the ranks of a group.

use std::collections::BTreeSet;

use serde::Serialize;
use symmetra::observe::{Failed, Record, RecordedCall};

/// The histories of a group, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Merged {
    pub(super) group: u64,
    pub(super) name: Option<String>,
    pub(super) world_size: usize,
    /// The ranks that have a file.
    pub(super) ranks: Vec<RankSummary>,
    /// The ranks that have no file.
    pub(super) missing: Vec<usize>,
    /// The first call in which ranks differ.
    pub(super) difference: Option<Difference>,
    /// The first call that some ranks have not made.
    pub(super) unmade: Option<Unmade>,
    /// The first call in which a device gave up.
    pub(super) gave_up: Option<u64>,
    /// The operation in which a device gave up, also of work without a number.
    pub(super) gave_up_in: Option<String>,
    /// The last exchange of the host, if some ranks have not begun it, or a lost rank waited in it.
    pub(super) exchange: Option<HostExchange>,
    /// The ranks that are gone.
    pub(super) lost: Vec<usize>,
    /// The ranks that caused the failure.
    pub(super) culprits: Vec<usize>,
    /// The result in a sentence.
    pub(super) words: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RankSummary {
    pub(super) rank: usize,
    pub(super) world_rank: Option<usize>,
    pub(super) process: u32,
    pub(super) host: String,
    pub(super) enqueued: u64,
    pub(super) ended: Option<u64>,
    pub(super) last_call: Option<String>,
    pub(super) reason: String,
}

/// A call in which ranks differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    pub(super) call: u64,
    /// The different calls; the call of the fewest ranks comes first.
    pub(super) made: Vec<MadeCall>,
}

impl Difference {
    /// The ranks whose call the fewest ranks made, in order. Where several calls were made by as few ranks, the ranks of each.
    fn culprits(&self) -> Vec<usize> {
        let fewest = self.made.first().map_or(0, |made| made.ranks.len());
        let least = self.made.iter().filter(|made| made.ranks.len() == fewest);
        let mut ranks: Vec<usize> = least.flat_map(|made| made.ranks.iter().copied()).collect();
        ranks.sort_unstable();
        ranks
    }
}

/// A call that some ranks made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MadeCall {
    pub(super) ranks: Vec<usize>,
    pub(super) text: String,
}

/// A call that some ranks have made and others have not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Unmade {
    pub(super) call: u64,
    /// The call in words, if a history still has the call.
    pub(super) text: Option<String>,
    /// The ranks that have not made the call.
    pub(super) ranks: Vec<usize>,
    /// The number of ranks that have made the call.
    pub(super) by: usize,
}

/// An exchange of the host: a barrier, a registration, a step of opening or closing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HostExchange {
    pub(super) name: String,
    /// The ranks that have not begun the exchange.
    pub(super) unmade: Vec<usize>,
    /// The number of ranks that have begun the exchange.
    pub(super) by: usize,
    /// The lost ranks that waited in the exchange.
    pub(super) inside: Vec<usize>,
}

impl Merged {
    pub(super) fn title(&self) -> String {
        let name = self.name.as_deref().map_or_else(|| "group".to_owned(), |name| format!("group `{name}`"));
        format!("{name} of {} ranks", self.world_size)
    }
}

/// Compares the histories of a group. There is at least one.
pub(super) fn merge(records: &[Record]) -> Merged {
    let world_size = records.iter().map(|record| record.world_size).max().unwrap_or(0);
    let missing = (0..world_size).filter(|rank| records.iter().all(|record| record.rank != *rank)).collect();
    let (difference, unmade, lost) = (difference(records), unmade(records), blamed(records, Failed::PeerLost));
    let mut merged = Merged {
        group: records.first().map_or(0, |record| record.group),
        name: records.iter().find_map(|record| record.name.clone()),
        world_size,
        ranks: records.iter().map(RankSummary::new).collect(),
        missing,
        difference,
        unmade,
        gave_up: records.iter().filter_map(|record| record.gave_up).min(),
        gave_up_in: records.iter().find_map(|record| record.gave_up_in.clone()),
        exchange: exchange(records, &lost),
        lost,
        culprits: Vec::new(),
        words: String::new(),
    };
    merged.culprits = merged.blame(records);
    merged.words = merged.sentence(records);
    merged
}

/// Call `number` of a record.
pub(super) fn call(record: &Record, number: u64) -> Option<&RecordedCall> {
    let at = record.calls.binary_search_by_key(&number, |call| call.number).ok()?;
    record.calls.get(at)
}

/// The ranks that failures of this kind name, in order.
fn blamed(records: &[Record], failed: Failed) -> Vec<usize> {
    let of_kind = records.iter().filter(|record| record.failure == Some(failed));
    let mut ranks: Vec<usize> = of_kind.filter_map(|record| record.culprit).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// The ranks for which a wait ended, or whose call differs, as the failures of the others report.
fn reported(records: &[Record]) -> Vec<usize> {
    [Failed::Timeout, Failed::Mismatch].into_iter().flat_map(|failed| blamed(records, failed)).collect()
}

/// The first call in which ranks differ, among the calls that are kept.
fn difference(records: &[Record]) -> Option<Difference> {
    let numbers: BTreeSet<u64> =
        records.iter().flat_map(|record| record.calls.iter().map(|call| call.number)).collect();
    numbers.into_iter().find_map(|number| {
        let mut made: Vec<MadeCall> = Vec::new();
        for (rank, call) in records.iter().filter_map(|record| Some((record.rank, call(record, number)?))) {
            match made.iter_mut().find(|made| made.text == call.text) {
                Some(made) => made.ranks.push(rank),
                None => made.push(MadeCall { ranks: vec![rank], text: call.text.clone() }),
            }
        }
        made.sort_by_key(|made| made.ranks.len());
        (made.len() > 1).then_some(Difference { call: number, made })
    })
}

/// The first call that some ranks have made and others have not.
fn unmade(records: &[Record]) -> Option<Unmade> {
    let least = records.iter().map(|record| record.enqueued).min()?;
    let (mut behind, rest): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.enqueued == least);
    // Of a later call the earliest that is kept was made no earlier.
    let made_ns = rest.iter().filter_map(|record| call(record, least).or(record.calls.first())).map(|call| call.at_ns);
    let made_ns = made_ns.min().unwrap_or(0);
    behind.retain(|record| is_late(record, made_ns));
    if behind.is_empty() {
        return None;
    }
    let made = rest.iter().find_map(|record| call(record, least));
    let text = made.map(|call| format!("{} {least} ({})", call.operation, call.text));
    let ranks = behind.iter().map(|record| record.rank).collect();
    (!rest.is_empty()).then_some(Unmade { call: least, text, ranks, by: rest.len() })
}

/// Whether the rank lacks work that another rank had begun at `begun_ns`. A record that the program asked for, and that is older
/// than that, shows a rank that may have begun the work afterwards. A failed rank begins no more work.
fn is_late(record: &Record, begun_ns: u64) -> bool {
    record.failure.is_some() || begun_ns < record.written_ns
}

/// The last exchange of the host, if some ranks have not begun it, or lost ranks waited in it.
fn exchange(records: &[Record], lost: &[usize]) -> Option<HostExchange> {
    let most = records.iter().map(|record| record.exchanges).max()?;
    let (begun, mut behind): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.exchanges == most);
    // An exchange that has ended on one rank has begun on all ranks.
    let begun_ns = begun.iter().filter(|record| record.in_exchange).map(|record| record.exchange_since_ns).min();
    behind.retain(|record| is_late(record, begun_ns.unwrap_or(u64::MAX)));
    let inside = begun.iter().filter(|record| record.in_exchange && lost.contains(&record.rank));
    let exchange = HostExchange {
        name: begun.iter().find_map(|record| record.last_exchange.clone())?,
        unmade: behind.iter().map(|record| record.rank).collect(),
        by: begun.len(),
        inside: inside.map(|record| record.rank).collect(),
    };
    (!exchange.unmade.is_empty() || !exchange.inside.is_empty()).then_some(exchange)
}

impl RankSummary {
    fn new(record: &Record) -> Self {
        Self {
            rank: record.rank,
            world_rank: record.world_rank,
            process: record.process,
            host: record.host.clone(),
            enqueued: record.enqueued,
            ended: record.ended,
            last_call: record.calls.last().map(|call| call.text.clone()),
            reason: match record.by == record.rank {
                true => record.reason.clone(),
                false => format!("written by rank {}", record.by),
            },
        }
    }
}

impl Merged {
    /// The ranks that caused the failure: the ranks whose call differs, else the ranks that are gone, that have not made a
    /// call, for which a wait ended, or that have not begun an exchange.
    fn blame(&self, records: &[Record]) -> Vec<usize> {
        if let Some(difference) = &self.difference {
            return difference.culprits();
        }
        match (&self.lost, &self.unmade) {
            (lost, _) if !lost.is_empty() => lost.clone(),
            (_, Some(unmade)) => unmade.ranks.clone(),
            _ => match (reported(records), &self.exchange) {
                (reported, Some(exchange)) if reported.is_empty() => exchange.unmade.clone(),
                (reported, _) => reported,
            },
        }
    }

    fn sentence(&self, records: &[Record]) -> String {
        let mut words = match (&self.difference, &self.unmade) {
            (Some(Difference { call, made }), _) => {
                let made = made.iter().map(|made| format!("{} made {}", in_words(&made.ranks), made.text));
                format!("ranks differ in call {call}: {}", made.collect::<Vec<_>>().join("; "))
            }
            (None, Some(unmade)) => self.unmade_in_words(unmade, records),
            (None, None) => self.equal_in_words(records),
        };
        if !self.lost.is_empty() {
            words += &format!("; {} {} gone", in_words(&self.lost), if self.lost.len() == 1 { "is" } else { "are" });
        } else if self.difference.is_none() && self.unmade.is_none() && !reported(records).is_empty() {
            words += &format!("; the others gave up a wait for {}", in_words(&reported(records)));
        }
        if !self.missing.is_empty() {
            words += &format!("; {} left no file", in_words(&self.missing));
        }
        words
    }

    /// A call that some ranks have not made. Lost ranks are the subject: the others could make no call any more when the group
    /// had failed, whether a lost rank had made the call or not.
    fn unmade_in_words(&self, unmade: &Unmade, records: &[Record]) -> String {
        let Unmade { call, text, ranks, by } = unmade;
        let text = text.clone().unwrap_or_else(|| format!("call {call}"));
        let lost: Vec<usize> = ranks.iter().copied().filter(|rank| self.lost.contains(rank)).collect();
        if self.lost.is_empty() || !lost.is_empty() {
            let (by, ranks) = (number_in_words(*by), if lost.is_empty() { ranks } else { &lost });
            return format!("{} {} not made {text}, which {by} made", in_words(ranks), have(ranks));
        }
        let made = records.iter().map(|record| record.rank).filter(|rank| !ranks.contains(rank)).collect::<Vec<_>>();
        format!("{} {} made {text}, which {} {} not made", in_words(&made), have(&made), in_words(ranks), have(ranks))
    }

    /// Ranks that have made the same calls: the place of the wait, in a call, in work without a number, or in an exchange.
    fn equal_in_words(&self, records: &[Record]) -> String {
        let calls = |of: &dyn Fn(u64, u64) -> u64| records.iter().map(|record| record.enqueued).reduce(of).unwrap_or(0);
        let (least, most) = (calls(&u64::min), calls(&u64::max));
        let pairs = records.iter().map(|record| record.pairs).max().unwrap_or(0);
        let pairs = if pairs == 0 { String::new() } else { format!(", and at most {pairs} of pairs") };
        let text = |number| records.iter().find_map(|record| call(record, number));
        let place = match (self.gave_up, &self.gave_up_in, &self.exchange) {
            (Some(number), ..) => match text(number) {
                Some(call) => format!("; the devices gave up in {} {number}", call.operation),
                None => format!("; the devices gave up in call {number}"),
            },
            (None, Some(operation), _) => format!("; the devices gave up in {operation}"),
            (None, None, Some(HostExchange { name, unmade, by, inside })) if inside.is_empty() => {
                let by = number_in_words(*by);
                format!("; {} {} not made the exchange `{name}`, which {by} begun", in_words(unmade), have(unmade))
            }
            (None, None, Some(HostExchange { name, inside, .. })) => {
                format!("; {} waited in the exchange `{name}`", in_words(inside))
            }
            (None, None, None) => String::new(),
        };
        let made = match (least, most) {
            (1, 1) => "the ranks have made the same 1 call".to_owned(),
            (least, most) if least == most => format!("the ranks have made the same {most} calls"),
            (least, most) => format!(
                "the ranks had made {least} to {most} calls when they wrote their files, at different times; the calls that \
                 all have made are the same"
            ),
        };
        format!("{made}{pairs}{place}")
    }
}

/// A number of ranks and their verb.
fn number_in_words(by: usize) -> String {
    if by == 1 { "1 rank has".to_owned() } else { format!("{by} ranks have") }
}

fn have(ranks: &[usize]) -> &'static str {
    if ranks.len() == 1 { "has" } else { "have" }
}

/// Ranks in words.
pub(super) fn in_words(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match numbers.as_slice() {
        [rank] => format!("rank {rank}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
        [] => "no rank".to_owned(),
    }
}
