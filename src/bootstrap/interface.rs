//! The network interfaces of this host and their addresses.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::variables::optional;

/// An address of an interface.
#[derive(Clone)]
struct InterfaceAddress {
    name: String,
    address: IpAddr,
    /// Whether the interface is up and reaches other hosts.
    outer: bool,
}

/// The address that `interface` names: an IP address of this host, or the first address of the interface of this name, of
/// version 4 if there is one.
///
/// # Errors
/// [`Error::InvalidArgument`] with the interfaces of this host for any other text, [`Error::System`] if the system
/// cannot list the interfaces.
pub(super) fn address_of(interface: &str) -> Result<IpAddr> {
    let all = interfaces()?;
    let found = match interface.parse::<IpAddr>() {
        Ok(address) => Some(address).filter(|address| {
            // The whole of 127.0.0.0/8 is this host.
            all.iter().any(|own| own.address == *address) || address.is_ipv4() && address.is_loopback()
        }),
        Err(_) => {
            let own = || all.iter().filter(|own| own.name == interface).map(|own| own.address);
            own().find(IpAddr::is_ipv4).or_else(|| own().next())
        }
    };
    found.ok_or_else(|| {
        let limit = format!("it must be an IP address of this host or an interface with one: {}", words(&all));
        Error::invalid("the interface", format_args!("`{interface}`"), limit)
    })
}

/// The address at which ranks of other hosts reach this process: that of `SYMMETRA_BIND`, else of the first interface that
/// `names` has, by the rules of `NCCL_SOCKET_IFNAME`, else of the first interface that is up and belongs neither to this
/// host alone nor to docker. `None` if there is no such interface, or if a loopback address is named.
///
/// # Errors
/// The errors of [`address_of`] for the variable; [`Error::InvalidArgument`] with the interfaces of this host if `names` has
/// none of them.
pub(super) fn outer_address(names: Option<&str>) -> Result<Option<IpAddr>> {
    let bound = optional("SYMMETRA_BIND")?.filter(|text| !text.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()));
    let address = match bound {
        Some(interface) => Some(address_of(&interface)?),
        None => outer_of(&interfaces()?, names)?,
    };
    Ok(address.filter(|address| !address.is_loopback()))
}

/// The address of the first interface that is named, or of the first that reaches other hosts; of version 4 if the
/// interface has one.
fn outer_of(all: &[InterfaceAddress], names: Option<&str>) -> Result<Option<IpAddr>> {
    let names = names.map(str::trim).filter(|names| !names.is_empty());
    let found = match names {
        None => all.iter().find(|own| own.outer && !own.name.starts_with("docker")),
        Some(names) => all.iter().find(|own| is_named(&own.name, names)),
    };
    match (found, names) {
        (Some(InterfaceAddress { name, .. }), _) => {
            let own = || all.iter().filter(|own| own.name == *name).map(|own| own.address);
            Ok(own().find(IpAddr::is_ipv4).or_else(|| own().next()))
        }
        (None, None) => Ok(None),
        (None, Some(names)) => {
            let limit = format!("it must name an interface of this host: {}", words(all));
            Err(Error::invalid("the list of interfaces (NCCL_SOCKET_IFNAME)", format_args!("`{names}`"), limit))
        }
    }
}

/// Whether a list has the name of an interface. The list has starts of names; `=` before it asks for whole names, and `^`
/// for the interfaces that it does not name.
fn is_named(name: &str, list: &str) -> bool {
    let (excludes, list) = list.strip_prefix('^').map_or((false, list), |list| (true, list));
    let (whole, list) = list.strip_prefix('=').map_or((false, list), |list| (true, list));
    let fits = |item: &str| if whole { name == item } else { name.starts_with(item) };
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).any(fits) != excludes
}

/// `lo (127.0.0.1, ::1), eth0 (10.0.0.2)`.
fn words(all: &[InterfaceAddress]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for InterfaceAddress { name, .. } in all {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let addresses = |name: &str| {
        let own = all.iter().filter(|own| own.name == name).map(|own| own.address.to_string());
        own.collect::<Vec<_>>().join(", ")
    };
    names.into_iter().map(|name| format!("{name} ({})", addresses(name))).collect::<Vec<_>>().join(", ")
}

/// The list that `getifaddrs` allocates, freed by its first entry.
struct InterfaceList(NonNull<libc::ifaddrs>);

impl Drop for InterfaceList {
    fn drop(&mut self) {
        // SAFETY: `getifaddrs` made the list, and no reference into the list outlives `self`.
        unsafe { libc::freeifaddrs(self.0.as_ptr()) }
    }
}

/// The addresses of this host to which other ranks can connect. Link-local IPv6 addresses need a scope and are left
/// out.
fn interfaces() -> Result<Vec<InterfaceAddress>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is where the system stores a pointer to a list of its own.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(Error::system("list the network interfaces", &std::io::Error::last_os_error()));
    }
    let mut all = Vec::new();
    let Some(list) = NonNull::new(first).map(InterfaceList) else { return Ok(all) };
    let mut next = Some(list.0);
    while let Some(entry) = next {
        // SAFETY: an entry of the list, which lives until `list` is dropped.
        let entry = unsafe { entry.as_ref() };
        // SAFETY: the system gives each entry an address that is null or valid for its family.
        if let Some(address) = unsafe { ip_of(entry.ifa_addr) } {
            // SAFETY: the name of an entry is a string with an end.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let outer = entry.ifa_flags & libc::IFF_UP as u32 != 0 && entry.ifa_flags & libc::IFF_LOOPBACK as u32 == 0;
            all.push(InterfaceAddress { name: name.to_string_lossy().into_owned(), address, outer });
        }
        next = NonNull::new(entry.ifa_next);
    }
    drop(list);
    Ok(all)
}

/// The IP address at `address`, if it is one without a scope.
///
/// # Safety
/// `address` is null, or points to a socket address of its family's length.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type; the read is unaligned, so the alignment of the list does
            // not matter.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_interface_is_the_first_that_fits() {
        let all = [
            ("lo", "127.0.0.1", false),
            ("docker0", "172.17.0.1", true),
            ("eth0", "fd00::1", true),
            ("eth0", "10.0.0.1", true),
            ("eth1", "10.0.1.1", true),
            ("down0", "10.0.2.1", false),
        ];
        let all = all.map(|(name, address, outer)| InterfaceAddress {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            outer,
        });
        let of = |names| outer_of(&all, names).map(|ip| ip.map(|ip| ip.to_string()));
        for (names, expected) in [
            (None, "10.0.0.1"),
            (Some(""), "10.0.0.1"),
            (Some("eth1"), "10.0.1.1"),
            (Some("ib,eth"), "10.0.0.1"),
            (Some("=eth"), ""),
            (Some("=eth1,eth0"), "10.0.0.1"),
            (Some("^lo,docker"), "10.0.0.1"),
            (Some("^=lo,docker0,eth0"), "10.0.1.1"),
            (Some("lo"), "127.0.0.1"),
        ] {
            let found = of(names);
            match expected {
                "" => assert!(found.unwrap_err().to_string().contains("eth1 (10.0.1.1)"), "{names:?}"),
                _ => assert_eq!(found.unwrap().as_deref(), Some(expected), "{names:?}"),
            }
        }
        assert_eq!(outer_of(&all[..1], None), Ok(None));
    }
}
