//! Runs a program as one rank, and writes its findings.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::experts::Experts;
use symmetra::{
    Communicator, Config, Deadlines, Determinism, Device, Dtype, Error, Event, Graph, HostShape, Result, Stream,
};

use crate::bench::{Bench, open as open_bench};
use crate::expert_rank::{Here, misroute, run};
use crate::experts::{Layer, Misrouted, Rounds};
use crate::grid_rank;
use crate::grids::Mixes;
use crate::model::typed;
use crate::norm::WIDE;
use crate::object_rank;
use crate::product_rank;
use crate::products::Products;
use crate::program::{Fault, Form, LENGTH, Lane, Placed, Program, STREAMS, Settings, Step, turns};
use crate::support::batch::On;
use crate::support::process::Child;

/// How long a rank waits for the error of a group that has failed.
const PATIENCE: Duration = Duration::from_secs(40);

/// Configuration of the groups.
fn config(settings: &Settings) -> Config {
    let mut config = crate::support::config();
    let wait = Duration::from_secs(20);
    config.deadlines =
        Deadlines::default().open(wait).first_use(wait).steady(Duration::from_millis(settings.steady_ms));
    config.transport = settings.transport();
    config.check_calls = settings.check_calls;
    config.determinism = if settings.exact { Determinism::Exact } else { Determinism::PerAlgorithm };
    let [ll, sentinel, two_ll, two_sentinel, ring, doubling] = settings.scratch;
    (config.one_shot_ll_bytes, config.one_shot_sentinel_bytes) = (ll, Some(sentinel));
    (config.two_shot_ll_bytes, config.two_shot_sentinel_bytes) = (two_ll, two_sentinel);
    (config.ring_bytes, config.recursive_doubling_bytes) = (ring, doubling);
    config
}

/// The name of an error's kind.
fn kind(error: &Error) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// How a rank meets the members of groups that are opened.
pub(crate) enum Meetings<'a> {
    Threads(HashMap<usize, Threads>),
    Process(&'a Child),
}

impl Meetings<'_> {
    fn meet(&mut self, group: usize, member: usize, members: usize) -> Box<dyn Bootstrap> {
        match self {
            Self::Threads(threads) => Box::new(threads.remove(&group).unwrap()),
            Self::Process(child) => Box::new(child.meet(&format!("group.{group}"), member, members).unwrap()),
        }
    }
}

pub(crate) struct Rank<'a> {
    program: &'a Program,
    /// In the world.
    number: usize,
    /// The directory that all ranks share.
    directory: PathBuf,
    streams: Vec<Stream>,
    meetings: Meetings<'a>,
    groups: BTreeMap<usize, Communicator>,
    /// The groups that were opened as coordinators.
    coordinators: BTreeMap<usize, Coordinator>,
    /// The stream of the last call of each group, and whether copy engines run the call or no device does. The
    /// communicator neither orders such a call after calls on other streams, nor later calls after it.
    last: HashMap<usize, (usize, bool)>,
    graphs: HashMap<usize, Captured>,
    benches: HashMap<usize, Held>,
    experts: HashMap<usize, OpenExperts<'a>>,
    plans: HashMap<usize, product_rank::Opened<'a>>,
    grids: HashMap<usize, grid_rank::Opened<'a>>,
    reached: grid_rank::Reached,
    /// The bytes that the rank writes into its buffers.
    written: File,
    /// Lines with the findings of the rank, and the bytes that some of these lines announce.
    found: [BufWriter<File>; 2],
}

/// A bench, and its group.
type Held = (Arc<Box<dyn Bench>>, usize);

struct OpenExperts<'a> {
    experts: Experts,
    layer: &'a Layer,
    group: usize,
}

struct Captured {
    graph: Graph<'static>,
    /// The groups of its calls, and whether this rank enqueues something for the group: only then does a launch follow
    /// the group's earlier calls.
    groups: BTreeMap<usize, bool>,
}

