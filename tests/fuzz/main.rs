//! Random programs of all operations, in any order and form, against a model: ranks as threads, as processes,
//! and as processes of a C++ program. A run has the model's values, or every rank gets a typed error in time.
//!
//! `SYMMETRA_FUZZ_S` is the duration in seconds, `SYMMETRA_FUZZ_SEED` the seed of the first program.
#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/archive.rs"]
mod archive;
mod bench;
mod cpp;
#[path = "../suite/expert_cases.rs"]
mod expert_cases;
mod expert_rank;
mod experts;
mod generate;
mod grid_rank;
mod grids;
mod model;
mod narrow;
mod norm;
mod object_rank;
mod objects;
mod product_rank;
mod products;
mod program;
mod rank;
mod run;
mod shrink;
#[path = "../support/mod.rs"]
mod support;
mod text;

use std::path::Path;
use std::time::{Duration, Instant};

use program::{Program, Through};
use support::process::this;

/// The test that processes run again as ranks.
const TEST: &str = "programs_leave_what_the_model_says";

/// The number in a variable.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn programs_leave_what_the_model_says() {
    if let Some(child) = this() {
        return run::part(&child);
    }
    let seconds = Duration::from_secs(number("SYMMETRA_FUZZ_S").unwrap_or(3));
    let first = number("SYMMETRA_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    eprintln!("SYMMETRA_FUZZ_SEED={first}");
    let start = Instant::now();
    let mut seed = first;
    while seed == first || start.elapsed() < seconds {
        let through = match seed % 4 {
            1 => Through::Processes,
            3 => Through::Cpp,
            _ => Through::Threads,
        };
        let program = generate::program(seed, through);
        if let Err(wrong) = run::run(TEST, &program) {
            eprintln!("SYMMETRA_FUZZ_SEED={seed}, program {} after {:?}:\n{wrong}", seed - first, start.elapsed());
            let (program, wrong) = shrink::shrunk(&program, wrong, |program| run::run(TEST, program));
            let text = serde_json::to_string(&program).unwrap();
            panic!("SYMMETRA_FUZZ_SEED={seed} fails; pin it in tests/fuzz/pinned:\n{text}\n{wrong}");
        }
        seed += 1;
    }
    eprintln!("{} programs in {:?}", seed - first, start.elapsed());
}

/// Programs that once failed.
#[test]
fn pinned_programs_leave_what_the_model_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/pinned");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        let program: Program = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for _ in 0..5 {
            let ran = run::run(TEST, &program);
            assert_eq!(ran, Ok(()), "{}", path.display());
        }
    }
}
