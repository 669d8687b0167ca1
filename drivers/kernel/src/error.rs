//! What can go wrong when a port over the kernel is opened.

use std::io;

use thiserror::Error;

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum KernelError {
    /// There is no interface of that name in this network namespace.
    #[error(
        "there is no interface {name:?} in this network namespace; there is {existing}: choose one, or create it with `ip link add`"
    )]
    NoSuchInterface {
        /// What was asked for.
        name: String,
        /// The names that do exist, separated by commas.
        existing: String,
    },
    /// Interface names have at most 15 bytes (`IFNAMSIZ` is 16, with the terminating zero).
    #[error("interface name {name:?} has {length} bytes, Linux allows 1 to 15: choose a shorter one")]
    NameLength {
        /// What was asked for.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// The kernel does not allow slashes, colons, white space, `.` or `..` as interface names.
    #[error(
        "interface name {name:?} is not allowed: use letters, digits and hyphens (no slash, colon, space; not . or ..)"
    )]
    NameCharacters {
        /// What was asked for.
        name: String,
    },
    /// This process may not do that.
    #[error(
        "no permission to {action}: that needs {capability}; run as root, or give the program the capability with `setcap {setcap}+ep PROGRAM`"
    )]
    Permission {
        /// What was tried.
        action: String,
        /// The capability that allows it.
        capability: &'static str,
        /// The same as `setcap` spells it.
        setcap: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has no TUN/TAP driver, or this container has no device node for it.
    #[error(
        "/dev/net/tun is missing ({source}): load the driver with `modprobe tun`, or in a container pass the device with `--device /dev/net/tun`"
    )]
    NoTunDevice {
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process has the TAP device open, and it has no further queue to give.
    #[error(
        "TAP device {name:?} is in use by another process (or was made without multiple queues): end that process, or choose another name"
    )]
    InUse {
        /// The device.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An interface of that name exists and is not a TAP device, or one with a different number of queues.
    #[error(
        "{name:?} exists and is not a TAP device that fits (another kind of interface, or single-queue against multi-queue): choose another name, or delete it with `ip link delete {name}`"
    )]
    NotTap {
        /// The device.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "interface {name:?} carries no Ethernet frames (hardware type {hardware}, Ethernet is 1): this driver needs an Ethernet-like interface such as veth, bridge, tap or a NIC"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// Its `ARPHRD_` number.
        hardware: u16,
    },
    /// The MTU is outside what an interface of this kind can have.
    #[error("MTU {mtu} for {name:?} is outside {minimum} to {maximum}: choose one inside")]
    Mtu {
        /// The interface.
        name: String,
        /// What was asked for.
        mtu: u32,
        /// The least that is possible.
        minimum: u32,
        /// The most that is possible.
        maximum: u32,
    },
    /// The number of ring frames is outside what makes sense.
    #[error("a ring of {frames} frames is outside {minimum} to {maximum}: choose a number inside")]
    RingFrames {
        /// What was asked for.
        frames: u32,
        /// The least that is possible.
        minimum: u32,
        /// The most that is possible.
        maximum: u32,
    },
    /// The ring's frames are too small for the interface's MTU.
    #[error(
        "ring frames of {frame_bytes} bytes are too small for the MTU of {mtu} of {name:?}: a ring frame needs {needed} bytes; leave the size out to have it chosen, or lower the MTU"
    )]
    RingFrameSize {
        /// The interface.
        name: String,
        /// What was asked for.
        frame_bytes: u32,
        /// The interface's MTU.
        mtu: u32,
        /// What it needs.
        needed: u32,
    },
    /// The number of queues is outside what the kernel gives.
    #[error("{queues} queues for TAP device {name:?} are outside 1 to {maximum}: choose a number inside")]
    Queues {
        /// The device.
        name: String,
        /// What was asked for.
        queues: u16,
        /// The most that is possible.
        maximum: u16,
    },
    /// A system call failed for a reason that this driver has no advice about.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl KernelError {
    /// For tasks that `CAP_NET_RAW` allows.
    pub(crate) fn raw(action: String, source: io::Error) -> Self {
        Self::of(action, source, "CAP_NET_RAW", "cap_net_raw")
    }

    /// For tasks that `CAP_NET_ADMIN` allows.
    pub(crate) fn admin(action: String, source: io::Error) -> Self {
        Self::of(action, source, "CAP_NET_ADMIN", "cap_net_admin")
    }

    fn of(action: String, source: io::Error, capability: &'static str, setcap: &'static str) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::Permission { action, capability, setcap, source }
        } else {
            Self::System { action, source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_permission_names_capability_and_remedy() {
        let denied = || io::Error::from_raw_os_error(libc::EPERM);
        let text = KernelError::raw("open a packet socket".to_owned(), denied()).to_string();
        assert!(
            text.contains("CAP_NET_RAW") && text.contains("setcap cap_net_raw+ep") && text.contains("root")
        );
        let text = KernelError::admin("create a TAP device".to_owned(), denied()).to_string();
        assert!(text.contains("CAP_NET_ADMIN") && text.contains("setcap cap_net_admin+ep"));
    }
}
