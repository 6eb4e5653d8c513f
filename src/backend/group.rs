//! The backends of a group: the communicator of its ranks or of its hosts, and the backends opened in addition.

mod members;
mod open;

use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::dispatch::Facts;
use super::explain::Backend;
use super::host::HostBackend;
use super::host::failure_cause::aborted;
use super::host::late;
use super::host::two_level::TwoLevel;
use super::nccl::Ranks;
use crate::bootstrap::hello::together;
use crate::collective::Communicator;
use crate::error::{Error, Operation, Result};
use crate::group::REPORT;
use crate::op::{Call, CheckedShape, NormStep, NormSteps, Numbers, RankMessage, check_pairs};
use crate::stream::{Stream, Target};

pub(crate) use members::Members;

/// The state that groups of the same ranks share.
pub(crate) struct GroupBackends {
    // Dropped first: later fields wait for the device, on which an NCCL kernel may wait forever.
    nccl: OnceCell<Ranks>,
    reach: GroupHosts,
    /// This rank's number in the group.
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// The network interface of engines.
    interface: Option<String>,
    mesh: OnceCell<HostBackend>,
    /// The number of calls through the CPU so far. Held by a call from its announcement to its end.
    turn: Mutex<u64>,
    /// The first failure of NCCL or the host backend.
    failure: OnceCell<Error>,
}

/// The hosts of a group's ranks.
pub(crate) enum GroupHosts {
    /// All ranks on this host.
    Own(Communicator),
    /// Ranks on several hosts.
    Spanning(Box<TwoLevel>),
}

