//! One parallel group of an environment.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::origin::Origin;
use crate::backend::{Backend, Explanation, Facts, GroupBackends, GroupCalls, ProcessGroup, Request};
use crate::collective::{BoundAllReduce, Communicator, Pending};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::{ALL_GATHER, Call, RankMessage};
use crate::stream::{Capture, Graph, Kept, Stream, Target};
use crate::types::Dtype;

/// A parallel group of an [`Environment`](super::Environment): its ranks and its operations. Each call runs on the
/// first backend that serves it: see [`explain`](Self::explain).
///
/// Cheap to clone. Any thread may use it, but all ranks must make the same calls in the same order, whichever threads
/// make them: give each thread that calls independently a group from [`split`](Self::split). [`Communicator`] describes
/// the failures otherwise, and [`tagged`](Self::tagged) detects them. A group of one rank serves every call alone.
/// [`Error::Unsupported`] names the reason why no backend serves a call. A call on [`Backend::Host`] blocks. Its
/// failure is final and has the group's rank numbers: [`Error::PeerLost`] for a lost rank, [`Error::Timeout`] after a
/// deadline, [`Error::Bootstrap`] for a broken connection, [`Error::Mismatch`] for unequal calls, [`Error::Aborted`].
#[derive(Clone)]
#[must_use = "dropping the last clone leaves the group"]
pub struct Coordinator {
    name: &'static str,
    serving: Arc<GroupBackends>,
    facts: Arc<Facts>,
    /// The ranks of the group in order, by their numbers in the world.
    ranks: Arc<[usize]>,
    /// This rank's number in the group.
    rank: usize,
    origin: Arc<Origin>,
    /// The tag of the calls of this handle; 0 for none.
    tag: u64,
}

/// A group's backends, and the facts about them on which its ranks agreed.
pub(super) struct Serving {
    pub(super) backends: Arc<GroupBackends>,
    pub(super) facts: Arc<Facts>,
}

impl Coordinator {
    /// `rank`: the world rank of one of `ranks`.
    pub(super) fn new(
        name: &'static str,
        serving: Serving,
        ranks: Vec<usize>,
        rank: usize,
        origin: Arc<Origin>,
    ) -> Self {
        let Serving { backends, facts } = serving;
        let rank = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        // Groups with the same ranks share one communicator, which takes the name of the first group. A group that was
        // opened alone is not part of a world.
        if origin.alone.is_none() {
            backends.call_by(name, &ranks);
        }
        Self { name, serving: backends, facts, ranks: ranks.into(), rank, origin, tag: 0 }
    }

    /// The parts that groups of the same ranks share.
    pub(super) fn shared(&self) -> Serving {
        Serving { backends: self.serving.clone(), facts: self.facts.clone() }
    }

    pub(super) fn serving(&self) -> &Arc<GroupBackends> {
        &self.serving
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The ranks of the group by host.
    pub(crate) fn ranks_by_host(&self) -> Vec<Vec<usize>> {
        self.origin.hosts.parts(self.ranks())
    }

    /// `world`, `tp`, `pp`, `dp` or `ep`; `group` for a group that belongs to no environment.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The communicator of a group on one host. Groups of the same ranks share one communicator.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a group that spans hosts: call the coordinator's operations.
    pub fn communicator(&self) -> Result<&Communicator> {
        self.serving.own().ok_or_else(|| {
            let reason = format!("its ranks are on {}", self.facts.places());
            Error::unsupported(format!("a communicator of the group {}", self.name), reason)
        })
    }

    /// The communicator of the group's ranks on this host. For a group on one host these are all ranks.
    pub fn local(&self) -> &Communicator {
        self.serving.local()
    }

    /// A coordinator of this group that uses one backend, opened if necessary. A call that the backend does not serve
    /// is an error. Every rank must make a call through the same backend. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if they name different backends; nothing changes then. [`Error::Peer`] or this
    /// rank's error if the backend cannot be opened; the group's error if the group has failed. If the backend is not
    /// available at all, each call fails instead.
    pub fn through(&self, backend: Backend) -> Result<Self> {
        self.serving.unanimous(backend)?;
        let facts = self.serving.equip(Facts { forced: Some(backend), ..(*self.facts).clone() })?;
        Ok(Self { facts: Arc::new(facts), ..self.clone() })
    }

    /// The backends in the order of choice, with the calls that each serves and refuses. Equal on every rank of the
    /// group.
    pub fn explain(&self) -> Vec<Explanation> {
        self.facts.explain()
    }

    /// A handle of this group whose collective calls carry `tag`, which ranks compare, on every backend: see
    /// [`Communicator::tagged`]. NCCL compares no tags between hosts. Experts on symmetra kernels use only the tag of a
    /// communicator: open them over [`communicator`](Self::communicator).
    pub fn tagged(&self, tag: u64) -> Self {
        Self { tag, ..self.clone() }
    }

    fn select(&self, request: &Request) -> Result<Backend> {
        self.facts.select(request).map_err(|reason| {
            let reduction = request.reduction.map(|reduction| format!(" ({reduction})")).unwrap_or_default();
            let graph = if request.captured { " in a graph" } else { "" };
            let (dtype, places) = (request.dtype, self.facts.places());
            let what =
                format!("{}{reduction} of {dtype}{graph} by the group {} on {places},", request.operation, self.name);
            Error::unsupported(what, reason)
        })
    }

    /// The communicator for a form of a call that only symmetra kernels serve.
    fn on_own_kernels(&self, call: &Call<'_>, captured: bool) -> Result<&Communicator> {
        self.select(&Request { named: true, ..Request::of(call, captured) })?;
        self.communicator()
    }

    /// Blocks until all work of `stream` is done, and returns its error if it failed.
    ///
    /// NCCL's kernels have no deadline. If NCCL has served the group, all work of the stream must end within
    /// `deadlines.steady` from here, or `deadlines.first_use` until one wait has succeeded; a lost rank, an abort and
    /// an error of NCCL are detected at once. [`Stream::synchronize`](crate::Stream::synchronize) and buffer reads
    /// detect none of these: synchronize here first.
    ///
    /// # Errors
    /// The group's error if a collective gave up, the device's if work failed; [`Error::InvalidArgument`] for a stream
    /// of another device. If NCCL served: [`Error::Timeout`] with the operation and, if known, the rank that had not
    /// enqueued it.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.serving.synchronize(stream)
    }

