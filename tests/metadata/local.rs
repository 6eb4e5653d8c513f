//! Ranks as threads of one process.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{Config, Device, Error, Group, Result};
use symmetra_ring::{BroadcastRing, Reader, RingConfig, Writer};

use crate::{check_series, ends, lost, message, ring, small, timed_out, within};

/// Writes a series to readers on other threads, which check it.
fn series(world: usize, config: &RingConfig, count: u64, most_bytes: usize) {
    let seed = fastrand::u64(..);
    let (mut writer, readers) = ring(world, config);
    let readers = readers.into_iter().map(|mut reader| {
        thread::spawn(move || {
            check_series(&mut reader, seed, count, most_bytes);
            reader
        })
    });
    let readers: Vec<_> = readers.collect();
    for number in 0..count {
        writer.send(&message(seed, number, most_bytes)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert_eq!(writer.sent(), count);
    // A reader that left early would be lost to the writer: none leaves before it is done.
    let ended = readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| panic!("seed {seed}")));
    drop(ended.collect::<Vec<_>>());
}

#[test]
fn ten_thousand_messages_of_any_size_arrive_whole_and_in_order() {
    // Sizes around the chunk's and several times it; numbers wrap half way.
    let mut config = small();
    config.first_chunk = u32::MAX - 15_000;
    series(4, &config, 10_000, 450);
}

#[test]
fn every_shape_of_ring_works() {
    for (world, slots, chunk_bytes) in [(1, 1, 1), (2, 1, 1), (2, 1, 64), (3, 2, 7), (5, 7, 128), (16, 16, 1 << 20)] {
        let mut config = small();
        (config.slots, config.chunk_bytes) = (slots, chunk_bytes);
        series(world, &config, 60, 300);
    }
}

#[test]
fn numbers_wrap_at_every_slot() {
    for before in 0..7 {
        let mut config = small();
        config.first_chunk = u32::MAX - before;
        series(3, &config, 40, 250);
        config.first_chunk = i32::MAX as u32 - before;
        series(3, &config, 40, 250);
    }
}

#[test]
fn a_ring_that_never_spins_and_one_that_always_spins_work() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let mut config = small();
        config.spin = spin;
        series(2, &config, 500, 250);
    }
}

#[test]
fn sizes_around_the_chunk_and_none_at_all() {
    let (mut writer, mut readers) = ring(2, &small());
    let reader = &mut readers[0];
    for bytes in [0, 1, 99, 100, 101, 199, 200, 201, 300] {
        let sent: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
        writer.send(&sent).unwrap();
        assert_eq!(reader.receive().unwrap(), sent);
    }
}

#[test]
fn a_message_longer_than_the_ring_passes_through_it() {
    let (mut writer, readers) = ring(3, &small());
    let sent = message(1, 2, 0).into_iter().chain((0..1_000_003).map(|index| ((index * 31) >> 3) as u8));
    let sent: Vec<u8> = sent.collect();
    let readers = readers.into_iter().map(|mut reader| {
        let expected = sent.clone();
        thread::spawn(move || assert!(reader.receive().unwrap() == expected))
    });
    let readers: Vec<_> = readers.collect();
    writer.send(&sent).unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Step {
    batch: Vec<u32>,
    lengths: BTreeMap<String, i64>,
    temperature: Option<f64>,
    logprobs: Vec<Option<f32>>,
    last: bool,
}

#[test]
fn values_arrive_as_they_were() {
    let (mut writer, mut readers) = ring(2, &RingConfig::default());
    let step = Step {
        batch: (0..20).collect(),
        lengths: [("a".to_owned(), i64::MIN), ("\u{1f600}".to_owned(), 3)].into(),
        temperature: Some(0.1),
        logprobs: vec![Some(f32::NEG_INFINITY), None, Some(f32::INFINITY)],
        last: true,
    };
    writer.send_value(&step).unwrap();
    writer.send_value("no step").unwrap();
    writer.send_value(&()).unwrap();
    assert_eq!(readers[0].receive_value::<Step>().unwrap(), step);
    let error = readers[0].receive_value::<Step>().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("message is 1"), "{error}");
    readers[0].receive_value::<()>().unwrap();
    let nan = f32::from_bits(0xff81_2345);
    writer.send_value(&nan).unwrap();
    assert_eq!(readers[0].receive_value::<f32>().unwrap().to_bits(), nan.to_bits());
}

#[derive(Debug, Serialize, Deserialize)]
struct Nested(Vec<Self>);

