//! The place of each rank on a mesh, and the modes of the operations of the mesh.

use serde::Serialize;
use symmetra::mixed::MixedMode;
use symmetra::{DeviceKind, Tuning};

use super::MEMORIES;
use super::choices::{Choices, RangeInfo, explained, rows};
use crate::grid::GridWorld;
use harness::failure::CommandFailure;
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
    places: Vec<GridPosition>,
    choices: Vec<Choices<OfOperation>>,
}

/// The place of a rank.
#[derive(Debug, Serialize)]
struct GridPosition {
    host: usize,
    /// Number within the host.
    local: usize,
    tensor_rank: usize,
    data_rank: usize,
}

#[derive(Debug, Serialize)]
struct OfOperation {
    operation: &'static str,
}

impl GridInfo {
    pub(super) fn new(world: &GridWorld, kind: DeviceKind, tuning: Option<&Tuning>) -> Result<Self, CommandFailure> {
        let (config, local, hosts) = (world.config(), world.local(), world.hosts);
        let [local_tensor, local_data, across_tensor, across_data] = config.grid_of(local, hosts)?;
        let places = config.places(local, hosts)?.into_iter().enumerate();
        let of_host = |(host, ranks): (usize, Vec<(usize, usize)>)| {
            let place = move |(local, (tensor_rank, data_rank))| GridPosition { host, local, tensor_rank, data_rank };
            ranks.into_iter().enumerate().map(place)
        };
        let mut choices = Vec::new();
        for operation in config.operations(local, hosts)? {
            for (memory, direct) in MEMORIES {
                let ranges = config.choices(local, hosts, operation, kind, direct, tuning)?;
                // By bytes of `x` or of a slice.
                let ranges = RangeInfo::all("mode", &ranges, MixedMode::name);
                choices.push(Choices { calls: OfOperation { operation: operation.name() }, memory, ranges });
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
        for GridPosition { host, local, tensor_rank, data_rank } in &self.places {
            table.add_row([host, local, tensor_rank, data_rank].map(usize::to_string));
        }
        table
    }

    pub(super) fn choices(&self) -> Table {
        let headings = ["operation", "memory", "bytes of x or of a slice", "mode", "why"];
        explained(headings, rows(&self.choices, |calls| calls.operation.to_owned()))
    }
}
