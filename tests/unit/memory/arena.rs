//! Tests of `src/memory/arena.rs`, whose module they are.

use super::*;
use crate::bootstrap::Threads;
use crate::device::Device;
use crate::group::Config;
use crate::memory::SymmetricBuffer;

/// Checks that the error came from rank 1's device and that the other ranks got `Error::Peer`.
fn of_rank_1(arena: &Arena, result: Result<(Arc<BlockShare>, Region)>) {
    let error = result.map(drop).unwrap_err();
    match arena.group().rank() {
        1 => assert!(matches!(error, Error::Device { code: 1, .. }), "{error}"),
        _ => assert!(matches!(error, Error::Peer { rank: 1, .. }), "{error}"),
    }
}

#[test]
fn a_device_that_does_not_settle_is_an_error_of_all() {
    let rank = |bootstrap: Threads| {
        let group = Group::open(bootstrap, &Device::host().unwrap(), Config::default()).unwrap();
        let arena = Arena::open(&group).unwrap();
        let refused = || Err(Error::Device { code: 1, message: "no end".to_owned() });
        let drain = || if group.rank() == 1 { refused() } else { arena.drain() };
        // Rank 1 alone has a retired table to wait for.
        if group.rank() == 1 {
            arena.retire_slot(arena.take_slot().unwrap());
        }
        of_rank_1(&arena, arena.allocate_with(Ok(100), 0, drain, |region| arena.zero(region)));
        // All ranks have dropped the block of that allocation.
        of_rank_1(&arena, arena.allocate_with(Ok(100), 0, drain, |region| arena.zero(region)));
        arena.allocate(Ok(100), 0).unwrap();
        arena.close().unwrap();
    };
    std::thread::scope(|scope| {
        Threads::new(3).unwrap().into_iter().for_each(|bootstrap| drop(scope.spawn(|| rank(bootstrap))));
    });
}

#[test]
fn what_is_retired_while_the_device_is_waited_for_stays() {
    let alone = Threads::new(1).unwrap().remove(0);
    let group = Group::open(alone, &Device::host().unwrap(), Config::default()).unwrap();
    let arena = Arena::open(&group).unwrap();
    let [held, other] = [(); 2].map(|()| Stream::new(group.device()).unwrap());
    let buffer = SymmetricBuffer::<u8>::new(&arena, 1).unwrap();
    let slots = [(); 2].map(|()| arena.take_slot().unwrap());
    let retired = || arena.slots.lock().retired.iter().map(|retired| retired.slot).collect::<Vec<_>>();
    arena.retire_slot(slots[0]);
    buffer.signals().wait(0, 0, &held).unwrap();
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| {
            begin.send(()).unwrap();
            arena.drain()
        });
        begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        arena.retire_slot(slots[1]);
        buffer.signals().put(0, 0, &other).unwrap();
        drained.join().unwrap().unwrap();
    });
    assert_eq!(retired(), [slots[1]], "a kernel enqueued meanwhile may read it");
    arena.drain().unwrap();
    assert!(retired().is_empty());
    drop(buffer);
    arena.close().unwrap();
}

#[test]
fn a_block_that_one_rank_cannot_zero_is_free_again_on_all() {
    let rank = |bootstrap: Threads| {
        let heap_bytes = 1 << 20;
        let config = Config { heap_bytes, ..Config::default() };
        let group = Group::open(bootstrap, &Device::host().unwrap(), config).unwrap();
        let arena = Arena::open(&group).unwrap();
        let refused = || Err(Error::Device { code: 1, message: "no fill".to_owned() });
        for _ in 0..3 {
            let zero = |region| if group.rank() == 1 { refused() } else { arena.zero(region) };
            of_rank_1(&arena, arena.allocate_with(Ok(heap_bytes), 0, || arena.drain(), zero));
        }
        let (_, region) = arena.allocate(Ok(heap_bytes), 0).unwrap();
        assert_eq!(region.bytes, heap_bytes);
        arena.close().unwrap();
    };
    std::thread::scope(|scope| {
        Threads::new(3).unwrap().into_iter().for_each(|bootstrap| drop(scope.spawn(|| rank(bootstrap))));
    });
}
