//! The contents of the buffers of every rank after a program, by the descriptions of the operations.

use std::collections::BTreeMap;

use reference::element::Real;
use symmetra::op::Source;
use symmetra::{Codec, Dtype};

use crate::experts::{Open, Rounds, contents, misrouted, survivors_lists};
use crate::norm::{KEPT, Norm, Place, WEIGHTS, WIDE, of_rows, parts};
use crate::program::{LENGTH, Placed, Program, Step, Through};
use crate::support::call::Call;
use crate::support::codec;
use crate::support::data::{Data, Sample, mix};

/// Buffers of the type of a bench: two symmetric, three plain, two plain ones with adopted memory, and two plain ones that hold the
/// same on every rank. Behind them is [`WIDE`].
pub(crate) const BUFFERS: usize = 9;

/// Random elements of a buffer of a rank.
fn elements<T: Sample>(seed: u64, buffer: usize, rank: usize, count: usize) -> Vec<T> {
    let rank = if buffer < KEPT { rank as u64 } else { 0 };
    let seed = mix(seed ^ rank << 48);
    (0..count).map(|index| T::sample(mix(seed ^ index as u64))).collect()
}

/// The seed of the first contents of a buffer.
fn first_seed(program: &Program, bench: usize, buffer: usize) -> u64 {
    mix(program.seed ^ mix((bench * (BUFFERS + 1) + buffer) as u64))
}

/// Calls a generic function with the element type of a number.
macro_rules! typed {
    ($dtype:expr, $function:ident $arguments:tt) => {
        match $dtype {
            Dtype::F32 => typed!(@ $function (f32) $arguments),
            Dtype::F64 => typed!(@ $function (f64) $arguments),
            Dtype::F16 => typed!(@ $function (half::f16) $arguments),
            Dtype::BF16 => typed!(@ $function (half::bf16) $arguments),
            Dtype::I8 => typed!(@ $function (i8) $arguments),
            Dtype::U8 => typed!(@ $function (u8) $arguments),
            Dtype::I32 => typed!(@ $function (i32) $arguments),
            Dtype::U32 => typed!(@ $function (u32) $arguments),
            Dtype::I64 => typed!(@ $function (i64) $arguments),
            Dtype::F8E4M3 => typed!(@ $function (symmetra::float8::F8E4M3) $arguments),
            Dtype::F8E5M2 => typed!(@ $function (symmetra::float8::F8E5M2) $arguments),
            _ => typed!(@ $function (u64) $arguments),
        }
    };
    (@ $function:ident ($type:ty) ($($argument:expr),*)) => { $function::<$type>($($argument),*) };
}
pub(crate) use typed;

fn bytes<T: Sample>(seed: u64, buffer: usize, rank: usize, count: usize) -> Vec<u8> {
    bytemuck::cast_slice(&elements::<T>(seed, buffer, rank, count)).to_vec()
}

/// Elements from bytes at any address.
pub(crate) fn values<T: Sample>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Everything that a rank writes into its buffers from the host in the course of a program, in this order.
pub(crate) fn written(program: &Program, rank: usize) -> Vec<u8> {
    let (benches, groups) = (program.benches(), program.groups());
    let (layers, groups_of_experts, plans) = (program.layers(), program.groups_of_experts(), program.plans());
    let grids = program.grids();
    let member = |group: usize| groups[&group].iter().position(|member| *member == rank);
    let mut all = Vec::new();
    for step in &program.steps {
        match step {
            Step::Rounds { rounds, .. } => {
                let Some(member) = member(groups_of_experts[&rounds.experts]) else { continue };
                for run in 0..rounds.runs() {
                    let of_round = |round| contents(layers[&rounds.experts], round, member, run);
                    all.extend(rounds.rounds.iter().flat_map(of_round).flat_map(|(_, bytes)| bytes));
                }
            }
            Step::Products { products, .. } => {
                for run in 0..products.runs() {
                    for call in &products.calls {
                        let (group, asked) = plans[&call.plan];
                        all.extend(member(group).into_iter().flat_map(|member| asked.contents(call, member, run)));
                    }
                }
            }
            Step::Mixes { mixes, .. } => {
                for run in 0..mixes.runs() {
                    for call in &mixes.calls {
                        let (group, shape) = grids[&call.grid];
                        all.extend(member(group).into_iter().flat_map(|member| call.before(shape, member, run)));
                    }
                }
            }
            // Ranks in Rust make their objects themselves.
            Step::Objects(objects) if program.settings.through == Through::Cpp => {
                let Some(member) = member(objects.group).filter(|member| objects.gives(*member)) else { continue };
                all.extend((0..objects.count).flat_map(|number| objects.given(member, number).bits()));
            }
            Step::Misrouted(asked) => {
                let own = member(asked.group).map(|member| misrouted(asked, member));
                all.extend(own.into_iter().flatten().flat_map(|(_, bytes)| bytes));
            }
            Step::Bench { bench, .. } if groups[&benches[bench].0].contains(&rank) => {
                let seed = |buffer| first_seed(program, *bench, buffer);
                let first = |buffer| typed!(benches[bench].1, bytes(seed(buffer), buffer, rank, LENGTH));
                all.extend((0..BUFFERS).flat_map(first));
                all.extend(bytes::<f32>(seed(WIDE), WIDE, rank, LENGTH));
            }
            Step::Write { bench, buffer, count, seed, .. } if groups[&benches[bench].0].contains(&rank) => {
                all.extend(typed!(benches[bench].1, bytes(*seed, *buffer, rank, *count)));
            }
            _ => {}
        }
    }
    all
}

