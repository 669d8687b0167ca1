//! Which side leaves what to the other, by the features that both have agreed on.

use crate::features::{
    CHECKSUM, GUEST_CHECKSUM, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_TSO4, HOST_TSO6, HOST_USO,
};
use warmlane_port::{Layered, TransmitOffloads, Transports};

/// Which side of a ring this program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingSide {
    Device,
    Driver,
}

impl RingSide {
    /// What the other side does for packets that it receives.
    #[inline]
    pub(crate) const fn peer_does(self, features: u64) -> TransmitOffloads {
        match self {
            Self::Device => driver_does(features),
            Self::Driver => device_does(features),
        }
    }

    /// What the other side may leave to this one.
    pub(crate) const fn peer_leaves(self, features: u64) -> TransmitOffloads {
        match self {
            Self::Device => device_does(features),
            Self::Driver => driver_does(features),
        }
    }
}

/// Both or none are left to others: nothing is segmented without its checksum (section 5.1.3.1), nor are packets in tunnels.
const fn offloads(checksums: bool, segmentation: Transports) -> TransmitOffloads {
    if !checksums {
        return TransmitOffloads::NONE;
    }
    TransmitOffloads {
        checksums: Layered::OUTER,
        segmentation: Layered { outer: segmentation, inner: Transports::NONE },
        vlan_insert: false,
    }
}

/// What the driver does for packets that it receives.
const fn driver_does(features: u64) -> TransmitOffloads {
    let udp = features & GUEST_USO4 != 0 && features & GUEST_USO6 != 0;
    let (tcp4, tcp6) = (features & GUEST_TSO4 != 0, features & GUEST_TSO6 != 0);
    offloads(features & GUEST_CHECKSUM != 0, Transports { tcp4, tcp6, udp4: udp, udp6: udp })
}

/// What the driver may leave to the device.
const fn device_does(features: u64) -> TransmitOffloads {
    let udp = features & HOST_USO != 0;
    let (tcp4, tcp6) = (features & HOST_TSO4 != 0, features & HOST_TSO6 != 0);
    offloads(features & CHECKSUM != 0, Transports { tcp4, tcp6, udp4: udp, udp6: udp })
}
