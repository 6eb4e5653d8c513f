//! A group's NCCL communicator, and every operation in NCCL's own.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::collective::Lane;
use crate::device::Device;
use crate::environment::call::{Call, Message};
use crate::environment::serving::Serving;
use crate::environment::variables::nccl_library;
use crate::error::{Error, Operation, Result};
use crate::group::Deadlines;
use crate::memory::View;
use crate::nccl::Communicator;
use crate::stream::{Enqueue, Part, Stream};
use crate::types::Dtype;

/// This rank of a group's NCCL communicator. Dropped, it is aborted.
pub(in crate::environment) struct Ranks(Arc<Inner>);

struct Inner {
    /// None once it is closed. Not locked while a call waits, so that any thread may abort.
    communicator: Mutex<Option<Arc<Communicator>>>,
    /// The order of calls and graph launches: NCCL runs one at a time.
    lane: Mutex<Lane>,
    /// The last operation that nobody has seen the end of.
    pending: Mutex<Option<Operation>>,
    /// Read by a launch from before its turn in the lane until it is enqueued.
    launching: RwLock<()>,
    /// Whether some were: before that a peer may still be loading.
    proven: AtomicBool,
    /// The group's.
    id: u64,
}

impl Ranks {
    /// Why NCCL cannot be used on this rank, if it cannot.
    pub(in crate::environment) fn available(device: &Device) -> Result<(), String> {
        nccl_library(device.kind()).map(drop).map_err(|error| error.to_string())
    }

    /// Collective; blocks. All ranks succeed or none.
    pub(in crate::environment) fn open(serving: &Serving) -> Result<Self> {
        let (device, group) = (serving.local().device(), serving.local().group());
        let (limit, library) = (group.config().deadlines.open, nccl_library(device.kind()));
        let exchange = |bytes: &[u8]| serving.all_gather_bytes(bytes);
        let communicator = Communicator::open(library, device, serving.rank, serving.world_size, limit, exchange)?;
        Self::over(communicator, device, group.id())
    }

    fn over(communicator: Communicator, device: &Device, id: u64) -> Result<Self> {
        let (communicator, lane) = (Mutex::new(Some(Arc::new(communicator))), Mutex::new(Lane::new(device)?));
        let (pending, launching, proven) = (Mutex::new(None), RwLock::new(()), AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { communicator, lane, pending, launching, proven, id })))
    }

    /// Enqueues a checked call.
    pub(in crate::environment) fn run(&self, dtype: Dtype, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        // Before anything is recorded: whatever a graph holds of this, closing it ends the graph.
        let recorded = queue.recording().map(|recording| {
            recording.part(self.0.id, || Recorded { inner: self.0.clone(), last: Mutex::new(call.operation()) })
        });
        let nccl = self.0.live()?;
        let mut lane = self.0.lane.lock();
        match recorded {
            Some(recorded) => *recorded.last.lock() = call.operation(),
            None => *self.0.pending.lock() = Some(call.operation()),
        }
        lane.order_call(queue)?;
        let turn = Turn { nccl: &nccl, dtype, stream: queue.stream() };
        let mut result = Ok(());
        let enqueued = queue.enqueue("call NCCL", |_| {
            result = turn.run(call);
            0
        });
        enqueued.and(result)
    }

    /// Blocks until all work of `stream` is done. Where operations of NCCL's may be among it, that may take as
    /// long as the deadlines say, and the first error aborts them.
    pub(in crate::environment) fn synchronize(
        &self,
        stream: &Stream,
        deadlines: Deadlines,
        well: impl Fn() -> Result<()>,
        late: impl FnOnce(Operation, Duration) -> Error,
    ) -> Result<()> {
        let Some(operation) = *self.0.pending.lock() else { return stream.synchronize() };
        let proven = self.0.proven.load(Ordering::Relaxed);
        let limit = if proven { deadlines.steady } else { deadlines.first_use };
        self.0.live()?.synchronize(stream, limit, well, |waited| late(operation, waited))?;
        let lane = self.0.lane.lock();
        // What a launch is about to enqueue has had its turn, and is not among what is done.
        let enqueued = self.0.launching.try_write();
        // The last operation comes after all others.
        if enqueued.is_some() && lane.is_on(stream) && stream.is_done()? {
            *self.0.pending.lock() = None;
            self.0.proven.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(in crate::environment) fn check(&self) -> Result<()> {
        self.0.live()?.check()
    }

    /// Lets nobody wait for this rank.
    pub(in crate::environment) fn abort(&self) {
        self.0.communicator.lock().iter().for_each(|communicator| communicator.abort());
    }

    /// Collective; blocks.
    pub(in crate::environment) fn close(&self) -> Result<()> {
        let communicator = self.0.communicator.lock().take();
        match communicator.map(Arc::try_unwrap) {
            None => Ok(()),
            Some(Ok(communicator)) => communicator.close(),
            Some(Err(communicator)) => {
                communicator.abort();
                Err(Error::unsupported("to close a group", "another thread is in a call of it"))
            }
        }
    }
}

impl Inner {
    fn live(&self) -> Result<Arc<Communicator>> {
        self.communicator.lock().clone().ok_or(Error::Closed)
    }
}

/// What a graph keeps of it.
struct Recorded {
    inner: Arc<Inner>,
    /// The last operation of the graph.
    last: Mutex<Operation>,
}

impl Part for Recorded {
    /// Not the lane is held: launches of two groups in unlike order would wait for each other.
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let _launching = self.inner.launching.read();
        launch()
    }

    fn before_launch(&self, stream: &Stream) -> Result<()> {
        self.inner.live()?.check()?;
        let mut lane = self.inner.lane.lock();
        *self.inner.pending.lock() = Some(*self.last.lock());
        lane.order(stream)
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}

/// One call.
struct Turn<'a> {
    nccl: &'a Communicator,
    dtype: Dtype,
    stream: &'a Stream,
}

