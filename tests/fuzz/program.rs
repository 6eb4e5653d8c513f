//! A program: one list of steps for all ranks, and the part of each rank in a step.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use symmetra::op::Op;
use symmetra::{Algorithm, AllReduceOptions, Codec, Dtype, Reduction, Transport};

use crate::experts::{Layer, Misrouted, Rounds};
use crate::grids::{Mixes, Shape};
use crate::norm::Norm;
use crate::objects::{By, Objects};
use crate::products::{Asked, Products};
use crate::support::batch::Memory;
use crate::support::call::Call;

/// Elements of each buffer of a bench that calls may use.
pub(crate) const ROOM: usize = 4096;
/// Elements after memory that calls use.
pub(crate) const GUARD: usize = 256;
/// Elements of each buffer of a bench.
pub(crate) const LENGTH: usize = ROOM + GUARD;
/// Streams of each rank.
pub(crate) const STREAMS: usize = 3;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) world: usize,
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

/// The settings of a program for its groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) transport: String,
    pub(crate) check_calls: bool,
    pub(crate) exact: bool,
    /// Bytes of the scratch of: one-shot LL, one-shot sentinel, two-shot LL, two-shot sentinel, ring, doubling.
    pub(crate) scratch: [u64; 6],
    pub(crate) steady_ms: u64,
    /// Blocks, and threads of a block.
    pub(crate) shape: [u32; 2],
    pub(crate) through: Through,
}

/// How the ranks of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Through {
    Threads,
    Processes,
    /// Processes of a C++ program.
    Cpp,
}

impl Settings {
    pub(crate) fn transport(&self) -> Transport {
        self.transport.parse().unwrap()
    }
}

/// Group 0 has every rank. Groups, benches and graphs are named by number. Ranks are numbered in the world, but for the
/// culprit of a fault.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Groups of the members of a group. A member that is in none of the parts is in no new group.
    Split {
        from: usize,
        parts: Vec<(usize, Vec<usize>)>,
    },
    /// Two symmetric and five plain buffers, filled at random, the last two with the same on every rank; and one of f32.
    Bench {
        bench: usize,
        group: usize,
        dtype: String,
    },
    /// Fresh random elements in a buffer of every rank.
    Write {
        bench: usize,
        buffer: usize,
        start: usize,
        count: usize,
        seed: u64,
    },
    /// An eager call.
    Call {
        call: Placed,
        on: Vec<usize>,
    },
    /// Calls of several groups, which each rank makes in its own order: the calls of a lane follow each other on one
    /// stream.
    Interleaved {
        lanes: Vec<Lane>,
        /// For each rank, the lanes of the calls in turn. The first call of each lane precedes all others, in the order
        /// of lanes.
        orders: Vec<Vec<usize>>,
    },
    /// Calls in a graph.
    Capture {
        graph: usize,
        calls: Vec<Placed>,
        on: Vec<usize>,
    },
    Launch {
        graph: usize,
        on: Vec<usize>,
    },
    DropGraph {
        graph: usize,
    },
    Experts {
        experts: usize,
        group: usize,
        layer: Layer,
    },
    /// Calls on experts, and their outputs.
    Rounds {
        rounds: Rounds,
        on: Vec<usize>,
    },
    /// The experts of the ranks that survive the culprit of a fault, in a new group.
    Without {
        lost: usize,
        from: usize,
        experts: usize,
        group: usize,
        layer: Layer,
    },
    /// A plan of GEMMs and a collective.
    Plan {
        plan: usize,
        group: usize,
        asked: Asked,
    },
    /// Calls on plans of one group, and their outputs.
    Products {
        products: Products,
        on: Vec<usize>,
    },
    /// A group that the members open as a coordinator, which grids need.
    Coordinator {
        group: usize,
        members: Vec<usize>,
    },
    Grid {
        grid: usize,
        group: usize,
        shape: Shape,
    },
    /// Calls on grids of one group, and the contents of the memory of their operands.
    Mixes {
        mixes: Mixes,
        on: Vec<usize>,
    },
    /// Objects that the hosts of a group send each other.
    Objects(Objects),
    /// A call on experts that every rank of the group learns to be wrong.
    Misrouted(Misrouted),
    /// The ranks of a group wait for their work, and report the contents of the bench.
    Check {
        bench: usize,
    },
    /// A barrier of the hosts.
    Barrier {
        group: usize,
    },
    /// One rank sleeps.
    Late {
        rank: usize,
        micros: u64,
    },
    /// The ranks of a group close it.
    Close {
        group: usize,
    },
    /// Something goes wrong with one rank of a group, while the others make a call.
    Fault {
        group: usize,
        culprit: usize,
        fault: Fault,
        call: Placed,
    },
}

/// Calls of one group, on a stream that no other lane has on this rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lane {
    pub(crate) calls: Vec<Placed>,
    pub(crate) on: Vec<usize>,
}

