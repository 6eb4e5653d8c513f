//! A communicator: a number of this process, and the library that serves it.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use once_cell::sync::OnceCell;
use symmetra::internal::{Maker, failed_wait};
use symmetra::{Communicator, DeviceBuffer, DeviceKind, Error, Stream, SymmetricBuffer};

use crate::abi::{self, Code};
use crate::config::CommConfig;
use crate::error::{self, CallFailure, Result, argument};
use crate::log;
use crate::place::RankAndSize;
use crate::reductions::Reductions;
use crate::registrations::Registrations;
use crate::served::RealComm;
use crate::streams::Streams;
use crate::windows::Windows;

/// The library that serves a communicator.
pub(crate) enum ServingLibrary {
    Own(OwnComm),
    Real(RealComm),
}

impl ServingLibrary {
    /// Unknown for some parts of the real NCCL.
    fn place(&self) -> Option<RankAndSize> {
        match self {
            Self::Own(OwnComm { communicator, .. }) => {
                Some(RankAndSize { rank: communicator.rank(), ranks: communicator.world_size() })
            }
            Self::Real(real) => real.kin.as_ref().map(|kin| kin.place),
        }
    }
}

/// Bytes of the products that a rank keeps for a call whose output has no room for them.
pub(crate) const WORKSPACE_BYTES: usize = 8 << 20;

/// A communicator on the kernels of symmetra.
pub(crate) struct OwnComm {
    pub(crate) communicator: Communicator,
    pub(crate) streams: Streams,
    /// Products that a call sums, of one call at a time.
    pub(crate) workspace: SymmetricBuffer<u8>,
    pub(crate) windows: Arc<Windows>,
    /// Random digits that all ranks of the communicator have, and no other communicator.
    pub(crate) token: String,
}

pub(crate) struct Comm {
    /// Known from the start but for a part of a split.
    place: OnceCell<RankAndSize>,
    /// The number of the device in the numbering of the process.
    pub(crate) device: i32,
    pub(crate) config: CommConfig,
    maker: Maker,
    side: OnceCell<ServingLibrary>,
    /// Steps under way: an opening, a split.
    steps: AtomicU32,
    failure: OnceCell<CallFailure>,
    pub(crate) registrations: Registrations,
    pub(crate) reductions: Reductions,
    shrinks: AtomicU32,
    /// Splits in which all ranks meet.
    splits: AtomicU32,
    revoked: AtomicBool,
    finalized: AtomicBool,
    ended: AtomicBool,
}

