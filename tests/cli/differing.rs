//! `postmortem` on the calls that `tests/suite/compared_calls.rs` compares: the rank whose operand lies elsewhere, or whose
//! threads call in another order, is named with its call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::experts::{Combine, ExpertConfig, Received, Routing};
use symmetra::{Communicator, Config, Device, DeviceBuffer, Dtype, Error, Result, Stream};

use super::differing_calls::{Memory, PLACED, THREADED};
use super::postmortem::wait;
use super::symmetra_with;

const WORLD: usize = 3;

/// The rank whose calls differ from those of the others.
const OTHER: usize = 1;

/// Elements of a rank's part of a small message, and of a large one, whose operands peers access.
const SMALL: usize = 64;
const LARGE: usize = 1 << 18;

/// Groups that run at once: most of their time they wait.
const AT_ONCE: usize = 6;

/// The difference that the histories of a group show.
#[derive(Clone)]
enum Shown {
    /// The offset of this operand is 64 bytes larger.
    Offset(&'static str),
    /// The tag, and that of the others.
    Tags(u64, u64),
}

/// A group whose ranks make equal calls first, and then calls that differ. Writes the histories of all ranks into a folder,
/// and returns the path of one.
struct Case {
    what: String,
    equal: u64,
    shown: Shown,
    run: Box<dyn Fn(&Path) -> PathBuf + Send + Sync>,
}

fn config(check_calls: bool) -> Config {
    let mut config = Config::default();
    (config.deadlines.first_use, config.deadlines.steady) = (Duration::from_secs(20), Duration::from_secs(20));
    (config.heap_bytes, config.silence, config.check_calls) = (8 << 20, true, check_calls);
    config
}

/// Runs `rank` as every rank of a group of threads, and returns the result of the last.
fn ranks(rank: impl Fn(Threads) -> PathBuf + Sync) -> PathBuf {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            Threads::new(WORLD).unwrap().into_iter().map(|bootstrap| scope.spawn(|| rank(bootstrap))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).next_back().unwrap()
    })
}

/// The histories of ranks that make `calls`, which fail.
fn histories(folder: &Path, check_calls: bool, calls: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) -> PathBuf {
    ranks(|bootstrap| {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let communicator = Communicator::open(bootstrap, &device, config(check_calls)).unwrap();
        let error = calls(&communicator, &stream).and_then(|()| wait(&communicator, &stream)).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        communicator.dump(folder).unwrap()
    })
}

/// Operands at another offset.
fn placed() -> impl Iterator<Item = Case> {
    let sizes = [(true, SMALL), (true, LARGE), (false, LARGE)];
    PLACED.into_iter().flat_map(move |(what, operand, call)| {
        sizes.map(|(check_calls, count)| Case {
            what: format!("{what} of {count}, check_calls {check_calls}"),
            equal: 1,
            shown: Shown::Offset(operand),
            run: Box::new(move |folder| {
                histories(folder, check_calls, |communicator, stream| {
                    let symmetric = communicator.symmetric(WORLD * LARGE + 64)?;
                    let memory = Memory { symmetric, plain: DeviceBuffer::new(stream.device(), WORLD * LARGE)? };
                    call(communicator, stream, &memory, [16, count])?;
                    communicator.synchronize(stream)?;
                    communicator.group().barrier()?;
                    let start = if communicator.rank() == OTHER { 32 } else { 16 };
                    call(communicator, stream, &memory, [start, count])?;
                    wait(communicator, stream)
                })
            }),
        })
    })
}

/// Calls of two threads in another order.
fn threaded() -> impl Iterator<Item = Case> {
    THREADED.into_iter().flat_map(|(what, call)| {
        [true, false].map(|check_calls| Case {
            what: format!("{what}, check_calls {check_calls}"),
            equal: 2,
            shown: Shown::Tags(4, 3),
            run: Box::new(move |folder| {
                histories(folder, check_calls, |communicator, stream| {
                    let mut threads = [3, 4].map(|tag| communicator.tagged(tag));
                    threads.iter().try_for_each(|thread| call(thread, stream))?;
                    communicator.synchronize(stream)?;
                    communicator.group().barrier()?;
                    if communicator.rank() == OTHER {
                        threads.reverse();
                    }
                    threads.iter().try_for_each(|thread| call(thread, stream))
                })
            }),
        })
    })
}

/// The tag of a rank's handle.
fn tag(rank: usize) -> u64 {
    if rank == OTHER { 6 } else { 5 }
}

