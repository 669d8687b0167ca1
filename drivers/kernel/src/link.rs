//! Facts about one interface, asked from and told to the kernel by name (netdevice(7)).
//!
//! By ioctl and not from `/sys/class/net`, because ioctls speak of the network namespace that the calling thread
//! is in, and a mounted sysfs of the one it was mounted in.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::io;
use std::os::fd::OwnedFd;

use crate::error::KernelError;
use crate::system;

/// Bytes of an interface name, terminating zero included (`include/uapi/linux/if.h`).
pub(crate) const NAME_BYTES: usize = libc::IFNAMSIZ;

/// Hardware types that carry Ethernet frames (`include/uapi/linux/if_arp.h`).
const ETHERNET: u16 = libc::ARPHRD_ETHER;
const LOOPBACK: u16 = libc::ARPHRD_LOOPBACK;

/// A name that an interface may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkName(String);

impl LinkName {
    /// Checks what the kernel checks (`net/core/dev.c: dev_valid_name`).
    pub(crate) fn new(name: &str) -> Result<Self, KernelError> {
        let length = name.len();
        if !(1..NAME_BYTES).contains(&length) {
            return Err(KernelError::NameLength { name: name.to_owned(), length });
        }
        let forbidden = |byte: u8| byte == b'/' || byte == b':' || byte == 0 || byte.is_ascii_whitespace();
        if name == "." || name == ".." || name.bytes().any(forbidden) {
            return Err(KernelError::NameCharacters { name: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// An empty request about this interface.
    pub(crate) fn request(&self) -> libc::ifreq {
        request(self.0.as_bytes())
    }
}

/// An empty request about the interface `name`, which is cut to what fits.
fn request(name: &[u8]) -> libc::ifreq {
    // SAFETY: all zero is a value of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, byte) in request.ifr_name[..NAME_BYTES - 1].iter_mut().zip(name) {
        *target = c_char::from_ne_bytes([*byte]);
    }
    request
}

/// The name in a request that the kernel filled in.
pub(crate) fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(|byte| byte.to_ne_bytes()[0]);
    bytes.into_iter().take_while(|byte| *byte != 0).map(char::from).collect()
}

/// A socket to ask about interfaces with.
pub(crate) struct Links {
    socket: OwnedFd,
}

impl Links {
    /// # Errors
    /// What `socket` says: no descriptors left.
    pub(crate) fn open() -> io::Result<Self> {
        // Interface ioctls work on sockets of any family; this one needs no IPv4 in the kernel and no privilege.
        Ok(Self { socket: system::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)? })
    }

    fn ask(&self, name: &LinkName, number: c_ulong) -> io::Result<libc::ifreq> {
        let mut request = name.request();
        // SAFETY: the callers below pass ioctls of struct ifreq (netdevice(7)) that have no pointer in them.
        unsafe { system::interface_ioctl(&self.socket, number, &mut request)? };
        Ok(request)
    }

    pub(crate) fn index(&self, name: &LinkName) -> io::Result<c_int> {
        // SAFETY: this ioctl fills in the index.
        Ok(unsafe { self.ask(name, libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex })
    }

    pub(crate) fn mtu(&self, name: &LinkName) -> io::Result<u32> {
        // SAFETY: this ioctl fills in the MTU.
        Ok(unsafe { self.ask(name, libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    pub(crate) fn set_mtu(&self, name: &LinkName, mtu: u32) -> io::Result<()> {
        let mut request = name.request();
        request.ifr_ifru.ifru_mtu = c_int::try_from(mtu).unwrap_or(c_int::MAX);
        // SAFETY: this ioctl reads the name and the MTU.
        unsafe { system::interface_ioctl(&self.socket, libc::SIOCSIFMTU, &mut request) }
    }

    /// The `IFF_` flags.
    pub(crate) fn flags(&self, name: &LinkName) -> io::Result<c_int> {
        // SAFETY: this ioctl fills in the flags.
        let flags = unsafe { self.ask(name, libc::SIOCGIFFLAGS)?.ifr_ifru.ifru_flags };
        Ok(c_int::from(flags.cast_unsigned()))
    }

    pub(crate) fn set_up(&self, name: &LinkName) -> io::Result<()> {
        let flags = self.flags(name)? | libc::IFF_UP;
        let mut request = name.request();
        request.ifr_ifru.ifru_flags = flags as i16;
        // SAFETY: this ioctl reads the name and the flags.
        unsafe { system::interface_ioctl(&self.socket, libc::SIOCSIFFLAGS, &mut request) }
    }

    /// Hardware type and address.
    pub(crate) fn hardware(&self, name: &LinkName) -> io::Result<(u16, [u8; 6])> {
        // SAFETY: this ioctl fills in the hardware address.
        let address = unsafe { self.ask(name, libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
        let bytes = std::array::from_fn(|index| address.sa_data[index].to_ne_bytes()[0]);
        Ok((address.sa_family, bytes))
    }

    /// An ethtool command; `command` starts with the command's number and has the length that it wants.
    pub(crate) fn ethtool<T: EthtoolCommand>(&self, name: &LinkName, mut command: T) -> io::Result<T> {
        let mut request = name.request();
        request.ifr_ifru.ifru_data = (&raw mut command).cast();
        // SAFETY: the data is a command of the size and form that its number asks for (EthtoolCommand), and lives
        // through the call.
        unsafe { system::interface_ioctl(&self.socket, libc::SIOCETHTOOL as c_ulong, &mut request)? };
        Ok(command)
    }

    /// The error for an interface that can't be found, or the general one.
    pub(crate) fn explain(name: &LinkName, action: &str, source: io::Error) -> KernelError {
        if source.raw_os_error() == Some(libc::ENODEV) {
            let existing = names().unwrap_or_default().join(", ");
            let existing = if existing.is_empty() { "none at all".to_owned() } else { existing };
            return KernelError::NoSuchInterface { name: name.as_str().to_owned(), existing };
        }
        KernelError::admin(format!("{action} {:?}", name.as_str()), source)
    }
}

/// Whether a hardware type carries Ethernet frames; the loopback interface does, with addresses of zeros.
pub(crate) const fn is_ethernet(hardware: u16) -> bool {
    matches!(hardware, ETHERNET | LOOPBACK)
}

/// An argument of `SIOCETHTOOL`.
///
/// # Safety
/// `repr(C)`, plain integers only, starts with the number of a command that reads and writes exactly this struct
/// (`include/uapi/linux/ethtool.h`).
pub(crate) unsafe trait EthtoolCommand: Copy {}

/// The names of all interfaces in this thread's network namespace.
pub(crate) fn names() -> io::Result<Vec<String>> {
    // SAFETY: no arguments; null means failure.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut entry = list;
    // SAFETY: the list ends with an entry of index 0; each before has a C string, and all stays until it is freed.
    unsafe {
        while (*entry).if_index != 0 && !(*entry).if_name.is_null() {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_the_kernel_does() {
        assert!(LinkName::new("eth0.100").is_ok());
        assert!(LinkName::new("fifteen-bytes-x").is_ok());
        let text = LinkName::new("sixteen-bytes-xx").unwrap_err().to_string();
        assert!(text.contains("16 bytes") && text.contains("1 to 15"), "{text}");
        assert!(matches!(LinkName::new(""), Err(KernelError::NameLength { length: 0, .. })));
        for name in ["a/b", "a:b", "a b", ".", "..", "a\0b"] {
            assert!(matches!(LinkName::new(name), Err(KernelError::NameCharacters { .. })), "{name:?}");
        }
    }

    #[test]
    fn the_loopback_interface_is_known() {
        assert!(names().unwrap().contains(&"lo".to_owned()));
        let (links, lo) = (Links::open().unwrap(), LinkName::new("lo").unwrap());
        assert!(links.index(&lo).unwrap() > 0);
        assert!(links.mtu(&lo).unwrap() > 0);
        assert!(links.flags(&lo).unwrap() & libc::IFF_LOOPBACK != 0);
        assert_eq!(links.hardware(&lo).unwrap(), (LOOPBACK, [0; 6]));
    }

    #[test]
    fn a_missing_interface_lists_those_that_exist() {
        let (links, name) = (Links::open().unwrap(), LinkName::new("no-such-link").unwrap());
        let error = Links::explain(&name, "look up", links.index(&name).unwrap_err());
        let text = error.to_string();
        assert!(
            text.contains("\"no-such-link\"") && text.contains("lo") && text.contains("ip link"),
            "{text}"
        );
    }
}
