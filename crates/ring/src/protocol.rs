//! The lock-free part: who may touch which slot when.
//!
//! Chunks are numbered by a u32 that wraps; chunk n is in slot n mod slots (counted along, so that
//! any number of slots does). The writer fills a slot and stores the stamp n + 1 with release; a
//! reader that loads a stamp of at least n + 1 with acquire sees all of chunk n. When it has copied
//! the chunk it stores n + 1 into its cursor with release; the writer fills the slot again, for
//! chunk n + slots, only after it loaded at least n + 1 from every cursor with acquire: so every
//! read of the old chunk happens before the first write of the new one. Comparisons are of
//! differences, so the wrap is a number like any other.
//!
//! A party that left or died says so (or is said so of) in its state, and counts in `losses`,
//! which the writer looks at for each chunk.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::bell::Bell;

/// What is known of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Life {
    /// It has not come yet.
    Absent = 0,
    Alive = 1,
    /// It dropped its end.
    Left = 2,
    /// Its process ended, or its thread without dropping its end.
    Dead = 3,
    /// A writer that could not finish a message.
    GaveUp = 4,
}

impl Life {
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

/// Whether a party lives, for the others. All zero is absent.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Party {
    life: AtomicU32,
    /// Process number, for messages.
    process: AtomicU32,
}

/// How far a reader is: the number of the chunk it reads next.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Cursor(AtomicU32);

/// How many parties left or died.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Losses(AtomicU32);

/// What a slot holds.
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
pub(super) enum Kind {
    /// The rest of the message, or all of it.
    Last,
    /// More chunks of the message follow.
    Part,
    /// The message comes another way.
    Elsewhere,
}

/// What is said of a chunk beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) chunk_bytes: u64,
    pub(super) message_bytes: u64,
}

/// Everything shared but the chunks. Entries of `parties` and `cursors` are by party; the
/// writer's cursor is not used.
#[derive(Clone, Copy)]
pub(super) struct Board<'a> {
    /// Rung when there is a chunk, and when a party is lost.
    pub(super) news: &'a Bell,
    /// Rung when a reader is done with a chunk, and when a party is lost.
    pub(super) room: &'a Bell,
    pub(super) losses: &'a Losses,
    pub(super) parties: &'a [Party],
    pub(super) cursors: &'a [Cursor],
    pub(super) slots: &'a [Slot],
}

impl Board<'_> {
    /// Sets a new ring to begin with chunk `first`. Before anybody else has it.
    pub(super) fn begin(&self, first: u32) {
        for slot in self.slots {
            slot.stamp.store(first, Ordering::Relaxed);
        }
        for cursor in self.cursors {
            cursor.0.store(first, Ordering::Release);
        }
    }

    /// This party is there.
    pub(super) fn join(&self, party: usize, process: u32) {
        self.parties[party].process.store(process, Ordering::Relaxed);
        self.parties[party].life.store(Life::Alive as u32, Ordering::Release);
    }

    /// A party is there no more. What was said of it first stays.
    pub(super) fn lose(&self, party: usize, how: Life) {
        let life = &self.parties[party].life;
        let alive = [Life::Alive as u32, Life::Absent as u32];
        let changed = |was| life.compare_exchange(was, how as u32, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if alive.into_iter().any(changed) {
            self.losses.0.fetch_add(1, Ordering::Release);
            self.news.ring();
            self.room.ring();
        }
    }

    pub(super) fn life(&self, party: usize) -> Life {
        Life::from_word(self.parties[party].life.load(Ordering::Acquire))
    }

    pub(super) fn process(&self, party: usize) -> u32 {
        self.parties[party].process.load(Ordering::Relaxed)
    }

    /// How many chunks a reader has yet to read, when the writer writes `next` next.
    pub(super) fn behind(&self, reader: usize, next: u32) -> u32 {
        next.wrapping_sub(self.cursors[reader].0.load(Ordering::Relaxed))
    }

    /// The first party, but for the writer, that left or died; one load when there is none.
    fn lost(&self, writer: usize) -> Option<usize> {
        if self.losses.0.load(Ordering::Acquire) == 0 {
            return None;
        }
        let gone = |party: &usize| matches!(self.life(*party), Life::Left | Life::Dead | Life::GaveUp);
        (0..self.parties.len()).filter(|party| *party != writer).find(gone)
    }
}

