//! What serves a group's calls: its communicator or those of its hosts, and the backends opened for it.

use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::dispatch::Facts;
use super::explain::Backend;
use super::host::HostBackend;
use super::host::failure_cause::aborted;
use super::host::two_level::TwoLevel;
use super::host::wire::Engines;
use super::hosts::Hosts;
use super::nccl::Ranks;
use crate::bootstrap::hello::together;
use crate::bootstrap::{Bootstrap, until};
use crate::collective::Communicator;
use crate::device::DeviceKind;
use crate::error::{Error, Operation, Result};
use crate::group::Determinism;
use crate::op::{Call, Shape};
use crate::stream::{Enqueue, Stream};

/// Whether this process said that there is no NCCL.
static SAID: Once = Once::new();

/// What groups of the same ranks share.
pub(crate) struct GroupBackends {
    // Goes first: what is dropped behind it waits for a device on which a kernel of NCCL's may wait for good.
    nccl: OnceCell<Ranks>,
    reach: Reach,
    /// Which of the group's ranks this is.
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// The interface that an engine speaks over.
    interface: Option<String>,
    mesh: OnceCell<HostBackend>,
    /// Held by a call through the CPU: what it tells the others and what it does belong together.
    turn: Mutex<()>,
    /// What went wrong first in a backend of others.
    failure: OnceCell<Error>,
}

/// Where a group's ranks are.
pub(crate) enum Reach {
    /// All on this host.
    Own(Communicator),
    /// On several.
    Spanning(TwoLevel),
}

impl GroupBackends {
    /// Opens the backends that the group needs, and says what its ranks agreed on. Collective; blocks.
    pub(crate) fn open(
        reach: Reach,
        (ranks, rank): (&[usize], usize),
        hosts: &Hosts,
        forced: Option<Backend>,
        interface: Option<&str>,
    ) -> Result<(Arc<Self>, Arc<Facts>)> {
        let rank = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        let unopened = || "it is opened where a group needs it or is told to use it".to_owned();
        let (nccl, mesh, turn, failure) = (OnceCell::new(), OnceCell::new(), Mutex::new(()), OnceCell::new());
        let (world_size, interface) = (ranks.len(), interface.map(str::to_owned));
        let serving = Self { reach, rank, world_size, interface, nccl, mesh, turn, failure };
        let exact = serving.local().group().config().determinism == Determinism::Exact;
        let facts = Facts { hosts: hosts.of_group(ranks), forced, exact, nccl: Err(unopened()), host: Err(unopened()) };
        let facts = serving.equip(facts)?;
        Ok((Arc::new(serving), Arc::new(facts)))
    }

    /// Refuses that ranks ask for different backends: some would wait for the others where those never come.
    /// Collective; blocks. The same outcome on every rank that asks.
    pub(crate) fn unanimous(&self, backend: Backend) -> Result<()> {
        let all = self.all_gather_bytes(backend.name().as_bytes())?;
        let said = |rank: usize| match std::str::from_utf8(&all[rank]).ok().and_then(|name| name.parse().ok()) {
            Some(backend) => Backend::name(backend).to_owned(),
            None => "something else than a backend".to_owned(),
        };
        match (1..all.len()).find(|rank| all[*rank] != all[0]) {
            None => Ok(()),
            Some(rank) => {
                let (what, ours, theirs) = ("the backend to go through".to_owned(), said(0), said(rank));
                Err(Error::Mismatch { what, against: 0, ours, rank, theirs })
            }
        }
    }

    /// Finds out whether what `facts` ask for can be had on every rank, and opens what is needed.
    /// Collective; blocks. What is open already stays so.
    pub(crate) fn equip(&self, mut facts: Facts) -> Result<Facts> {
        let asked = |backend: Backend| match facts.forced {
            Some(forced) => forced == backend,
            None => facts.hosts.len() > 1,
        };
        let (nccl, host) = (asked(Backend::Nccl), asked(Backend::Host));
        if self.world_size == 1 || !(nccl || host) {
            return Ok(facts);
        }
        if nccl {
            facts.nccl = self.agree(Ranks::available(self.local().device()))?;
            match &facts.nccl {
                Err(reason) if facts.forced == Some(Backend::Nccl) => {
                    SAID.call_once(|| tracing::warn!("NCCL was asked for and cannot be used: {reason}"));
                }
                Err(reason) if self.local().device().kind() != DeviceKind::Host => {
                    SAID.call_once(|| tracing::warn!("NCCL cannot be used, others do what it would: {reason}"));
                }
                _ => {}
            }
        }
        if host {
            let engine = self.engines();
            let lacking = engine.as_ref().err().map(|error| match error {
                Error::Unsupported { reason, .. } => reason.clone(),
                error => error.to_string(),
            });
            facts.host = self.agree(lacking.map_or(Ok(()), Err))?;
            if let (Ok(engines), true) = (engine, facts.needs(Backend::Host)) {
                self.together("connect the ranks", self.connect(&engines))?;
            }
        }
        if facts.needs(Backend::Nccl) {
            self.together("open NCCL", self.open_nccl())?;
        }
        Ok(facts)
    }

