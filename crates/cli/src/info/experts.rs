//! The memory that experts of a shape need, and the methods that serve them.

use serde::Serialize;
use symmetra::experts::{Method, expert_bytes, expert_method, explain_experts};
use symmetra::{Config, DeviceKind};

use super::choices::RangeInfo;
use harness::experts::{ExpertShape, RowWire};
use harness::failure::CommandFailure;
use harness::table::Table;

/// A layer of experts on a number of ranks.
#[derive(Debug, Serialize)]
pub(super) struct ExpertLayer {
    #[serde(flatten)]
    shape: ExpertShape,
    /// Most tokens of a rank.
    tokens: usize,
    wires: Vec<Sizes>,
    /// The method for each range of bytes, where symmetra kernels serve the group and packets can serve the layer.
    choices: Vec<RangeInfo>,
    /// The method where another backend serves the group.
    other_backends: &'static str,
}

/// The sizes of rows in one wire format.
#[derive(Debug, Serialize)]
struct Sizes {
    wire: RowWire,
    /// Bytes of a row on its way to an expert.
    row_bytes: usize,
    /// Bytes of the symmetric heap of each rank.
    heap_bytes: u64,
    /// The method where symmetra kernels serve the group.
    method: &'static str,
}

impl ExpertLayer {
    pub(super) fn new(
        shape: ExpertShape,
        tokens: usize,
        (kind, ranks): (DeviceKind, usize),
        group: &Config,
    ) -> Result<Self, CommandFailure> {
        // The heap has room for the memory of the experts.
        let mut group = group.clone();
        let refused = |error: symmetra::Error| CommandFailure::usage(error.to_string());
        let mut sizes = |wire: RowWire| {
            let mut config = shape.config(tokens);
            config.wire = wire.setting();
            let heap_bytes = expert_bytes(ranks, &group, &config).map_err(refused)?;
            group.heap_bytes = group.heap_bytes.max(heap_bytes);
            let method = expert_method(kind, ranks, true, &group, &config)?.name();
            Ok(Sizes { wire, row_bytes: wire.row_bytes(shape.hidden), heap_bytes, method })
        };
        let wires = RowWire::OF_BF16.into_iter().map(&mut sizes).collect::<Result<_, CommandFailure>>()?;
        let other_backends = expert_method(kind, ranks, false, &group, &shape.config(tokens))?.name();
        let choices = RangeInfo::all("method", &explain_experts(kind, ranks, group.tuning.as_ref())?, Method::name);
        Ok(Self { shape, tokens, wires, choices, other_backends })
    }

    pub(super) fn title(&self, ranks: usize) -> String {
        let ExpertShape { experts, top_k, hidden } = self.shape;
        let tokens = format!("{} tokens a rank, {top_k} experts a token, rows of {hidden} bf16", self.tokens);
        format!("{experts} experts on {ranks} ranks: {tokens}")
    }

    pub(super) fn table(&self) -> Table {
        let mut rows = Table::new(["wire", "bytes of a row", "bytes of the heap of a rank", "method"], [1, 2]);
        for Sizes { wire, row_bytes, heap_bytes, method } in &self.wires {
            rows.add_row([wire.name(), &row_bytes.to_string(), &heap_bytes.to_string(), method]);
        }
        rows
    }

    pub(super) fn methods(&self) -> String {
        let choice = |RangeInfo { up_to_bytes, choice, .. }: &RangeInfo| match up_to_bytes {
            Some(bytes) => format!("{choice} up to {bytes} bytes of rows"),
            None => format!("{choice} beyond"),
        };
        let choices: Vec<String> = self.choices.iter().map(choice).collect();
        let reason = self.choices.first().map_or("", |choice| choice.reason);
        let other = self.other_backends;
        let choices = choices.join(", ");
        format!("by own kernels {choices}\n  ({reason})\nby other backends {other}")
    }
}