impl Comm {
    /// A communicator that is being opened.
    pub(crate) fn opening(place: Option<RankAndSize>, device: i32, config: CommConfig) -> Self {
        Self {
            place: place.map_or_else(OnceCell::new, OnceCell::with_value),
            device,
            config,
            maker: Maker::this(),
            side: OnceCell::new(),
            steps: AtomicU32::new(1),
            failure: OnceCell::new(),
            registrations: Registrations::default(),
            reductions: Reductions::default(),
            shrinks: AtomicU32::new(0),
            splits: AtomicU32::new(0),
            revoked: AtomicBool::new(false),
            finalized: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The rank and the number of ranks. Of a part that is not open yet, zeros.
    pub(crate) fn place(&self) -> RankAndSize {
        self.place.get().copied().unwrap_or_default()
    }

    /// The rank and the number of ranks of a communicator that is open, failed or finalized.
    pub(crate) fn open_place(&self) -> Result<RankAndSize> {
        self.check_process()?;
        self.place.get().copied().ok_or_else(|| argument("the communicator", "a part", "its split is in progress"))
    }

    /// The name in texts.
    pub(crate) fn name(&self) -> String {
        let RankAndSize { rank, ranks } = self.place();
        match &self.config.name {
            Some(name) => format!("rank {rank} of {ranks} of {name}"),
            None => format!("rank {rank} of {ranks}"),
        }
    }

    /// Ends the opening with the library that serves the communicator.
    pub(crate) fn opened(&self, side: Result<ServingLibrary>) -> Result {
        let result = match side {
            Ok(side) => {
                if let Some(place) = side.place() {
                    let _ = self.place.set(place);
                }
                let _ = self.side.set(side);
                // An abort during the opening found nothing to abort.
                if self.ended.load(Ordering::Acquire) {
                    self.abort();
                }
                Ok(())
            }
            Err(failure) => Err(self.fail(failure)),
        };
        self.steps.fetch_sub(1, Ordering::Release);
        result
    }

    /// Ends an opening that has not begun.
    pub(crate) fn give_up(&self) {
        // Another failure is kept only after an opening.
        let _ = self.failure.set(CallFailure::usage("the group that opens the communicator was dropped"));
        self.steps.fetch_sub(1, Ordering::Release);
    }

    /// Marks a step that `ncclCommGetAsyncError` shows as in progress.
    pub(crate) fn begin_step(self: &Arc<Self>) -> Step {
        self.steps.fetch_add(1, Ordering::Relaxed);
        Step(self.clone())
    }

    /// Keeps the first failure before a revoke, writes one line to the log, and returns the failure.
    pub(crate) fn fail(&self, failure: CallFailure) -> CallFailure {
        if !self.is_revoked() && self.failure.set(failure.clone()).is_ok() {
            log::failure(&format!("{}: {}", self.name(), failure.text));
        }
        failure
    }

    /// Refuses the communicator in a child that the process has forked.
    pub(crate) fn check_process(&self) -> Result {
        Ok(self.maker.check("a communicator")?)
    }

    /// The library that serves the communicator, for a call that may be made on a failed or finalized communicator.
    pub(crate) fn side(&self) -> Result<&ServingLibrary> {
        self.check_process()?;
        match self.side.get() {
            _ if self.steps.load(Ordering::Acquire) > 0 => {
                Err(argument("the communicator", self.name(), "a step of the communicator is in progress"))
            }
            Some(side) => Ok(side),
            None => Err(self.async_failure().unwrap_or_else(|| CallFailure::usage("the communicator did not open"))),
        }
    }

    /// The communicator of symmetra, for an operation.
    pub(crate) fn usable<'a>(&self, own: &'a OwnComm) -> Result<&'a OwnComm> {
        if self.is_revoked() {
            return Err(CallFailure::usage(format!("{} is revoked", self.name())));
        }
        if let Some(failure) = self.async_failure() {
            return Err(failure);
        }
        if self.finalized.load(Ordering::Relaxed) {
            return Err(CallFailure::usage(format!("{} is finalized", self.name())));
        }
        Ok(own)
    }

    /// Refuses a communicator on which no operation may be made.
    pub(crate) fn check_usable(&self) -> Result {
        match self.side()? {
            ServingLibrary::Own(own) => self.usable(own).map(drop),
            ServingLibrary::Real(_) => Ok(()),
        }
    }

    /// A failure of a call, with the whole text if the communicator has failed with it.
    pub(crate) fn whole(&self, failure: CallFailure) -> CallFailure {
        self.async_failure().filter(|whole| whole.text.starts_with(&failure.text)).unwrap_or(failure)
    }

    /// The failure of the communicator, if any. Blocks for at most 20 ms, once.
    pub(crate) fn async_failure(&self) -> Option<CallFailure> {
        if let Some(failure) = self.failure.get() {
            return Some(failure.clone());
        }
        // The failure of a revoked communicator is the revoke itself.
        let Some(ServingLibrary::Own(own)) = self.side.get().filter(|_| !self.is_revoked()) else { return None };
        own.communicator.check().err().map(|error| self.fail(own.failure(error)))
    }

    /// The code of `ncclCommGetAsyncError`. The text of a failure is kept for `ncclGetLastError`.
    pub(crate) fn async_code(&self) -> Result<Code> {
        self.check_process()?;
        if self.steps.load(Ordering::Acquire) > 0 {
            return Ok(abi::IN_PROGRESS);
        }
        let failure = self.async_failure().inspect(|failure| error::keep("ncclCommGetAsyncError", failure));
        Ok(failure.map_or(abi::SUCCESS, |failure| failure.code))
    }

