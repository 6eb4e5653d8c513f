//! A random program from a seed: every operation by its description, in every form that the description admits.

mod experts;
mod grids;
mod objects;
mod products;
mod rows;

use symmetra::op::{ALL_REDUCE, BROADCAST, InPlace, OPERATIONS, Op, SEND_RECEIVE, Size};
use symmetra::{Algorithm, Codec, Dtype, Reduction, Transport};

use crate::experts::Layer;
use crate::grids::Shape;
use crate::model::BUFFERS;
use crate::norm::Norm;
use crate::program::{Fault, Form, Kind, Lane, Placed, Program, ROOM, STREAMS, Settings, Step, Through};
use crate::support::data::{Random, mix, shuffle};

/// Most steps of a program, without the steps at the end that report the contents of the benches.
const STEPS: usize = 45;
/// Types; the types of language models appear several times.
const TYPES: [Dtype; 14] = [
    Dtype::F32,
    Dtype::F32,
    Dtype::BF16,
    Dtype::BF16,
    Dtype::BF16,
    Dtype::I32,
    Dtype::U8,
    Dtype::I64,
    Dtype::F16,
    Dtype::F16,
    Dtype::F64,
    Dtype::U32,
    Dtype::F8E4M3,
    Dtype::F8E5M2,
];

struct Writer {
    random: Random,
    program: Program,
    /// Open groups, with their members.
    groups: Vec<(usize, Vec<usize>)>,
    benches: Vec<Bench>,
    experts: Vec<Opened>,
    plans: Vec<OpenPlan>,
    coordinators: Vec<usize>,
    grids: Vec<OpenGrid>,
    graphs: Vec<Graph>,
    /// The number of the next group, bench, plan or graph.
    next: usize,
}

#[derive(Clone, Copy)]
struct Bench {
    number: usize,
    group: usize,
    world: usize,
    dtype: Dtype,
}

/// Experts that are open, with their lists as they are now.
#[derive(Clone)]
struct Opened {
    number: usize,
    group: usize,
    layer: Layer,
}

#[derive(Clone, Copy)]
struct OpenPlan {
    number: usize,
    group: usize,
}

/// A grid of a group.
#[derive(Clone)]
struct OpenGrid {
    number: usize,
    group: usize,
    shape: Shape,
}

struct Graph {
    number: usize,
    groups: Vec<usize>,
}

/// The program of a seed.
pub(crate) fn program(seed: u64, through: Through) -> Program {
    let mut random = Random(mix(seed));
    let world = [2, 2, 2, 3, 3, 3, 4, 4, 4, 5][random.below(10)];
    let settings = settings(&mut random, through);
    let program = Program { seed, world, settings, steps: Vec::new() };
    let groups = vec![(0, (0..world).collect())];
    let mut writer = Writer {
        random,
        program,
        groups,
        benches: Vec::new(),
        experts: Vec::new(),
        plans: Vec::new(),
        coordinators: Vec::new(),
        grids: Vec::new(),
        graphs: Vec::new(),
        next: 1,
    };
    writer.write();
    writer.program
}

fn settings(random: &mut Random, through: Through) -> Settings {
    let mut bytes = |sizes: &[u64]| *random.pick(sizes) + 4 * random.below(200) as u64;
    let scratch = [
        bytes(&[1024, 4096, 256 << 10]),
        bytes(&[1024, 4096, 256 << 10]),
        bytes(&[1024, 4096, 1 << 20]),
        bytes(&[1024, 4096, 1 << 20]),
        bytes(&[4096, 65_536, 1 << 20]),
        bytes(&[1024, 4096, 64 << 10]),
    ];
    Settings {
        transport: random.pick(&Transport::ALL).name().to_owned(),
        check_calls: random.below(2) == 0,
        exact: random.below(2) == 0,
        scratch,
        steady_ms: 20_000,
        shape: *random.pick(&[[1, 1], [1, 1], [1, 1], [2, 3], [1, 2]]),
        through,
    }
}

