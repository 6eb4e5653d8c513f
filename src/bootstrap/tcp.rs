//! Ranks that meet at a TCP port.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use super::all_gather::Bootstrap;
use super::endpoint::{Endpoint, listen_tcp};
use super::frame::check_rank;
use super::handshake::NO_SECRET;
use super::star::Star;
use super::unique_id::{UniqueId, parse_secret};
use super::wait::{Heeded, WaitLimit};
use crate::error::{Error, Result};
use crate::settings::setters;
use crate::variables::{AGENT_STORE, Launcher, Process, optional, report_consequence, warn_of_variables};

/// The address at which ranks meet, and the number of this rank.
#[derive(Clone)]
#[non_exhaustive]
pub struct TcpConfig {
    /// The address at which rank 0 listens: `host:port`, the same on every rank. A host name is resolved.
    pub address: String,
    /// This rank, in `0..world_size`.
    pub rank: usize,
    /// The number of ranks, 1..=256, the same on every rank.
    pub world_size: usize,
    /// 128 bits that only the ranks know. The two sides of a connection prove to each other that they know the secret,
    /// and encrypt what they send. With all zeros, every process that can connect may join, and nothing is encrypted.
    pub secret: [u8; 16],
    /// The interface at which rank 0 listens. `None` means loopback, and is refused if `address` is not a loopback
    /// address. `0.0.0.0` is every interface. Other ranks ignore it.
    pub bind: Option<IpAddr>,
    /// The time at which to give up if a rank is missing.
    pub deadline: Instant,
}

setters! { TcpConfig {
    address: String, rank: usize, world_size: usize, secret: [u8; 16], bind: Option<IpAddr>, deadline: Instant,
} }

impl fmt::Debug for TcpConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = if self.secret == NO_SECRET { "none" } else { "hidden" };
        out.debug_struct("TcpConfig")
            .field("address", &self.address)
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("secret", &format_args!("{secret}"))
            .field("bind", &self.bind)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl TcpConfig {
    /// Rank `rank` of `world_size` that meet at `address` until `deadline`: with no secret, and at loopback.
    pub fn new(address: impl Into<String>, rank: usize, world_size: usize, deadline: Instant) -> Self {
        Self { address: address.into(), rank, world_size, secret: NO_SECRET, bind: None, deadline }
    }

    /// Reads the variables that torchrun and `symmetra launch` set. Warns once in each process about unknown
    /// `SYMMETRA_` variables. If neither `RANK` nor `WORLD_SIZE` is set, reads those of `mpirun` or `srun`
    /// (`docs/environment.md`).
    ///
    /// | variable | |
    /// |---|---|
    /// | `MASTER_ADDR`, `MASTER_PORT` | [`address`](Self::address) |
    /// | `SYMMETRA_PORT` | the port instead of `MASTER_PORT` |
    /// | `TORCHELASTIC_USE_AGENT_STORE` | `True`: torchrun keeps its store at `MASTER_PORT`. Rank 0 then listens at port 10000 + `MASTER_PORT` mod 22768 |
    /// | `RANK` | [`rank`](Self::rank) |
    /// | `WORLD_SIZE` | [`world_size`](Self::world_size) |
    /// | `SYMMETRA_SECRET` | [`secret`](Self::secret), 32 hexadecimal digits; unset: zeros |
    /// | `SYMMETRA_BIND` | [`bind`](Self::bind), an IP address; unset: `None` |
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the variable that is missing or malformed.
    pub fn from_env(deadline: Instant) -> Result<Self> {
        let ((rank, _), (world_size, _)) = Launcher::of(&Process).place(&Process, None, None)?;
        Self::at(Self::address_from_env()?, rank, world_size, deadline)
    }

    /// `MASTER_ADDR` and `MASTER_PORT`, or the port in its place, as one address.
    pub(crate) fn address_from_env() -> Result<String> {
        let (host, port) = (host_from_env()?, port_from_env()?);
        Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// Takes an address from the program. Reads secret and interface like [`from_env`](Self::from_env).
    pub(crate) fn at(address: String, rank: usize, world_size: usize, deadline: Instant) -> Result<Self> {
        warn_of_variables();
        let secret = match optional("SYMMETRA_SECRET")? {
            // The variable is set but empty: a secret was intended and lost.
            None if std::env::var_os("SYMMETRA_SECRET").is_some() => {
                return Err(Error::invalid("SYMMETRA_SECRET", "empty", "it must be 32 hexadecimal digits, or unset"));
            }
            None => NO_SECRET,
            Some(text) => parse_secret(&text)
                .ok_or_else(|| Error::invalid("SYMMETRA_SECRET", "malformed", "it must be 32 hexadecimal digits"))?,
        };
        let parse = |text: String| {
            text.parse()
                .map_err(|_| Error::invalid("SYMMETRA_BIND", format_args!("`{text}`"), "it must be an IP address"))
        };
        let bind = optional("SYMMETRA_BIND")?.map(parse).transpose()?;
        Ok(Self { address, rank, world_size, secret, bind, deadline })
    }
}

fn required(name: &str) -> Result<String> {
    let limit = "it must be set: `symmetra launch` and torchrun set it, mpirun and srun do not";
    optional(name)?.ok_or_else(|| Error::invalid(name, "unset", limit))
}

/// `MASTER_ADDR`, without the brackets of an IPv6 address.
fn host_from_env() -> Result<String> {
    let given = required("MASTER_ADDR")?;
    let host = given.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&given);
    let address = host.split('%').next().unwrap_or(host);
    let odd = |sign: char| sign.is_whitespace() || "[]/".contains(sign);
    if host.is_empty() || host.contains(odd) || (host.contains(':') && address.parse::<Ipv6Addr>().is_err()) {
        let limit = "it must be the name or the IP address of a host, without a port";
        return Err(Error::invalid("MASTER_ADDR", format_args!("`{given}`"), limit));
    }
    Ok(host.to_owned())
}

