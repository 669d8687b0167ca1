use std::fmt;

/// What the bytes of a frame begin with: a number of the registry at <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet II and IEEE 802.3 frames, without preamble. The only type that the ports take.
    pub const ETHERNET: Self = Self(1);

    /// The name that an engineer knows it by, or `None` for the many rare ones.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            9 => "PPP",
            12 | 14 | 101 => "raw IP",
            104 => "Cisco HDLC",
            105 => "IEEE 802.11",
            108 => "OpenBSD loopback",
            113 => "Linux cooked",
            127 => "IEEE 802.11 with radiotap",
            143 => "DOCSIS",
            189 | 220 => "Linux USB",
            228 => "raw IPv4",
            229 => "raw IPv6",
            239 => "NFLOG",
            253 => "Linux netlink",
            276 => "Linux cooked v2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
