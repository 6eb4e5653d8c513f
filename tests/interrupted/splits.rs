//! A rank that is killed while a group splits.

use std::time::Duration;

use rustix::process::Signal;
use symmetra::Error;
use symmetra::bootstrap::Bootstrap;
use symmetra::environment::{Coordinator, GroupConfig};

use crate::support::device::device;
use crate::support::process::{Child, Ranks, this};
use crate::support::world::bounded;
use crate::{LIMIT, VICTIM, WORLD, direct};

/// The part of a rank in the test. The victim takes part in the first steps of the split, and goes no further.
fn split(child: &Child) {
    let mut config = GroupConfig::default();
    config.communicator = direct(LIMIT);
    let bootstrap = child.meet("all", child.rank, child.world).unwrap();
    let group = Coordinator::open(bootstrap, &device(child.rank), config).unwrap();
    if child.rank == VICTIM {
        let parent = group.communicator().unwrap().group();
        for (call, words) in [
            ("to split a group", r#"["to split a group",{"color":1,"key":0}]"#),
            ("to meet in the parts of a group", r#"["to meet in the parts of a group",null]"#),
        ] {
            let exchanged = parent.exchange(|mesh, deadline| {
                mesh.announce(call);
                mesh.all_gather(words.as_bytes(), deadline)
            });
            exchanged.unwrap();
        }
        child.say("ready");
        child.hear();
    }
    let error = group.split(Some(1), 0).map(drop).unwrap_err();
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error}");
    child.say("told");
    child.hear();
}

#[test]
fn pitfall_01_killed_during_a_split() {
    const NAME: &str = "splits::pitfall_01_killed_during_a_split";
    if let Some(child) = this() {
        return bounded(LIMIT, || split(&child));
    }
    if !crate::support::fits(WORLD) {
        return;
    }
    let _alone = crate::support::world::alone();
    let mut ranks = Ranks::start(NAME, WORLD, "");
    ranks.expect(&[VICTIM], "ready");
    std::thread::sleep(Duration::from_millis(100));
    let death = std::time::Instant::now();
    ranks.signal(VICTIM, Signal::KILL);
    let survivors = [0, 2];
    for rank in survivors {
        let told = ranks.hear(rank);
        assert_eq!(told.words, "told");
        let took = told.at.duration_since(death);
        // All deadlines are of a minute or longer.
        assert!(took < Duration::from_secs(10), "rank {rank}: {took:?}");
    }
    ranks.tell(&survivors, "end");
    ranks.finish(&survivors);
}