/// The port of rank 0.
fn port_from_env() -> Result<u16> {
    let parse = |name: &str, text: String| match text.parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(Error::invalid(name, format_args!("`{text}`"), "it must be in 1..=65535")),
    };
    if let Some(text) = optional("SYMMETRA_PORT")? {
        return parse("SYMMETRA_PORT", text);
    }
    let port = parse("MASTER_PORT", required("MASTER_PORT")?)?;
    let taken = optional(AGENT_STORE)?.is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1");
    Ok(if taken { beside(port) } else { port })
}

/// The port of rank 0 if `MASTER_PORT` belongs to torchrun. Neighbouring ports map to different ports, no port maps to
/// itself, and the result is below the range of ephemeral ports.
fn beside(port: u16) -> u16 {
    const LOWEST: u16 = 10_000;
    const COUNT: u16 = 32_768 - LOWEST;
    LOWEST + port % COUNT
}

/// Ranks that meet at a TCP port: processes or threads, of one host or of several.
///
/// Rank 0 listens, the others connect, and every all-gather goes through rank 0. With a secret, both sides of a
/// connection prove that they know it, and all that ranks exchange is encrypted (Noise, pattern NNpsk2,
/// ChaCha20-Poly1305); bytes that were changed in transit end the connection with [`Error::Bootstrap`]. The listener
/// lives as long as rank 0's `Tcp`, and binds loopback unless [`TcpConfig::bind`] names another interface. An unknown
/// peer that sends garbage, or nothing, is dropped without delaying the ranks.
pub struct Tcp {
    star: Star,
}

impl Tcp {
    /// Blocks until every rank has joined. Ranks may start in any order.
    ///
    /// # Errors
    /// * [`Error::InvalidArgument`]: a field out of its range, or an address that needs
    ///   [`bind`](TcpConfig::bind);
    /// * [`Error::Bootstrap`]: the port is in use; the listener does not know the secret or has another protocol
    ///   version; or rank 0 refused this rank (claimed before, another world size);
    /// * [`Error::Timeout`]: the deadline passed, on this rank or on another rank that had joined; the error names the
    ///   missing ranks, or rank 0 if rank 0 did not report them;
    /// * [`Error::PeerLost`]: a rank joined and died.
    pub fn connect(config: TcpConfig) -> Result<Self> {
        Self::connect_heeding(config, None)
    }

    fn connect_heeding(config: TcpConfig, heeded: Option<Heeded>) -> Result<Self> {
        check_rank(config.rank, config.world_size)?;
        if config.world_size == 1 {
            return Ok(Self::alone());
        }
        let addresses = resolve(&config.address, config.deadline)?;
        let met = match config.rank {
            0 => bind(&config, &addresses).and_then(|(at, listener)| Self::serve(at, listener, &config, heeded)),
            _ => Self::join(addresses, &config, heeded),
        };
        met.inspect_err(report_consequence)
    }

    /// Connects with the variables that [`TcpConfig::from_env`] reads; gives up at `deadline`.
    ///
    /// # Errors
    /// The errors of [`TcpConfig::from_env`] and of [`connect`](Self::connect).
    pub fn from_env(deadline: Instant) -> Result<Self> {
        Self::connect(TcpConfig::from_env(deadline)?)
    }

