//! One norm, with operands of every kind, compared with the reference over whole buffers.

use std::ops::Range;

use reference::element::Real;
use reference::norm;
use symmetra::{
    Algorithm, Communicator, DeviceBuffer, Element, LayerNorm, Norm, Operand, Queue, Reduction, Result, RmsNorm,
    RowNorm, SymmetricBuffer,
};

use crate::support::data::{Random, assert_same};
use crate::support::{Data, Rank, Sample};

/// Elements of every buffer.
pub(super) const ROOM: usize = 20_000;
/// Largest distance of an operand from an aligned address, in elements.
const OFFSETS: usize = 8;
const EPSILON: f32 = 1e-6;

/// The type of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weight {
    /// That of the rows.
    Same,
    /// f32.
    Wide,
}

/// An operation on rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    AllReduce,
    /// A rank has all operands but the input for its own share of the rows.
    ReduceScatter,
    /// A rank has the residual and x for its own share of the rows.
    ReduceScatterAllGather,
}

/// The norm of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Rms,
    Layer,
    /// A layer norm with a bias.
    Biased,
}

/// A buffer of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Input,
    Residual,
    Kept,
    Output,
}

/// One call. An operand for a rank's own rows lies as far into its buffer as these rows lie into the operand for all rows.
#[derive(Clone, Debug)]
pub(super) struct Case {
    form: Form,
    rank: usize,
    world: usize,
    hidden: usize,
    count: usize,
    width: Option<usize>,
    weight: Weight,
    kind: Kind,
    gemma: bool,
    residual: bool,
    /// Where x goes.
    kept: Option<Place>,
    /// Where the normed rows go.
    output: Option<Place>,
    /// First elements of the buffers, by the numbers of [`Place`].
    at: [usize; 4],
    symmetric: bool,
    captured: bool,
    algorithm: Algorithm,
    /// The algorithm and elements of a plain all-reduce before the norm, which may use the scratch of the norm.
    plain_sum: Option<(Algorithm, usize)>,
}

impl Case {
    /// `count` rows at most, as many as fit.
    pub(super) fn any(random: &mut Random, form: Form, world: usize, hidden: usize, count: usize) -> Self {
        let width = (random.below(4) == 0).then(|| hidden + random.below(20));
        let count = count.min((ROOM - 2 * OFFSETS) / width.unwrap_or(hidden));
        let count = if form == Form::AllReduce { count } else { count / world * world };
        // Rows that fit the scratch of the tests.
        let fused = if form == Form::AllReduce { 600 } else { 300 };
        let residual = random.below(4) > 0;
        let kept = match random.below(6) {
            0 | 1 if residual => Some(Place::Residual),
            2 => Some(Place::Input),
            3 => Some(Place::Kept),
            _ => None,
        };
        let output = match random.below(4) {
            0 if kept != Some(Place::Input) && width.is_none_or(|width| width == hidden) => Some(Place::Input),
            // Where the sum has no place, a row must fit the scratch.
            1 if hidden < fused || matches!(kept, Some(Place::Kept | Place::Input)) => None,
            _ => Some(Place::Output),
        };
        let kept = if output.is_none() { kept.or(Some(Place::Kept)) } else { kept };
        // Only a kernel that also norms needs no place for the sum.
        let unplaced = output.is_none() && kept == Some(Place::Residual);
        let symmetric = random.below(2) == 0;
        let named = [
            Algorithm::OneShotLL,
            Algorithm::OneShotSentinel,
            Algorithm::TwoShotLL,
            Algorithm::TwoShotSentinel,
            Algorithm::Ring,
            Algorithm::RecursiveDoubling,
            Algorithm::TwoShotZeroCopy,
        ];
        let named = &named[..if symmetric { 7 } else { 6 }];
        let scattered = match form {
            Form::ReduceScatterAllGather if symmetric && output.is_some() => Some(Algorithm::TwoShotZeroCopy),
            _ => (hidden < fused).then_some(Algorithm::TwoShotSentinel),
        };
        let algorithm = match form {
            _ if unplaced || random.below(2) == 0 => Algorithm::Auto,
            Form::AllReduce => *random.pick(named),
            _ => scattered.unwrap_or(Algorithm::Auto),
        };
        let rank = 0;
        Self {
            form,
            rank,
            world,
            hidden,
            count,
            width,
            weight: *random.pick(&[Weight::Same, Weight::Wide]),
            kind: *random.pick(&[Kind::Rms, Kind::Rms, Kind::Layer, Kind::Biased]),
            gemma: random.below(3) == 0,
            residual,
            kept,
            output,
            at: [(); 4].map(|()| if random.below(2) == 0 { 0 } else { random.below(OFFSETS) }),
            symmetric,
            captured: random.below(3) == 0,
            algorithm,
            plain_sum: (random.below(3) == 0).then(|| (*random.pick(&named[1..4]), random.below(9000))),
        }
    }

