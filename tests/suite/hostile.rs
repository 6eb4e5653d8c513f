//! Arguments that overflow: counts and lengths near the largest number, ranges whose end has no number, and shapes
//! whose number of elements wraps to the length of an operand. Each is a typed error of the call, without a panic, and
//! nothing outside the operands is written: the groups have guards, which are compared at closing.

use symmetra::environment::NamedTensor as Named;
use symmetra::experts::ExpertConfig;
use symmetra::fused::FusedOptions;
use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::{DeviceBuffer, Dtype, Error, Reduction, Result, RmsNorm, RowNorm};

use crate::support::{Rank, config, threads};

/// Numbers that overflow when they are multiplied by the bytes of an element, or when something is added.
const HUGE: [usize; 6] = [usize::MAX, usize::MAX - 7, 1 << 63, (1 << 63) - 1, 1 << 61, (1 << 61) + 1];

/// `[ROUND, 8]` has 8 elements in the arithmetic of 64 bits.
const ROUND: usize = (1 << 61) + 1;

fn refused<R>(what: impl std::fmt::Display, result: Result<R>) {
    match result.map(drop) {
        Err(Error::InvalidArgument { .. } | Error::OutOfMemory { .. } | Error::Unsupported { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(()) => panic!("{what} was taken"),
    }
}

#[test]
fn lengths_and_ranges_that_overflow_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, .. } = rank;
        let symmetric = communicator.symmetric::<f64>(8).unwrap();
        let plain = DeviceBuffer::<f64>::new(device, 8).unwrap();
        let plain = plain.borrow();
        for huge in HUGE {
            refused(format_args!("symmetric memory of {huge}"), communicator.symmetric::<f64>(huge));
            refused(format_args!("plain memory of {huge}"), DeviceBuffer::<f64>::new(device, huge));
            for range in [0..huge, huge..huge, 8..huge, huge..8] {
                refused(format_args!("{range:?} of symmetric memory"), symmetric.slice(range.clone()));
                refused(format_args!("{range:?} of plain memory"), plain.slice(range.clone()));
            }
            refused(format_args!("..={huge} of symmetric memory"), symmetric.slice(..=huge));
            refused(format_args!("..={huge} of plain memory"), plain.slice(..=huge));
            refused(format_args!("channel {huge}"), symmetric.signals().put(huge, 0, &rank.stream));
            refused(format_args!("peer {huge}"), symmetric.signals().put(0, huge, &rank.stream));
            refused(format_args!("rank {huge}"), symmetric.peer_address(huge));
        }
    });
}

#[test]
fn counts_and_shapes_that_overflow_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let symmetric = communicator.symmetric::<f32>(48).unwrap();
        let slice = |start: usize, len: usize| symmetric.slice(start..start + len).unwrap();
        for huge in HUGE {
            for counts in [[huge, huge], [huge, 1], [1, huge], [0, huge], [huge, huge.wrapping_neg()]] {
                let what = format!("counts {counts:?}");
                let fits = [4, 4];
                let sends = communicator.all_to_all_v(slice(0, 8), &counts, slice(8, 8), &fits, stream);
                refused(format_args!("{what} to send"), sends);
                let receives = communicator.all_to_all_v(slice(0, 8), &fits, slice(8, 8), &counts, stream);
                refused(format_args!("{what} to receive"), receives);
            }
            for root in [huge, huge.wrapping_neg()].into_iter().filter(|root| *root > 1) {
                refused(format_args!("root {root}"), communicator.broadcast(slice(0, 4), root, stream));
            }
        }
        for shape in
            [vec![ROUND, 8], vec![8, ROUND], vec![ROUND, 2, 4], vec![usize::MAX, usize::MAX], vec![1 << 32, 1 << 32, 8]]
        {
            for dim in 0..shape.len() {
                let what = format!("dimension {dim} of {shape:?}");
                let gathered = communicator.all_gather_along(dim, &shape, slice(0, 8), slice(8, 16), stream);
                refused(format_args!("{what} to gather"), gathered);
                let sum = Reduction::Sum;
                let scattered = communicator.reduce_scatter_along(dim, &shape, slice(0, 8), slice(8, 4), sum, stream);
                refused(format_args!("{what} to scatter"), scattered);
            }
            let memory = DeviceBuffer::<f32>::new(device, 8).unwrap();
            refused(format_args!("a tensor of {shape:?}"), Named::borrowed(&memory.borrow(), &shape));
            refused(format_args!("a new tensor of {shape:?}"), Named::new(device, Dtype::F32, &shape));
        }
    });
}

#[test]
fn rows_and_settings_that_overflow_are_refused() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, device, .. } = rank;
        let rows = communicator.symmetric::<f32>(32).unwrap();
        let weight = DeviceBuffer::from_slice(&[1.0f32; 8], stream).unwrap();
        for huge in HUGE {
            let norm = || RowNorm::new(rows.slice(0..16).unwrap(), &weight, RmsNorm::new(0.0));
            let wide = norm().output(rows.slice(16..32).unwrap()).padded_to(huge);
            refused(format_args!("rows padded to {huge}"), communicator.all_reduce_norm(wide, stream));
            let set = |change: &dyn Fn(&mut ExpertConfig)| {
                let mut form = ExpertConfig::new(4, 2, 8, 4);
                (form.dtype, form.capacity) = (Dtype::F32, Some(4));
                change(&mut form);
                communicator.experts(form)
            };
            refused(format_args!("{huge} experts"), set(&|form| form.experts = huge));
            refused(format_args!("{huge} experts a token"), set(&|form| form.top_k = huge));
            refused(format_args!("{huge} elements a row"), set(&|form| form.hidden = huge));
            refused(format_args!("{huge} tokens"), set(&|form| form.max_tokens = huge));
            refused(format_args!("{huge} in flight"), set(&|form| form.in_flight = huge));
            for shape in [[huge, 8], [8, huge], [ROUND, 8]] {
                let what = format!("a plan of {shape:?}");
                let product = Product::new(shape[1], 4, Numeric::F32);
                let options = FusedOptions::default;
                refused(&what, communicator.plan_matmul_all_reduce(&shape, product, options()));
                refused(&what, communicator.plan_matmul_reduce_scatter(&shape, 0, product, options()));
                refused(&what, communicator.plan_all_gather_matmul(&shape, 0, &[product], options()));
            }
            let multiplier = Multiplier::new(device).unwrap();
            let [left, right, result] = [8, 32, 4].map(|len| DeviceBuffer::<f32>::new(device, len).unwrap());
            for (product, rows) in [
                (Product::new(8, 4, Numeric::F32), huge),
                (Product::new(huge, 4, Numeric::F32), 1),
                (Product::new(8, huge, Numeric::F32), 1),
            ] {
                let operands = [Tensor::of(&left), Tensor::of(&right), Tensor::of(&result)];
                refused(format_args!("{product} of {rows} rows"), multiplier.enqueue(&product, rows, operands, stream));
            }
        }
    });
}
