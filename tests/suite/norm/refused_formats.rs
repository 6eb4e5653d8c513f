//! Invalid formats, and operands that do not fit a format, are typed errors that state what would fit.

use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Algorithm, Device, DeviceBuffer, Narrow, Operand, Quantisation, Result, RmsNorm, RowNorm, ScaleLayout};

use crate::support::refusal::{invalid, unserved};
use crate::support::{Rank, config, is_host, threads};

const NORM: RmsNorm = RmsNorm::new(1e-6);

/// Two rows of 40 elements of f32, changed, in place of the input.
fn call<'op>(
    rank: &Rank,
    rows: &'op DeviceBuffer<f32>,
    change: impl FnOnce(RowNorm<'op, f32>) -> RowNorm<'op, f32>,
) -> Result<()> {
    let at = |start: usize, len: usize| rows.borrow().slice(start..start + len);
    let rows = RowNorm::new(at(0, 80)?, at(80, 40)?, NORM).output(at(0, 80)?);
    rank.communicator.all_reduce_norm(change(rows), &rank.stream)
}

/// Buffers of every type that a format may have.
struct Buffers {
    rows: DeviceBuffer<f32>,
    e4m3: DeviceBuffer<F8E4M3>,
    e5m2: DeviceBuffer<F8E5M2>,
    i8: DeviceBuffer<i8>,
    bytes: DeviceBuffer<u8>,
    singles: DeviceBuffer<f32>,
}

impl Buffers {
    fn new(device: &Device) -> Self {
        Self {
            rows: DeviceBuffer::new(device, 120).unwrap(),
            e4m3: DeviceBuffer::new(device, 80).unwrap(),
            e5m2: DeviceBuffer::new(device, 80).unwrap(),
            i8: DeviceBuffer::new(device, 80).unwrap(),
            bytes: DeviceBuffer::new(device, 4096).unwrap(),
            singles: DeviceBuffer::new(device, 6).unwrap(),
        }
    }

    fn scales(&self, len: usize) -> impl Operand<'_, f32> {
        self.singles.borrow().slice(0..len).unwrap()
    }

    fn bytes(&self, len: usize) -> impl Operand<'_, u8> {
        self.bytes.borrow().slice(0..len).unwrap()
    }
}

#[test]
fn formats_that_are_none() {
    threads(2, &config(), |rank| {
        let buffers = Buffers::new(&rank.device);
        let (rows, values) = (&buffers.rows, &buffers.e4m3);
        let how = |how: Quantisation, words: &[&str]| {
            invalid(call(rank, rows, |rows| rows.quantised(how, values, buffers.scales(2))), words);
        };
        let layout = ScaleLayout::Rows;
        how(Quantisation::PerToken(Narrow::E2M1), &["format of quantised values is e2m1", "e4m3, e5m2, int8"]);
        how(Quantisation::PerGroup { to: Narrow::E2M1, elems: 16, layout }, &["is e2m1", "e4m3, e5m2, int8"]);
        how(Quantisation::Mx { to: Narrow::I8, elems: 32, layout }, &["is int8", "e4m3, e5m2, e2m1"]);
        for elems in [0, 8, 17, (1 << 20) + 16, u32::MAX as usize - 15, 1 << 33] {
            let words = [&format!("elements of a group is {elems}"), "multiple of 16, up to 1048576"];
            how(Quantisation::PerGroup { to: Narrow::E4M3, elems, layout }, &words);
            how(Quantisation::Mx { to: Narrow::E4M3, elems, layout }, &words);
        }
        for layout in [ScaleLayout::PackedColumns, ScaleLayout::Swizzled128x4] {
            let words = [&format!("layout of scales is {layout}"), "rows, columns"];
            how(Quantisation::PerGroup { to: Narrow::E4M3, elems: 16, layout }, &words);
        }
        let layout = ScaleLayout::Columns;
        how(Quantisation::Mx { to: Narrow::E4M3, elems: 32, layout }, &["is columns", "rows, packed, swizzled"]);
        how(Quantisation::Nvfp4 { layout }, &["layout of scales is columns", "rows, swizzled"]);
        how(Quantisation::mxfp8(), &["width of an output row is 40", "a multiple of 32", "64"]);
        how(Quantisation::Nvfp4 { layout: ScaleLayout::Rows }, &["width of an output row is 40", "of 16", "48"]);
        let none = call(rank, rows, |rows| rows.static_scale(Narrow::E2M1, buffers.scales(1), values));
        invalid(none, &["is e2m1", "e4m3, e5m2, int8"]);
    });
}

