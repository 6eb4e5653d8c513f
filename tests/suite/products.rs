//! GEMMs alone: values, types, layouts, bits, graphs, and errors.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use reference::element::{Real, WideElement};
use reference::gemm::{GemmCase, stored};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::half::{bf16, f16};
use symmetra::matmul::{F8, Multiplier, Numeric, Order, Product, Scaling, Tensor};
use symmetra::{Device, DeviceBuffer, Dtype, Element, Error, HostShape, Stream, launch_host};

use crate::support::device::{device, is_host};

/// A rank's device with a stream and a GEMM handle.
struct Bench {
    device: Device,
    stream: Stream,
    multiplier: Multiplier,
}

impl Bench {
    fn new() -> Self {
        let device = device(0);
        let (stream, multiplier) = (Stream::new(&device).unwrap(), Multiplier::new(&device).unwrap());
        Self { device, stream, multiplier }
    }

    fn upload<T: Element>(&self, values: &[T]) -> DeviceBuffer<T> {
        DeviceBuffer::from_slice(values, &self.stream).unwrap()
    }

    /// Whether the device has the GEMM: GPUs before Hopper lack some of 8-bit floats.
    fn has(&self, product: &Product) -> bool {
        let f8 = matches!(product.numeric, Numeric::F8 { .. });
        let capability = self.device.compute_capability();
        is_host() || !f8 || (capability >= (8, 9) && (product.scaling != Scaling::Rows || capability == (9, 0)))
    }
}

/// Multiplies on the device.
fn run<L: Real, R: Real, D: Real>(case: &GemmCase<L, R, D>, bench: &Bench) -> Vec<D> {
    let Product { inner, columns, count, .. } = case.product;
    let left = bench.upload(&stored(&case.left, case.product.left, [count, case.rows, inner]));
    let right = bench.upload(&stored(&case.right, case.product.right, [count, inner, columns]));
    let result = DeviceBuffer::<D>::new(&bench.device, count * case.rows * columns).unwrap();
    let (bias, scales) = (bench.upload(&case.bias), case.scales.each_ref().map(|scales| bench.upload(scales)));
    let (mut first, mut second) = (Tensor::of(&left), Tensor::of(&right));
    if case.product.scaling != Scaling::None {
        (first, second) = (first.scaled(&scales[0]), second.scaled(&scales[1]));
    }
    if case.product.bias {
        second = second.biased(&bias);
    }
    let operands = [first, second, Tensor::of(&result)];
    let enqueued = bench.multiplier.enqueue(&case.product, case.rows, operands, &bench.stream);
    enqueued.unwrap_or_else(|error| panic!("{:?} of {} rows: {error}", case.product, case.rows));
    result.read(&bench.stream).unwrap()
}

/// Runs `$check::<L, R, D>($numeric, $result)` for every kind of factors and result.
macro_rules! each_kind {
    ($check:ident) => {
        $check::<f32, f32, f32>(Numeric::F32);
        $check::<f16, f16, f16>(Numeric::F16);
        $check::<f16, f16, f32>(Numeric::F16);
        $check::<bf16, bf16, bf16>(Numeric::BF16);
        $check::<bf16, bf16, f32>(Numeric::BF16);
        $check::<F8E4M3, F8E4M3, bf16>(Numeric::F8 { left: F8::E4M3, right: F8::E4M3 });
        $check::<F8E4M3, F8E5M2, f16>(Numeric::F8 { left: F8::E4M3, right: F8::E5M2 });
        $check::<F8E5M2, F8E4M3, f32>(Numeric::F8 { left: F8::E5M2, right: F8::E4M3 });
    };
}

