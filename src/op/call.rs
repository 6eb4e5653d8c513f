//! A call of an operation, as every backend takes it.

use super::{Algorithm, AllReduceOptions, Message, Op};
use crate::error::Parameter;
use crate::group::{BY_NCCL, Call as Noted};
use crate::memory::View;
use crate::types::{Dtype, Reduction};

/// An operation with the operands and settings of one call. Ranks are numbered in the group.
pub(crate) struct Call<'v> {
    pub(crate) op: &'static Op,
    pub(crate) dtype: Dtype,
    pub(crate) options: AllReduceOptions,
    /// The root, or the distance between ranks: see [`Parameter`].
    pub(crate) parameter: usize,
    pub(crate) input: Option<View<'v>>,
    pub(crate) output: Option<View<'v>>,
    pub(crate) numbers: Numbers<'v>,
}

/// The numbers that some forms of operations take.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'v> {
    None,
    /// A dimension, and the shape of the input.
    Along(usize, &'v [usize]),
    /// Elements for each rank, and from each rank.
    Counts([&'v [usize]; 2]),
    Messages(&'v [Message]),
}

impl<'v> Call<'v> {
    /// A call without operands. Sums, unless [`options`](Self::options) says otherwise.
    pub(crate) fn new(op: &'static Op, dtype: Dtype) -> Self {
        let (options, numbers) = (AllReduceOptions::default(), Numbers::None);
        Self { op, dtype, options, parameter: 0, input: None, output: None, numbers }
    }

    pub(crate) fn input(self, view: impl Into<Option<View<'v>>>) -> Self {
        Self { input: view.into(), ..self }
    }

    pub(crate) fn output(self, view: impl Into<Option<View<'v>>>) -> Self {
        Self { output: view.into(), ..self }
    }

    pub(crate) fn options(self, options: impl Into<AllReduceOptions>) -> Self {
        Self { options: options.into(), ..self }
    }

    pub(crate) fn parameter(self, parameter: usize) -> Self {
        Self { parameter, ..self }
    }

    pub(crate) fn numbers(self, numbers: Numbers<'v>) -> Self {
        Self { numbers, ..self }
    }

    /// What ranks must reduce alike, where the operation reduces.
    pub(crate) fn reduction(&self) -> Option<Reduction> {
        self.op.operation.reduces().then_some(self.options.reduction)
    }

    /// Whether the call names an all-reduce algorithm, which own kernels alone have.
    pub(crate) fn names_algorithm(&self) -> bool {
        self.options.algorithm != Algorithm::Auto
    }

    /// The type that all ranks have in common. Messages have types of their own.
    pub(crate) fn common_dtype(&self) -> Dtype {
        if matches!(self.numbers, Numbers::Messages(_)) { Dtype::U8 } else { self.dtype }
    }

    /// Elements of the operand that every rank has, equally many on all ranks; 0 where each rank has its own counts.
    pub(crate) fn elems(&self) -> usize {
        let everywhere = |extent: super::Extent| extent.size != super::Size::None && !extent.at_root;
        match self.numbers {
            Numbers::Counts(_) | Numbers::Messages(_) => 0,
            _ if everywhere(self.op.input) => self.input.as_ref().map_or(0, |input| input.elems),
            _ => self.output.as_ref().map_or(0, |output| output.elems),
        }
    }

    /// What beside sizes and types tells calls of the operation apart, in 8 bits.
    pub(crate) fn told_apart(&self) -> u32 {
        if self.op.operation.parameter() == Parameter::None { 0 } else { self.parameter as u32 }
    }

    /// What the history of the group keeps of the call, and what ranks compare, where the call moves its bytes in
    /// the way of number `way`.
    pub(crate) fn noted(&self, bytes: u64, way: u32) -> Noted {
        let reduction = self.reduction().unwrap_or(Reduction::Sum);
        let operation = self.op.operation.number();
        Noted::new(bytes, operation, self.common_dtype(), reduction, way, self.told_apart()).in_rows(self.rows())
    }

    /// Rows of a tensor that is cut along a dimension; 1 where there are none, or no elements.
    pub(crate) fn rows(&self) -> u64 {
        match self.numbers {
            Numbers::Along(dim, shape) if self.elems() > 0 => shape.iter().take(dim).product::<usize>() as u64,
            _ => 1,
        }
    }

    /// What the history of the group keeps of a call that NCCL runs. What only the ranks of a pair have in common is
    /// left out.
    pub(crate) fn noted_by_nccl(&self) -> Noted {
        self.noted((self.elems() * self.common_dtype().bytes()) as u64, BY_NCCL)
    }
}
