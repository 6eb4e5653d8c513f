//! Experts of a program: their settings, their calls, and the outputs of a call, by the reference.

use reference::element::Real;
use reference::experts::arrivals::experts_of_ranks;
use reference::experts::dispatch::RoutedOutputs;
use serde::{Deserialize, Serialize};
use symmetra::experts::{ExpertConfig, Layout, Method, Placement, ScaleOrder, Scales, Wire};
use symmetra::{Determinism, Dtype};

use crate::expert_cases::{Inputs, before, dispatched, inputs_of, room, row_bytes, sums};
use crate::model::values;
use crate::support::Sample;
use crate::support::data::mix;

/// The experts of every rank of a group.
pub(crate) type Lists = Vec<Vec<usize>>;

/// Settings of experts, with the numbers of the headers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) experts: usize,
    pub(crate) top_k: usize,
    pub(crate) hidden: usize,
    pub(crate) max_tokens: usize,
    pub(crate) dtype: String,
    /// The wire, its scales, and bytes of a row.
    pub(crate) wire: [usize; 3],
    /// The layout, with its alignment or its rows of an expert; by rank and by source 1.
    pub(crate) layout: [usize; 2],
    pub(crate) method: usize,
    pub(crate) lists: Lists,
    /// The layer's setting for exact sums, if it has any.
    pub(crate) exact: Option<bool>,
    pub(crate) in_flight: usize,
    pub(crate) blocks: Option<u32>,
    pub(crate) capacity: Option<usize>,
}

/// Calls of experts, one after the other: a dispatch and a combine each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rounds {
    pub(crate) experts: usize,
    pub(crate) rounds: Vec<Round>,
    /// How many dispatches wait for their combines at once.
    pub(crate) together: usize,
    /// Whether dispatches are made in two halves, and combines.
    pub(crate) halves: [bool; 2],
    /// Whether the routing is sent first, and the rows after it.
    pub(crate) plans: bool,
    /// Whether other rows follow on the same routing.
    pub(crate) again: bool,
    /// Whether combines go in the opposite order of the dispatches.
    pub(crate) reversed: bool,
    pub(crate) unweighted: bool,
    /// Whether the host reads the counts of received rows, after all dispatches in flight; not in a graph.
    pub(crate) counts: bool,
    /// How often a graph of the calls runs, each time on other operands; 0: the calls are eager.
    pub(crate) replays: usize,
    /// Where experts are from these calls on, or from the second run of the graph on.
    pub(crate) place: Option<Lists>,
}

/// One dispatch and its combine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) seed: u64,
    /// Tokens of each rank.
    pub(crate) tokens: Vec<usize>,
}

/// Ids that no expert has, or more rows than the capacity: every rank learns of the error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Misrouted {
    pub(crate) group: usize,
    pub(crate) culprit: usize,
    pub(crate) layer: Layer,
    pub(crate) round: Round,
}

/// How many operands a call has, and which of them the call writes.
pub(crate) const OPERANDS: usize = 20;
pub(crate) const WRITTEN: std::ops::Range<usize> = 9..OPERANDS;

/// Type and bytes of an operand.
pub(crate) type Content = (Dtype, Vec<u8>);

/// Calls a generic function with a type of rows.
macro_rules! of_values {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            symmetra::Dtype::F16 => $function::<half::f16>($($argument),*),
            symmetra::Dtype::BF16 => $function::<half::bf16>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
    };
}
pub(crate) use of_values;

impl Layer {
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype.parse().unwrap()
    }

    /// The settings for the library.
    pub(crate) fn config(&self) -> ExpertConfig {
        let [wire, scales, bytes] = self.wire;
        let scales = [Scales::F32, Scales::PowersOfTwo, Scales::E8M0][scales];
        let [layout, number] = self.layout;
        let mut config = ExpertConfig::new(self.experts, self.top_k, self.hidden, self.max_tokens);
        config.dtype = self.dtype();
        config.wire = [Wire::Same, Wire::F8(scales), Wire::GivenF8, Wire::Bytes(bytes)][wire];
        let padded = Layout::Padded { rows: number };
        config.layout = [Layout::ByRank, Layout::ByExpert { align: number }, padded, Layout::BySource][layout];
        config.method = [Method::Auto, Method::Direct, Method::Gather, Method::Broadcast, Method::Packets][self.method];
        config.placement = Placement::Table(self.lists.clone());
        let mode = |exact| if exact { Determinism::Exact } else { Determinism::PerAlgorithm };
        config.determinism = self.exact.map(mode);
        (config.in_flight, config.blocks, config.capacity) = (self.in_flight, self.blocks, self.capacity);
        config
    }

    /// The settings for the oracle, which knows no group. `exact`: whether the group's sums are.
    fn form(&self, exact: bool, lists: &Lists) -> ExpertConfig {
        let mut form = Self { exact: Some(self.exact.unwrap_or(exact)), ..self.clone() }.config();
        form.placement = Placement::Table(lists.clone());
        form
    }
}

impl Rounds {
    /// How often operands are written.
    pub(crate) fn runs(&self) -> usize {
        self.replays.max(1)
    }

