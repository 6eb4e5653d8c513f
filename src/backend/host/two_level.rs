//! Groups whose ranks are on several hosts: symmetra kernels inside a host, an engine between hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::announcement::Announcement;
use super::failure_cause::{Word, aborted, verdict};
use super::final_exchange::FinalExchange;
use super::late;
use super::wire::{Across, Engines};
use crate::backend::hosts::Hosts;
use crate::bootstrap::LONGEST;
use crate::bootstrap::notice::{encode, read_notice};
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::group::REPORT;
use crate::memory::View;
use crate::op::{ALL_GATHER, ALL_REDUCE, BROADCAST, Call, Kernels, REDUCE, REDUCE_SCATTER};
use crate::stream::{Stream, Target};
use crate::types::{Dtype, Reduction};

/// The most bytes that a rank sends the others of its host at a time.
const SLICE_BYTES: usize = 32 << 20;
/// How long ranks wait for each other's reports on a failure.
const INQUEST: Duration = Duration::from_secs(2);

/// This rank's part of a group that spans hosts.
pub(crate) struct TwoLevel {
    /// This host's ranks of the group.
    local: Communicator,
    /// The group's ranks by their world ranks.
    ranks: Vec<usize>,
    /// The group's ranks by host.
    parts: Vec<Vec<usize>>,
    /// The name of each host of `parts`.
    names: Vec<String>,
    /// This host's index in `parts`.
    part: usize,
    /// Connects ranks of equal position on each host; if hosts differ in size, only the first rank of each host. `None`
    /// on other ranks, and after a failure.
    wire: Mutex<Option<Box<dyn Across>>>,
    world: Arc<FinalExchange>,
    used: AtomicBool,
    failure: OnceCell<Error>,
    /// The name of the parallel group, for messages.
    name: OnceCell<String>,
}

impl TwoLevel {
    /// Connects the ranks of `group` by an engine between hosts; `None` for a group on one host. Every rank of the
    /// world calls this at the same time. Blocks.
    pub(crate) fn open(
        local: Communicator,
        group: &[usize],
        hosts: &Hosts,
        engines: &Engines,
        world: &Arc<FinalExchange>,
        deadline: Instant,
    ) -> Result<Option<Self>> {
        let parts = hosts.parts(group);
        let mut bootstrap = world.lock();
        let rank = bootstrap.rank();
        let members = wired(&parts, rank).filter(|_| parts.len() > 1);
        let wire = Mutex::new(engines.connect(&mut **bootstrap, members.as_deref(), deadline)?);
        let part = parts.iter().position(|part| part.contains(&rank));
        let names = hosts.of_group(group).into_iter().map(|(name, _)| name).collect();
        Ok(part.filter(|_| parts.len() > 1).map(|part| Self {
            local,
            ranks: group.to_vec(),
            parts,
            names,
            part,
            wire,
            world: world.clone(),
            used: AtomicBool::new(false),
            failure: OnceCell::new(),
            name: OnceCell::new(),
        }))
    }

    pub(crate) fn local(&self) -> &Communicator {
        &self.local
    }

    /// Names the group in errors and warnings. The first name stays.
    pub(crate) fn call_by(&self, name: &str) {
        let name = self.name.get_or_init(|| name.to_owned());
        self.local.group().call_by(name, &self.parts[self.part], false);
    }

    /// Announces a call to the other hosts. If another host exchanges objects instead, both fail. Blocks.
    pub(crate) fn announce_call(&self, call: &Call<'_>) -> Result<()> {
        self.announce(Announcement::call(call), Instant::now(), self.limit()).map(drop)
    }

    /// Whether a call is reduced on two levels: an all-reduce except averages, because the sum inside a host would be
    /// rounded, or wrap, before the division.
    pub(crate) fn serves(call: &Call<'_>) -> bool {
        matches!(call.op.kernels, Kernels::AllReduce) && call.options.reduction != Reduction::Average
    }

    /// Runs an all-reduce that all ranks have compared. Blocks.
    pub(crate) fn all_reduce(&self, call: &Call<'_>, stream: &Stream) -> Result<()> {
        let (Some(input), Some(output)) = (&call.input, &call.output) else { return Ok(()) };
        let reduced = self.two_levels(call.dtype, call.options.reduction, input, output, Target::Eager(stream));
        reduced.map_err(|error| self.of_group(error))
    }

