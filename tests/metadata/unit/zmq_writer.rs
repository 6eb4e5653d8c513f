//! Tests of `crates/ring/src/zmq_writer.rs`, whose module they are.

use super::super::zmq_reader::ZmqReader;
use super::*;

const LIMIT: Duration = Duration::from_secs(30);

/// A writer, and readers 1 and 2 of other hosts with their keys. `None` without libzmq.
fn joined() -> Option<(ZmqWriter, [(ZmqReader, Keys); 2])> {
    let config = RingConfig::default();
    let mut writer = match ZmqWriter::open(&config, &[], &[1, 2]) {
        Ok(writer) => writer,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return None;
        }
    };
    let readers = [1, 2].map(|rank| {
        let keys = Keys::new().unwrap();
        writer.admit(&keys.public, rank).unwrap();
        (ZmqReader::open(&config, writer.address(), false, rank, &keys).unwrap(), keys)
    });
    writer.gather(Instant::now() + LIMIT).unwrap();
    let ready = readers.map(|(mut reader, keys)| {
        reader.ready(Instant::now() + LIMIT).unwrap();
        (reader, keys)
    });
    Some((writer, ready))
}

#[test]
fn a_reader_that_cannot_be_reached_keeps_no_message_from_the_others() {
    let Some((mut writer, [broken, (mut reader, _)])) = joined() else { return };
    drop(broken);
    let deadline = Instant::now() + LIMIT;
    let mut number = 0;
    let error = loop {
        assert!(Instant::now() < deadline, "{number} messages were sent to a reader that is gone");
        match writer.send(false, number, b"x") {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
    // The message whose send failed reached the other reader, too.
    (0..=number).for_each(|number| assert_eq!(reader.receive(number, deadline).unwrap().bytes(), b"x"));
    assert_eq!(writer.peers.iter().map(|peer| peer.left).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_reader_that_joined_connects_no_second_time() {
    let Some((mut writer, [(mut reader, keys), _other])) = joined() else { return };
    let config = RingConfig::default();
    let mut second = ZmqReader::open(&config, writer.address(), false, 1, &keys).unwrap();
    let error = second.ready(Instant::now() + LIMIT).unwrap_err();
    assert!(error.to_string().contains("refused this rank's key"), "{error}");
    writer.send(false, 0, b"x").unwrap();
    assert_eq!(reader.receive(0, Instant::now() + LIMIT).unwrap().bytes(), b"x");
}