/// Bytes of this rank.
#[derive(Clone, Copy)]
struct Strip {
    address: *mut u8,
    bytes: usize,
}

impl Turn<'_> {
    fn run(&self, call: &Call<'_>) -> Result<()> {
        let (rank, world) = (self.nccl.rank(), self.nccl.world_size());
        match call {
            Call::AllReduce { input, .. } | Call::AllGather { input, .. } if input.elems == 0 => Ok(()),
            Call::AllReduce { options, input, output } => {
                let (from, to) = (input.address, output.address);
                // SAFETY: checked to be as long, on this device; the queue's borrow keeps them until its work
                // is done; the caller's lock keeps other threads away.
                unsafe { self.nccl.all_reduce(from, to, input.elems, self.dtype, options.reduction, self.stream) }
            }
            Call::ReduceScatter { .. } | Call::AllGather { .. } => self.by_rows(call),
            Call::AllToAll { input, output } => {
                let (from, into) = (self.parts(input, world), self.parts(output, world));
                self.strips(from.into_iter().enumerate(), into.into_iter().enumerate())
            }
            Call::AllToAllV { input, send_counts, output, receive_counts } => {
                let (from, into) = (self.ragged(input, send_counts), self.ragged(output, receive_counts));
                self.strips(from.into_iter().enumerate(), into.into_iter().enumerate())
            }
            Call::Broadcast { root, buffer } => {
                let Strip { address, bytes } = self.strip(buffer);
                // SAFETY: as above, in place.
                unsafe { self.nccl.broadcast(address, address, bytes, Dtype::U8, *root, self.stream) }
            }
            Call::Reduce { input, .. } if input.elems == 0 => Ok(()),
            Call::Reduce { reduction, root, input, output } => {
                let output = output.as_ref().filter(|_| rank == *root);
                let to = output.map_or(std::ptr::null_mut(), |output| output.address);
                let how = (*reduction, *root);
                // SAFETY: as above; only the root's output is written.
                unsafe { self.nccl.reduce(input.address, to, input.elems, self.dtype, how, self.stream) }
            }
            Call::Gather { root, input, output } => {
                let into = output.as_ref().filter(|_| rank == *root).map(|all| self.parts(all, world));
                self.strips([(*root, self.strip(input))].into_iter(), into.into_iter().flatten().enumerate())
            }
            Call::Scatter { root, input, output } => {
                let from = input.as_ref().filter(|_| rank == *root).map(|all| self.parts(all, world));
                self.strips(from.into_iter().flatten().enumerate(), [(*root, self.strip(output))].into_iter())
            }
            Call::SendReceive { messages } => {
                let of = |message: &Message| {
                    (message.peer, Strip { address: message.view().address, bytes: message.bytes() })
                };
                let (sends, receives): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.sends);
                self.strips(sends.into_iter().map(of), receives.into_iter().map(of))
            }
        }
    }

    /// Row by row: each is an operation of its own, all of them one launch.
    fn by_rows(&self, call: &Call<'_>) -> Result<()> {
        let world = self.nccl.world_size();
        let cut = call.cut(world)?;
        let elems = cut.part_elems().unwrap_or(0) / cut.rows().max(1);
        let (part, whole) = (elems * self.dtype.bytes(), elems * self.dtype.bytes() * world);
        if elems == 0 {
            return Ok(());
        }
        self.nccl.group(|| {
            (0..cut.rows()).try_for_each(|row| match call {
                Call::ReduceScatter { reduction, input, output, .. } => {
                    let (from, to) = (input.address.wrapping_add(row * whole), output.address.wrapping_add(row * part));
                    // SAFETY: as in `run`; a row lies within the operands.
                    unsafe { self.nccl.reduce_scatter(from, to, elems, self.dtype, *reduction, self.stream) }
                }
                Call::AllGather { input, output, .. } => {
                    let (from, to) = (input.address.wrapping_add(row * part), output.address.wrapping_add(row * whole));
                    // SAFETY: as above.
                    unsafe { self.nccl.all_gather(from, to, part, Dtype::U8, self.stream) }
                }
                _ => Ok(()),
            })
        })
    }

    /// Strips to and from ranks, all at once. What a rank would send itself in place stays.
    fn strips(
        &self,
        sends: impl Iterator<Item = (usize, Strip)>,
        receives: impl Iterator<Item = (usize, Strip)>,
    ) -> Result<()> {
        let rank = self.nccl.rank();
        let some = |strips: &[(usize, Strip)], peer: usize| {
            strips.iter().find(|(other, _)| *other == peer).map(|(_, strip)| strip.address)
        };
        let (mut sends, mut receives): (Vec<_>, Vec<_>) = (sends.collect(), receives.collect());
        if some(&sends, rank).is_some_and(|address| some(&receives, rank) == Some(address)) {
            [&mut sends, &mut receives].into_iter().for_each(|strips| strips.retain(|(peer, _)| *peer != rank));
        }
        self.nccl.group(|| {
            for (peer, Strip { address, bytes }) in sends.into_iter().filter(|(_, strip)| strip.bytes > 0) {
                // SAFETY: as in `run`.
                unsafe { self.nccl.send(address, bytes, Dtype::U8, peer, self.stream) }?;
            }
            for (peer, Strip { address, bytes }) in receives.into_iter().filter(|(_, strip)| strip.bytes > 0) {
                // SAFETY: as in `run`.
                unsafe { self.nccl.recv(address, bytes, Dtype::U8, peer, self.stream) }?;
            }
            Ok(())
        })
    }

    fn strip(&self, view: &View<'_>) -> Strip {
        Strip { address: view.address, bytes: view.elems * self.dtype.bytes() }
    }

    /// Equal parts of an operand.
    fn parts(&self, view: &View<'_>, count: usize) -> Vec<Strip> {
        let bytes = self.strip(view).bytes / count;
        (0..count).map(|part| Strip { address: view.address.wrapping_add(part * bytes), bytes }).collect()
    }

    /// Parts of so many elements, one behind the other.
    fn ragged(&self, view: &View<'_>, counts: &[usize]) -> Vec<Strip> {
        let mut address = view.address;
        let mut next = |count: &usize| {
            let strip = Strip { address, bytes: count * self.dtype.bytes() };
            address = address.wrapping_add(strip.bytes);
            strip
        };
        counts.iter().map(&mut next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Algorithm, AllReduceOptions};
    use crate::memory::Place;
    use crate::nccl::tests::Fake;
    use crate::stream::Graph;
    use crate::types::Reduction;

    const ENOUGH: Duration = Duration::from_secs(20);
    const DEADLINES: Deadlines = Deadlines { open: ENOUGH, first_use: ENOUGH, steady: ENOUGH };

    /// A rank on a device of the CPU, over a library that looks at no memory.
    struct Rank {
        fake: Fake,
        ranks: Ranks,
        stream: Stream,
    }

    impl Rank {
        fn new() -> Self {
            let (fake, device) = (Fake::new(&[]), Device::host().unwrap());
            let ranks = Ranks::over(fake.communicator(ENOUGH).unwrap(), &device, 1).unwrap();
            Self { fake, ranks, stream: Stream::new(&device).unwrap() }
        }

        fn call(&self, queue: &impl Enqueue) -> Result<()> {
            let options = AllReduceOptions { reduction: Reduction::Sum, algorithm: Algorithm::Auto };
            let (device, address) = (self.stream.device(), std::ptr::without_provenance_mut(64));
            let view = || View { address, elems: 1, place: Place::Plain, device, owner: None };
            self.ranks.run(Dtype::F32, &Call::AllReduce { options, input: view(), output: view() }, queue)
        }

        fn synchronize(&self) -> Result<()> {
            self.ranks.synchronize(&self.stream, DEADLINES, || Ok(()), late)
        }

        fn is_pending(&self) -> bool {
            self.ranks.0.pending.lock().is_some()
        }
    }

    fn late(operation: Operation, waited: Duration) -> Error {
        Error::exchange_timeout(None, waited, operation.to_string())
    }

    /// What another thread does between a launch's turn and the launch.
    struct Meanwhile(Arc<Rank>);

    impl Part for Meanwhile {
        fn before_launch(&self, _stream: &Stream) -> Result<()> {
            assert!(self.0.is_pending());
            std::thread::scope(|scope| scope.spawn(|| self.0.synchronize()).join().unwrap())
        }

        fn register(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_wait_beside_a_launch_leaves_its_operation_awaited() {
        let rank = Arc::new(Rank::new());
        let graph: Graph<'static> = rank
            .stream
            .capture(|capture| {
                rank.call(&capture)?;
                capture.recording().unwrap().part(2, || Meanwhile(rank.clone()));
                Ok(())
            })
            .unwrap();
        assert_eq!(rank.fake.calls()[1..], ["ncclAllReduce"]);
        graph.launch(&rank.stream).unwrap();
        assert!(rank.is_pending(), "a wait from here on has no deadline");
        rank.synchronize().unwrap();
        assert!(!rank.is_pending());
    }
}
