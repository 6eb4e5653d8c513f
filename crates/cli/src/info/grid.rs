//! The place of each rank on a mesh, and the modes of the operations of the mesh.

use serde::Serialize;
use symmetra::mixed::MixedRange;
use symmetra::{DeviceKind, Tuning};

use super::MEMORIES;
use crate::grid::GridWorld;
use harness::bytes;
use harness::failure::Failure;
use harness::table::Table;

/// A mesh over `ranks` ranks.
#[derive(Debug, Serialize)]
pub(super) struct GridInfo {
    ranks: usize,
    hosts: usize,
    local_tensor: usize,
    local_data: usize,
    across_tensor: usize,
    across_data: usize,
    places: Vec<Place>,
    choices: Vec<Choices>,
}

/// The place of a rank.
#[derive(Debug, Serialize)]
struct Place {
    host: usize,
    /// Number within the host.
    local: usize,
    tensor_rank: usize,
    data_rank: usize,
}

/// The modes that serve an operation on operands in some memory.
#[derive(Debug, Serialize)]
struct Choices {
    operation: &'static str,
    memory: &'static str,
    ranges: Vec<Range>,
}

#[derive(Debug, Serialize)]
struct Range {
    /// Bytes of `x` or of a slice; `None`: no limit.
    up_to_bytes: Option<u64>,
    mode: &'static str,
    reason: &'static str,
}

impl GridInfo {
    pub(super) fn new(world: &GridWorld, kind: DeviceKind, tuning: Option<&Tuning>) -> Result<Self, Failure> {
        let (config, local, hosts) = (world.config(), world.local(), world.hosts);
        let [local_tensor, local_data, across_tensor, across_data] = config.grid_of(local, hosts)?;
        let places = config.places(local, hosts)?.into_iter().enumerate();
        let of_host = |(host, ranks): (usize, Vec<(usize, usize)>)| {
            let place = move |(local, (tensor_rank, data_rank))| Place { host, local, tensor_rank, data_rank };
            ranks.into_iter().enumerate().map(place)
        };
        let range = |range: MixedRange| Range {
            up_to_bytes: (range.up_to_bytes < u64::MAX).then_some(range.up_to_bytes),
            mode: range.mode.name(),
            reason: range.reason,
        };
        let mut choices = Vec::new();
        for operation in config.operations(local, hosts)? {
            for (memory, direct) in MEMORIES {
                let ranges = config.choices((local, hosts), operation, (kind, direct), tuning)?;
                let ranges = ranges.into_iter().map(range).collect();
                choices.push(Choices { operation: operation.name(), memory, ranges });
            }
        }
        let places = places.flat_map(of_host).collect();
        Ok(Self { ranks: world.ranks, hosts, local_tensor, local_data, across_tensor, across_data, places, choices })
    }

    pub(super) fn title(&self) -> String {
        let Self { ranks, hosts, local_tensor, local_data, across_tensor, across_data, .. } = self;
        format!(
            "Grid of {ranks} ranks: a host {local_tensor} tensor x {local_data} data, {hosts} {} {across_tensor} tensor x \
             {across_data} data",
            if *hosts == 1 { "host" } else { "hosts" }
        )
    }

    pub(super) fn places(&self) -> Table {
        let mut table = Table::new(["host", "number in the host", "tensor rank", "data rank"], [0, 1, 2, 3]);
        for Place { host, local, tensor_rank, data_rank } in &self.places {
            table.add_row([host, local, tensor_rank, data_rank].map(usize::to_string));
        }
        table
    }

    pub(super) fn choices(&self) -> Table {
        let mut table = Table::new(["operation", "memory", "bytes of x or of a slice", "mode", "why"], []);
        for Choices { operation, memory, ranges } in &self.choices {
            for Range { up_to_bytes, mode, reason } in ranges {
                let bytes = up_to_bytes
                    .map_or_else(|| "any more".to_owned(), |bytes| format!("up to {}", bytes::format(bytes)));
                table.add_row([*operation, *memory, &bytes, *mode, *reason]);
            }
        }
        table
    }
}
