//! A rank that is killed in any phase: the histories of the ranks, merged as `symmetra postmortem` merges them, name the rank,
//! and the call or exchange for which the others waited.

// The module of the command itself. Parts of the module make tables and pictures alone.
#[expect(dead_code)]
#[path = "../../crates/cli/src/postmortem/merge.rs"]
mod merge;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symmetra::experts::{Combine, ExpertConfig, Received, Routing};
use symmetra::fused::FusedOptions;
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::observe::ObservedGroup;
use symmetra::{DeviceBuffer, Dtype, Error, Result};

use super::observed::{records, seen, start_recorded};
use crate::LIMIT;
use crate::support::process::{Child, this};
use crate::support::world::{alone, bounded, open, until};
use crate::support::{Rank, config, is_host};

const NAME: &str = "killed::the_histories_name_the_killed_rank_and_the_call_in_every_phase";
const WORLD: usize = 3;
const VICTIM: usize = 1;
const SURVIVORS: [usize; 2] = [0, 2];

/// Elements of a row of experts, and of the factors of a product.
const COLUMNS: usize = 16;

/// The moment of the kill.
#[derive(Clone, Copy, PartialEq)]
enum Moment {
    /// The victim has not begun the call, in which the others wait.
    Before,
    /// The victim waits in the call, which the others begin after the kill.
    Waiting,
    /// The victim has stopped in the middle of its work. The others wait for the victim.
    Middle,
}
use Moment::{Before, Middle, Waiting};

/// Each phase, the moment of the kill, and a part of the sentence about the histories.
const PHASES: [(&str, Moment, &str); 22] = [
    ("open", Before, "the same 0 calls; rank 1 is gone; rank 1 left no file"),
    ("open", Waiting, "the same 0 calls; rank 1 is gone; rank 1 left no file"),
    ("all-reduce", Before, "rank 1 has not made all-reduce 0 (all-reduce (sum) of 400 bytes"),
    // The others may enqueue the call before they notice the death.
    ("all-reduce", Waiting, "all-reduce 0"),
    ("barrier", Before, "rank 1 has not made the exchange `barrier`, which 2 ranks have begun"),
    ("barrier", Waiting, "rank 1 waited in the exchange `barrier`"),
    ("symmetric memory", Before, "rank 1 has not made the exchange `make symmetric memory`"),
    ("adopt", Before, "rank 1 has not made the exchange `adopt memory`"),
    ("capture", Middle, "rank 1 has not made the exchange `export memory`"),
    ("replay", Before, "rank 1 has not made all-reduce 0 ("),
    ("all-gather", Before, "rank 1 has not made all-gather 0 ("),
    ("all-to-all", Before, "rank 1 has not made all-to-all 0 ("),
    ("broadcast", Before, "rank 1 has not made broadcast 0 ("),
    ("dispatch", Before, "rank 1 has not made dispatch 0 ("),
    ("combine", Middle, "rank 1 has not made combine 1 ("),
    ("plan", Before, "rank 1 has not made all-gather 0 ("),
    ("pairs, send", Before, "; the devices gave up in pairs"),
    ("pairs, receive", Before, "; the devices gave up in pairs"),
    ("low contention", Before, "rank 1 has not made all-gather 0 ("),
    ("split", Before, "rank 1 has not made the exchange `split a group`"),
    ("close", Before, "rank 1 has not made the exchange `close`"),
    // The others may end the exchange in which the victim waited, and begin the next one.
    ("close", Waiting, "the exchange `close`"),
];

/// Stops the victim until it is killed.
fn stay(rank: &Rank) {
    if rank.rank() == VICTIM {
        std::thread::sleep(LIMIT);
    }
}