impl<'a> Rank<'a> {
    /// Runs the program. The result is dropped when every rank is done, because peers may still access the memory of a
    /// rank.
    pub(crate) fn run(program: &'a Program, directory: &Path, number: usize, meetings: Meetings<'a>) -> Self {
        let [blocks, threads] = program.settings.shape;
        let device = Device::host_with(HostShape::default().blocks(blocks).threads(threads)).unwrap();
        let create = |name: &str| BufWriter::new(File::create(directory.join(format!("{name}.{number}"))).unwrap());
        let mut rank = Self {
            program,
            number,
            directory: directory.to_owned(),
            streams: (0..STREAMS).map(|_| Stream::new(&device).unwrap()).collect(),
            meetings,
            groups: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            last: HashMap::new(),
            graphs: HashMap::new(),
            benches: HashMap::new(),
            experts: HashMap::new(),
            plans: HashMap::new(),
            grids: HashMap::new(),
            reached: Vec::new(),
            written: File::open(directory.join(format!("written.{number}"))).unwrap(),
            found: ["found", "bytes"].map(create),
        };
        let bootstrap = rank.meetings.meet(0, number, program.world);
        match Communicator::open(bootstrap, &device, config(&program.settings)) {
            Ok(world) => rank.steps(world),
            Err(error) => rank.failed(0, &error, Duration::ZERO),
        }
        rank.found.iter_mut().for_each(|file| file.flush().unwrap());
        rank
    }

    fn steps(&mut self, world: Communicator) {
        self.groups.insert(0, world);
        for (number, step) in self.program.steps.iter().enumerate() {
            if let Err(error) = self.step(number, step) {
                self.failed(number, &error, Duration::ZERO);
                // The others need not wait for a message that does not come.
                return self.groups.values().for_each(Communicator::abort);
            }
        }
        let failed = self.program.failed();
        let groups: Vec<usize> = self.groups.keys().copied().filter(|group| !failed.contains(group)).collect();
        for group in groups {
            if let Err(error) = self.close_at_the_end(group) {
                return self.failed(self.program.steps.len() + group, &error, Duration::ZERO);
            }
        }
        self.say("end");
    }

    /// Closes a group, whose graphs, experts and plans stay.
    fn close_at_the_end(&mut self, group: usize) -> Result<()> {
        self.close_grids(group)?;
        match self.coordinators.get(&group) {
            Some(coordinator) => coordinator.clone().close(),
            None => self.groups[&group].clone().close(),
        }
    }

    /// Closes the grids of a group, in the order of their numbers.
    fn close_grids(&mut self, group: usize) -> Result<()> {
        let mut grids: Vec<usize> =
            self.grids.iter().filter(|(_, of)| of.group == group).map(|(grid, _)| *grid).collect();
        grids.sort_unstable();
        grids.into_iter().filter_map(|grid| self.grids.remove(&grid)).try_for_each(|grid| grid.mixed.close())
    }

    fn say(&mut self, line: &str) {
        writeln!(self.found[0], "{line}").unwrap();
    }

    fn failed(&mut self, step: usize, error: &Error, after: Duration) {
        let rank = match error {
            Error::PeerLost { rank, .. } | Error::Peer { rank, .. } => Some(*rank),
            Error::Timeout { rank, .. } => *rank,
            _ => None,
        };
        let rank = rank.map_or(-1, |rank| rank as i64);
        self.say(&format!(
            "failed {step} {} {} {rank} {}",
            after.as_millis(),
            kind(error),
            error.to_string().replace('\n', " ")
        ));
    }

    fn bench(&self, bench: usize) -> Option<Held> {
        self.benches.get(&bench).cloned()
    }

    /// The stream of the last call of a group.
    fn stream(&self, group: usize) -> Stream {
        self.streams[self.last.get(&group).map_or(0, |last| last.0)].clone()
    }

    /// Makes a stream wait for the last call of a group, if the communicator does not.
    fn order(&mut self, group: usize, on: usize, beside: bool) -> Result<()> {
        let last = self.last.insert(group, (on, beside));
        if let Some((last, _)) = last.filter(|(last, was_beside)| *last != on && (beside || *was_beside)) {
            let event = Event::new(self.streams[on].device())?;
            self.streams[last].record(&event)?;
            self.streams[on].wait(&event)?;
        }
        Ok(())
    }

    fn fill(&mut self, bench: usize, buffer: usize, start: usize, count: usize) -> Result<()> {
        let Some((bench, group)) = self.bench(bench) else { return Ok(()) };
        let mut bytes = vec![0; count * bench.elem_bytes(buffer)];
        self.written.read_exact(&mut bytes).unwrap();
        bench.write(buffer, start, &bytes, &self.stream(group))
    }

    fn call(&mut self, call: &Placed, on: usize) -> Result<()> {
        self.prepare(call, on)?;
        self.enqueue(call, on)
    }

