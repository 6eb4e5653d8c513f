//! Memory that no call knows, behind memory that calls write.

use symmetra::{Communicator, Error, Result, Stream, SymmetricBuffer};

/// Elements behind each operand.
pub(crate) const GUARD: usize = 256;
/// Bytes behind a workspace.
const CANARY: usize = 16 << 10;
/// What the bytes of a canary are.
const FILL: u8 = 0xc3;

/// Symmetric memory that is allocated right behind a workspace.
pub(crate) struct Canary(SymmetricBuffer<u8>);

impl Canary {
    /// Collective.
    pub(crate) fn new(communicator: &Communicator, stream: &Stream) -> Result<Self> {
        let buffer = communicator.symmetric(CANARY)?;
        buffer.write(&[FILL; CANARY], stream)?;
        Ok(Self(buffer))
    }

    /// Fails if the canary was written.
    pub(crate) fn check(&self, stream: &Stream) -> Result<()> {
        let bytes = self.0.read(stream)?;
        match (bytes.iter().position(|byte| *byte != FILL), bytes.iter().rposition(|byte| *byte != FILL)) {
            (Some(first), Some(last)) => {
                Err(Error::Internal { message: format!("bytes {first} to {last} behind a workspace were written") })
            }
            _ => Ok(()),
        }
    }
}
