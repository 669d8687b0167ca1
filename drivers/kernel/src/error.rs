//! What can go wrong when a port over the kernel is opened.

use std::io;

use thiserror::Error;
use warmlane_driver_common::SystemError;

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The kernel has no TUN/TAP driver, or this container has no device node for it.
    #[error(
        "/dev/net/tun is missing ({source}): load the driver with `modprobe tun`, or in a container pass the device with `--device /dev/net/tun`"
    )]
    NoTunDevice {
        /// What the kernel said.
        source: io::Error,
    },
    /// Several sockets are to share an interface that is down.
    #[error(
        "interface {name:?} is down, and before Linux 6.13 several lanes can't share such: set it up with `ip link set {name} up`, or use one lane"
    )]
    SharedDown {
        /// The interface.
        name: String,
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
    /// What can be wrong with any interface or system call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl KernelError {
    /// For tasks that `CAP_NET_RAW` allows.
    pub(crate) fn raw(action: String, source: io::Error) -> Self {
        SystemError::of(action, source, "CAP_NET_RAW", "cap_net_raw").into()
    }

    /// For tasks that `CAP_NET_ADMIN` allows.
    pub(crate) fn admin(action: String, source: io::Error) -> Self {
        SystemError::of(action, source, "CAP_NET_ADMIN", "cap_net_admin").into()
    }
}
