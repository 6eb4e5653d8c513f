//! Groups as another process sees them: a rank that is stopped in each phase is named, with the call of the others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use symmetra::experts::{Combine, ExpertConfig, Experts, Received, Routing};
use symmetra::observe::{Failed, ObservedGroup, ProcessState, RankState, Record, dump_on, look};
use symmetra::{Communicator, Config, DeviceBuffer, Dtype, Error, Stream};

use crate::support::process::{Child, Ranks, this, words};
use crate::support::world::{alone, bounded, until};
use crate::support::{Rank, config, is_host};
use crate::{LIMIT, STEADY};

pub(super) const WORLD: usize = 8;
pub(super) const VICTIM: usize = 2;
const OTHERS: [usize; 7] = [0, 1, 3, 4, 5, 6, 7];
const HIDDEN: usize = 16;

/// Each phase, the number of ranks that wait in it, and the call in the verdict.
const PHASES: [(&str, usize, &str); 6] = [
    ("open", 7, "begun to open the group"),
    ("barrier", 7, "made the exchange `barrier`"),
    ("all-reduce", 7, "made all-reduce "),
    ("experts", 7, "made dispatch "),
    ("pairs", 1, "rank 3 has waited "),
    ("close", 7, "made the exchange `close`"),
];

fn patient() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config
}

/// A layer of experts: one expert and one token a rank.
fn experts(communicator: &Communicator) -> Experts {
    let mut config = ExpertConfig::new(WORLD, 1, HIDDEN, 1);
    config.dtype = Dtype::F32;
    communicator.experts(config).unwrap()
}

/// Sends a token to the next rank and back.
fn dispatch(experts: &Experts, stream: &Stream, rank: usize) {
    let device = stream.device();
    let ids = DeviceBuffer::from_slice(&[((rank + 1) % WORLD) as i32], stream).unwrap();
    let rows = DeviceBuffer::from_slice(&[rank as f32; HIDDEN], stream).unwrap();
    let received = DeviceBuffer::<f32>::new(device, experts.capacity() * HIDDEN).unwrap();
    let output = DeviceBuffer::<f32>::new(device, HIDDEN).unwrap();
    let routed = experts.dispatch(&Routing::new(&ids), &rows, &Received::rows(&received), stream).unwrap();
    routed.combine(&received, &output, Combine::default(), stream).unwrap();
    experts.synchronize(stream).unwrap();
    assert_eq!(output.read(stream).unwrap(), [rank as f32; HIDDEN]);
}

/// Runs the phases that the test names.
pub(super) fn phases(child: &Child) {
    assert_eq!(child.hear(), "open");
    let rank = child.open(&patient());
    let Rank { communicator, stream, .. } = &rank;
    let values = communicator.symmetric::<i32>(100).unwrap();
    let experts = experts(communicator);
    for refused in [0, Signal::KILL.as_raw(), Signal::SEGV.as_raw(), 1000] {
        assert!(matches!(dump_on(refused, "nowhere"), Err(Error::InvalidArgument { .. })));
    }
    dump_on(Signal::USR1.as_raw(), child.directory().join("asked")).unwrap();
    child.say("open");
    loop {
        let phase = child.hear();
        match phase.as_str() {
            "barrier" => communicator.group().barrier().unwrap(),
            "all-reduce" => {
                values.write(&[1; 100], stream).unwrap();
                communicator.all_reduce_in_place(&values, stream).unwrap();
                rank.finish();
                assert_eq!(values.read(stream).unwrap(), [WORLD as i32; 100]);
            }
            "experts" => dispatch(&experts, stream, child.rank),
            "pairs" => {
                let (next, previous) = ((child.rank + 1) % WORLD, (child.rank + WORLD - 1) % WORLD);
                let given = DeviceBuffer::from_slice(&[child.rank as i32; 5], stream).unwrap();
                let taken = DeviceBuffer::<i32>::new(&rank.device, 5).unwrap();
                let messages = communicator.pairs(stream, |messages| {
                    messages.send(&given, next)?;
                    messages.receive(&taken, previous)
                });
                messages.unwrap();
                rank.finish();
                assert_eq!(taken.read(stream).unwrap(), [previous as i32; 5]);
            }
            "close" => break,
            "fail" => {
                let error = communicator.group().barrier().unwrap_err();
                assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error}");
                child.say("fail");
                child.hear();
                return;
            }
            other => panic!("no phase {other}"),
        }
        child.say(&phase);
    }
    drop(experts);
    communicator.clone().close().unwrap();
    child.say("close");
}

