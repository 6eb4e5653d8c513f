//! How the ranks of an environment meet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use crate::bootstrap::tcp::resolve;
use crate::bootstrap::{Bootstrap, Local, Tcp, TcpConfig};
use crate::error::{Error, Result};

/// How ranks meet.
#[non_exhaustive]
pub enum InitMethod {
    /// `env://`: at `MASTER_ADDR` and `MASTER_PORT`.
    Env,
    /// `tcp://host:port`: rank 0 listens there. `SYMMETRA_SECRET` gives the secret, `SYMMETRA_BIND` the interface.
    Tcp(String),
    /// `file://path`: in this private directory of the user, by [`Local`]. Ranks of one host.
    File(PathBuf),
    /// A bootstrap object of the program, which also provides rank and world size.
    ///
    /// If all ranks are on one host, the object is dropped when they have met; otherwise with the environment and its
    /// coordinators. After a group has failed, a thread of this crate holds the object in
    /// [`all_gather`](Bootstrap::all_gather) until every other rank has failed or closed too, or the call fails; the
    /// call's deadline is a day. The thread then drops the object, possibly long after the environment: healthy ranks
    /// would report a rank that gave up earlier as lost.
    Bootstrap(Box<dyn Bootstrap>),
}

impl InitMethod {
    /// An init method with a bootstrap object of the program.
    pub fn bootstrap(bootstrap: impl Bootstrap + 'static) -> Self {
        Self::Bootstrap(Box::new(bootstrap))
    }

    /// The rank and world size of a bootstrap object.
    pub(super) fn told(&self) -> Option<(usize, usize)> {
        match self {
            Self::Bootstrap(bootstrap) => Some((bootstrap.rank(), bootstrap.world_size())),
            Self::Env | Self::Tcp(_) | Self::File(_) => None,
        }
    }

    /// The address of this host from which it reaches rank 0, if the method names rank 0's address. Sends nothing to rank 0, and
    /// asks the resolver until `deadline` at most.
    pub(super) fn local_address(&self, deadline: Instant) -> Option<IpAddr> {
        let address = match self {
            Self::Env => TcpConfig::address_from_env().ok()?,
            Self::Tcp(address) => address.clone(),
            Self::File(_) | Self::Bootstrap(_) => return None,
        };
        let to = resolve(&address, deadline).ok()?.into_iter().next()?;
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    /// Blocks until every rank has connected.
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
            Self::Bootstrap(_) => out.write_str("a bootstrap object"),
        }
    }
}

/// The text of [`Display`](fmt::Display). An object, and a path that is not UTF-8, are errors.
impl Serialize for InitMethod {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Bootstrap(_) => Err(ser::Error::custom("an init method that is an object has no text")),
            Self::File(path) if path.to_str().is_none() => {
                Err(ser::Error::custom(format_args!("the path {} is not UTF-8", path.display())))
            }
            method => out.collect_str(method),
        }
    }
}

impl<'de> Deserialize<'de> for InitMethod {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        crate::settings::from_text(input)
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
        let now = Instant::now();
        assert_eq!(InitMethod::Tcp("127.0.0.1:2900".into()).local_address(now), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(InitMethod::File("/run/ranks".into()).local_address(now), None);
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
