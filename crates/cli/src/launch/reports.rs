//! Which ranks failed because another rank failed: the library of each rank reports that to a socket of this command.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use symmetra::bootstrap::Directory;

/// A socket for each rank. Without a folder for sockets there is no socket, and every failed rank counts as the cause.
pub(super) struct Reports {
    sockets: Vec<UnixDatagram>,
    directory: Option<Directory>,
}

impl Reports {
    pub(super) fn new(ranks: usize) -> Self {
        let Ok(directory) = Directory::new() else { return Self { sockets: Vec::new(), directory: None } };
        let open = |rank: usize| {
            let socket = UnixDatagram::bind(directory.path().join(rank.to_string()))?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let sockets = (0..ranks).map(open).collect::<Result<_, _>>().unwrap_or_default();
        Self { sockets, directory: Some(directory) }
    }

    /// The variable by which a rank finds its socket.
    pub(super) fn variable(&self, rank: usize) -> Option<(&'static str, PathBuf)> {
        let directory = self.directory.as_ref().filter(|_| rank < self.sockets.len())?;
        Some(("SYMMETRA_LAUNCHER", directory.path().join(rank.to_string())))
    }

    /// Whether a rank reported that it failed because another rank failed. A report comes before the end of its rank.
    pub(super) fn follows(&self, rank: usize) -> bool {
        self.sockets.get(rank).is_some_and(|socket| socket.recv(&mut [0]).is_ok())
    }
}
