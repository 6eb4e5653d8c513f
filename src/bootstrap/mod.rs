//! How ranks find each other before a group exists.
//!
//! A [`Bootstrap`] moves a few bytes between all ranks while a group opens. After that the group uses sockets of its
//! own.

mod all_gather;
mod channel;
mod cipher;
mod directory;
mod endpoint;
mod entrance;
pub(crate) mod foreign;
mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod host;
mod interface;
mod lobby;
mod local;
mod meeting;
pub(crate) mod mesh;
pub(crate) mod monitor;
pub(crate) mod notice;
mod peer;
pub(crate) mod shown;
mod star;
pub(crate) mod tcp;
mod threads;
mod unique_id;
pub(crate) mod wait;

pub use all_gather::Bootstrap;
pub use directory::Directory;
pub(crate) use directory::is_abandoned;
pub(crate) use frame::{MAX_WORLD_SIZE as MAX_RANKS, check_world_size, shown};
pub use local::Local;
pub use meeting::{Joined, Meeting};
pub use tcp::{Tcp, TcpConfig};
pub use threads::Threads;
pub use unique_id::UniqueId;
pub(crate) use wait::{Heeded, LONGEST, until};