#[test]
fn operands_that_do_not_fit_a_format() {
    threads(2, &config(), |rank| {
        let buffers = Buffers::new(&rank.device);
        let Buffers { rows, e4m3, e5m2, i8, bytes, singles } = &buffers;
        let token = Quantisation::PerToken(Narrow::E4M3);
        invalid(
            call(rank, rows, |rows| rows.quantised(token, e5m2, buffers.scales(2))),
            &["type of the quantised values is f8e5m2", "f8e4m3"],
        );
        invalid(
            call(rank, rows, |rows| rows.quantised(token, e4m3, buffers.bytes(2))),
            &["type of the scales is u8", "f32"],
        );
        invalid(
            call(rank, rows, |rows| rows.quantised(token, e4m3, singles)),
            &["length of the scales is 6", "2 rows of width 40 need 2"],
        );
        let short = e4m3.borrow().slice(0..79).unwrap();
        invalid(
            call(rank, rows, |rows| rows.quantised(token, short, buffers.scales(2))),
            &["length of the quantised values is 79", "need 80"],
        );
        let groups = Quantisation::PerGroup { to: Narrow::I8, elems: 16, layout: ScaleLayout::Columns };
        invalid(
            call(rank, rows, |rows| rows.quantised(groups, i8, buffers.scales(4))),
            &["length of the scales is 4", "need 6"],
        );
        invalid(
            call(rank, rows, |rows| rows.static_scale(Narrow::I8, buffers.scales(2), i8)),
            &["length of the static scale is 2", "need 1"],
        );
        // NVFP4 needs its global scale; nothing else has one.
        let fourth = Quantisation::Nvfp4 { layout: ScaleLayout::Rows };
        let wide = DeviceBuffer::<f32>::new(&rank.device, 96).unwrap();
        let of = |global: bool| {
            call(rank, rows, |rows| {
                let rows =
                    rows.output(&wide).padded_to(48).quantised(fourth, buffers.bytes(48), bytes_at(bytes, 64, 6));
                if global { rows.global_scale(buffers.scales(1)) } else { rows }
            })
        };
        invalid(of(false), &["global scale is missing", "NVFP4"]);
        of(true).unwrap();
        invalid(
            call(rank, rows, |rows| rows.global_scale(buffers.scales(1))),
            &["global scale is given", "NVFP4 alone"],
        );
        invalid(
            call(rank, rows, |rows| rows.quantised(token, e4m3, buffers.scales(2)).global_scale(buffers.scales(1))),
            &["global scale is given"],
        );
        call(rank, rows, |rows| rows.quantised(token, e4m3, buffers.scales(2))).unwrap();
        rank.finish();
    });
}

fn bytes_at(bytes: &DeviceBuffer<u8>, start: usize, len: usize) -> impl Operand<'_, u8> {
    bytes.borrow().slice(start..start + len).unwrap()
}

