//! The streams of a communicator's calls.
#![allow(unsafe_code)]

use parking_lot::Mutex;
use symmetra::{Device, DeviceKind, Stream};

use crate::error::Result;

/// The most streams that a communicator keeps.
const MOST: usize = 64;

/// Streams by the handle of the program, the last used one last. The host device has no streams of the program: all calls
/// go to one stream.
pub(crate) struct Streams {
    device: Device,
    kept: Mutex<Vec<(u64, Stream)>>,
    hosts: Option<Stream>,
}

impl Streams {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let hosts = match device.kind() {
            DeviceKind::Host => Some(Stream::new(device)?),
            _ => None,
        };
        Ok(Self { device: device.clone(), kept: Mutex::default(), hosts })
    }

    /// The stream with a handle of the program.
    pub(crate) fn get(&self, handle: u64) -> Result<Stream> {
        if let Some(stream) = &self.hosts {
            return Ok(stream.clone());
        }
        let mut kept = self.kept.lock();
        if let Some(found) = kept.iter().position(|(known, _)| *known == handle) {
            let last = kept.len() - 1;
            kept.swap(found, last);
            return Ok(kept[last].1.clone());
        }
        // SAFETY: NCCL's contract is that the stream is valid during the call. The order of calls keeps no borrowed stream,
        // or leaves the stream after each call, and nothing uses a kept one until the program passes its handle again.
        let stream = unsafe { Stream::borrow_raw(&self.device, handle) }?;
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push((handle, stream.clone()));
        Ok(stream)
    }
}