    fn width(&self) -> usize {
        self.width.unwrap_or(self.hidden)
    }

    /// Where in its buffer an operand of all rows is.
    fn all(&self, place: Place, row: usize) -> Range<usize> {
        let start = self.at[place as usize];
        start..start + self.count * row
    }

    /// The rows of this rank's share, of `row` elements each, among all rows.
    fn share(&self, row: usize) -> Range<usize> {
        let (first, count) = match self.form {
            Form::AllReduce => (0, self.count),
            _ => (self.rank * (self.count / self.world), self.count / self.world),
        };
        first * row..(first + count) * row
    }

    /// Where in its buffer an operand of this rank's rows is.
    fn own(&self, place: Place, row: usize) -> Range<usize> {
        let (start, share) = (self.at[place as usize], self.share(row));
        start + share.start..start + share.end
    }

    /// The rows that this rank norms.
    fn normed(&self) -> Range<usize> {
        match self.form {
            Form::ReduceScatterAllGather => 0..self.count * self.width(),
            _ => self.share(self.width()),
        }
    }

    fn norm(&self) -> Norm {
        let weight_offset = if self.gemma { 1.0 } else { 0.0 };
        match self.kind {
            Kind::Rms => RmsNorm::new(EPSILON).weight_offset(weight_offset).into(),
            Kind::Layer | Kind::Biased => LayerNorm::new(EPSILON).weight_offset(weight_offset).into(),
        }
    }

    /// Where in the buffers of the weights the bias is.
    fn bias(&self) -> Option<Range<usize>> {
        (self.kind == Kind::Biased).then_some(self.hidden..2 * self.hidden)
    }

    /// The sum, in the order of the algorithm. Where rows of a padded output hold it, each row is a message.
    fn sum<T: Real + Sample>(&self, data: &Data<T>) -> Vec<T> {
        let by_rows = !matches!(self.kept, Some(Place::Kept | Place::Input)) && self.width() != self.hidden;
        let elems = self.count * self.hidden;
        let message = if by_rows { self.hidden } else { elems };
        let of = |start: usize| match self.algorithm {
            _ if self.form != Form::AllReduce => data.sums[start..start + message].to_vec(),
            Algorithm::Auto => data.sums[start..start + message].to_vec(),
            named => data.expected(named, Reduction::Sum, start, message),
        };
        let messages = elems.checked_div(message).unwrap_or(0);
        (0..messages).flat_map(|number| of(self.at[0] + number * message)).collect()
    }
}

/// The buffers of one rank, reused by all cases, in the order of [`Place`].
pub(super) struct Bench<'a, T: Element> {
    rank: &'a Rank,
    data: &'a Data<T>,
    residual: &'a [T],
    symmetric: [SymmetricBuffer<T>; 4],
    plain: [DeviceBuffer<T>; 4],
    /// For plain all-reduces.
    summed: DeviceBuffer<T>,
    weight: DeviceBuffer<T>,
    wide_weight: DeviceBuffer<f32>,
    /// The values of both weights.
    weights: [Vec<f32>; 2],
}

/// Weights, which 16-bit types can hold.
fn weights<T: Real + Sample>(hidden: usize) -> Vec<T> {
    let mut random = Random(9);
    (0..hidden).map(|_| T::of_single(random.below(4096) as f32 / 1024.0 - 1.5)).collect()
}

impl<'a, T: Real + Sample> Bench<'a, T> {
    /// Collective.
    pub(super) fn new(rank: &'a Rank, data: &'a Data<T>, residual: &'a [T]) -> Self {
        let symmetric = [(); 4].map(|()| rank.communicator.symmetric::<T>(ROOM).unwrap());
        let plain = [(); 4].map(|()| DeviceBuffer::<T>::new(&rank.device, ROOM).unwrap());
        let weight = DeviceBuffer::from_slice(&weights::<T>(ROOM), &rank.stream).unwrap();
        let same = weights::<T>(ROOM).into_iter().map(T::single).collect();
        // Bits that no 16-bit type can hold.
        let wide: Vec<f32> = weights::<f32>(ROOM).iter().map(|weight| weight * 1.000_123).collect();
        let wide_weight = DeviceBuffer::from_slice(&wide, &rank.stream).unwrap();
        let summed = DeviceBuffer::new(&rank.device, ROOM).unwrap();
        Self { rank, data, residual, symmetric, plain, summed, weight, wide_weight, weights: [same, wide] }
    }