/// The readers get the messages that are sent after it.
#[test]
fn a_value_that_is_too_deep_is_refused_before_it_is_sent() {
    let (mut writer, mut readers) = ring(2, &small());
    let deep = |levels| (1..levels).fold(Nested(Vec::new()), |inside, _| Nested(vec![inside]));
    let error = writer.send_value(&("tree", deep(256))).unwrap_err();
    let words = "the value is 257 levels deep at `[1][0][0]";
    assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(words), "{error}");
    assert!(error.to_string().contains("at most 256 levels"), "{error}");
    writer.send_value(&("tree", deep(255))).unwrap();
    let (name, mut tree) = readers[0].receive_value::<(String, Nested)>().unwrap();
    let mut levels = 1;
    while let Some(inside) = tree.0.pop() {
        (tree, levels) = (inside, levels + 1);
    }
    assert_eq!((name.as_str(), levels), ("tree", 255));
}

#[test]
fn a_slow_reader_blocks_the_writer_and_is_named() {
    let (mut writer, mut readers) = ring(3, &small());
    for _ in 0..3 {
        writer.send(b"x").unwrap();
        readers[0].receive().unwrap();
    }
    let start = Instant::now();
    let (rank, words) = timed_out(writer.send_by(b"y", within(0.2)));
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(rank, Some(2), "{words}");
    assert!(words.contains("metadata broadcast 3") && words.contains("alive") && words.contains("3 unread chunks"));
    // Nothing was sent, and all goes on.
    (0..3).for_each(|_| assert_eq!(readers[1].receive().unwrap(), b"x"));
    writer.send(b"z").unwrap();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.receive().unwrap(), b"z"));
}

/// Reader 2 is late, and reader 1 leaves because of that.
#[test]
fn the_writer_names_the_late_reader_and_not_the_one_that_left_because_of_it() {
    let fill = |writer: &mut Writer, reader: &mut Reader| {
        (0..3).for_each(|_| {
            writer.send(b"x").unwrap();
            assert_eq!(reader.receive().unwrap(), b"x");
        });
    };
    let (mut writer, mut readers) = ring(4, &small());
    let (mut last, mut late, mut other) = (readers.remove(2), readers.remove(1), readers.remove(0));
    (0..3).for_each(|_| writer.send(b"x").unwrap());
    (0..3).for_each(|_| assert_eq!(last.receive().unwrap(), b"x"));
    (0..3).for_each(|_| assert_eq!(other.receive().unwrap(), b"x"));
    assert_eq!(timed_out(other.receive_by(within(0.05))).0, Some(2));
    drop(other);
    for _ in 0..2 {
        let (rank, words) = lost(writer.send_by(b"y", within(10.0)));
        assert_eq!(rank, 2, "{words}");
        assert!(words.contains("alive") && words.contains("3 unread chunks; rank 1 waited for it in vain"), "{words}");
    }
    drop(writer);
    let (rank, words) = lost(last.receive());
    assert!(rank == 2 && words.contains("rank 0, the writer, gave it up"), "{words}");
    (0..3).for_each(|_| assert_eq!(late.receive().unwrap(), b"x"));

    // The writer itself was late.
    let (mut writer, mut readers) = ring(3, &small());
    timed_out(readers[0].receive_by(within(0.05)));
    drop(readers.remove(0));
    let (rank, words) = lost(writer.send(b"y"));
    assert!(rank == 1 && words.contains("left the ring") && words.contains("in vain"), "{words}");

    // The message that the reader waited for has come since, and the reader left by its own decision.
    let (mut writer, mut readers) = ring(3, &small());
    timed_out(readers[0].receive_by(within(0.05)));
    fill(&mut writer, &mut readers[0]);
    drop(readers.remove(0));
    let (rank, words) = lost(writer.send(b"y"));
    assert!(rank == 1 && words.contains("left the ring") && !words.contains("in vain"), "{words}");

    // Of several that left, the first.
    let (mut writer, mut readers) = ring(4, &small());
    drop(readers.remove(1));
    drop(readers.remove(0));
    assert_eq!(lost(writer.send(b"y")).0, 2);
}

#[test]
fn a_reader_that_waits_in_vain_names_the_writer_and_may_try_again() {
    let (mut writer, mut readers) = ring(2, &small());
    let (rank, words) = timed_out(readers[0].receive_by(within(0.05)));
    assert_eq!(rank, Some(0));
    assert!(words.contains("alive") && words.contains("has sent 0 messages"), "{words}");
    writer.send(b"late").unwrap();
    assert_eq!(readers[0].receive().unwrap(), b"late");
}

