//! Tests of `src/memory/multicast.rs`, whose module they are.

use std::cell::{Cell, RefCell};

use super::*;
use crate::bootstrap::Threads;
use crate::device::{Device, DeviceKind};
use crate::group::Config;
use crate::memory::Arena;

thread_local! {
    /// The failures to come of this thread's rank.
    static FAULTS: RefCell<Vec<(OpeningStep, Error)>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread's rank reports that it has no time for another try.
    static HURRY: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn is_in_a_hurry() -> bool {
    HURRY.get()
}

/// The failure of this rank in a step, if a test asks for one.
pub(super) fn fault(step: OpeningStep) -> Result<()> {
    FAULTS.with_borrow_mut(|faults| match faults.iter().position(|(at, _)| *at == step) {
        Some(at) => Err(faults.remove(at).1),
        None => Ok(()),
    })
}

const STEPS: [OpeningStep; 7] = [
    OpeningStep::Ask,
    OpeningStep::Create,
    OpeningStep::Share,
    OpeningStep::Import,
    OpeningStep::Add,
    OpeningStep::Bind,
    OpeningStep::Map,
];

/// Opens arenas of four ranks, of which rank `failing` has the failures `faults`. Returns for each rank whether
/// multicast is open, or the reason that it is not, or the error.
fn opened(asked: Asked, failing: usize, faults: &[(OpeningStep, Error)]) -> Vec<Result<Opened<()>>> {
    opened_beside(None, asked, failing, faults)
}

/// Does the same as [`opened`], with a rank that has no time for another try.
fn opened_beside(
    hurried: Option<usize>,
    asked: Asked,
    failing: usize,
    faults: &[(OpeningStep, Error)],
) -> Vec<Result<Opened<()>>> {
    let rank = |rank: usize, bootstrap: Threads| {
        if rank == failing {
            FAULTS.set(faults.to_vec());
        }
        HURRY.set(hurried == Some(rank));
        let config = Config { multicast: asked, heap_bytes: 1 << 16, ..Config::default() };
        let group = Group::open(bootstrap, &Device::host().unwrap(), config).unwrap();
        let arena = Arena::open(&group)?;
        let opened = arena.multicast().map(drop).map_err(str::to_owned);
        arena.close().unwrap();
        assert_eq!(FAULTS.take().len(), 0, "a failure that nobody met");
        Ok(opened)
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(4).unwrap().into_iter().enumerate();
        let ranks: Vec<_> = ranks.map(|(number, bootstrap)| scope.spawn(move || rank(number, bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The descriptors of multicast objects that this process has.
fn objects() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("symmetra-multicast")).count()
}

/// Held by tests that open objects, which one of them counts.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_failed_step_of_one_rank_is_the_reason_on_all() {
    let _turn = TURN.lock();
    let refused = Error::Device { code: 1, message: "refused".to_owned() };
    for (number, step) in STEPS.into_iter().enumerate() {
        let failing = number % 4;
        let faults = [(step, refused.clone())];
        let why = format!("rank {failing} cannot {}: {refused}", step.name());
        if cfg!(feature = "multicast") {
            for outcome in opened(Asked::Try, failing, &faults) {
                assert_eq!(outcome.unwrap(), Err(why.clone()));
            }
            for outcome in opened(Asked::Require, failing, &faults) {
                assert_eq!(outcome.unwrap_err(), unavailable(why.clone()));
            }
            assert_eq!(objects(), 0, "after {step:?}");
        }
    }
}

/// An environment in which the variable has a value, or none.
struct Set(Option<&'static str>);

impl crate::variables::Lookup for Set {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        Ok(self.0.filter(|_| name == "SYMMETRA_MULTICAST").map(str::to_owned))
    }
}

#[test]
fn without_its_variable_no_gpu_is_asked_for_multicast() {
    for (value, permits) in [(None, false), (Some("0"), false), (Some("yes"), false), (Some("1"), true)] {
        for asked in [Asked::Off, Asked::Try, Asked::Require] {
            let mut calls = 0;
            let outcome = permitted(asked.refusal(DeviceKind::Cuda, 4, &Set(value)), || {
                calls += 1;
                Ok(1)
            });
            let asks = permits && asked != Asked::Off && cfg!(feature = "multicast");
            assert_eq!((calls, outcome.is_ok()), (usize::from(asks), asks), "{asked} with {value:?}");
        }
    }
}

#[test]
fn a_fabric_manager_that_is_late_is_waited_for() {
    let _turn = TURN.lock();
    let late = || Error::Device { code: NOT_READY, message: "system not yet initialized".to_owned() };
    if cfg!(feature = "multicast") {
        for step in [OpeningStep::Ask, OpeningStep::Create, OpeningStep::Add] {
            let twice = [(step, late()), (step, late())];
            opened(Asked::Require, 0, &twice).into_iter().for_each(|outcome| assert_eq!(outcome.unwrap(), Ok(())));
            let ever = [(step, late()), (step, late()), (step, late()), (step, late())];
            opened(Asked::Try, 0, &ever).into_iter().for_each(|outcome| assert!(outcome.unwrap().is_err()));
        }
    }
}

/// Ranks have different deadlines: a rank that tried again alone would wait for the ranks that do not try again.
#[test]
fn ranks_try_again_only_where_all_have_time() {
    let _turn = TURN.lock();
    let late = || Error::Device { code: NOT_READY, message: "system not yet initialized".to_owned() };
    if cfg!(feature = "multicast") {
        for (step, hurried) in [(OpeningStep::Ask, 2), (OpeningStep::Create, 0), (OpeningStep::Add, 3)] {
            let why = format!("rank 0 cannot {}: {}", step.name(), late());
            for outcome in opened_beside(Some(hurried), Asked::Try, 0, &[(step, late())]) {
                assert_eq!(outcome.unwrap(), Err(why.clone()), "{step:?}, rank {hurried} has no time");
            }
        }
    }
}