/// The lanes of the calls that a rank makes, in turn: an order of its own where the program has one. `counts`: the calls of each lane.
pub(crate) fn turns(order: &[usize], counts: &[usize]) -> Vec<usize> {
    let mut left = counts.to_vec();
    let mut turns = Vec::new();
    let first = 0..counts.len();
    let rest = (0..counts.len()).flat_map(|lane| std::iter::repeat_n(lane, counts[lane]));
    for lane in first.chain(order.iter().copied()).chain(rest) {
        if left.get(lane).is_some_and(|left| *left > 0) {
            left[lane] -= 1;
            turns.push(lane);
        }
    }
    turns
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Fault {
    Abort,
    /// The culprit drops its communicator without closing the group.
    Leave,
    /// The same when all have finished their work: the others still have theirs, and make no call.
    Depart,
    /// The process of the culprit ends.
    Die,
    /// The culprit leaves the call out.
    Skip,
    /// The culprit makes another call.
    Differ(Box<Placed>),
}

/// How a call is made. The effect is the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Form {
    Ordinary,
    /// An all-reduce that some ranks bind first.
    Bound,
    /// By copy engines, awaited at once.
    LowContention,
    /// Sends and receives between pairs: a rank without a message makes no call, and some ranks make one for each message.
    Pairs,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Symmetric,
    Plain,
    Adopted,
    /// Symmetric memory, lent as plain.
    Lent,
}

/// A message that a rank sends or receives in a call between pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) receives: bool,
    pub(crate) peer: usize,
    pub(crate) start: usize,
    pub(crate) count: usize,
}

/// A call on a bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) bench: usize,
    pub(crate) op: String,
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) reduction: String,
    pub(crate) algorithm: String,
    pub(crate) codec: String,
    pub(crate) root: usize,
    pub(crate) kind: Kind,
    pub(crate) in_place: bool,
    /// Swaps the buffers: reads the buffer that other calls write, and writes the buffer that they read.
    pub(crate) flip: bool,
    pub(crate) form: Form,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) seed: u64,
    /// The norm of an operation of rows, in addition to the sum.
    pub(crate) norm: Option<Norm>,
}

impl Placed {
    pub(crate) fn call(&self) -> Call {
        let (reduction, algorithm): (Reduction, Algorithm) =
            (self.reduction.parse().unwrap(), self.algorithm.parse().unwrap());
        let codec: Codec = self.codec.parse().unwrap();
        let memory = match self.kind {
            Kind::Symmetric => Memory::Symmetric,
            Kind::Plain | Kind::Lent => Memory::Plain,
            Kind::Adopted => Memory::Adopted,
        };
        let &Self { count, rows, root, in_place, from, to, seed, .. } = self;
        let op = Op::named(&self.op).unwrap();
        let options = AllReduceOptions::default().reduction(reduction).algorithm(algorithm).codec(codec);
        Call { op, count, rows, options, root, memory, in_place, from, to, seed }
    }

    /// The messages of a rank in a call between pairs, in an order that all ranks have.
    pub(crate) fn messages(&self, rank: usize, world: usize) -> Vec<Message> {
        let (call, mut messages) = (self.call(), Vec::new());
        let mut starts = [call.input_start(rank), call.output_start(rank, world)];
        let sends = call.counts(rank, world, true).into_iter().enumerate();
        let receives = call.counts(rank, world, false).into_iter().enumerate();
        for (which, counts) in [sends, receives].into_iter().enumerate() {
            for (peer, count) in counts.filter(|(_, count)| *count > 0) {
                messages.push(Message { receives: which == 1, peer, start: starts[which], count });
                starts[which] += count;
            }
        }
        // By sender, then by receiver.
        let ends = |message: &Message| {
            if message.receives { [message.peer, rank] } else { [rank, message.peer] }
        };
        messages.sort_by_key(ends);
        messages
    }

    /// Whether a rank makes a call of each of its messages.
    pub(crate) fn is_slow(&self, rank: usize) -> bool {
        (self.seed >> (8 + rank)) & 3 == 0
    }

    /// Whether the call enqueues anything on a rank.
    pub(crate) fn enqueues(&self, rank: usize, world: usize) -> bool {
        match self.form {
            Form::Pairs => !self.messages(rank, world).is_empty(),
            _ => self.count > 0 && world > 1,
        }
    }

    /// Elements of the output for `elems` elements of input: rows of the output may have another width.
    pub(crate) fn output_elems(&self, elems: usize) -> usize {
        self.norm.as_ref().map_or(elems, |norm| elems / norm.hidden * norm.width)
    }

