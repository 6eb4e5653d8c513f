//! Tests of `crates/bench/src/moe/peer.rs`, whose module they are: on ranks of the host device, where our own
//! all-to-all plays the peer.

use symmetra::Device;
use symmetra::bootstrap::Threads;

use super::super::candidate::{Ours, PhaseCandidate};
use super::super::oracle::RowPool;
use super::super::routes::Traffic;
use super::*;
use crate::pace::Pace;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::{Mode, Turns};
use harness::experts::RowExchange;

const TOKENS: usize = 5;

fn race(shape: ExpertShape, ranks: usize, wire: RowWire, layout: RowOrder) -> MoeRace {
    MoeRace {
        shape,
        tokens: vec![TOKENS],
        wire,
        layout: Some(layout),
        methods: vec![RowExchange::Auto],
        traffic: Traffic::Uniform,
        pace: Pace {
            ranks,
            competitors: Vec::new(),
            modes: Vec::new(),
            operations: None,
            launches: Repeats { timed: 1, warmup: 0 },
            seed: 7,
        },
        heap_bytes: 1 << 20,
    }
}

/// The wrong elements of each candidate of a rank, ours and the peer's, called one by one and in graphs. `spoil`: the results of the
/// first rank's experts are others than the reference knows.
fn of_rank(bootstrap: Threads, race: &MoeRace, spoil: bool) -> Vec<u64> {
    let communicator = Communicator::open(bootstrap, &Device::host().unwrap(), Config::default()).unwrap();
    let (device, rank, stream) =
        (communicator.device(), communicator.rank(), Stream::new(communicator.device()).unwrap());
    let (rows, layout, routes) =
        (RowPool::new(race.pace.seed, race.shape.hidden), race.layout(TOKENS), race.routes(TOKENS));
    let given = (spoil && rank == 0).then(|| RowPool::new(race.pace.seed + 1, race.shape.hidden));
    let ordered = |layout| MoeOrder::new(race, (&rows, given.as_ref()), (&routes, layout), [rank, TOKENS]);
    let orders = [ordered(layout), ordered(order_of(layout))];
    let [operands, of_peer] = orders.each_ref().map(|order| {
        let form = (race.shape, race.wire, order.layout);
        let operands = MoeOperands::new(Home::Own(device), form, &order.oracle, [rank, TOKENS]).unwrap();
        operands.write(&order.inputs, &stream).unwrap();
        operands
    });
    let between = PeerStep::new(race, &communicator, &orders[1], TOKENS, &stream).unwrap();
    let config = race.configs(&orders[0].oracle, TOKENS).remove(0);
    let ours = Ours { experts: communicator.experts(config).unwrap(), operands: &operands };
    let peer = MessagePeer::new(&communicator, &of_peer, &between);
    let sides: [(&str, &dyn MoeCandidate<'_>); 2] = [("ours", &ours), ("peer", &peer)];
    let of_side = |((name, side), order)| PhaseCandidate::all(name, side, order);
    let candidates: Vec<_> = sides.into_iter().zip(&orders).flat_map(of_side).collect();
    let wrong = Turns::open(&communicator, &communicator, race.pace.launches, |turns| {
        let modes = [Mode::Graph, Mode::Eager].into_iter();
        let trials = modes.flat_map(|mode| turns.trials(mode, 2, &candidates).unwrap());
        Ok(trials.map(|trial| trial.wrong).collect())
    });
    wrong.unwrap()
}

/// The wrong elements of all ranks, by rank.
fn wrong(race: &MoeRace, spoil: bool) -> Vec<Vec<u64>> {
    std::thread::scope(|scope| {
        let start = |rank| scope.spawn(move || of_rank(rank, race, spoil));
        let ranks: Vec<_> = Threads::new(race.pace.ranks).unwrap().into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Dispatch, combine, both; and for the peer the phase before them.
#[test]
fn messages_of_packed_rows_have_the_bits_of_ours() {
    let shape = |experts, top_k, hidden| ExpertShape { experts, top_k, hidden };
    for (race, what) in [
        (race(shape(8, 2, 64), 2, RowWire::F8, RowOrder::ByRank), "by rank"),
        (race(shape(8, 3, 130), 3, RowWire::F8, RowOrder::BySource), "codes by source"),
        (race(shape(2, 1, 33), 3, RowWire::Same, RowOrder::BySource), "by source, a rank without experts"),
        (race(shape(7, 3, 200), 3, RowWire::F8, RowOrder::ByExpert), "codes by expert"),
        (race(shape(8, 3, 200), 2, RowWire::GivenF8, RowOrder::ByExpert), "given codes by expert"),
        (race(shape(8, 2, 130), 3, RowWire::GivenF8, RowOrder::BySource), "given codes by source"),
        (race(shape(8, 4, 130), 2, RowWire::F8, RowOrder::Padded), "codes with padding"),
        (race(shape(5, 2, 33), 2, RowWire::Same, RowOrder::Padded), "rows with padding"),
        (race(shape(2, 1, 64), 3, RowWire::Same, RowOrder::ByExpert), "a rank without experts"),
    ] {
        assert_eq!(wrong(&race, false), vec![[0; 14]; race.pace.ranks], "{what}");
    }
}

#[test]
fn wrong_rows_and_sums_are_found() {
    for layout in [RowOrder::ByRank, RowOrder::BySource, RowOrder::Padded] {
        let found = wrong(&race(ExpertShape { experts: 4, top_k: 2, hidden: 64 }, 2, RowWire::Same, layout), true);
        // The rows of rank 0 come to both ranks, and results of its experts go to both.
        for wrong in &found {
            let [dispatch, combine, both, plan, rest @ ..] = &wrong[..7] else { panic!("{wrong:?}") };
            assert!(*dispatch > 0 && *combine > 0 && *both == dispatch + combine && *plan == 0, "{found:?}");
            // Where rows lie by source, those of the peer lie by rank, and have other results.
            let [of_peer, combine_of_peer, both_of_peer] = *rest else { panic!("{wrong:?}") };
            assert!(of_peer == *dispatch && combine_of_peer > 0, "{found:?}");
            assert_eq!(both_of_peer, dispatch + combine_of_peer, "{found:?}");
            assert!(layout == RowOrder::BySource || combine_of_peer == *combine, "{found:?}");
        }
    }
}