/// The only group of the processes of this test, when `shows` holds. A look that shows it takes less than a second: a busy
/// machine may hold up one look, a defect holds up three.
pub(super) fn seen(what: &str, shows: impl Fn(&ObservedGroup) -> bool) -> ObservedGroup {
    let end = Instant::now() + LIMIT / 4;
    let (mut before, mut slow) = (String::new(), Vec::new());
    while Instant::now() < end {
        let start = Instant::now();
        let Ok(snapshot) = look(Some(std::process::id())) else { continue };
        let took = start.elapsed();
        match snapshot.groups.as_slice() {
            [group] if shows(group) && took < Duration::from_secs(1) => return group.clone(),
            [group] if shows(group) => {
                slow.push(took);
                assert!(slow.len() < 3, "{what}: {slow:?}");
            }
            groups => before = format!("{groups:#?}"),
        }
    }
    panic!("{what} was not seen: {before}");
}

/// Whether the group waits for the victim as in a phase.
fn waits_for_victim(group: &ObservedGroup, waiting: usize, call: &str) -> bool {
    let verdict = &group.verdict;
    verdict.culprits == [VICTIM] && verdict.waiting == waiting && verdict.words.contains(call)
}

/// Stops the victim in each phase. `during` is called with the name of the phase while the others wait.
pub(super) fn every_phase(ranks: &mut Ranks, mut during: impl FnMut(&str)) {
    let everyone: Vec<usize> = (0..WORLD).collect();
    for (phase, waiting, call) in PHASES {
        let victim = (phase != "open").then(process_of_victim);
        victim.iter().for_each(|victim| stop(*victim));
        ranks.tell(&OTHERS, phase);
        let group = seen(phase, |group| waits_for_victim(group, waiting, call));
        let words = &group.verdict.words;
        eprintln!("{words}");
        assert!(words.contains(&format!("rank {VICTIM}")), "{words}");
        assert_eq!(group.world_size, WORLD);
        for rank in &group.ranks {
            let stopped = rank.rank == VICTIM;
            assert_eq!(rank.process_state == ProcessState::Stopped, stopped, "{rank:?}");
            assert!(stopped || rank.wait.as_ref().is_none_or(|wait| !wait.ranks.is_empty()), "{rank:?}");
        }
        during(phase);
        if let Some(victim) = victim {
            assert!(words.contains(&format!("process {} is stopped", victim.as_raw_pid())), "{words}");
            assert!(group.verdict.broken && !group.verdict.is_healthy(LIMIT));
            kill_process(victim, Signal::CONT).unwrap();
        } else {
            assert_eq!(group.ranks.len(), WORLD - 1);
            assert!(group.verdict.is_healthy(LIMIT));
        }
        ranks.tell(&[VICTIM], phase);
        ranks.expect(&everyone, phase);
        if phase == "all-reduce" {
            let group = seen("ranks without calls", |group| group.verdict.waiting == 0);
            for rank in &group.ranks {
                let call = rank.call.as_ref().unwrap();
                assert_eq!((call.operation, call.bytes, call.dtype), ("all-reduce", 400, "i32"));
                assert_eq!((rank.state, rank.ended), (RankState::Idle, Some(rank.enqueued)), "{rank:?}");
            }
            is_recorded(ranks, &group);
        }
    }
}

/// A rank writes its history at a signal.
fn is_recorded(ranks: &Ranks, group: &ObservedGroup) {
    let asked = ranks.directory().join("asked");
    kill_process(Pid::from_raw(group.ranks[5].process as i32).unwrap(), Signal::USR1).unwrap();
    until(LIMIT / 4, "a record", || records(&asked).len() == 1);
    let record = records(&asked).remove(0);
    assert_eq!((record.rank, record.enqueued, record.failure), (5, 1, None));
    let call = &record.calls[0];
    assert_eq!((call.operation.as_str(), call.bytes, call.graph), ("all-reduce", 400, false));
    assert!(record.begun_ns / 2 < call.at_ns && call.at_ns < record.written_ns, "{record:?}");
}

