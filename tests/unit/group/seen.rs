//! Tests of `src/group/seen.rs`, whose module they are.

use std::io::Write;
use std::os::fd::AsFd;

use super::*;
use crate::error::Error;

fn page(protocol: u32) -> PageMapping {
    let page = PageMapping::create("test").unwrap();
    page.identity().begin(1, 3, DeviceKind::Host, protocol);
    page
}

fn file(page: &PageMapping) -> File {
    page.fd().as_fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn a_page_is_read_as_its_rank_wrote_it() {
    let page = page(PROTOCOL);
    page.identity().join(17);
    page.identity().call("tp", &[4, 6, 8]);
    let call = EnqueuedCall::of_kernel(12, 0);
    page.history.push(call, 0);
    page.waiting.store(u64::from(Operation::AllReduce.number()) | 2 << 8, Ordering::Relaxed);
    page.waited_ns.store(LONG_WAIT_NS + 5, Ordering::Relaxed);
    page.host_call.begin(6, "close");
    let [first, last] = [(); 2].map(|()| Seen::copy(&file(&page)).unwrap());
    assert_eq!((first.place(), first.group(), first.world_rank()), (Some([1, 3]), Some(17), Some(6)));
    assert_eq!((first.name().as_str(), first.kind()), ("tp", Some(DeviceKind::Host)));
    assert_eq!(first.owner(), (crate::bootstrap::host::namespace_of("self").unwrap(), std::process::id()));
    assert_eq!((first.enqueued(), first.call(&last, 0), first.call(&last, 1)), (1, Some(call), None));
    let wait = KernelWait { operation: Some(Operation::AllReduce), peer: 2, finished: 0, waited_ns: LONG_WAIT_NS + 5 };
    assert_eq!(first.kernel_wait(), Some(wait));
    page.waited_ns.store(LONG_WAIT_NS, Ordering::Relaxed);
    assert_eq!(Seen::copy(&file(&page)).unwrap().kernel_wait(), None);
    assert_eq!(first.host_wait(&last).unwrap().name, "close");
    assert!(!first.is_open() && first.failure().is_none() && first.left().is_none());
    // Another exchange has begun meanwhile.
    page.host_call.begin(7, "barrier");
    assert_eq!(first.host_wait(&Seen::copy(&file(&page)).unwrap()), None);
    page.report.write(&Error::PeerLost { rank: 2, detail: String::new() });
    assert!(Seen::copy(&file(&page)).unwrap().failure().unwrap().starts_with("rank 2 is gone"));
}

/// The wait in which the device gave up stays, with the time that the device wrote last or with the deadline.
#[test]
fn the_last_wait_of_a_device_is_kept() {
    let page = page(PROTOCOL);
    page.history.push(EnqueuedCall::of_kernel(12, 0), 0);
    let last = || Seen::live(&page).unwrap().last_wait();
    let settled = || Seen::live(&page).unwrap().has_settled();
    page.waiting.store(u64::from(Operation::AllReduce.number()) | 2 << 8, Ordering::Relaxed);
    page.waited_ns.store(LONG_WAIT_NS + 5, Ordering::Relaxed);
    assert_eq!((last(), settled()), (None, false), "the device waits");
    page.op.store(Operation::AllReduce.number(), Ordering::Relaxed);
    page.peer.store(2, Ordering::Relaxed);
    page.timeout_ns.store(70, Ordering::Relaxed);
    let wait = |waited_ns| Some(KernelWait { operation: Some(Operation::AllReduce), peer: 2, finished: 0, waited_ns });
    for (code, shown) in [(args::kStatusTimeout, true), (args::kStatusAborted, true), (args::kStatusMismatch, false)] {
        page.code.store(code, Ordering::Relaxed);
        assert_eq!((last(), settled()), (wait(LONG_WAIT_NS + 5).filter(|_| shown), true));
    }
    // The time is that of an earlier call.
    page.code.store(args::kStatusAborted, Ordering::Relaxed);
    page.sequence.store(1, Ordering::Relaxed);
    assert_eq!(last(), None);
    page.sequence.store(0, Ordering::Relaxed);
    page.waited_ns.store(LONG_WAIT_NS, Ordering::Relaxed);
    assert_eq!(last(), None, "a short wait");
    page.code.store(args::kStatusTimeout, Ordering::Relaxed);
    assert_eq!(last(), wait(70));
    page.stop(Stop { cause: Cause::Lost, by: 0, culprit: 2 });
    assert_eq!((Seen::live(&page).unwrap().lost(), last()), (Some(2), wait(70)));
    page.abort.store(0, Ordering::Relaxed);
    page.stop(Stop { cause: Cause::Differed, by: 0, culprit: 2 });
    assert_eq!((Seen::live(&page).unwrap().lost(), last()), (None, None));
}

#[test]
fn other_files_are_no_pages() {
    assert_eq!(Seen::copy(&file(&page(PROTOCOL - 1))).err(), Some(Unfit::Protocol(PROTOCOL - 1)));
    // A page that no rank has begun to use.
    assert_eq!(Seen::copy(&file(&PageMapping::create("test").unwrap())).err(), Some(Unfit::Foreign));
    let mut other = tempfile::tempfile().unwrap();
    assert_eq!(Seen::copy(&other).err(), Some(Unfit::Foreign));
    other.write_all(&[b'x'; 1000]).unwrap();
    assert_eq!(Seen::copy(&other).err(), Some(Unfit::Foreign));
    // The end of a page, and nothing before.
    let page = page(PROTOCOL);
    let mut end = [0; END_BYTES];
    file(&page).read_exact_at(&mut end, (PAGE_BYTES - END_BYTES) as u64).unwrap();
    other.write_all(&end).unwrap();
    assert_eq!(Seen::copy(&other).err(), Some(Unfit::Protocol(PROTOCOL)));
    let closed = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(Seen::copy(&closed).err(), Some(Unfit::Foreign));
}

/// A rank may be killed at any store, and a page may be torn: no words of a page make its reader fail.
#[test]
fn any_words_of_a_page_are_read() {
    let page = page(PROTOCOL);
    let mut bytes = vec![0; PAGE_BYTES];
    for round in 0_u64..40 {
        let mut state = round;
        for chunk in bytes[..PAGE_BYTES - END_BYTES].chunks_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = if round % 2 == 0 { state } else { state >> 62 };
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        pwrite(page.fd(), &bytes[..PAGE_BYTES - END_BYTES], 0).unwrap();
        let seen = Seen::copy(&file(&page)).unwrap();
        let read = (seen.place(), seen.group(), seen.kind(), seen.host(), seen.name(), seen.world_rank(), seen.ended());
        let also = (seen.kernel_wait(), seen.host_wait(&seen), seen.left(), seen.failure(), seen.call(&seen, round));
        assert!(seen.place().is_none_or(|[rank, world_size]| rank < world_size), "{read:?} {also:?}");
    }
}

#[test]
fn a_count_is_found_by_its_low_bits() {
    const WRAP: u64 = 1 << 32;
    for (low, limit, number) in
        [(5, 7, 5), (7, 7, 7), (3, WRAP + 7, WRAP + 3), (u32::MAX, WRAP + 7, WRAP - 1), (9, 7, 0)]
    {
        assert_eq!(unfolded(low, limit), number, "{low} {limit}");
    }
}
