//! The network interfaces of this host and their addresses.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

use crate::error::{Error, Result};

/// An address of an interface.
struct Interface {
    name: String,
    address: IpAddr,
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

/// `lo (127.0.0.1, ::1), eth0 (10.0.0.2)`.
fn words(all: &[Interface]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for Interface { name, .. } in all {
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
struct List(NonNull<libc::ifaddrs>);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `getifaddrs` made the list, and no reference into the list outlives `self`.
        unsafe { libc::freeifaddrs(self.0.as_ptr()) }
    }
}

/// The addresses of this host to which other ranks can connect. Link-local IPv6 addresses need a scope and are left
/// out.
fn interfaces() -> Result<Vec<Interface>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is where the system stores a pointer to a list of its own.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(Error::system("list the network interfaces", &std::io::Error::last_os_error()));
    }
    let mut all = Vec::new();
    let Some(list) = NonNull::new(first).map(List) else { return Ok(all) };
    let mut next = Some(list.0);
    while let Some(entry) = next {
        // SAFETY: an entry of the list, which lives until `list` is dropped.
        let entry = unsafe { entry.as_ref() };
        // SAFETY: the system gives each entry an address that is null or valid for its family.
        if let Some(address) = unsafe { ip_of(entry.ifa_addr) } {
            // SAFETY: the name of an entry is a string with an end.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            all.push(Interface { name: name.to_string_lossy().into_owned(), address });
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
