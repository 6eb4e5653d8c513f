//! Ranks as processes: the results of threads, and the errors after the death of a rank.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra_ring::{BroadcastRing, Reader, RingConfig, Writer};

use crate::support::process::{Child, Ranks, this, within_a_second};
use crate::support::world::{alone, bounded};
use crate::{check_series, lost, message, small, timed_out, within};

const LIMIT: Duration = Duration::from_secs(60);
const COUNT: u64 = 2000;

fn join(child: &Child, config: RingConfig) -> BroadcastRing {
    let mut bootstrap = child.meet("ring", child.rank, child.world).unwrap();
    BroadcastRing::create(&mut bootstrap, config).unwrap()
}

fn writer(child: &Child, config: RingConfig) -> Writer {
    join(child, config).into_writer().unwrap()
}

fn reader(child: &Child, config: RingConfig) -> Reader {
    join(child, config).into_reader().unwrap()
}

#[test]
fn pitfall_33_processes_receive_what_threads_do() {
    const NAME: &str = "processes::pitfall_33_processes_receive_what_threads_do";
    if let Some(child) = this() {
        return bounded(LIMIT, || match join(&child, small()) {
            BroadcastRing::Writer(mut writer) => {
                (0..COUNT).for_each(|number| writer.send(&message(9, number, 450)).unwrap());
                child.hear();
            }
            BroadcastRing::Reader(mut reader) => {
                check_series(&mut reader, 9, COUNT, 450);
                child.say("read");
                child.hear();
            }
        });
    }
    let _alone = alone();
    let mut ranks = Ranks::start(NAME, 4, "");
    ranks.expect(&[1, 2, 3], "read");
    ranks.tell(&[0, 1, 2, 3], "end");
    ranks.finish(&[0, 1, 2, 3]);
}

/// Every kind of wait for a reader that is killed.
#[test]
fn pitfall_1_a_killed_reader_is_named_to_the_others() {
    const NAME: &str = "processes::pitfall_1_a_killed_reader_is_named_to_the_others";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut config = small();
            config.spin = if child.part == "spinning" { Duration::MAX } else { Duration::ZERO };
            if child.rank == 1 {
                let _reader = reader(&child, config);
                child.say("ready");
                child.hear();
            } else if child.rank == 2 {
                let mut reader = reader(&child, config);
                (0..3).for_each(|_| assert_eq!(reader.receive().unwrap(), b"fills the ring"));
                let (rank, words) = lost(reader.receive());
                assert!(rank == 1 && words.contains("it died") && words.contains("gave it up"), "{words}");
                child.say("ended");
            } else {
                let mut writer = writer(&child, config);
                (0..3).for_each(|_| writer.send(b"fills the ring").unwrap());
                child.say("full");
                let start = Instant::now();
                let (rank, words) = lost(writer.send_by(b"never", within(30.0)));
                assert!(rank == 1 && words.contains("it died") && words.contains("process"), "{words}");
                assert!(start.elapsed() < Duration::from_secs(20));
                child.say("noticed");
                assert_eq!(lost(writer.send(b"never")).0, 1);
            }
        });
    }
    for part in ["sleeping", "spinning"] {
        let _alone = alone();
        within_a_second(part, || {
            let ranks = Ranks::start(NAME, 3, part);
            ranks.expect(&[1], "ready");
            ranks.expect(&[0], "full");
            std::thread::sleep(Duration::from_millis(100));
            let killed = Instant::now();
            ranks.signal(1, Signal::KILL);
            let noticed = ranks.hear(0);
            assert_eq!(noticed.words, "noticed");
            ranks.expect(&[2], "ended");
            ranks.finish(&[0, 2]);
            noticed.at - killed
        });
    }
}

