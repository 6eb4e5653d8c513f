//! Tests of `crates/bench/src/layer/sides.rs`, whose module they are: on ranks of the host device, where our own
//! collectives play the peer.

use symmetra::bootstrap::Threads;
use symmetra::{Config, Device, Stream};

use super::super::LayerRace;
use super::super::check::Check;
use super::super::contender::Racer;
use super::super::operands::Inputs;
use super::super::shape::Shape;
use super::super::weights::{Drawn, weights};
use super::*;
use harness::alone::alone;
use harness::contest::repeats::Repeats;
use harness::contest::turns::{Contender, Mode};
use harness::ranks::Task;

const RANKS: usize = 2;
const TOKENS: usize = 6;
const LAYERS: u32 = 2;

fn work(bootstrap: Threads) {
    let race = LayerRace {
        shape: Shape { hidden: 64, heads: 4, kv_heads: 2, intermediate: 96 },
        ranks: RANKS,
        tokens: vec![TOKENS],
        layers: LAYERS,
        ways: vec![Way::AllReduce],
        competitors: Vec::new(),
        modes: vec![Mode::Eager],
        launches: Repeats { timed: 1, warmup: 0 },
        seed: 3,
    };
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut config = Config::default();
    config.heap_bytes = race.heap_bytes();
    let communicator = Communicator::open(bootstrap, &device, config).unwrap();
    let drawn = Drawn { seed: race.seed, shape: race.shape, rank: communicator.rank(), ranks: RANKS };
    let operands = Operands::new(&race, &communicator, TOKENS).unwrap();
    let inputs = Inputs::new(race.seed, TOKENS * race.shape.hidden);
    let weights = weights(drawn, LAYERS, &communicator, &stream).unwrap();
    let heat = Heat {
        communicator: &communicator,
        alone: &alone(&communicator).unwrap(),
        multiplier: &Multiplier::new(&device).unwrap(),
        halves: race.shape.halves(RANKS),
        weights: &weights,
        operands: &operands,
    };
    let check = Check::new(&communicator, &operands, drawn, LAYERS);
    let mut sides = vec![heat.ours(Way::AllReduce, None).unwrap()];
    sides.extend(PeerWay::ALL.map(|way| heat.peer(way, &communicator).unwrap()));
    for side in sides {
        let racer = Racer { side, operands: &operands, inputs: &inputs, check: &check };
        racer.prepare(&stream).unwrap();
        communicator.group().barrier().unwrap();
        racer.enqueue(LAYERS, &stream).unwrap();
        communicator.synchronize(&stream).unwrap();
        assert_eq!(racer.verify(LAYERS, &stream).unwrap().wrong, 0, "{}", racer.side.name);
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
