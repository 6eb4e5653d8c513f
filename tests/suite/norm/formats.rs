//! Quantised rows, byte for byte against their definition. The definition and the operands are those of the command.

use half::{bf16, f16};
use symmetra::{
    Algorithm, Determinism, Device, DeviceBuffer, LayerNorm, Narrow as To, Norm, Quantisation, RmsNorm, RowNorm,
    ScaleLayout, Stream,
};

use crate::support::data::{Random, mix};
use crate::support::extent::full;
use crate::support::{Data, Rank, Sample, config, fits, threads};
use harness::codes::Codes;
use reference::element::Real;
use reference::norm;
use reference::quantised::{Format, QuantisedBytes, quantised};

const BEFORE: u8 = 0xA5;
const EPSILON: f32 = 1e-6;
/// The static scale, at which some of the largest values saturate, and the global scale.
const STATIC_SCALE: f32 = 0.011;
const GLOBAL_SCALE: f32 = 341.3;
/// Elements of a rank's input.
const ROOM: usize = 16_000;

/// Every format, each layout, and groups that are shorter, longer and no power of two.
pub(super) fn forms() -> Vec<Format> {
    use ScaleLayout::{Columns, PackedColumns, Rows, Swizzled128x4};
    let wide = [To::E4M3, To::E5M2, To::I8];
    let mut forms: Vec<Format> = wide.into_iter().map(Format::Static).collect();
    forms.extend(wide.map(|to| Format::Scaled(Quantisation::PerToken(to))));
    for (number, (elems, layout)) in
        [(128, Rows), (16, Columns), (48, Rows), (1024, Columns), (9600, Rows)].into_iter().enumerate()
    {
        forms.push(Format::Scaled(Quantisation::PerGroup { to: wide[number % 3], elems, layout }));
    }
    for layout in [Rows, PackedColumns, Swizzled128x4] {
        for (to, elems) in [(To::E4M3, 32), (To::E2M1, 32), (To::E4M3, 128), (To::E5M2, 16), (To::E2M1, 48)] {
            forms.push(Format::Scaled(Quantisation::Mx { to, elems, layout }));
        }
    }
    forms.extend([Rows, Swizzled128x4].map(|layout| Format::Scaled(Quantisation::Nvfp4 { layout })));
    forms
}

fn known(form: Format) -> f32 {
    if matches!(form, Format::Static(_)) { STATIC_SCALE } else { GLOBAL_SCALE }
}

/// The operands of rows in a format.
pub(super) fn operands(device: &Device, name: &str, [rows, width]: [usize; 2], stream: &Stream) -> Codes {
    let form: Format = name.parse().unwrap();
    let codes = Codes::new(device, form, [rows, width, 0], known(form), stream).unwrap();
    codes.fill(BEFORE, stream).unwrap();
    codes
}

/// Compares operands with the codes and scales of normed rows.
pub(super) fn assert_quantised<T: Real + Sample>(codes: &Codes, name: &str, y: &[T], width: usize, stream: &Stream) {
    let (form, y): (Format, Vec<f32>) = (name.parse().unwrap(), y.iter().map(|y| y.single()).collect());
    let right = quantised(&y, width, form, known(form), BEFORE, |_| false);
    same(codes.read(stream).unwrap(), 0, right, &(T::DTYPE, name));
}

/// One call.
#[derive(Clone, Debug)]
struct Case {
    form: Format,
    hidden: usize,
    count: usize,
    width: usize,
    /// First element of the values in their buffer.
    at: usize,
    residual: bool,
    /// A layer norm with a bias, else an RMSNorm.
    layer: bool,
    /// Whether x and y are written too.
    kept: bool,
    output: bool,
    captured: bool,
    algorithm: Algorithm,
}

