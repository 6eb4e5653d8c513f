//! Runs a program as threads or as processes, and compares the findings of the ranks with the model.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;

use symmetra::bootstrap::Threads;

use crate::cpp;
use crate::model::{Model, written};
use crate::products::difference;
use crate::program::{Fault, Program, Step, Through};
use crate::rank::{Meetings, Rank};
use crate::support::process::{Child, Ranks};
use crate::text::text;

/// Longest time from a fault to the error, beyond the deadline of a wait that nothing else ends.
const SLACK_MS: u64 = 10_000;

/// Runs a program in new processes, which run the named test, and judges it.
///
/// # Errors
/// The differences that were found.
pub(crate) fn run(test: &str, program: &Program) -> Result<(), String> {
    let directory = tempfile::Builder::new().prefix("fuzz-").tempdir().unwrap();
    std::fs::write(directory.path().join("program"), serde_json::to_vec(program).unwrap()).unwrap();
    for rank in 0..program.world {
        std::fs::write(directory.path().join(format!("written.{rank}")), written(program, rank)).unwrap();
    }
    let processes = if program.settings.through == Through::Threads { 1 } else { program.world };
    let mut ranks = match program.settings.through {
        Through::Cpp => {
            std::fs::write(directory.path().join("words"), text(program)).unwrap();
            let folder = directory.path().to_owned();
            Ranks::of(directory, processes, |rank| {
                let mut command = Command::new(cpp::program());
                command.arg(&folder).arg(rank.to_string());
                command
            })
        }
        _ => Ranks::start_in(directory, test, processes, "", |_| Vec::new()),
    };
    let alive: Vec<usize> = (0..processes).filter(|rank| Some(*rank) != dead(program)).collect();
    let mut complaints = String::new();
    for &rank in &alive {
        if let Err(reason) = ranks.listen(rank) {
            let words =
                if reason == RecvTimeoutError::Timeout { "did not end in time" } else { "ended without a word" };
            let _ = writeln!(complaints, "process {rank} {words}");
        }
    }
    complaints += &judge(program, ranks.directory());
    if complaints.is_empty() {
        // No rank leaves before every rank has learnt of all failures.
        ranks.tell(&alive, "end");
        for &rank in &alive {
            if ranks.listen(rank).is_err() {
                let _ = writeln!(complaints, "process {rank} did not come to its end");
            }
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints) }
}

/// The rank whose process ends in the program.
fn dead(program: &Program) -> Option<usize> {
    let (fault, group, culprit) = program.fault()?;
    matches!(fault, Fault::Die).then(|| program.groups()[&group][culprit])
}

/// Runs the part of one of the processes.
pub(crate) fn part(child: &Child) {
    let directory = child.directory();
    let program: &Program = &serde_json::from_slice(&std::fs::read(directory.join("program")).unwrap()).unwrap();
    let ranks: Vec<Rank<'_>> = match program.settings.through {
        Through::Threads => std::thread::scope(|scope| {
            let run = |(rank, meetings)| {
                let meetings = Meetings::Threads(meetings);
                scope.spawn(move || Rank::run(program, directory, rank, meetings))
            };
            let ranks: Vec<_> = threads(program).into_iter().enumerate().map(run).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        }),
        _ => vec![Rank::run(program, directory, child.rank, Meetings::Process(child))],
    };
    child.say("ran");
    child.hear();
    drop(ranks);
    child.say("done");
}

/// For each rank, the bootstraps of all groups that are opened, as threads.
fn threads(program: &Program) -> Vec<HashMap<usize, Threads>> {
    let mut meetings: Vec<HashMap<usize, Threads>> = (0..program.world).map(|_| HashMap::new()).collect();
    let groups = program.groups();
    for (group, members) in groups.iter().filter(|(group, _)| program.is_opened(**group)) {
        for (rank, bootstrap) in members.iter().zip(Threads::new(members.len()).unwrap()) {
            meetings[*rank].insert(*group, bootstrap);
        }
    }
    meetings
}

