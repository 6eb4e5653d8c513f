//! The settings of a grid, and the facts about the grid that need no ranks.

use serde::{Deserialize, Serialize};

use super::choice::{Ask, ModeChoices};
use super::grid::{Grid, GridSizes};
use super::mode::{self, MixedMode, MixedOperation};
use super::places::{first_alike, work_bytes};
use super::plan;
use super::steps::GridStep;
use crate::choice::Ranges;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::Tuning;
use crate::memory::buffer_bytes;
use crate::settings::setters;
use crate::types::Dtype;

/// The largest `most_bytes`. With it the workspace bytes of all ranks of a world do not overflow.
const MOST_BYTES: usize = 1 << 40;

/// The settings of a [`Mixed`](super::Mixed), equal on all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MixedConfig {
    /// How ranks and hosts divide. The default is tensor parallelism only.
    pub grid: Grid,
    /// Bytes of the largest `x` or slice that is processed in one piece. The workspace has this capacity.
    pub most_bytes: usize,
}

setters! { MixedConfig { grid: Grid, most_bytes: usize } }

impl Default for MixedConfig {
    fn default() -> Self {
        Self { grid: Grid::default(), most_bytes: 1 << 20 }
    }
}

impl MixedConfig {
    /// The bytes of heap that the workspace takes on each rank, for `local` ranks on each of `hosts` hosts, including
    /// the alignment between allocations.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a grid that does not fit, with the arithmetic, for 0 ranks or hosts, for more
    /// than 16 ranks of a host or 256 ranks in all, and for `most_bytes` above 1 TiB.
    pub fn required_bytes(&self, local: usize, hosts: usize) -> Result<u64> {
        let sizes = self.sizes(local, hosts)?;
        Ok(buffer_bytes(work_bytes(&sizes, self.most_bytes) as u64, local))
    }

    /// Describes the steps of an operation in a mode, in order, for `local` ranks on each of `hosts` hosts. `Auto`
    /// means the choice of the built-in table for `most_bytes`. Needs no ranks.
    ///
    /// # Errors
    /// The errors of [`required_bytes`](Self::required_bytes); [`Error::Unsupported`] for an operation or a mode that
    /// the grid does not have; the message lists the supported values.
    pub fn explain(
        &self,
        local: usize,
        hosts: usize,
        operation: MixedOperation,
        mode: MixedMode,
    ) -> Result<Vec<String>> {
        let sizes = self.sizes(local, hosts)?;
        mode::check(&sizes, operation, mode)?;
        let mode = match mode {
            MixedMode::Auto => {
                let ask = Ask { operation, direct: true, once: false };
                ModeChoices::new(sizes, DeviceKind::Host, None)?.choose(ask, self.most_bytes as u64)
            }
            mode => mode,
        };
        let plan = plan::plan(&sizes, operation, mode, self.most_bytes / Dtype::F32.bytes());
        Ok(plan.steps.iter().map(GridStep::to_string).collect())
    }

    /// The choices of `Auto` for `local` ranks on each of `hosts` hosts, by bytes of `x` or of a slice, smallest first.
    /// They come from the tuning if it has measured this grid on devices of this `kind`, else from estimates. The last
    /// range ends with `u64::MAX`. `direct`: whether peers can address input and output. Needs no ranks. Calls that may
    /// round only once take another mode if the mode named here rounds more often.
    ///
    /// # Errors
    /// The errors of [`required_bytes`](Self::required_bytes); [`Error::Unsupported`] for an operation that the grid
    /// does not have; [`Error::InvalidArgument`] for a tuning that names an unknown mode.
    pub fn choices(
        &self,
        local: usize,
        hosts: usize,
        operation: MixedOperation,
        kind: DeviceKind,
        direct: bool,
        tuning: Option<&Tuning>,
    ) -> Result<Ranges<MixedMode>> {
        let sizes = self.sizes(local, hosts)?;
        mode::check(&sizes, operation, MixedMode::Auto)?;
        Ok(ModeChoices::new(sizes, kind, tuning)?.ranges(Ask { operation, direct, once: false }))
    }

    /// The first mode that runs an operation with the same steps as `mode`, over groups of the same ranks, on a grid of
    /// `local` ranks on each of `hosts` hosts. It is `mode` itself unless an earlier mode is equivalent. `Auto` returns
    /// itself.
    ///
    /// # Errors
    /// The errors of [`explain`](Self::explain).
    pub fn first_alike(
        &self,
        local: usize,
        hosts: usize,
        operation: MixedOperation,
        mode: MixedMode,
    ) -> Result<MixedMode> {
        let sizes = self.sizes(local, hosts)?;
        mode::check(&sizes, operation, mode)?;
        Ok(if mode == MixedMode::Auto { mode } else { first_alike(&sizes, operation, mode) })
    }

    /// The sizes of the grid for `local` ranks on each of `hosts` hosts: tensor and data ranks of a host, tensor and
    /// data hosts.
    ///
    /// # Errors
    /// The errors of [`required_bytes`](Self::required_bytes).
    pub fn grid_of(&self, local: usize, hosts: usize) -> Result<[usize; 4]> {
        Ok(self.sizes(local, hosts)?.by_level())
    }

    /// The operations of the grid for `local` ranks on each of `hosts` hosts.
    ///
    /// # Errors
    /// The errors of [`required_bytes`](Self::required_bytes).
    pub fn operations(&self, local: usize, hosts: usize) -> Result<Vec<MixedOperation>> {
        let sizes = self.sizes(local, hosts)?;
        Ok(MixedOperation::ALL.into_iter().filter(|operation| operation.is_on(&sizes)).collect())
    }

    /// The tensor rank and the data rank of each local number of each host, for `local` ranks on each of `hosts` hosts:
    /// `[host][local]`.
    ///
    /// # Errors
    /// The errors of [`required_bytes`](Self::required_bytes).
    pub fn places(&self, local: usize, hosts: usize) -> Result<Vec<Vec<(usize, usize)>>> {
        let sizes = self.sizes(local, hosts)?;
        let place = |host: usize, number: usize| {
            let at = sizes.position(host, number);
            (sizes.tensor_rank(at), sizes.data_rank(at))
        };
        Ok((0..hosts).map(|host| (0..local).map(|number| place(host, number)).collect()).collect())
    }

    pub(super) fn sizes(&self, local: usize, hosts: usize) -> Result<GridSizes> {
        let sizes = self.grid.sizes(local, hosts)?;
        match self.most_bytes {
            0..=MOST_BYTES => Ok(sizes),
            bytes => Err(Error::invalid("most_bytes", bytes, format!("it may be at most {MOST_BYTES}"))),
        }
    }
}