    fn two_levels(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        input: &View<'_>,
        output: &View<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        match self.parts.iter().all(|part| part.len() == self.parts[0].len()) {
            true => self.by_shares(dtype, reduction, input, output, queue)?,
            false => self.by_first_ranks(dtype, reduction, input, output, queue)?,
        }
        self.local.synchronize(queue.stream())
    }

    /// Reduce-scatter inside a host, all-reduce of shares between hosts, all-gather inside. The remainder, which has no
    /// equal shares, is reduced between hosts by every rank.
    fn by_shares(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        input: &View<'_>,
        output: &View<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (rank, ranks) = (self.local.rank(), self.local.world_size());
        let share = output.elems / ranks;
        let shares = 0..share * ranks;
        let (own, rest) = (rank * share..(rank + 1) * share, shares.end..output.elems);
        let (all, own, tail) =
            (output.part(shares.clone(), dtype)?, output.part(own, dtype)?, output.part(rest.clone(), dtype)?);
        let scattered = Call::new(&REDUCE_SCATTER, dtype).options(reduction);
        self.local.run(&scattered.input(input.part(shares, dtype)?).output(own.clone()), queue)?;
        if tail.elems > 0 {
            let call = Call::new(&ALL_REDUCE, dtype).options(reduction);
            self.local.run(&call.input(input.part(rest, dtype)?).output(tail.clone()), queue)?;
        }
        self.between(dtype, reduction, &own, queue)?;
        self.between(dtype, reduction, &tail, queue)?;
        self.local.run(&Call::new(&ALL_GATHER, dtype).input(own).output(all), queue)
    }

    /// Reduce inside each host to its first rank, all-reduce between first ranks, broadcast inside.
    fn by_first_ranks(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        input: &View<'_>,
        output: &View<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let result = (self.local.rank() == 0).then_some(output);
        let reduce = Call::new(&REDUCE, dtype).options(reduction);
        self.local.run(&reduce.input(input.clone()).output(result.cloned()), queue)?;
        if let Some(result) = result {
            self.between(dtype, reduction, result, queue)?;
        }
        self.local.run(&Call::new(&BROADCAST, dtype).output(output.clone()), queue)
    }

    /// Reduces `memory` over the ranks of the wire, after the queue's earlier work.
    fn between(&self, dtype: Dtype, reduction: Reduction, memory: &View<'_>, queue: Target<'_>) -> Result<()> {
        if memory.elems == 0 {
            return Ok(());
        }
        self.local.synchronize(queue.stream())?;
        self.across(Instant::now(), self.limit(), |wire, deadline| {
            wire.all_reduce(dtype, reduction, memory, queue.stream(), deadline)
        })
    }

    /// An exchange with the ranks of the wire for a call that began at `start` and may take `limit`. Errors have rank
    /// numbers of the group.
    fn across(
        &self,
        start: Instant,
        limit: Duration,
        exchange: impl FnOnce(&mut dyn Across, Instant) -> Result<()>,
    ) -> Result<()> {
        let mut wire = self.wire.lock();
        let wire = wire.as_mut().ok_or(Error::Closed)?;
        let place = |part: usize| {
            let host = self.names.get(part).map_or_else(String::new, |host| format!(" on host {host}"));
            (self.place(part, self.local.rank()), host)
        };
        exchange(&mut **wire, start + limit.min(LONGEST)).map_err(|error| late::in_group(error, limit, place))
    }

    /// Sends this rank's announcement to the other hosts and returns those of all hosts; none on a rank without a wire.
    /// Calls are compared by all ranks later, objects are not.
    fn announce(&self, ours: Announcement, start: Instant, limit: Duration) -> Result<Vec<Announcement>> {
        let (own, mut all) = (ours.to_words(), vec![[0; Announcement::WORDS]; self.parts.len()]);
        if self.wire.lock().is_none() {
            return Ok(Vec::new());
        }
        let exchange =
            |wire: &mut dyn Across, deadline| wire.all_gather(cast_slice(&own), cast_slice_mut(&mut all), deadline);
        self.across(start, limit, exchange)?;
        let all: Vec<_> = all.into_iter().map(Announcement::from_words).collect();
        let Some(part) = all.iter().position(|theirs| !ours.is_like(theirs)) else { return Ok(all) };
        let place = |part: usize| self.place(part, self.local.rank());
        Err(ours.mismatch(place(self.part), place(part), &all[part]))
    }

