//! Where to meet: ports, host names, ids.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use symmetra::bootstrap::{Tcp, TcpConfig, UniqueId};

use crate::{config, converse, free_address, invalid, on_threads, words};

#[test]
fn a_port_in_use_is_said_plainly() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let message = words(Tcp::connect(config(address, 0, 2, 1.0)));
    assert!(message.contains(&format!("port {} of 127.0.0.1 is in use", address.port())), "{message}");
}

#[test]
fn pitfall_35_an_address_that_is_not_loopback_needs_a_bind() {
    let far = TcpConfig { address: "192.0.2.1:29500".into(), ..config(free_address(), 0, 2, 1.0) };
    let message = invalid(Tcp::connect(far));
    assert!(message.contains("192.0.2.1") && message.contains("`bind` (SYMMETRA_BIND)"), "{message}");
    let every = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let address = free_address();
    on_threads(2, |rank| {
        converse(&mut Tcp::connect(TcpConfig { bind: every, ..config(address, rank, 2, 10.0) }).unwrap())
    });
}

#[test]
fn malformed_addresses_are_named() {
    for address in ["localhost", "localhost:0", "127.0.0.1:99999", "[::1]"] {
        let bad = TcpConfig { address: address.into(), ..config(free_address(), 0, 2, 1.0) };
        let message = invalid(Tcp::connect(bad));
        assert!(message.contains(&format!("`{address}`")), "{message}");
    }
    let nowhere = TcpConfig { address: "nowhere.invalid:29500".into(), ..config(free_address(), 0, 2, 5.0) };
    let error = Tcp::connect(nowhere).err().unwrap().to_string();
    assert!(error.contains("nowhere.invalid"), "{error}");
}

#[test]
fn host_names_are_resolved() {
    let address = format!("localhost:{}", free_address().port());
    on_threads(2, |rank| {
        converse(
            &mut Tcp::connect(TcpConfig { address: address.clone(), ..config(free_address(), rank, 2, 10.0) }).unwrap(),
        );
    });
}

#[test]
fn a_unique_id_reads_back_and_hides_its_secret() {
    let text = "127.0.0.1:40123/000102030405060708090a0b0c0d0e0f";
    let id: UniqueId = text.parse().unwrap();
    assert_eq!(id.to_string(), text);
    assert_eq!(format!("{id:?}"), "UniqueId(127.0.0.1:40123, secret hidden)");
    assert_ne!(UniqueId::listen().unwrap().to_string(), UniqueId::listen().unwrap().to_string());
    let secret = "000102030405060708090a0b0c0d0e";
    for bad in ["", "127.0.0.1:1", "localhost:1/", &format!("127.0.0.1:1/{secret}"), &format!("127.0.0.1:1/+{secret}0")]
    {
        let message = invalid(bad.parse::<UniqueId>());
        assert!(message.contains("32 hexadecimal digits") && !message.contains(secret), "{message}");
    }
    assert!(!format!("{:?}", config(free_address(), 0, 1, 1.0)).contains("115, 105"), "a secret is printed");
}
