//! A call of an operation, as it is passed to every backend.

use std::borrow::Cow;

use super::{Algorithm, AllReduceOptions, Codec, Kernels, NormRows, Op, PartCounts, RankMessage};
use crate::error::{Parameter, Result};
use crate::group::{BY_NCCL, EnqueuedCall as Noted, MAX_WORLD_SIZE};
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
    /// Whether the check of the call accepts operands that overlap.
    pub(crate) may_overlap: bool,
}

/// Further arguments of some forms of operations.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'v> {
    None,
    /// A dimension, and the shape of the input.
    Along(usize, &'v [usize]),
    /// Elements for each rank, and from each rank.
    Counts([&'v [usize]; 2]),
    /// Elements of each rank's part.
    Parts(PartCounts<'v>),
    Messages(&'v [RankMessage]),
    /// The residual, weight and outputs of a norm of the summed rows.
    Norm(&'v NormRows),
    /// One row of a norm that makes a call for each row. The number is the count of these calls.
    Row(&'v NormRows, usize),
    /// An all-reduce form that only symmetra kernels support.
    Apart(Apart),
    /// A reduce-scatter form that only symmetra kernels support: each part goes to this many consecutive ranks. The number
    /// must divide the world size.
    Shared(usize),
    /// A number from the caller that must be equal on all ranks.
    Alike(u64),
}

/// An all-reduce within each group of `ranks` consecutive ranks. Every rank receives the results of all these groups, in
/// rank order. The input consists of rows; the results of a row are adjacent in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Number of ranks whose inputs make up one result. Divides the world size.
    pub(crate) ranks: usize,
    /// Rows of the input.
    pub(crate) rows: usize,
}

// The methods of communicators are generic, so the caller's crate instantiates them and these functions should inline there.
impl<'v> Call<'v> {
    /// A call without operands. Its reduction is a sum, unless [`options`](Self::options) sets another.
    #[inline]
    pub(crate) fn new(op: &'static Op, dtype: Dtype) -> Self {
        let (options, numbers) = (AllReduceOptions::default(), Numbers::None);
        Self { op, dtype, options, parameter: 0, input: None, output: None, numbers, tag: 0, may_overlap: false }
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

    #[inline]
    pub(crate) fn may_overlap(self, may_overlap: bool) -> Self {
        Self { may_overlap, ..self }
    }

    /// The call with the number of the handle that makes it. 0 means that the handle has no number.
    #[inline]
    pub(crate) fn tagged(&self, tag: u64) -> Cow<'_, Self> {
        if tag == 0 { Cow::Borrowed(self) } else { Cow::Owned(Self { tag, ..self.clone() }) }
    }

    /// The reduction, equal on all ranks, if the operation reduces.
    pub(crate) fn reduction(&self) -> Option<Reduction> {
        (!self.op.reductions().is_empty()).then_some(self.options.reduction)
    }

    /// Whether the call names an all-reduce algorithm or a codec. Only symmetra kernels support these.
    pub(crate) fn names_way(&self) -> bool {
        let AllReduceOptions { algorithm, codec, .. } = self.options;
        let has_ways = matches!(self.op.kernels, Kernels::AllReduce) || matches!(self.numbers, Numbers::Norm(_));
        has_ways && (algorithm != Algorithm::Auto || codec != Codec::None)
    }

    /// The element type on which all ranks must agree. Bytes for a batch of messages, each of which has its own type.
    pub(crate) fn common_dtype(&self) -> Dtype {
        if matches!(self.numbers, Numbers::Messages(_)) { Dtype::U8 } else { self.dtype }
    }

    /// Input and output of a checked call of an operation in which every rank has both.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if one is missing, which the check of the call refuses.
    pub(crate) fn operands(&self) -> Result<[&View<'v>; 2]> {
        let input = self.input.as_ref().ok_or_else(|| self.missing("input"))?;
        Ok([input, self.output.as_ref().ok_or_else(|| self.missing("output"))?])
    }

    /// Elements of the operand that every rank has, equal on all ranks; the sum of the counts of parts; 0 if each rank
    /// has its own counts.
    pub(crate) fn elems(&self) -> usize {
        let everywhere = |extent: super::Extent| extent.size != super::Size::None && !extent.at_root;
        match self.numbers {
            Numbers::Counts(_) | Numbers::Messages(_) => 0,
            Numbers::Parts(counts) => counts.sum().unwrap_or(usize::MAX),
            _ if everywhere(self.op.input) => self.input.as_ref().map_or(0, |input| input.elems),
            _ => self.output.as_ref().map_or(0, |output| output.elems),
        }
    }

    /// An 8-bit value that distinguishes calls of equal operation, size and type: the root or the distance.
    pub(crate) fn told_apart(&self) -> u32 {
        if self.op.operation.parameter() == Parameter::None { 0 } else { self.parameter as u32 }
    }

    /// The bytes to record in the history for a call of `bytes`. For one row of a norm, the bytes of all rows.
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

    /// Further settings on which ranks must agree, as one number: the rows of a tensor that is cut along a dimension, a
    /// hash of a norm's settings or of the counts of parts, or a number from the caller. 1 for other calls and for calls
    /// without elements.
    #[inline]
    pub(crate) fn form(&self) -> u64 {
        match self.numbers {
            Numbers::Along(dim, shape) if self.elems() > 0 => shape.iter().take(dim).product::<usize>() as u64,
            Numbers::Norm(rows) | Numbers::Row(rows, _) if self.elems() > 0 => rows.form(self.output.is_some()),
            Numbers::Parts(counts) if self.elems() > 0 => counts.form(),
            Numbers::Shared(ranks) if self.elems() > 0 => ranks as u64,
            Numbers::Alike(number) if self.elems() > 0 => number,
            Numbers::Apart(Apart { ranks, rows }) if self.elems() > 0 => (ranks + rows * MAX_WORLD_SIZE) as u64,
            _ => 1,
        }
    }

    /// The history entry of a call that NCCL runs. Sizes on which only a pair of ranks agrees are left out.
    pub(crate) fn noted_by_nccl(&self) -> Noted {
        self.noted((self.elems() * self.common_dtype().bytes()) as u64, BY_NCCL)
    }
}
