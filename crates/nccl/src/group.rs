//! Groups: calls of a thread that begin together when the outermost group ends.

use std::cell::RefCell;
use std::sync::Arc;

use symmetra::{Event, Stream};

use crate::abi::{self, Code};
use crate::birth::Birth;
use crate::calls::{self, CheckedCollective, CheckedMessage};
use crate::comm::{Comm, OwnComm, ServingLibrary};
use crate::error::{CallFailure, Result, argument};
use crate::real;
use crate::registering::Registering;
use crate::scaled;

/// An operation of a communicator.
pub(crate) enum GroupedWork {
    Collective(CheckedCollective),
    /// Messages of this rank: one, or those of a large all-to-all.
    Messages(Vec<CheckedMessage>),
}

struct Queued {
    comm: Arc<Comm>,
    stream: u64,
    work: GroupedWork,
}

/// The open groups of a thread.
#[derive(Default)]
struct OpenGroups {
    depth: usize,
    failure: Option<CallFailure>,
    queued: Vec<Queued>,
    births: Vec<Birth>,
    windows: Vec<Registering>,
    /// Whether a group of the real NCCL is open too.
    real: bool,
}

thread_local! {
    static GROUP: RefCell<OpenGroups> = RefCell::default();
}

fn with<R>(run: impl FnOnce(&mut OpenGroups) -> R) -> R {
    GROUP.with(|group| run(&mut group.borrow_mut()))
}

/// Whether the thread has an open group.
pub(crate) fn is_open() -> bool {
    with(|group| group.depth > 0)
}

pub(crate) fn start() -> Result {
    with(|group| group.depth += 1);
    Ok(())
}

/// Keeps the first failure of a call in an open group: the outermost end returns the failure and drops the calls.
pub(crate) fn remember(failure: &CallFailure) {
    with(|group| {
        if group.depth > 0 && group.failure.is_none() {
            group.failure = Some(failure.clone());
        }
    });
}

/// Opens a group of the real NCCL, once in each outermost group, before a call that goes to the real NCCL.
pub(crate) fn enter_real() -> Result {
    if with(|group| group.depth > 0 && !std::mem::replace(&mut group.real, group.depth > 0)) {
        real::group_start()?;
    }
    Ok(())
}

/// Ends a group. The outermost end makes the calls.
pub(crate) fn end() -> Result<Code> {
    let Some(group) = close()? else { return Ok(abi::SUCCESS) };
    let real = group.real;
    let own = group.run();
    let ended = if real { real::group_end() } else { Ok(abi::SUCCESS) };
    match (own, ended) {
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
        (Ok(own), Ok(real)) => Ok(own.max(real)),
    }
}

/// Ends a group and drops the calls of the outermost one. `pass` ends the group of the real NCCL without its calls. A library
/// that cannot do so runs its calls, which is a failure of this function.
pub(crate) fn drop_calls(pass: impl FnOnce() -> Result<Code>) -> Result<Code> {
    let Some(group) = close()? else { return Ok(abi::SUCCESS) };
    group.births.into_iter().for_each(Birth::give_up);
    if group.real { pass().or_else(|lacking| real::group_end().and(Err(lacking))) } else { Ok(abi::SUCCESS) }
}

/// Ends a group; the outermost one is returned.
fn close() -> Result<Option<OpenGroups>> {
    with(|group| match group.depth {
        0 => Err(CallFailure::usage("ncclGroupEnd without ncclGroupStart")),
        1 => Ok(Some(std::mem::take(group))),
        _ => {
            group.depth -= 1;
            Ok(None)
        }
    })
}

/// Makes the call of an operation, or keeps the call until the group ends.
pub(crate) fn submit(comm: &Arc<Comm>, own: &OwnComm, stream: u64, work: GroupedWork) -> Result {
    if is_open() {
        let queued = Queued { comm: comm.clone(), stream, work };
        with(|group| group.queued.push(queued));
        return Ok(());
    }
    let stream = own.streams.get(stream)?;
    let enqueued = match work {
        GroupedWork::Collective(collective) => scaled::enqueue(&collective, own, &stream),
        GroupedWork::Messages(messages) => check_own_messages(own.communicator.rank(), &messages)
            .and_then(|()| calls::exchange(own, &messages, &stream)),
    };
    enqueued.and(own.leave(&stream))?;
    settle(comm, own, Some(stream))
}

/// Opens a communicator, or keeps the opening until the group ends.
pub(crate) fn give_birth(birth: Birth) -> Result<Code> {
    match is_open() {
        true => {
            with(|group| group.births.push(birth));
            Ok(abi::SUCCESS)
        }
        false => birth.run(),
    }
}

/// Registers a window, or keeps the registration until the group ends.
pub(crate) fn register(window: Registering) -> Result {
    match is_open() {
        true => {
            with(|group| group.windows.push(window));
            Ok(())
        }
        false => window.run(),
    }
}