    /// Input and output of a rank, which `memory` makes of 0 or 1 for [`buffer`](Self::buffer), a start and a length.
    pub(crate) fn operands<O>(
        &self,
        rank: usize,
        world: usize,
        mut memory: impl FnMut(usize, usize, usize) -> O,
    ) -> [Option<O>; 2] {
        self.call().operands(rank, world, |which, start, elems| {
            memory(which, start, if which == 1 { self.output_elems(elems) } else { elems })
        })
    }

    /// The number in the bench of a buffer that the call reads (0) or writes (1).
    pub(crate) fn buffer(&self, which: usize) -> usize {
        let first = match self.kind {
            Kind::Symmetric | Kind::Lent => 0,
            Kind::Plain => 2,
            // Calls adopt memory at different offsets. Plain memory in a pool must be at equal offsets on all ranks.
            Kind::Adopted => 5,
        };
        first + (which ^ usize::from(self.flip))
    }
}

impl Program {
    /// The members of every group that the program makes, in the order of their numbers in the group.
    pub(crate) fn groups(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut groups = BTreeMap::from([(0, (0..self.world).collect())]);
        for step in &self.steps {
            if let Step::Split { parts, .. } = step {
                groups.extend(parts.iter().cloned());
            }
            if let Step::Coordinator { group, members } = step {
                groups.insert(*group, members.clone());
            }
            if let Step::Without { lost, from, group, .. } = step {
                let mut members = groups[&self.groups_of_experts()[from]].clone();
                members.retain(|rank| rank != lost);
                groups.insert(*group, members);
            }
        }
        groups
    }

    /// The group and the type of every bench.
    pub(crate) fn benches(&self) -> BTreeMap<usize, (usize, Dtype)> {
        let bench = |step: &Step| match step {
            Step::Bench { bench, group, dtype } => Some((*bench, (*group, dtype.parse().unwrap()))),
            _ => None,
        };
        self.steps.iter().filter_map(bench).collect()
    }

    /// The settings of all experts.
    pub(crate) fn layers(&self) -> BTreeMap<usize, &Layer> {
        fn layer(step: &Step) -> Option<(usize, &Layer)> {
            match step {
                Step::Experts { experts, layer, .. } | Step::Without { experts, layer, .. } => Some((*experts, layer)),
                _ => None,
            }
        }
        self.steps.iter().filter_map(layer).collect()
    }

    /// The group of all experts.
    pub(crate) fn groups_of_experts(&self) -> BTreeMap<usize, usize> {
        let group = |step: &Step| match step {
            Step::Experts { experts, group, .. } | Step::Without { experts, group, .. } => Some((*experts, *group)),
            _ => None,
        };
        self.steps.iter().filter_map(group).collect()
    }

    /// All plans, with their groups.
    pub(crate) fn plans(&self) -> BTreeMap<usize, (usize, &Asked)> {
        fn plan(step: &Step) -> Option<(usize, (usize, &Asked))> {
            match step {
                Step::Plan { plan, group, asked } => Some((*plan, (*group, asked))),
                _ => None,
            }
        }
        self.steps.iter().filter_map(plan).collect()
    }

    /// Whether a group is opened, and not split off another.
    pub(crate) fn is_opened(&self, number: usize) -> bool {
        let opens = |step: &Step| matches!(step, Step::Coordinator { group, .. } if *group == number);
        number == 0 || self.steps.iter().any(opens)
    }

    /// All grids, with their groups.
    pub(crate) fn grids(&self) -> BTreeMap<usize, (usize, &Shape)> {
        fn grid(step: &Step) -> Option<(usize, (usize, &Shape))> {
            match step {
                Step::Grid { grid, group, shape } => Some((*grid, (*group, shape))),
                _ => None,
            }
        }
        self.steps.iter().filter_map(grid).collect()
    }

    /// The group of calls on grids.
    pub(crate) fn group_of_mixes(&self, mixes: &Mixes) -> usize {
        self.grids()[&mixes.calls[0].grid].0
    }

    /// The group of calls on plans.
    pub(crate) fn group_of(&self, products: &Products) -> usize {
        self.plans()[&products.calls[0].plan].0
    }

    pub(crate) fn fault(&self) -> Option<(&Fault, usize, usize)> {
        self.steps.iter().find_map(|step| match step {
            Step::Fault { group, culprit, fault, .. } => Some((fault, *group, *culprit)),
            _ => None,
        })
    }

    /// The groups that a fault takes with it.
    pub(crate) fn failed(&self) -> BTreeSet<usize> {
        let misrouted = self.steps.iter().find_map(|step| match step {
            Step::Misrouted(asked) => Some(asked.group),
            _ => None,
        });
        if let Some(group) = misrouted {
            return BTreeSet::from([group]);
        }
        let Some((fault, group, culprit)) = self.fault() else { return BTreeSet::new() };
        let groups = self.groups();
        let dead = groups[&group][culprit];
        let fails = |(number, members): &(&usize, &Vec<usize>)| {
            **number == group || (matches!(fault, Fault::Die) && members.contains(&dead))
        };
        groups.iter().filter(fails).map(|(number, _)| *number).collect()
    }