impl Case {
    fn any(random: &mut Random, form: Format) -> Self {
        let hidden = *random.pick(&[1, 15, 16, 31, 40, 64, 100, 128, 513, 1000, 2880, 5120]);
        let padded = if random.below(3) == 0 { hidden + random.below(200) } else { hidden };
        let count = (*random.pick(&[0, 1, 2, 3, 5, 17, 130])).min(ROOM / hidden);
        // All of these sum in rank order. Only kernels that also norm need no place for the sum, and a row fits theirs.
        let (kept, output) = (random.below(2) == 0, random.below(2) == 0 || hidden > 513);
        let named = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, Algorithm::Auto, Algorithm::TwoShotLL];
        Self {
            form,
            hidden,
            count,
            width: padded.next_multiple_of(form.step()),
            at: if random.below(2) == 0 { 0 } else { random.below(9) },
            residual: random.below(2) == 0,
            layer: random.below(2) == 0,
            kept,
            output,
            captured: random.below(4) == 0,
            algorithm: *random.pick(&named[..if kept || output { 4 } else { 3 }]),
        }
    }
}

impl Case {
    fn norm(&self) -> Norm {
        match self.layer {
            true => LayerNorm::new(EPSILON).weight_offset(1.0).into(),
            false => RmsNorm::gemma(EPSILON).into(),
        }
    }
}

/// Runs a case, and compares everything that it writes.
fn check<T: Real + Sample>(rank: &Rank, data: &Data<T>, before: &[T], case: &Case) {
    let Rank { stream, device, communicator } = rank;
    let (elems, wide) = (case.count * case.hidden, case.count * case.width);
    let of_type = |seed: u64, len| (0..len).map(|index| T::sample(mix(seed + index as u64))).collect::<Vec<T>>();
    let weights = of_type(99, case.hidden);
    let biases = case.layer.then(|| of_type(98, case.hidden));
    let input = DeviceBuffer::from_slice(&data.inputs[rank.rank()][..elems], stream).unwrap();
    let residual = DeviceBuffer::from_slice(&before[..elems], stream).unwrap();
    let weight = DeviceBuffer::from_slice(&weights, stream).unwrap();
    let bias = biases.as_ref().map(|biases| DeviceBuffer::from_slice(biases, stream).unwrap());
    let [kept, output] = [elems, wide].map(|elems| DeviceBuffer::<T>::new(device, elems).unwrap());
    let codes = Codes::new(device, case.form, [case.count, case.width, case.at], known(case.form), stream).unwrap();
    codes.fill(BEFORE, stream).unwrap();
    let rows = || {
        let rows = codes.asked(RowNorm::new(&input, &weight, case.norm()))?;
        let rows = if let Some(bias) = &bias { rows.bias(bias) } else { rows };
        let rows = if case.residual { rows.residual(&residual) } else { rows };
        let rows = if case.kept { rows.residual_out(&kept) } else { rows };
        let rows = if case.output { rows.output(&output) } else { rows };
        Ok(rows.padded_to(case.width).algorithm(case.algorithm))
    };
    if case.captured {
        let graph = stream.capture(|capture| communicator.all_reduce_norm(rows()?, capture)).unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
    } else {
        rows().and_then(|rows| communicator.all_reduce_norm(rows, stream)).unwrap();
    }
    rank.finish();
    let context = (T::DTYPE, rank.rank(), rank.world(), case.form.to_string(), case);
    let x = norm::with_residual(&data.sums[..elems], case.residual.then_some(&before[..elems]));
    let y = norm::biased(&x, &weights, biases.as_deref(), case.norm());
    let y = norm::padded(&y, case.hidden, case.width);
    if case.kept {
        crate::support::data::assert_same(&kept.read(stream).unwrap(), &x, &context);
    }
    if case.output {
        crate::support::data::assert_same(&output.read(stream).unwrap(), &y, &context);
    }
    let y: Vec<f32> = y.iter().map(|y| y.single()).collect();
    same(
        codes.read(stream).unwrap(),
        case.at,
        quantised(&y, case.width, case.form, known(case.form), BEFORE, |_| false),
        &context,
    );
}

