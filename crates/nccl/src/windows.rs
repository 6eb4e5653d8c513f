//! Windows: memory of all ranks that peers address directly. Calls find a window by the address of an operand inside, and
//! are zero-copy.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use symmetra::{Adopted, Communicator, Ref};

use crate::abi::Handle;
use crate::error::{CallFailure, Result, argument};

/// The flag of a window that all ranks register, and all flags that NCCL has.
const SYMMETRIC: c_int = 1;
pub(crate) const FLAGS: c_int = 3;

/// The most windows of a communicator at one time. Further memory goes by packets.
pub(crate) const MOST: usize = 4000;

/// The first handle of a window, and the number of handles: no addresses on any processor.
const FIRST_HANDLE: u64 = 0x5359_4d00_0000_0000;
const HANDLES: u64 = 1 << 40;

/// A new handle.
fn handle() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    FIRST_HANDLE + NEXT.fetch_add(1, Ordering::Relaxed) % HANDLES
}

/// Refuses a window of this library in a call for kernels of the program.
pub(crate) fn refuse_own(window: Handle) -> Result {
    match (FIRST_HANDLE..FIRST_HANDLE + HANDLES).contains(&(window as u64)) {
        false => Ok(()),
        true => {
            let reason = "SYMMETRA_NCCL_SERVE=off gives communicators to the real NCCL";
            Err(CallFailure::usage(format!("a window on symmetra's kernels has no device pointers: {reason}")))
        }
    }
}

/// Memory as the program registers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowRequest {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) flags: c_int,
}

/// A window, and how many registrations of the program it has.
struct ProgramWindow {
    range: Range<usize>,
    registrations: usize,
    /// `None`: a window without the flag of symmetric windows, which changes nothing.
    _memory: Option<Adopted<'static, u8>>,
}

impl ProgramWindow {
    fn meets(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// A registration of the program.
struct WindowRegistration {
    address: usize,
    /// The number of the window.
    number: u64,
}

#[derive(Default)]
struct WindowState {
    /// The number of the next window, which all ranks count alike.
    next: u64,
    windows: BTreeMap<u64, ProgramWindow>,
    registrations: HashMap<u64, WindowRegistration>,
}

impl WindowState {
    /// Adds a registration of a window, which exists.
    fn register(&mut self, address: usize, number: u64) -> Handle {
        if let Some(window) = self.windows.get_mut(&number) {
            window.registrations += 1;
        }
        let handle = handle();
        self.registrations.insert(handle, WindowRegistration { address, number });
        handle as Handle
    }
}

/// The windows of a communicator.
#[derive(Default)]
pub(crate) struct Windows(Mutex<WindowState>);

/// The communicators that have had windows.
static ALL: Mutex<Vec<Weak<Windows>>> = Mutex::new(Vec::new());

impl Windows {
    /// Registers memory. Collective; blocks. `memory` is the memory if this library knows that peers may use it. `None`:
    /// the memory of a rank cannot be shared, and calls on the memory go by packets.
    pub(crate) fn register(
        self: &Arc<Self>,
        communicator: &Communicator,
        asked: WindowRequest,
        memory: Option<Ref<'static, u8>>,
    ) -> Result<Option<Handle>> {
        let own = Told::new(asked, memory.is_some(), &self.0.lock());
        let sent = communicator.group().all_gather_bytes(&own.bytes())?;
        let all: Vec<Told> = sent.iter().map(|bytes| Told::read(bytes)).collect::<Result<_>>()?;
        if let Some(rank) = all.iter().position(|told| told.bytes == 0) {
            return Err(argument(format!("the size of rank {rank}'s window"), 0, "a window needs at least 1 byte"));
        }
        match own.inside {
            Some([number, _]) if all.iter().all(|told| told.inside == own.inside) => {
                return Ok(Some(self.0.lock().register(asked.address, number)));
            }
            // Calls find one window, so the ranks end those that the new one replaces on some rank.
            _ => self.end(all.iter().flat_map(|told| &told.overlapping)),
        }
        let bytes = all.iter().fold(asked.bytes, |least, told| least.min(told.bytes as usize));
        let is_symmetric = all.iter().all(|told| told.is_symmetric);
        let adopted = match (is_symmetric, memory.filter(|_| all.iter().all(|told| told.can_share))) {
            (false, _) => None,
            (true, None) => return Ok(None),
            (true, Some(memory)) => {
                let memory = memory.slice(..bytes)?;
                // SAFETY: NCCL's contract is that the memory stays until it is deregistered on all ranks. This library's own
                // memory stays allocated as long as a peer can address it.
                let adopted = unsafe { communicator.adopt(memory) }?;
                if !adopted.is_shared() {
                    return Ok(None);
                }
                Some(adopted)
            }
        };
        let mut state = self.0.lock();
        if state.windows.is_empty() {
            self.keep_known();
        }
        let number = state.next;
        state.next += 1;
        let range = asked.address..asked.address + bytes;
        state.windows.insert(number, ProgramWindow { range, registrations: 0, _memory: adopted });
        Ok(Some(state.register(asked.address, number)))
    }

    /// Adds the communicator to those whose windows `forget` looks at.
    fn keep_known(self: &Arc<Self>) {
        let mut all = ALL.lock();
        all.retain(|windows| windows.strong_count() > 0 && !std::ptr::eq(windows.as_ptr(), Arc::as_ptr(self)));
        all.push(Arc::downgrade(self));
    }

    /// Ends a registration. Local. The last one ends the window.
    pub(crate) fn deregister(&self, handle: Handle) -> Result {
        let mut state = self.0.lock();
        let WindowRegistration { number, .. } =
            state.registrations.remove(&(handle as u64)).ok_or_else(|| unknown(handle))?;
        // The memory may have been freed before, with its window.
        let Some(window) = state.windows.get_mut(&number) else { return Ok(()) };
        window.registrations -= 1;
        let ended = if window.registrations == 0 { state.windows.remove(&number) } else { None };
        drop(state);
        drop(ended);
        Ok(())
    }

    /// Ends windows. Registrations of an ended window end without effect.
    fn end<'n>(&self, numbers: impl IntoIterator<Item = &'n u64>) {
        let mut state = self.0.lock();
        let ended: Vec<_> = numbers.into_iter().filter_map(|number| state.windows.remove(number)).collect();
        drop(state);
        drop(ended);
    }

    /// The address that was registered.
    pub(crate) fn address(&self, handle: Handle) -> Result<*mut c_void> {
        let state = self.0.lock();
        let found = state.registrations.get(&(handle as u64)).ok_or_else(|| unknown(handle))?;
        Ok(found.address as *mut c_void)
    }
}

/// Ends the windows of all communicators in memory that is about to be freed.
pub(crate) fn forget(range: &Range<usize>) {
    let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    for windows in all {
        let state = windows.0.lock();
        let meeting = state.windows.iter().filter(|(_, window)| window.meets(range));
        let numbers: Vec<u64> = meeting.map(|(number, _)| *number).collect();
        drop(state);
        windows.end(&numbers);
    }
}

fn unknown(handle: Handle) -> CallFailure {
    argument("the window", format!("{handle:p}"), "it is no window of the communicator")
}

/// The data that a rank sends about its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    bytes: u64,
    is_symmetric: bool,
    can_share: bool,
    /// The number of a window that has the memory inside, and the offset there.
    inside: Option<[u64; 2]>,
    /// The numbers of the windows that overlap with the memory.
    overlapping: Vec<u64>,
}