#[test]
fn a_message_that_stops_half_way_ends_the_ring_for_all() {
    let (mut writer, mut readers) = ring(2, &small());
    let (rank, _) = timed_out(writer.send_by(&[1; 500], within(0.1)));
    assert_eq!(rank, Some(1));
    assert_eq!(timed_out(writer.send(b"more")).0, Some(1));
    let (rank, words) = lost(readers[0].receive());
    assert!(rank == 0 && words.contains("in the middle of a message"), "{words}");
}

#[test]
fn a_reader_keeps_what_arrived_of_a_message_when_its_deadline_passes() {
    let (mut writer, mut readers) = ring(2, &small());
    let sent: Vec<u8> = (0..1000).map(|index| index as u8).collect();
    let expected = sent.clone();
    let writing = thread::spawn(move || {
        writer.send(&sent).unwrap();
        writer
    });
    let mut tries = 0;
    let received = loop {
        match readers[0].receive_by(Instant::now()) {
            Ok(received) => break received.to_vec(),
            Err(Error::Timeout { .. }) => tries += 1,
            Err(error) => panic!("{error} after {tries} tries"),
        }
    };
    assert!(received == expected);
    drop(writing.join().unwrap());
}

#[test]
fn pitfall_1_who_leaves_is_named_at_once_and_for_ever() {
    let (mut writer, mut readers) = ring(3, &small());
    writer.send(b"last").unwrap();
    readers.remove(0);
    let (rank, words) = lost(writer.send(b"?"));
    assert!(rank == 1 && words.contains("left the ring"), "{words}");
    assert_eq!(lost(writer.send(b"?")).0, 1);
    // The other reader gets the messages that were sent before the end, and learns which rank left first.
    drop(writer);
    assert_eq!(readers[0].receive().unwrap(), b"last");
    for _ in 0..2 {
        let (rank, words) = lost(readers[0].receive());
        assert!(rank == 1 && words.contains("it left the ring, process"), "{words}");
        assert!(words.contains("rank 0, the writer, gave it up, after 1 messages"), "{words}");
    }
}

#[test]
fn a_writer_that_leaves_in_good_order_is_named_whoever_leaves_then() {
    let (mut writer, mut readers) = ring(3, &small());
    writer.send(b"last").unwrap();
    drop(writer);
    readers.remove(0);
    assert_eq!(readers[0].receive().unwrap(), b"last");
    let (rank, words) = lost(readers[0].receive());
    assert!(rank == 0 && words.contains("left the ring") && !words.contains("gave"), "{words}");
}

#[test]
fn pitfall_2_a_reader_that_stalls_is_named_to_the_other_readers() {
    let (mut writer, mut readers) = ring(3, &small());
    for _ in 0..3 {
        writer.send(b"x").unwrap();
        readers[0].receive().unwrap();
    }
    // The writer waits, or would if it sent.
    let (rank, words) = timed_out(readers[0].receive_by(within(0.1)));
    assert!(rank == Some(2) && words.contains("alive") && words.contains("3 unread chunks"), "{words}");
    assert!(words.contains("rank 0, the writer, waits for it"), "{words}");
    assert_eq!(timed_out(writer.send_by(b"y", within(0.1))).0, Some(2));
    drop(writer);
    let (rank, words) = lost(readers[0].receive());
    assert!(rank == 2 && words.contains("it is alive, process") && words.contains("but was too slow"), "{words}");
    assert!(words.contains("rank 0, the writer, gave it up, after 3 messages"), "{words}");
    // The reader itself learns why.
    (0..3).for_each(|_| assert_eq!(readers[1].receive().unwrap(), b"x"));
    let (rank, words) = lost(readers[1].receive());
    assert!(rank == 0 && words.contains("because this rank was too slow"), "{words}");
}

#[test]
fn a_reader_that_caught_up_is_not_blamed() {
    let (mut writer, mut readers) = ring(3, &small());
    for _ in 0..3 {
        writer.send(b"x").unwrap();
        readers[0].receive().unwrap();
    }
    assert_eq!(timed_out(writer.send_by(b"y", within(0.1))).0, Some(2));
    (0..3).for_each(|_| assert_eq!(readers[1].receive().unwrap(), b"x"));
    writer.send(b"y").unwrap();
    drop(writer);
    for reader in &mut readers {
        assert_eq!(reader.receive().unwrap(), b"y");
        let (rank, words) = lost(reader.receive());
        assert!(rank == 0 && words.contains("left the ring") && !words.contains("too slow"), "{words}");
    }
}

