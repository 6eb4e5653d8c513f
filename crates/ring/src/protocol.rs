//! The lock-free part: it orders the accesses of writer and readers to the slots.
//!
//! The crate's documentation explains how chunks are numbered and why a slot is never read and written at once. Numbers
//! are compared by their difference, so the wrap of a u32 is a number like any other.
//!
//! The state of a party records whether the party left or died. `losses` counts such parties; the writer reads the
//! count for each chunk. Next to the count the writer notes which rank it gave up, so that readers name that rank, not
//! the writer, when the writer ends.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::futex_event::FutexEvent;

/// The state of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum MemberLife {
    /// The party has not come yet.
    Absent = 0,
    Alive = 1,
    /// The party dropped its end.
    Left = 2,
    /// The party's process ended, or its thread without dropping its end.
    Dead = 3,
    /// A writer that could not finish a message.
    GaveUp = 4,
}

impl MemberLife {
    fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Alive,
            2 => Self::Left,
            3 => Self::Dead,
            4 => Self::GaveUp,
            _ => Self::Absent,
        }
    }
}

/// The state that other parties read. All zero is absent.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct PartyState {
    life: AtomicU32,
    /// Process number, for messages.
    process: AtomicU32,
    /// Its number among the parties that left or died, from 1.
    order: AtomicU32,
    /// The rank for which this reader has waited in vain, plus one; zero for none.
    missed: AtomicU32,
}

/// The number of the chunk that a reader reads next.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct CursorState(AtomicU32);

/// The parties that are lost.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Losses {
    /// How many parties left or died.
    count: AtomicU32,
    /// The rank that the writer gave up, plus one; zero for none. The rank may be on another host.
    given_up: AtomicU32,
}

/// The head of a slot.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Slot {
    stamp: AtomicU32,
    kind: AtomicU32,
    chunk_bytes: AtomicU64,
    message_bytes: AtomicU64,
}

/// How a chunk belongs to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// The rest of the message, or all of it.
    Last,
    /// More chunks of the message follow.
    Part,
    /// The message comes by ZeroMQ.
    Elsewhere,
}

/// A chunk without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) kind: ChunkKind,
    pub(super) chunk_bytes: u64,
    pub(super) message_bytes: u64,
}

/// Everything shared except the chunks. Entries of `parties` and `cursors` are by party; the
/// writer's cursor is not used.
#[derive(Clone, Copy)]
pub(super) struct Board<'a> {
    /// Notified when there is a chunk, and when a party is lost.
    pub(super) news: &'a FutexEvent,
    /// Notified when a reader is done with a chunk, and when a party is lost.
    pub(super) room: &'a FutexEvent,
    pub(super) losses: &'a Losses,
    pub(super) parties: &'a [PartyState],
    pub(super) cursors: &'a [CursorState],
    pub(super) slots: &'a [Slot],
}