    /// Detaches a stream: no backend of the group needs the stream any more, neither for calls nor to close. Call this
    /// before destroying a borrowed stream, on every group that used the stream. Coordinators of one group from
    /// [`through`](Self::through) count as one. The stream's work need not be done. Does not block.
    ///
    /// # Errors
    /// [`Error::Device`] if the runtime cannot record an event; [`Error::InvalidArgument`] for a stream of another device.
    pub fn leave(&self, stream: &Stream) -> Result<()> {
        self.serving.leave(stream)
    }

    /// Aborts the group on every rank: waits give up, NCCL is aborted, connections between hosts break, and later calls
    /// fail with [`Error::Aborted`], on this rank with `reason`. Any thread may call this, more than once. On one host
    /// it blocks only for NCCL's abort. A group that spans hosts exchanges the cause with the other ranks once. The
    /// exchange takes at most two seconds, after the end of any call through the CPU.
    ///
    /// Ranks on other hosts receive the reason in the same exchange, which each environment makes once, for its first
    /// group that fails. For a later group, or if some rank does not answer in time, those ranks fail with
    /// [`Error::Bootstrap`] or with another error that they detect.
    ///
    /// A call through the CPU on another thread is not interrupted: Gloo waits until the call's deadline
    /// (`deadlines.steady` or `deadlines.first_use`). This function waits too, and then breaks the connections.
    pub fn abort(&self, reason: &str) {
        self.serving.abort(reason);
    }

    /// Stops waiting for peers, as dropping the environment does.
    pub(super) fn abandon(&self) {
        self.serving.abandon();
    }