    /// The placement of experts in a run, if these calls place them.
    pub(crate) fn placed(&self, run: usize) -> Option<&Lists> {
        self.place.as_ref().filter(|_| run >= self.first_placed())
    }

    /// The run before which experts are placed.
    pub(crate) fn first_placed(&self) -> usize {
        usize::from(self.replays > 0)
    }
}

impl Round {
    /// Whether a rank passes weights, adds rows to its sums, and has scales in columns.
    pub(crate) fn asks(&self, member: usize) -> [bool; 3] {
        let bits = mix(self.seed ^ (member as u64) << 32);
        [bits & 3 != 0, bits & 4 == 0, bits & 8 == 0]
    }

    /// The inputs of a rank in a run of the calls.
    fn inputs<T: Real + Sample>(&self, form: &ExpertConfig, member: usize, run: usize) -> Inputs<T> {
        let (world, tokens) = (self.tokens.len(), self.tokens[member]);
        let seed = mix(self.seed ^ (run as u64) << 56);
        let mut inputs = inputs_of(form, member, [tokens, room(form, world, member)], seed);
        let [weighted, adds, columns] = self.asks(member);
        inputs.weights = match weighted {
            true => inputs.weights.or_else(|| Some(vec![0.25; inputs.ids.len()])),
            false => None,
        };
        inputs.adds = adds;
        inputs.order = if columns { ScaleOrder::Columns } else { ScaleOrder::Rows };
        inputs
    }

    /// Other rows of the same tokens.
    fn rows_again<T: Real + Sample>(&self, form: &ExpertConfig, inputs: &mut Inputs<T>, member: usize, run: usize) {
        let tokens = [self.tokens[member], 0];
        let other = inputs_of(form, member, tokens, mix(!self.seed ^ (run as u64) << 56));
        (inputs.rows, inputs.bytes) = (other.rows, other.bytes);
    }
}

fn bytes_of<E: bytemuck::NoUninit>(elements: &[E]) -> Vec<u8> {
    bytemuck::cast_slice(elements).to_vec()
}

/// The contents of the operands of a rank before a run of a round.
pub(crate) fn contents(layer: &Layer, round: &Round, member: usize, run: usize) -> Vec<Content> {
    of_values!(layer.dtype(), contents_of(layer, round, member, run))
}

fn contents_of<T: Real + Sample>(layer: &Layer, round: &Round, member: usize, run: usize) -> Vec<Content> {
    // The contents before a run depend neither on the placement, except for the number of rows, nor on the order of
    // sums.
    let form = layer.form(false, &layer.lists);
    let inputs: Inputs<T> = round.inputs(&form, member, run);
    let mut again: Inputs<T> = round.inputs(&form, member, run);
    round.rows_again(&form, &mut again, member, run);
    let (world, wide) = (round.tokens.len(), matches!(form.wire, Wire::Same | Wire::F8(_)));
    let found = before(&form, [room(&form, world, member), layer.lists[member].len()], &inputs);
    let rows = |inputs: &Inputs<T>| if wide { bytes_of(&inputs.rows) } else { Vec::new() };
    let codes = |inputs: &Inputs<T>| if wide { Vec::new() } else { inputs.bytes.clone() };
    let same = form.wire == Wire::Same;
    let (received, received_bytes) = if same { (found.rows, Vec::new()) } else { (Vec::new(), found.rows) };
    let [counts, offsets, sources, index] = found.numbers;
    vec![
        (Dtype::I64, bytes_of(&inputs.ids)),
        (Dtype::F32, bytes_of(inputs.weights.as_deref().unwrap_or_default())),
        (Dtype::U32, bytes_of(&[inputs.sent as u32])),
        (T::DTYPE, rows(&inputs)),
        (Dtype::U8, codes(&inputs)),
        (Dtype::F32, bytes_of(&inputs.given_scales)),
        (T::DTYPE, rows(&again)),
        (Dtype::U8, codes(&again)),
        (T::DTYPE, bytes_of(&inputs.results)),
        (T::DTYPE, received),
        (Dtype::U8, received_bytes),
        (Dtype::F32, bytes_of(&found.scales)),
        (Dtype::U8, found.exponents),
        (Dtype::U32, bytes_of(&counts)),
        (Dtype::U32, bytes_of(&offsets)),
        (Dtype::U32, bytes_of(&sources)),
        (Dtype::U32, bytes_of(&index)),
        (Dtype::I32, bytes_of(&found.ids)),
        (Dtype::F32, bytes_of(&found.weights)),
        (T::DTYPE, bytes_of(&inputs.before)),
    ]
}

/// Where experts are when a rank is lost: every other keeps its own, and those that no rank has any more go, in ascending order, to the
/// rank that has the fewest, the first of several.
pub(crate) fn survivors_lists(lists: &Lists, lost: usize, experts: usize) -> Lists {
    let mut kept = lists.clone();
    kept.remove(lost);
    let missing: Vec<usize> = (0..experts).filter(|expert| !kept.concat().contains(expert)).collect();
    for expert in missing {
        let fewest = (0..kept.len()).min_by_key(|rank| kept[*rank].len()).unwrap();
        kept[fewest].push(expert);
    }
    kept
}

