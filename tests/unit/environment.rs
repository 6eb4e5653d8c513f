//! Tests of `src/environment/mod.rs`, whose module they are.

use super::*;
use crate::bootstrap::Threads;

#[test]
fn pitfall_05_a_device_that_one_rank_cannot_open_is_named_to_all() {
    let rank = |mut bootstrap: Threads| {
        let deadline = until(std::time::Duration::from_secs(30));
        let told = (bootstrap.rank(), bootstrap.world_size());
        let resolved = EnvConfig::default().resolve(Some(told)).unwrap();
        let mut met = Met::new(&mut bootstrap, resolved, deadline).unwrap();
        met.device = if told.0 == 1 { Chosen::Cuda(999) } else { Chosen::Host };
        met.open_on_one_host(bootstrap).unwrap_err()
    };
    let errors: Vec<_> = std::thread::scope(|scope| {
        let ranks = Threads::new(3).unwrap().into_iter();
        let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(move || rank(bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let own = &errors[1];
    assert!(matches!(own, Error::Unsupported { .. } | Error::InvalidArgument { .. }), "{own}");
    let told = Error::Peer { rank: 1, message: format!("open the device: {own}") };
    assert_eq!([&errors[0], &errors[2]], [&told; 2]);
}
