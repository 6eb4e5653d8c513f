//! Tests of `src/op/norm_rows.rs`, whose module they are.

use std::collections::HashSet;

use super::*;
use crate::device::Device;
use crate::memory::{DeviceBuffer, WithView};
use crate::op::{Narrow, RowFormat, ScaleGroup, ScaleLayout};
use crate::types::Dtype;

/// Ranks whose norms differ in any of these settings have different numbers; irrelevant settings make no difference.
#[test]
fn every_setting_tells_calls_apart() {
    let device = Device::host().unwrap();
    let buffer = DeviceBuffer::<f32>::new(&device, 64).unwrap();
    let held = |dtype, start: usize, len: usize| {
        Held::new(dtype, &buffer.borrow().slice(start..start + len).unwrap().view_of())
    };
    let single = |start, len| Some(held(Dtype::F32, start, len));
    let rows = || NormRows::new(RmsNorm::new(1e-6), held(Dtype::F32, 0, 8));
    let quantised = |scaling, to, elems, layout| {
        let format = RowFormat::new(scaling, to, elems, layout);
        Some(Quantised { format, values: held(Dtype::U8, 40, 8), scales: None, known: None })
    };
    let group =
        |to, elems, layout| NormRows { quantised: quantised(ScaleGroup::PerGroup, to, elems, layout), ..rows() };
    let over = || NormRows { residual: single(8, 8), residual_out: single(8, 8), ..rows() };
    let apart = || NormRows { residual: single(8, 8), residual_out: single(16, 8), ..rows() };
    let calls = [
        rows().form(true),
        rows().form(false),
        NormRows::new(RmsNorm::new(1e-5), held(Dtype::F32, 0, 8)).form(true),
        NormRows::new(RmsNorm::gemma(1e-6), held(Dtype::F32, 0, 8)).form(true),
        NormRows::new(LayerNorm::new(1e-6), held(Dtype::F32, 0, 8)).form(true),
        NormRows { bias: single(8, 8), ..NormRows::new(LayerNorm::new(1e-6), held(Dtype::F32, 0, 8)) }.form(true),
        NormRows::new(RmsNorm::new(1e-6), held(Dtype::BF16, 0, 8)).form(true),
        NormRows::new(RmsNorm::new(1e-6), held(Dtype::F32, 0, 4)).form(true),
        NormRows { residual: single(8, 8), ..rows() }.form(true),
        NormRows { residual_out: single(8, 8), ..rows() }.form(true),
        NormRows { width: Some(16), ..rows() }.form(true),
        over().form(false),
        apart().form(false),
        NormRows { width: Some(16), ..over() }.form(true),
        NormRows { width: Some(16), ..apart() }.form(true),
        group(Narrow::E4M3, 16, ScaleLayout::Rows).form(true),
        group(Narrow::E5M2, 16, ScaleLayout::Rows).form(true),
        group(Narrow::E4M3, 32, ScaleLayout::Rows).form(true),
        group(Narrow::E4M3, 16, ScaleLayout::Columns).form(true),
        NormRows { quantised: quantised(ScaleGroup::Mx, Narrow::E4M3, 16, ScaleLayout::Rows), ..rows() }.form(true),
    ];
    let different: HashSet<u64> = calls.into_iter().collect();
    assert_eq!(different.len(), calls.len(), "{calls:x?}");
    // Where the sum goes into the output, residual and residual_out may be one place on some ranks.
    assert_eq!(over().form(true), apart().form(true));
    assert_eq!(rows().form(true), NormRows { width: Some(8), ..rows() }.form(true));
}