/// The buffers of a bench on all ranks of its group.
trait Buffers {
    fn write(&mut self, buffer: usize, start: usize, count: usize, seed: u64);
    /// Makes the memory that a call has for itself.
    fn prepare(&mut self, call: &Placed);
    fn call(&mut self, call: &Placed);
    /// Describes the first difference in the output of a member.
    fn differs(&self, member: usize, found: &[u8]) -> Option<String>;
}

struct Typed<T> {
    /// The numbers of the ranks in the world.
    members: Vec<usize>,
    /// By member, then by buffer.
    held: Vec<[Vec<T>; BUFFERS]>,
    /// Weights in f32.
    wide: Vec<f32>,
    /// Values and scales of quantised rows, by the seed of the call, then by member.
    codes: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl<T: Sample> Buffers for Typed<T> {
    fn write(&mut self, buffer: usize, start: usize, count: usize, seed: u64) {
        for (member, rank) in self.members.iter().enumerate() {
            let elements = elements::<T>(seed, buffer, *rank, count);
            self.held[member][buffer][start..start + count].copy_from_slice(&elements);
        }
    }

    fn prepare(&mut self, placed: &Placed) {
        let world = self.members.len();
        let made = |norm: &Norm| Some(norm.narrow.as_ref()?.before(norm.normed_rows(placed, world), norm.width));
        if let Some(before) = placed.norm.as_ref().and_then(made) {
            self.codes.entry(placed.seed).or_insert_with(|| vec![before; world]);
        }
    }

    fn call(&mut self, placed: &Placed) {
        let (call, world) = (placed.call(), self.members.len());
        let (read, written) = (placed.buffer(usize::from(call.reads_output())), placed.buffer(1));
        let start = call.input_start(0);
        let reduced = (call.op.operation.reduces() || placed.norm.is_some()).then(|| {
            let elems = call.elems(call.op.input, 0, world);
            self.held.iter().map(|buffers| buffers[read][start..start + elems].to_vec()).collect()
        });
        let reduced = reduced.map(|inputs| reduction(&call, inputs));
        let reduce = |from: usize, count: usize| reduced.as_ref().unwrap()(from - start, count);
        if let Some(norm) = &placed.norm {
            let sum = norm.sum(placed.count, |from, count| reduce(start + from, count));
            return self.normed(placed, norm, &sum);
        }
        let mut effects = Vec::new();
        for member in 0..world {
            for stretch in call.effects(member, world) {
                let elements = match stretch.source {
                    Source::Rank(source) => self.held[source][read][stretch.start..][..stretch.count].to_vec(),
                    Source::Reduced => reduce(stretch.start, stretch.count),
                };
                effects.push((member, stretch.at, elements));
            }
        }
        for (member, at, elements) in effects {
            self.held[member][written][at..at + elements.len()].copy_from_slice(&elements);
        }
    }

    fn differs(&self, member: usize, found: &[u8]) -> Option<String> {
        let codes: Vec<u8> = self.codes.values().flat_map(|codes| codes[member].clone()).collect();
        let rest = [bytemuck::cast_slice(&self.wide), &codes].concat();
        let elements = BUFFERS * LENGTH * size_of::<T>();
        if found.len() != elements + rest.len() {
            return Some(format!("{} bytes instead of {}", found.len(), elements + rest.len()));
        }
        let (found, found_rest) = found.split_at(elements);
        self.other_element(member, found).or_else(|| self.other_byte(member, found_rest, &rest))
    }
}

impl<T: Sample> Typed<T> {
    /// Says the first difference of the elements of all buffers.
    fn other_element(&self, member: usize, found: &[u8]) -> Option<String> {
        let found: Vec<T> = values(found);
        let expected = self.held[member].iter().flatten();
        let same =
            |(found, expected): (&T, &T)| found.bits() == expected.bits() || (found.is_nan() && expected.is_nan());
        let wrong: Vec<usize> =
            found.iter().zip(expected).enumerate().filter(|(_, pair)| !same(*pair)).map(|(index, _)| index).collect();
        let (first, last) = (*wrong.first()?, *wrong.last()?);
        let (buffer, index) = (first / LENGTH, first % LENGTH);
        let (got, wanted) = (found[first], self.held[member][buffer][index]);
        let extent =
            format!("{} elements differ, the last is {} of buffer {}", wrong.len(), last % LENGTH, last / LENGTH);
        Some(format!("element {index} of buffer {buffer} is {got:?} instead of {wanted:?}; {extent}"))
    }

