//! Plans of a program: their GEMMs and collectives, their calls, and the outputs, by the reference. Factors
//! are small whole numbers, so every order of a sum has the same bits.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use reference::element::Real;
use reference::gemm::{GemmCase, shard, stored, summed};
use serde::{Deserialize, Serialize};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::fused::{FusedOptions, Way};
use symmetra::matmul::{F8, Numeric, Order, Product, Scaling};
use symmetra::{Dtype, Reduction};

use crate::program::GUARD;
use crate::support::data::mix;

/// Types of factors, the last three of 8 bits.
pub(crate) const NUMERICS: [Numeric; 7] = [
    Numeric::F32,
    Numeric::Tf32,
    Numeric::F16,
    Numeric::BF16,
    Numeric::F8 { left: F8::E4M3, right: F8::E4M3 },
    Numeric::F8 { left: F8::E4M3, right: F8::E5M2 },
    Numeric::F8 { left: F8::E5M2, right: F8::E4M3 },
];
/// The value of elements that no call accesses.
const FILL: u8 = 0xa5;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Combines {
    /// All-gather + matmul.
    Gather,
    /// Matmul + reduce-scatter.
    Scatter,
    /// Matmul + all-reduce.
    Reduce,
}

/// The request for a plan, with numbers of the headers or of the tables here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) combines: Combines,
    /// Of the tensor that is cut: the left factor that is gathered, or the result that is summed.
    pub(crate) shape: Vec<usize>,
    pub(crate) dim: usize,
    /// The length of each rank's part; for an all-reduce that of the whole.
    pub(crate) lens: Vec<usize>,
    /// Columns of the left factor.
    pub(crate) inner: usize,
    pub(crate) numeric: usize,
    pub(crate) scaling: usize,
    pub(crate) factors: Vec<Factor>,
    pub(crate) way: usize,
    pub(crate) average: bool,
}

/// A right factor of a plan, and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Factor {
    pub(crate) columns: usize,
    /// Whether the factor is stored by rows.
    pub(crate) by_rows: bool,
    /// Which of the types that a result may have.
    pub(crate) result: usize,
    pub(crate) bias: bool,
    pub(crate) relu: bool,
}

/// Calls on plans of one group, one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Products {
    pub(crate) calls: Vec<Multiply>,
    /// How often a graph of the calls runs, each time on other factors; 0: the calls are eager.
    pub(crate) replays: usize,
    /// Whether each eager call goes on the stream after that of the previous call.
    pub(crate) spread: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Multiply {
    pub(crate) plan: usize,
    pub(crate) seed: u64,
    /// Whether the left factor and the outputs are symmetric.
    pub(crate) symmetric: [bool; 2],
    /// Whether the caller has memory for the gathered factor.
    pub(crate) keeps: bool,
}

/// An operand: the elements that the call accesses, and the elements of its memory, as many on every rank.
pub(crate) struct Extent {
    pub(crate) dtype: Dtype,
    /// Whether the call is given the operand.
    pub(crate) is_given: bool,
    pub(crate) elems: usize,
    pub(crate) room: usize,
}

impl Products {
    /// How often the calls run.
    pub(crate) fn runs(&self) -> usize {
        self.replays.max(1)
    }

    /// The outputs of the calls on each rank of the group, in the order of runs and calls.
    pub(crate) fn expected(&self, plans: &BTreeMap<usize, (usize, &Asked)>) -> Vec<Vec<Left>> {
        let mut all = Vec::new();
        for run in 0..self.runs() {
            for call in &self.calls {
                let asked = plans[&call.plan].1;
                all.resize_with(asked.lens.len(), Vec::new);
                for (left, operands) in all.iter_mut().zip(asked.expected(call, run)) {
                    let words = |number| format!("operand {number} that call {} writes in run {run}", call.seed);
                    left.extend(operands.into_iter().enumerate().map(|(number, bytes)| (words(number), bytes)));
                }
            }
        }
        all
    }
}

/// An operand that a call writes: its name, and its bytes.
pub(crate) type Left = (String, Vec<u8>);

/// Describes the first difference in the output of a rank.
pub(crate) fn difference(expected: &[Left], found: &[u8]) -> Option<String> {
    let mut rest = found;
    for (words, bytes) in expected {
        let Some((own, behind)) = rest.split_at_checked(bytes.len()) else {
            return Some(format!("{words} has {} bytes instead of {}", rest.len(), bytes.len()));
        };
        if let Some(at) = own.iter().zip(bytes).position(|(found, expected)| found != expected) {
            return Some(format!("byte {at} of {words} is {:#x} instead of {:#x}", own[at], bytes[at]));
        }
        rest = behind;
    }
    (!rest.is_empty()).then(|| format!("{} bytes behind the last operand", rest.len()))
}

