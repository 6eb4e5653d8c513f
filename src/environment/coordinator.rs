//! One parallel group as an engine uses it.

use std::fmt;
use std::sync::Arc;

use crate::backend::{Backend, Explanation, Facts, GroupBackends, Request};
use crate::bootstrap::hello::at_odds;
use crate::collective::{BoundAllReduce, Communicator, Pending};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::stream::{Capture, Enqueue, Graph, Kept, Stream};

/// A parallel group of an [`Environment`](super::Environment): who is in it, and what its
/// communicator runs. Cheap to clone; usable from any thread.
///
/// All ranks of the group make the same calls in the same order. A group of one rank answers
/// every call by itself.
#[derive(Clone)]
pub struct Coordinator {
    name: &'static str,
    serving: Arc<GroupBackends>,
    facts: Arc<Facts>,
    /// The ranks of the group, as numbered in the world, in order.
    ranks: Arc<[usize]>,
    /// This rank's place among them.
    rank: usize,
}

impl Coordinator {
    /// `rank` is one of `ranks`, as the world numbers it.
    pub(super) fn new(
        name: &'static str,
        (serving, facts): (Arc<GroupBackends>, Arc<Facts>),
        ranks: Vec<usize>,
        rank: usize,
    ) -> Self {
        let rank = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        Self { name, serving, facts, ranks: ranks.into(), rank }
    }

    /// What groups of the same ranks share.
    pub(super) fn shared(&self) -> (Arc<GroupBackends>, Arc<Facts>) {
        (self.serving.clone(), self.facts.clone())
    }

    /// `world`, `tp`, `pp`, `dp` or `ep`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What runs the own collectives of a group on one host. Groups of the same ranks share it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a group that spans hosts: call its operations here.
    pub fn communicator(&self) -> Result<&Communicator> {
        self.serving.own().ok_or_else(|| {
            let reason = format!("its ranks are on {}", self.facts.places());
            Error::unsupported(format!("a communicator of the group {}", self.name), reason)
        })
    }

    /// What runs collectives among the group's ranks on this host: all of them, unless it spans hosts.
    pub fn local(&self) -> &Communicator {
        self.serving.local()
    }

    /// The same group with one backend, which is opened if need be: a call it does not serve is an error.
    /// Collective; blocks. Every rank of the group makes a call through the same backend.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank where they name different backends, and nothing has changed;
    /// [`Error::Peer`] or this rank's error when the backend cannot be opened, though it seemed so; the
    /// group's error when it failed. That it cannot be had at all is the error of each call.
    pub fn through(&self, backend: Backend) -> Result<Self> {
        self.serving.unanimous(backend)?;
        let facts = self.serving.equip(Facts { forced: Some(backend), ..(*self.facts).clone() })?;
        Ok(Self { facts: Arc::new(facts), ..self.clone() })
    }

    /// The backends in the order they are asked: what each serves, and why it refuses the rest. The
    /// same on every rank of the group.
    pub fn explain(&self) -> Vec<Explanation> {
        self.facts.explain()
    }