impl Board<'_> {
    /// Sets a new ring to begin with chunk `first`, before any other party has the ring.
    pub(super) fn begin(&self, first: u32) {
        for slot in self.slots {
            slot.stamp.store(first, Ordering::Relaxed);
        }
        for cursor in self.cursors {
            cursor.0.store(first, Ordering::Release);
        }
    }

    /// Marks a party as alive.
    pub(super) fn join(&self, party: usize, process: u32) {
        self.parties[party].process.store(process, Ordering::Relaxed);
        self.parties[party].life.store(MemberLife::Alive as u32, Ordering::Release);
    }

    /// Marks a party as ended. The first mark stays.
    pub(super) fn lose(&self, party: usize, how: MemberLife) {
        let life = &self.parties[party].life;
        let alive = [MemberLife::Alive as u32, MemberLife::Absent as u32];
        let changed = |was| life.compare_exchange(was, how as u32, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // Counted and notified also by parties that find the mark: the party that made the mark may be stopped after it.
        let before = self.losses.count.fetch_add(1, Ordering::Release);
        if alive.into_iter().any(changed) {
            self.parties[party].order.store(before + 1, Ordering::Release);
        }
        self.news.notify();
        self.room.notify();
    }

    /// The writer notes the rank that it gave up, before it ends, or that it gave up none.
    pub(super) fn give_up(&self, rank: Option<usize>) {
        self.losses.given_up.store(word_of(rank), Ordering::Release);
    }

    /// The rank that the writer gave up.
    pub(super) fn given_up(&self) -> Option<usize> {
        rank_of(self.losses.given_up.load(Ordering::Acquire))
    }

    /// A reader notes the rank for which it has waited in vain, or that what it waited for came.
    pub(super) fn miss(&self, party: usize, rank: Option<usize>) {
        self.parties[party].missed.store(word_of(rank), Ordering::Release);
    }

    /// The rank for which a reader has waited in vain.
    pub(super) fn missed(&self, party: usize) -> Option<usize> {
        rank_of(self.parties[party].missed.load(Ordering::Acquire))
    }

    pub(super) fn life(&self, party: usize) -> MemberLife {
        MemberLife::from_word(self.parties[party].life.load(Ordering::Acquire))
    }

    pub(super) fn process(&self, party: usize) -> u32 {
        self.parties[party].process.load(Ordering::Relaxed)
    }

    /// How many chunks a reader has yet to read, when the writer writes `next` next.
    pub(super) fn behind(&self, reader: usize, next: u32) -> u32 {
        next.wrapping_sub(self.cursors[reader].0.load(Ordering::Relaxed))
    }

    /// The first party other than the writer that died.
    pub(super) fn dead(&self, writer: usize) -> Option<usize> {
        (0..self.parties.len()).filter(|party| *party != writer).find(|party| self.life(*party) == MemberLife::Dead)
    }

    /// The party other than the writer that left or died before all others; costs one load if no party is lost.
    fn lost(&self, writer: usize) -> Option<usize> {
        if self.losses.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let gone =
            |party: &usize| matches!(self.life(*party), MemberLife::Left | MemberLife::Dead | MemberLife::GaveUp);
        let all_gone = (0..self.parties.len()).filter(|party| *party != writer).filter(gone);
        // A party that is about to note its number counts as the last one.
        all_gone.min_by_key(|party| self.parties[*party].order.load(Ordering::Acquire).wrapping_sub(1))
    }
}

/// A rank or none, in a word that is zero at first.
fn word_of(rank: Option<usize>) -> u32 {
    rank.map_or(0, |rank| u32::try_from(rank + 1).unwrap_or(0))
}

fn rank_of(word: u32) -> Option<usize> {
    word.checked_sub(1).map(|rank| rank as usize)
}

/// Why the next slot is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// This reader has not read the chunk that is in the slot.
    Behind(usize),
    /// This reader is gone.
    Lost(usize),
}

/// The writer's place.
pub(super) struct WriteCursor {
    party: usize,
    /// Number of the next chunk.
    next: u32,
    /// Its slot.
    slot: usize,
    /// Slots from `next` on that every reader was seen to be done with.
    free: u32,
}