    /// Says the first difference of the bytes of weights in f32, values and scales.
    fn other_byte(&self, member: usize, found: &[u8], expected: &[u8]) -> Option<String> {
        let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
        let (got, wanted) = (found[wrong], expected[wrong]);
        let Some(mut byte) = wrong.checked_sub(LENGTH * size_of::<f32>()) else {
            return Some(format!("byte {wrong} of the weights in f32 is {got:#x} instead of {wanted:#x}"));
        };
        for (seed, codes) in &self.codes {
            match byte.checked_sub(codes[member].len()) {
                Some(rest) => byte = rest,
                None => {
                    return Some(format!("byte {byte} of the codes of call {seed} is {got:#x} instead of {wanted:#x}"));
                }
            }
        }
        None
    }

    /// Applies the outputs of a norm of these sums on every rank.
    fn normed(&mut self, placed: &Placed, norm: &Norm, sum: &[T]) {
        let (call, world, kept) = (placed.call(), self.members.len(), Norm::kept(placed.call().op));
        let parts = parts(call.op, world);
        let (share, rows) = (call.count / parts, norm.normed_rows(placed, world));
        let residual = norm.residual.map(|start| {
            let part = |member: usize| self.held[member][kept][start..start + share].to_vec();
            (0..parts).flat_map(part).collect::<Vec<T>>()
        });
        let effect = norm.effect(sum, residual.as_deref(), &self.held[0][WEIGHTS], &self.wide);
        for member in 0..world {
            let own = if parts == 1 { 0 } else { member * share };
            let x_place = norm.x.map(|place| match place {
                Place::Input => (placed.buffer(usize::from(call.reads_output())), call.input_start(member) + own),
                Place::Kept(start) => (kept, start),
            });
            // The rows of the output are all rows, or the rows of the share.
            let first = if rows * norm.hidden == call.count { 0 } else { own / norm.hidden };
            let normed = first * norm.width..(first + rows) * norm.width;
            let y_place = norm.has_output.then(|| (placed.buffer(1), call.output_start(member, world)));
            for (place, elements) in [(x_place, &effect.x[own..own + share]), (y_place, &effect.output[normed.clone()])]
            {
                let Some((buffer, at)) = place else { continue };
                self.held[member][buffer][at..at + elements.len()].copy_from_slice(elements);
            }
            if let Some(narrow) = &norm.narrow {
                self.codes.get_mut(&placed.seed).unwrap()[member] = narrow.after(&effect.y[normed], norm.width);
            }
        }
    }
}

/// The reduction of inputs, one a rank, of the elements of a message, by start and count.
fn reduction<T: Sample>(call: &Call, inputs: Vec<Vec<T>>) -> Box<dyn Fn(usize, usize) -> Vec<T>> {
    let options = call.options;
    if options.codec != Codec::None {
        let reduced = of_rows!(T, by_codec(call, &inputs));
        return Box::new(move |start, count| reduced[start..start + count].to_vec());
    }
    let data = Data::of(inputs);
    Box::new(move |start, count| data.expected(options.algorithm, options.reduction, start, count))
}

fn by_codec<T: Sample, R: Real>(call: &Call, inputs: &[Vec<T>]) -> Vec<T> {
    let inputs: Vec<&[R]> = inputs.iter().map(|input| bytemuck::cast_slice(input)).collect();
    bytemuck::cast_slice(&codec::reduced(&call.options, &inputs)).to_vec()
}

fn typed_buffers<T: Sample>(members: &[usize], wide: Vec<f32>) -> Box<dyn Buffers> {
    let held = members.iter().map(|_| [0; BUFFERS].map(|_| vec![T::sample(0); LENGTH])).collect();
    Box::new(Typed::<T> { members: members.to_vec(), held, wide, codes: BTreeMap::new() })
}

/// Follows a program.
pub(crate) struct Model<'a> {
    program: &'a Program,
    groups: BTreeMap<usize, Vec<usize>>,
    benches: BTreeMap<usize, (usize, Dtype)>,
    buffers: BTreeMap<usize, Box<dyn Buffers>>,
    graphs: BTreeMap<usize, &'a [Placed]>,
    experts: BTreeMap<usize, Open<'a>>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        let (groups, benches) = (program.groups(), program.benches());
        let (buffers, graphs, experts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { program, groups, benches, buffers, graphs, experts }
    }