/// The program of the writer learns of the death by other means, and ends its ring without another message.
#[test]
fn pitfall_1_a_writer_that_ends_after_a_death_passes_it_on() {
    const NAME: &str = "processes::pitfall_1_a_writer_that_ends_after_a_death_passes_it_on";
    if let Some(child) = this() {
        return bounded(LIMIT, || match join(&child, small()) {
            BroadcastRing::Writer(writer) => {
                child.say("ready");
                child.hear();
                drop(writer);
            }
            BroadcastRing::Reader(mut reader) if child.rank == 2 => {
                child.say("ready");
                let (rank, words) = lost(reader.receive());
                assert!(rank == 1 && words.contains("it died") && words.contains("gave it up"), "{words}");
            }
            BroadcastRing::Reader(_reader) => {
                child.say("ready");
                child.hear();
            }
        });
    }
    let _alone = alone();
    let mut ranks = Ranks::start(NAME, 3, "");
    ranks.expect(&[0, 1, 2], "ready");
    ranks.signal(1, Signal::KILL);
    ranks.wait_ended(1);
    ranks.tell(&[0], "end");
    ranks.finish(&[0, 2]);
}

#[test]
fn pitfall_1_a_killed_writer_is_named_to_readers_after_what_it_sent() {
    const NAME: &str = "processes::pitfall_1_a_killed_writer_is_named_to_readers_after_what_it_sent";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let mut config = small();
            config.spin = if child.part == "spinning" { Duration::MAX } else { Duration::ZERO };
            if child.rank == 0 {
                let mut writer = writer(&child, config);
                writer.send(b"one").unwrap();
                writer.send(b"two").unwrap();
                child.say("sent");
                child.hear();
            } else {
                let mut reader = reader(&child, config);
                assert_eq!(reader.receive().unwrap(), b"one");
                child.say("waiting");
                // One of the two comes back to the ring only after the death.
                if child.rank == 2 {
                    child.hear();
                }
                assert_eq!(reader.receive().unwrap(), b"two");
                let (rank, words) = lost(reader.receive());
                assert!(rank == 0 && words.contains("it died") && words.contains("after 2 messages"), "{words}");
                child.say("noticed");
            }
        });
    }
    for part in ["sleeping", "spinning"] {
        let _alone = alone();
        within_a_second(part, || {
            let mut ranks = Ranks::start(NAME, 3, part);
            ranks.expect(&[0], "sent");
            ranks.expect(&[1, 2], "waiting");
            std::thread::sleep(Duration::from_millis(100));
            let killed = Instant::now();
            ranks.signal(0, Signal::KILL);
            let noticed = ranks.hear(1);
            assert_eq!(noticed.words, "noticed");
            ranks.tell(&[2], "go on");
            ranks.expect(&[2], "noticed");
            ranks.finish(&[1, 2]);
            noticed.at - killed
        });
    }
}

#[test]
fn pitfall_2_a_suspended_reader_is_alive_but_behind() {
    const NAME: &str = "processes::pitfall_2_a_suspended_reader_is_alive_but_behind";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            if child.rank == 1 {
                let mut reader = reader(&child, small());
                child.say("ready");
                (0..4).for_each(|_| assert_eq!(reader.receive().unwrap(), b"x"));
                child.say("read");
                child.hear();
            } else {
                let mut writer = writer(&child, small());
                child.hear();
                (0..3).for_each(|_| writer.send(b"x").unwrap());
                let (rank, words) = timed_out(writer.send_by(b"x", within(0.3)));
                assert!(rank == Some(1) && words.contains("alive") && words.contains("3 unread chunks"), "{words}");
                child.say("named");
                writer.send(b"x").unwrap();
                child.hear();
            }
        });
    }
    let _alone = alone();
    let mut ranks = Ranks::start(NAME, 2, "");
    ranks.expect(&[1], "ready");
    ranks.signal(1, Signal::STOP);
    ranks.wait_stopped(1);
    ranks.tell(&[0], "send");
    ranks.expect(&[0], "named");
    ranks.signal(1, Signal::CONT);
    ranks.expect(&[1], "read");
    ranks.tell(&[0, 1], "end");
    ranks.finish(&[0, 1]);
}
