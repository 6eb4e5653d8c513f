//! Where to meet: ports, host names, ids.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use symmetra::Error;
use symmetra::bootstrap::{Tcp, UniqueId};

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
    let far = config(free_address(), 0, 2, 1.0).address("192.0.2.1:29500".into());
    let message = invalid(Tcp::connect(far));
    assert!(message.contains("192.0.2.1") && message.contains("`bind` (SYMMETRA_BIND)"), "{message}");
    let every = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let address = free_address();
    on_threads(2, |rank| converse(&mut Tcp::connect(config(address, rank, 2, 10.0).bind(every)).unwrap()));
}

#[test]
fn malformed_addresses_are_named() {
    for address in ["localhost", "localhost:0", "127.0.0.1:99999", "[::1]"] {
        let bad = config(free_address(), 0, 2, 1.0).address(address.into());
        let message = invalid(Tcp::connect(bad));
        assert!(message.contains(&format!("`{address}`")), "{message}");
    }
    let nowhere = config(free_address(), 0, 2, 5.0).address("nowhere.invalid:29500".into());
    let error = Tcp::connect(nowhere).err().unwrap().to_string();
    assert!(error.contains("nowhere.invalid"), "{error}");
}

#[test]
fn host_names_are_resolved() {
    let address = format!("localhost:{}", free_address().port());
    on_threads(2, |rank| {
        converse(&mut Tcp::connect(config(free_address(), rank, 2, 10.0).address(address.clone())).unwrap());
    });
}

/// An address of this host other than loopback. Sends nothing.
fn beyond_loopback() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[test]
fn pitfall_35_ranks_meet_by_an_id_beyond_loopback() {
    let mut places = vec!["lo".to_owned(), "127.0.0.1".to_owned(), "127.0.0.2".to_owned()];
    match beyond_loopback() {
        Some(address) => places.push(address.to_string()),
        None => eprintln!("skipped: this host has loopback addresses alone"),
    }
    for place in places {
        let id = UniqueId::listen_at(&place).unwrap();
        let text = id.to_string();
        let at = if place == "lo" { "127.0.0.1" } else { &place };
        assert!(text.starts_with(&format!("{at}:")), "{place}: {}", text.split('/').next().unwrap());
        let own = std::sync::Mutex::new(Some(id));
        on_threads(3, |rank| {
            let id = if rank == 0 { own.lock().unwrap().take().unwrap() } else { text.parse().unwrap() };
            converse(&mut Tcp::from_id(id, rank, 3, Instant::now() + Duration::from_secs(10)).unwrap());
        });
    }
}

/// A stranger that has the address but not the secret is kept out, and delays no rank.
#[test]
fn pitfall_35_an_id_keeps_strangers_out() {
    let place = beyond_loopback().map_or_else(|| "lo".to_owned(), |address| address.to_string());
    let id = UniqueId::listen_at(&place).unwrap();
    let text = id.to_string();
    let forged: UniqueId =
        format!("{}/{}", text.split('/').next().unwrap(), "0123456789abcdef".repeat(2)).parse().unwrap();
    let (own, forged) = (std::sync::Mutex::new(Some(id)), std::sync::Mutex::new(Some(forged)));
    let within = || Instant::now() + Duration::from_secs(10);
    on_threads(3, |rank| match rank {
        0 => converse(&mut Tcp::from_id(own.lock().unwrap().take().unwrap(), 0, 2, within()).unwrap()),
        1 => {
            std::thread::sleep(Duration::from_millis(200));
            converse(&mut Tcp::from_id(text.parse().unwrap(), 1, 2, within()).unwrap());
        }
        _ => {
            let error = Tcp::from_id(forged.lock().unwrap().take().unwrap(), 1, 2, within()).unwrap_err();
            assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
        }
    });
}

#[test]
fn an_interface_that_this_host_has_not_is_named_beside_those_it_has() {
    for place in ["eth99", "", "192.0.2.1", "0.0.0.0", "2001:db8::1", "127.0.0.1:80"] {
        let message = invalid(UniqueId::listen_at(place));
        assert!(message.contains(&format!("the interface is `{place}`")), "{message}");
        assert!(message.contains("lo (127.0.0.1"), "{message}");
    }
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
