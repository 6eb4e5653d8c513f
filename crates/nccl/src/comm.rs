//! A communicator: a number of this process, and the library that serves it.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use once_cell::sync::OnceCell;
use symmetra::internal::Maker;
use symmetra::{Communicator, DeviceBuffer, DeviceKind, Stream};

use crate::abi::{self, Code, Handle};
use crate::config::Config;
use crate::error::{Failure, Result, argument};
use crate::log;
use crate::registrations::Registrations;
use crate::streams::Streams;

/// The library that serves a communicator.
pub(crate) enum Side {
    Own(Own),
    Real(Real),
}

/// A communicator on the kernels of symmetra.
pub(crate) struct Own {
    pub(crate) communicator: Communicator,
    pub(crate) streams: Streams,
    /// Random digits that all ranks of the communicator have, and no other communicator.
    pub(crate) token: String,
}

/// The handle of the real NCCL.
pub(crate) struct Real(pub(crate) Handle);

// SAFETY: an opaque number, which the real NCCL accepts from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Real {}
// SAFETY: an opaque number, which the real NCCL accepts from any thread.
#[allow(unsafe_code)]
unsafe impl Sync for Real {}

/// The number of a rank and the number of ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

pub(crate) struct Comm {
    /// Known from the start but for a part of a split.
    place: OnceCell<Place>,
    /// The number of the device in the numbering of the process.
    pub(crate) device: i32,
    pub(crate) config: Config,
    maker: Maker,
    side: OnceCell<Side>,
    /// Steps under way: an opening, a split.
    steps: AtomicU32,
    failure: OnceCell<Failure>,
    pub(crate) registrations: Registrations,
    shrinks: AtomicU32,
    finalized: AtomicBool,
    ended: AtomicBool,
}

impl Comm {
    /// A communicator that is being opened.
    pub(crate) fn opening(place: Option<Place>, device: i32, config: Config) -> Self {
        Self {
            place: place.map_or_else(OnceCell::new, OnceCell::with_value),
            device,
            config,
            maker: Maker::this(),
            side: OnceCell::new(),
            steps: AtomicU32::new(1),
            failure: OnceCell::new(),
            registrations: Registrations::default(),
            shrinks: AtomicU32::new(0),
            finalized: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The rank and the number of ranks. Of a part that is not open yet, zeros.
    pub(crate) fn place(&self) -> Place {
        self.place.get().copied().unwrap_or_default()
    }

    /// The rank and the number of ranks of a communicator that is open, failed or finalized.
    pub(crate) fn open_place(&self) -> Result<Place> {
        self.check_process()?;
        self.place.get().copied().ok_or_else(|| argument("the communicator", "a part", "its split is in progress"))
    }

    /// The name in texts.
    pub(crate) fn name(&self) -> String {
        let Place { rank, ranks } = self.place();
        match &self.config.name {
            Some(name) => format!("rank {rank} of {ranks} of {name}"),
            None => format!("rank {rank} of {ranks}"),
        }
    }

    /// Ends the opening with the library that serves the communicator.
    pub(crate) fn opened(&self, side: Result<Side>) -> Result {
        let result = match side {
            Ok(side) => {
                if let Side::Own(Own { communicator, .. }) = &side {
                    let (rank, ranks) = (communicator.rank(), communicator.world_size());
                    let _ = self.place.set(Place { rank, ranks });
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

    /// Marks a step that `ncclCommGetAsyncError` shows as in progress.
    pub(crate) fn begin_step(self: &Arc<Self>) -> Step {
        self.steps.fetch_add(1, Ordering::Relaxed);
        Step(self.clone())
    }

    /// Keeps the first failure, writes one line to the log, and returns the failure.
    pub(crate) fn fail(&self, failure: Failure) -> Failure {
        if self.failure.set(failure.clone()).is_ok() {
            log::failure(&format!("{}: {}", self.name(), failure.text));
        }
        failure
    }

    /// Refuses the communicator in a child that the process has forked.
    fn check_process(&self) -> Result {
        Ok(self.maker.check("a communicator")?)
    }

    /// The library that serves the communicator, for a call that may be made on a failed or finalized communicator.
    pub(crate) fn side(&self) -> Result<&Side> {
        self.check_process()?;
        match self.side.get() {
            _ if self.steps.load(Ordering::Acquire) > 0 => {
                Err(argument("the communicator", self.name(), "a step of the communicator is in progress"))
            }
            Some(side) => Ok(side),
            None => Err(self.async_failure().unwrap_or_else(|| Failure::usage("the communicator did not open"))),
        }
    }

    /// The communicator of symmetra, for an operation.
    pub(crate) fn usable<'a>(&self, own: &'a Own) -> Result<&'a Own> {
        if let Some(failure) = self.async_failure() {
            return Err(failure);
        }
        if self.finalized.load(Ordering::Relaxed) {
            return Err(Failure::usage(format!("{} is finalized", self.name())));
        }
        Ok(own)
    }

    /// The failure of the communicator, if any. Does not block.
    pub(crate) fn async_failure(&self) -> Option<Failure> {
        if let Some(failure) = self.failure.get() {
            return Some(failure.clone());
        }
        let Some(Side::Own(own)) = self.side.get() else { return None };
        own.communicator.check().err().map(|error| self.fail(error.into()))
    }

    /// The code of `ncclCommGetAsyncError`.
    pub(crate) fn async_code(&self) -> Result<Code> {
        self.check_process()?;
        Ok(match self.steps.load(Ordering::Acquire) {
            0 => self.async_failure().map_or(abi::SUCCESS, |failure| failure.code),
            _ => abi::IN_PROGRESS,
        })
    }

    /// Marks the communicator as finalized.
    pub(crate) fn finalize(&self) -> Result {
        match self.finalized.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(argument("the communicator", self.name(), "it is finalized")),
        }
    }

    /// Aborts the calls under way. Does not block.
    pub(crate) fn abort(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(Side::Own(own)) = self.side.get() {
            own.communicator.abort();
        }
    }

    /// The number of a shrink, which survivors of all shrinks count alike.
    pub(crate) fn next_shrink(&self) -> u32 {
        self.shrinks.fetch_add(1, Ordering::Relaxed)
    }

    /// The communicator of symmetra, if it is open and symmetra serves.
    pub(crate) fn own(&self) -> Option<&Own> {
        match self.side.get() {
            Some(Side::Own(own)) => Some(own),
            _ => None,
        }
    }

    /// Takes the communicator apart, which no call uses any more.
    pub(crate) fn into_side(self) -> Option<Side> {
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

impl Own {
    /// Makes one call, so that all ranks have loaded their code and a graph may come first. Collective; blocks.
    pub(crate) fn new(communicator: Communicator) -> Result<Self> {
        let stream = Stream::new(communicator.device())?;
        let one = DeviceBuffer::from_slice(&[0.0_f32], &stream)?;
        communicator.all_reduce_in_place(&one, &stream)?;
        communicator.synchronize(&stream)?;
        let mut random = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|error| Failure::system(format!("reading /dev/urandom: {error}")))?;
        let all = communicator.group().all_gather_bytes(&random)?;
        let token = all.into_iter().next().unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { streams: Streams::new(communicator.device())?, communicator, token })
    }

    /// Whether calls end before they return, because the device has no streams of the program.
    pub(crate) fn blocks(&self) -> bool {
        self.communicator.device().kind() == DeviceKind::Host
    }

    /// Waits for the calls on a stream, and returns the failure of the group.
    pub(crate) fn settle(&self, stream: &Stream) -> Result {
        Ok(self.communicator.synchronize(stream)?)
    }
}