    /// Runs a call on the backend that was selected for it.
    pub(crate) fn run(&self, backend: Backend, facts: &Facts, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        if backend == Backend::Own {
            return self.local().run(call, queue);
        }
        self.check()?;
        let device = self.local().device();
        device.check_same("stream", queue.stream().device())?;
        let shape = call.check(self.rank, self.world_size, device)?;
        let absent = || Error::Internal { message: format!("the backend {backend} was chosen and is not open") };
        let run = match backend {
            Backend::Nccl => {
                let ranks = self.nccl.get().ok_or_else(absent)?;
                // A group that spans hosts has no memory in common to note and compare in.
                let noted = self.own().map_or(Ok(()), |own| own.announce_elsewhere(call.noted_by_nccl(), queue));
                noted.and_then(|()| ranks.run(call, &shape, queue))
            }
            _ => self.through_cpu(self.mesh.get().ok_or_else(absent)?, facts, call, &shape, queue.stream()),
        };
        run.map_err(|error| self.fail(error))
    }

    /// Errors have the group's numbers. All ranks compare what they call before any of them goes one of the two ways.
    fn through_cpu(
        &self,
        mesh: &HostBackend,
        facts: &Facts,
        call: &Call<'_>,
        shape: &Shape,
        stream: &Stream,
    ) -> Result<()> {
        let _turn = self.turn.lock();
        if let Reach::Spanning(spanning) = &self.reach {
            spanning.announce_call(call)?;
        }
        mesh.agree(call, shape, stream)?;
        match &self.reach {
            Reach::Spanning(spanning) if TwoLevel::serves(call) && !facts.exact => spanning.all_reduce(call, stream),
            _ => mesh.run(call, shape, stream),
        }
    }

    /// The group's ranks on this host.
    pub(crate) fn local(&self) -> &Communicator {
        match &self.reach {
            Reach::Own(communicator) => communicator,
            Reach::Spanning(spanning) => spanning.local(),
        }
    }

    /// What runs the group's collectives, if all its ranks are on this host.
    pub(crate) fn own(&self) -> Option<&Communicator> {
        match &self.reach {
            Reach::Own(communicator) => Some(communicator),
            Reach::Spanning(_) => None,
        }
    }

