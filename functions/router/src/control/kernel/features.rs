//! What interfaces' drivers can do with XDP, as the kernel tells (`Documentation/netlink/specs/netdev.yaml`).

use std::collections::HashMap;
use std::io;

use netlink_packet_core::NlasIterator;
use rustix::net::netlink::GENERIC;

use super::event::LinkIndex;
use super::socket::RequestSocket;

/// What a driver can do with XDP (`enum netdev_xdp_act`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// It runs programs, and redirects as they say.
    pub const fn redirects(self) -> bool {
        const BASIC: u64 = 1;
        const REDIRECT: u64 = 2;
        self.0 & (BASIC | REDIRECT) == BASIC | REDIRECT
    }

    /// It sends frames that programs of other interfaces redirect to it. On a veth pair this is so if the other end has GRO
    /// switched on, or a program of its own.
    pub const fn sends_redirected(self) -> bool {
        const NDO_XMIT: u64 = 4;
        self.0 & NDO_XMIT != 0
    }

    /// It exchanges packets with AF_XDP sockets without copies.
    pub const fn zero_copy(self) -> bool {
        const XSK_ZEROCOPY: u64 = 8;
        self.0 & XSK_ZEROCOPY != 0
    }

    #[cfg(test)]
    pub(crate) const fn of(bits: u64) -> Self {
        Self(bits)
    }

    /// Lists them for all interfaces of this thread's network namespace; `None` from kernels before 6.3, which don't tell.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn list() -> io::Result<Option<HashMap<LinkIndex, Self>>> {
        let mut socket = RequestSocket::of(Some(GENERIC))?;
        let mut family = None;
        socket.list(CONTROLLER, &[GET_FAMILY, 1, 0, 0], |_, body| {
            family = family.or_else(|| number_of_family(body, b"netdev\0"));
        })?;
        let Some(family) = family else { return Ok(None) };
        let mut all = HashMap::new();
        socket.list(family, &[GET_DEVICE, 1, 0, 0], |_, body| all.extend(device(body)))?;
        Ok(Some(all))
    }
}

/// `GENL_ID_CTRL` and `CTRL_CMD_GETFAMILY` (`include/uapi/linux/genetlink.h`).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;

/// `NETDEV_CMD_DEV_GET` (`include/uapi/linux/netdev.h`).
const GET_DEVICE: u8 = 1;

/// The attributes of a generic message, which begins with a header of four bytes.
fn attributes(body: &[u8], mut each: impl FnMut(u16, &[u8])) {
    for attribute in NlasIterator::new(body.get(4..).unwrap_or_default()).flatten() {
        each(attribute.kind(), attribute.value());
    }
}

fn number_of_family(body: &[u8], wanted: &[u8]) -> Option<u16> {
    const NUMBER: u16 = 1;
    const NAME: u16 = 2;
    let (mut number, mut is_wanted) = (None, false);
    attributes(body, |kind, value| match kind {
        NUMBER => number = value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)),
        NAME => is_wanted = value == wanted,
        _ => {}
    });
    number.filter(|_| is_wanted)
}

fn device(body: &[u8]) -> Option<(LinkIndex, XdpFeatures)> {
    const INDEX: u16 = 1;
    const FEATURES: u16 = 3;
    let (mut index, mut features) = (None, None);
    attributes(body, |kind, value| match kind {
        INDEX => index = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)),
        FEATURES => features = value.first_chunk().map(|bytes| XdpFeatures(u64::from_ne_bytes(*bytes))),
        _ => {}
    });
    Some((index?, features?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kernel::attribute;
    use proptest::prelude::*;

    #[test]
    fn families_and_devices_are_read() {
        let header = [0; 4].to_vec();
        let family =
            [header.clone(), attribute(2, b"netdev\0"), attribute(1, &33_u16.to_ne_bytes())].concat();
        assert_eq!(number_of_family(&family, b"netdev\0"), Some(33));
        assert_eq!(number_of_family(&family, b"ethtool\0"), None);
        let body = [header, attribute(1, &7_u32.to_ne_bytes()), attribute(3, &7_u64.to_ne_bytes())].concat();
        let (index, features) = device(&body).unwrap();
        assert!(index == 7 && features.redirects() && features.sends_redirected() && !features.zero_copy());
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (number_of_family(&bytes, b"netdev\0"), device(&bytes));
        }
    }
}
