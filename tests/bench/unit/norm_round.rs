//! Tests of `crates/bench/src/norm/round.rs`, whose module they are: on two ranks of the host device, where our own
//! collectives play the peer.

use symmetra::bootstrap::Threads;
use symmetra::half::bf16;
use symmetra::{Config, Device, ScaleLayout, Stream};

use super::*;
use crate::pace::Pace;
use harness::alone::alone;
use harness::comparison::candidate::Candidate;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;
use harness::norms::NormKind;

const TOKENS: usize = 6;

fn race(op: Form, quantise: Option<&str>, way: NormWay) -> NormRace {
    NormRace {
        op,
        norm: NormKind::Rms,
        dtype: symmetra::Dtype::BF16,
        hidden: 40,
        quantise: quantise.map(|name| name.parse().unwrap()),
        tokens: vec![TOKENS],
        ways: vec![way],
        pace: Pace {
            ranks: 2,
            competitors: vec![],
            modes: vec![Mode::Eager],
            operations: None,
            launches: Repeats { timed: 1, warmup: 0 },
            seed: 7,
        },
    }
}

/// The results of the candidates of one rank: see [`wrong`].
fn of_rank(bootstrap: Threads, race: &NormRace, spoil: impl Fn(&NormOperands<bf16>, &Stream)) -> Vec<[u64; 2]> {
    let device = Device::host().unwrap();
    let communicator = Communicator::open(bootstrap, &device, Config::default()).unwrap();
    let found = of_candidates(&communicator, race, spoil);
    communicator.close().unwrap();
    found
}

fn of_candidates(
    communicator: &Communicator,
    race: &NormRace,
    spoil: impl Fn(&NormOperands<bf16>, &Stream),
) -> Vec<[u64; 2]> {
    let (alone, stream) = (alone(communicator).unwrap(), Stream::new(communicator.device()).unwrap());
    let ranks = [communicator.rank(), communicator.world_size()];
    let inputs = NormInputs::<bf16>::new(race.norm, race.pace.seed, TOKENS * race.hidden, race.hidden, ranks);
    let operands = NormOperands::new(race, communicator, TOKENS, &inputs, &stream).unwrap();
    let round = NormRound { race, communicator, alone: &alone, inputs: &inputs, operands: &operands };
    let mut candidates = round.ours().unwrap();
    // All-gathers as single calls put together scales that lie in rows.
    if race.quantise.is_none_or(|format| format.layout() == ScaleLayout::Rows) {
        candidates.push(round.peer("peer", communicator).unwrap());
    }
    let of_candidate = |candidate: &NormCandidate<'_, bf16>| {
        candidate.prepare(&stream).unwrap();
        communicator.group().barrier().unwrap();
        candidate.enqueue(3, (&stream).into()).unwrap();
        let count = || candidate.verify(3, &stream).unwrap().wrong;
        let before = count();
        if ranks[0] == 0 {
            spoil(&operands, &stream);
        }
        [before, count()]
    };
    candidates.iter().map(of_candidate).collect()
}

/// Runs three operations of each candidate, then lets rank 0 spoil an operand. Returns how many elements of each candidate are wrong
/// on rank 0, before and after.
fn wrong(race: &NormRace, spoil: impl Fn(&NormOperands<bf16>, &Stream) + Sync) -> Vec<[u64; 2]> {
    let spoil = &spoil;
    std::thread::scope(|scope| {
        let start = |rank| scope.spawn(move || of_rank(rank, race, spoil));
        let ranks: Vec<_> = Threads::new(2).unwrap().into_iter().map(start).collect();
        let mut found: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        // A peer's sum is taken as it is, with what rank 0 spoiled.
        let [others @ .., peer] = &found[1][..] else { panic!("no candidate ran") };
        assert!(others.iter().all(|wrong| *wrong == [0, 0]) && peer[0] == 0, "{found:?}");
        found.swap_remove(0)
    })
}

/// Flips a bit of an element.
fn flip(buffer: &SymmetricBuffer<bf16>, at: usize, stream: &Stream) {
    let mut values = buffer.read(stream).unwrap();
    values[at] = bf16::from_bits(values[at].to_bits() ^ 1);
    buffer.write(&values, stream).unwrap();
}