/// An error that a rank got in a step.
struct Failed {
    rank: usize,
    after_ms: u64,
    kind: String,
    /// The rank that the error names, by its number in the group.
    named: Option<usize>,
    words: String,
}

/// The findings that the ranks wrote.
#[derive(Default)]
struct Findings {
    /// By step and rank.
    found: BTreeMap<(usize, usize), Vec<u8>>,
    /// By step.
    failed: BTreeMap<usize, Vec<Failed>>,
    ended: Vec<usize>,
    complaints: String,
}

fn read(program: &Program, directory: &Path) -> Findings {
    let mut findings = Findings::default();
    for rank in 0..program.world {
        let text = std::fs::read_to_string(directory.join(format!("found.{rank}"))).unwrap_or_default();
        let mut bytes = std::fs::read(directory.join(format!("bytes.{rank}"))).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(6, ' ').collect();
            let number = |at: usize| words.get(at).and_then(|word: &&str| word.parse::<usize>().ok());
            match (words[0], number(1), number(2)) {
                ("found", Some(step), Some(count)) if count <= bytes.len() => {
                    let rest = bytes.split_off(count);
                    findings.found.insert((step, rank), std::mem::replace(&mut bytes, rest));
                }
                ("failed", Some(step), Some(after)) => findings.failed.entry(step).or_default().push(Failed {
                    rank,
                    after_ms: after as u64,
                    kind: words[3].to_owned(),
                    named: number(4),
                    words: words[5].to_owned(),
                }),
                ("left", ..) => {}
                ("end", ..) => findings.ended.push(rank),
                _ => findings.complaints += &format!("rank {rank}: {line}\n"),
            }
        }
    }
    findings
}

/// The errors in the findings of the ranks.
fn judge(program: &Program, directory: &Path) -> String {
    let Findings { found, failed, ended, mut complaints } = read(program, directory);
    let mut model = Model::new(program);
    for (number, step) in program.steps.iter().enumerate() {
        model.step(step);
        let bench = match step {
            Step::Check { bench } => Some(bench),
            Step::Fault { fault: Fault::Depart, call, .. } => Some(&call.bench),
            _ => None,
        };
        if let Step::Rounds { rounds, .. } = step {
            let members = &program.groups()[&program.groups_of_experts()[&rounds.experts]];
            for (member, rank) in members.iter().enumerate() {
                let wrong = found.get(&(number, *rank)).and_then(|bytes| model.differs_after(rounds, member, bytes));
                let _ = wrong.map(|wrong| writeln!(complaints, "step {number}, rank {rank}: {wrong}"));
            }
            model.place(rounds);
        }
        if let Step::Products { products, .. } = step {
            let members = &program.groups()[&program.group_of(products)];
            for (rank, expected) in members.iter().zip(products.expected(&program.plans())) {
                let wrong = found.get(&(number, *rank)).and_then(|bytes| difference(&expected, bytes));
                let _ = wrong.map(|wrong| writeln!(complaints, "step {number}, rank {rank}: {wrong}"));
            }
        }
        if let Step::Mixes { mixes, .. } = step {
            let members = &program.groups()[&program.group_of_mixes(mixes)];
            for (rank, expected) in members.iter().zip(mixes.expected(&program.grids())) {
                let wrong = found.get(&(number, *rank)).and_then(|bytes| difference(&expected, bytes));
                let _ = wrong.map(|wrong| writeln!(complaints, "step {number}, rank {rank}: {wrong}"));
            }
        }
        if let Step::Objects(objects) = step {
            let members = &program.groups()[&objects.group];
            for (member, rank) in members.iter().enumerate() {
                let expected = [("objects".to_owned(), objects.expected(member, members.len()))];
                let wrong = found.get(&(number, *rank)).and_then(|bytes| difference(&expected, bytes));
                let _ = wrong.map(|wrong| writeln!(complaints, "step {number}, rank {rank}: {wrong}"));
            }
        }
        if let Some(bench) = bench {
            for (member, rank) in model.members(*bench).iter().enumerate() {
                let wrong = found.get(&(number, *rank)).and_then(|bytes| model.differs(*bench, member, bytes));
                let _ = wrong.map(|wrong| writeln!(complaints, "step {number}, rank {rank}: {wrong}"));
            }
        }
    }
    for (step, errors) in &failed {
        for error in errors.iter().filter(|error| !expected(program, *step, error)) {
            let Failed { rank, after_ms, kind, words, .. } = error;
            let _ = writeln!(complaints, "step {step}, rank {rank}, after {after_ms} ms: {kind}: {words}");
        }
    }
    for rank in (0..program.world).filter(|rank| !ended.contains(rank) && Some(*rank) != dead(program)) {
        let _ = writeln!(complaints, "rank {rank} did not come to the end of its steps");
    }
    if complaints.is_empty() {
        complaints = missing(program, &found, &failed);
    }
    complaints
}

