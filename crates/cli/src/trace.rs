//! `symmetra trace`: the times of all calls of a program as a trace.

use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::low_level::emulate_default_handler;
use symmetra::observe::Tracer;

use harness::failure::{CommandFailure, spawn};
use harness::{output, signals, target};

/// Run a program and write the times of its calls as a trace, which https://ui.perfetto.dev opens.
///
/// The program and the processes that it starts get SYMMETRA_TIMING=1, so that kernels record when each call begins and
/// ends, also in graphs. On GPUs the program's library needs the feature `timing`. The trace has a process for each rank, a
/// thread for each group, and in each call the part that was waiting for another rank.
///
/// The command only reads the memory of the ranks. A rank keeps its last 4096 calls: calls of a rank that makes more of them
/// between two looks, which are 2 to 50 ms apart, are missing, and the command prints their number.
///
/// Signals are forwarded to the program; after its end they end this command. Exit status: that of the program (128 + the
/// signal that killed it).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  symmetra trace -- symmetra launch -n 2 -- python3 serve.py
  symmetra trace -o calls.json -- ./program --with arguments")]
pub(crate) struct Args {
    /// The file of the trace
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The time between two looks: shorter the more calls the ranks make.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(50);

/// New calls of a rank between two looks above which the next look comes sooner, a quarter of the calls that a rank keeps.
const MANY_CALLS: u64 = 1024;

/// The time between two looks for new ranks.
const NEW_RANKS: Duration = Duration::from_millis(50);

/// How long after the end of the program a signal may be that which ended the program.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// How long the program has from SIGTERM to SIGKILL if it cannot be traced.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    target::check_written("--output", &args.output)?;
    let (program, rest) = args.program.split_first().ok_or_else(|| CommandFailure::usage("a program is needed"))?;
    let starting = CommandFailure::doing(format!("start {}", program.to_string_lossy()));
    let mut signals = signals::watched()?;
    let mut child = Command::new(program).args(rest).env("SYMMETRA_TIMING", "1").spawn().map_err(starting)?;
    let pid = Pid::from_child(&child);
    let ended = Arc::new(OnceLock::<Instant>::new());
    let end_of_program = ended.clone();
    let forward = move || {
        for signal in signals.forever() {
            match (Signal::from_named_raw(signal), end_of_program.get()) {
                (Some(signal), None) => drop(kill_process(pid, signal)),
                // The signal that ended the program.
                (_, Some(at)) if at.elapsed() < SAME_SIGNAL => {}
                // A signal without an action by default ends nothing.
                _ => drop(emulate_default_handler(signal)),
            }
        }
    };
    let tracer = spawn(forward).and_then(|_| traced(pid));
    if tracer.is_err() {
        // Fails if the program has ended.
        let _ = kill_process(pid, Signal::TERM);
    }
    // From here on no signal is forwarded: the program is waited for, and another process may get its number.
    let _ = ended.set(Instant::now());
    let tracer = tracer.inspect_err(|_| end(&mut child))?;
    let [calls, lost] = tracer.calls();
    let writing = || CommandFailure::doing(format!("write {}", args.output.display()));
    let file = File::create(&args.output).map_err(writing())?;
    tracer.write(BufWriter::new(file)).map_err(writing())?;
    output::note(format_args!("{calls} calls are in {}", args.output.display()))?;
    if calls == 0 {
        output::note("no rank has timed a call: on GPUs the program's library needs the feature `timing`")?;
    }
    if lost > 0 {
        output::note(format_args!(
            "{lost} calls are missing, because ranks made more than 4096 calls between two looks"
        ))?;
    }
    let status = child.wait().map_err(CommandFailure::doing("wait for the program"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    match u8::try_from(code).unwrap_or(1) {
        0 => Ok(()),
        code => Err(CommandFailure::Program { message: format!("the program failed: {status}"), code }),
    }
}

/// Ends a program that has got SIGTERM.
fn end(child: &mut Child) {
    let end = Instant::now() + GRACE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        std::thread::sleep(LONGEST);
    }
    // Fails if the program has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// Collects the calls of a program until its end. Does not wait for the program, which stays a zombie.
fn traced(pid: Pid) -> Result<Tracer, CommandFailure> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let waiting = || CommandFailure::doing("wait for the program");
    let mut tracer = Tracer::new();
    let (mut period, mut searched) = (SHORTEST, None::<Instant>);
    loop {
        let ended = retry_on_intr(|| waitid(WaitId::Pid(pid), options)).map_err(waiting())?.is_some();
        if !ended && searched.is_none_or(|searched| searched.elapsed() >= NEW_RANKS) {
            tracer.find(pid.as_raw_pid().unsigned_abs())?;
            searched = Some(Instant::now());
        }
        let looked = tracer.look();
        if ended {
            return Ok(tracer);
        }
        period = if looked.new_calls > MANY_CALLS { period / 2 } else { period * 2 }.clamp(SHORTEST, LONGEST);
        std::thread::sleep(period);
    }
}