#[test]
fn a_wrong_byte_of_any_output_is_found() {
    let ops = [Form::AllReduce, Form::ReduceScatter, Form::ReduceScatterAllGather];
    let ways = ops.into_iter().flat_map(|op| [(op, NormWay::Apart), (op, NormWay::Call(Algorithm::Auto))]);
    for (norm, (op, way)) in
        [NormKind::Rms, NormKind::Layer].into_iter().flat_map(|norm| ways.clone().map(move |way| (norm, way)))
    {
        let race = |quantise| NormRace { norm, ..race(op, quantise, way) };
        // The last row that rank 0 has normed. The operation without its norm leaves nothing in the output.
        let last = if op == Form::ReduceScatter { TOKENS / 2 } else { TOKENS } * 40 - 1;
        let found = wrong(&race(None), |operands, stream| flip(&operands.output, last, stream));
        assert_eq!(found, [[0, 1], [0, 0], [0, 1]], "{norm:?} {op:?} {way}");
        // By the way itself, unquantised, without norm, and by the peer.
        let found = wrong(&race(Some("group-16-e4m3")), |operands, stream| {
            let codes = operands.codes.as_ref().unwrap();
            let (Values::E4M3(values), RowScales::Single(scales)) = (&codes.values, &codes.scales) else {
                panic!("e4m3 with scales in f32");
            };
            let mut bytes = values.read(stream).unwrap();
            let last = bytes.last_mut().unwrap();
            *last = symmetra::float8::F8E4M3::from_bits(last.to_bits() ^ 1);
            values.write(&bytes, stream).unwrap();
            let mut singles = scales.read(stream).unwrap();
            singles[0] = f32::from_bits(singles[0].to_bits() ^ 0x0100_0000);
            scales.write(&singles, stream).unwrap();
        });
        assert_eq!(found, [[0, 2], [0, 0], [0, 0], [0, 2]], "{norm:?} {op:?} {way}");
    }
}

/// The gather kernel writes codes and scales of every layout into the memory of all ranks.
#[test]
fn gathered_codes_of_every_layout_are_right() {
    let formats = [
        "static-e4m3",
        "per-token-e5m2",
        "group-32-int8-columns",
        "mxfp8",
        "mxfp4-swizzled",
        "mx-128-e4m3-packed",
        "nvfp4-swizzled",
    ];
    for format in formats {
        let race = race(Form::ReduceScatterAllGather, Some(format), NormWay::Call(Algorithm::TwoShotZeroCopy));
        std::thread::scope(|scope| {
            let race = &race;
            let start = |rank| scope.spawn(move || of_rank(rank, race, |_, _| {}));
            let ranks: Vec<_> = Threads::new(2).unwrap().into_iter().map(start).collect();
            for rank in ranks {
                assert!(rank.join().unwrap().iter().all(|wrong| *wrong == [0, 0]), "{format}");
            }
        });
    }
}

#[test]
fn a_wrong_residual_is_found() {
    for op in [Form::AllReduce, Form::ReduceScatter, Form::ReduceScatterAllGather] {
        for quantise in [None, Some("mxfp4")] {
            let found = wrong(&race(op, quantise, NormWay::Call(Algorithm::Auto)), |operands, stream| {
                let mut residual = operands.residual.read(stream).unwrap();
                residual[3] = bf16::from_f32(1e6);
                operands.residual.write(&residual, stream).unwrap();
            });
            // Without norm nothing reads the residual.
            let right: &[[u64; 2]] =
                if quantise.is_some() { &[[0, 1], [0, 1], [0, 0], [0, 1]] } else { &[[0, 1], [0, 0], [0, 1]] };
            assert_eq!(found, right, "{op:?} {quantise:?}");
        }
    }
}

#[test]
fn a_wrong_sum_is_found() {
    for op in [Form::AllReduce, Form::ReduceScatter, Form::ReduceScatterAllGather] {
        // The candidates `apart`, and the operation without its norm. A peer's sum need only be near.
        let found = wrong(&race(op, None, NormWay::Apart), |operands, stream| flip(&operands.sum, 3, stream));
        assert_eq!([found[0], found[1]], [[0, 1]; 2], "{op:?}");
        assert_eq!(found[2][0], 0, "{op:?}");
    }
}
