//! Copies of control pages at several moments, and the groups that they show.

use super::judge::judge;
use super::processes::{HostPages, OpenPage, ProcessState};
use super::rank::{ObservedRank, PageCopies};
use super::timings::{Timings, spans};
use super::{COPIES, ObservedGroup, PAUSE, Snapshot, UnreadablePage};
use crate::bootstrap::shown::MeetingRank;
use crate::group::{Seen, TimedCall, Unfit};

/// A page at two moments.
struct Copied<'h> {
    found: &'h OpenPage,
    first: Seen,
    last: Seen,
}

/// The files of some processes.
pub(super) struct Sample<'h> {
    host: &'h HostPages,
    pages: Vec<Copied<'h>>,
    meetings: Vec<(&'h OpenPage, MeetingRank)>,
    unreadable: Vec<UnreadablePage>,
}

/// The common property of the ranks of a group.
#[derive(Clone, PartialEq, Eq)]
enum GroupKey {
    Number(u64),
    Opening(Opening),
}

/// A group whose ranks have not shared their pages, and which has no number yet.
#[derive(Clone, PartialEq, Eq)]
struct Opening {
    world_size: usize,
    /// The process that started the rank.
    parent: u32,
    /// Where the ranks meet; `None` after they have met.
    place: Option<String>,
}

impl GroupKey {
    /// Whether ranks with these keys are of one group.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Opening(one), Self::Opening(other)) => one.fits(other),
            _ => self == other,
        }
    }
}

impl Opening {
    /// Ranks of one group meet at one place. Where the place is not known, one process has started them.
    fn fits(&self, other: &Self) -> bool {
        let one_place = match (&self.place, &other.place) {
            (Some(one), Some(other)) => one == other,
            _ => self.parent == other.parent,
        };
        self.world_size == other.world_size && one_place
    }
}

/// The ranks of a group so far.
struct GatheredGroup {
    key: GroupKey,
    world_size: usize,
    /// Whether ranks of other hosts can come.
    open_to_hosts: bool,
    name: Option<String>,
    begun_ns: u64,
    ranks: Vec<ObservedRank>,
    /// The times of calls, by rank.
    times: Vec<Vec<TimedCall>>,
}

impl<'h> Sample<'h> {
    /// Copies the pages for which `wanted` holds until every wait in progress has shown itself.
    pub(super) fn take(host: &'h HostPages, wanted: impl Fn(&OpenPage) -> bool) -> Self {
        let meetings = host.meetings.values().filter(|found| wanted(found));
        let meetings = meetings.filter_map(|found| Some((found, MeetingRank::read(&found.file)?))).collect();
        let mut sample = Self { host, pages: Vec::new(), meetings, unreadable: Vec::new() };
        let groups: Vec<u64> = host.pages.values().filter(|found| wanted(found)).filter_map(group).collect();
        for found in host.pages.values() {
            // The pages of all ranks of a group, whichever process has them.
            let kept = wanted(found) || group(found).is_some_and(|group| groups.contains(&group));
            if kept {
                sample.add(found);
            }
        }
        for _ in 1..COPIES {
            std::thread::sleep(PAUSE);
            sample.copy_again();
            if sample.pages.iter().all(Copied::is_settled) {
                break;
            }
        }
        sample
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.meetings.is_empty() && self.unreadable.is_empty()
    }

    fn add(&mut self, found: &'h OpenPage) {
        match Seen::copy(&found.file).and_then(|first| Ok((first, Seen::copy(&found.file)?))) {
            Ok((first, last)) => self.pages.push(Copied { found, first, last }),
            Err(unfit) => self.unreadable.push(unreadable(found, &unfit)),
        }
    }

    fn copy_again(&mut self) {
        let mut cut = Vec::new();
        self.pages.retain_mut(|page| match Seen::copy(&page.found.file) {
            Ok(last) => {
                page.last = last;
                true
            }
            Err(unfit) => {
                cut.push(unreadable(page.found, &unfit));
                false
            }
        });
        self.unreadable.append(&mut cut);
    }

