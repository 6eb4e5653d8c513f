//! Ranks in two containers: a PID and a mount namespace with a `/proc` of its own for each half of the ranks. A rank that is
//! stopped in any phase is named from outside of the containers and from inside of each.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use symmetra::observe::look;

use super::observed::{UNSHARE, VICTIM, WORLD, every_phase, has_namespaces, phases};
use crate::LIMIT;
use crate::support::process::{Child, Ranks, this, words};
use crate::support::world::{alone, bounded};

const NAME: &str = "containers::ranks_in_two_containers_are_seen_from_outside_and_from_inside";

/// The part of a process that looks at the ranks.
const LOOKS: &str = "looks";

/// The ranks of each container.
const RANKS: [[usize; 4]; 2] = [[0, 1, 2, 3], [4, 5, 6, 7]];

/// A PID and a mount namespace, which end with this.
struct Container(std::process::Child);

impl Container {
    fn start() -> Self {
        let mut command = Command::new(UNSHARE[0]);
        command.args(&UNSHARE[1..]).args(["sh", "-c", "echo ready; exec cat"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(process)
    }

    /// The command that runs the command after it in the container. A shell waits for the command: `nsenter` itself would stop
    /// and stay stopped when the command stops.
    fn command(&self) -> Vec<String> {
        let namespaces = format!("/proc/{}/ns", self.0.id());
        let [pid, mount] = [("pid", "pid_for_children"), ("mount", "mnt")]
            .map(|(option, namespace)| format!("--{option}={namespaces}/{namespace}"));
        let shell = ["--", "sh", "-c", "\"$@\"; exit", "sh"];
        [words(&["nsenter", "--no-fork", &pid, &mount]), words(&shell)].concat()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks at all groups whenever the test asks, and sends the snapshot as JSON.
fn looks(child: &Child) {
    while child.hear() != "end" {
        child.say(&serde_json::to_string(&look(None).unwrap()).unwrap());
    }
}

/// A process in a container that looks at the ranks.
struct Looker(Ranks);

impl Looker {
    fn start(container: &Container) -> Self {
        let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
        Self(Ranks::start_by(|_| container.command(), directory, NAME, 1, LOOKS, |_| Vec::new()))
    }

    /// The group that the process sees when the group's verdict blames these ranks.
    fn sees(&mut self, phase: &str, culprits: &Value) -> Value {
        let end = Instant::now() + LIMIT / 4;
        loop {
            self.0.tell(&[0], "look");
            let snapshot: Value = serde_json::from_str(&self.0.hear(0).words).unwrap();
            let groups = snapshot["groups"].as_array().unwrap();
            if groups.len() == 1 && groups[0]["verdict"]["culprits"] == *culprits {
                return groups[0].clone();
            }
            assert!(Instant::now() < end, "{phase}, {culprits}: {snapshot:#}");
        }
    }

    fn end(mut self) {
        self.0.tell(&[0], "end");
        self.0.finish(&[0]);
    }
}

/// The ranks of a group whose processes are visible, and the others.
fn visible(group: &Value) -> [Vec<usize>; 2] {
    let (unseen, seen): (Vec<&Value>, Vec<&Value>) =
        group["ranks"].as_array().unwrap().iter().partition(|rank| rank["process_state"] == "unseen");
    [seen, unseen].map(|ranks| ranks.iter().map(|rank| rank["rank"].as_u64().unwrap() as usize).collect())
}

/// While a group opens, the ranks of the other container are missing. Later every rank has the pages of all ranks.
fn is_seen_from_inside(phase: &str, looker: &mut Looker, own: [usize; 4]) {
    let others: Vec<usize> = (0..WORLD).filter(|rank| !own.contains(rank)).collect();
    if phase == "open" {
        let missing: Vec<usize> = (0..WORLD).filter(|rank| !own.contains(rank) || *rank == VICTIM).collect();
        let group = looker.sees(phase, &json!(missing));
        let present: Vec<usize> = own.into_iter().filter(|rank| *rank != VICTIM).collect();
        assert_eq!(visible(&group), [present, Vec::new()], "{group:#}");
        let words = group["verdict"]["words"].as_str().unwrap();
        assert!(words.contains("not begun to open the group"), "{words}");
        assert!(words.ends_with("; ranks in PID namespaces that are not visible are missing"), "{words}");
        return;
    }
    let group = looker.sees(phase, &json!([VICTIM]));
    assert_eq!(visible(&group), [own.to_vec(), others], "{group:#}");
    let (victim, words) = (&group["ranks"][VICTIM], group["verdict"]["words"].as_str().unwrap());
    let process = &victim["process"];
    let (state, about) = match own.contains(&VICTIM) {
        true => ("stopped", format!("(process {process} is stopped)")),
        false => ("unseen", format!("(process {process} is in a PID namespace that is not visible)")),
    };
    assert_eq!(victim["process_state"], state, "{victim:#}");
    assert!(words.contains(&format!("rank {VICTIM} {about}")), "{words}");
}

#[test]
fn ranks_in_two_containers_are_seen_from_outside_and_from_inside() {
    if let Some(child) = this() {
        return bounded(LIMIT, || if child.part == LOOKS { looks(&child) } else { phases(&child) });
    }
    if !has_namespaces() {
        return;
    }
    let _alone = alone();
    let containers = [Container::start(), Container::start()];
    let of = |rank: usize| containers[usize::from(RANKS[1].contains(&rank))].command();
    let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
    let mut ranks = Ranks::start_by(of, directory, NAME, WORLD, "", |_| Vec::new());
    let mut lookers = containers.each_ref().map(Looker::start);
    every_phase(&mut ranks, |phase| {
        std::thread::scope(|scope| {
            for (looker, own) in lookers.iter_mut().zip(RANKS) {
                scope.spawn(move || is_seen_from_inside(phase, looker, own));
            }
        });
    });
    ranks.finish(&(0..WORLD).collect::<Vec<_>>());
    lookers.into_iter().for_each(Looker::end);
}
