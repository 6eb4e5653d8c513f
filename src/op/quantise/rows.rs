//! Quantised rows as they are passed to kernels, and the check of their format.

use std::fmt;

use super::{Narrow, ScaleLayout};
use crate::error::{Error, Result};
use crate::kernel::args;
use crate::op::Held;
use crate::types::Dtype;

/// The elements of a group are a multiple of this number, which is also the group of NVFP4.
const GROUP_STEP: usize = args::kGroupStep as usize;

/// Most elements of a group.
const MOST_GROUP: usize = args::kMostGroup as usize;

/// The elements that share a scale, and its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ScaleGroup {
    /// One scale for all rows, which the caller provides.
    Static = args::kScalingStatic,
    PerToken = args::kScalingPerToken,
    PerGroup = args::kScalingPerGroup,
    Mx = args::kScalingMx,
    Nvfp4 = args::kScalingNvfp4,
}

impl ScaleGroup {
    pub(crate) const ALL: [Self; args::kScalings as usize] =
        [Self::Static, Self::PerToken, Self::PerGroup, Self::Mx, Self::Nvfp4];

    const fn formats(self) -> &'static [Narrow] {
        match self {
            Self::Static | Self::PerToken | Self::PerGroup => &[Narrow::E4M3, Narrow::E5M2, Narrow::I8],
            Self::Mx => &[Narrow::E4M3, Narrow::E5M2, Narrow::E2M1],
            Self::Nvfp4 => &[Narrow::E2M1],
        }
    }

    const fn layouts(self) -> &'static [ScaleLayout] {
        match self {
            Self::Static | Self::PerToken => &[ScaleLayout::Rows],
            Self::PerGroup => &[ScaleLayout::Rows, ScaleLayout::Columns],
            Self::Mx => &[ScaleLayout::Rows, ScaleLayout::PackedColumns, ScaleLayout::Swizzled128x4],
            Self::Nvfp4 => &[ScaleLayout::Rows, ScaleLayout::Swizzled128x4],
        }
    }

    /// The type of written scales; `None` if no scales are written.
    const fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Static => None,
            Self::PerToken | Self::PerGroup => Some(Dtype::F32),
            Self::Mx | Self::Nvfp4 => Some(Dtype::U8),
        }
    }
}

impl fmt::Display for ScaleGroup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Static => "a static scale",
            Self::PerToken => "a scale per token",
            Self::PerGroup => "a scale per group in f32",
            Self::Mx => "a scale per group in e8m0",
            Self::Nvfp4 => "NVFP4",
        })
    }
}

/// The format of quantised rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowFormat {
    pub(crate) scaling: ScaleGroup,
    pub(crate) to: Narrow,
    /// Elements of a group; 0 without groups.
    pub(crate) elems: usize,
    pub(crate) layout: ScaleLayout,
}

impl RowFormat {
    /// `elems` matters only for scalings whose group size is free.
    pub(crate) const fn new(scaling: ScaleGroup, to: Narrow, elems: usize, layout: ScaleLayout) -> Self {
        let elems = match scaling {
            ScaleGroup::Static | ScaleGroup::PerToken => 0,
            ScaleGroup::PerGroup | ScaleGroup::Mx => elems,
            ScaleGroup::Nvfp4 => GROUP_STEP,
        };
        Self { scaling, to, elems, layout }
    }

    pub(crate) fn values_len(self, rows: usize, width: usize) -> usize {
        rows.saturating_mul(if self.to == Narrow::E2M1 { width.div_ceil(2) } else { width })
    }

    pub(crate) fn scales_len(self, rows: usize, width: usize) -> usize {
        let groups = match (self.scaling, self.elems) {
            (ScaleGroup::Static, _) => 0,
            (_, 0) => 1,
            (_, elems) => width.div_ceil(elems),
        };
        let words = groups.div_ceil(4);
        match self.layout {
            ScaleLayout::Rows | ScaleLayout::Columns => rows.saturating_mul(groups),
            ScaleLayout::PackedColumns if words == 0 => 0,
            ScaleLayout::PackedColumns => {
                let before = (words - 1).saturating_mul(rows.div_ceil(4).saturating_mul(4));
                before.saturating_add(rows).saturating_mul(4)
            }
            ScaleLayout::Swizzled128x4 => rows.div_ceil(128).saturating_mul(words).saturating_mul(512),
        }
    }