/// The work of a phase, which is set up on all ranks before a rank is killed.
fn work<'a>(phase: &str, rank: &'a Rank) -> Result<Box<dyn FnOnce() -> Result<()> + 'a>> {
    let Rank { communicator, stream, device } = rank;
    let plain = |elems: usize| DeviceBuffer::from_slice(&vec![1f32; elems], stream);
    let values = plain(100)?;
    Ok(match phase {
        "all-reduce" => Box::new(move || communicator.all_reduce_in_place(&values, stream)),
        "barrier" => Box::new(|| communicator.group().barrier()),
        "symmetric memory" => Box::new(|| communicator.symmetric::<f32>(100).map(drop)),
        // SAFETY: the memory stays as long as the group.
        "adopt" => Box::new(move || unsafe { communicator.adopt(values.borrow()) }.map(drop)),
        "capture" => Box::new(move || {
            let graph = stream.capture(|capture| {
                stay(rank);
                communicator.all_reduce_in_place(&values, capture)
            });
            graph?.register()
        }),
        "replay" => {
            let buffer = communicator.symmetric::<f32>(100)?;
            Box::new(move || {
                let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture))?;
                graph.launch(stream)?;
                communicator.synchronize(stream)
            })
        }
        "all-gather" => {
            let output = plain(WORLD * 100)?;
            Box::new(move || communicator.all_gather(&values, &output, stream))
        }
        "all-to-all" => {
            let (input, output) = (plain(WORLD * 100)?, plain(WORLD * 100)?);
            Box::new(move || communicator.all_to_all(&input, &output, stream))
        }
        "broadcast" => Box::new(move || communicator.broadcast(&values, VICTIM, stream)),
        "dispatch" | "combine" => {
            let mut config = ExpertConfig::new(WORLD, 1, COLUMNS, 1);
            config.dtype = Dtype::F32;
            let (experts, middle) = (communicator.experts(config)?, phase == "combine");
            let ids = DeviceBuffer::from_slice(&[((rank.rank() + 1) % WORLD) as i32], stream)?;
            let (rows, output) = (plain(COLUMNS)?, plain(COLUMNS)?);
            let received = DeviceBuffer::<f32>::new(device, experts.capacity() * COLUMNS)?;
            Box::new(move || {
                let routed = experts.dispatch(&Routing::new(&ids), &rows, &Received::rows(&received), stream)?;
                if middle {
                    stay(rank);
                }
                routed.combine(&received, &output, Combine::default(), stream)?;
                communicator.synchronize(stream)
            })
        }
        "plan" => {
            let product = Product::new(COLUMNS, COLUMNS, Numeric::F32);
            let plan =
                communicator.plan_all_gather_matmul(&[COLUMNS, COLUMNS], 0, &[product], FusedOptions::default())?;
            let elems = COLUMNS * COLUMNS;
            let shard = communicator.symmetric::<f32>(elems)?;
            let gathered = communicator.symmetric::<f32>(WORLD * elems)?;
            let (weight, result) = (plain(elems)?, plain(WORLD * elems)?);
            Box::new(move || {
                let pairs = [(Tensor::of(&weight), Tensor::of(&result))];
                plan.enqueue(Tensor::of(&shard), Some(Tensor::of(&gathered)), pairs, stream)?;
                communicator.synchronize(stream)
            })
        }
        "pairs, send" | "pairs, receive" => {
            let (values, receives) = (plain(1 << 20)?, phase == "pairs, receive");
            Box::new(move || {
                communicator.pairs(stream, |messages| match (rank.rank(), receives) {
                    (VICTIM, true) => messages.receive(&values, 0),
                    (0, true) => messages.send(&values, VICTIM),
                    (VICTIM, false) => messages.send(&values, 2),
                    (2, false) => messages.receive(&values, VICTIM),
                    _ => Ok(()),
                })
            })
        }
        "low contention" => {
            let (input, output) = (communicator.symmetric::<f32>(100)?, communicator.symmetric::<f32>(WORLD * 100)?);
            Box::new(move || communicator.low_contention_all_gather(&input, &output, stream)?.wait(stream))
        }
        "split" => Box::new(|| communicator.split(Some(0), 0).map(drop)),
        "close" => Box::new(|| communicator.clone().close()),
        other => panic!("no phase {other}"),
    })
}

/// The error of a rank whose work waits for the victim.
fn failure(rank: &Rank, made: Result<()>) -> Error {
    let (start, mut result) = (Instant::now(), made);
    while result.is_ok() {
        assert!(start.elapsed() < LIMIT / 4, "rank {} has no error", rank.rank());
        std::thread::sleep(Duration::from_millis(2));
        result = rank.communicator.synchronize(&rank.stream);
    }
    result.unwrap_err()
}

fn mortal(child: &Child) {
    let bootstrap = child.meet("all", child.rank, child.world).unwrap();
    let error = if child.part == "open" {
        child.say("ready");
        child.hear();
        open(bootstrap, &config()).err().unwrap()
    } else {
        let rank = open(bootstrap, &config()).unwrap();
        let work = work(&child.part, &rank).unwrap();
        rank.communicator.group().barrier().unwrap();
        child.say("ready");
        child.hear();
        failure(&rank, work())
    };
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error}");
    child.say("lost");
    child.hear();
}

/// Whether the ranks have come to the moment of the kill: every rank that makes a call has made it, and waits if it must.
fn has_come(phase: &str, moment: Moment, group: &ObservedGroup) -> bool {
    let waiting = match (phase, moment) {
        // The third rank has no message, or its token has come back.
        ("pairs, send" | "pairs, receive" | "combine", _) | (_, Waiting) => 1,
        _ => SURVIVORS.len(),
    };
    let combined = || SURVIVORS.iter().all(|rank| group.ranks.get(*rank).is_some_and(|rank| rank.enqueued == 2));
    group.verdict.waiting >= waiting && (phase != "combine" || combined())
}

/// Kills the victim in a phase, and returns the merged histories.
fn killed(phase: &str, moment: Moment) -> merge::Merged {
    let (mut ranks, dumps) = start_recorded(&[], NAME, WORLD, phase);
    ranks.expect(&[0, 1, 2], "ready");
    match moment {
        Before => ranks.tell(&SURVIVORS, "go"),
        Waiting => ranks.tell(&[VICTIM], "go"),
        Middle => ranks.tell(&[0, 1, 2], "go"),
    }
    seen(phase, |group| has_come(phase, moment, group));
    ranks.signal(VICTIM, Signal::KILL);
    if moment == Waiting {
        ranks.tell(&SURVIVORS, "go");
    }
    ranks.expect(&SURVIVORS, "lost");
    let files = if phase == "open" { SURVIVORS.len() } else { WORLD };
    until(LIMIT / 4, "all records", || records(&dumps).len() == files);
    let merged = merge::merge(&records(&dumps));
    ranks.tell(&SURVIVORS, "end");
    ranks.finish(&SURVIVORS);
    merged
}

#[test]
fn the_histories_name_the_killed_rank_and_the_call_in_every_phase() {
    if let Some(child) = this() {
        return bounded(LIMIT, || mortal(&child));
    }
    if !is_host() {
        return;
    }
    let _alone = alone();
    for (phase, moment, words) in PHASES {
        let merged = killed(phase, moment);
        eprintln!("{phase}: {}", merged.words);
        assert!(merged.words.contains(words), "{phase}: `{words}` is not in {merged:#?}");
        assert!(merged.words.contains("; rank 1 is gone"), "{phase}: {merged:#?}");
        assert_eq!((&merged.culprits[..], &merged.lost[..]), (&[VICTIM][..], &[VICTIM][..]), "{phase}: {merged:#?}");
    }
}
