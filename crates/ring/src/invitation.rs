//! The invitation with which another program reads a ring.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The data with which a program that is not a rank reads a ring in the place of one, by ZeroMQ 4.
///
/// The program makes a DEALER with these CURVE keys (text form Z85) and no limit on received messages,
/// connects, and follows the protocol of `docs/protocols.md` under *Metadata ring*: in Python,
///
/// ```text
/// socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = server_key, public_key, secret_key
/// socket.connect(endpoint)
/// socket.send(struct.pack("<4sHHQ", b"SYMB", 1, 1, rank))
/// while True:
///     head, *payload = socket.recv_multipart()  # kind 2: ready, 3: a message, 6: the end
/// ```
///
/// and answers every message with the number of messages it took. The owner of the secret key is this reader: hand the
/// key over as a password. `Debug` hides the key.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Invitation {
    /// Where the writer listens, like `tcp://192.168.0.1:40123`.
    pub endpoint: String,
    /// The rank whose place the guest takes.
    pub rank: usize,
    /// The writer's public key.
    pub server_key: String,
    /// The guest's public key, which the writer knows.
    pub public_key: String,
    /// The guest's secret key.
    pub secret_key: String,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Invitation(rank {} at {}, keys hidden)", self.rank, self.endpoint)
    }
}
