//! How the ranks of an environment meet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use crate::bootstrap::{Bootstrap, Local, Tcp, TcpConfig};
use crate::error::{Error, Result};

/// Where ranks meet.
#[non_exhaustive]
pub enum InitMethod {
    /// `env://`: at `MASTER_ADDR` and `MASTER_PORT`.
    Env,
    /// `tcp://host:port`: rank 0 listens there. The secret is `SYMMETRA_SECRET`'s, the interface
    /// `SYMMETRA_BIND`'s.
    Tcp(String),
    /// `file://path`: in this directory of the user's own, as [`Local`] does. Ranks of one host.
    File(PathBuf),
    /// By an object of the caller's, which also tells rank and world size.
    ///
    /// Where all ranks are on one host it is dropped when they have met, else with the environment and its
    /// coordinators. Not so where a group has failed: then a thread of this crate's is in its
    /// [`all_gather`](Bootstrap::all_gather) until every other rank has failed or closed as well, or the call fails; its
    /// deadline is a day. That may be long after the environment is gone, and drops the object at its end: ranks
    /// that are well would take one that gave up earlier for dead.
    Bootstrap(Box<dyn Bootstrap>),
}

impl InitMethod {
    /// By an object of the caller's.
    pub fn bootstrap(bootstrap: impl Bootstrap + 'static) -> Self {
        Self::Bootstrap(Box::new(bootstrap))
    }

    /// The rank and world size that an object of the caller's says.
    pub(super) fn told(&self) -> Option<(usize, usize)> {
        match self {
            Self::Bootstrap(bootstrap) => Some((bootstrap.rank(), bootstrap.world_size())),
            Self::Env | Self::Tcp(_) | Self::File(_) => None,
        }
    }

    /// The address at which this host reaches rank 0, where one is named. Nothing is sent.
    pub(super) fn local_address(&self) -> Option<IpAddr> {
        let address = match self {
            Self::Env => TcpConfig::address_from_env().ok()?,
            Self::Tcp(address) => address.clone(),
            Self::File(_) | Self::Bootstrap(_) => return None,
        };
        let to = address.to_socket_addrs().ok()?.next()?;
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    /// Blocks until every rank is there.
    pub(super) fn connect(self, rank: usize, world_size: usize, deadline: Instant) -> Result<Box<dyn Bootstrap>> {
        let tcp = |address: String| -> Result<Box<dyn Bootstrap>> {
            Ok(Box::new(Tcp::connect(TcpConfig::at(address, rank, world_size, deadline)?)?))
        };
        match self {
            Self::Env => tcp(TcpConfig::address_from_env()?),
            Self::Tcp(address) => tcp(address),
            Self::File(path) => Ok(Box::new(Local::connect(path, rank, world_size, deadline)?)),
            Self::Bootstrap(bootstrap) => Ok(bootstrap),
        }
    }
}

impl FromStr for InitMethod {
    type Err = Error;

    fn from_str(method: &str) -> Result<Self> {
        let (scheme, rest) = method.split_once("://").unwrap_or((method, ""));
        match (scheme, rest) {
            ("env", "") if method.ends_with("://") => Ok(Self::Env),
            ("tcp", address) if !address.is_empty() => Ok(Self::Tcp(address.to_owned())),
            ("file", path) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(Error::invalid(
                "the init method",
                format_args!("`{method}`"),
                "it must be env://, tcp://host:port or file://path",
            )),
        }
    }
}

impl fmt::Display for InitMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env => out.write_str("env://"),
            Self::Tcp(address) => write!(out, "tcp://{address}"),
            Self::File(path) => write!(out, "file://{}", path.display()),
            Self::Bootstrap(_) => out.write_str("an object of the caller's"),
        }
    }
}

impl fmt::Debug for InitMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "InitMethod({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_rank_0_is_an_address_of_this_host() {
        assert_eq!(InitMethod::Tcp("127.0.0.1:2900".into()).local_address(), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(InitMethod::File("/run/ranks".into()).local_address(), None);
    }

    #[test]
    fn methods_read_back() {
        for method in ["env://", "tcp://127.0.0.1:2900", "file:///run/ranks"] {
            assert_eq!(method.parse::<InitMethod>().unwrap().to_string(), method);
        }
        for method in ["", "env", "env://x", "tcp://", "file://", "http://127.0.0.1"] {
            assert!(method.parse::<InitMethod>().unwrap_err().to_string().contains(method), "{method}");
        }
    }
}
