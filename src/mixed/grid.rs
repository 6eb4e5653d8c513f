//! The position of every rank on a mesh of tensor and data parallelism, inside hosts and across hosts. Pure.

use serde::{Deserialize, Serialize};

use crate::bootstrap::MAX_RANKS;
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::settings::setters;

/// How the ranks of a host, and the hosts, divide into tensor and data parallelism.
///
/// A missing size of a level is computed from the other size; if both are missing, the level is tensor parallel. The
/// tensor dimension varies fastest. A rank has the tensor number `t` and the data number `d` inside its host, and its host
/// has the numbers `j` and `i`. Then the local number of the rank is `d * local_tensor + t`, the number of its host is
/// `i * across_tensor + j`, its tensor rank is `t + j * local_tensor`, and its data rank is `d + i * local_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Grid {
    /// Ranks of a host that hold parts of one tensor.
    pub local_tensor: Option<usize>,
    /// Ranks of a host that work on different data.
    pub local_data: Option<usize>,
    /// Hosts that hold parts of one tensor.
    pub across_tensor: Option<usize>,
    /// Hosts that work on different data.
    pub across_data: Option<usize>,
}

setters! { Grid { local_tensor: Option<usize>, local_data: Option<usize>, across_tensor: Option<usize>, across_data: Option<usize> } }

impl Grid {
    /// The sizes for `local` ranks on each of `hosts` hosts.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], with the arithmetic, if the product of the sizes of a level is not the size of the
    /// level, and if the number of ranks or hosts is 0 or above the limit of a world.
    pub(super) fn sizes(&self, local: usize, hosts: usize) -> Result<GridSizes> {
        limited("the ranks of a host", local, MAX_WORLD_SIZE)?;
        limited("the hosts", hosts, MAX_RANKS / local)?;
        let [local_tensor, local_data] = level("local", self.local_tensor, self.local_data, local, "ranks of a host")?;
        let [across_tensor, across_data] = level("across", self.across_tensor, self.across_data, hosts, "hosts")?;
        Ok(GridSizes { local_tensor, local_data, across_tensor, across_data, sums_apart: true })
    }
}

fn limited(what: &str, number: usize, most: usize) -> Result<()> {
    match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(Error::invalid(what, number, format!("there must be at least 1 and at most {most}"))),
    }
}

/// Completes the two sizes of a level.
fn level(name: &str, tensor: Option<usize>, data: Option<usize>, total: usize, what: &str) -> Result<[usize; 2]> {
    let rest = |size: usize| if size > 0 && total.is_multiple_of(size) { total / size } else { 0 };
    let sizes = match (tensor, data) {
        (None, None) => [total, 1],
        (Some(tensor), None) => [tensor, rest(tensor)],
        (None, Some(data)) => [rest(data), data],
        (Some(tensor), Some(data)) => [tensor, data],
    };
    if sizes[0].checked_mul(sizes[1]) == Some(total) {
        return Ok(sizes);
    }
    let shown = |size: Option<usize>| size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    let asked = format!("{} x {}", shown(tensor), shown(data));
    Err(Error::invalid(&format!("{name}_tensor x {name}_data"), asked, format!("there are {total} {what}")))
}

/// The sizes of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GridSizes {
    pub(super) local_tensor: usize,
    pub(super) local_data: usize,
    pub(super) across_tensor: usize,
    pub(super) across_data: usize,
    /// Whether one launch can sum the tensor groups of a host separately. Only symmetra kernels can.
    pub(super) sums_apart: bool,
}

/// The position of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Tensor number inside the host.
    pub(super) t: usize,
    /// Data number inside the host.
    pub(super) d: usize,
    /// Tensor number of the host.
    pub(super) j: usize,
    /// Data number of the host.
    pub(super) i: usize,
}

impl GridSizes {
    /// The sizes in the order in which tunings name a grid.
    pub(super) fn by_level(&self) -> [usize; 4] {
        [self.local_tensor, self.local_data, self.across_tensor, self.across_data]
    }

