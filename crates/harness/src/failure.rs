//! How a command fails: one line of text, and one exit code for scripts.

use std::fmt::Display;
use std::io::ErrorKind;
use std::thread::JoinHandle;

use symmetra::Error;

/// Why a command failed.
#[derive(Debug)]
pub enum CommandFailure {
    /// The request is impossible: exit code 2.
    Usage(String),
    /// The command went wrong: exit code 1.
    Failed(String),
    /// The library refused: exit code 1.
    Library(Error),
    /// The program that the command ran failed: the program's exit code.
    Program { message: String, code: u8 },
    /// The reader of the output is gone: exit code 1, without a message.
    Unread,
}

impl CommandFailure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// For `map_err`: the action that the system refused.
    pub fn doing<E: Into<std::io::Error>>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("cannot {what}: {}", error.into()))
    }

    /// For `map_err` of writes to standard output.
    pub fn output(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Unread,
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }

    /// Whether the failure may only report that another rank failed.
    pub fn is_echo(&self) -> bool {
        use Error::{Aborted, Peer, PeerLost, Timeout};
        matches!(self, Self::Library(PeerLost { .. } | Peer { .. } | Aborted { .. } | Timeout { .. }))
    }

    /// Whether the rank has done nothing for which another rank may wait.
    pub fn is_refusal(&self) -> bool {
        use Error::{InvalidArgument, OutOfMemory, Unsupported};
        match self {
            Self::Library(error) => matches!(error, InvalidArgument { .. } | OutOfMemory { .. } | Unsupported { .. }),
            _ => true,
        }
    }

    pub fn message(&self) -> Option<String> {
        match self {
            Self::Usage(message) | Self::Failed(message) | Self::Program { message, .. } => Some(message.clone()),
            Self::Library(error) => Some(error.to_string()),
            Self::Unread => None,
        }
    }

    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Program { code, .. } => *code,
            Self::Failed(_) | Self::Library(_) | Self::Unread => 1,
        }
    }
}

/// Starts a thread.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, CommandFailure> {
    std::thread::Builder::new().spawn(body).map_err(CommandFailure::doing("start a thread"))
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}
