//! Which side leaves what to the other, by the features that both have agreed on.

use crate::features::{
    CHECKSUM, GUEST_CHECKSUM, GUEST_TSO4, GUEST_TSO6, GUEST_USO4, GUEST_USO6, HOST_TSO4, HOST_TSO6, HOST_USO,
};
use warmlane_port::{Layered, TransmitOffloads, Transports};

/// Which side of a ring this program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Us {
    Device,
    Driver,
}

impl Us {
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

/// Of packets that are in no tunnel.
const fn outer(transports: Transports) -> Layered {
    Layered { outer: transports, inner: Transports::NONE }
}

/// What the driver does for packets that it receives.
const fn driver_does(features: u64) -> TransmitOffloads {
    // Nothing is segmented without its checksum (section 5.1.3.1).
    if features & GUEST_CHECKSUM == 0 {
        return TransmitOffloads::NONE;
    }
    TransmitOffloads {
        checksums: Layered::OUTER,
        segmentation: outer(Transports {
            tcp4: features & GUEST_TSO4 != 0,
            tcp6: features & GUEST_TSO6 != 0,
            udp4: features & GUEST_USO4 != 0 && features & GUEST_USO6 != 0,
            udp6: features & GUEST_USO4 != 0 && features & GUEST_USO6 != 0,
        }),
        vlan_insert: false,
    }
}

/// What the driver may leave to the device.
const fn device_does(features: u64) -> TransmitOffloads {
    if features & CHECKSUM == 0 {
        return TransmitOffloads::NONE;
    }
    TransmitOffloads {
        checksums: Layered::OUTER,
        segmentation: outer(Transports {
            tcp4: features & HOST_TSO4 != 0,
            tcp6: features & HOST_TSO6 != 0,
            udp4: features & HOST_USO != 0,
            udp6: features & HOST_USO != 0,
        }),
        vlan_insert: false,
    }
}