    fn prepare(&self, call: &Placed, on: usize) -> Result<()> {
        let Some((bench, _)) = self.bench(call.bench) else { return Ok(()) };
        bench.prepare(call, &self.streams[on])
    }

    /// Makes calls of several groups in an order of this rank's own.
    fn interleaved(&mut self, lanes: &[Lane], order: &[usize]) -> Result<()> {
        for Lane { calls, on } in lanes {
            calls.iter().try_for_each(|call| self.prepare(call, on[self.number]))?;
        }
        let counts: Vec<usize> = lanes.iter().map(|lane| lane.calls.len()).collect();
        let mut made = vec![0; lanes.len()];
        for lane in turns(order, &counts) {
            self.enqueue(&lanes[lane].calls[made[lane]], lanes[lane].on[self.number])?;
            made[lane] += 1;
        }
        Ok(())
    }

    fn enqueue(&mut self, call: &Placed, on: usize) -> Result<()> {
        let Some((bench, group)) = self.bench(call.bench) else { return Ok(()) };
        let enqueues = call.enqueues(bench.communicator().rank(), bench.communicator().world_size());
        self.order(group, on, call.form == Form::LowContention || !enqueues)?;
        bench.call(call, &On::Stream(&self.streams[on]))
    }

    fn capture(&mut self, calls: &[Placed], on: usize) -> Result<Option<Captured>> {
        let own = calls.iter().filter_map(|call| Some((call, self.bench(call.bench)?)));
        let own: Vec<(&Placed, Held)> = own.collect();
        if own.is_empty() {
            return Ok(None);
        }
        own.iter().try_for_each(|(call, (bench, _))| bench.prepare(call, &self.streams[on]))?;
        let graph = self.streams[on].capture(|capture| {
            own.iter().try_for_each(|(call, (bench, _))| capture.keep(bench.clone()).call(call, &On::Capture(capture)))
        })?;
        graph.register()?;
        let mut groups = BTreeMap::new();
        for (call, (bench, group)) in &own {
            let communicator = bench.communicator();
            *groups.entry(*group).or_default() |= call.enqueues(communicator.rank(), communicator.world_size());
        }
        Ok(Some(Captured { graph, groups }))
    }

    /// Makes calls on experts, and writes their outputs.
    fn rounds(&mut self, step: usize, rounds: &Rounds, on: usize) -> Result<()> {
        let Some(OpenExperts { experts, layer, group }) = self.experts.get(&rounds.experts) else {
            return Ok(());
        };
        let here = Here { member: self.groups[group].rank(), stream: &self.streams[on], file: &mut self.written };
        let bytes = run(experts, layer, rounds, here)?;
        experts.communicator().check_guards()?;
        self.found[1].write_all(&bytes).unwrap();
        self.say(&format!("found {step} {}", bytes.len()));
        Ok(())
    }

    /// Makes calls on plans, and writes their outputs.
    fn products(&mut self, step: usize, products: &Products, on: usize) -> Result<()> {
        if !products.calls.iter().all(|call| self.plans.contains_key(&call.plan)) {
            return Ok(());
        }
        let bytes = product_rank::run(&self.plans, products, (&self.streams, on), &mut self.written)?;
        self.found[1].write_all(&bytes).unwrap();
        self.say(&format!("found {step} {}", bytes.len()));
        Ok(())
    }

    /// Makes calls on grids, and writes the memory of their operands.
    fn mixes(&mut self, step: usize, mixes: &Mixes, on: usize) -> Result<()> {
        if !mixes.calls.iter().all(|call| self.grids.contains_key(&call.grid)) {
            return Ok(());
        }
        let memory = (&mut self.written, &mut self.reached);
        let bytes = grid_rank::run(&self.grids, mixes, (&self.streams, on), memory)?;
        self.found[1].write_all(&bytes).unwrap();
        self.say(&format!("found {step} {}", bytes.len()));
        Ok(())
    }

    /// Opens a group as a coordinator, as one of its members.
    fn open(&mut self, group: usize, members: &[usize]) -> Result<()> {
        let Some(member) = members.iter().position(|rank| *rank == self.number) else { return Ok(()) };
        let mut config = GroupConfig::default();
        config.communicator = self::config(&self.program.settings);
        let bootstrap = self.meetings.meet(group, member, members.len());
        let coordinator = Coordinator::open(bootstrap, self.streams[0].device(), config)?;
        self.groups.insert(group, coordinator.local().clone());
        self.coordinators.insert(group, coordinator);
        Ok(())
    }