    /// Runs a case and compares all four whole buffers with their expected contents.
    pub(super) fn check(&self, case: &Case) {
        let case = &Case { rank: self.rank.rank(), ..case.clone() };
        let stream = &self.rank.stream;
        let filler: Vec<T> = (0..ROOM).map(|index| T::sample(index as u64 * 7)).collect();
        let before = [&self.data.inputs[self.rank.rank()], self.residual, &filler, &filler];
        let mut expected = before.map(<[T]>::to_vec);
        let weights = &self.weights[case.weight as usize];
        let (weight, bias) = (&weights[..case.hidden], case.bias().map(|bias| &weights[bias]));
        let residual = case.residual.then(|| &self.residual[case.all(Place::Residual, case.hidden)]);
        let x = norm::with_residual(&case.sum(self.data), residual);
        let normed = norm::padded(&norm::biased(&x, weight, bias, case.norm()), case.hidden, case.width());
        if let Some(place) = case.kept {
            expected[place as usize][case.own(place, case.hidden)].copy_from_slice(&x[case.share(case.hidden)]);
        }
        if let Some(place) = case.output {
            let (start, rows) = (case.at[place as usize], case.normed());
            expected[place as usize][start + rows.start..start + rows.end].copy_from_slice(&normed[rows]);
        }
        let context = (T::DTYPE, self.rank.rank(), self.rank.world(), case);
        for (number, before) in before.into_iter().enumerate() {
            match case.symmetric {
                true => self.symmetric[number].write(before, stream).unwrap(),
                false => self.plain[number].write(before, stream).unwrap(),
            }
        }
        self.summed.write(before[0], stream).unwrap();
        self.run(case).unwrap_or_else(|error| panic!("{error}: {context:?}"));
        self.rank.finish();
        for (number, expected) in expected.iter().enumerate() {
            let found = match case.symmetric {
                true => self.symmetric[number].read(stream),
                false => self.plain[number].read(stream),
            };
            assert_same(&found.unwrap(), expected, &(number, context));
        }
        let sums = case.plain_sum.map_or(0, |(_, count)| count);
        assert_same(&self.summed.read(stream).unwrap()[..sums], &self.data.sums[..sums], &context);
    }

    fn run(&self, case: &Case) -> Result<()> {
        let Rank { communicator, stream, .. } = self.rank;
        if !case.captured {
            self.sum_plainly(case, stream)?;
            return self.enqueue(case, communicator, stream);
        }
        let graph = stream.capture(|capture| {
            self.sum_plainly(case, capture)?;
            self.enqueue(case, communicator, capture)
        })?;
        graph.register()?;
        graph.launch(stream)?;
        self.rank.finish();
        Ok(())
    }

    fn enqueue<'op>(&'op self, case: &Case, communicator: &Communicator, queue: impl Queue<'op>) -> Result<()> {
        match case.symmetric {
            true => {
                let of = |place: Place, range| self.symmetric[place as usize].slice(range).unwrap();
                self.call(case, communicator, of, queue)
            }
            false => {
                let of = |place: Place, range| self.plain[place as usize].borrow().slice(range).unwrap();
                self.call(case, communicator, of, queue)
            }
        }
    }

    fn call<'op, O: Operand<'op, T>>(
        &'op self,
        case: &Case,
        communicator: &Communicator,
        of: impl Fn(Place, Range<usize>) -> O,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (weight, input) = (0..case.hidden, of(Place::Input, case.all(Place::Input, case.hidden)));
        let mut rows = match case.weight {
            Weight::Same => RowNorm::new(input, self.weight.borrow().slice(weight)?, case.norm()),
            Weight::Wide => RowNorm::new(input, self.wide_weight.borrow().slice(weight)?, case.norm()),
        };
        rows = match (case.bias(), case.weight) {
            (Some(bias), Weight::Same) => rows.bias(self.weight.borrow().slice(bias)?),
            (Some(bias), Weight::Wide) => rows.bias(self.wide_weight.borrow().slice(bias)?),
            (None, _) => rows,
        };
        if case.residual {
            rows = rows.residual(of(Place::Residual, case.own(Place::Residual, case.hidden)));
        }
        if let Some(place) = case.kept {
            rows = rows.residual_out(of(place, case.own(place, case.hidden)));
        }
        if let Some(place) = case.output {
            let (start, rows_of) = (case.at[place as usize], case.normed());
            rows = rows.output(of(place, start + rows_of.start..start + rows_of.end));
        }
        if let Some(width) = case.width {
            rows = rows.padded_to(width);
        }
        let rows = rows.algorithm(case.algorithm);
        match case.form {
            Form::AllReduce => communicator.all_reduce_norm(rows, queue),
            Form::ReduceScatter => communicator.reduce_scatter_norm(rows, queue),
            Form::ReduceScatterAllGather => communicator.reduce_scatter_norm_all_gather(rows, queue),
        }
    }

    fn sum_plainly<'op>(&'op self, case: &Case, queue: impl Queue<'op>) -> Result<()> {
        let Some((algorithm, count)) = case.plain_sum else { return Ok(()) };
        let part = || self.summed.borrow().slice(0..count);
        self.rank.communicator.all_reduce_with(algorithm, part()?, part()?, queue)
    }
}

