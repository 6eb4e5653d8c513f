//! Tests of `crates/ring/src/zmq_reader.rs`, whose module they are.

use super::*;

#[test]
fn a_writer_that_cannot_be_reached_is_an_error_at_once() {
    let keys = match Keys::new() {
        Ok(keys) => keys,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    // No rank listens at a port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tcp = Some(format!("tcp://{free}"));
    let address = ZmqAddress { tcp, ipc: None, server_key: keys.public.clone() };
    let mut zmq_reader = ZmqReader::open(&RingConfig::default(), &address, false, 1, &keys).unwrap();
    let start = Instant::now();
    let error = zmq_reader.connected(start + Duration::from_secs(30)).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::Bootstrap { .. }) && words.contains("RingConfig::bind"), "{words}");
    assert!(words.contains(&format!("cannot connect to tcp://{free}")), "{words}");
    assert!(start.elapsed() < Duration::from_secs(15));
}
