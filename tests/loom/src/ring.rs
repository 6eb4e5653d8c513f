//! The protocol of the ring with one and two readers.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::backoff::Backoff;
use crate::futex_event::FutexEvent;
use crate::protocol::{
    Blocked, Board, ChunkHead, ChunkKind, CursorState, Losses, MemberLife, PartyState, ReadCursor, Slot, WriteCursor,
};

/// So that numbers wrap in the middle.
const FIRST: u32 = u32::MAX;

/// A ring whose chunks are one number each: loom sees every access to them.
struct Ring {
    news: FutexEvent,
    room: FutexEvent,
    losses: Losses,
    parties: Vec<PartyState>,
    cursors: Vec<CursorState>,
    slots: Vec<Slot>,
    chunks: Vec<UnsafeCell<u64>>,
}

impl Ring {
    fn new(readers: usize, slots: usize) -> Arc<Self> {
        let ring = Self {
            news: FutexEvent::default(),
            room: FutexEvent::default(),
            losses: Losses::default(),
            parties: (0..=readers).map(|_| PartyState::default()).collect(),
            cursors: (0..=readers).map(|_| CursorState::default()).collect(),
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
            // SAFETY: the protocol gives the writer a claimed slot alone; loom checks it.
            self.chunks[slot].with_mut(|chunk| unsafe { *chunk = message + 7 });
            cursor.publish(&board, ChunkHead { kind: ChunkKind::Last, chunk_bytes: 8, message_bytes: message });
        }
    }

    fn read(&self, party: usize, messages: u64) -> ReadCursor {
        let (board, mut cursor) = (self.board(), ReadCursor::new(party, 0, FIRST));
        for message in 0..messages {
            let (head, slot) = self.wait(board.news, || cursor.poll(&board)).unwrap();
            assert_eq!(head.message_bytes, message);
            // SAFETY: the protocol gives this reader the chunk until it releases the slot; loom checks it.
            let chunk = self.chunks[slot].with(|chunk| unsafe { *chunk });
            assert_eq!(chunk, message + 7);
            cursor.release(&board);
        }
        cursor
    }

    fn wait<T>(&self, event: &FutexEvent, poll: impl FnMut() -> Option<T>) -> T {
        let never = Instant::now() + Duration::from_secs(3600);
        event.wait(&mut Backoff::new(Duration::ZERO), never, poll).unwrap()
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
                thread::spawn(move || drop(ring.read(party, messages)))
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
            let cursor = reader.read(1, 1);
            let board = reader.board();
            assert_eq!(reader.wait(board.news, || cursor.poll(&board)), Err(MemberLife::Left));
        });
        ring.write(1);
        ring.board().lose(0, MemberLife::Left);
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
        let thread = thread::spawn(move || monitor.board().lose(1, MemberLife::Dead));
        let (board, mut cursor) = (ring.board(), WriteCursor::new(0, FIRST));
        let lost = loop {
            match ring.wait(board.room, || match cursor.claim(&board) {
                Err(Blocked::Behind(_)) => None,
                other => Some(other),
            }) {
                Ok(_) => cursor.publish(&board, ChunkHead { kind: ChunkKind::Last, chunk_bytes: 0, message_bytes: 0 }),
                Err(blocked) => break blocked,
            }
        };
        assert_eq!(lost, Blocked::Lost(1));
        thread.join().unwrap();
    });
}
