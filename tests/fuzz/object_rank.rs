//! Objects on one rank.

use symmetra::environment::Coordinator;
use symmetra::{Communicator, Error, Result};
use symmetra_ring::{BroadcastRing, RingConfig};

use crate::objects::{By, Object, Objects};

/// Sends and receives the objects, and returns the bits of the objects that the rank has in the end. Groups have a
/// coordinator if objects need one.
pub(crate) fn run(
    objects: &Objects,
    communicator: &Communicator,
    coordinator: Option<&Coordinator>,
) -> Result<Vec<u8>> {
    let (own, root) = (communicator.rank(), objects.root);
    let apart = || coordinator.ok_or(Error::Closed);
    let mut found = Vec::new();
    match objects.by {
        By::Broadcast => {
            for number in 0..objects.count {
                let given = objects.gives(own).then(|| objects.given(own, number));
                found.extend(apart()?.broadcast_object(given.as_ref(), root)?.bits());
            }
        }
        By::Gather => {
            for number in 0..objects.count {
                let all = apart()?.gather_object(&objects.given(own, number), root)?;
                found.extend(all.into_iter().flatten().flat_map(|object| object.bits()));
            }
        }
        By::Ring { slots, chunk_bytes } => {
            let mut config = RingConfig::default();
            (config.writer, config.slots, config.chunk_bytes) = (root, slots, chunk_bytes);
            match BroadcastRing::create_in(communicator.group(), config)? {
                BroadcastRing::Writer(mut writer) => {
                    for number in 0..objects.count {
                        let object = objects.given(own, number);
                        match Objects::is_bytes(number) {
                            true => writer.send(&object.bits())?,
                            false => writer.send_value(&object)?,
                        }
                    }
                }
                BroadcastRing::Reader(mut reader) => {
                    for number in 0..objects.count {
                        match Objects::is_bytes(number) {
                            true => found.extend_from_slice(reader.receive()?),
                            false => found.extend(reader.receive_value::<Object>()?.bits()),
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}
