//! An address and a secret that the program passes to every rank.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use super::endpoint::listen_tcp;
use super::handshake::{Secret, random};
use super::interface::address_of;
use crate::error::{Error, Result};
use crate::fork::Maker;

/// The address at which ranks meet, and their 128-bit secret, as a string that the program passes to the other ranks.
///
/// Rank 0 makes the id with [`UniqueId::listen`] and prints it ([`Display`](fmt::Display)). The program passes the
/// text to the other ranks (environment, pipe, MPI), which parse it ([`FromStr`]). Then every rank calls
/// [`Tcp::from_id`](super::Tcp::from_id).
///
/// The text is `address:port/` and 32 hexadecimal digits, for example
/// `127.0.0.1:40123/000102030405060708090a0b0c0d0e0f`. Every process that knows the text can join: treat it as a
/// password. `Debug` hides the secret.
pub struct UniqueId {
    pub(super) address: SocketAddr,
    pub(super) secret: Secret,
    /// Present on rank 0.
    pub(super) listener: Option<TcpListener>,
    maker: Maker,
}

impl UniqueId {
    /// Refuses an id that listens in a forked child, which shares the port with its parent.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.listener.is_some() { self.maker.check("a unique id that listens") } else { Ok(()) }
    }
}

impl UniqueId {
    /// Listens at a free port of the loopback interface and draws a secret. Does not block.
    ///
    /// The port is reserved from here on: the others may connect before rank 0 calls
    /// [`Tcp::from_id`](super::Tcp::from_id).
    ///
    /// # Errors
    /// [`Error::System`] if the system gives no port or no random bytes.
    pub fn listen() -> Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    /// As [`listen`](Self::listen), at a free port of `interface`: an IP address of this host, or the name of an
    /// interface, whose first address is used, preferably an IPv4 address. Ranks on other hosts can join. Processes
    /// that do not know the id cannot join, and the traffic between ranks is encrypted.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if this host has no such address or interface; the message lists those of the host.
    /// Else the errors of [`listen`](Self::listen).
    pub fn listen_at(interface: &str) -> Result<Self> {
        Self::at(address_of(interface)?)
    }

    fn at(ip: IpAddr) -> Result<Self> {
        let system = |error: std::io::Error| Error::system(format_args!("listen at a port of {ip}"), &error);
        let listener = listen_tcp((ip, 0).into()).map_err(system)?;
        let address = listener.local_addr().map_err(system)?;
        Ok(Self { address, secret: random()?, listener: Some(listener), maker: Maker::this() })
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/", self.address)?;
        self.secret.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "UniqueId({}, secret hidden)", self.address)
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    /// Parses the text of [`Display`](fmt::Display). The message of an error does not repeat the secret.
    fn from_str(text: &str) -> Result<Self> {
        let limit = "it must be ADDRESS:PORT/ and 32 hexadecimal digits";
        let (address, secret) = text
            .split_once('/')
            .ok_or_else(|| Error::invalid("unique id", format_args!("{} bytes without a /", text.len()), limit))?;
        let address = address.parse().map_err(|_| Error::invalid("address of a unique id", address, limit))?;
        let secret = parse_secret(secret).ok_or_else(|| Error::invalid("secret of a unique id", "malformed", limit))?;
        Ok(Self { address, secret, listener: None, maker: Maker::this() })
    }
}

/// The secret written as 32 hexadecimal digits.
pub(super) fn parse_secret(text: &str) -> Option<Secret> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}