    /// The group ranks of this host's ranks.
    pub(crate) fn on_host(&self) -> Vec<usize> {
        (0..self.parts[self.part].len()).map(|place| self.place(self.part, place)).collect()
    }

    /// The group rank of the rank at `place` of a host.
    fn place(&self, part: usize, place: usize) -> usize {
        self.parts[part].get(place).and_then(|rank| self.ranks.binary_search(rank).ok()).unwrap_or_default()
    }

    /// Sends `bytes` to every rank of the group for the collective call named `call`, and returns the bytes of all, in
    /// rank order. Blocks.
    pub(crate) fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        self.gather_by_hosts(call, bytes).map_err(|error| self.fail(error))
    }

    /// Gathers inside each host, between the first ranks of the hosts, and inside each host again. Errors have rank
    /// numbers of the group. Each step has an earlier deadline than the next: a rank that waits for a late rank gives
    /// up, and names that rank, before others give up on the waiting rank.
    fn gather_by_hosts(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (start, open) = (Instant::now(), self.local.group().config().deadlines.open.min(LONGEST));
        let lead = REPORT.min(open / 8);
        let on_host = |limit: Duration, bytes: &[u8]| {
            let all = self.local.group().all_gather_by(start + limit, call, bytes);
            all.map_err(|error| self.of_group(error))
        };
        let is_first = self.local.rank() == 0;
        let own = match on_host(open - 2 * lead, bytes) {
            // The other first ranks wait for this host, and receive the name of the late rank.
            Err(error @ Error::Timeout { .. }) if is_first => Err(error),
            own => Ok(pack(&own?)),
        };
        let told = match is_first {
            true => {
                let sent = sealed(own.as_ref().map(Vec::as_slice));
                let told = self.between_first_ranks(call, sent, start, open - lead);
                own.and(told)
            }
            false => Ok(Vec::new()),
        };
        // A first rank that failed sends its error, so that the others do not wait for it.
        let words = sealed(told.as_ref().map(Vec::as_slice));
        let first =
            in_slices(&words, SLICE_BYTES, |slice| Ok(on_host(open, slice)?.into_iter().next().unwrap_or_default()))?;
        told?;
        let all = self.unsealed(&first, self.place(self.part, 0))?;
        let mut of_group = vec![Vec::new(); self.ranks.len()];
        for (ranks, packed) in self.parts.iter().zip(unpack(all)) {
            for (rank, bytes) in ranks.iter().zip(unpack(&packed)) {
                if let Ok(place) = self.ranks.binary_search(rank) {
                    of_group[place] = bytes;
                }
            }
        }
        Ok(of_group)
    }

    /// The packed bytes of every host's first rank, each of which sends a [`sealed`] message.
    fn between_first_ranks(&self, call: &str, mut own: Vec<u8>, start: Instant, limit: Duration) -> Result<Vec<u8>> {
        let all = self.announce(Announcement::objects(call, own.len()), start, limit)?;
        let lengths: Vec<usize> = all.iter().map(|theirs| theirs.bytes as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
        own.resize(longest, 0);
        let mut all = vec![0; longest * self.parts.len()];
        self.across(start, limit, |wire, deadline| wire.all_gather(&own, &mut all, deadline))?;
        let all = all.chunks(longest).zip(lengths).enumerate();
        let all = all.map(|(part, (bytes, length))| self.unsealed(&bytes[..length], self.place(part, 0)));
        Ok(pack(&all.map(|bytes| bytes.map(<[u8]>::to_vec)).collect::<Result<Vec<_>>>()?))
    }

    /// The bytes that rank `by` [sent](sealed), or the failure that it sent.
    fn unsealed<'a>(&self, sent: &'a [u8], by: usize) -> Result<&'a [u8]> {
        let own = self.place(self.part, self.local.rank());
        match sent.split_first() {
            Some((1, bytes)) => Ok(bytes),
            Some((_, error)) => Err(read_notice(by, error).seen_by(own, by)),
            None => Err(Error::Peer { rank: by, message: "sent an empty message".to_owned() }),
        }
    }

    /// Leaves the group after every rank has finished with it.
    pub(crate) fn close(&self) -> Result<()> {
        drop(self.wire.lock().take());
        let closed = self.local.clone().close();
        self.failure.get().map_or(closed, |error| Err(error.clone()))
    }

    /// The group's first failure.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(error) => Err(error.clone()),
            None => self.check_host().map_err(|error| self.fail(error)),
        }
    }

    /// Whether the ranks of this host are healthy, without contacting others.
    pub(crate) fn check_host(&self) -> Result<()> {
        self.local.group().check().map_err(|error| self.of_group(error))
    }

    /// The time limit of a call.
    fn limit(&self) -> Duration {
        let deadlines = self.local.group().config().deadlines;
        if self.used.swap(true, Ordering::Relaxed) { deadlines.steady } else { deadlines.first_use }
    }

    /// Records `error` as the group's failure, unless the call had not begun, and makes peers stop waiting for this
    /// rank: stops devices on this host, and breaks connections to others.
    fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. } | Error::Closed) {
            return error;
        }
        self.end(error, || ())
    }

    /// Records `error`, which has rank numbers of the group, as the group's failure. `cut` breaks other connections,
    /// after the ranks of this host have been notified.
    pub(crate) fn end(&self, error: Error, cut: impl FnOnce()) -> Error {
        let failure = self.failure.get_or_init(|| {
            self.stop(&error);
            cut();
            drop(self.wire.lock().take());
            let error = self.inquest(error);
            match self.name.get() {
                Some(name) => error.in_group(name, &self.ranks, None),
                None => error,
            }
        });
        failure.clone()
    }

    /// Stops the group on this host, with `error` as the reason.
    fn stop(&self, error: &Error) {
        let failure = match error {
            Error::Aborted { .. } => error.clone(),
            Error::Timeout { .. } => error.clone().of_members(&self.ranks).among(&self.parts[self.part]),
            // The error has rank numbers of the group.
            _ => aborted(error),
        };
        self.local.group().fail(failure);
    }

    /// Requests reports from the ranks of the world. Ranks outside the group may be healthy and send none.
    fn inquest(&self, error: Error) -> Error {
        let own = Word::of(&error, &self.ranks);
        let words = self.world.say(&own.to_bytes(), Instant::now() + INQUEST);
        match words {
            Some(words) if own.says_nothing() => {
                let own = self.place(self.part, self.local.rank());
                verdict(own, &self.ranks, error, words)
            }
            _ => error,
        }
    }

    /// Translates an error of this host's ranks to the group's rank numbers.
    fn of_group(&self, error: Error) -> Error {
        error.of_members(&self.parts[self.part]).among(&self.ranks)
    }
}

