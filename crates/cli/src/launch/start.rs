//! Starts one rank of a program.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::getpid;
use rustix::rand::{GetRandomFlags, getrandom};

use harness::failure::CommandFailure;
use harness::orphan;

/// The variables that all ranks get.
pub(super) struct LaunchedWorld {
    ranks: usize,
    /// A port that was free when chosen.
    port: u16,
    secret: String,
}

impl LaunchedWorld {
    pub(super) fn new(ranks: usize) -> Result<Self, CommandFailure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let address =
            listener.and_then(|listener| listener.local_addr()).map_err(CommandFailure::doing("find a free port"))?;
        let mut secret = [0; 16];
        getrandom(&mut secret, GetRandomFlags::empty()).map_err(CommandFailure::doing("draw a secret"))?;
        Ok(Self { ranks, port: address.port(), secret: format!("{:032x}", u128::from_be_bytes(secret)) })
    }

    /// Starts a rank in a process group of its own, with the settings that `add` makes. The rank ends when the calling
    /// thread does.
    pub(super) fn start(
        &self,
        rank: usize,
        program: &[OsString],
        inherit_output: bool,
        add: impl FnOnce(&mut Command),
    ) -> Result<Child, CommandFailure> {
        let Some((name, arguments)) = program.split_first() else {
            return Err(CommandFailure::usage("there is no program"));
        };
        let output = || if inherit_output { Stdio::inherit() } else { Stdio::piped() };
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(output()).stderr(output()).process_group(0);
        for (name, number) in
            [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", self.ranks), ("LOCAL_WORLD_SIZE", self.ranks)]
        {
            command.env(name, number.to_string());
        }
        command.env("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string()).env("MASTER_PORT", self.port.to_string());
        // The variables in which another launcher passed its own port.
        command.env_remove("SYMMETRA_PORT").env_remove("TORCHELASTIC_USE_AGENT_STORE");
        command.env("SYMMETRA_SECRET", &self.secret);
        add(&mut command);
        let launcher = getpid();
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe { command.pre_exec(move || Ok(orphan::end_with(launcher)?)) };
        command.spawn().map_err(CommandFailure::doing(format!("start {}", name.to_string_lossy())))
    }
}