    fn of(&mut self, call: &Placed) -> &mut dyn Buffers {
        &mut **self.buffers.get_mut(&call.bench).unwrap()
    }

    /// Takes the effect of the next step.
    pub(crate) fn step(&mut self, step: &'a Step) {
        match step {
            Step::Bench { bench, group, .. } => {
                let wide = elements(first_seed(self.program, *bench, WIDE), WIDE, 0, LENGTH);
                let mut buffers = typed!(self.benches[bench].1, typed_buffers(&self.groups[group], wide));
                (0..BUFFERS)
                    .for_each(|buffer| buffers.write(buffer, 0, LENGTH, first_seed(self.program, *bench, buffer)));
                self.buffers.insert(*bench, buffers);
            }
            Step::Write { bench, buffer, start, count, seed } => {
                self.buffers.get_mut(bench).unwrap().write(*buffer, *start, *count, *seed);
            }
            Step::Call { call, .. } => {
                self.of(call).prepare(call);
                self.of(call).call(call);
            }
            Step::Interleaved { lanes, .. } => {
                for call in lanes.iter().flat_map(|lane| &lane.calls) {
                    self.of(call).prepare(call);
                    self.of(call).call(call);
                }
            }
            Step::Capture { graph, calls, .. } => {
                calls.iter().for_each(|call| self.of(call).prepare(call));
                self.graphs.insert(*graph, calls);
            }
            Step::Experts { experts, layer, .. } => {
                self.experts.insert(*experts, Open { layer, lists: layer.lists.clone() });
            }
            Step::Without { lost, from, experts, layer, .. } => {
                let members = &self.groups[&self.program.groups_of_experts()[from]];
                let lost = members.iter().position(|rank| rank == lost).unwrap();
                let lists = survivors_lists(&self.experts[from].lists, lost, layer.experts);
                self.experts.insert(*experts, Open { layer, lists });
            }
            Step::Launch { graph, .. } => self.graphs[graph].iter().for_each(|call| self.of(call).call(call)),
            _ => {}
        }
    }

    /// Describes the first difference in the output of a rank of the group after calls on experts.
    pub(crate) fn differs_after(&self, rounds: &Rounds, member: usize, found: &[u8]) -> Option<String> {
        self.experts[&rounds.experts].differs(rounds, self.program.settings.exact, member, found)
    }

    /// Takes where calls leave experts.
    pub(crate) fn place(&mut self, rounds: &Rounds) {
        if let (Some(experts), Some(lists)) = (self.experts.get_mut(&rounds.experts), rounds.placed(rounds.runs() - 1))
        {
            experts.lists.clone_from(lists);
        }
    }

    /// The ranks that a bench belongs to.
    pub(crate) fn members(&self, bench: usize) -> &[usize] {
        &self.groups[&self.benches[&bench].0]
    }

    /// Describes the first difference in the output of a member of the bench's group.
    pub(crate) fn differs(&self, bench: usize, member: usize, found: &[u8]) -> Option<String> {
        self.buffers[&bench].differs(member, found)
    }
}
