//! The operands of a dispatch and a combine, other than rows.

use std::fmt;
use std::marker::PhantomData;

use crate::memory::{Operand, WithView};
use crate::op::Held;
use crate::types::{Dtype, Element};

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// A type for expert ids: i32 or i64. Sealed.
pub trait ExpertId: Element + sealed::Sealed {}
impl ExpertId for i32 {}
impl ExpertId for i64 {}

/// The experts of each token of this rank.
#[must_use = "tokens are sent by a call that takes this"]
pub struct Routing<'op> {
    pub(crate) ids: Held,
    pub(crate) weights: Option<Held>,
    pub(crate) tokens: Option<Held>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Routing<'op> {
    /// The experts of each token: `[tokens, top_k]`. -1 means no expert. The same expert twice in a token makes two rows.
    pub fn new<I: ExpertId>(ids: impl Operand<'op, I>) -> Self {
        Self::of(Held::new(I::DTYPE, &ids.view_of()))
    }

    /// The experts of each token, of a type that is checked at run time.
    pub(crate) fn of(ids: Held) -> Self {
        Self { ids, weights: None, tokens: None, _operands: PhantomData }
    }

    /// The weight of each result in its token's sum: `[tokens, top_k]`. Without weights each weight is 1.
    pub fn weights(mut self, weights: impl Operand<'op, f32>) -> Self {
        self.weights = Some(Held::new(Dtype::F32, &weights.view_of()));
        self
    }

    /// The number of tokens that take part, as one element in device memory, which is read when the queue reaches the call. The
    /// other tokens go to no expert, and their rows of a combine's output are not modified.
    pub fn tokens(mut self, count: impl Operand<'op, u32>) -> Self {
        self.tokens = Some(Held::new(Dtype::U32, &count.view_of()));
        self
    }
}

/// The order of scales of received rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleOrder {
    /// `[rows, groups]`.
    Rows,
    /// `[groups, rows]`, where `rows` is the capacity of the operand; for padded rows `[local experts, groups, rows]`.
    Columns,
}

/// The rows of tokens that a dispatch sends, and their scales if they are quantised.
#[derive(Clone, Copy)]
pub(crate) struct TokenRows<'a> {
    pub(crate) rows: &'a Held,
    pub(crate) scales: Option<&'a Held>,
}