/// Compares all bytes, also those before the values, which nothing may write.
fn same(found: QuantisedBytes, at: usize, right: QuantisedBytes, context: &dyn std::fmt::Debug) {
    let mut values = vec![BEFORE; at];
    values.extend(right.values);
    for (what, found, right) in [("values", found.values, values), ("scales", found.scales, right.scales)] {
        assert_eq!(found.len(), right.len(), "{what}: {context:?}");
        if let Some(place) = (0..right.len()).find(|place| found[*place] != right[*place]) {
            panic!("byte {place} of the {what} is {:#x}, not {:#x}: {context:?}", found[place], right[place]);
        }
    }
}

fn every_case<T: Real + Sample>(world: usize, number: usize) {
    let mut random = Random(mix((world * 10 + number) as u64));
    let forms = forms();
    // A format has a case in one of three types at least.
    let cases: Vec<Case> = forms
        .iter()
        .enumerate()
        .filter(|(form, _)| full() || (form + number + world).is_multiple_of(3))
        .flat_map(|(_, form)| std::iter::repeat_n(*form, if full() { 6 } else { 1 }))
        .map(|form| Case::any(&mut random, form))
        .collect();
    let data = Data::<T>::new(world as u64 * 100 + number as u64, world, ROOM);
    let before = Data::<T>::new(31 + number as u64, 1, ROOM);
    let mut config = config();
    // Regions that hold some of the messages, and not all.
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(30_000), 60_000);
    config.check_calls = world == 2;
    threads(world, &config, |rank| cases.iter().for_each(|case| check(rank, &data, &before.inputs[0], case)));
}

#[test]
fn every_format() {
    let worlds: &[usize] = if full() { &[1, 2, 3, 4, 5, 8, 16] } else { &[1, 2, 3, 8] };
    for world in worlds.iter().copied().filter(|world| fits(*world)) {
        every_case::<bf16>(world, 0);
        every_case::<f16>(world, 1);
        every_case::<f32>(world, 2);
    }
}

/// Values and scales alone of the rows of a share, numbered from the first of them: in one launch and in several.
#[test]
fn codes_of_a_share() {
    let mut config = config();
    config.two_shot_sentinel_bytes = 20_000;
    for world in [2, 3].into_iter().filter(|world| fits(*world)) {
        for (hidden, share) in [(100, 3), (513, 2), (40, 70)] {
            let data = Data::<bf16>::new((world * hidden) as u64, world, world * share * hidden);
            let before = Data::<bf16>::new(share as u64, 1, world * share * hidden);
            threads(world, &config, |rank| {
                for form in forms() {
                    scattered(rank, &data, &before.inputs[0], (form, [share, hidden]));
                }
            });
        }
    }
}

fn scattered(rank: &Rank, data: &Data<bf16>, before: &[bf16], (form, [share, hidden]): (Format, [usize; 2])) {
    let (stream, own) = (&rank.stream, rank.rank() * share * hidden..(rank.rank() + 1) * share * hidden);
    let width = hidden.next_multiple_of(form.step());
    let weights: Vec<f32> = (0..hidden).map(|index| f32::sample(mix(index as u64))).collect();
    let input = DeviceBuffer::from_slice(&data.inputs[rank.rank()], stream).unwrap();
    let residual = DeviceBuffer::from_slice(&before[own.clone()], stream).unwrap();
    let weight = DeviceBuffer::from_slice(&weights, stream).unwrap();
    let codes = Codes::new(&rank.device, form, [share, width, 1], known(form), stream).unwrap();
    codes.fill(BEFORE, stream).unwrap();
    let rows = codes.asked(RowNorm::new(&input, &weight, RmsNorm::new(EPSILON))).unwrap();
    let rows = rows.residual(&residual).residual_out(&residual).padded_to(width);
    rank.communicator.reduce_scatter_norm(rows, stream).unwrap();
    rank.finish();
    let context = (rank.rank(), rank.world(), form.to_string(), share, hidden);
    let x = norm::with_residual(&data.sums[own.clone()], Some(&before[own]));
    crate::support::data::assert_same(&residual.read(stream).unwrap(), &x, &context);
    let y = norm::padded(&norm::normed(&x, &weights, RmsNorm::new(EPSILON)), hidden, width);
    let y: Vec<f32> = y.iter().map(|y| y.single()).collect();
    same(codes.read(stream).unwrap(), 1, quantised(&y, width, form, known(form), BEFORE, |_| false), &context);
}