/// Checks that a rank passed over, and errors that a rank did not get.
fn missing(
    program: &Program,
    found: &BTreeMap<(usize, usize), Vec<u8>>,
    failed: &BTreeMap<usize, Vec<Failed>>,
) -> String {
    let (groups, benches, of_experts) = (program.groups(), program.benches(), program.groups_of_experts());
    let mut complaints = String::new();
    for (number, step) in program.steps.iter().enumerate() {
        let concerned: &[usize] = match step {
            Step::Check { bench } => &groups[&benches[bench].0],
            Step::Rounds { rounds, .. } => &groups[&of_experts[&rounds.experts]],
            Step::Products { products, .. } => &groups[&program.group_of(products)],
            Step::Mixes { mixes, .. } => &groups[&program.group_of_mixes(mixes)],
            Step::Objects(objects) => &groups[&objects.group],
            Step::Misrouted(asked) => &groups[&asked.group],
            Step::Fault { group, .. } => &groups[group],
            _ => continue,
        };
        let failed_there =
            |rank: usize| failed.get(&number).is_some_and(|all| all.iter().any(|error| error.rank == rank));
        let has = |rank: usize| match step {
            Step::Fault { group, culprit, fault: Fault::Leave | Fault::Depart | Fault::Die, .. }
                if groups[group][*culprit] == rank =>
            {
                true
            }
            Step::Fault { fault: Fault::Depart, .. } => found.contains_key(&(number, rank)),
            Step::Fault { .. } | Step::Misrouted(_) => failed_there(rank),
            _ => found.contains_key(&(number, rank)),
        };
        for rank in concerned.iter().filter(|rank| !has(**rank) && Some(**rank) != dead(program)) {
            let _ = writeln!(complaints, "step {number}, rank {rank}: nothing was found");
        }
    }
    complaints
}

/// Whether an error is the expected error of a fault.
fn expected(program: &Program, step: usize, error: &Failed) -> bool {
    if let Some(Step::Misrouted(asked)) = program.steps.get(step) {
        let kind = if asked.layer.capacity.is_some() { "Capacity" } else { "Routing" };
        return error.kind == kind && error.after_ms <= SLACK_MS;
    }
    let Some(Step::Fault { group, culprit, fault, .. }) = program.steps.get(step) else { return false };
    let is_culprit = program.groups()[group][*culprit] == error.rank;
    let names_culprit = error.named == Some(*culprit);
    let (right, limit_ms) = match fault {
        Fault::Depart => (false, 0),
        Fault::Abort => (error.kind == "Aborted", SLACK_MS),
        Fault::Leave | Fault::Die => (error.kind == "PeerLost" && names_culprit, SLACK_MS),
        Fault::Skip if is_culprit => (error.kind == "Aborted", program.settings.steady_ms + SLACK_MS),
        Fault::Skip => (error.kind == "Timeout" && names_culprit, program.settings.steady_ms + SLACK_MS),
        Fault::Differ(_) => (error.kind == "Mismatch", SLACK_MS),
    };
    right && error.after_ms <= limit_ms
}