    /// Captures a graph on every rank of the group: records the calls in the closure, of this group and of groups
    /// inside it, and exchanges new pointers. Every rank gets its graph, or none does. All ranks launch the graph
    /// equally often. A rank without messages records no [`pairs`](ProcessGroup::pairs). Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`Stream::capture`](crate::Stream::capture) and [`Graph::register`](crate::Graph::register);
    /// [`Error::Peer`] if another rank failed.
    pub fn capture<'env>(
        &self,
        stream: &Stream,
        record: impl for<'scope> FnOnce(&Capture<'scope, 'env>) -> Result<()>,
    ) -> Result<Graph<'env>> {
        let graph = self.serving.together("capture a graph", stream.capture(record))?;
        self.serving.together("register a graph", graph.register())?;
        Ok(graph)
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        self.local().device()
    }

    /// The number of this rank in the group.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks in the group.
    pub fn world_size(&self) -> usize {
        self.ranks.len()
    }

    /// The group's ranks in order, by their numbers in the world.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The world rank of the first rank.
    pub fn first_rank(&self) -> usize {
        self.ranks[0]
    }

    /// The world rank of the last rank.
    pub fn last_rank(&self) -> usize {
        self.ranks[self.ranks.len() - 1]
    }

    /// Whether this is the first rank: in a pipeline, the stage that embeds.
    pub fn is_first_rank(&self) -> bool {
        self.rank() == 0
    }

    /// Whether this is the last rank: in a pipeline, the stage that samples.
    pub fn is_last_rank(&self) -> bool {
        self.rank() + 1 == self.world_size()
    }

    /// The world rank of the rank after this one; after the last rank follows the first.
    pub fn next_rank(&self) -> usize {
        self.ranks[(self.rank() + 1) % self.world_size()]
    }

    /// The world rank of the rank before this one; before the first rank comes the last.
    pub fn previous_rank(&self) -> usize {
        self.ranks[(self.rank() + self.world_size() - 1) % self.world_size()]
    }

    /// Blocks until every rank of the group has called it. Does not wait for work on streams.
    ///
    /// # Errors
    /// The errors of [`Group::barrier`](crate::Group::barrier); [`Error::Mismatch`](crate::Error::Mismatch) if a rank
    /// makes another collective call instead.
    pub fn barrier(&self) -> Result<()> {
        self.all_gather_for("barrier", &[]).map(drop)
    }

    /// Gathers bytes from every rank for the collective call named `call`.
    pub(crate) fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.serving.all_gather_for(call, bytes)
    }

    /// Returns `local` if every rank succeeded, else an error on every rank.
    pub(super) fn together<T>(&self, what: &str, local: Result<T>) -> Result<T> {
        self.serving.together(what, local)
    }

    pub(super) fn check_root(&self, root: usize) -> Result<()> {
        match root < self.world_size() {
            true => Ok(()),
            false => {
                let limit = format!("the group {} has {} ranks", self.name, self.world_size());
                Err(Error::invalid("the root", root, limit))
            }
        }
    }
}

impl Deref for Coordinator {
    type Target = ProcessGroup;

    fn deref(&self) -> &ProcessGroup {
        ProcessGroup::of(self)
    }
}

/// The first backend that serves a call runs the call.
impl GroupCalls for Coordinator {
    fn share(&self) -> Arc<dyn GroupCalls> {
        Arc::new(self.clone())
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.ranks.len()
    }

    fn local(&self) -> &Communicator {
        self.serving.local()
    }

    fn own(&self) -> Option<&Communicator> {
        let request = Request::of(&Call::new(&ALL_GATHER, Dtype::U8), false);
        let own = matches!(self.facts.select(&request), Ok(Backend::Own));
        self.serving.own().filter(|_| own)
    }

    fn run(&self, call: &Call<'_>, queue: Target<'_>) -> Result<()> {
        let call = &*call.tagged(self.tag);
        let mut request = Request::of(call, queue.recording().is_some());
        let mut backend = self.select(&request)?;
        // A blocking backend would end a native capture, and with it the group.
        if backend == Backend::Host && queue.stream().is_capturing()? {
            request.captured = true;
            backend = self.select(&request)?;
        }
        self.serving.run(backend, &self.facts, call, queue)
    }

    fn run_pairs(&self, messages: &[RankMessage], queue: Target<'_>) -> Result<()> {
        let backend = self.select(&Request::of_pairs(queue.recording().is_some()))?;
        self.serving.run_pairs(backend, messages, queue)
    }

    fn run_low_contention<'op>(&self, call: &Call<'_>, queue: Target<'_>) -> Result<Pending<'op>> {
        let own = self.on_own_kernels(call, queue.recording().is_some())?;
        own.run_low_contention(&call.tagged(self.tag), queue)
    }

    fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        self.communicator()?.reserve_workspace(bytes)
    }

    fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>> {
        match self.select(&Request::of(call, false))? {
            Backend::Quantised => self.communicator()?.bind(&self.facts.by_codec(call).tagged(self.tag), kept),
            _ => self.on_own_kernels(call, false)?.bind(&call.tagged(self.tag), kept),
        }
    }

    fn check_served(&self, call: &Call<'_>, recorded: bool, captured: bool) -> Result<()> {
        match (self.select(&Request::of(call, captured))?, self.serving.own()) {
            (Backend::Own, Some(own)) => own.check_operands(call, recorded),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<()> {
        self.serving.check()
    }

    fn abort(&self, reason: &str) {
        self.serving.abort(reason);
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.serving.synchronize(stream)
    }

    fn all_gather_for(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.serving.all_gather_for(call, bytes)
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Coordinator({}: rank {} of {:?})", self.name, self.rank, self.ranks)
    }
}

#[cfg(all(test, feature = "gloo"))]
#[path = "../../tests/unit/environment/coordinator.rs"]
mod tests;