    /// The groups that the files show.
    pub(super) fn snapshot(mut self, refused_processes: usize) -> Snapshot {
        let mut ranks: Vec<SampledRank> = self.pages.iter().filter_map(|page| page.rank(self.host)).collect();
        let foreign = self.pages.iter().filter(|page| page.last.place().is_none());
        self.unreadable.extend(foreign.map(|page| unreadable(page.found, &Unfit::Foreign)));
        ranks.extend(
            self.meetings.iter().filter_map(|(found, meeting)| SampledRank::meeting(self.host, found, meeting)),
        );
        ranks.sort_by_key(|rank| rank.begun_ns);
        let mut groups: Vec<GatheredGroup> = Vec::new();
        for SampledRank { key, world_size, open_to_hosts, name, begun_ns, rank, times } in ranks {
            let number = rank.rank;
            let fits =
                |group: &GatheredGroup| group.key.fits(&key) && group.ranks.iter().all(|other| other.rank != number);
            let at = groups.iter().position(fits).unwrap_or_else(|| {
                let (name, ranks, times) = (None, Vec::new(), vec![Vec::new(); world_size]);
                groups.push(GatheredGroup { key, world_size, open_to_hosts, name, begun_ns, ranks, times });
                groups.len() - 1
            });
            let group = &mut groups[at];
            group.ranks.push(rank);
            group.open_to_hosts |= open_to_hosts;
            group.name = group.name.take().or(name);
            if let Some(of_rank) = group.times.get_mut(number) {
                *of_rank = times;
            }
        }
        groups.sort_by_key(|group| group.begun_ns);
        let groups = groups.into_iter().map(GatheredGroup::judged).collect();
        Snapshot { groups, unreadable: self.unreadable, refused_processes }
    }
}

/// A rank and its group.
struct SampledRank {
    key: GroupKey,
    world_size: usize,
    /// Whether ranks of other hosts can come.
    open_to_hosts: bool,
    name: Option<String>,
    begun_ns: u64,
    rank: ObservedRank,
    times: Vec<TimedCall>,
}

impl SampledRank {
    /// A rank that has no group yet; `None` if the rank has ended.
    fn meeting(host: &HostPages, found: &OpenPage, meeting: &MeetingRank) -> Option<Self> {
        let (process, state) = host.owner(found, [meeting.namespace, meeting.process.into()]);
        let MeetingRank { world_size, since_ns, ref place, open_to_hosts, .. } = *meeting;
        let rank = ObservedRank::meeting(meeting, process.unwrap_or(meeting.process), state);
        let opening = Opening { world_size, parent: found.parent_of(process), place: place.clone() };
        (state != ProcessState::Ended).then_some(Self {
            key: GroupKey::Opening(opening),
            world_size,
            open_to_hosts,
            name: None,
            begun_ns: since_ns,
            rank,
            times: Vec::new(),
        })
    }
}

impl GatheredGroup {
    fn judged(mut self) -> ObservedGroup {
        self.ranks.sort_by_key(|rank| rank.rank);
        let mut verdict = judge(&mut self.ranks, self.world_size, self.open_to_hosts);
        if self.ranks.len() < self.world_size && !HostPages::sees_all() {
            verdict.words += "; ranks in PID namespaces that are not visible are missing";
        }
        let timings = Timings::of(spans(&self.times).iter(), self.world_size, self.ranks.len());
        ObservedGroup { name: self.name, world_size: self.world_size, ranks: self.ranks, verdict, timings }
    }
}

impl Copied<'_> {
    /// The rank of the page; `None` for numbers that no rank has, and for a rank that ended before it had a group.
    fn rank(&self, host: &HostPages) -> Option<SampledRank> {
        let Self { found, first, last } = self;
        let (namespace, inner) = last.owner();
        let (process, state) = host.owner(found, [namespace, inner.into()]);
        let rank = ObservedRank::new(&PageCopies { first, last, process: process.unwrap_or(inner), state })?;
        let [_, world_size] = last.place()?;
        let key = match last.group() {
            Some(group) => GroupKey::Number(group),
            None if state == ProcessState::Ended => return None,
            None => GroupKey::Opening(Opening { world_size, parent: found.parent_of(process), place: None }),
        };
        let name = Some(last.name()).filter(|name| !name.is_empty());
        let (begun_ns, times) = (last.begun_ns(), last.times(0));
        Some(SampledRank { key, world_size, open_to_hosts: false, name, begun_ns, rank, times })
    }

    /// Whether a later copy would show nothing new about a wait in progress.
    fn is_settled(&self) -> bool {
        let Self { first, last, .. } = self;
        let progressed = first.enqueued() < last.enqueued() || first.host_calls() < last.host_calls();
        let idle = last.ended() == Some(last.enqueued()) && last.pairs() == 0;
        last.kernel_wait() != first.kernel_wait() || last.kernel_wait().is_none() || progressed || idle
    }
}

/// The number of the group of a page that is found; `None` if the page is none, or the ranks have not shared their pages.
fn group(found: &OpenPage) -> Option<u64> {
    Seen::copy(&found.file).ok()?.group()
}

fn unreadable(found: &OpenPage, unfit: &Unfit) -> UnreadablePage {
    let reason = match unfit {
        Unfit::Protocol(theirs) => format!("a build with protocol number {theirs} made the page"),
        Unfit::Foreign => "no control page, or one of a build that cannot be observed".to_owned(),
        Unfit::Unread(error) => format!("cannot read the page: {error}"),
    };
    UnreadablePage { processes: found.holders.iter().map(|holder| holder.process).collect(), reason }
}