/// Starts ranks by a command, or directly by none. Their failures leave records in the folder.
pub(super) fn start_recorded(by: &[&str], test: &str, world: usize, part: &str) -> (Ranks, PathBuf) {
    let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
    let dumps = directory.path().join("dumps");
    let variables = |_| vec![("SYMMETRA_DUMP".to_owned(), dumps.to_str().unwrap().to_owned())];
    (Ranks::start_by(|_| words(by), directory, test, world, part, variables), dumps)
}

/// The records of a folder, in rank order.
pub(super) fn records(folder: &Path) -> Vec<Record> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    let mut records: Vec<Record> =
        files.filter(|path| !is_hidden(path)).map(|path| Record::read(&path).unwrap()).collect();
    records.sort_by_key(|record| record.rank);
    records
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// The process of the victim, as this process sees it.
fn process_of_victim() -> Pid {
    let group = seen("all ranks", |group| group.ranks.len() == WORLD);
    Pid::from_raw(group.ranks[VICTIM].process as i32).unwrap()
}

/// Stops the victim, and waits until all its threads have stopped.
fn stop(victim: Pid) {
    kill_process(victim, Signal::STOP).unwrap();
    seen("the victim stops", |group| group.ranks[VICTIM].process_state == ProcessState::Stopped);
}

#[test]
fn a_rank_that_is_stopped_in_any_phase_is_seen_from_outside() {
    const NAME: &str = "observed::a_rank_that_is_stopped_in_any_phase_is_seen_from_outside";
    if let Some(child) = this() {
        return bounded(LIMIT, || phases(&child));
    }
    if !is_host() {
        return;
    }
    let _alone = alone();
    let mut ranks = Ranks::start(NAME, WORLD, "");
    every_phase(&mut ranks, |_| ());
    ranks.finish(&(0..WORLD).collect::<Vec<_>>());
}

/// A command that runs the command after it in a PID and a mount namespace, with a `/proc` of the namespace.
pub(super) const UNSHARE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether ranks can run in namespaces here. If not, prints a note.
pub(super) fn has_namespaces() -> bool {
    let mut attempt = Command::new(UNSHARE[0]);
    let attempt = attempt.args(&UNSHARE[1..]).arg("true").stderr(Stdio::null()).status();
    let possible = is_host() && attempt.is_ok_and(|status| status.success());
    if !possible {
        eprintln!("skipped: this process may not make PID namespaces, or works on GPUs");
    }
    possible
}

/// Ranks that are number 1 in PID namespaces of their own, as in containers, and one that is killed there.
#[test]
fn ranks_in_pid_namespaces_are_seen_from_outside() {
    const NAME: &str = "observed::ranks_in_pid_namespaces_are_seen_from_outside";
    if let Some(child) = this() {
        assert_eq!(std::process::id(), 1, "no namespace of its own");
        return bounded(LIMIT, || phases(&child));
    }
    if !has_namespaces() {
        return;
    }
    let _alone = alone();
    let (mut ranks, dumps) = start_recorded(&UNSHARE, NAME, WORLD, "");
    let everyone: Vec<usize> = (0..WORLD).collect();
    ranks.tell(&everyone, "open");
    ranks.expect(&everyone, "open");
    let victim = process_of_victim();
    stop(victim);
    ranks.tell(&OTHERS, "all-reduce");
    seen("a stopped rank", |group| waits_for_victim(group, 7, "made all-reduce "));
    kill_process(victim, Signal::CONT).unwrap();
    ranks.tell(&[VICTIM], "all-reduce");
    ranks.expect(&everyone, "all-reduce");
    kill_process(victim, Signal::KILL).unwrap();
    ranks.tell(&OTHERS, "fail");
    ranks.expect(&OTHERS, "fail");
    let group = seen("a dead rank", |group| group.verdict.words.contains("failed: rank 2 is gone"));
    assert_eq!(group.verdict.culprits, [VICTIM]);
    assert!(group.ranks[VICTIM].state == RankState::Dead && group.ranks[0].state == RankState::Failed, "{group:#?}");
    assert!(!group.verdict.is_healthy(STEADY));
    // The survivors have written their histories, and one of them that of the dead rank.
    until(LIMIT / 4, "all records", || records(&dumps).len() == WORLD);
    for record in records(&dumps) {
        assert_eq!(record.by == record.rank, record.rank != VICTIM, "{record:?}");
        assert_eq!((record.failure, record.culprit, record.enqueued), (Some(Failed::PeerLost), Some(VICTIM), 1));
    }
    ranks.tell(&OTHERS, "end");
    ranks.finish(&OTHERS);
}
