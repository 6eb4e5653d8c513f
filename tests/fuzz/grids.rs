//! Grids of a program: their calls, and the outputs of a call, stated from the table of operations. Elements are small
//! whole numbers, so every order of a sum has the same bits.

use std::collections::BTreeMap;

use reference::mesh::MeshCall;
use serde::{Deserialize, Serialize};
use symmetra::mixed::{MixedConfig, MixedMode, MixedOperation};
use symmetra::{Dtype, Reduction};

use crate::model::typed;
use crate::products::Left;
use crate::program::{GUARD, Kind};
use crate::support::data::{Random, Sample, mix};

/// The value of elements that no call accesses.
const FILL: u8 = 0xa5;

/// A grid of the ranks of one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) tensor: usize,
    pub(crate) data: usize,
    pub(crate) most_bytes: usize,
}

/// Calls on grids of one group, one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mixes {
    pub(crate) calls: Vec<Mix>,
    /// How often a graph of the calls runs, each time on other elements; 0: the calls are eager.
    pub(crate) replays: usize,
    /// Whether each eager call goes on the stream after that of the previous call.
    pub(crate) spread: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mix {
    pub(crate) grid: usize,
    pub(crate) operation: String,
    pub(crate) mode: String,
    pub(crate) dtype: String,
    pub(crate) reduction: String,
    /// Elements of `x`, or of the slice, of each data rank.
    pub(crate) rows: Vec<usize>,
    pub(crate) kind: Kind,
    /// Whether the output is the input.
    pub(crate) in_place: bool,
    /// First elements of input and output in their memory.
    pub(crate) at: [usize; 2],
    pub(crate) seed: u64,
}

impl Shape {
    pub(crate) fn config(&self) -> MixedConfig {
        let mut config = MixedConfig::default();
        (config.grid.local_tensor, config.grid.local_data) = (Some(self.tensor), Some(self.data));
        config.most_bytes = self.most_bytes;
        config
    }

    fn world(&self) -> usize {
        self.tensor * self.data
    }

    /// The data rank of each rank: tensor ranks are numbered first.
    fn data_ranks(&self) -> Vec<usize> {
        (0..self.world()).map(|member| member / self.tensor).collect()
    }
}

impl Mixes {
    /// How often operands are written.
    pub(crate) fn runs(&self) -> usize {
        self.replays.max(1)
    }

    /// The outputs of the calls on each rank of the group, in the order of runs and calls.
    pub(crate) fn expected(&self, grids: &BTreeMap<usize, (usize, &Shape)>) -> Vec<Vec<Left>> {
        let world = grids[&self.calls[0].grid].1.world();
        let mut all = vec![Vec::new(); world];
        for run in 0..self.runs() {
            for call in &self.calls {
                let shape = grids[&call.grid].1;
                for (member, left) in all.iter_mut().enumerate() {
                    let words = |what| {
                        format!("the {what} of {} by {}, call {}, in run {run}", call.operation, call.mode, call.seed)
                    };
                    let [input, output] = call.after(shape, member, run);
                    left.push((words("input"), input));
                    left.push((words("output"), output));
                }
            }
        }
        all
    }
}

impl Mix {
    pub(crate) fn operation(&self) -> MixedOperation {
        self.operation.parse().unwrap()
    }

    pub(crate) fn mode(&self) -> MixedMode {
        self.mode.parse().unwrap()
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype.parse().unwrap()
    }

    pub(crate) fn reduction(&self) -> Reduction {
        self.reduction.parse().unwrap()
    }

    /// The elements of all data ranks, where these have unequally many.
    pub(crate) fn unequal_rows(&self) -> Option<&[usize]> {
        self.rows.iter().any(|rows| *rows != self.rows[0]).then_some(&self.rows)
    }

    /// Elements of input and output of a rank.
    pub(crate) fn elems(&self, shape: &Shape, member: usize) -> [usize; 2] {
        self.call(&shape.data_ranks()).elems(member)
    }

    fn call<'a>(&'a self, data_ranks: &'a [usize]) -> MeshCall<'a> {
        MeshCall { operation: self.operation(), reduction: self.reduction(), rows: &self.rows, data_ranks }
    }

    /// Elements of the memory of input and output, as many on every rank. An output in place has no memory.
    pub(crate) fn rooms(&self, shape: &Shape) -> [usize; 2] {
        let most = |which: usize| (0..shape.world()).map(|member| self.elems(shape, member)[which]).max().unwrap_or(0);
        let room = |which: usize| self.at[which] + most(which) + GUARD;
        [room(0), if self.in_place { 0 } else { room(1) }]
    }

    /// The input of a rank.
    fn input(&self, shape: &Shape, member: usize, run: usize) -> Vec<i64> {
        let random = &mut Random(mix(self.seed ^ (run as u64) << 40 ^ (member as u64) << 56));
        let dtype = self.dtype();
        let most = if dtype.is_float() && dtype.bytes() == 1 { 1 } else { 3 };
        let signed = !matches!(dtype, Dtype::U8 | Dtype::U32 | Dtype::U64);
        let mut value = || {
            let value = match self.reduction() {
                Reduction::Product => [-1, 1, 2][random.below(3)],
                // Averages of multiples of the world size are exact.
                Reduction::Average => (random.below(2 * most + 1) as i64 - most as i64) * shape.world() as i64,
                _ => random.below(2 * most + 1) as i64 - most as i64,
            };
            if signed { value } else { value.abs() }
        };
        (0..self.elems(shape, member)[0]).map(|_| value()).collect()
    }

    /// The output of a rank.
    fn output(&self, shape: &Shape, member: usize, run: usize) -> Vec<i64> {
        let inputs: Vec<Vec<i64>> = (0..shape.world()).map(|member| self.input(shape, member, run)).collect();
        self.call(&shape.data_ranks()).output(&inputs, member)
    }

    /// Memory of an operand with these values.
    fn memory(&self, shape: &Shape, which: usize, values: &[i64]) -> Vec<u8> {
        let (dtype, room) = (self.dtype(), self.rooms(shape)[which]);
        let mut bytes = vec![FILL; room * dtype.bytes()];
        if room > 0 {
            let values = typed!(dtype, encoded(values));
            bytes[self.at[which] * dtype.bytes()..][..values.len()].copy_from_slice(&values);
        }
        bytes
    }

    /// All bytes that a rank writes into its operands before a call.
    pub(crate) fn before(&self, shape: &Shape, member: usize, run: usize) -> Vec<u8> {
        let input = self.memory(shape, 0, &self.input(shape, member, run));
        [input, self.memory(shape, 1, &[])].concat()
    }

    /// The bytes of input and output of a rank after a call.
    fn after(&self, shape: &Shape, member: usize, run: usize) -> [Vec<u8>; 2] {
        let output = self.output(shape, member, run);
        match self.in_place {
            true => [self.memory(shape, 0, &output), Vec::new()],
            false => [self.memory(shape, 0, &self.input(shape, member, run)), self.memory(shape, 1, &output)],
        }
    }
}

fn encoded<T: Sample>(values: &[i64]) -> Vec<u8> {
    bytemuck::cast_slice(&values.iter().map(|value| T::whole(*value)).collect::<Vec<T>>()).to_vec()
}