impl Told {
    fn new(WindowRequest { address, bytes, flags }: WindowRequest, can_share: bool, state: &WindowState) -> Self {
        let range = address..address.saturating_add(bytes);
        let has = |window: &ProgramWindow| window.range.start <= range.start && range.end <= window.range.end;
        let outer = state.windows.iter().find(|(_, window)| has(window));
        let overlapping = state.windows.iter().filter(|(_, window)| window.meets(&range)).map(|(number, _)| *number);
        Self {
            bytes: bytes as u64,
            is_symmetric: flags & SYMMETRIC != 0,
            can_share: can_share && state.windows.len() < MOST,
            inside: outer.map(|(number, window)| [*number, (address - window.range.start) as u64]),
            overlapping: overlapping.collect(),
        }
    }

    /// Four words, the last two for the place inside a window, then the numbers of the windows that overlap.
    fn bytes(&self) -> Vec<u8> {
        let flags =
            u64::from(self.is_symmetric) | u64::from(self.can_share) << 1 | u64::from(self.inside.is_some()) << 2;
        let [number, offset] = self.inside.unwrap_or_default();
        let words = [self.bytes, flags, number, offset].into_iter().chain(self.overlapping.iter().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn read(sent: &[u8]) -> Result<Self> {
        let (words, rest) = sent.as_chunks();
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        match (words.as_slice(), rest) {
            (&[bytes, flags, number, offset, ref overlapping @ ..], []) => Ok(Self {
                bytes,
                is_symmetric: flags & 1 != 0,
                can_share: flags & 2 != 0,
                inside: (flags & 4 != 0).then_some([number, offset]),
                overlapping: overlapping.to_vec(),
            }),
            _ => Err(CallFailure::system(format!(
                "a rank sent {} bytes about its window: at least 32 are right",
                sent.len()
            ))),
        }
    }
}