impl Writer {
    fn write(&mut self) {
        self.bench(0);
        for _ in 0..5 + self.random.below(STEPS) {
            self.step();
        }
        if self.random.below(4) == 0 {
            self.fault();
        }
        let failed = self.program.failed();
        for bench in self.benches.clone().into_iter().filter(|bench| !failed.contains(&bench.group)) {
            self.push(Step::Check { bench: bench.number });
        }
    }

    fn push(&mut self, step: Step) {
        self.program.steps.push(step);
    }

    fn number(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn step(&mut self) {
        match self.random.below(134) {
            0..55 => self.eager(),
            55..62 => self.capture(),
            62..76 => self.launch(),
            76..80 => self.fresh(),
            80..84 => {
                let bench = self.any().number;
                self.push(Step::Check { bench });
            }
            84..88 if self.benches.len() < 5 => {
                let group = self.random.pick(&self.groups).0;
                self.bench(group);
            }
            88..91 if self.groups.len() < 5 => self.split(),
            91..95 => {
                let (rank, micros) = (self.random.below(self.program.world), self.random.below(4000) as u64);
                self.push(Step::Late { rank, micros });
            }
            95..97 => {
                let group = self.random.pick(&self.groups).0;
                self.push(Step::Barrier { group });
            }
            97..98 if !self.graphs.is_empty() => {
                let graph = self.graphs.swap_remove(self.random.below(self.graphs.len())).number;
                self.push(Step::DropGraph { graph });
            }
            98..99 if self.groups.len() > 1 => self.close(),
            99..111 => self.experts(),
            111..119 => self.products(),
            119..127 => self.grids(),
            127..131 => self.interleaved(),
            131..134 => self.objects(),
            _ => self.eager(),
        }
    }

    fn any(&mut self) -> Bench {
        *self.random.pick(&self.benches)
    }

    fn bench(&mut self, group: usize) -> Bench {
        let number = self.number();
        let dtype = *self.random.pick(&TYPES);
        let world = self.groups.iter().find(|(number, _)| *number == group).map_or(1, |(_, members)| members.len());
        let bench = Bench { number, group, world, dtype };
        self.benches.push(bench);
        self.push(Step::Bench { bench: number, group, dtype: dtype.name().to_owned() });
        bench
    }

    fn eager(&mut self) {
        let bench = self.any();
        let (call, on) = (self.call(bench, false), self.streams());
        self.push(Step::Call { call, on });
    }

    /// Calls of several groups, which each rank makes in its own order.
    fn interleaved(&mut self) {
        let mut groups: Vec<usize> = self.groups.iter().map(|(number, _)| *number).collect();
        shuffle(self.random.next(), &mut groups);
        groups.truncate(STREAMS);
        let mut lanes = Vec::new();
        for group in groups {
            let benches: Vec<Bench> = self.benches.iter().copied().filter(|bench| bench.group == group).collect();
            let count = if benches.is_empty() { 0 } else { 1 + self.random.below(4) };
            let calls: Vec<Placed> = (0..count)
                .map(|_| {
                    let bench = *self.random.pick(&benches);
                    self.call(bench, false)
                })
                .collect();
            lanes.extend((count > 0).then_some(Lane { calls, on: Vec::new() }));
        }
        let mut orders = Vec::new();
        for _ in 0..self.program.world {
            let mut streams: Vec<usize> = (0..STREAMS).collect();
            shuffle(self.random.next(), &mut streams);
            lanes.iter_mut().zip(streams).for_each(|(lane, stream)| lane.on.push(stream));
            orders.push((0..4 * lanes.len()).map(|_| self.random.below(lanes.len())).collect());
        }
        self.push(Step::Interleaved { lanes, orders });
    }

    /// A stream for each rank: often the same.
    fn streams(&mut self) -> Vec<usize> {
        let common = self.random.below(STREAMS);
        let same = self.random.below(3) > 0;
        (0..self.program.world).map(|_| if same { common } else { self.random.below(STREAMS) }).collect()
    }

    fn capture(&mut self) {
        let graph = self.number();
        let benches: Vec<Bench> = (0..1 + self.random.below(5)).map(|_| self.any()).collect();
        // A stage of a pipeline has messages alone.
        let is_stage = self.random.below(5) == 0;
        let call =
            |bench: &Bench| if is_stage { self.call_of(&SEND_RECEIVE, *bench, true) } else { self.call(*bench, true) };
        let calls = benches.iter().map(call).collect();
        let on = self.streams();
        self.graphs.push(Graph { number: graph, groups: benches.iter().map(|bench| bench.group).collect() });
        self.push(Step::Capture { graph, calls, on });
        self.launch();
    }

    fn launch(&mut self) {
        let Some(graph) = (!self.graphs.is_empty()).then(|| self.random.below(self.graphs.len())) else {
            return self.eager();
        };
        let (graph, on) = (self.graphs[graph].number, self.streams());
        self.push(Step::Launch { graph, on });
    }

    fn fresh(&mut self) {
        let bench = self.any().number;
        let (buffer, count) = (self.random.below(BUFFERS), 1 + self.random.below(ROOM));
        let (start, seed) = (self.random.below(ROOM + 1 - count), self.random.next());
        self.push(Step::Write { bench, buffer, start, count, seed });
    }

    fn split(&mut self) {
        let (from, mut members) = self.random.pick(&self.groups).clone();
        if self.random.below(2) == 0 {
            shuffle(self.random.next(), &mut members);
        }
        let cut = self.random.below(members.len() + 1);
        let mut parts = vec![members.split_off(cut), members];
        if self.random.below(4) == 0 {
            parts.pop();
        }
        let parts: Vec<_> =
            parts.into_iter().filter(|part| !part.is_empty()).map(|part| (self.number(), part)).collect();
        self.groups.extend(parts.iter().cloned());
        let groups: Vec<usize> = parts.iter().map(|(number, _)| *number).collect();
        self.push(Step::Split { from, parts });
        for group in groups {
            self.bench(group);
        }
    }

    fn close(&mut self) {
        let (group, _) = self.groups.swap_remove(1 + self.random.below(self.groups.len() - 1));
        self.benches.retain(|bench| bench.group != group);
        self.experts.retain(|experts| experts.group != group);
        self.plans.retain(|plan| plan.group != group);
        self.grids.retain(|grid| grid.group != group);
        self.coordinators.retain(|coordinator| *coordinator != group);
        self.graphs.retain(|graph| !graph.groups.contains(&group));
        self.push(Step::Close { group });
    }

    fn call(&mut self, bench: Bench, captured: bool) -> Placed {
        if Norm::takes(bench.dtype) && self.random.below(4) == 0 {
            return self.rows(bench, captured);
        }
        let op = if self.random.below(3) == 0 { &ALL_REDUCE } else { *self.random.pick(&OPERATIONS) };
        self.call_of(op, bench, captured)
    }

    fn call_of(&mut self, op: &Op, bench: Bench, captured: bool) -> Placed {
        let parts = [op.input, op.output].iter().any(|extent| !matches!(extent.size, Size::None | Size::One));
        let most = (ROOM - 16) / if parts { bench.world } else { 1 };
        let count = match self.random.below(10) {
            0..4 => self.random.below(40),
            4..8 => *self.random.pick(&[1, 7, 63, 64, 65, 128, 255, 256, 257, 516, 700]),
            _ => self.random.below(most + 1),
        };
        let count = count.min(most);
        let rows = [1, 1, 1, 2, 3, 4][self.random.below(6)];
        let along = op.along && rows > 1 && count.is_multiple_of(rows);
        let kind = self.kind(op, captured, count);
        let codec = if *op == ALL_REDUCE { self.codec(bench) } else { Codec::None };
        let reductions = Reduction::ALL.into_iter().filter(|reduction| codec.carries(bench.dtype, *reduction));
        let reduction = *self.random.pick(&reductions.collect::<Vec<_>>());
        let algorithm = match codec {
            Codec::None if *op == ALL_REDUCE => self.algorithm(bench, reduction, self.reached(kind, captured)),
            Codec::None => Algorithm::Auto,
            _ => *self.random.pick(&[Algorithm::Auto, Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel]),
        };
        let form = match self.random.below(4) {
            0 if *op == ALL_REDUCE && (!captured || kind == Kind::Symmetric) => Form::Bound,
            0 if op.low_contention && !along && kind != Kind::Adopted => Form::LowContention,
            0..3 if *op == SEND_RECEIVE => Form::Pairs,
            _ => Form::Ordinary,
        };
        let room = count * if parts { bench.world } else { 1 };
        let placed = Placed {
            bench: bench.number,
            op: op.name().to_owned(),
            count,
            rows: if along { rows } else { 1 },
            reduction: reduction.name().to_owned(),
            algorithm: algorithm.name().to_owned(),
            codec: codec.name().to_owned(),
            root: self.random.below(bench.world),
            kind,
            in_place: op.in_place != InPlace::Never
                && op.input.size != Size::None
                && !along
                && self.random.below(3) == 0,
            flip: self.random.below(2) == 0,
            form,
            from: self.start(room),
            to: self.start(room),
            seed: self.random.next(),
            norm: None,
        };
        if form == Form::Pairs { self.quiet(placed, bench.world) } else { placed }
    }

    /// The call between pairs, in half of the cases with other messages, so that some rank has none.
    fn quiet(&mut self, mut placed: Placed, world: usize) -> Placed {
        let is_quiet = |placed: &Placed| (0..world).any(|rank| placed.messages(rank, world).is_empty());
        let tries = if self.random.below(2) == 0 { 0 } else { 50 };
        for _ in 0..tries {
            if is_quiet(&placed) {
                break;
            }
            placed.seed = self.random.next();
        }
        placed
    }

    /// A codec for an all-reduce, where there is one for the type and a unit of it fits the scratch.
    fn codec(&mut self, bench: Bench) -> Codec {
        let settings = &self.program.settings;
        // The slots are divided among all ranks but the receiver, at lines of 8 packets. The largest unit has 34.
        let (world, slot) = (bench.world as u64, settings.scratch[3].div_ceil(16).div_ceil(bench.world as u64));
        let fits = slot * world / (world - 1).max(1) / 8 * 8 >= 34;
        let fits = fits && !settings.exact && Codec::Int8.carries(bench.dtype, Reduction::Sum);
        if fits && self.random.below(2) == 0 { *self.random.pick(&Codec::ALL) } else { Codec::None }
    }

    /// The start of an operand of `elems` elements: often an aligned address.
    fn start(&mut self, elems: usize) -> usize {
        let start = self.random.below(ROOM + 1 - elems);
        if self.random.below(2) == 0 { start / 16 * 16 } else { start }
    }

    /// Whether a graph makes plain memory addressable for peers: processes do not share it on the host device.
    fn registers(&self, captured: bool) -> bool {
        captured && self.program.settings.through == Through::Threads
    }

    fn kind(&mut self, op: &Op, captured: bool, count: usize) -> Kind {
        let direct = self.program.settings.transport() == Transport::Direct && *op != ALL_REDUCE;
        let plain = !direct || (self.registers(captured) && !op.tells_places());
        let parts = matches!(op.input.size, Size::OwnPart | Size::Parts);
        match self.random.below(10) {
            0..3 if plain => Kind::Plain,
            3 if plain => Kind::Lent,
            // All ranks adopt memory of one length, which parts of a count for each rank do not have.
            4 if count > 0 && !parts && !(direct && op.tells_places()) => Kind::Adopted,
            _ => Kind::Symmetric,
        }
    }

    /// Whether peers can address the operands of a call.
    fn reached(&self, kind: Kind, captured: bool) -> bool {
        matches!(kind, Kind::Symmetric | Kind::Adopted) || self.registers(captured)
    }

    fn algorithm(&mut self, bench: Bench, reduction: Reduction, reached: bool) -> Algorithm {
        let Bench { world, dtype, .. } = bench;
        let exact = |algorithm: Algorithm| algorithm.is_exact(dtype, world);
        let fits = |algorithm: &Algorithm| {
            algorithm.carries(dtype)
                && algorithm.reduces(dtype, reduction)
                && (reached || !algorithm.needs_reach())
                && (exact(*algorithm) || !self.program.settings.exact)
        };
        let mut fitting: Vec<Algorithm> = Algorithm::ALL.into_iter().filter(fits).collect();
        // The table may choose any: the bits of the result are promised if there is one possible order.
        if self.program.settings.exact || exact(Algorithm::Ring) {
            fitting.extend([Algorithm::Auto; 2]);
        }
        *self.random.pick(&fitting)
    }

    /// Adds a failure at the end of the program.
    fn fault(&mut self) {
        let groups: Vec<_> = self.groups.iter().filter(|(_, members)| members.len() > 1).cloned().collect();
        let (group, members) = self.random.pick(&groups).clone();
        if self.random.below(5) == 0 {
            let misrouted = self.misrouted(group, members.len());
            return self.push(Step::Misrouted(misrouted));
        }
        let bench = self.bench(group);
        let mut call = self.common(bench);
        let fault = match self.random.below(12) {
            0..3 => Fault::Abort,
            3 => Fault::Depart,
            4..6 => Fault::Leave,
            6..8 if self.program.settings.through != Through::Threads => Fault::Die,
            8 => Fault::Skip,
            _ => {
                let [other, of_all] = self.unlike(bench);
                call = of_all;
                Fault::Differ(Box::new(other))
            }
        };
        // A wait ends by its own deadline only in a group that has worked.
        let skips = matches!(fault, Fault::Skip);
        if skips {
            self.program.settings.steady_ms = 3000;
        }
        if skips || matches!(fault, Fault::Depart) || self.random.below(2) == 0 {
            let (on, seed) = (self.streams(), self.random.next());
            self.push(Step::Call { call: Placed { seed, ..call.clone() }, on });
            self.push(Step::Check { bench: bench.number });
            self.push(Step::Barrier { group });
        }
        let culprit = self.random.below(members.len());
        let dies = matches!(fault, Fault::Die);
        let layer = (dies && self.random.below(3) > 0).then(|| self.open_experts((group, members.len())));
        self.push(Step::Fault { group, culprit, fault, call });
        if let Some(opened) = layer {
            self.without(&opened, (culprit, members[culprit]));
        }
    }

    /// A call that ends on no rank without every other: a norm, or an all-reduce, which may have a codec. Without one its
    /// result has the same bits by any algorithm.
    fn common(&mut self, bench: Bench) -> Placed {
        if Norm::takes(bench.dtype) && self.random.below(3) == 0 {
            return self.common_rows(bench);
        }
        let codec = self.codec(bench);
        let mut call = self.call(bench, false);
        let count = 1 + self.random.below(300);
        call.op = ALL_REDUCE.name().to_owned();
        (call.count, call.rows, call.form, call.in_place) = (count, 1, Form::Ordinary, true);
        let reduction = if codec == Codec::None { Reduction::Max } else { Reduction::Sum };
        (call.algorithm, call.reduction) = (Algorithm::Auto.name().to_owned(), reduction.name().to_owned());
        (call.codec, call.norm) = (codec.name().to_owned(), None);
        if call.kind == Kind::Adopted {
            call.kind = Kind::Symmetric;
        }
        (call.from, call.to) = (0, 16 * self.random.below(ROOM / 32));
        call
    }

    /// Two calls that differ in one thing.
    fn unlike(&mut self, bench: Bench) -> [Placed; 2] {
        let mut calls = [0; 2].map(|_| self.common(bench));
        calls[1] = calls[0].clone();
        let broadcast = |call: &mut Placed, root: usize| {
            call.op = BROADCAST.name().to_owned();
            (call.root, call.in_place, call.kind) = (root % bench.world, false, Kind::Symmetric);
            (call.codec, call.norm) = (Codec::None.name().to_owned(), None);
        };
        let (choice, root) = (self.random.below(4), self.random.below(bench.world));
        let codecs = Codec::ALL.map(Codec::name);
        let other = &mut calls[1];
        if other.norm.is_some() {
            rows::differ(other, choice, bench.world);
            return calls;
        }
        match choice {
            0 | 1 if other.codec != codecs[0] => {
                let further: Vec<_> = codecs.into_iter().filter(|codec| *codec != other.codec).collect();
                other.codec = (*self.random.pick(&further)).to_owned();
            }
            0 => other.count += 1 + self.random.below(100),
            1 => other.reduction = Reduction::Sum.name().to_owned(),
            2 => broadcast(other, root),
            _ => calls.iter_mut().enumerate().for_each(|(number, call)| broadcast(call, root + number)),
        }
        calls
    }
}