#[test]
fn quantised_rows_that_overlap_or_are_elsewhere() {
    threads(2, &config(), |rank| {
        let buffers = Buffers::new(&rank.device);
        let Buffers { rows, bytes, .. } = &buffers;
        let how = Quantisation::Mx { to: Narrow::E2M1, elems: 16, layout: ScaleLayout::Rows };
        let wide = DeviceBuffer::<f32>::new(&rank.device, 96).unwrap();
        let of = |values: usize, scales: usize| {
            call(rank, rows, |rows| {
                rows.output(&wide).padded_to(48).quantised(how, bytes_at(bytes, values, 48), bytes_at(bytes, scales, 6))
            })
        };
        invalid(of(0, 47), &["the quantised values", "the scales", "may not overlap"]);
        of(0, 48).unwrap();
        let token = Quantisation::PerToken(Narrow::E4M3);
        let over = call(rank, rows, |call| {
            let scales = rows.borrow().slice(118..120).unwrap();
            call.quantised(token, &buffers.e4m3, scales)
        });
        invalid(over, &["the scales", "the weight"]);
        // Scales over the output and over the inputs, and the scales that are read.
        let singles = &buffers.singles;
        let nvfp4 = Quantisation::Nvfp4 { layout: ScaleLayout::Rows };
        let packed = |values: usize, global: &DeviceBuffer<f32>| {
            let values = bytes_at(bytes, values, 48);
            call(rank, rows, |rows| {
                let rows = rows.output(&wide).padded_to(48).quantised(nvfp4, values, bytes_at(bytes, 100, 6));
                rows.global_scale(global.borrow().slice(0..1).unwrap())
            })
        };
        packed(0, singles).unwrap();
        let in_rows = |range: std::ops::Range<usize>| rows.borrow().slice(range).unwrap();
        let scales_at = |range| call(rank, rows, |call| call.quantised(token, &buffers.e4m3, in_rows(range)));
        invalid(scales_at(0..2), &["the output", "the scales"]);
        let alone = |scales| {
            let (norm, values) = (RowNorm::new(in_rows(0..40), in_rows(40..80), NORM), buffers.e4m3.borrow());
            let rows = norm.residual(in_rows(80..120)).quantised(token, values.slice(0..40)?, in_rows(scales));
            rank.communicator.all_reduce_norm(rows, &rank.stream)
        };
        invalid(alone(0..1), &["the scales", "the input"]);
        invalid(alone(80..81), &["the scales", "the residual"]);
        let known = |range| call(rank, rows, |call| call.static_scale(Narrow::E4M3, in_rows(range), &buffers.e4m3));
        invalid(known(79..80), &["the output", "the static scale"]);
        known(80..81).unwrap();
        rank.finish();
        if is_host() {
            let far = Buffers::new(&Device::host().unwrap());
            invalid(packed(0, &far.singles), &["the global scale"]);
            let known = call(rank, rows, |rows| rows.static_scale(Narrow::E4M3, far.scales(1), &buffers.e4m3));
            invalid(known, &["the static scale"]);
            let values = call(rank, rows, |rows| rows.quantised(token, &far.e4m3, buffers.scales(2)));
            invalid(values, &["the quantised values"]);
            invalid(call(rank, rows, |rows| rows.quantised(token, &buffers.e4m3, far.scales(2))), &["the scales"]);
        }
    });
}

/// Values alone leave no place for a sum of another kernel; kernels that also norm need none.
#[test]
fn values_alone() {
    let mut small = config();
    (small.one_shot_sentinel_bytes, small.two_shot_sentinel_bytes) = (Some(4096), 16 << 10);
    fn alone(rank: &Rank, hidden: usize, count: usize, algorithm: Algorithm) -> Result<()> {
        let rows = DeviceBuffer::<f32>::new(&rank.device, hidden * count)?;
        let weight = DeviceBuffer::<f32>::new(&rank.device, hidden)?;
        let values = DeviceBuffer::<i8>::new(&rank.device, hidden * count)?;
        let scales = DeviceBuffer::<f32>::new(&rank.device, count)?;
        let how = Quantisation::PerToken(Narrow::I8);
        let rows = RowNorm::new(&rows, &weight, NORM).quantised(how, &values, &scales).algorithm(algorithm);
        rank.communicator.all_reduce_norm(rows, &rank.stream)?;
        rank.finish();
        Ok(())
    }
    threads(2, &small, |rank| {
        for algorithm in [Algorithm::TwoShotLL, Algorithm::Ring] {
            let apart = alone(rank, 100, 2, algorithm);
            unserved(apart, &["quantised values alone", "ask for an output", "residual_out"]);
        }
        unserved(alone(rank, 1 << 16, 1, Algorithm::Auto), &["quantised values alone"]);
        // More rows than a slot holds, in several launches.
        alone(rank, 100, 3000, Algorithm::Auto).unwrap();
        alone(rank, 100, 0, Algorithm::Auto).unwrap();
    });
    // Gathered rows are in the output.
    threads(2, &small, |rank| {
        let rows = DeviceBuffer::<f32>::new(&rank.device, 2 << 14).unwrap();
        let (own, weight) =
            (rows.borrow().slice(0..1 << 14).unwrap(), DeviceBuffer::<f32>::new(&rank.device, 1 << 14).unwrap());
        let values = DeviceBuffer::<i8>::new(&rank.device, 2 << 14).unwrap();
        let scales = DeviceBuffer::<f32>::new(&rank.device, 2).unwrap();
        let own = if rank.rank() == 0 { own } else { rows.borrow().slice(1 << 14..2 << 14).unwrap() };
        let asked = |how| RowNorm::new(&rows, &weight, NORM).quantised(how, &values, &scales).residual_out(own);
        let gathered =
            rank.communicator.reduce_scatter_norm_all_gather(asked(Quantisation::PerToken(Narrow::I8)), &rank.stream);
        unserved(gathered, &["gathered rows", "ask for an output"]);
    });
    threads(1, &small, |rank| alone(rank, 1 << 16, 1, Algorithm::Auto).unwrap());
}
