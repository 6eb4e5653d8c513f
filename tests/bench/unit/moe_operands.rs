//! Operands at a shared home: peers write what a dispatch receives, and read results.

use symmetra::bootstrap::Threads;
use symmetra::experts::Method;
use symmetra::{Communicator, Config, Device, Error, Result, Stream};

use super::*;
use crate::moe::routes::Traffic;

const SHAPE: ExpertShape = ExpertShape { experts: 4, top_k: 2, hidden: 64 };
const TOKENS: usize = 3;

/// The results of a dispatch and a combine of two ranks. The second rank's operands of each may differ from the
/// first's.
fn ends(others: [bool; 2]) -> Vec<Result<()>> {
    let of_rank = |bootstrap: Threads, rank: usize| {
        let mut config = Config::default();
        config.check_calls = true;
        let communicator = Communicator::open(bootstrap, &Device::host()?, config)?;
        let stream = Stream::new(communicator.device())?;
        let routes = Traffic::Uniform.routes(7, SHAPE, [TOKENS, 2]);
        let oracle = MoeOracle::new(SHAPE, RowOrder::BySource, &routes);
        let rows = RowPool::new(7, SHAPE.hidden);
        let inputs = MoeInputs::new((&rows, RowWire::GivenF8), &routes, rank, [TOKENS, oracle.rows(rank)]);
        let make = || {
            let form = (SHAPE, RowWire::GivenF8, RowOrder::BySource);
            let operands = MoeOperands::new(Home::Shared(&communicator), form, &oracle, [rank, TOKENS])?;
            operands.write(&inputs, &stream).map(|()| operands)
        };
        let both = [make()?, make()?];
        let [dispatch, combine] = others.map(|other| &both[usize::from(other && rank == 1)]);
        let mut settings = SHAPE.config(TOKENS);
        (settings.wire, settings.layout) = (RowWire::GivenF8.setting(), RowOrder::BySource.setting(0));
        settings.method = Method::Direct;
        let experts = communicator.experts(settings)?;
        let routed = dispatch.rows.dispatch(&experts, &dispatch.routing(), &dispatch.into(), &stream)?;
        combine.combine(&routed, &stream)?;
        communicator.synchronize(&stream)
    };
    std::thread::scope(|scope| {
        let start = |(rank, bootstrap)| scope.spawn(move || of_rank(bootstrap, rank));
        let ranks: Vec<_> = Threads::new(2).unwrap().into_iter().enumerate().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn peers_address_what_is_shared() {
    assert_eq!(ends([false, false]), [Ok(()), Ok(())]);
    for others in [[true, false], [false, true]] {
        let ends = ends(others);
        assert!(ends.iter().all(|end| matches!(end, Err(Error::Mismatch { .. }))), "{others:?}: {ends:?}");
    }
}