    /// Checks that the format is supported for rows of `width` elements.
    pub(crate) fn check(self, width: usize) -> Result<()> {
        self.check_form()?;
        let Self { scaling, elems, .. } = self;
        if matches!(scaling, ScaleGroup::Mx | ScaleGroup::Nvfp4) && !width.is_multiple_of(elems) {
            let fitting = width.next_multiple_of(elems);
            let limit = format!("{scaling} needs a multiple of {elems}: pad rows to {fitting}");
            return Err(Error::invalid("the width of an output row", width, limit));
        }
        Ok(())
    }

    /// Checks that the combination of scaling, format, group size and layout is supported.
    pub(crate) fn check_form(self) -> Result<()> {
        let Self { scaling, to, elems, layout } = self;
        if !scaling.formats().contains(&to) {
            let names: Vec<_> = scaling.formats().iter().map(|to| to.name()).collect();
            let limit = format!("{scaling} has {}", names.join(", "));
            return Err(Error::invalid("the format of quantised values", to, limit));
        }
        if !scaling.layouts().contains(&layout) {
            let names: Vec<_> = scaling.layouts().iter().map(|layout| layout.name()).collect();
            return Err(Error::invalid("the layout of scales", layout, format!("{scaling} has {}", names.join(", "))));
        }
        if matches!(scaling, ScaleGroup::PerGroup | ScaleGroup::Mx)
            && (elems == 0 || !elems.is_multiple_of(GROUP_STEP) || elems > MOST_GROUP)
        {
            let limit = format!("it must be a multiple of {GROUP_STEP}, up to {MOST_GROUP}");
            return Err(Error::invalid("the number of elements of a group", elems, limit));
        }
        Ok(())
    }
}

/// The quantised rows of a norm.
pub(crate) struct Quantised {
    pub(crate) format: RowFormat,
    pub(crate) values: Held,
    pub(crate) scales: Option<Held>,
    /// The scale of all rows, if it is static.
    pub(crate) known: Option<Held>,
}

impl Quantised {
    /// Checks format, types and lengths for `rows` rows of `width` elements. `global` is the global scale, if given.
    pub(in crate::op) fn check(&self, rows: usize, width: usize, global: Option<&Held>) -> Result<()> {
        let format = self.format;
        format.check(width)?;
        let RowFormat { scaling, to, .. } = format;
        let of_values = ("the quantised values", &self.values, to.dtype(), format.values_len(rows, width));
        let of_scales = match (scaling.dtype(), &self.scales) {
            (Some(dtype), Some(scales)) => Some(("the scales", scales, dtype, format.scales_len(rows, width))),
            (Some(dtype), None) => {
                return Err(Error::invalid("the scales", "missing", format!("{scaling} writes scales in {dtype}")));
            }
            (None, Some(_)) => {
                return Err(Error::invalid("the scales", "given", format!("{scaling} writes no scales")));
            }
            (None, None) => None,
        };
        let known = match (scaling, &self.known) {
            (ScaleGroup::Static, None) => {
                return Err(Error::invalid("the static scale", "missing", "one element of f32 is needed"));
            }
            (_, known) => known.as_ref().map(|known| ("the static scale", known, Dtype::F32, 1)),
        };
        let global = match (scaling, global) {
            (ScaleGroup::Nvfp4, None) => {
                return Err(Error::invalid(
                    "the global scale",
                    "missing",
                    "NVFP4 has one: one element of f32 is needed",
                ));
            }
            (ScaleGroup::Nvfp4, global) => global.map(|global| ("the global scale", global, Dtype::F32, 1)),
            (_, Some(_)) => return Err(unneeded()),
            (_, None) => None,
        };
        for (what, held, dtype, elems) in [Some(of_values), of_scales, known, global].into_iter().flatten() {
            if held.dtype != dtype {
                let limit = format!("{scaling} with values in {to} has {dtype}");
                return Err(Error::invalid(&format!("the type of {what}"), held.dtype, limit));
            }
            if held.elems != elems {
                let limit = format!("{rows} rows of width {width} need {elems}");
                return Err(Error::invalid(&format!("the length of {what}"), held.elems, limit));
            }
        }
        Ok(())
    }
}

/// The error of a global scale without NVFP4.
pub(in crate::op) fn unneeded() -> Error {
    Error::invalid("the global scale", "given", "NVFP4 alone has one")
}