/// The model's state of open experts.
#[derive(Clone)]
pub(crate) struct Open<'a> {
    pub(crate) layer: &'a Layer,
    pub(crate) lists: Lists,
}

impl Open<'_> {
    /// Describes the first difference in the output of a rank after calls, run by run and round by round. `exact`:
    /// whether the group's sums are exact.
    pub(crate) fn differs(&self, rounds: &Rounds, exact: bool, member: usize, found: &[u8]) -> Option<String> {
        let (mut rest, mut counts) = (found, Vec::new());
        for run in 0..rounds.runs() {
            let lists = rounds.placed(run).unwrap_or(&self.lists);
            for (number, round) in rounds.rounds.iter().enumerate() {
                let sizes: Vec<usize> =
                    contents(self.layer, round, member, run)[WRITTEN].iter().map(|(_, bytes)| bytes.len()).collect();
                let Some((own, behind)) = rest.split_at_checked(sizes.iter().sum()) else {
                    return Some(format!("{} bytes are too few", found.len()));
                };
                rest = behind;
                let form = self.layer.form(exact, lists);
                if rounds.counts {
                    // Counts on the device, which were compared as outputs of a call.
                    let at: usize = sizes[..COUNTS].iter().sum();
                    counts.extend_from_slice(&own[at..at + sizes[COUNTS]]);
                }
                let wrong = of_values!(self.layer.dtype(), wrong(rounds, &form, round, [member, run], own));
                if let Some(wrong) = wrong {
                    return Some(format!("run {run}, round {number}: {wrong}"));
                }
            }
        }
        (rest != counts).then(|| format!("the host counts {rest:?} instead of {counts:?}"))
    }
}

/// The number of the counts among the outputs of a call.
const COUNTS: usize = 4;
/// Names of the outputs of a call.
const NAMES: [&str; 11] = [
    "rows",
    "codes or bytes",
    "scales",
    "bytes of scales",
    "counts",
    "offsets",
    "sources",
    "index",
    "ids",
    "weights",
    "sums",
];

fn wrong<T: Real + Sample>(
    rounds: &Rounds,
    form: &ExpertConfig,
    round: &Round,
    [member, run]: [usize; 2],
    found: &[u8],
) -> Option<String> {
    let world = round.tokens.len();
    let mut all: Vec<Inputs<T>> = (0..world).map(|member| round.inputs(form, member, run)).collect();
    if rounds.again {
        let each = all.iter_mut().enumerate();
        each.for_each(|(member, inputs)| round.rows_again(form, inputs, member, run));
    }
    let local = experts_of_ranks(form, world)[member].len();
    let there = before(form, [room(form, world, member), local], &all[member]);
    let RoutedOutputs { rows, scales, exponents, numbers, ids, weights, .. } = dispatched(form, &all, member, there);
    if rounds.unweighted {
        all.iter_mut().for_each(|inputs| inputs.weights = None);
    }
    let sums = sums(form, &all, member);
    let same = form.wire == Wire::Same;
    let (rows, codes) = if same { (rows, Vec::new()) } else { (Vec::new(), rows) };
    let [counts, offsets, sources, index] = numbers.map(|numbers| bytes_of(&numbers));
    let parts = [
        rows,
        codes,
        bytes_of(&scales),
        exponents,
        counts,
        offsets,
        sources,
        index,
        bytes_of(&ids),
        bytes_of(&weights),
        bytes_of(&sums),
    ];
    let mut rest = found;
    for (number, (name, right)) in NAMES.iter().zip(&parts).enumerate() {
        let (own, behind) = rest.split_at(right.len());
        rest = behind;
        // Zeros of either sign are equal sums.
        let same = own == right || (number == NAMES.len() - 1 && values::<T>(own) == values::<T>(right));
        if !same {
            let at = own.iter().zip(right).position(|(found, right)| found != right).unwrap_or(0);
            let row = format!("rows of {} bytes, or {} elements", row_bytes(form), form.hidden);
            return Some(format!("byte {at} of the {name} is {:#x} instead of {:#x} ({row})", own[at], right[at]));
        }
    }
    None
}

/// The operands of a rank for a call that fails: all ids are expert 0, or the first id of the culprit is no expert's.
pub(crate) fn misrouted(asked: &Misrouted, member: usize) -> Vec<Content> {
    let Misrouted { culprit, layer, round, .. } = asked;
    let mut contents = contents(layer, round, member, 0);
    let ids: Vec<i64> = match layer.capacity {
        Some(_) => vec![0; round.tokens[member] * layer.top_k],
        None => {
            let mut ids = values::<i64>(&contents[0].1);
            ids.iter_mut().take(1).filter(|_| member == *culprit).for_each(|id| *id = layer.experts as i64);
            ids
        }
    };
    contents[0].1 = bytes_of(&ids);
    // All tokens take part.
    contents[2].1 = bytes_of(&[round.tokens[member] as u32]);
    contents
}

/// Types of rows.
pub(crate) const ROWS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];