    /// Makes a call that fails on every rank, and writes the error of this rank.
    fn misrouted(&mut self, step: usize, asked: &Misrouted) -> Result<()> {
        let Some(communicator) = self.groups.get(&asked.group).cloned() else { return Ok(()) };
        let experts = communicator.experts(asked.layer.config())?;
        self.meet(&self.program.groups()[&asked.group]);
        let start = Instant::now();
        let here = Here { member: communicator.rank(), stream: &self.streams[0], file: &mut self.written };
        match misroute(&experts, asked, here) {
            Ok(()) => self.say(&format!("unaware {step}")),
            Err(error) => self.failed(step, &error, start.elapsed()),
        }
        Ok(())
    }

    fn step(&mut self, number: usize, step: &'a Step) -> Result<()> {
        match step {
            Step::Split { from, parts } => {
                let Some(parent) = self.groups.get(from) else { return Ok(()) };
                let place = |part: &(usize, Vec<usize>)| part.1.iter().position(|rank| *rank == self.number);
                let own = parts.iter().enumerate().find_map(|(color, part)| Some((color, part.0, place(part)?)));
                let (color, key) = own.map_or((None, 0), |(color, _, key)| (Some(color as u32), key as i32));
                if let Some((group, (_, number, _))) = parent.split(color, key)?.zip(own) {
                    self.groups.insert(number, group);
                }
            }
            Step::Bench { bench, group, dtype } => {
                let Some(communicator) = self.groups.get(group) else { return Ok(()) };
                let opened = typed!(dtype.parse::<Dtype>().unwrap(), open_bench(communicator))?;
                self.benches.insert(*bench, (Arc::new(opened), *group));
                (0..=WIDE).try_for_each(|buffer| self.fill(*bench, buffer, 0, LENGTH))?;
            }
            Step::Experts { experts, group, layer } => {
                let Some(communicator) = self.groups.get(group) else { return Ok(()) };
                let opened = communicator.experts(layer.config())?;
                self.experts.insert(*experts, OpenExperts { experts: opened, layer, group: *group });
            }
            Step::Without { lost, from, experts, group, layer } => {
                let Some(before) = self.experts.get(from) else { return Ok(()) };
                let members = &self.program.groups()[&before.group];
                let lost = members.iter().position(|rank| rank == lost).unwrap();
                let survivors = before.experts.without(&[lost])?;
                if survivors.lost != [lost] {
                    self.say(&format!("step {number}: rank {lost} is lost, and {:?} are said to be", survivors.lost));
                }
                let opened = survivors.experts;
                let communicator = opened.communicator().clone();
                self.groups.insert(*group, communicator);
                self.experts.insert(*experts, OpenExperts { experts: opened, layer, group: *group });
            }
            Step::Rounds { rounds, on } => self.rounds(number, rounds, on[self.number])?,
            Step::Plan { plan, group, asked } => {
                let Some(communicator) = self.groups.get(group) else { return Ok(()) };
                self.plans.insert(*plan, product_rank::Opened::new(communicator, *group, asked)?);
            }
            Step::Coordinator { group, members } => self.open(*group, members)?,
            Step::Grid { grid, group, shape } => {
                let Some(coordinator) = self.coordinators.get(group) else { return Ok(()) };
                self.grids.insert(*grid, grid_rank::Opened::new(coordinator, *group, shape)?);
            }
            Step::Mixes { mixes, on } => self.mixes(number, mixes, on[self.number])?,
            Step::Products { products, on } => self.products(number, products, on[self.number])?,
            Step::Objects(objects) => {
                let Some(communicator) = self.groups.get(&objects.group) else { return Ok(()) };
                let bytes = object_rank::run(objects, communicator, self.coordinators.get(&objects.group))?;
                self.found[1].write_all(&bytes).unwrap();
                self.say(&format!("found {number} {}", bytes.len()));
            }
            Step::Misrouted(asked) => self.misrouted(number, asked)?,
            Step::Write { bench, buffer, start, count, .. } => self.fill(*bench, *buffer, *start, *count)?,
            Step::Call { call, on } => self.call(call, on[self.number])?,
            Step::Interleaved { lanes, orders } => self.interleaved(lanes, &orders[self.number])?,
            Step::Capture { graph, calls, on } => {
                let captured = self.capture(calls, on[self.number])?;
                self.graphs.extend(captured.map(|captured| (*graph, captured)));
            }
            Step::Launch { graph, on } => {
                let Some(captured) = self.graphs.remove(graph) else { return Ok(()) };
                let on = on[self.number];
                captured.groups.iter().try_for_each(|(group, enqueues)| self.order(*group, on, !enqueues))?;
                captured.graph.launch(&self.streams[on])?;
                self.graphs.insert(*graph, captured);
            }
            Step::DropGraph { graph } => drop(self.graphs.remove(graph)),
            Step::Check { bench } => self.check(number, *bench)?,
            Step::Barrier { group } => self.groups.get(group).map_or(Ok(()), |group| group.group().barrier())?,
            Step::Late { rank, micros } if *rank == self.number => std::thread::sleep(Duration::from_micros(*micros)),
            Step::Late { .. } => {}
            Step::Close { group } => {
                self.close_grids(*group)?;
                let coordinator = self.coordinators.get(group).cloned();
                let communicator = self.leave(*group);
                match coordinator {
                    Some(coordinator) => coordinator.close()?,
                    None => communicator.map_or(Ok(()), Communicator::close)?,
                }
            }
            Step::Fault { group, culprit, fault, call } if self.groups.contains_key(group) => {
                let is_culprit = self.groups[group].rank() == *culprit;
                self.meet(&self.program.groups()[group]);
                match fault {
                    Fault::Depart if !is_culprit => self.check(number, call.bench)?,
                    _ => self.fault(number, *group, is_culprit.then_some(fault), call),
                }
            }
            Step::Fault { .. } => {}
        }
        Ok(())
    }