impl WriteCursor {
    pub(super) fn new(party: usize, first: u32) -> Self {
        Self { party, next: first, slot: 0, free: 0 }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The slot of the next chunk, if that slot is free. The slot stays free until the chunk is published.
    pub(super) fn claim(&mut self, board: &Board<'_>) -> Result<usize, Blocked> {
        if let Some(party) = board.lost(self.party) {
            return Err(Blocked::Lost(party));
        }
        if self.free == 0 {
            let slots = board.slots.len() as u32;
            let used = |party: usize| self.next.wrapping_sub(board.cursors[party].0.load(Ordering::Acquire));
            let readers = (0..board.cursors.len()).filter(|party| *party != self.party);
            let slowest = readers.map(|party| (used(party), party)).max_by_key(|(used, _)| *used);
            let (used, party) = slowest.unwrap_or((0, self.party));
            self.free = slots.saturating_sub(used);
            if self.free == 0 {
                return Err(Blocked::Behind(party));
            }
        }
        Ok(self.slot)
    }

    /// The reader, other than `party`, that keeps the writer from the next chunk, and how many chunks it has not read.
    pub(super) fn in_the_way(&self, board: &Board<'_>, party: usize) -> Option<(usize, u32)> {
        furthest_behind(board, self.next, [self.party, party])
    }

    /// Hands the claimed slot, filled, to the readers.
    pub(super) fn publish(&mut self, board: &Board<'_>, head: ChunkHead) {
        let slot = &board.slots[self.slot];
        slot.kind.store(head.kind as u32, Ordering::Relaxed);
        slot.chunk_bytes.store(head.chunk_bytes, Ordering::Relaxed);
        slot.message_bytes.store(head.message_bytes, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        slot.stamp.store(self.next, Ordering::Release);
        self.slot = (self.slot + 1) % board.slots.len();
        self.free -= 1;
        board.news.notify();
    }
}

/// The reader with the most unread chunks before chunk `next`, and their number, if they fill the ring. Ignores the
/// parties `but`.
fn furthest_behind(board: &Board<'_>, next: u32, but: [usize; 2]) -> Option<(usize, u32)> {
    let others = (0..board.cursors.len()).filter(|party| !but.contains(party));
    let behind = others.map(|party| (party, board.behind(party, next)));
    behind.max_by_key(|(_, chunks)| *chunks).filter(|(_, chunks)| *chunks as usize >= board.slots.len())
}

/// A reader's place.
pub(super) struct ReadCursor {
    party: usize,
    writer: usize,
    next: u32,
    slot: usize,
}

impl ReadCursor {
    pub(super) fn new(party: usize, writer: usize, first: u32) -> Self {
        Self { party, writer, next: first, slot: 0 }
    }

    /// The next chunk and its slot, or how the writer ended if it wrote no next chunk.
    pub(super) fn poll(&self, board: &Board<'_>) -> Option<Result<(ChunkHead, usize), MemberLife>> {
        if let Some(found) = self.arrived(board) {
            return Some(Ok(found));
        }
        match board.life(self.writer) {
            MemberLife::Alive | MemberLife::Absent => None,
            // The writer writes its chunks before its end, so a chunk that it wrote is visible now.
            life => Some(self.arrived(board).ok_or(life)),
        }
    }

    /// Another reader that keeps the writer from writing the next chunk, and how many chunks that reader has not read.
    pub(super) fn in_the_way(&self, board: &Board<'_>) -> Option<(usize, u32)> {
        furthest_behind(board, self.next, [self.writer, self.party])
    }

    fn arrived(&self, board: &Board<'_>) -> Option<(ChunkHead, usize)> {
        let slot = &board.slots[self.slot];
        let stamp = slot.stamp.load(Ordering::Acquire);
        if (stamp.wrapping_sub(self.next) as i32) < 1 {
            return None;
        }
        let kind = match slot.kind.load(Ordering::Relaxed) {
            0 => ChunkKind::Last,
            1 => ChunkKind::Part,
            _ => ChunkKind::Elsewhere,
        };
        let chunk_bytes = slot.chunk_bytes.load(Ordering::Relaxed);
        let message_bytes = slot.message_bytes.load(Ordering::Relaxed);
        Some((ChunkHead { kind, chunk_bytes, message_bytes }, self.slot))
    }

    /// Gives back the slot of the polled chunk.
    pub(super) fn release(&mut self, board: &Board<'_>) {
        self.next = self.next.wrapping_add(1);
        self.slot = (self.slot + 1) % board.slots.len();
        board.cursors[self.party].0.store(self.next, Ordering::Release);
        board.room.notify();
    }
}