impl Asked {
    pub(crate) fn numeric(&self) -> Numeric {
        NUMERICS[self.numeric]
    }

    pub(crate) fn product(&self, factor: &Factor) -> Product {
        let mut product = Product::new(self.inner, factor.columns, self.numeric());
        product.scaling = [Scaling::None, Scaling::Tensor, Scaling::Rows][self.scaling];
        product.right = if factor.by_rows { Order::Rows } else { Order::Columns };
        product.result = self.numeric().results()[factor.result];
        (product.bias, product.relu) = (factor.bias, factor.relu);
        product
    }

    pub(crate) fn options(&self) -> FusedOptions {
        let mut options = FusedOptions::default();
        (options.way, options.reduction) = (Way::ALL[self.way], self.reduction());
        options.rows = self.is_uneven().then(|| self.lens.clone());
        options
    }

    pub(crate) fn reduction(&self) -> Reduction {
        if self.average { Reduction::Average } else { Reduction::Sum }
    }

    pub(crate) fn is_uneven(&self) -> bool {
        self.lens.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// The shape that a rank passes: of its shard, or of its left factor.
    pub(crate) fn asked_shape(&self, member: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        match (self.combines, shape.last_mut()) {
            (Combines::Gather, _) => shape[self.dim] = self.lens[member],
            (_, Some(last)) => *last = self.inner,
            _ => {}
        }
        shape
    }

    /// Rows of the whole.
    fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    fn cuts_rows(&self) -> bool {
        self.dim + 1 == self.shape.len()
    }

    /// A rank's part of a tensor of this shape, or of one with another or no last dimension.
    fn part<T: Copy>(&self, whole: &[T], member: usize) -> Vec<T> {
        shard(whole, &self.shape, self.dim, &self.lens, member)
    }

    /// The factors of a rank with small whole numbers, so that all sums are exact. Ranks have their right factors, and one left
    /// factor in a plan that gathers it.
    fn cases(&self, seed: u64, member: usize) -> Vec<GemmCase<f32, f32, f32>> {
        let number = |random: &mut Rng| if random.u8(0..3) == 0 { random.i32(-2..=2) as f32 } else { 0.0 };
        let draw = |product: Product, rows: usize, seed: u64| {
            GemmCase::<f32, f32, f32>::draw(product, rows, &mut Rng::with_seed(mix(seed)), number)
        };
        let own = seed ^ (1 + member as u64) << 32;
        let gathers = self.combines == Combines::Gather;
        let left = draw(self.product(&self.factors[0]), self.rows(), if gathers { seed } else { own });
        let cases = self.factors.iter().enumerate().map(|(number, factor)| {
            let mut case = draw(self.product(factor), 0, own + 1 + number as u64);
            (case.rows, case.left) = (self.rows(), left.left.clone());
            case.scales[0].clone_from(&left.scales[0]);
            // Products of scales are a half, one or two.
            case.scales[0].iter_mut().for_each(|scale| *scale = if *scale < 1.0 { 0.5 } else { 1.0 });
            case.scales[1].iter_mut().for_each(|scale| *scale = if *scale < 1.0 { 1.0 } else { 2.0 });
            if !gathers {
                // The bias is that of the sum, so every rank has the same.
                case.bias = draw(self.product(factor), 0, seed).bias;
            }
            case
        });
        cases.collect()
    }

    /// The operands of a rank before a call: the left factor and its scales; each right factor, its scales and its
    /// bias.
    fn read(&self, call: &Multiply, member: usize, run: usize) -> Vec<Vec<f32>> {
        let cases = self.cases(mix(call.seed) ^ run as u64, member);
        let scales = |scales: &[f32]| if self.scaling == 0 { Vec::new() } else { scales.to_vec() };
        let gathers = self.combines == Combines::Gather;
        let GemmCase { left, scales: [left_scales, _], .. } = &cases[0];
        let cuts_scales = gathers && self.scaling == 2 && !self.cuts_rows();
        let mut all = vec![
            if gathers { self.part(left, member) } else { left.clone() },
            scales(&if cuts_scales { self.part(left_scales, member) } else { left_scales.clone() }),
        ];
        for case in &cases {
            let Product { inner, columns, right, bias, .. } = case.product;
            all.push(stored(&case.right, right, [1, inner, columns]));
            all.push(scales(&case.scales[1]));
            all.push(if bias { case.bias.clone() } else { Vec::new() });
        }
        all
    }

    /// Types and elements of the operands of a rank, of which [`written`](Self::written) are written.
    fn operands(&self, call: &Multiply, member: usize) -> Vec<(Dtype, Option<usize>)> {
        let (rows, gathers) = (self.rows(), self.combines == Combines::Gather);
        let part = self.lens[member] * self.shape.iter().product::<usize>() / self.shape[self.dim];
        let own_rows = if gathers && !self.cuts_rows() { part / self.inner } else { rows };
        let [left, right] = self.numeric().dtypes();
        let scales = |rows: usize| (Dtype::F32, [None, Some(1), Some(rows)][self.scaling]);
        let mut all = vec![(left, Some(if gathers { part } else { rows * self.inner })), scales(own_rows)];
        for factor in &self.factors {
            let bias = factor.bias.then_some(factor.columns);
            let result = self.product(factor).result;
            all.extend([(right, Some(self.inner * factor.columns)), scales(factor.columns), (result, bias)]);
        }
        all.push((left, (gathers && call.keeps).then_some(rows * self.inner)));
        let scatters = self.combines == Combines::Scatter;
        let result =
            |factor: &Factor| (self.product(factor).result, Some(if scatters { part } else { rows * factor.columns }));
        all.extend(self.factors.iter().map(result));
        all
    }

    /// The operands of a call on a rank.
    pub(crate) fn extents(&self, call: &Multiply, member: usize) -> Vec<Extent> {
        let all: Vec<_> = (0..self.lens.len()).map(|member| self.operands(call, member)).collect();
        let elems = |member: usize, number: usize| all[member][number].1.unwrap_or(0);
        let most = |number: usize| (0..all.len()).map(|member| elems(member, number)).max().unwrap_or(0);
        let extent = |(number, &(dtype, given)): (usize, &(Dtype, Option<usize>))| Extent {
            dtype,
            is_given: given.is_some(),
            elems: elems(member, number),
            room: most(number) + GUARD,
        };
        all[member].iter().enumerate().map(extent).collect()
    }

    /// Which operands a call writes.
    pub(crate) fn written(&self) -> Range<usize> {
        let first = 2 + 3 * self.factors.len();
        first..first + 1 + self.factors.len()
    }

    /// All bytes that a rank writes into its operands before a call.
    pub(crate) fn contents(&self, call: &Multiply, member: usize, run: usize) -> Vec<u8> {
        let values = self.read(call, member, run).into_iter().chain(std::iter::repeat(Vec::new()));
        let extents = self.extents(call, member);
        extents.iter().zip(values).flat_map(|(extent, values)| encoded(extent, &values)).collect()
    }

    /// The outputs of a call on every rank: the gathered factor and the results.
    fn results(&self, call: &Multiply, run: usize) -> Vec<Vec<Vec<f32>>> {
        let world = self.lens.len();
        let seed = mix(call.seed) ^ run as u64;
        let narrow = |values: Vec<[f64; 2]>| values.into_iter().map(|[value, _]| value as f32).collect::<Vec<f32>>();
        if self.combines == Combines::Gather {
            let of_member = |member: usize| {
                let cases = self.cases(seed, member);
                let gathered = if call.keeps { cases[0].left.clone() } else { Vec::new() };
                [gathered].into_iter().chain(cases.iter().map(|case| narrow(case.expected()))).collect()
            };
            return (0..world).map(of_member).collect();
        }
        let sum = summed((0..world).map(|member| self.cases(seed, member).remove(0)), self.reduction());
        let sum: Vec<f32> = sum.into_iter().map(|value| value as f32).collect();
        let scatters = self.combines == Combines::Scatter;
        let part = |member: usize| if scatters { self.part(&sum, member) } else { sum.clone() };
        (0..world).map(|member| vec![Vec::new(), part(member)]).collect()
    }

    /// The bytes of the outputs of a call, by member and operand.
    fn expected(&self, call: &Multiply, run: usize) -> Vec<Vec<Vec<u8>>> {
        let results = self.results(call, run).into_iter().enumerate();
        let of_member = |(member, results): (usize, Vec<Vec<f32>>)| {
            let extents = &self.extents(call, member)[self.written()];
            extents.iter().zip(results).map(|(extent, values)| encoded(extent, &values)).collect()
        };
        results.map(of_member).collect()
    }
}

/// Values in the type of an operand, and the rest of the operand's memory.
fn encoded(extent: &Extent, values: &[f32]) -> Vec<u8> {
    fn of<T: Real>(values: &[f32]) -> Vec<u8> {
        // Sums begin with +0.
        bytemuck::cast_slice(&values.iter().map(|value| T::of_single(value + 0.0)).collect::<Vec<T>>()).to_vec()
    }
    let mut bytes = match extent.dtype {
        Dtype::F16 => of::<half::f16>(values),
        Dtype::BF16 => of::<half::bf16>(values),
        Dtype::F8E4M3 => of::<F8E4M3>(values),
        Dtype::F8E5M2 => of::<F8E5M2>(values),
        _ => of::<f32>(values),
    };
    bytes.resize(extent.room * extent.dtype.bytes(), FILL);
    bytes
}