/// The outputs of a dispatch: received rows and optional metadata. Outputs that are not named are not written. Rows beyond the
/// last received row, and unused rows between aligned experts, are not modified.
#[must_use = "rows are received by a call that takes this"]
pub struct Received<'op> {
    pub(crate) rows: Held,
    pub(crate) scales: Option<(Held, ScaleOrder)>,
    pub(crate) counts: Option<Held>,
    pub(crate) offsets: Option<Held>,
    pub(crate) ids: Option<Held>,
    pub(crate) weights: Option<Held>,
    pub(crate) sources: Option<Held>,
    pub(crate) index: Option<Held>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Received<'op> {
    /// The rows, of the caller's type, or bytes for wire formats with quantised values or bytes. The operand must have room for
    /// [`Experts::capacity`](super::Experts::capacity) rows. For layouts by rank or by source with
    /// [`Method::Direct`](super::Method::Direct), symmetric memory is fastest: peers write there directly, so all ranks must
    /// pass the same buffer. By source, peers also write scales in [`ScaleOrder::Rows`], ids and weights, if all requested
    /// outputs are symmetric memory and sources are not requested. Then all ranks must request the same outputs in the same
    /// buffers; [`Config::check_calls`](crate::Config::check_calls) detects differences.
    pub fn rows<T: Element>(rows: impl Operand<'op, T>) -> Self {
        Self::of(Held::new(T::DTYPE, &rows.view_of()))
    }

    /// The rows, of a type that is checked at run time.
    pub(crate) fn of(rows: Held) -> Self {
        Self {
            rows,
            scales: None,
            counts: None,
            offsets: None,
            ids: None,
            weights: None,
            sources: None,
            index: None,
            _operands: PhantomData,
        }
    }

    /// The scales of quantised values: f32, or u8 for e8m0.
    pub fn scales<S: Element>(mut self, to: impl Operand<'op, S>, order: ScaleOrder) -> Self {
        self.scales = Some((Held::new(S::DTYPE, &to.view_of()), order));
        self
    }

    /// The number of pairs that each local expert received: `[local experts]`. Not by source.
    pub fn counts(mut self, to: impl Operand<'op, u32>) -> Self {
        self.counts = Some(Held::new(Dtype::U32, &to.view_of()));
        self
    }

    /// The first row of each local expert in the order of experts, and the end of the last expert's rows:
    /// `[local experts + 1]`. By rank, positions in the [`index`](Self::index). Not by source.
    pub fn offsets(mut self, to: impl Operand<'op, u32>) -> Self {
        self.offsets = Some(Held::new(Dtype::U32, &to.view_of()));
        self
    }

    /// The local expert of each row. By rank and by source, the local expert of each pair of the row's token, or -1 for an expert
    /// of another rank: `[rows, top_k]`. By source, also for rows that were not received, with -1 for all pairs.
    pub fn ids(mut self, to: impl Operand<'op, i32>) -> Self {
        self.ids = Some(Held::new(Dtype::I32, &to.view_of()));
        self
    }

    /// The weight of each row. By rank and by source, the weight of each pair of the row's token, or 0 for an expert of another
    /// rank: `[rows, top_k]`. By source, also for rows that were not received, with 0 for all pairs.
    pub fn weights(mut self, to: impl Operand<'op, f32>) -> Self {
        self.weights = Some(Held::new(Dtype::F32, &to.view_of()));
        self
    }

    /// Source rank and token of each row: `[rows, 2]`.
    pub fn sources(mut self, to: impl Operand<'op, u32>) -> Self {
        self.sources = Some(Held::new(Dtype::U32, &to.view_of()));
        self
    }

    /// By rank: the number of the row of each pair, in the order of local experts, for a GEMM that gathers rows:
    /// `[rows, top_k]`. [`offsets`](Self::offsets) contains the range of each expert.
    pub fn index(mut self, to: impl Operand<'op, u32>) -> Self {
        self.index = Some(Held::new(Dtype::U32, &to.view_of()));
        self
    }
}

/// The settings of a combine.
#[derive(Default)]
#[must_use = "settings take effect in a combine"]
pub struct Combine<'op> {
    pub(crate) unweighted: bool,
    pub(crate) add: Option<Held>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Combine<'op> {
    /// Sums results without weights, although the routing has weights. All ranks must pass the same setting.
    pub fn unweighted(mut self) -> Self {
        self.unweighted = true;
        self
    }

    /// Adds these rows, `[tokens, hidden]`, to the sums before they are rounded. They may be the memory of the output.
    #[expect(clippy::should_implement_trait, reason = "the sums are not those of two settings")]
    pub fn add<T: Element>(mut self, rows: impl Operand<'op, T>) -> Self {
        self.add = Some(Held::new(T::DTYPE, &rows.view_of()));
        self
    }
}

/// Prints the names of the operands that are given.
fn given(out: &mut fmt::Formatter<'_>, operands: &[(&str, bool)]) -> fmt::Result {
    let names: Vec<_> = operands.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    write!(out, "{}", names.join(", "))
}

impl fmt::Debug for Routing<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Routing({} ids of {}; ", self.ids.elems, self.ids.dtype)?;
        given(out, &[("weights", self.weights.is_some()), ("tokens", self.tokens.is_some())])?;
        out.write_str(")")
    }
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Received({} elements of {}; ", self.rows.elems, self.rows.dtype)?;
        let operands = [
            ("scales", self.scales.is_some()),
            ("counts", self.counts.is_some()),
            ("offsets", self.offsets.is_some()),
            ("ids", self.ids.is_some()),
            ("weights", self.weights.is_some()),
            ("sources", self.sources.is_some()),
            ("index", self.index.is_some()),
        ];
        given(out, &operands)?;
        out.write_str(")")
    }
}

impl fmt::Debug for Combine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Combine(")?;
        given(out, &[("unweighted", self.unweighted), ("add", self.add.is_some())])?;
        out.write_str(")")
    }
}