impl OpenGroups {
    fn run(self) -> Result<Code> {
        let Self { failure, queued, births, windows, .. } = self;
        let early = births.iter().filter(|birth| birth.returns_early()).count();
        let failure = failure.or_else(|| {
            let limit = format!("{early} of them return early");
            let mixed = early > 0 && early < births.len();
            mixed.then(|| argument("the number of communicators that the group opens", births.len(), limit))
        });
        let failure = failure.or_else(|| {
            let mut comms = queued.iter().map(|queued| &queued.comm).chain(windows.iter().map(Registering::comm));
            let split =
                comms.find(|comm| births.iter().any(|birth| birth.returns_early() && birth.is_step_of(comm)))?;
            Some(argument("the communicator", split.name(), "the group splits it, and the split returns early"))
        });
        if let Some(failure) = failure {
            births.into_iter().for_each(Birth::give_up);
            return Err(failure);
        }
        let code = Birth::run_all(births)?;
        Registering::run_all(windows)?;
        run_queued(queued)?;
        Ok(code)
    }
}

/// Makes the calls of each communicator, in the order of the communicators' first calls.
fn run_queued(mut queued: Vec<Queued>) -> Result {
    let mut started = Vec::new();
    while let Some(first) = queued.first() {
        let comm = first.comm.clone();
        let (own, others) = queued.into_iter().partition::<Vec<_>, _>(|queued| Arc::ptr_eq(&queued.comm, &comm));
        queued = others;
        let ServingLibrary::Own(side) = comm.side()? else { continue };
        let stream = enqueue(side, &own).map_err(|failure| comm.whole(failure))?;
        started.push((comm, stream));
    }
    let mut result = Ok(());
    for (comm, stream) in started {
        if let Ok(ServingLibrary::Own(own)) = comm.side() {
            result = result.and(settle(&comm, own, stream));
        }
    }
    result
}

/// Enqueues the calls of one communicator: the collectives in their order, then all messages as one operation. All work
/// is on the stream of the first call, which waits for the streams of the others, and these wait for the work.
fn enqueue(own: &OwnComm, queued: &[Queued]) -> Result<Option<Stream>> {
    let Some(first) = queued.first() else { return Ok(None) };
    let mut streams = vec![own.streams.get(first.stream)?];
    let mut handles = vec![first.stream];
    if !own.blocks() {
        for call in queued.iter().filter(|call| call.stream != first.stream) {
            if !handles.contains(&call.stream) {
                handles.push(call.stream);
                streams.push(own.streams.get(call.stream)?);
            }
        }
    }
    let mut messages = Vec::new();
    for call in queued {
        if let GroupedWork::Messages(some) = &call.work {
            messages.extend_from_slice(some);
        }
    }
    check_own_messages(own.communicator.rank(), &messages)?;
    let stream = streams.remove(0);
    check_captures(&stream, &streams)?;
    let waits = |later: &Stream, earlier: &Stream| -> Result {
        let event = Event::new(later.device())?;
        earlier.record(&event)?;
        Ok(later.wait(&event)?)
    };
    streams.iter().try_for_each(|other| waits(&stream, other))?;
    let mut enqueued = queued.iter().try_for_each(|call| match &call.work {
        GroupedWork::Collective(collective) => scaled::enqueue(collective, own, &stream),
        GroupedWork::Messages(_) => Ok(()),
    });
    if !messages.is_empty() {
        enqueued = enqueued.and_then(|()| calls::exchange(own, &messages, &stream));
    }
    enqueued.and(own.leave(&stream))?;
    streams.iter().try_for_each(|other| waits(other, &stream))?;
    Ok(Some(stream))
}

/// Refuses streams of two captures, or of a capture and of none: one would become a part of the other's graph.
fn check_captures(stream: &Stream, others: &[Stream]) -> Result {
    if others.is_empty() {
        return Ok(());
    }
    let capture = stream.native_capture()?;
    for other in others {
        if other.native_capture()? != capture {
            return Err(CallFailure::usage(
                "the streams of a communicator in a group must all be captured into one graph, or none of them",
            ));
        }
    }
    Ok(())
}

/// Refuses messages of a rank to itself whose numbers differ.
fn check_own_messages(rank: usize, messages: &[CheckedMessage]) -> Result {
    let count = |sends: bool| messages.iter().filter(|message| message.peer == rank && message.sends == sends).count();
    let (sends, receives) = (count(true), count(false));
    match sends == receives {
        true => Ok(()),
        false => Err(CallFailure::usage(format!(
            "the group has {sends} sends of rank {rank} to itself and {receives} receives: the numbers must be equal"
        ))),
    }
}

/// Waits for the calls where the device has no streams of the program.
fn settle(comm: &Comm, own: &OwnComm, stream: Option<Stream>) -> Result {
    match stream.filter(|_| own.blocks()) {
        Some(stream) => own.settle(&stream).map_err(|failure| comm.fail(comm.whole(failure))),
        None => Ok(()),
    }
}
