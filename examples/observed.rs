//! Ranks that sum a vector again and again, and one rank that misbehaves: the program of docs/observe.md.
//!
//! `symmetra launch -n 4 -- target/release/examples/observed CASE RANK`, where CASE is `hang`, `slow`, `differ` or `die`.
#![allow(clippy::print_stderr)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use symmetra::bootstrap::Tcp;
use symmetra::{Communicator, Config, Device, DeviceKind, Result, Stream};

/// The call in which the rank misbehaves.
const CALL: usize = 100;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, rank] = &words[..] else {
        eprintln!("usage: observed hang|slow|differ|die RANK");
        return ExitCode::from(2);
    };
    match run(case, rank) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(case: &str, rank: &str) -> Result<()> {
    let bootstrap = Tcp::from_env(Instant::now() + Duration::from_secs(60))?;
    let local: usize = std::env::var("LOCAL_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let device = if Device::count(DeviceKind::Cuda) == 0 { Device::host()? } else { Device::cuda(local)? };
    let stream = Stream::new(&device)?;
    let communicator = Communicator::open(bootstrap, &device, Config::default())?;
    let misbehaves = rank == communicator.rank().to_string();
    let values = communicator.symmetric::<f32>(4096)?;
    for call in 0.. {
        match case {
            "hang" if misbehaves && call == CALL => std::thread::sleep(Duration::MAX),
            "slow" if misbehaves => std::thread::sleep(Duration::from_millis(5)),
            "die" if misbehaves && call == CALL => {
                // The others make the call meanwhile.
                std::thread::sleep(Duration::from_millis(500));
                std::process::abort()
            }
            _ => {}
        }
        let len = if case == "differ" && misbehaves && call == CALL { 2048 } else { 4096 };
        communicator.all_reduce_in_place(values.slice(..len)?, &stream)?;
        communicator.synchronize(&stream)?;
    }
    communicator.close()
}