/// GEMMs of a type in many shapes.
fn products<D: Real>(numeric: Numeric, random: &mut Rng) -> Vec<(Product, usize)> {
    let f8 = matches!(numeric, Numeric::F8 { .. });
    // Around the sizes of tiles on the CPU, 64 rows, 256 columns and 256 of the sum.
    let shapes = if f8 { [(16, 16), (272, 32), (32, 272)] } else { [(1, 1), (257, 5), (9, 260)] };
    let mut all = Vec::new();
    for rows in [0, 1, 3, 65] {
        for (inner, columns) in shapes {
            let mut product = Product::new(inner, columns, numeric);
            product.result = D::DTYPE;
            product.count = *random.choice(&[1, 1, 3]).unwrap();
            product.relu = random.bool();
            product.bias = random.bool() && !(f8 && D::DTYPE == Dtype::F32);
            if f8 {
                let scalings: &[Scaling] = match product.count {
                    1 => &[Scaling::None, Scaling::Tensor, Scaling::Rows],
                    _ => &[Scaling::None, Scaling::Tensor],
                };
                product.scaling = *random.choice(scalings).unwrap();
            } else {
                product.left = *random.choice(&[Order::Rows, Order::Columns]).unwrap();
                product.right = *random.choice(&[Order::Rows, Order::Columns]).unwrap();
            }
            all.push((product, rows));
        }
    }
    all
}

/// Whole numbers whose sums f32 and the result's type hold: an element in the wrong place, missing or twice is found.
fn whole_numbers<L: Real, R: Real, D: Real>(numeric: Numeric) {
    let (bench, mut random) = (Bench::new(), Rng::new());
    for (product, rows) in products::<D>(numeric, &mut random).into_iter().filter(|(product, _)| bench.has(product)) {
        // Few numbers other than 0, so that sums stay small.
        let sparse = product.inner.div_ceil(16);
        let case = GemmCase::<L, R, D>::draw(product, rows, &mut random, |random| match random.usize(0..sparse) {
            0 => random.i32(-2..=2) as f32,
            _ => 0.0,
        });
        let found = run(&case, &bench);
        let expected = case.expected();
        assert_eq!(found.len(), expected.len());
        let wrong = found
            .iter()
            .zip(&expected)
            .position(|(found, [value, _])| found.wide() != D::of_single(*value as f32).wide());
        let shown = wrong.map(|place| (place, found[place].wide(), expected[place][0]));
        assert_eq!(shown, None, "{product:?} of {rows} rows");
    }
}

#[test]
fn whole_numbers_are_multiplied_exactly() {
    each_kind!(whole_numbers);
}

/// The part of the sum of absolute products that sums may be off by. f32 sums in any order lose at most 2^-24 of that an addition. The
/// tensor cores of Hopper align the products of two 8-bit floats and the sum so far, 32 products at a time, and cut what is more than 13
/// bits below the largest.
fn lost(numeric: Numeric, inner: usize) -> f64 {
    let sums = (inner + 2) as f64 * 2f64.powi(-24);
    let cut = (inner + inner.div_ceil(32)) as f64 * 2f64.powi(-13);
    if matches!(numeric, Numeric::F8 { .. }) && !is_host() { sums + cut } else { sums }
}

/// Any numbers: sums in any order, then one rounding.
fn random_numbers<L: Real, R: Real, D: Real>(numeric: Numeric) {
    let (bench, mut random) = (Bench::new(), Rng::new());
    for (product, rows) in products::<D>(numeric, &mut random).into_iter().filter(|(product, _)| bench.has(product)) {
        let case = GemmCase::<L, R, D>::draw(product, rows, &mut random, |random| random.f32() * 2.0 - 1.0);
        let sums = lost(numeric, product.inner);
        let (all, expected) = (run(&case, &bench), case.expected());
        for (place, (found, [value, absolute])) in all.iter().zip(&expected).enumerate() {
            let (error, bound) =
                ((found.wide() - value).abs(), sums * absolute + D::ROUNDOFF * (value.abs() + sums * absolute));
            // A GPU's library may round the sum before it adds the bias. Where relu has made the element zero, the sum is at
            // most as large as the bias.
            let bias = if case.product.bias { case.bias[place % case.product.columns].wide() } else { 0.0 };
            let sum = if is_host() || bias == 0.0 { 0.0 } else { (value - bias).abs().max(bias.abs()) };
            let bound = bound + D::ROUNDOFF * sum;
            // The least normal value of f16 is 2^-14: below it the distance of values is 2^-24.
            assert!(
                error <= bound + 2f64.powi(-25),
                "{product:?} of {rows} rows at {place}: {error} > {bound}; {}",
                roundings(&case, &all, &expected)
            );
        }
    }
}

