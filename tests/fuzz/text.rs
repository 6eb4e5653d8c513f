//! A program as words, for `rank.cc`: everything that a rank there needs, without the descriptions of operations.

use std::fmt::{Display, Write};

use symmetra::Dtype;
use symmetra::matmul::Numeric;
use symmetra::op::{ALL_GATHER, Size};

use crate::experts::{Content, Layer, Lists, Round, contents, misrouted};
use crate::grids::Mix;
use crate::norm::{Norm, Place, parts};
use crate::objects::By;
use crate::products::{Asked, Multiply};
use crate::program::{Fault, Form, Kind, Message, Placed, Program, Step, turns};

struct Text<'a> {
    program: &'a Program,
    words: String,
}

/// The words of a program, one step a line.
pub(crate) fn text(program: &Program) -> String {
    let mut text = Text { program, words: String::new() };
    let settings = &program.settings;
    text.add([program.world, settings.transport() as usize, settings.check_calls.into(), settings.exact.into()]);
    text.add(settings.scratch);
    text.add([settings.steady_ms]);
    text.listed(&program.failed().into_iter().collect::<Vec<_>>());
    text.add([program.steps.len()]);
    for step in &program.steps {
        text.words.push('\n');
        text.step(step);
    }
    text.words
}

impl Text<'_> {
    fn add<T: Display>(&mut self, words: impl IntoIterator<Item = T>) {
        words.into_iter().for_each(|word| write!(self.words, "{word} ").unwrap());
    }

    /// The number of words, and the words.
    fn listed<T: Display>(&mut self, words: &[T]) {
        self.add([words.len()]);
        self.add(words);
    }

    fn named(&mut self, name: &str, numbers: &[usize]) {
        self.add([name]);
        self.add(numbers);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Split { from, parts } => {
                self.named("split", &[*from, parts.len()]);
                for (number, members) in parts {
                    self.add([number]);
                    self.listed(members);
                }
            }
            Step::Bench { bench, group, dtype } => {
                let dtype: Dtype = dtype.parse().unwrap();
                self.named("bench", &[*bench, *group, dtype as usize, dtype.bytes()]);
            }
            Step::Experts { experts, group, layer } => {
                self.named("experts", &[*experts, *group]);
                self.layer(layer);
            }
            Step::Without { lost, from, experts, group, .. } => {
                let members = &self.program.groups()[&self.program.groups_of_experts()[from]];
                let lost = members.iter().position(|rank| rank == lost).unwrap();
                self.named("without", &[lost, *from, *experts, *group]);
            }
            Step::Rounds { rounds, on } => {
                let layer = self.program.layers()[&rounds.experts];
                self.named("rounds", on);
                self.add([rounds.experts, rounds.together, rounds.replays]);
                let [dispatches, combines] = rounds.halves;
                let flags = [dispatches, combines, rounds.plans, rounds.again, rounds.reversed, rounds.unweighted];
                let flags = flags.into_iter().chain([rounds.counts]);
                self.add(flags.map(u8::from));
                self.add([u8::from(rounds.place.is_some())]);
                rounds.place.iter().for_each(|lists| self.lists(lists));
                self.add([rounds.rounds.len(), layer.lists.len()]);
                for round in &rounds.rounds {
                    let operands = |member| contents(layer, round, member, 0);
                    self.round(round, operands);
                }
            }
            Step::Plan { plan, group, asked } => {
                self.named("plan", &[*plan, *group]);
                self.plan(asked);
            }
            Step::Products { products, on } => {
                self.named("products", on);
                self.add([products.replays, usize::from(products.spread), products.calls.len()]);
                products.calls.iter().for_each(|call| self.multiply(call));
            }
            Step::Coordinator { group, members } => {
                self.named("coordinator", &[*group]);
                self.listed(members);
            }
            Step::Grid { grid, group, shape } => {
                self.named("grid", &[*grid, *group, shape.tensor, shape.data, shape.most_bytes]);
            }
            Step::Mixes { mixes, on } => {
                self.named("mixes", on);
                self.add([mixes.replays, usize::from(mixes.spread), mixes.calls.len()]);
                mixes.calls.iter().for_each(|call| self.mix(call));
            }
            Step::Objects(objects) => {
                let members = self.program.groups()[&objects.group].len();
                let by = [By::Broadcast, By::Gather].iter().position(|by| *by == objects.by).unwrap();
                self.named("objects", &[objects.group, by, objects.root, objects.count, members]);
                for member in 0..members {
                    let gives = objects.gives(member);
                    let len = |number: usize| if gives { objects.given(member, number).bits().len() } else { 0 };
                    self.add((0..objects.count).map(len));
                }
            }
            Step::Misrouted(asked) => {
                self.named("misrouted", &[asked.group]);
                self.listed(&self.program.groups()[&asked.group]);
                self.layer(&asked.layer);
                self.add([asked.round.tokens.len()]);
                self.round(&asked.round, |member| misrouted(asked, member));
            }
            Step::Write { bench, buffer, start, count, .. } => self.named("write", &[*bench, *buffer, *start, *count]),
            Step::Call { call, on } => {
                self.named("call", on);
                self.call(call);
            }
            Step::Interleaved { lanes, orders } => {
                self.named("interleaved", &[lanes.len()]);
                for lane in lanes {
                    self.add(&lane.on);
                    self.add([lane.calls.len()]);
                    lane.calls.iter().for_each(|call| self.call(call));
                }
                let counts: Vec<usize> = lanes.iter().map(|lane| lane.calls.len()).collect();
                orders.iter().for_each(|order| self.listed(&turns(order, &counts)));
            }
            Step::Capture { graph, calls, on } => {
                self.named("capture", on);
                self.add([*graph, calls.len()]);
                calls.iter().for_each(|call| self.call(call));
            }
            Step::Launch { graph, on } => {
                self.named("launch", on);
                self.add([*graph]);
            }
            Step::DropGraph { graph } => self.named("drop", &[*graph]),
            Step::Check { bench } => self.named("check", &[*bench]),
            Step::Barrier { group } => self.named("barrier", &[*group]),
            Step::Late { rank, micros } => self.named("late", &[*rank, *micros as usize]),
            Step::Close { group } => self.named("close", &[*group]),
            Step::Fault { group, culprit, fault, call } => {
                let (name, other) = match fault {
                    Fault::Abort => ("abort", call),
                    Fault::Leave => ("leave", call),
                    Fault::Depart => ("depart", call),
                    Fault::Die => ("die", call),
                    Fault::Skip => ("skip", call),
                    Fault::Differ(other) => ("differ", &**other),
                };
                self.named("fault", &[*group, *culprit]);
                self.add([name]);
                self.listed(&self.program.groups()[group]);
                self.call(call);
                self.call(other);
            }
        }
    }

    fn lists(&mut self, lists: &Lists) {
        self.add([lists.len()]);
        lists.iter().for_each(|list| self.listed(list));
    }

    fn layer(&mut self, layer: &Layer) {
        let Layer { experts, top_k, hidden, max_tokens, method, in_flight, .. } = *layer;
        self.add([experts, top_k, hidden, max_tokens, layer.dtype() as usize]);
        self.add(layer.wire);
        self.add(layer.layout);
        self.add([method, in_flight]);
        self.listed(&layer.exact.map(u8::from).into_iter().collect::<Vec<_>>());
        self.listed(&layer.blocks.into_iter().collect::<Vec<_>>());
        self.listed(&layer.capacity.into_iter().collect::<Vec<_>>());
        self.lists(&layer.lists);
    }

    fn plan(&mut self, asked: &Asked) {
        let [kind, left, right] = match asked.numeric() {
            Numeric::F32 => [0; 3],
            Numeric::Tf32 => [1, 0, 0],
            Numeric::F16 => [2, 0, 0],
            Numeric::F8 { left, right } => [4, left as usize, right as usize],
            _ => [3, 0, 0],
        };
        self.add([asked.combines as usize, kind, left, right, asked.inner, asked.scaling]);
        self.add([asked.way, asked.reduction() as usize, asked.dim]);
        self.listed(if asked.is_uneven() { &asked.lens } else { &[] });
        self.add([asked.lens.len()]);
        (0..asked.lens.len()).for_each(|member| self.listed(&asked.asked_shape(member)));
        self.add([asked.factors.len()]);
        for factor in &asked.factors {
            let product = asked.product(factor);
            self.add([factor.columns, product.right as usize, product.result as usize]);
            self.add([factor.bias, factor.relu].map(u8::from));
        }
    }

    /// The call, and the operands of each rank.
    fn multiply(&mut self, call: &Multiply) {
        let asked = self.program.plans()[&call.plan].1;
        self.add([call.plan]);
        self.add(call.symmetric.map(u8::from));
        self.add([asked.lens.len()]);
        for member in 0..asked.lens.len() {
            let extents = asked.extents(call, member);
            self.add([extents.len()]);
            extents.iter().for_each(|extent| {
                self.add([extent.dtype as usize, extent.dtype.bytes(), usize::from(extent.is_given)]);
                self.add([extent.elems, extent.room]);
            });
        }
    }

    /// The call, and the elements of input and output of each rank.
    fn mix(&mut self, call: &Mix) {
        let shape = self.program.grids()[&call.grid].1;
        self.add([call.grid, call.operation() as usize, call.mode() as usize, call.reduction() as usize]);
        self.add([call.dtype() as usize, call.dtype().bytes()]);
        let kind = [Kind::Symmetric, Kind::Plain, Kind::Adopted].iter().position(|kind| *kind == call.kind);
        self.add([kind.unwrap(), usize::from(call.in_place)]);
        self.listed(call.unequal_rows().unwrap_or_default());
        self.add(call.at);
        self.add(call.rooms(shape));
        self.add([shape.tensor * shape.data]);
        (0..shape.tensor * shape.data).for_each(|member| self.add(call.elems(shape, member)));
    }

    /// For each rank its options, and types and elements of its operands.
    fn round(&mut self, round: &Round, operands: impl Fn(usize) -> Vec<Content>) {
        for member in 0..round.tokens.len() {
            self.add(round.asks(member).map(u8::from));
            for (dtype, bytes) in operands(member) {
                self.add([dtype as usize, dtype.bytes(), bytes.len() / dtype.bytes(), bytes.len()]);
            }
        }
    }

    /// The call, and for each member of the group its operands: whether it has one, and buffer, start and elements.
    fn call(&mut self, placed: &Placed) {
        let (call, group) = (placed.call(), self.program.benches()[&placed.bench].0);
        let world = self.program.groups()[&group].len();
        let name = match placed.form {
            Form::LowContention => format!("low-contention-{}", placed.op),
            Form::Pairs => "pairs".to_owned(),
            _ if call.rows > 1 => format!("{}-along", placed.op),
            _ => placed.op.clone(),
        };
        let binds = if placed.form == Form::Bound { placed.seed } else { u64::MAX };
        let row = if *call.op == ALL_GATHER { call.count / call.rows } else { call.count * world / call.rows };
        self.add([name, placed.algorithm.clone(), placed.codec.clone(), binds.to_string()]);
        let flags = [placed.kind == Kind::Adopted, placed.kind == Kind::Symmetric].map(usize::from);
        self.add([placed.bench, call.options.reduction as usize, call.root, call.rows, row]);
        self.add(flags);
        for rank in 0..world {
            let elems = [call.op.input, call.op.output].map(|extent| call.elems(extent, rank, world));
            let read = placed.buffer(usize::from(call.reads_output()));
            let operands = [
                (call.op.input, read, call.input_start(rank), elems[0]),
                (call.op.output, placed.buffer(1), call.output_start(rank, world), placed.output_elems(elems[1])),
            ];
            for (extent, buffer, start, elems) in operands {
                let there = if call.has(extent, rank) { 2 } else { usize::from(extent.size != Size::None) };
                self.add([there, buffer, start, elems]);
            }
            let counts = call.op.input.size.is_counted();
            for sends in [true, false] {
                self.listed(&if counts { call.counts(rank, world, sends) } else { Vec::new() });
            }
        }
        let pairs = placed.form == Form::Pairs;
        for rank in 0..if pairs { world } else { 0 } {
            let messages = placed.messages(rank, world);
            self.add([usize::from(placed.is_slow(rank)), messages.len()]);
            for Message { receives, peer, start, count } in messages {
                self.add([usize::from(receives), peer, start, count]);
            }
        }
        self.norm(placed, world);
    }

    /// Whether there is a norm, and the norm.
    fn norm(&mut self, placed: &Placed, world: usize) {
        self.add([u8::from(placed.norm.is_some())]);
        let (call, Some(norm)) = (placed.call(), &placed.norm) else { return };
        let (kept, parts) = (Norm::kept(call.op), parts(call.op, world));
        let share = call.count / parts;
        self.add([norm.hidden, norm.width, norm.weight, kept, share]);
        self.add([norm.wide, norm.gemma, norm.layer.is_some(), norm.has_output].map(u8::from));
        self.listed(&norm.bias().iter().collect::<Vec<_>>());
        self.listed(&norm.residual.iter().collect::<Vec<_>>());
        let whole = parts == 1 && norm.x == Some(Place::Input);
        self.add([u8::from(whole)]);
        // Where x of the first rank is, and the distance from rank to rank.
        let read = placed.buffer(usize::from(call.reads_output()));
        self.listed(&match norm.x.filter(|_| !whole) {
            Some(Place::Input) => vec![read, call.input_start(0), share],
            Some(Place::Kept(start)) => vec![kept, start, 0],
            None => Vec::new(),
        });
        self.add([u8::from(norm.narrow.is_some())]);
        let Some(narrow) = &norm.narrow else { return };
        self.add([placed.seed, narrow.known.to_bits().into()]);
        self.add(narrow.numbers());
        self.add([narrow.at, usize::from(narrow.symmetric)]);
        let extents = narrow.extents(norm.normed_rows(placed, world), norm.width);
        extents.iter().for_each(|extent| self.add([extent.dtype as usize, extent.dtype.bytes(), extent.elems]));
    }
}