#[test]
fn pitfall_1_waits_end_when_the_one_waited_for_leaves() {
    let mut config = small();
    config.spin = Duration::ZERO;
    let (writer, mut readers) = ring(2, &config);
    let mut reader = readers.remove(0);
    let waiting = thread::spawn(move || (lost(reader.receive()), Instant::now()));
    thread::sleep(Duration::from_millis(100));
    let left = Instant::now();
    drop(writer);
    let ((rank, _), returned) = waiting.join().unwrap();
    assert!(rank == 0 && returned - left < Duration::from_secs(10));

    let (mut writer, readers) = ring(2, &config);
    let waiting = thread::spawn(move || (lost(writer.send(&[0; 5000])), Instant::now()));
    thread::sleep(Duration::from_millis(100));
    let left = Instant::now();
    drop(readers);
    let ((rank, _), returned) = waiting.join().unwrap();
    assert!(rank == 1 && returned - left < Duration::from_secs(10));
}

#[test]
fn any_rank_may_write_and_a_group_may_carry_a_ring() {
    let _alone = crate::support::world::alone();
    let threads = Threads::new(3).unwrap().into_iter().map(|bootstrap| {
        thread::spawn(move || {
            let device = Device::host().unwrap();
            let group = Group::open(bootstrap, &device, Config::default()).unwrap();
            let mut config = small();
            config.writer = 2;
            match BroadcastRing::create_in(&group, config.clone()).unwrap() {
                BroadcastRing::Writer(mut writer) => {
                    assert_eq!(group.rank(), 2);
                    writer.send(b"hello").unwrap();
                    group.barrier().unwrap();
                }
                BroadcastRing::Reader(mut reader) => {
                    assert_eq!(reader.receive().unwrap(), b"hello");
                    group.barrier().unwrap();
                }
            }
            // A refused ring leaves the group as it was.
            config.slots = 1 + group.rank();
            assert!(matches!(BroadcastRing::create_in(&group, config), Err(Error::Mismatch { .. })));
            group.barrier().unwrap();
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn settings_outside_their_limits_or_that_differ_are_the_same_error_everywhere() {
    type Change = fn(&mut RingConfig);
    let changes: [(&str, Change); 5] = [
        ("the writer of the ring is 3, but it must be in 0..3", |config| config.writer = 3),
        ("chunk_bytes is 0", |config| config.chunk_bytes = 0),
        ("slots is 65537", |config| config.slots = 65_537),
        ("steady is 0ns", |config| config.steady = Duration::ZERO),
        ("open is 0ns", |config| config.open = Duration::ZERO),
    ];
    for (words, change) in changes {
        for (rank, end) in ends(3, |rank| {
            let mut config = small();
            if rank == 1 {
                change(&mut config);
            }
            config
        })
        .into_iter()
        .enumerate()
        {
            let error = end.unwrap_err();
            assert!(error.to_string().contains(words), "rank {rank}: {error}");
            match (rank, &error) {
                (1, Error::InvalidArgument { .. }) | (0 | 2, Error::Peer { rank: 1, .. }) => {}
                _ => panic!("rank {rank}: {error:?}"),
            }
        }
    }
    for end in ends(3, |rank| {
        let mut config = small();
        config.slots += usize::from(rank == 2);
        config
    }) {
        let error = end.unwrap_err();
        assert_eq!(error.to_string(), "ranks 0 and 2 disagree on slots: 3 and 4");
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let mut config = small();
    config.open = Duration::from_millis(300);
    let mut ranks = Threads::new(2).unwrap();
    let absent = ranks.remove(1);
    let (rank, _) = timed_out(BroadcastRing::create(&mut ranks[0], config));
    assert_eq!(rank, Some(1));
    drop(absent);
}

/// A rank, and how many all-gathers it takes part in before it leaves.
struct Leaver(Threads, usize);

impl Bootstrap for Leaver {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn world_size(&self) -> usize {
        self.0.world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.1 = self.1.checked_sub(1).ok_or(Error::Closed)?;
        self.0.all_gather(bytes, deadline)
    }
}

/// The ranks of the writer's host have their own numbers, but a missing rank is named by its number in the world.
#[test]
fn pitfall_05_who_leaves_while_a_ring_is_made_is_named_as_the_world_does() {
    for leaver in 0..4 {
        let threads = Threads::new(4).unwrap().into_iter().enumerate().map(|(rank, bootstrap)| {
            let mut config = small();
            config.writer = 1;
            config.host = Some(if rank == 0 { "elsewhere" } else { "here" }.to_owned());
            thread::spawn(move || {
                // All ranks send their hello.
                let mut bootstrap = Leaver(bootstrap, if rank == leaver { 1 } else { usize::MAX });
                BroadcastRing::create(&mut bootstrap, config).map(drop)
            })
        });
        let ends = threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap());
        for (rank, end) in ends.enumerate().filter(|(rank, _)| *rank != leaver) {
            assert_eq!(lost(end).0, leaver, "rank {rank}");
        }
    }
}
