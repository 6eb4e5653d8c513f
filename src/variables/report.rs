//! The report of a rank to the launcher that started it.

use std::os::unix::net::UnixDatagram;

use crate::error::Error;

/// The variable with the launcher's socket.
pub(super) const LAUNCHER: &str = "SYMMETRA_LAUNCHER";

/// Reports to `symmetra launch` that this rank fails because of another rank, so that the launcher names the other rank
/// as the cause. Does nothing for other errors and under other launchers. Does not block.
pub(crate) fn report_consequence(error: &Error) {
    use Error::{Aborted, Peer, PeerLost, Timeout};
    if !matches!(error, PeerLost { .. } | Peer { .. } | Aborted { .. } | Timeout { .. }) {
        return;
    }
    if let Some(path) = std::env::var_os(LAUNCHER)
        && let Ok(socket) = UnixDatagram::unbound()
        && socket.set_nonblocking(true).is_ok()
    {
        // The launcher may be gone, and needs no further report after the first.
        let _ = socket.send_to(&[1], path);
    }
}
