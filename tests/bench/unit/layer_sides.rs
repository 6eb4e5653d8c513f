//! Tests of `crates/bench/src/layer/sides.rs`, whose module they are: on ranks of the host device, where our own
//! collectives play the peer.

use symmetra::bootstrap::Threads;
use symmetra::{Config, Device, Stream};

use super::super::LayerRace;
use super::super::candidate::LayerCandidate;
use super::super::check::Check;
use super::super::operands::LayerInputs;
use super::super::shape::LayerShape;
use super::super::weights::{Drawn, weights};
use super::*;
use crate::pace::Pace;
use crate::race::Race;
use harness::alone::alone;
use harness::comparison::candidate::Candidate;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;

const RANKS: usize = 2;
const TOKENS: usize = 6;
const LAYERS: u32 = 2;

fn work(bootstrap: Threads) {
    let race = LayerRace {
        shape: LayerShape { hidden: 64, heads: 4, kv_heads: 2, intermediate: 96 },
        tokens: vec![TOKENS],
        layers: LAYERS,
        ways: vec![LayerWay::AllReduce],
        pace: Pace {
            ranks: RANKS,
            competitors: Vec::new(),
            modes: vec![Mode::Eager],
            operations: None,
            launches: Repeats { timed: 1, warmup: 0 },
            seed: 3,
        },
    };
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut config = Config::default();
    config.heap_bytes = race.heap_bytes();
    let communicator = Communicator::open(bootstrap, &device, config).unwrap();
    let drawn = Drawn { seed: race.pace.seed, shape: race.shape, rank: communicator.rank(), ranks: RANKS };
    let operands = LayerOperands::new(&race, &communicator, TOKENS).unwrap();
    let inputs = LayerInputs::new(race.pace.seed, TOKENS * race.shape.hidden);
    let weights = weights(drawn, LAYERS, &communicator, &stream).unwrap();
    let round = LayerRound {
        communicator: &communicator,
        alone: &alone(&communicator).unwrap(),
        multiplier: &Multiplier::new(&device).unwrap(),
        halves: race.shape.halves(RANKS),
        weights: &weights,
        operands: &operands,
    };
    let check = Check::new(&communicator, &operands, drawn, LAYERS);
    let mut sides = vec![round.ours(LayerWay::AllReduce, None).unwrap()];
    sides.extend(PeerWay::ALL.map(|way| round.peer(way, &communicator).unwrap()));
    for side in sides {
        let candidate = LayerCandidate { side, operands: &operands, inputs: &inputs, check: &check };
        candidate.prepare(&stream).unwrap();
        communicator.group().barrier().unwrap();
        candidate.enqueue(LAYERS, (&stream).into()).unwrap();
        communicator.synchronize(&stream).unwrap();
        assert_eq!(candidate.verify(LAYERS, &stream).unwrap().wrong, 0, "{}", candidate.side.name);
    }
}

#[test]
fn the_ways_of_a_peer_are_right() {
    std::thread::scope(|scope| {
        for bootstrap in Threads::new(RANKS).unwrap() {
            scope.spawn(|| work(bootstrap));
        }
    });
}