    pub(super) fn local(&self) -> usize {
        self.local_tensor * self.local_data
    }

    pub(super) fn hosts(&self) -> usize {
        self.across_tensor * self.across_data
    }

    pub(super) fn tensor(&self) -> usize {
        self.local_tensor * self.across_tensor
    }

    pub(super) fn data(&self) -> usize {
        self.local_data * self.across_data
    }

    pub(super) fn world(&self) -> usize {
        self.local() * self.hosts()
    }

    /// The position of rank `local` of host `host`.
    pub(super) fn position(&self, host: usize, local: usize) -> Position {
        Position {
            t: local % self.local_tensor,
            d: local / self.local_tensor,
            j: host % self.across_tensor,
            i: host / self.across_tensor,
        }
    }

    pub(super) fn tensor_rank(&self, at: Position) -> usize {
        at.t + at.j * self.local_tensor
    }

    pub(super) fn data_rank(&self, at: Position) -> usize {
        at.d + at.i * self.local_data
    }
}

/// The groups over which steps run. Every rank is in one group of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridPart {
    /// The ranks of a host.
    Local,
    /// The ranks of a host with equal data.
    LocalTensor,
    /// The ranks of a host with equal parts of a tensor.
    LocalData,
    /// The ranks with one local number, one of each host.
    Hosts,
    /// The ranks of `Hosts` with equal data.
    HostsTensor,
    /// The ranks of `Hosts` with equal parts of a tensor.
    HostsData,
    /// All ranks, by data rank, then by tensor rank.
    World,
    /// The ranks with one data rank, by tensor rank.
    Tensor,
    /// The ranks with one tensor rank, by data rank.
    Data,
}

impl GridPart {
    pub(super) const ALL: [Self; 9] = [
        Self::Local,
        Self::LocalTensor,
        Self::LocalData,
        Self::Hosts,
        Self::HostsTensor,
        Self::HostsData,
        Self::World,
        Self::Tensor,
        Self::Data,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Local => "the host",
            Self::LocalTensor => "the host's tensor group",
            Self::LocalData => "the host's data group",
            Self::Hosts => "the hosts",
            Self::HostsTensor => "the hosts of a tensor group",
            Self::HostsData => "the hosts of a data group",
            Self::World => "the world",
            Self::Tensor => "the tensor group",
            Self::Data => "the data group",
        }
    }

    /// The number of ranks of a group.
    pub(super) fn size(self, sizes: &GridSizes) -> usize {
        match self {
            Self::Local => sizes.local(),
            Self::LocalTensor => sizes.local_tensor,
            Self::LocalData => sizes.local_data,
            Self::Hosts => sizes.hosts(),
            Self::HostsTensor => sizes.across_tensor,
            Self::HostsData => sizes.across_data,
            Self::World => sizes.world(),
            Self::Tensor => sizes.tensor(),
            Self::Data => sizes.data(),
        }
    }

    /// The number of the group that contains the rank, and the number of the rank in this group.
    pub(super) fn of(self, sizes: &GridSizes, at: Position) -> (usize, usize) {
        let (host, local) = (at.i * sizes.across_tensor + at.j, at.d * sizes.local_tensor + at.t);
        let (tensor, data) = (sizes.tensor_rank(at), sizes.data_rank(at));
        match self {
            Self::Local => (host, local),
            Self::LocalTensor => (host * sizes.local_data + at.d, at.t),
            Self::LocalData => (host * sizes.local_tensor + at.t, at.d),
            Self::Hosts => (local, host),
            Self::HostsTensor => (local * sizes.across_data + at.i, at.j),
            Self::HostsData => (local * sizes.across_tensor + at.j, at.i),
            Self::World => (0, data * sizes.tensor() + tensor),
            Self::Tensor => (data, tensor),
            Self::Data => (tensor, data),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/mixed/grid.rs"]
mod tests;