/// Sums and norms rows in plain memory: first by an all-reduce and a norm in a group of this rank alone, then by one
/// call. Asserts equal bits.
pub(super) fn as_two_calls<T: Real + Sample>(rank: &Rank, alone: &Communicator, data: &Data<T>, algorithm: Algorithm) {
    let (stream, hidden) = (&rank.stream, 1000);
    let input = DeviceBuffer::from_slice(&data.inputs[rank.rank()], stream).unwrap();
    let weight = DeviceBuffer::from_slice(&weights::<T>(hidden), stream).unwrap();
    let residual = DeviceBuffer::from_slice(&weights::<T>(input.len()), stream).unwrap();
    let [sum, x, y, fused_x, fused_y] = [(); 5].map(|()| DeviceBuffer::<T>::new(&rank.device, input.len()).unwrap());
    rank.communicator.all_reduce_with(algorithm, &input, &sum, stream).unwrap();
    rank.finish();
    let rows = RowNorm::new(&sum, &weight, RmsNorm::new(EPSILON)).residual(&residual).residual_out(&x).output(&y);
    alone.all_reduce_norm(rows, stream).unwrap();
    let rows = RowNorm::new(&input, &weight, RmsNorm::new(EPSILON)).residual(&residual).residual_out(&fused_x);
    rank.communicator.all_reduce_norm(rows.output(&fused_y).algorithm(algorithm), stream).unwrap();
    rank.finish();
    for (one, other) in [(&x, &fused_x), (&y, &fused_y)] {
        assert_same(&one.read(stream).unwrap(), &other.read(stream).unwrap(), &algorithm);
    }
}

/// The bits of a normed row at `place` among `count` rows.
pub(super) fn among_others<T: Real + Sample>(
    rank: &Rank,
    row: &[T],
    count: usize,
    place: usize,
    algorithm: Algorithm,
) -> Vec<u64> {
    let (stream, hidden) = (&rank.stream, row.len());
    let buffer = rank.communicator.symmetric::<T>(count * hidden).unwrap();
    let weight = DeviceBuffer::from_slice(&weights::<f32>(hidden), stream).unwrap();
    let mut random = Random(count as u64);
    let mut values: Vec<T> = (0..count * hidden).map(|_| T::sample(random.next())).collect();
    values[place * hidden..][..hidden].copy_from_slice(row);
    buffer.write(&values, stream).unwrap();
    let rows = RowNorm::new(&buffer, &weight, RmsNorm::new(EPSILON)).output(&buffer).algorithm(algorithm);
    rank.communicator.all_reduce_norm(rows, stream).unwrap();
    rank.finish();
    let found = buffer.read(stream).unwrap();
    found[place * hidden..][..hidden].iter().map(|value| value.bits()).collect()
}

/// Rows of many elements, in place, with a residual in place.
pub(super) fn long<T: Real + Sample>(rank: &Rank, data: &Data<T>, hidden: usize, weight: Weight) {
    let stream = &rank.stream;
    let input = &data.inputs[rank.rank()];
    let (buffer, before) = (rank.communicator.symmetric::<T>(input.len()).unwrap(), weights::<T>(input.len()));
    let residual = DeviceBuffer::from_slice(&before, stream).unwrap();
    let (same, wide) = (weights::<T>(hidden), weights::<f32>(hidden));
    let of_same = DeviceBuffer::from_slice(&same, stream).unwrap();
    let of_wide = DeviceBuffer::from_slice(&wide, stream).unwrap();
    buffer.write(input, stream).unwrap();
    let norm = RmsNorm::gemma(EPSILON);
    let rows = match weight {
        Weight::Same => RowNorm::new(&buffer, &of_same, norm),
        Weight::Wide => RowNorm::new(&buffer, &of_wide, norm),
    };
    let rows = rows.residual(&residual).residual_out(&residual).output(&buffer);
    rank.communicator.all_reduce_norm(rows, stream).unwrap();
    rank.finish();
    let weight = match weight {
        Weight::Same => same.iter().map(|weight| weight.single()).collect::<Vec<_>>(),
        Weight::Wide => wide,
    };
    let x = norm::with_residual(&data.sums, Some(&before));
    assert_same(&residual.read(stream).unwrap(), &x, &hidden);
    assert_same(&buffer.read(stream).unwrap(), &norm::normed(&x, &weight, norm), &hidden);
}
