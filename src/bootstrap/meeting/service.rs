//! The thread and the listeners of the meetings of this process.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::PollFd;

use super::id::{MOST_IDS, MeetingId, VERSION, first, own_host};
use super::message::MOST_FRAME_BYTES;
use super::party::Party;
use crate::bootstrap::endpoint::{Endpoint, listen_tcp};
use crate::bootstrap::handshake::{Secret, random};
use crate::bootstrap::interface::outer_address;
use crate::bootstrap::lobby::{Lobby, Newcomer};
use crate::bootstrap::wait::{LONGEST, until, wait};
use crate::error::{Error, Result};
use crate::fork::Maker;

/// How often the service looks for a port that is free on both interfaces.
const ATTEMPTS: usize = 16;
/// The pause after an error of the system, for example too many open files.
const PAUSE: Duration = Duration::from_millis(20);

/// The secrets of the ids that this process has made, by number.
type IdSecrets = Arc<Mutex<HashMap<u64, Secret>>>;

/// The service of this process, started by the first id.
pub(super) struct Service {
    maker: Maker,
    port: u16,
    outer: Option<IpAddr>,
    host: [u8; 16],
    secrets: IdSecrets,
}

impl Service {
    /// Makes an id, whose ranks this process serves from now on. `interfaces`: see
    /// [`Meeting::id`](super::Meeting::id).
    pub(super) fn id(interfaces: Option<&str>) -> Result<MeetingId> {
        static SERVICE: Mutex<Option<Service>> = Mutex::new(None);
        let mut service = SERVICE.lock();
        // A forked child leaves the service to its parent, and starts its own.
        let running = match service.take().filter(|service| service.maker.is_here()) {
            Some(running) => running,
            None => Self::start(outer_address(interfaces)?)?,
        };
        service.insert(running).add()
    }

    /// Starts the thread, which listens on loopback and at `outer`.
    fn start(outer: Option<IpAddr>) -> Result<Self> {
        let (port, listeners) = listen(outer)?;
        let secrets = IdSecrets::default();
        let known = secrets.clone();
        let addresses: Vec<SocketAddr> =
            [Some(Ipv4Addr::LOCALHOST.into()), outer].into_iter().flatten().map(|ip| (ip, port).into()).collect();
        let keys = Box::new(move |number| known.lock().get(&first(number)).copied());
        let lobby = Lobby::new(Endpoint::Tcp(addresses), listeners, keys);
        let mut meetings = Meetings { lobby, parties: HashMap::new() };
        std::thread::Builder::new()
            .name("symmetra-meeting".to_owned())
            .spawn(move || meetings.serve())
            .map_err(|error| Error::system("start the thread of the meetings", &error))?;
        Ok(Self { maker: Maker::this(), port, outer, host: own_host(), secrets })
    }

    fn add(&self) -> Result<MeetingId> {
        let secret = random()?;
        let mut secrets = self.secrets.lock();
        let number = secrets.len() as u64 + 1;
        if number > MOST_IDS {
            return Err(Error::invalid("the number of ids of the process", number, format!("{MOST_IDS} is the most")));
        }
        secrets.insert(number, secret);
        let &Self { port, outer, host, .. } = self;
        Ok(MeetingId { version: VERSION, port, outer, host, secret, number })
    }
}

/// Listens at one port of the loopback interface and of the outer address.
fn listen(outer: Option<IpAddr>) -> Result<(u16, Vec<OwnedFd>)> {
    let open = |ip: IpAddr, port: u16| -> Result<(u16, TcpListener)> {
        let system = |error: std::io::Error| Error::system(format_args!("listen at port {port} of {ip}"), &error);
        let listener = listen_tcp((ip, port).into()).map_err(system)?;
        Ok((listener.local_addr().map_err(system)?.port(), listener))
    };
    let mut attempt = 1;
    loop {
        let (port, inner) = open(Ipv4Addr::LOCALHOST.into(), 0)?;
        match outer.map(|outer| open(outer, port)).transpose() {
            Ok(outer) => {
                return Ok((
                    port,
                    std::iter::once(inner).chain(outer.map(|(_, outer)| outer)).map(OwnedFd::from).collect(),
                ));
            }
            // Another program has the port on the outer interface.
            Err(_) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The newcomers, and the meetings to which a rank has come.
struct Meetings {
    lobby: Lobby,
    parties: HashMap<u64, Party>,
}

impl Meetings {
    fn serve(&mut self) {
        let mut failed = false;
        loop {
            if let Err(error) = self.turn() {
                if !std::mem::replace(&mut failed, true) {
                    crate::log!(ERROR, "the meetings of this process: {error}");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Waits for ranks and serves them.
    fn turn(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.parties.keys().copied().collect();
        let mut fds: Vec<PollFd<'_>> = self.lobby.interests().collect();
        fds.extend(numbers.iter().filter_map(|number| self.parties.get(number)).flat_map(Party::interests));
        let expiries = self.parties.values().filter_map(Party::next_expiry).chain(self.lobby.next_expiry());
        let ready = wait(&mut fds, expiries.fold(until(LONGEST), Instant::min))?;
        let (door, mut ready) = ready.split_at(self.lobby.interest_count());
        for number in &numbers {
            let Some(party) = self.parties.get_mut(number) else { continue };
            let (own, rest) = ready.split_at(party.interest_count().min(ready.len()));
            party.serve(own);
            ready = rest;
        }
        for claim in self.lobby.serve(door)? {
            self.admit(claim);
        }
        Ok(())
    }

    fn admit(&mut self, claim: Newcomer) {
        let Newcomer { mut channel, number, rank, world_size } = claim;
        let (rank, world_size) = (rank as usize, world_size as usize);
        channel.set_limit(MOST_FRAME_BYTES);
        let party = self.parties.entry(number).or_insert_with(|| Party::new(rank, world_size));
        party.admit(channel, rank, world_size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Meeting;

    #[test]
    fn ranks_of_other_hosts_join_at_the_outer_address() {
        let soon = || until(Duration::from_secs(10));
        let service = Service::start(Some(Ipv4Addr::new(127, 0, 0, 2).into())).unwrap();
        let id = service.add().unwrap();
        let far = MeetingId { host: [0; 16], ..id.clone() };
        std::thread::scope(|scope| {
            let near = scope.spawn(|| Meeting::join(&id.to_bytes(), 0, 2, b"near", soon()).unwrap());
            let joined = Meeting::join(&far.to_bytes(), 1, 2, b"far", soon()).unwrap();
            assert_eq!(joined.claims(), [&b"near"[..], b"far"]);
            near.join().unwrap();
        });
    }

    #[test]
    fn the_end_of_the_maker_is_an_error() {
        let (port, listeners) = listen(None).unwrap();
        drop(listeners);
        let id = MeetingId { version: VERSION, port, outer: None, host: own_host(), secret: [1; 16], number: 1 };
        let start = Instant::now();
        let error = Meeting::join(&id.to_bytes(), 0, 2, b"", until(Duration::from_secs(30))).unwrap_err();
        assert!(matches!(&error, Error::Bootstrap { message } if message.contains("has ended")), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(Meeting::has_ended(&id.to_bytes()).unwrap());
        let running = Service::start(None).unwrap().add().unwrap();
        assert!(!Meeting::has_ended(&running.to_bytes()).unwrap());
    }
}