    /// What went wrong first.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        self.members().map_err(|error| self.fail(error))?;
        self.nccl.get().map_or(Ok(()), |ranks| ranks.check().map_err(|error| self.fail(error)))
    }

    /// Whether the ranks are well, as far as the group knows without a backend of others.
    fn members(&self) -> Result<()> {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().check(),
            Reach::Spanning(spanning) => spanning.check(),
        }
    }

    /// The same of those on this host, without asking anybody.
    fn neighbours(&self) -> Result<()> {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().check(),
            Reach::Spanning(spanning) => spanning.check_host(),
        }
    }

    /// Makes `error`, which has the group's numbers, its failure, unless nothing had begun, and lets nobody wait
    /// for this rank.
    fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. } | Error::Closed) {
            return error;
        }
        let failure = self.failure.get_or_init(|| {
            self.abandon();
            // NCCL fails, and a connection breaks, in the wake of what the group knows more of.
            let in_the_wake = matches!(error, Error::Nccl { .. } | Error::Bootstrap { .. });
            let known = if in_the_wake { self.neighbours().err() } else { None };
            let error = known.unwrap_or(error);
            // The ranks of this host are told before connections break.
            let cut = || self.mesh.get().iter().for_each(|mesh| mesh.end());
            match &self.reach {
                Reach::Own(communicator) => {
                    let failure = communicator.group().fail(error);
                    cut();
                    failure
                }
                Reach::Spanning(spanning) => spanning.end(error, cut),
            }
        });
        failure.clone()
    }

    /// Ends the group on every rank, for a reason of the caller's.
    pub(crate) fn abort(&self, reason: &str) {
        if self.members() != Err(Error::Closed) {
            self.fail(aborted(reason));
        }
    }

    /// Ends what waits for others without a deadline of its own.
    pub(crate) fn abandon(&self) {
        self.nccl.get().iter().for_each(|ranks| ranks.abort());
    }

    /// Blocks until all work of `stream` is done, then says whether it was done well.
    pub(crate) fn synchronize(&self, stream: &Stream) -> Result<()> {
        match self.nccl.get() {
            None => stream.synchronize()?,
            Some(ranks) => {
                let deadlines = self.local().group().config().deadlines;
                let late = |operation, waited| self.late(operation, waited);
                ranks.synchronize(stream, deadlines, || self.members(), late).map_err(|error| self.fail(error))?;
            }
        }
        self.check()
    }

    /// Keeps the order of calls without `stream`, in every backend.
    pub(crate) fn leave(&self, stream: &Stream) -> Result<()> {
        let nccl = self.nccl.get().map_or(Ok(()), |ranks| ranks.leave(stream));
        self.local().leave(stream).and(nccl)
    }

    fn late(&self, operation: Operation, waited: Duration) -> Error {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().late(operation, waited),
            Reach::Spanning(_) => {
                let detail = ": it went by NCCL, between hosts".to_owned();
                Error::Timeout { operation, sequence: 0, rank: None, waited, detail }
            }
        }
    }

    /// Gives `bytes` to every rank of the group and returns those of all, in its order. Blocks.
    pub(crate) fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        match &self.reach {
            Reach::Own(communicator) => communicator.group().all_gather_bytes(bytes),
            Reach::Spanning(spanning) => spanning.all_gather_bytes(bytes),
        }
    }

    /// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed.
    pub(crate) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        together(what, local, |words| self.all_gather_bytes(words))
    }

    /// Closes what was opened for the group. Collective; blocks.
    pub(crate) fn close(&self) -> Result<()> {
        // NCCL of a group that failed is aborted by this, and not waited for.
        let _ = self.check();
        let nccl = self.nccl.get().map_or(Ok(()), |ranks| {
            let limit = self.local().group().config().deadlines.open;
            let late = |operation, waited| self.late(operation, waited);
            ranks.close(limit, || self.members(), late, |bytes| self.all_gather_bytes(bytes))
        });
        self.mesh.get().iter().for_each(|mesh| mesh.end());
        let closed = match &self.reach {
            Reach::Own(communicator) => communicator.clone().close(),
            Reach::Spanning(spanning) => spanning.close(),
        };
        self.failure.get().map_or(closed.and(nccl), |error| Err(error.clone()))
    }

    /// Whether every rank has something; else why not, by the word of the lowest rank that has not.
    fn agree(&self, own: Result<(), String>) -> Result<Result<(), String>> {
        let words = own.err().unwrap_or_default();
        let all = self.all_gather_bytes(words.as_bytes())?;
        let lacking = all.iter().enumerate().find(|(_, words)| !words.is_empty());
        Ok(lacking.map_or(Ok(()), |(rank, words)| Err(format!("rank {rank}: {}", String::from_utf8_lossy(words)))))
    }

    /// Ranks of one host speak over loopback unless told otherwise.
    fn engines(&self) -> Result<Engines> {
        let hosts = Hosts::new(&[]);
        Engines::open(Some(self.interface.as_deref().unwrap_or("127.0.0.1")), &hosts)
    }

    fn connect(&self, engines: &Engines) -> Result<()> {
        let everyone: Vec<usize> = (0..self.world_size).collect();
        let deadlines = self.local().group().config().deadlines;
        let connected = || -> Result<HostBackend> {
            let wire = engines.connect(&mut Members(self), Some(&everyone), until(deadlines.open))?;
            let wire = wire.ok_or_else(|| Error::Internal { message: "a rank has no connections".to_owned() })?;
            Ok(HostBackend::new(wire, deadlines))
        };
        self.mesh.get_or_try_init(connected).map(drop)
    }

    fn open_nccl(&self) -> Result<()> {
        let (group, ranks) = (self.local().group(), [self.rank, self.world_size]);
        self.nccl.get_or_try_init(|| Ranks::open(group, ranks, |bytes| self.all_gather_bytes(bytes))).map(drop)
    }
}

/// A group as its ranks meet: what engines exchange addresses by.
struct Members<'a>(&'a GroupBackends);

impl Bootstrap for Members<'_> {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn world_size(&self) -> usize {
        self.0.world_size
    }

    fn all_gather(&mut self, bytes: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather_bytes(bytes)
    }
}
