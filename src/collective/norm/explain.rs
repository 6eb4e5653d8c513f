//! Reports the algorithms of norms, with the functions that calls use: for a communicator, and without one.

use super::choice::{NormTable, fits, scattered_ranges, suits};
use super::{fits as fits_scratch, packets};
use crate::choice::Ranges;
use crate::collective::Communicator;
use crate::collective::select::{AlgorithmTable, Reach};
use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::group::{Capabilities, Config};
use crate::memory::ArenaLayout;
use crate::op::{Algorithm, Quantisation, RowFormat};
use crate::types::Dtype;

impl Communicator {
    /// The algorithms of [`all_reduce_norm`](crate::ProcessGroup::all_reduce_norm) for rows of `hidden` elements, by the
    /// bytes of all rows, smallest first. For calls with a place for the sum: an output that is not padded, or a residual_out that is not
    /// the residual. `direct`: whether peers can address the operands (symmetric or registered memory).
    pub fn explain_norm(&self, dtype: Dtype, hidden: usize, direct: bool) -> Ranges<Algorithm> {
        let inner = &self.0;
        let fits = self.suits(dtype, hidden, false, true);
        inner.norms.ranges(inner.table.ranges(dtype, reach(direct)), true, fits)
    }

    /// The algorithms of [`all_reduce_norm`](crate::ProcessGroup::all_reduce_norm) for rows that are written quantised,
    /// by the bytes of all rows, smallest first. Calls with a static scale use the same algorithms. `hidden` and `width`: elements of a row
    /// and of an output row, see [`padded_to`](crate::RowNorm::padded_to). `direct`: whether peers can address the operands
    /// (symmetric or registered memory). `placed`: whether the call also has a place for the sum of all rows: an output that
    /// is not padded, or a residual_out that is not the residual.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a width below `hidden`, and for a format or a layout
    /// that rows of `width` elements cannot have; [`Error::Unsupported`](crate::Error::Unsupported) if no algorithm serves
    /// the call: without a place for the sum, a row must fit the scratch of the two-shot.
    pub fn explain_quantised_norm(
        &self,
        dtype: Dtype,
        hidden: usize,
        width: usize,
        quantised: Quantisation,
        direct: bool,
        placed: bool,
    ) -> Result<Ranges<Algorithm>> {
        self.explain_norm_of(dtype, hidden, width, quantised.into(), direct, placed)
    }

    /// [`explain_quantised_norm`](Self::explain_quantised_norm) for any format.
    pub(crate) fn explain_norm_of(
        &self,
        dtype: Dtype,
        hidden: usize,
        width: usize,
        format: RowFormat,
        direct: bool,
        placed: bool,
    ) -> Result<Ranges<Algorithm>> {
        let inner = &self.0;
        let (sums, fits) = (inner.table.ranges(dtype, reach(direct)), self.suits(dtype, hidden, true, placed));
        inner.norms.quantised_ranges(sums, hidden, width, format, placed, fits)
    }

    /// The algorithms of [`reduce_scatter_norm`](crate::ProcessGroup::reduce_scatter_norm) or, with `gathers`, of
    /// [`reduce_scatter_norm_all_gather`](crate::ProcessGroup::reduce_scatter_norm_all_gather), for rows of `hidden`
    /// elements, by the bytes of all rows, smallest first. For calls with an output that is not padded. `Algorithm::Auto` stands for separate
    /// collectives and norm kernels. `quantised`: whether the rows are written quantised. `direct`: whether peers can
    /// address the input and all gathered operands (symmetric or registered memory).
    pub fn explain_scattered_norm(
        &self,
        dtype: Dtype,
        hidden: usize,
        quantised: bool,
        direct: bool,
        gathers: bool,
    ) -> Ranges<Algorithm> {
        let (kind, fits) = (self.device().kind(), self.suits(dtype, hidden, quantised, true));
        scattered_ranges(kind, self.world_size(), direct && gathers, |algorithm| fits(&algorithm))
    }

    fn suits(&self, dtype: Dtype, hidden: usize, quantised: bool, placed: bool) -> impl Fn(&Algorithm) -> bool {
        let fits = fits_scratch(&self.0.arena, dtype, hidden, quantised);
        suits(self.device().kind(), dtype, hidden, move || placed, fits)
    }
}

/// The facts that decide the algorithms of norms without a communicator.
struct NormRanks {
    kind: DeviceKind,
    world: usize,
    table: AlgorithmTable,
    norms: NormTable,
    layout: ArenaLayout,
}

impl NormRanks {
    fn new(kind: DeviceKind, device: Option<&Device>, world: usize, config: &Config) -> Result<Self> {
        config.validate(world)?;
        let (devices, tuning) = (device.map(Capabilities::of), config.tuning.as_ref());
        let table = AlgorithmTable::new(kind, devices.as_ref(), world, config.determinism, tuning)?;
        let (norms, layout) = (NormTable::new(kind, world, tuning)?, ArenaLayout::new(world, config)?);
        Ok(Self { kind, world, table, norms, layout })
    }

    fn suits(&self, dtype: Dtype, hidden: usize, quantised: bool, placed: bool) -> impl Fn(&Algorithm) -> bool {
        let fits = fits(self.kind, self.world, packets(dtype, hidden), quantised, |algorithm| match algorithm {
            Algorithm::OneShotSentinel => self.layout.one_shot_sentinel.slot_packets,
            _ => self.layout.two_shot_sentinel.slot_packets,
        });
        suits(self.kind, dtype, hidden, move || placed, fits)
    }
}

/// The algorithms of norms that ranks on devices of this `kind` would use, without a communicator. The result is a function
/// of type, elements of a row, and whether peers can address the operands. All devices are like `device` if given. Uses
/// scratch, tuning and determinism of `config`.
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a setting is outside its limits, or the tuning names an
/// unsuitable algorithm.
pub fn explain_norm(
    kind: DeviceKind,
    device: Option<&Device>,
    world_size: usize,
    config: &Config,
) -> Result<impl Fn(Dtype, usize, bool) -> Ranges<Algorithm>> {
    let ranks = NormRanks::new(kind, device, world_size, config)?;
    Ok(move |dtype, hidden, direct| {
        let sums = ranks.table.ranges(dtype, reach(direct));
        ranks.norms.ranges(sums, true, ranks.suits(dtype, hidden, false, true))
    })
}

/// [`explain_norm`] for rows that are written quantised, with the arguments and errors of
/// [`Communicator::explain_quantised_norm`].
///
/// # Errors
/// The errors of [`explain_norm`].
#[expect(clippy::type_complexity, reason = "the arguments and the result of the method, as a closure")]
pub fn explain_quantised_norm(
    kind: DeviceKind,
    device: Option<&Device>,
    world_size: usize,
    config: &Config,
) -> Result<impl Fn((Dtype, usize, usize), Quantisation, bool, bool) -> Result<Ranges<Algorithm>>> {
    let ranks = NormRanks::new(kind, device, world_size, config)?;
    Ok(move |(dtype, hidden, width): (Dtype, usize, usize), how: Quantisation, direct, placed| {
        let (sums, fits) = (ranks.table.ranges(dtype, reach(direct)), ranks.suits(dtype, hidden, true, placed));
        ranks.norms.quantised_ranges(sums, hidden, width, how.into(), placed, fits)
    })
}

fn reach(direct: bool) -> Reach {
    if direct { Reach::Direct } else { Reach::Pushed }
}
