use symmetra::bootstrap::Threads;
use symmetra::matmul::Multiplier;
use symmetra::{Config, Device};

use super::super::LayerRace;
use super::super::candidate::LayerCandidate;
use super::super::operands::LayerInputs;
use super::super::shape::LayerShape;
use super::super::sides::LayerRound;
use super::super::way::LayerWay;
use super::super::weights::weights;
use super::*;
use crate::pace::Pace;
use crate::race::Race;
use harness::comparison::candidate::Candidate;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;

const TOKENS: usize = 4;
const LAYERS: u32 = 2;

fn race() -> LayerRace {
    LayerRace {
        shape: LayerShape { hidden: 64, heads: 4, kv_heads: 2, intermediate: 96 },
        tokens: vec![TOKENS],
        layers: LAYERS,
        ways: vec![LayerWay::AllReduce],
        pace: Pace {
            ranks: 1,
            competitors: Vec::new(),
            modes: vec![Mode::Eager],
            operations: None,
            launches: Repeats { timed: 1, warmup: 0 },
            seed: 1,
        },
    }
}

/// Every step of the last layer, and both results, spoilt one after the other in one row.
#[test]
fn a_row_that_was_not_written_is_found() {
    let (race, device) = (race(), Device::host().unwrap());
    let stream = Stream::new(&device).unwrap();
    let mut config = Config::default();
    config.heap_bytes = race.heap_bytes();
    let communicator = Communicator::open(Threads::new(1).unwrap().remove(0), &device, config).unwrap();
    let drawn = Drawn { seed: race.pace.seed, shape: race.shape, rank: 0, ranks: 1 };
    let operands = LayerOperands::new(&race, &communicator, TOKENS).unwrap();
    let inputs = LayerInputs::new(race.pace.seed, TOKENS * race.shape.hidden);
    let weights = weights(drawn, LAYERS, &communicator, &stream).unwrap();
    let round = LayerRound {
        communicator: &communicator,
        alone: &communicator,
        multiplier: &Multiplier::new(&device).unwrap(),
        halves: race.shape.halves(1),
        weights: &weights,
        operands: &operands,
    };
    let side = round.ours(LayerWay::AllReduce, None).unwrap();
    let check = Check::new(&communicator, &operands, drawn, LAYERS);
    let candidate = LayerCandidate { side, operands: &operands, inputs: &inputs, check: &check };
    candidate.prepare(&stream).unwrap();
    candidate.enqueue(LAYERS, (&stream).into()).unwrap();
    communicator.synchronize(&stream).unwrap();
    let wrong = || check.wrong(&candidate.side, &stream).unwrap();
    assert_eq!(wrong(), 0);
    let [attention, mlp] = race.shape.halves(1);
    let row = 1..2;
    let spoilt = [
        ("normed rows before", operands.normed_here(2, &row)),
        ("qkv", operands.first(2, elems(&row, attention.first.columns))),
        ("the stream after o", operands.x(3, &row)),
        ("normed rows after o", operands.normed_here(3, &row)),
        ("gate_up", operands.first(3, elems(&row, mlp.first.columns))),
        ("the stream after down", operands.x(4, &row)),
        ("normed rows after down", operands.normed_here(4, &row)),
    ];
    for (name, place) in spoilt {
        let place = place.unwrap();
        let right = place.read(&stream).unwrap();
        place.write(&vec![bf16::from_f32(7.0); place.len()], &stream).unwrap();
        assert!(wrong() > 0, "{name}");
        place.write(&right, &stream).unwrap();
        assert_eq!(wrong(), 0, "{name}");
    }
}