    /// Whether a step has a meaning at this place; updates the objects of the program.
    fn admit(step: &mut Step, live: &mut Live) -> bool {
        let Live { groups, coordinators, benches, experts: open, plans, grids, graphs, failed, died } = live;
        let calls_fit = |call: &Placed, benches: &BTreeMap<usize, usize>| benches.contains_key(&call.bench);
        match step {
            Step::Split { from, parts } => {
                let open = groups.contains(from) && !*failed;
                groups.extend(parts.iter().filter(|_| open).map(|(number, _)| *number));
                open
            }
            Step::Bench { bench, group, .. } => {
                let open = groups.contains(group) && !*failed;
                if open {
                    benches.insert(*bench, *group);
                }
                open
            }
            Step::Experts { experts, group, .. } => {
                let is_open = groups.contains(group) && !*failed;
                if is_open {
                    open.insert(*experts, *group);
                }
                is_open
            }
            Step::Without { from, experts, group, .. } => {
                let is_open = open.contains_key(from) && *died;
                if is_open {
                    groups.insert(*group);
                    open.insert(*experts, *group);
                }
                is_open
            }
            Step::Rounds { rounds, .. } => open.contains_key(&rounds.experts),
            Step::Plan { plan, group, .. } => {
                let open = groups.contains(group) && !*failed;
                if open {
                    plans.insert(*plan, *group);
                }
                open
            }
            Step::Products { products, .. } => {
                products.calls.retain(|call| plans.contains_key(&call.plan));
                !products.calls.is_empty()
            }
            Step::Coordinator { group, .. } => !*failed && groups.insert(*group) && coordinators.insert(*group),
            Step::Grid { grid, group, .. } => {
                let open = coordinators.contains(group) && !*failed;
                if open {
                    grids.insert(*grid, *group);
                }
                open
            }
            Step::Mixes { mixes, .. } => {
                mixes.calls.retain(|call| grids.contains_key(&call.grid));
                !mixes.calls.is_empty()
            }
            Step::Objects(Objects { group, by: By::Ring { .. }, .. }) => groups.contains(group) && !*failed,
            Step::Objects(Objects { group, .. }) => coordinators.contains(group) && !*failed,
            Step::Misrouted(asked) => {
                *failed = true;
                groups.contains(&asked.group)
            }
            Step::Write { bench, .. } | Step::Check { bench } => benches.contains_key(bench),
            Step::Call { call, .. } => calls_fit(call, benches),
            Step::Interleaved { lanes, .. } => {
                lanes.iter_mut().for_each(|lane| lane.calls.retain(|call| calls_fit(call, benches)));
                lanes.retain(|lane| !lane.calls.is_empty());
                !lanes.is_empty()
            }
            Step::Capture { graph, calls, .. } => {
                calls.retain(|call| calls_fit(call, benches));
                let used = calls.iter().map(|call| benches[&call.bench]).collect::<BTreeSet<_>>();
                !calls.is_empty() && graphs.insert(*graph, used).is_none()
            }
            Step::Launch { graph, .. } => graphs.contains_key(graph),
            Step::DropGraph { graph } => graphs.remove(graph).is_some(),
            Step::Barrier { group } => groups.contains(group),
            Step::Close { group } => {
                benches.retain(|_, of| of != group);
                open.retain(|_, of| of != group);
                plans.retain(|_, of| of != group);
                grids.retain(|_, of| of != group);
                coordinators.remove(group);
                graphs.retain(|_, of| !of.contains(group));
                groups.remove(group)
            }
            Step::Late { .. } => true,
            Step::Fault { call, fault, .. } => {
                let fits = calls_fit(call, benches);
                (*failed, *died) = (true, fits && matches!(fault, Fault::Die));
                fits
            }
        }
    }

    /// The program without the steps that have no meaning, because the objects that they use do not exist.
    pub(crate) fn repaired(mut self) -> Self {
        let mut live = Live { groups: BTreeSet::from([0]), ..Live::default() };
        self.steps.retain_mut(|step| Self::admit(step, &mut live));
        self
    }
}

#[derive(Default)]
struct Live {
    groups: BTreeSet<usize>,
    /// Groups that were opened as coordinators.
    coordinators: BTreeSet<usize>,
    /// With their groups.
    benches: BTreeMap<usize, usize>,
    /// With their groups.
    experts: BTreeMap<usize, usize>,
    /// With their groups.
    plans: BTreeMap<usize, usize>,
    /// With their groups.
    grids: BTreeMap<usize, usize>,
    graphs: BTreeMap<usize, BTreeSet<usize>>,
    failed: bool,
    /// Whether a process has ended.
    died: bool,
}