    /// Writes the contents of a bench when the work of its group is done.
    fn check(&mut self, step: usize, bench: usize) -> Result<()> {
        let Some((bench, group)) = self.bench(bench) else { return Ok(()) };
        let stream = self.stream(group);
        bench.communicator().synchronize(&stream)?;
        bench.communicator().check_guards()?;
        let bytes = bench.read(&stream)?;
        self.found[1].write_all(&bytes).unwrap();
        self.say(&format!("found {step} {}", bytes.len()));
        Ok(())
    }

    /// Drops the objects of a group, except the memory that peers may access.
    fn leave(&mut self, group: usize) -> Option<Communicator> {
        self.graphs.retain(|_, captured| !captured.groups.contains_key(&group));
        let reached = self.benches.values().filter(|(_, of)| *of == group).map(|(bench, _)| bench.reached());
        self.reached.extend(reached);
        self.benches.retain(|_, (_, of)| *of != group);
        self.experts.retain(|_, experts| experts.group != group);
        self.plans.retain(|_, plan| plan.group != group);
        self.grids.retain(|_, grid| grid.group != group);
        self.coordinators.remove(&group);
        self.groups.remove(&group)
    }

    /// Waits until the hosts of these ranks have come so far: none of them may meet a fault in an earlier step.
    fn meet(&self, ranks: &[usize]) {
        let arrived = |rank: usize| self.directory.join(format!("arrived.{rank}"));
        File::create(arrived(self.number)).unwrap();
        let start = Instant::now();
        while !ranks.iter().all(|rank| arrived(*rank).exists()) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The action of the culprit during a call of the other ranks, and the error of this rank.
    fn fault(&mut self, step: usize, group: usize, fault: Option<&Fault>, call: &Placed) {
        let start = Instant::now();
        let on = self.last.get(&group).map_or(0, |last| last.0);
        let called = match fault {
            Some(Fault::Abort) => {
                self.groups[&group].abort();
                Ok(())
            }
            Some(Fault::Leave | Fault::Depart) => {
                drop(self.leave(group));
                return self.say(&format!("left {step}"));
            }
            Some(Fault::Die) => {
                self.found.iter_mut().for_each(|file| file.flush().unwrap());
                kill_process(getpid(), Signal::KILL).map_err(|_| Error::Closed)
            }
            Some(Fault::Skip) => Ok(()),
            Some(Fault::Differ(other)) => self.call(other, on),
            None => self.call(call, on),
        };
        let (communicator, stream) = (self.groups[&group].clone(), self.streams[on].clone());
        let mut learnt = called;
        while learnt.is_ok() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
            learnt = communicator.synchronize(&stream);
        }
        match learnt {
            Ok(()) => self.say(&format!("unaware {step}")),
            Err(error) => self.failed(step, &error, start.elapsed()),
        }
    }
}