/// How many elements are the values rounded once, and how many are the sums rounded before the bias comes and once more.
fn roundings<L: Real, R: Real, D: Real>(case: &GemmCase<L, R, D>, found: &[D], expected: &[[f64; 2]]) -> String {
    let count = |round: &dyn Fn(usize) -> f64| {
        let shown = |place: usize| if case.product.relu { round(place).max(0.0) } else { round(place) };
        (0..found.len()).filter(|place| found[*place].wide() == shown(*place)).count()
    };
    // Of elements that relu has made zero the sum is not known.
    let bias = |place: usize| if case.product.bias { case.bias[place % case.product.columns].wide() } else { 0.0 };
    let once = count(&|place| D::of_single(expected[place][0] as f32).wide());
    let twice = count(&|place| {
        let sum = D::of_single((expected[place][0] - bias(place)) as f32).wide();
        D::of_single((sum + bias(place)) as f32).wide()
    });
    format!("of {} elements {once} are rounded once, {twice} before the bias too", found.len())
}

#[test]
fn random_numbers_stay_within_the_bound() {
    each_kind!(random_numbers);
}

/// The bits of an element on the CPU depend on its row and column alone.
fn parts<L: Real, R: Real, D: Real>(numeric: Numeric) {
    let (bench, mut random) = (Bench::new(), Rng::new());
    let mut product = Product::new(272, 272, numeric);
    (product.result, product.relu) = (D::DTYPE, true);
    let case = GemmCase::<L, R, D>::draw(product, 150, &mut random, |random| random.f32() - 0.5);
    let whole = run(&case, &bench);
    for rows in [0..1, 1..64, 64..150, 17..131] {
        let left = case.left[rows.start * 272..rows.end * 272].to_vec();
        let (right, bias) = (case.right.clone(), case.bias.clone());
        let part = GemmCase { product, rows: rows.len(), left, right, bias, scales: case.scales.clone() };
        let part = run(&part, &bench);
        let same = &whole[rows.start * 272..rows.end * 272];
        assert_eq!(
            bytemuck::cast_slice::<D, u8>(&part),
            bytemuck::cast_slice::<D, u8>(same),
            "{numeric}, rows {rows:?}"
        );
    }
}

#[test]
fn some_rows_have_the_bits_of_all_rows_on_the_cpu() {
    if is_host() {
        each_kind!(parts);
    }
}