/// Tags of the handle of a coordinator.
fn coordinator(folder: &Path) -> PathBuf {
    ranks(|bootstrap| {
        let (tag, device) = (tag(bootstrap.rank()), Device::host().unwrap());
        let mut group = GroupConfig::default();
        group.communicator = config(true);
        let group = Coordinator::open(bootstrap, &device, group).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffer = DeviceBuffer::<i32>::from_slice(&[2; 10], &stream).unwrap();
        let communicator = group.communicator().unwrap();
        let made = group.tagged(tag).all_reduce_in_place(&buffer, &stream);
        made.and_then(|()| wait(communicator, &stream)).unwrap_err();
        communicator.dump(folder).unwrap()
    })
}

/// Tags of the handle over which experts were opened.
fn experts(folder: &Path) -> PathBuf {
    histories(folder, true, |communicator, stream| {
        let mut form = ExpertConfig::new(6, 2, 4, 8);
        form.dtype = Dtype::F32;
        let experts = communicator.tagged(tag(communicator.rank())).experts(form)?;
        let ids = DeviceBuffer::from_slice(&[0, 5], stream)?;
        let rows = DeviceBuffer::from_slice(&[1f32; 4], stream)?;
        let received = DeviceBuffer::<f32>::new(stream.device(), experts.capacity() * 4)?;
        let output = DeviceBuffer::<f32>::new(stream.device(), 4)?;
        let routed = experts.dispatch(&Routing::new(&ids), &rows, &Received::rows(&received), stream)?;
        routed.combine(&received, &output, Combine::default(), stream)?;
        wait(communicator, stream)
    })
}

/// The offset of an operand in the text of a call.
fn offset(text: &str, operand: &str) -> Option<u64> {
    let (_, offset) = text.split_once(&format!("{operand} at offset "))?;
    offset.split([',', ';']).next()?.parse().ok()
}

/// The merged histories of a group name the rank and the difference.
fn is_named(case: &Case, group: &Value) {
    let message = format!("{}: {group:#}", case.what);
    assert_eq!(group["difference"]["call"], case.equal, "{message}");
    let made = group["difference"]["made"].as_array().unwrap();
    let [theirs, of_others] = [true, false].map(|theirs| {
        let of_rank = |made: &&Value| (made["ranks"] == json!([OTHER])) == theirs;
        made.iter().find(of_rank).unwrap_or_else(|| panic!("{message}"))
    });
    // A rank that comes after the failure does not make its call. Then neither of two ranks is known to be wrong.
    let culprits = match of_others["ranks"].as_array().unwrap().as_slice() {
        [_, _] => json!([OTHER]),
        [rank] if *rank == 0 => json!([rank, OTHER]),
        ranks => json!([OTHER, ranks[0]]),
    };
    assert_eq!((made.len(), &group["culprits"]), (2, &culprits), "{message}");
    let [theirs, of_others] = [theirs, of_others].map(|made| made["text"].as_str().unwrap());
    match case.shown {
        Shown::Offset(operand) => {
            let offsets = [offset(theirs, operand), offset(of_others, operand)];
            assert!(matches!(offsets, [Some(theirs), Some(others)] if theirs == others + 64), "{message}");
        }
        Shown::Tags(tag, others) => {
            assert!(theirs.ends_with(&format!(", tag {tag}")), "{message}");
            assert!(of_others.ends_with(&format!(", tag {others}")), "{message}");
        }
    }
    let words = group["words"].as_str().unwrap();
    assert!(words.starts_with(&format!("ranks differ in call {}: ", case.equal)), "{message}");
    assert!(words.contains(&format!("rank {OTHER} made {theirs}")), "{message}");
}

#[test]
fn every_call_that_differs_is_named() {
    let tagged = |what: &str, run| Case { what: what.to_owned(), equal: 0, shown: Shown::Tags(6, 5), run };
    let mut cases: Vec<Case> = placed().chain(threaded()).collect();
    cases.extend([tagged("coordinator", Box::new(coordinator) as Box<_>), tagged("experts", Box::new(experts))]);
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for cases in cases.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let running: Vec<_> = cases.iter().map(|case| scope.spawn(|| (case.run)(folder.path()))).collect();
            paths.extend(running.into_iter().map(|case| case.join().unwrap()));
        });
    }
    let merged = symmetra_with(&["postmortem", folder.path().to_str().unwrap(), "--json"]).ok().objects();
    assert_eq!(merged.len(), cases.len(), "a group each");
    for (case, path) in cases.iter().zip(&paths) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number: u64 = name.split('-').nth(3).unwrap().parse().unwrap();
        is_named(case, merged.iter().find(|group| group["group"] == number).unwrap());
    }
}
