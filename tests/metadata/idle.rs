//! A ring that waits costs no processor time; one that is gone leaves nothing.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::process::{Ranks, this};
use crate::support::system::{descriptors, mappings, processor_time, threads};
use crate::support::world::{alone, bounded};
use crate::{lost, ring, small};

/// The ranks are threads of a separate process, whose processor time is only theirs.
#[test]
fn pitfall_7_an_idle_ring_uses_no_processor_time() {
    const NAME: &str = "idle::pitfall_7_an_idle_ring_uses_no_processor_time";
    if let Some(child) = this() {
        return bounded(Duration::from_secs(60), || {
            let (mut writer, readers) = ring(4, &small());
            let readers = readers.into_iter().map(|mut reader| {
                thread::spawn(move || {
                    assert_eq!(reader.receive().unwrap(), b"before");
                    reader.receive().map(<[u8]>::to_vec)
                })
            });
            let readers: Vec<_> = readers.collect();
            writer.send(b"before").unwrap();
            thread::sleep(Duration::from_millis(100));
            // The least of some: a reader may be late to its wait.
            let used = [(); 3].map(|()| {
                let before = processor_time();
                thread::sleep(Duration::from_millis(300));
                processor_time() - before
            });
            child.say(&used.into_iter().min().unwrap().as_micros().to_string());
            writer.send(b"after").unwrap();
            readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap().unwrap(), b"after"));
        });
    }
    let _alone = alone();
    let ranks = Ranks::start(NAME, 1, "");
    let used_us: u64 = ranks.hear(0).words.parse().unwrap();
    assert!(used_us < 2000, "{used_us} us of processor time in 300 ms");
    ranks.finish(&[0]);
}

#[test]
fn nothing_is_left_of_a_ring() {
    const NAME: &str = "idle::nothing_is_left_of_a_ring";
    if let Some(child) = this() {
        return bounded(Duration::from_secs(60), || {
            let round = || {
                let (mut writer, mut readers) = ring(3, &small());
                writer.send(b"x").unwrap();
                drop(readers.pop());
                assert_eq!(lost(writer.send(b"y")).0, 2);
            };
            round();
            let before = (descriptors(), mappings());
            (0..10).for_each(|_| round());
            let start = Instant::now();
            while threads() > 2 && start.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(descriptors(), before.0);
            assert!(mappings() <= before.1 + 8, "{} mappings, before {}", mappings(), before.1);
            child.say("none");
        });
    }
    let _alone = alone();
    let ranks = Ranks::start(NAME, 1, "");
    ranks.expect(&[0], "none");
    ranks.finish(&[0]);
}