    /// Runs a call on the first backend that serves it.
    pub(crate) fn run(&self, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        let mut request = Request::of(call, queue.recording().is_some());
        // What blocks cannot be in a capture of the stream owner's either: it would end the capture, and the group.
        if self.facts.select(&request) == Ok(Backend::Host) && queue.stream().is_capturing()? {
            request.captured = true;
        }
        self.serving.run(self.select(&request)?, &self.facts, call, queue)
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

    /// What runs a form of a call that own kernels alone have.
    fn on_own_kernels(&self, call: &Call<'_>, captured: bool) -> Result<&Communicator> {
        self.select(&Request { named: true, ..Request::of(call, captured) })?;
        self.communicator()
    }

    /// Enqueues the low-contention form of a call.
    pub(crate) fn run_low_contention<'op>(&self, call: &Call<'_>, queue: &impl Enqueue) -> Result<Pending<'op>> {
        self.on_own_kernels(call, queue.recording().is_some())?.run_low_contention(call, queue)
    }

    /// Makes a workspace for low-contention collectives, as [`Communicator::reserve_workspace`] does.
    ///
    /// # Errors
    /// Those of [`Communicator::reserve_workspace`] and of [`communicator`](Self::communicator).
    pub fn reserve_workspace(&self, bytes: usize) -> Result<()> {
        self.communicator()?.reserve_workspace(bytes)
    }

    /// Checks and plans an all-reduce on own kernels.
    pub(crate) fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>> {
        self.on_own_kernels(call, false)?.bind(call, kept)
    }

    /// Blocks until all work of `stream` is done, then says whether it was done well.
    ///
    /// Where NCCL has served the group, its kernels know no deadline: all that was enqueued on the stream must then
    /// be done within `deadlines.steady`, counted from here, or `deadlines.first_use` until a wait has ended well;
    /// a death, an abort and an error of NCCL's are noticed at once. Other ways to wait for a stream, such as
    /// [`Stream::synchronize`](crate::Stream::synchronize) or reading a buffer, do not look: synchronize first.
    ///
    /// # Errors
    /// The group's error when a collective gave up, the device's when work failed; where NCCL served,
    /// [`Error::Timeout`] with the operation and, where it is known, the rank that had not enqueued it.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.serving.synchronize(stream)
    }

    /// Lets go of a stream: from here on neither the group's calls nor its end need it, whatever backend served them.
    /// To be called before a borrowed stream is destroyed; its work need not be done. Does not block. Every group that
    /// the stream was used with is left for itself, but for those that this one became [`through`](Self::through) a
    /// backend.
    ///
    /// # Errors
    /// [`Error::Device`] when the runtime refuses to record an event.
    pub fn leave(&self, stream: &Stream) -> Result<()> {
        self.serving.leave(stream)
    }

    /// Ends the group on every rank, and on this one gives `reason` in the error: waits give up, NCCL is aborted,
    /// connections between hosts break, and every later call fails with [`Error::Aborted`]. May be called
    /// from any thread, more than once. Inside a host it blocks for NCCL's abort alone; a group that
    /// spans hosts asks the other ranks once what happened, for two seconds at most, after a call through the CPU.
    ///
    /// Between hosts the other ranks of the group learn the reason by the same question, which is asked once an
    /// environment: of the first group that fails. Of a later one, or where not every rank of the world answers in
    /// time, having failed too, ranks on other hosts fail with [`Error::Bootstrap`] or what else they see of this one.
    ///
    /// A call through the CPU that another thread is in is not interrupted: Gloo waits until the call's deadline
    /// (`deadlines.steady`, or `deadlines.first_use`), and so does this, before the connections break.
    pub fn abort(&self, reason: &str) {
        self.serving.abort(reason);
    }

    /// As an environment that is dropped leaves it.
    pub(super) fn abandon(&self) {
        self.serving.abandon();
    }

    /// Captures a graph on every rank of the group: records what the closure enqueues, of this group and of
    /// groups inside it, and exchanges the pointers that are new. Collective; blocks. Either
    /// every rank has its graph, which all launch as often, or none.
    ///
    /// # Errors
    /// As [`Stream::capture`](crate::Stream::capture) and [`Graph::register`](crate::Graph::register);
    /// [`Error::Peer`] where another rank failed.
    pub fn capture<'env>(
        &self,
        stream: &Stream,
        record: impl for<'scope> FnOnce(&Capture<'scope, 'env>) -> Result<()>,
    ) -> Result<Graph<'env>> {
        let graph = self.serving.together("capture a graph", stream.capture(record))?;
        self.serving.together("register a graph", graph.register())?;
        Ok(graph)
    }

    /// Whether the group is open and every rank well, as far as this rank knows. Does not block,
    /// except that a rank of a group that spans hosts asks the others once when it has failed.
    ///
    /// # Errors
    /// [`Error::Closed`], or what went wrong first.
    pub fn check(&self) -> Result<()> {
        self.serving.check()
    }

    /// Closes what the group opened.
    pub(super) fn close(&self) -> Result<()> {
        self.serving.close()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        self.local().device()
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the group has.
    pub fn world_size(&self) -> usize {
        self.ranks.len()
    }

    /// The group's ranks as the world numbers them, in the order of the group.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The first rank, as the world numbers it.
    pub fn first_rank(&self) -> usize {
        self.ranks[0]
    }

    /// The last rank, as the world numbers it.
    pub fn last_rank(&self) -> usize {
        self.ranks[self.ranks.len() - 1]
    }

    /// Whether this is the first rank: of a pipeline, the stage that embeds.
    pub fn is_first_rank(&self) -> bool {
        self.rank() == 0
    }

    /// Whether this is the last rank: of a pipeline, the stage that samples.
    pub fn is_last_rank(&self) -> bool {
        self.rank() + 1 == self.world_size()
    }

    /// The rank after this one, going round, as the world numbers it.
    pub fn next_rank(&self) -> usize {
        self.ranks[(self.rank() + 1) % self.world_size()]
    }

    /// The rank before this one, going round, as the world numbers it.
    pub fn previous_rank(&self) -> usize {
        self.ranks[(self.rank() + self.world_size() - 1) % self.world_size()]
    }

    /// Blocks until every rank of the group called it. Says nothing about work on streams.
    ///
    /// # Errors
    /// As [`Group::barrier`](crate::Group::barrier); [`Error::Bootstrap`](crate::Error::Bootstrap) when a rank makes
    /// another collective call instead.
    pub fn barrier(&self) -> Result<()> {
        let all = self.all_gather_bytes(&[])?;
        let other = all.iter().position(|words| !words.is_empty());
        other.map_or(Ok(()), |rank| Err(at_odds("to a barrier", rank, Some("for something else"))))
    }

    pub(super) fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.serving.all_gather_bytes(bytes)
    }

    /// As it says: together with all other ranks, or not at all.
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

impl fmt::Debug for Coordinator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Coordinator({}: rank {} of {:?})", self.name, self.rank, self.ranks)
    }
}

#[cfg(all(test, feature = "gloo"))]
#[path = "../../tests/unit/environment/coordinator.rs"]
mod tests;
