//! Tests of `src/engine/gloo.rs`, whose module they are.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::*;

/// The port in Gloo's address, which begins with a `sockaddr`.
fn port(address: &[u8]) -> u16 {
    u16::from_be_bytes([address[2], address[3]])
}

/// Connects, and gathers the ranks' numbers.
fn meet(wire: &mut GlooWire, other: &[u8], limit: Duration) -> Result<[u8; 32]> {
    let addresses: [&[u8]; 2] = if wire.rank() == 0 { [&[], other] } else { [other, &[]] };
    wire.connect(&addresses)?;
    let mut all = [0; 32];
    wire.all_gather(&[wire.rank() as u8; 16], &mut all, Instant::now() + limit)?;
    Ok(all)
}

#[test]
fn pitfall_35_strangers_in_the_place_of_ranks_are_an_error() {
    let deadline = Instant::now() + Duration::from_secs(20);
    let interface = Interface::open("127.0.0.1").unwrap();
    let wire = |rank| GlooWire::listen(&interface, rank, 2, deadline).unwrap();
    let noise: Vec<u8> = (0..512u32).map(|item| ((item * 7919) >> 3) as u8).collect();
    for length in [None, Some(0), Some(8), Some(40), Some(512)] {
        let (mut first, mut second) = (wire(0), wire(1));
        let addresses = [first.addresses().unwrap().swap_remove(1), second.addresses().unwrap().swap_remove(0)];
        // With strangers connected, the ranks wait in vain.
        let limit = Duration::from_millis(if length.is_some() { 500 } else { 20_000 });
        // Gloo lets one of the two connect, and does not report which.
        let strangers = length.map(|length| {
            addresses.each_ref().map(|address| {
                let mut stranger = TcpStream::connect(("127.0.0.1", port(address))).unwrap();
                stranger.write_all(&noise[..length]).unwrap();
                stranger
            })
        });
        let outcomes = std::thread::scope(|scope| {
            let peer = scope.spawn(|| meet(&mut second, &addresses[0], limit));
            [meet(&mut first, &addresses[1], limit), peer.join().unwrap()]
        });
        for outcome in outcomes {
            let refused = matches!(outcome, Err(Error::Timeout { .. } | Error::Bootstrap { .. }));
            let met = outcome.as_ref().is_ok_and(|all| all[..16] == [0; 16] && all[16..] == [1; 16]);
            assert!(if length.is_some() { refused } else { met }, "{length:?} bytes: {outcome:?}");
        }
        drop(strangers);
    }
}

/// Gloo would listen at the address of this host's name, beyond loopback.
#[test]
fn an_empty_interface_is_refused() {
    for name in ["", " "] {
        let error = Interface::open(name).map(drop).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidArgument { message } if message.contains("the interface is empty")),
            "{error}"
        );
    }
}