/// Why there is no room for a chunk.
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

    /// The slot of the next chunk, if it is free. It stays free until it is published.
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

    /// Hands the claimed slot, filled, to the readers.
    pub(super) fn publish(&mut self, board: &Board<'_>, head: Head) {
        let slot = &board.slots[self.slot];
        slot.kind.store(head.kind as u32, Ordering::Relaxed);
        slot.chunk_bytes.store(head.chunk_bytes, Ordering::Relaxed);
        slot.message_bytes.store(head.message_bytes, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        slot.stamp.store(self.next, Ordering::Release);
        self.slot = (self.slot + 1) % board.slots.len();
        self.free -= 1;
        board.news.ring();
    }
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

    /// The next chunk and its slot; or how the writer ended, when it did before it wrote one.
    pub(super) fn poll(&self, board: &Board<'_>) -> Option<Result<(Head, usize), Life>> {
        if let Some(found) = self.arrived(board) {
            return Some(Ok(found));
        }
        match board.life(self.writer) {
            Life::Alive | Life::Absent => None,
            // What it wrote before it ended is there by now.
            life => Some(self.arrived(board).ok_or(life)),
        }
    }

    fn arrived(&self, board: &Board<'_>) -> Option<(Head, usize)> {
        let slot = &board.slots[self.slot];
        let stamp = slot.stamp.load(Ordering::Acquire);
        if (stamp.wrapping_sub(self.next) as i32) < 1 {
            return None;
        }
        let kind = match slot.kind.load(Ordering::Relaxed) {
            0 => Kind::Last,
            1 => Kind::Part,
            _ => Kind::Elsewhere,
        };
        let chunk_bytes = slot.chunk_bytes.load(Ordering::Relaxed);
        let message_bytes = slot.message_bytes.load(Ordering::Relaxed);
        Some((Head { kind, chunk_bytes, message_bytes }, self.slot))
    }

    /// This reader is done with the chunk it polled.
    pub(super) fn release(&mut self, board: &Board<'_>) {
        self.next = self.next.wrapping_add(1);
        self.slot = (self.slot + 1) % board.slots.len();
        board.cursors[self.party].0.store(self.next, Ordering::Release);
        board.room.ring();
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod tests {
    use std::time::{Duration, Instant};

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::spin::Spin;

    /// So that numbers wrap in the middle.
    const FIRST: u32 = u32::MAX;

    /// A ring whose chunks are one number each: loom sees every access to them.
    struct Ring {
        news: Bell,
        room: Bell,
        losses: Losses,
        parties: Vec<Party>,
        cursors: Vec<Cursor>,
        slots: Vec<Slot>,
        chunks: Vec<UnsafeCell<u64>>,
    }

    impl Ring {
        fn new(readers: usize, slots: usize) -> Arc<Self> {
            let ring = Self {
                news: Bell::default(),
                room: Bell::default(),
                losses: Losses::default(),
                parties: (0..=readers).map(|_| Party::default()).collect(),
                cursors: (0..=readers).map(|_| Cursor::default()).collect(),
                slots: (0..slots).map(|_| Slot::default()).collect(),
                chunks: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
            };
            ring.board().begin(FIRST);
            (0..=readers).for_each(|party| ring.board().join(party, 0));
            Arc::new(ring)
        }

        fn board(&self) -> Board<'_> {
            let Self { news, room, losses, parties, cursors, slots, .. } = self;
            Board { news, room, losses, parties, cursors, slots }
        }

        fn write(&self, messages: u64) {
            let (board, mut cursor) = (self.board(), WriteCursor::new(0, FIRST));
            for message in 0..messages {
                let slot = self.wait(board.room, || cursor.claim(&board).ok());
                // SAFETY: what the protocol is to make sure of; loom checks it.
                self.chunks[slot].with_mut(|chunk| unsafe { *chunk = message + 7 });
                cursor.publish(&board, Head { kind: Kind::Last, chunk_bytes: 8, message_bytes: message });
            }
        }

        fn read(&self, party: usize, messages: u64) {
            let (board, mut cursor) = (self.board(), ReadCursor::new(party, 0, FIRST));
            for message in 0..messages {
                let (head, slot) = self.wait(board.news, || cursor.poll(&board)).unwrap();
                assert_eq!(head.message_bytes, message);
                // SAFETY: as above.
                let chunk = self.chunks[slot].with(|chunk| unsafe { *chunk });
                assert_eq!(chunk, message + 7);
                cursor.release(&board);
            }
        }

        fn wait<T>(&self, bell: &Bell, poll: impl FnMut() -> Option<T>) -> T {
            let never = Instant::now() + Duration::from_secs(3600);
            bell.wait(&mut Spin::new(Duration::ZERO), never, poll).unwrap()
        }
    }

    /// A lost wake-up is a deadlock and a race on a chunk an error: loom finds both.
    fn explore(readers: usize, slots: usize, messages: u64, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let ring = Ring::new(readers, slots);
            let threads: Vec<_> = (1..=readers)
                .map(|party| {
                    let ring = ring.clone();
                    thread::spawn(move || ring.read(party, messages))
                })
                .collect();
            ring.write(messages);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn one_reader_sees_every_message_whole_over_the_wrap() {
        explore(1, 2, 3, 3);
    }

    #[test]
    fn two_readers_see_every_message_whole_over_the_wrap() {
        explore(2, 2, 3, 1);
    }

    #[test]
    fn a_reader_sees_what_a_writer_wrote_before_it_left() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let ring = Ring::new(1, 2);
            let reader = ring.clone();
            let thread = thread::spawn(move || {
                reader.read(1, 1);
                let cursor = ReadCursor { slot: 1, ..ReadCursor::new(1, 0, FIRST.wrapping_add(1)) };
                let board = reader.board();
                assert_eq!(reader.wait(board.news, || cursor.poll(&board)), Err(Life::Left));
            });
            ring.write(1);
            ring.board().lose(0, Life::Left);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_writer_that_waits_for_room_learns_of_a_death() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let ring = Ring::new(1, 2);
            let monitor = ring.clone();
            let thread = thread::spawn(move || monitor.board().lose(1, Life::Dead));
            let (board, mut cursor) = (ring.board(), WriteCursor::new(0, FIRST));
            let lost = loop {
                match ring.wait(board.room, || match cursor.claim(&board) {
                    Err(Blocked::Behind(_)) => None,
                    other => Some(other),
                }) {
                    Ok(_) => cursor.publish(&board, Head { kind: Kind::Last, chunk_bytes: 0, message_bytes: 0 }),
                    Err(blocked) => break blocked,
                }
            };
            assert_eq!(lost, Blocked::Lost(1));
            thread.join().unwrap();
        });
    }
}