    /// Marks the communicator as finalized.
    pub(crate) fn finalize(&self) -> Result {
        if self.is_revoked() {
            return Err(CallFailure::usage(format!("{} is revoked", self.name())));
        }
        match self.finalized.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(argument("the communicator", self.name(), "it is finalized")),
        }
    }

    /// Whether this rank allows no more operations.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Allows no more operations of this rank, and aborts the calls under way. Does not block.
    pub(crate) fn revoke(&self) -> Result {
        let ServingLibrary::Own(own) = self.side()? else { return Ok(()) };
        if self.finalized.load(Ordering::Relaxed) {
            return Err(argument("the communicator", self.name(), "it is finalized"));
        }
        // A failure before the revoke stays that of the communicator.
        self.async_failure();
        if self.revoked.swap(true, Ordering::AcqRel) {
            return Err(argument("the communicator", self.name(), "it is revoked"));
        }
        own.communicator.abort();
        Ok(())
    }

    /// Aborts the calls under way. Does not block.
    pub(crate) fn abort(&self) {
        self.ended.store(true, Ordering::Release);
        match self.side.get() {
            Some(ServingLibrary::Own(own)) => own.communicator.abort(),
            Some(ServingLibrary::Real(real)) => drop(real.abort().map_err(|failure| self.fail(failure))),
            None => {}
        }
    }

    /// The name of a split in which all ranks of the communicator meet: after a revoke, or of one that the real NCCL serves.
    pub(crate) fn next_split(&self) -> String {
        format!("split{}", self.splits.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of a shrink, which survivors of all shrinks count alike.
    pub(crate) fn next_shrink(&self) -> u32 {
        self.shrinks.fetch_add(1, Ordering::Relaxed)
    }

    /// The communicator of symmetra, if it is open and symmetra serves.
    pub(crate) fn own(&self) -> Option<&OwnComm> {
        match self.side.get() {
            Some(ServingLibrary::Own(own)) => Some(own),
            _ => None,
        }
    }

    /// The communicator of the real NCCL, if it is open and the real NCCL serves.
    pub(crate) fn real(&self) -> Option<&RealComm> {
        match self.side.get() {
            Some(ServingLibrary::Real(real)) => Some(real),
            _ => None,
        }
    }

    /// Refuses a communicator that the real NCCL serves, for a call that finds a step of the communicator under way.
    pub(crate) fn check_not_real(&self) -> Result {
        match self.real() {
            Some(_) => Err(argument("the communicator", self.name(), "a step of the communicator is in progress")),
            None => Ok(()),
        }
    }

    /// Takes the communicator apart, which no call uses any more.
    pub(crate) fn into_side(self) -> Option<ServingLibrary> {
        self.side.into_inner()
    }
}

/// A step under way, until dropped.
pub(crate) struct Step(Arc<Comm>);

impl Drop for Step {
    fn drop(&mut self) {
        self.0.steps.fetch_sub(1, Ordering::Release);
    }
}

impl OwnComm {
    /// Makes one call, so that all ranks have loaded their code and a graph may come first. Collective; blocks.
    pub(crate) fn new(communicator: Communicator) -> Result<Self> {
        let stream = Stream::new(communicator.device())?;
        let one = DeviceBuffer::from_slice(&[0.0_f32], &stream)?;
        communicator.all_reduce_in_place(&one, &stream)?;
        communicator.synchronize(&stream)?;
        let mut random = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|error| CallFailure::system(format!("reading /dev/urandom: {error}")))?;
        let all = communicator.group().all_gather_bytes(&random)?;
        let token = all.into_iter().next().unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
        let workspace = communicator.symmetric(WORKSPACE_BYTES)?;
        let streams = Streams::new(communicator.device())?;
        Ok(Self { streams, workspace, windows: Arc::default(), communicator, token })
    }

    /// The failure of the group, with the wait that `symmetra status` names.
    fn failure(&self, error: Error) -> CallFailure {
        let mut failure = CallFailure::from(error);
        if let Some(waited) = failed_wait(&self.communicator) {
            failure.text += &format!("; {waited}");
        }
        failure
    }

    /// Whether calls end before they return, because the device has no streams of the program.
    pub(crate) fn blocks(&self) -> bool {
        self.communicator.device().kind() == DeviceKind::Host
    }

    /// Ends calls on a stream of the program, which may destroy the stream without notice.
    pub(crate) fn leave(&self, stream: &Stream) -> Result {
        match self.communicator.group().config().graph_mixing {
            // The order keeps no stream of the program.
            true => Ok(()),
            false => Ok(self.communicator.leave(stream)?),
        }
    }

    /// Waits for the calls on a stream, and returns the failure of the group.
    pub(crate) fn settle(&self, stream: &Stream) -> Result {
        Ok(self.communicator.synchronize(stream)?)
    }
}