impl GroupBackends {
    /// Names the group in errors and warnings. `ranks` has the world rank of each rank. The first name stays.
    pub(crate) fn call_by(&self, name: &str, ranks: &[usize]) {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator.group().call_by(name, ranks, true),
            GroupHosts::Spanning(spanning) => spanning.call_by(name),
        }
    }

    /// Refuses different backends on different ranks, because ranks would wait for peers that never make the call.
    /// Every rank gets the same result. Collective; blocks.
    pub(crate) fn unanimous(&self, backend: Backend) -> Result<()> {
        let all = self.all_gather_for("go through a backend", backend.name().as_bytes())?;
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

    /// Runs a call on the backend that was selected for the call.
    pub(crate) fn run(&self, backend: Backend, facts: &Facts, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        match backend {
            Backend::Quantised => return self.run_quantised(facts, call, queue),
            Backend::Own => return self.local().run(call, queue),
            Backend::Nccl | Backend::Host => {}
        }
        self.check()?;
        let device = self.local().device();
        device.check_same("stream", queue.stream().device())?;
        let shape = call.check(self.rank, self.world_size, device)?;
        // Refuses a norm whose sum has no memory before anything is enqueued.
        let steps = match call.numbers {
            Numbers::Norm(rows) => Some(call.steps(rows, &shape)?),
            _ => None,
        };
        let run = match backend {
            Backend::Nccl => {
                let ranks = self.nccl.get().ok_or_else(|| absent(backend))?;
                // A group that spans hosts has no common memory for a history or a comparison.
                let noted = self.own().map_or(Ok(()), |own| own.announce_elsewhere(call.noted_by_nccl(), queue));
                let run = |call: &Call<'_>, shape: &CheckedShape| ranks.run(call, shape, queue);
                noted.and_then(|()| self.in_parts(call, &shape, steps.as_ref(), queue, run))
            }
            _ => self.through_cpu(facts, call, &shape, steps.as_ref(), queue),
        };
        run.map_err(|error| self.fail(error))
    }

    /// Runs an all-reduce with the configured codec. The sum of a norm uses the codec, and a kernel norms the rows. A
    /// sum that does not fit as one piece uses the unquantised kernels, which sum and norm at once.
    fn run_quantised(&self, facts: &Facts, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        let (communicator, by_codec) = (self.local(), facts.by_codec(call));
        let Numbers::Norm(rows) = call.numbers else { return communicator.run(&by_codec, queue) };
        let shape = call.check(self.rank, self.world_size, communicator.device())?;
        match call.steps(rows, &shape).and_then(NormSteps::in_one_sum) {
            Ok(_) => communicator.run(&by_codec, queue),
            Err(error) if facts.forced == Some(Backend::Quantised) => Err(error),
            Err(_) => communicator.run(call, queue),
        }
    }

    /// Runs messages between pairs on the backend that was selected for the messages.
    pub(crate) fn run_pairs(&self, backend: Backend, messages: &[RankMessage], queue: Target<'_>) -> Result<()> {
        if !matches!(backend, Backend::Nccl) {
            return self.local().run_pairs(messages, queue);
        }
        self.check()?;
        let device = self.local().device();
        device.check_same("stream", queue.stream().device())?;
        check_pairs(messages, self.rank, self.world_size, device)?;
        let ranks = self.nccl.get().ok_or_else(|| absent(backend))?;
        ranks.run_pairs(messages, queue).map_err(|error| self.fail(error))
    }

    /// Runs a compared call: a norm by its steps, any other call directly.
    fn in_parts(
        &self,
        call: &Call<'_>,
        shape: &CheckedShape,
        steps: Option<&NormSteps<'_>>,
        queue: Target<'_>,
        run: impl Fn(&Call<'_>, &CheckedShape) -> Result<()>,
    ) -> Result<()> {
        let Some(steps) = steps else { return run(call, shape) };
        steps.each(|step| match step {
            NormStep::Collective(call, shape) => run(&call, &shape),
            NormStep::Local(local, rows) => self.local().norm_local(call, rows, &local, queue),
        })
    }

    /// Errors have rank numbers of the group. All ranks compare their calls before any rank takes one of the two paths.
    fn through_cpu(
        &self,
        facts: &Facts,
        call: &Call<'_>,
        shape: &CheckedShape,
        steps: Option<&NormSteps<'_>>,
        queue: Target<'_>,
    ) -> Result<()> {
        let mesh = self.mesh.get().ok_or_else(|| absent(Backend::Host))?;
        let stream = queue.stream();
        // Before the lock, because another thread may hold the lock and wait for the call whose callback makes this call.
        if let GroupHosts::Spanning(spanning) = &self.reach
            && (steps.is_some() || TwoLevel::serves(call))
        {
            spanning.local().refuse_within(call.op.operation)?;
        }
        let mut turn = self.turn.lock();
        let sequence = *turn;
        *turn += 1;
        let run = || {
            if let GroupHosts::Spanning(spanning) = &self.reach {
                spanning.announce_call(call)?;
            }
            mesh.agree(call, shape, stream)?;
            self.in_parts(call, shape, steps, queue, |call, shape| match &self.reach {
                GroupHosts::Spanning(spanning) if TwoLevel::serves(call) && !facts.exact => {
                    spanning.all_reduce(call, stream)
                }
                _ => mesh.run(call, shape, stream),
            })
        };
        run().map_err(|error: Error| late::in_operation(error, call.op.operation, sequence))
    }

    /// The communicator of the group's ranks on this host.
    pub(crate) fn local(&self) -> &Communicator {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator,
            GroupHosts::Spanning(spanning) => spanning.local(),
        }
    }

    /// The group's communicator, if all its ranks are on this host.
    pub(crate) fn own(&self) -> Option<&Communicator> {
        match &self.reach {
            GroupHosts::Own(communicator) => Some(communicator),
            GroupHosts::Spanning(_) => None,
        }
    }

    /// The first failure of the group.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        self.members().map_err(|error| self.fail(error))?;
        self.nccl.get().map_or(Ok(()), |ranks| ranks.check().map_err(|error| self.fail(error)))
    }

    /// Whether the ranks are healthy, without contacting NCCL.
    fn members(&self) -> Result<()> {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator.group().check(),
            GroupHosts::Spanning(spanning) => spanning.check(),
        }
    }

    /// Whether the ranks on this host are healthy, without contacting other ranks.
    fn neighbours(&self) -> Result<()> {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator.group().check(),
            GroupHosts::Spanning(spanning) => spanning.check_host(),
        }
    }

    /// The ranks on this host.
    fn on_host(&self) -> Vec<usize> {
        match &self.reach {
            GroupHosts::Own(_) => (0..self.world_size).collect(),
            GroupHosts::Spanning(spanning) => spanning.on_host(),
        }
    }

    /// The failure that the ranks of this host report within [`REPORT`], if the late rank is on this host. The late
    /// rank may itself have waited for another rank by the same deadline.
    fn reported_by(&self, late: usize) -> Option<Error> {
        if !matches!(self.reach, GroupHosts::Spanning(_)) || !self.on_host().contains(&late) {
            return None;
        }
        let end = Instant::now() + REPORT;
        loop {
            match self.neighbours() {
                Ok(()) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                known => return known.err(),
            }
        }
    }

    /// Records `error`, which has rank numbers of the group, as the group's failure, unless the call had not begun, and
    /// makes peers stop waiting for this rank.
    fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. } | Error::Closed) {
            return error;
        }
        let failure = self.failure.get_or_init(|| {
            self.abandon();
            // NCCL fails, and connections break, as a consequence of failures about which the group has better
            // information.
            let known = match &error {
                Error::Nccl { .. } | Error::Bootstrap { .. } => self.neighbours().err(),
                Error::Timeout { rank: Some(late), .. } => self.reported_by(*late),
                _ => None,
            };
            let error = known.unwrap_or(error);
            // Notifies the ranks of this host before connections break.
            let cut = || self.mesh.get().iter().for_each(|mesh| mesh.end());
            match &self.reach {
                GroupHosts::Own(communicator) => {
                    let failure = communicator.group().fail(error);
                    cut();
                    failure
                }
                GroupHosts::Spanning(spanning) => spanning.end(error, cut),
            }
        });
        failure.clone()
    }

    /// Aborts the group on every rank, with the caller's reason.
    pub(crate) fn abort(&self, reason: &str) {
        // A forked child is not a rank.
        if self.local().device().is_here() && self.members() != Err(Error::Closed) {
            self.fail(aborted(reason));
        }
    }

    /// Ends waits that have no deadline.
    pub(crate) fn abandon(&self) {
        self.nccl.get().iter().for_each(|ranks| ranks.abort());
    }

    /// Blocks until all work of `stream` is done, and returns its error if it failed.
    pub(crate) fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.local().device().check_same("stream", stream.device())?;
        match self.nccl.get() {
            None => self.local().group().wait_for(stream)?,
            Some(ranks) => {
                let deadlines = self.local().group().config().deadlines;
                let late = |operation, waited| self.late(operation, waited);
                ranks.synchronize(stream, deadlines, || self.members(), late).map_err(|error| self.fail(error))?;
            }
        }
        self.check()?;
        self.local().note_ended();
        self.own().map_or(Ok(()), |communicator| communicator.group().confirm().map_err(|error| self.fail(error)))
    }

    /// Detaches `stream` from every backend: calls stay ordered without it.
    pub(crate) fn leave(&self, stream: &Stream) -> Result<()> {
        self.local().device().check_same("stream", stream.device())?;
        let nccl = self.nccl.get().map_or(Ok(()), |ranks| ranks.leave(stream));
        self.local().leave(stream).and(nccl)
    }

    fn late(&self, operation: Operation, waited: Duration) -> Error {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator.group().late(operation, waited),
            GroupHosts::Spanning(_) => {
                let detail = ": it went by NCCL, between hosts".to_owned();
                Error::Timeout { operation, sequence: 0, rank: None, waited, detail }
            }
        }
    }

    /// Sends `bytes` to every rank of the group for the collective call named `call`, and returns the bytes of all, in
    /// rank order. Blocks.
    pub(crate) fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        match &self.reach {
            GroupHosts::Own(communicator) => communicator.group().all_gather_for(call, bytes),
            GroupHosts::Spanning(spanning) => spanning.all_gather_for(call, bytes),
        }
    }

    /// `local` if every rank succeeded; else this rank's error, or that of the lowest rank that failed.
    pub(crate) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        together(what, local, |words| self.all_gather_for(what, words))
    }

    /// Closes the backends of the group. Collective; blocks.
    pub(crate) fn close(&self) -> Result<()> {
        self.local().device().check_process("a group")?;
        // If the group has failed, this aborts NCCL, so that closing does not wait for it.
        let _ = self.check();
        let nccl = self.nccl.get().map_or(Ok(()), |ranks| {
            let limit = self.local().group().config().deadlines.open;
            let late = |operation, waited| self.late(operation, waited);
            ranks.close(limit, || self.members(), late, |bytes| self.all_gather_for("close", bytes))
        });
        self.mesh.get().iter().for_each(|mesh| mesh.end());
        let closed = match &self.reach {
            GroupHosts::Own(communicator) => communicator.clone().close(),
            GroupHosts::Spanning(spanning) => spanning.close(),
        };
        self.failure.get().map_or(closed.and(nccl), |error| Err(error.clone()))
    }

    /// Leaves the group without the other ranks.
    pub(crate) fn depart(&self) -> Result<()> {
        match (&self.reach, self.nccl.get(), self.mesh.get()) {
            (GroupHosts::Own(communicator), None, None) => communicator.clone().depart(),
            _ => Err(Error::unsupported(
                "departing from a group that NCCL or the CPU serves",
                "its ranks need each other to end: close the group",
            )),
        }
    }

    /// The group as a bootstrap. Different ranks must not use it for different calls at the same time.
    pub(crate) fn as_bootstrap(&self) -> Members<'_> {
        Members(self, String::new())
    }
}

/// The error for a backend that was chosen but not opened.
fn absent(backend: Backend) -> Error {
    Error::unsupported(format!("a call by the backend {backend}"), "the group opened without it")
}
