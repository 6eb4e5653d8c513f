//! Tests of `crates/bench/src/moe/rank.rs`, whose module they are.

use super::*;

fn lap(times_us: [f64; 2]) -> SideLap {
    SideLap { times_us: times_us.into(), host_us: times_us.map(|time| time / 2.0).into(), wrong: 0, checksum: 0 }
}

/// Four operations of this library, whose combines follow one dispatch, then of a peer, whose phases follow one plan.
#[test]
fn what_leads_a_phase_is_taken_off() {
    let plan = Some(Phase::Plan);
    let laps = [
        ((Phase::Dispatch, None), lap([8.0, 16.0])),
        ((Phase::Combine, Some(Phase::Dispatch)), lap([7.0, 10.0])),
        ((Phase::Both, None), lap([13.0, 22.0])),
        ((Phase::Plan, None), lap([4.0, 2.0])),
        ((Phase::Dispatch, plan), lap([21.0, 20.5])),
        ((Phase::Combine, plan), lap([31.0, 30.5])),
        ((Phase::Both, plan), lap([51.0, 50.5])),
    ];
    let trials = trials(laps.into_iter(), 4);
    let times = |at: fn(&SideLap) -> &[f64]| -> Vec<[Vec<f64>; 3]> {
        let of = |trial: &Trial| [&trial.dispatch, &trial.combine, &trial.both].map(|lap| at(lap).to_vec());
        trials.iter().map(of).collect()
    };
    let ours = [vec![8.0, 16.0], vec![5.0, 6.0], vec![13.0, 22.0]];
    let peer = [vec![20.0, 20.0], vec![30.0, 30.0], vec![50.0, 50.0]];
    assert_eq!(times(|lap| &lap.times_us), [ours.clone(), peer.clone()]);
    let half = |times: [Vec<f64>; 3]| times.map(|times| times.into_iter().map(|time| time / 2.0).collect::<Vec<_>>());
    assert_eq!(times(|lap| &lap.host_us), [half(ours), half(peer)]);
}
