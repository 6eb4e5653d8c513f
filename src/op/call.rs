//! A call of an operation, as every backend takes it.

use std::borrow::Cow;

use super::{Algorithm, AllReduceOptions, Codec, Kernels, Message, NormRows, Op};
use crate::error::Parameter;
use crate::group::{BY_NCCL, Call as Noted, MAX_WORLD_SIZE};
use crate::memory::View;
use crate::types::{Dtype, Reduction};

/// An operation with the operands and settings of one call. Ranks are numbered in the group.
#[derive(Clone)]
pub(crate) struct Call<'v> {
    pub(crate) op: &'static Op,
    pub(crate) dtype: Dtype,
    pub(crate) options: AllReduceOptions,
    /// The root, or the distance between ranks: see [`Parameter`].
    pub(crate) parameter: usize,
    pub(crate) input: Option<View<'v>>,
    pub(crate) output: Option<View<'v>>,
    pub(crate) numbers: Numbers<'v>,
    /// The caller's number of the call, which ranks compare; 0 for none.
    pub(crate) tag: u64,
}

/// Further arguments of some forms of operations.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'v> {
    None,
    /// A dimension, and the shape of the input.
    Along(usize, &'v [usize]),
    /// Elements for each rank, and from each rank.
    Counts([&'v [usize]; 2]),
    Messages(&'v [Message]),
    /// What becomes of summed rows.
    Norm(&'v NormRows),
    /// One of so many rows of a norm, each of which is a call.
    Row(&'v NormRows, usize),
    /// Of an all-reduce, which own kernels alone make so.
    Apart(Apart),
    /// Of a reduce-scatter, which own kernels alone make so: so many consecutive ranks, which divide the group, get each part.
    Shared(usize),
    /// A number of the caller's that ranks must have alike.
    Alike(u64),
}

/// An all-reduce of a few consecutive ranks each, whose results all ranks get, in the order of ranks. The input is rows; the
/// results of a row lie side by side in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Ranks of a result, which divide the group.
    pub(crate) ranks: usize,
    /// Rows of the input.
    pub(crate) rows: usize,
}

// The methods of communicators are generic and so belong to the caller's crate: a call is made there, in place.
impl<'v> Call<'v> {
    /// A call without operands. Its reduction is a sum, unless [`options`](Self::options) sets another.
    #[inline]
    pub(crate) fn new(op: &'static Op, dtype: Dtype) -> Self {
        let (options, numbers) = (AllReduceOptions::default(), Numbers::None);
        Self { op, dtype, options, parameter: 0, input: None, output: None, numbers, tag: 0 }
    }

    #[inline]
    pub(crate) fn input(self, view: impl Into<Option<View<'v>>>) -> Self {
        Self { input: view.into(), ..self }
    }

    #[inline]
    pub(crate) fn output(self, view: impl Into<Option<View<'v>>>) -> Self {
        Self { output: view.into(), ..self }
    }

    #[inline]
    pub(crate) fn options(self, options: impl Into<AllReduceOptions>) -> Self {
        Self { options: options.into(), ..self }
    }

    #[inline]
    pub(crate) fn parameter(self, parameter: usize) -> Self {
        Self { parameter, ..self }
    }

    #[inline]
    pub(crate) fn numbers(self, numbers: Numbers<'v>) -> Self {
        Self { numbers, ..self }
    }

    /// The call with the number of the handle that makes it, unless that has none.
    #[inline]
    pub(crate) fn tagged(&self, tag: u64) -> Cow<'_, Self> {
        if tag == 0 { Cow::Borrowed(self) } else { Cow::Owned(Self { tag, ..self.clone() }) }
    }

    /// The reduction, equal on all ranks, if the operation reduces.
    pub(crate) fn reduction(&self) -> Option<Reduction> {
        (!self.op.reductions().is_empty()).then_some(self.options.reduction)
    }

    /// Whether the call names an all-reduce algorithm or a codec, which own kernels alone have.
    pub(crate) fn names_way(&self) -> bool {
        let AllReduceOptions { algorithm, codec, .. } = self.options;
        let has_ways = matches!(self.op.kernels, Kernels::AllReduce) || matches!(self.numbers, Numbers::Norm(_));
        has_ways && (algorithm != Algorithm::Auto || codec != Codec::None)
    }

    /// The type that all ranks have in common. Messages have types of their own.
    pub(crate) fn common_dtype(&self) -> Dtype {
        if matches!(self.numbers, Numbers::Messages(_)) { Dtype::U8 } else { self.dtype }
    }

    /// Elements of the operand that every rank has, equal on all ranks; 0 if each rank has its own counts.
    pub(crate) fn elems(&self) -> usize {
        let everywhere = |extent: super::Extent| extent.size != super::Size::None && !extent.at_root;
        match self.numbers {
            Numbers::Counts(_) | Numbers::Messages(_) => 0,
            _ if everywhere(self.op.input) => self.input.as_ref().map_or(0, |input| input.elems),
            _ => self.output.as_ref().map_or(0, |output| output.elems),
        }
    }

    /// An 8-bit value that tells calls of equal operation, size and type apart.
    pub(crate) fn told_apart(&self) -> u32 {
        if self.op.operation.parameter() == Parameter::None { 0 } else { self.parameter as u32 }
    }

    /// The bytes to note of a call of `bytes`: where the call is one row of a norm, those of all rows.
    pub(crate) fn noted_bytes(&self, bytes: u64) -> u64 {
        match self.numbers {
            Numbers::Row(_, rows) => bytes * rows as u64,
            _ => bytes,
        }
    }

    /// The history entry of the call, which ranks compare. `way` is the number of the transport.
    pub(crate) fn noted(&self, bytes: u64, way: u32) -> Noted {
        let reduction = self.reduction().unwrap_or(Reduction::Sum);
        let operation = self.op.operation.number();
        let bytes = self.noted_bytes(bytes);
        Noted::new(bytes, operation, self.common_dtype(), reduction, way, self.told_apart())
            .in_form(self.form())
            .tagged(self.tag)
    }

    /// What else ranks must do alike: the rows of a tensor that is cut along a dimension, or a number of a norm's
    /// settings, or a number of the caller's. 1 for other calls and calls without elements.
    #[inline]
    pub(crate) fn form(&self) -> u64 {
        match self.numbers {
            Numbers::Along(dim, shape) if self.elems() > 0 => shape.iter().take(dim).product::<usize>() as u64,
            Numbers::Norm(rows) | Numbers::Row(rows, _) if self.elems() > 0 => rows.form(self.output.is_some()),
            Numbers::Shared(ranks) if self.elems() > 0 => ranks as u64,
            Numbers::Alike(number) if self.elems() > 0 => number,
            Numbers::Apart(Apart { ranks, rows }) if self.elems() > 0 => (ranks + rows * MAX_WORLD_SIZE) as u64,
            _ => 1,
        }
    }

    /// The history entry of a call that NCCL runs, without what only a pair of ranks has in common.
    pub(crate) fn noted_by_nccl(&self) -> Noted {
        self.noted((self.elems() * self.common_dtype().bytes()) as u64, BY_NCCL)
    }
}
