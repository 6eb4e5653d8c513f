//! The 128 bytes of an id, little-endian:
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..8 | mark | other bytes are no id |
//! | 8..10 | version | of this layout |
//! | 10..12 | flags | 1: the maker listens on loopback alone |
//! | 12..14 | port | |
//! | 14..16 | family | of the outer address: 2 for IPv4, 10 for IPv6, 0 for none |
//! | 16..32 | host | a hash of the boot id of the maker's host |
//! | 32..48 | secret | |
//! | 48..56 | number | of the meeting in the maker's process: the lower 24 bits count the ids, the others name a further meeting |
//! | 56..72 | outer address | IPv4 in the first four bytes |
//! | 72..76 | scope | 0: addresses with a scope are not used |
//! | 76..128 | | zero |

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sha2::{Digest, Sha256};

use crate::bootstrap::endpoint::Endpoint;
use crate::bootstrap::frame::Fields;
use crate::bootstrap::handshake::Secret;
use crate::bootstrap::host::boot_id;
use crate::bootstrap::shown::MeetingPlace;
use crate::error::{Error, Result};

/// Bytes of an id.
pub(super) const BYTES: usize = 128;
/// The version of the layout, and of the frames between ranks and service.
pub(super) const VERSION: u16 = 1;
const MARK: [u8; 8] = *b"SYMMETRA";
const ONE_HOST: u16 = 1;
const IPV4: u16 = 2;
const IPV6: u16 = 10;
/// The bits of a number that count the ids of a process.
const COUNT_BITS: u32 = 24;
/// The most ids of a process.
pub(super) const MOST_IDS: u64 = (1 << COUNT_BITS) - 1;

/// A meeting: its number, the place of its service, and the secret of its ranks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MeetingId {
    pub(super) version: u16,
    pub(super) port: u16,
    pub(super) outer: Option<IpAddr>,
    pub(super) host: [u8; 16],
    pub(super) secret: Secret,
    pub(super) number: u64,
}

impl MeetingId {
    pub(super) fn to_bytes(&self) -> [u8; BYTES] {
        let (family, address) = match self.outer {
            None => (0, [0; 16]),
            Some(IpAddr::V4(address)) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&address.octets());
                (IPV4, bytes)
            }
            Some(IpAddr::V6(address)) => (IPV6, address.octets()),
        };
        let flags = if self.outer.is_none() { ONE_HOST } else { 0 };
        let fields = [
            &MARK[..],
            &self.version.to_le_bytes(),
            &flags.to_le_bytes(),
            &self.port.to_le_bytes(),
            &family.to_le_bytes(),
            &self.host,
            &self.secret,
            &self.number.to_le_bytes(),
            &address,
        ]
        .concat();
        let mut bytes = [0; BYTES];
        bytes[..fields.len()].copy_from_slice(&fields);
        bytes
    }

    /// # Errors
    /// [`Error::InvalidArgument`] for bytes without the mark, and for a family that is unknown.
    pub(super) fn from_bytes(bytes: &[u8; BYTES]) -> Result<Self> {
        let malformed = |what: &str| Error::invalid("an id", what, "it must be one that `Meeting::id` made");
        let mut fields = Fields(bytes);
        let mut read = || {
            fields.array().filter(|mark| *mark == MARK)?;
            let (version, _flags, port, family) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
            let (host, secret, number) = (fields.array()?, fields.array()?, fields.u64()?);
            Some((family, fields.array::<16>()?, Self { version, port, outer: None, host, secret, number }))
        };
        let (family, address, id) = read().ok_or_else(|| malformed("without the mark"))?;
        let [a, b, c, d, ..] = address;
        let outer = match family {
            0 => None,
            IPV4 => Some(Ipv4Addr::new(a, b, c, d).into()),
            IPV6 => Some(Ipv6Addr::from(address).into()),
            _ => return Err(malformed(&format!("with the address family {family}"))),
        };
        Ok(Self { outer, ..id })
    }

    /// The meeting in words, without the secret.
    pub(super) fn place(&self) -> MeetingPlace {
        let words = format!("meeting {} at port {}", self.number, self.port);
        MeetingPlace { words, open_to_hosts: self.outer.is_some() }
    }

    /// The id of a further meeting by a name, with the maker and the secret of this id.
    pub(super) fn further(&self, name: &str) -> Self {
        let digest = Sha256::new().chain_update(self.number.to_le_bytes()).chain_update(name).finalize();
        let hash = u64::from_le_bytes(std::array::from_fn(|index| digest[index])) >> COUNT_BITS;
        // Zero is the number of an id that the process has made.
        Self { number: hash.max(1) << COUNT_BITS | first(self.number), ..self.clone() }
    }

    pub(super) fn has_mark(bytes: &[u8; BYTES]) -> bool {
        bytes.starts_with(&MARK)
    }

    /// Where this process reaches the maker: on the maker's host by loopback, and else by the outer address.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] on another host than that of a maker that listens on loopback alone.
    pub(super) fn endpoint(&self) -> Result<Endpoint> {
        let inner = (self.host == own_host()).then_some(Ipv4Addr::LOCALHOST.into());
        // Containers of one host may have networks of their own.
        let addresses: Vec<SocketAddr> =
            inner.into_iter().chain(self.outer).map(|address: IpAddr| (address, self.port).into()).collect();
        match addresses.is_empty() {
            false => Ok(Endpoint::Tcp(addresses)),
            true => Err(Error::bootstrap(
                "the process that made the id is on another host and listens on loopback alone: name its interface \
                 (SYMMETRA_BIND, NCCL_SOCKET_IFNAME)",
            )),
        }
    }
}