/// The ranks that a rank's wire connects: if all hosts have equally many ranks, those at its position on each host,
/// else the first rank of each host.
fn wired(parts: &[Vec<usize>], rank: usize) -> Option<Vec<usize>> {
    let place = parts.iter().find_map(|part| part.iter().position(|other| *other == rank))?;
    let equal = parts.iter().all(|part| part.len() == parts[0].len());
    (equal || place == 0).then(|| parts.iter().map(|part| part[place]).collect())
}

/// Sends the first rank's bytes, of any length, by an `exchange` that takes this rank's slice and returns the first
/// rank's slice. A slice that is not full is the last. Bytes of other ranks are ignored.
fn in_slices(words: &[u8], slice_bytes: usize, mut exchange: impl FnMut(&[u8]) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let (mut own, mut all) = (words.chunks(slice_bytes), Vec::new());
    loop {
        let slice = exchange(own.next().unwrap_or_default())?;
        all.extend_from_slice(&slice);
        if slice.len() < slice_bytes {
            return Ok(all);
        }
    }
}

/// Bytes, or the error instead of them, as one message.
fn sealed(bytes: std::result::Result<&[u8], &Error>) -> Vec<u8> {
    match bytes {
        Ok(bytes) => [&[1], bytes].concat(),
        Err(error) => [&[0], encode(error).as_slice()].concat(),
    }
}

/// Packs several byte strings into one.
fn pack(strings: &[Vec<u8>]) -> Vec<u8> {
    strings.iter().flat_map(|bytes| [&(bytes.len() as u64).to_le_bytes(), bytes.as_slice()].concat()).collect()
}

/// The strings of [`pack`]; stops at malformed bytes.
fn unpack(mut packed: &[u8]) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = rest.split_at_checked(length) else { break };
        strings.push(bytes.to_vec());
        packed = rest;
    }
    strings
}

#[cfg(test)]
#[path = "../../../tests/unit/backend/host/two_level.rs"]
mod tests;