#[test]
fn a_graph_multiplies_what_its_operands_hold() {
    let bench = Bench::new();
    let mut random = Rng::new();
    let product = Product::new(64, 96, Numeric::BF16);
    let (left, right) = (
        DeviceBuffer::<bf16>::new(&bench.device, 32 * 64).unwrap(),
        DeviceBuffer::new(&bench.device, 64 * 96).unwrap(),
    );
    let result = DeviceBuffer::<bf16>::new(&bench.device, 32 * 96).unwrap();
    let operands = || [Tensor::of(&left), Tensor::of(&right), Tensor::of(&result)];
    let graph = bench.stream.capture(|capture| {
        bench.multiplier.enqueue(&product, 32, operands(), capture)?;
        bench.multiplier.enqueue(&product, 32, operands(), capture)
    });
    let graph = graph.unwrap();
    // The graph owns the GEMM handle.
    let Bench { multiplier, stream, .. } = bench;
    drop(multiplier);
    for _ in 0..3 {
        let case = GemmCase::<bf16, bf16, bf16>::draw(product, 32, &mut random, |random| random.i32(-2..=2) as f32);
        left.write(&case.left, &stream).unwrap();
        right.write(&stored(&case.right, Order::Columns, [1, 64, 96]), &stream).unwrap();
        graph.launch(&stream).unwrap();
        let expected: Vec<f64> = case.expected().iter().map(|[value, _]| *value).collect();
        assert_eq!(result.read(&stream).unwrap().into_iter().map(WideElement::wide).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn calls_on_several_streams_run_one_after_another() {
    let bench = Bench::new();
    let mut random = Rng::new();
    let product = Product::new(96, 96, Numeric::F32);
    let case = GemmCase::<f32, f32, f32>::draw(product, 96, &mut random, |random| random.i32(-1..=1) as f32);
    let right = bench.upload(&stored(&case.right, Order::Columns, [1, 96, 96]));
    let chain = [(); 5].map(|()| DeviceBuffer::<f32>::new(&bench.device, 96 * 96).unwrap());
    chain[0].write(&case.left, &bench.stream).unwrap();
    // Each GEMM reads the result of the previous GEMM, which is enqueued on another stream. On the CPU the first stream is
    // held up until all are enqueued.
    let streams = [(); 4].map(|()| Stream::new(&bench.device).unwrap());
    static OPEN: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn hold(open: *const &'static AtomicBool) {
        // SAFETY: the launch below passes such a reference.
        let open = unsafe { *open };
        while !open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    if is_host() {
        // SAFETY: the flag is static, and the kernel writes nothing.
        unsafe { launch_host(HostShape::default(), hold, &OPEN, &streams[0]) }.unwrap();
    }
    let mut expected: Vec<f64> = case.left.iter().map(|value| f64::from(*value)).collect();
    for (step, stream) in streams.iter().enumerate() {
        let operands = [Tensor::of(&chain[step]), Tensor::of(&right), Tensor::of(&chain[step + 1])];
        bench.multiplier.enqueue(&product, 96, operands, stream).unwrap();
        let element = |row: usize, column: usize| {
            (0..96).map(|k| expected[row * 96 + k] * case.right[k * 96 + column].wide()).sum::<f64>()
        };
        expected = (0..96 * 96).map(|place| element(place / 96, place % 96)).collect();
    }
    // GEMMs without an order would be done at an arbitrary time.
    let early = (0..if is_host() { 100 } else { 0 }).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        streams[3].is_done().unwrap()
    });
    OPEN.store(true, Ordering::Release);
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    assert!(!early, "the last product ran before the first");
    assert!(expected.iter().all(|value| value.abs() < 2f64.powi(24)), "f32 holds the sums");
    assert_eq!(chain[4].read(&bench.stream).unwrap().into_iter().map(f64::from).collect::<Vec<_>>(), expected);
}

/// The error of a bad call contains the value and the limit, and nothing is enqueued.
#[test]
fn bad_products_are_refused() {
    let bench = Bench::new();
    let buffer = |elems: usize| DeviceBuffer::<f32>::new(&bench.device, elems).unwrap();
    let (left, right, result) = (buffer(6), buffer(12), buffer(8));
    result.write(&[7.0; 8], &bench.stream).unwrap();
    let product = Product::new(3, 4, Numeric::F32);
    let refused = |product: &Product, rows: usize, operands: [Tensor<'_>; 3]| -> String {
        let error = bench.multiplier.enqueue(product, rows, operands, &bench.stream).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. }), "{error:?}");
        error.to_string()
    };
    let usual = || [Tensor::of(&left), Tensor::of(&right), Tensor::of(&result)];
    let with = |change: &dyn Fn(&mut Product)| {
        let mut changed = product;
        change(&mut changed);
        refused(&changed, 2, usual())
    };
    let f8 = Numeric::F8 { left: F8::E4M3, right: F8::E4M3 };
    let in_f8 = |change: &dyn Fn(&mut Product)| {
        with(&|product| {
            *product = Product::new(32, 32, f8);
            change(product);
        })
    };
    for (words, expected) in [
        (with(&|product| product.inner = 0), "inner is 0, but a product takes 1 to 2147483647"),
        (with(&|product| product.columns = 1 << 40), "columns is 1099511627776, but"),
        (with(&|product| product.count = 0), "count is 0, but"),
        (with(&|product| product.result = Dtype::BF16), "a product of f32 as bf16 is not supported: results are f32"),
        (with(&|product| product.scaling = Scaling::Tensor), "scaling is Tensor, but f32 has no scales"),
        (with(&|product| product.fast_accumulation = true), "fast_accumulation is true, but f32 has none"),
        (with(&|product| product.numeric = Numeric::F16), "the left factor's type is f32, but the product has f16"),
        (with(&|product| product.bias = true), "the bias is not given, but the product has 4 elements"),
        (with(&|product| product.inner = 2), "the left factor's length is 6, but the product has 4 elements"),
        (refused(&product, usize::MAX, usual()), "rows is 18446744073709551615, but"),
        (refused(&product, 1, usual()), "the left factor's length is 6, but the product has 3 elements"),
        (in_f8(&|product| product.inner = 24), "inner is 24, but a product of f8e4m3 must have multiples of 16"),
        (in_f8(&|product| product.columns = 8), "columns is 8, but a product of f8e4m3 must have multiples of 16"),
        (in_f8(&|product| product.right = Order::Rows), "the right factor column after column"),
        (
            in_f8(&|product| product.numeric = Numeric::F8 { left: F8::E5M2, right: F8::E5M2 }),
            "one of the factors must be e4m3",
        ),
        (in_f8(&|product| (product.scaling, product.count) = (Scaling::Rows, 2)), "count must be 1"),
        (in_f8(&|product| (product.bias, product.result) = (true, Dtype::F32)), "the result must be bf16 or f16"),
        (in_f8(&|_| {}), "the left factor's type is f32, but the product has f8e4m3"),
    ] {
        assert!(words.contains(expected), "{words}\n{expected}");
    }
    let square = Product::new(2, 2, Numeric::F32);
    let memory = buffer(12);
    let part = |start: usize| Tensor::of(memory.borrow().slice(start..start + 4).unwrap());
    let words = refused(&square, 2, [part(0), part(4), part(3)]);
    assert!(words.contains("the result is 16 bytes at") && words.contains("they may not overlap"), "{words}");
    let words = refused(&product, 2, [Tensor::of(&left).scaled(&right), Tensor::of(&right), Tensor::of(&result)]);
    assert!(words.contains("the left factor's scales is given, but the product has none"), "{words}");
    let words = refused(&product, 2, [Tensor::of(&left), Tensor::of(&right), Tensor::of(&result).scaled(&right)]);
    assert!(words.contains("scales of the result"), "{words}");
    if is_host() {
        let other = Device::host().unwrap();
        let elsewhere = DeviceBuffer::<f32>::new(&other, 6).unwrap();
        let words = refused(&product, 2, [Tensor::of(&elsewhere), Tensor::of(&right), Tensor::of(&result)]);
        assert!(words.contains("the left factor's device"), "{words}");
        let stream = Stream::new(&other).unwrap();
        let words = bench.multiplier.enqueue(&product, 2, usual(), &stream).unwrap_err().to_string();
        assert!(words.contains("the stream's device"), "{words}");
    }
    assert_eq!(result.read(&bench.stream).unwrap(), [7.0; 8]);
}

/// 8-bit floats begin at multiples of 16 bytes, as cuBLASLt requires on a GPU.
#[test]
fn codes_off_their_unit_are_refused() {
    let bench = Bench::new();
    let codes = DeviceBuffer::<F8E4M3>::new(&bench.device, 16 * 16 + 1).unwrap();
    let (right, result) = (
        DeviceBuffer::<F8E4M3>::new(&bench.device, 256).unwrap(),
        DeviceBuffer::<bf16>::new(&bench.device, 256).unwrap(),
    );
    let product = Product::new(16, 16, Numeric::F8 { left: F8::E4M3, right: F8::E4M3 });
    let off = Tensor::of(codes.borrow().slice(1..257).unwrap());
    let error = bench.multiplier.enqueue(&product, 16, [off, Tensor::of(&right), Tensor::of(&result)], &bench.stream);
    let words = error.unwrap_err().to_string();
    assert!(words.contains("the left factor's address is 1 modulo 16, but"), "{words}");
}