impl fmt::Debug for MeetingId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Id({}, port {}, outer {:?}, secret hidden)", self.number, self.port, self.outer)
    }
}

/// The number of the id that a process has made, for the number of that id or of a further meeting.
pub(super) fn first(number: u64) -> u64 {
    number & MOST_IDS
}

/// A hash of this host's boot id.
pub(super) fn own_host() -> [u8; 16] {
    let digest = Sha256::digest(boot_id());
    std::array::from_fn(|index| digest[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_pinned() {
        let id = MeetingId {
            version: 1,
            port: 0x1234,
            outer: Some(Ipv4Addr::new(10, 1, 2, 3).into()),
            host: [0xaa; 16],
            secret: [0xbb; 16],
            number: 0x0807_0605_0403_0201,
        };
        let bytes = id.to_bytes();
        assert_eq!(bytes[..16], *b"SYMMETRA\x01\x00\x00\x00\x34\x12\x02\x00");
        assert_eq!((&bytes[16..32], &bytes[32..48]), (&[0xaa; 16][..], &[0xbb; 16][..]));
        assert_eq!(bytes[48..60], [1, 2, 3, 4, 5, 6, 7, 8, 10, 1, 2, 3]);
        assert_eq!(bytes[60..], [0; 68]);
        assert_eq!(MeetingId::from_bytes(&bytes).unwrap(), id);
        let address = Ipv6Addr::from(std::array::from_fn(|index| index as u8 + 1));
        let six = MeetingId { outer: Some(address.into()), ..id.clone() };
        assert_eq!((six.to_bytes()[14], &six.to_bytes()[56..72]), (10, &address.octets()[..]));
        assert_eq!(MeetingId::from_bytes(&six.to_bytes()).unwrap(), six);
        let alone = MeetingId { outer: None, ..id };
        assert_eq!(alone.to_bytes()[10..16], [1, 0, 0x34, 0x12, 0, 0]);
        assert_eq!(MeetingId::from_bytes(&alone.to_bytes()).unwrap(), alone);
    }

    #[test]
    fn further_meetings_have_numbers_of_their_own() {
        let id = MeetingId { version: 1, port: 9, outer: None, host: own_host(), secret: [1; 16], number: 7 };
        let ids = [id.further("a"), id.further("b"), id.further("a").further("b"), id.further("b").further("b"), id];
        ids.iter().for_each(|id| assert_eq!(first(id.number), 7));
        let numbers: std::collections::BTreeSet<u64> = ids.iter().map(|id| id.number).collect();
        assert_eq!(numbers.len(), ids.len());
        assert_eq!(ids[0], MeetingId { number: ids[0].number, ..ids[4].clone() });
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(MeetingId::from_bytes(&[0; BYTES]).unwrap_err().to_string().contains("without the mark"));
        let mut bytes =
            MeetingId { version: 1, port: 1, outer: None, host: [0; 16], secret: [1; 16], number: 1 }.to_bytes();
        bytes[14] = 7;
        assert!(MeetingId::from_bytes(&bytes).unwrap_err().to_string().contains("address family 7"));
    }

    #[test]
    fn a_rank_on_another_host_needs_the_outer_address() {
        let outer: IpAddr = Ipv4Addr::new(10, 1, 2, 3).into();
        let of = |outer, host| MeetingId { version: 1, port: 9, outer, host, secret: [1; 16], number: 1 }.endpoint();
        let words = |outer, host| of(outer, host).map_or_else(|error| error.to_string(), |place| place.to_string());
        assert_eq!(words(Some(outer), own_host()), "127.0.0.1:9 or 10.1.2.3:9");
        assert_eq!(words(Some(outer), [0; 16]), "10.1.2.3:9");
        assert_eq!(words(None, own_host()), "127.0.0.1:9");
        assert!(words(None, [0; 16]).contains("listens on loopback alone"));
    }
}
