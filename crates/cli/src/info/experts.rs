//! What experts of a shape take, and what serves them.

use serde::Serialize;
use symmetra::experts::{expert_bytes, expert_method};

use crate::experts::{Shape, Wire, name};
use crate::failure::Failure;
use crate::table::Table;

/// A layer of experts on so many ranks.
#[derive(Debug, Serialize)]
pub(super) struct Layer {
    #[serde(flatten)]
    shape: Shape,
    /// Of a rank, at most.
    tokens: usize,
    wires: Vec<Sizes>,
    /// What serves where own kernels serve the group.
    method: String,
    /// What serves where another backend does.
    other_backends: String,
}

/// What rows take that travel in one way.
#[derive(Debug, Serialize)]
struct Sizes {
    wire: Wire,
    /// Of a row on its way to an expert.
    row_bytes: usize,
    /// Of the symmetric heap of each rank.
    heap_bytes: u64,
}

impl Layer {
    pub(super) fn new(shape: Shape, tokens: usize, ranks: usize) -> Result<Self, Failure> {
        let sizes = |wire: Wire| {
            let mut config = shape.config(tokens);
            config.wire = wire.setting();
            let heap_bytes = expert_bytes(ranks, &config).map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Sizes { wire, row_bytes: wire.row_bytes(shape.hidden), heap_bytes })
        };
        let wires = Wire::ALL.into_iter().map(sizes).collect::<Result<_, Failure>>()?;
        let method = |own_kernels| expert_method(ranks, own_kernels, &shape.config(tokens)).map(name);
        Ok(Self { shape, tokens, wires, method: method(true)?, other_backends: method(false)? })
    }

    pub(super) fn title(&self, ranks: usize) -> String {
        let Shape { experts, top_k, hidden } = self.shape;
        let tokens = format!("{} tokens a rank, {top_k} experts a token, rows of {hidden} bf16", self.tokens);
        format!("{experts} experts on {ranks} ranks: {tokens}")
    }

    pub(super) fn table(&self) -> Table {
        let mut rows = Table::new(["wire", "bytes of a row", "bytes of the heap of a rank"], [1, 2]);
        for Sizes { wire, row_bytes, heap_bytes } in &self.wires {
            rows.add_row([wire.name(), &row_bytes.to_string(), &heap_bytes.to_string()]);
        }
        rows
    }

    pub(super) fn methods(&self) -> String {
        format!("by own kernels {} serves, by other backends {}", self.method, self.other_backends)
    }
}