    /// Meets at the address of `id`, with its secret; blocks until every rank has joined or `deadline` has passed.
    ///
    /// Rank 0 passes the id with which it listens, the others pass the id that they parsed.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub fn from_id(id: UniqueId, rank: usize, world_size: usize, deadline: Instant) -> Result<Self> {
        Self::from_id_heeding(id, rank, world_size, deadline, None)
    }

    /// As [`from_id`](Self::from_id). Until all ranks have joined, `heeded` is called periodically, and its error ends
    /// the wait.
    pub(crate) fn from_id_heeding(
        id: UniqueId,
        rank: usize,
        world_size: usize,
        deadline: Instant,
        heeded: Option<Heeded>,
    ) -> Result<Self> {
        id.check_process()?;
        let UniqueId { address, secret, listener, .. } = id;
        let config = TcpConfig { address: address.to_string(), rank, world_size, secret, bind: None, deadline };
        match listener {
            Some(listener) if rank == 0 && world_size > 1 => {
                check_rank(rank, world_size)?;
                Self::serve(address, listener, &config, heeded)
            }
            _ => Self::connect_heeding(config, heeded),
        }
    }

    /// A world of one rank.
    pub(crate) fn alone() -> Self {
        Self { star: Star::alone() }
    }

    fn serve(address: SocketAddr, listener: TcpListener, config: &TcpConfig, heeded: Option<Heeded>) -> Result<Self> {
        if !address.ip().is_loopback() && config.secret == NO_SECRET {
            crate::log!(
                WARN,
                "rank 0 listens at {address}, beyond this host, without a secret (SYMMETRA_SECRET): \
                 whoever can connect may take a rank's place, and nothing is encrypted"
            );
        }
        let endpoint = Endpoint::Tcp(vec![address]);
        let listener = OwnedFd::from(listener);
        let limit = WaitLimit { deadline: config.deadline, heeded };
        let star = Star::listen(endpoint, listener, config.secret, config.world_size, limit)?;
        Ok(Self { star })
    }

    fn join(addresses: Vec<SocketAddr>, config: &TcpConfig, heeded: Option<Heeded>) -> Result<Self> {
        let &TcpConfig { rank, world_size, secret, deadline, .. } = config;
        let limit = WaitLimit { deadline, heeded };
        Ok(Self { star: Star::join(&Endpoint::Tcp(addresses), secret, rank, world_size, limit)? })
    }
}

impl Bootstrap for Tcp {
    fn rank(&self) -> usize {
        self.star.rank()
    }

    fn world_size(&self) -> usize {
        self.star.world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.star.all_gather(bytes, deadline)
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tcp(rank {} of {})", self.rank(), self.world_size())
    }
}

/// Rank 0's listener.
fn bind(config: &TcpConfig, addresses: &[SocketAddr]) -> Result<(SocketAddr, TcpListener)> {
    let candidates: Vec<SocketAddr> = match config.bind {
        Some(interface) => addresses.iter().take(1).map(|address| (interface, address.port()).into()).collect(),
        None => match addresses.iter().find(|address| !address.ip().is_loopback()) {
            None => addresses.to_vec(),
            Some(address) => {
                return Err(Error::invalid(
                    "address (MASTER_ADDR)",
                    format_args!("`{}`, which is {}", config.address, address.ip()),
                    "rank 0 listens at loopback addresses only, unless `bind` (SYMMETRA_BIND) names an interface",
                ));
            }
        },
    };
    let mut last = Error::bootstrap(format!("`{}` has no address", config.address));
    for address in candidates {
        match listen_tcp(address) {
            Ok(listener) => return Ok((address, listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let port = address.port();
                return Err(Error::bootstrap(format!(
                    "port {port} of {} is in use by another program or group: choose another (MASTER_PORT, or, under a launcher that uses \
                     MASTER_PORT itself, SYMMETRA_PORT)",
                    address.ip()
                )));
            }
            Err(error) => last = Error::system(format_args!("listen at {address}"), &error),
        }
    }
    Err(last)
}

/// The addresses of `host:port`. The system's resolver has no deadline, so another thread calls it.
pub(crate) fn resolve(text: &str, deadline: Instant) -> Result<Vec<SocketAddr>> {
    let limit = "it must be HOST:PORT with a port in 1..=65535";
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none_or(|port| port == 0) {
        return Err(Error::invalid("address (MASTER_ADDR, MASTER_PORT)", format_args!("`{text}`"), limit));
    }
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let start = Instant::now();
    let (answer, answers) = channel();
    let host = text.to_owned();
    let ask = move || drop(answer.send(host.to_socket_addrs().map(Iterator::collect::<Vec<_>>)));
    std::thread::Builder::new()
        .name("symmetra-resolve".into())
        .spawn(ask)
        .map_err(|error| Error::system("start a thread", &error))?;
    match answers.recv_timeout(deadline.saturating_duration_since(start)) {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(_)) => Err(Error::bootstrap(format!("the host of `{text}` has no address"))),
        Ok(Err(error)) => Err(Error::bootstrap(format!("cannot resolve the host of `{text}`: {error}"))),
        Err(RecvTimeoutError::Timeout) => {
            let doing = format!("for the resolver to find the host of `{text}`");
            Err(Error::exchange_timeout(None, start.elapsed(), doing))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::bootstrap(format!("the resolver of the host of `{text}` ended without an answer")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_beside_another_is_never_the_same_nor_that_of_a_neighbour() {
        let mut seen = std::collections::HashSet::new();
        for port in 1..=u16::MAX {
            let other = beside(port);
            assert!(other != port && (10_000..32_768).contains(&other), "{port}: {other}");
            assert!(!(29_000..=31_000).contains(&port) || seen.insert(other), "{port}: {other}");
        }
    }
}