/// Where every x is 1, y is the weight: so y takes any value, in groups of any largest size. Values at the steps of
/// formats and in the last ulp around them, powers of two, denormals, zeros of both signs, infinities and NaNs.
#[test]
fn groups_of_special_values() {
    const GROUP: usize = 16;
    let mut groups = vec![vec![0.0f32; GROUP], vec![-0.0; GROUP]];
    let scales = [0, -1, 3, -30, 100, 119, -126, -140].map(f64::from);
    for scale in scales {
        for step in [1.0, 1.5, 5.0, 6.0, 448.0, 57344.0, 127.0, 464.0, 0.25, 1.0625] {
            let bits = ((step * scale.exp2()) as f32).to_bits();
            for bits in [bits.saturating_sub(1), bits, bits + 1] {
                let mut group: Vec<f32> = (0..GROUP).map(|index| f32::from_bits(bits) / index as f32).collect();
                (group[0], group[3], group[5]) = (f32::from_bits(bits), -f32::from_bits(bits), -0.0);
                groups.push(group);
            }
        }
    }
    for special in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45] {
        let mut group: Vec<f32> = (0..GROUP).map(|index| index as f32 - 7.5).collect();
        group[9] = special;
        groups.push(group.clone());
        groups.push(vec![special; GROUP]);
    }
    groups.resize(groups.len().next_multiple_of(6), vec![1.0; GROUP]);
    let weights: Vec<f32> = groups.into_iter().flatten().collect();
    threads(1, &config(), |rank| {
        for (number, form) in
            forms().into_iter().enumerate().filter(|(_, form)| weights.len().is_multiple_of(form.step()))
        {
            // A format has one type at least, and formats with a scale of the caller's have several scales.
            for kind in (0..3).filter(|kind| full() || *kind == number % 3) {
                let check = [specials::<f32>, specials::<f16>, specials::<bf16>][kind];
                [known(form), 1.0, 1e-30, 3e38].into_iter().for_each(|known| check(rank, form, known, &weights));
            }
        }
    });
}

fn specials<T: Real + Sample>(rank: &Rank, form: Format, known: f32, weights: &[f32]) {
    let stream = &rank.stream;
    let ones = DeviceBuffer::from_slice(&vec![T::of_single(1.0); weights.len()], stream).unwrap();
    let weight = DeviceBuffer::from_slice(weights, stream).unwrap();
    let codes = Codes::new(&rank.device, form, [1, weights.len(), 0], known, stream).unwrap();
    codes.fill(BEFORE, stream).unwrap();
    let rows = codes.asked(RowNorm::new(&ones, &weight, RmsNorm::new(0.0))).unwrap();
    rank.communicator.all_reduce_norm(rows, stream).unwrap();
    rank.finish();
    let y: Vec<f32> = weights.iter().map(|weight| T::of_single(weight + 0.0).single()).collect();
    let right = quantised(&y, y.len(), form, known, BEFORE, |_| false);
    same(codes.read(stream).unwrap(), 0, right, &(T::DTYPE, form.to_string(), known));
}

