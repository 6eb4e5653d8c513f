//! Tensor parallel layers. Each loads the part of its weight that belongs to this rank from a
//! [`ShardedVarBuilder`](candle_nn::var_builder::ShardedVarBuilder), and makes the collectives of its forward pass.
//!
//! | layer | weight of a rank | forward pass |
//! |---|---|---|
//! | [`ColumnParallel`] | rows of `weight`, a part of `bias` | product |
//! | [`MergedColumnParallel`] | rows of several weights | one product for all of them |
//! | [`RowParallel`] | columns of `weight`, the whole `bias` | product, all-reduce, bias |
//! | [`RowParallelNorm`] | as `RowParallel`, and the weight of the next norm | product, all-reduce, residual and norm |
//! | [`VocabEmbedding`] | rows of the vocabulary | rows of this rank's tokens, all-reduce |
//! | [`Head`] | rows of the vocabulary | product, all-gather of the logits |
//!
//! A weight is `[outputs, inputs]`, as in candle's [`Linear`](candle_nn::Linear). A layer has a bias if the checkpoint has a
//! tensor `bias` next to `weight`. A layer of a group of one rank loads whole weights and makes no collective.
//!
//! The MLP of a decoder layer, divided among the ranks ([`Heads`] divides the attention):
//! ```
//! use candle_core::{Module, Result, Tensor};
//! use candle_nn::var_builder::ShardedVarBuilder;
//! use symmetra_candle::Group;
//! use symmetra_candle::layers::{MergedColumnParallel, Piece, RowParallel};
//!
//! struct Mlp {
//!     gate_up: MergedColumnParallel,
//!     down: RowParallel,
//! }
//!
//! impl Mlp {
//!     fn load(hidden: usize, inner: usize, vb: ShardedVarBuilder, group: &Group) -> Result<Self> {
//!         let pieces = [Piece::new("gate_proj", inner), Piece::new("up_proj", inner)];
//!         let gate_up = MergedColumnParallel::load(hidden, &pieces, vb.clone(), group)?;
//!         Ok(Self { gate_up, down: RowParallel::load(inner, hidden, vb.pp("down_proj"), group)? })
//!     }
//!
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         let parts = self.gate_up.split(&self.gate_up.forward(x)?)?;
//!         self.down.forward(&(parts[0].silu()? * &parts[1])?)
//!     }
//! }
//! ```

mod column;
mod heads;
mod load;
mod row;
mod vocabulary;

pub use column::{ColumnParallel, MergedColumnParallel, Piece};
pub use heads::Heads;
pub use row::{RowParallel, RowParallelNorm};
pub use vocabulary::{Head, VocabEmbedding};