/// Rows without an epsilon whose squares are all zero have an infinite factor: zeros of such a row become NaN, and so does the scale of
/// their group; all other elements become infinite.
#[test]
fn rows_without_a_number() {
    let small = |index: usize| if index % 96 < 48 || index.is_multiple_of(7) { 1e-30 } else { 0.0 };
    threads(2, &config(), |rank| {
        for form in forms() {
            let (stream, hidden) = (&rank.stream, 96 * form.step().next_multiple_of(2) / 2);
            for x in [(|_| 0.0) as fn(usize) -> f32, small] {
                let x: Vec<f32> = (0..2 * hidden).map(x).collect();
                let input = DeviceBuffer::from_slice(&x, stream).unwrap();
                let weight = DeviceBuffer::from_slice(&vec![1.5f32; hidden], stream).unwrap();
                let codes = Codes::new(&rank.device, form, [2, hidden, 0], known(form), stream).unwrap();
                codes.fill(BEFORE, stream).unwrap();
                let rows = codes.asked(RowNorm::new(&input, &weight, RmsNorm::new(0.0))).unwrap();
                rank.communicator.all_reduce_norm(rows, stream).unwrap();
                rank.finish();
                let y: Vec<f32> = x.iter().map(|x| if *x == 0.0 { f32::NAN } else { f32::INFINITY }).collect();
                let right = quantised(&y, hidden, form, known(form), BEFORE, |_| true);
                same(codes.read(stream).unwrap(), 0, right, &form.to_string());
            }
        }
    });
}

/// Equal codes for a row among any number of others, at any place, by any algorithm that sums in rank order.
#[test]
fn the_codes_of_a_row_depend_on_the_row_alone() {
    let (world, hidden) = (3, 1024);
    if !fits(world) {
        return;
    }
    let mut exact = config();
    exact.determinism = Determinism::Exact;
    let row = Data::<bf16>::new(5, world, hidden);
    let found = threads(world, &exact, |rank| {
        ["per-token-e4m3", "group-128-int8", "mxfp4", "nvfp4", "static-e5m2"].map(|name| {
            let form: Format = name.parse().unwrap();
            let mut found = Vec::new();
            for (count, place) in [(1, 0), (2, 1), (64, 40)] {
                for algorithm in
                    [Algorithm::Auto, Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, Algorithm::TwoShotLL]
                {
                    found.push(among_others(rank, &row.inputs[rank.rank()], (count, place), form, algorithm));
                }
            }
            found
        })
    });
    for forms in &found {
        for (bytes, first) in forms.iter().zip(&found[0]) {
            bytes.iter().for_each(|bytes| assert_eq!(bytes, &first[0]));
        }
    }
}

/// The values and scales of a row at `place` among `count` rows.
fn among_others(
    rank: &Rank,
    row: &[bf16],
    (count, place): (usize, usize),
    form: Format,
    algorithm: Algorithm,
) -> QuantisedBytes {
    let (stream, hidden) = (&rank.stream, row.len());
    let mut random = Random(count as u64);
    let mut rows: Vec<bf16> = (0..count * hidden).map(|_| bf16::sample(random.next())).collect();
    rows[place * hidden..][..hidden].copy_from_slice(row);
    let weights: Vec<f32> = (0..hidden).map(|index| f32::sample(mix(index as u64))).collect();
    let (input, weight) =
        (DeviceBuffer::from_slice(&rows, stream).unwrap(), DeviceBuffer::from_slice(&weights, stream).unwrap());
    let codes = Codes::new(&rank.device, form, [count, hidden, 0], known(form), stream).unwrap();
    let rows = codes.asked(RowNorm::new(&input, &weight, RmsNorm::new(EPSILON)).output(&input)).unwrap();
    rank.communicator.all_reduce_norm(rows.algorithm(algorithm), stream).unwrap();
    rank.finish();
    let QuantisedBytes { values, scales } = codes.read(stream).unwrap();
    let part = |bytes: &[u8]| bytes.chunks((bytes.len() / count).max(1)).nth(place).unwrap_or_default().to_vec();
    QuantisedBytes { values: part(&values), scales: part(&scales) }
}
