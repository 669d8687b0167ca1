//! What the kernel's conntrack knows of single connections (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NlasIterator;
use rustix::net::netlink::NETFILTER;
use warmlane_wire::IpProtocol;

use super::attribute;
use super::socket::RequestSocket;

/// `IPCTNL_MSG_CT_NEW` and `IPCTNL_MSG_CT_GET` of the subsystem ctnetlink.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;

/// `CTA_TUPLE_ORIG` and others.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const HELPER: u16 = 5;
const COUNTERS: [u16; 2] = [9, 10];
const SEQUENCE_ADJUSTMENT: [u16; 2] = [15, 16];
const SYNPROXY: u16 = 24;

/// Of a tuple.
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;

/// Of the state of TCP: `CTA_PROTOINFO_TCP` and what is in it.
const TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS: [u16; 2] = [4, 5];

/// That an attribute has others in it.
const NESTED: u16 = 0x8000;

/// What packets of one direction of a connection have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// Ports, from and to.
    pub ports: [u16; 2],
    /// 6 is TCP, 17 UDP.
    pub protocol: u8,
}

impl Tuple {
    /// That of answers.
    #[must_use]
    pub fn inverse(self) -> Self {
        let [from, to] = self.ports;
        Self { source: self.destination, destination: self.source, ports: [to, from], ..self }
    }
}

/// A connection, as conntrack has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What comes in from who began it.
    pub original: Tuple,
    /// What comes in as answers to that.
    pub reply: Tuple,
    /// Packets have been seen both ways, it isn't at its end, and they need nothing but other addresses and ports. Nor are they counted: only
    /// what passes conntrack is.
    pub is_established: bool,
}

/// Asks conntrack, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Conntrack {
    socket: RequestSocket,
}

impl Conntrack {
    /// Checks whether the kernel has one that can be asked.
    ///
    /// # Errors
    /// It hasn't, or refuses: it needs `CAP_NET_ADMIN`.
    pub fn open() -> io::Result<Self> {
        let mut conntrack = Self { socket: RequestSocket::of(Some(NETFILTER))? };
        let nobody = IpAddr::from([0, 0, 0, 0]);
        conntrack.connection(Tuple {
            source: nobody,
            destination: nobody,
            ports: [0; 2],
            protocol: IpProtocol::TCP.0,
        })?;
        Ok(conntrack)
    }

    /// The connection that packets which come in with these addresses and ports are of, in whichever direction.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn connection(&mut self, tuple: Tuple) -> io::Result<Option<Connection>> {
        let body = [&header(tuple)[..], &attribute(ORIGINAL | NESTED, &tuple_attributes(tuple))].concat();
        Ok(self.socket.get(GET, &body, read)?.flatten())
    }

    /// Lets conntrack no longer check sequence numbers of a connection of TCP, as it can't if it doesn't see all packets.
    ///
    /// # Errors
    /// The kernel refuses, or the connection is gone.
    pub fn stop_checking_sequence(&mut self, connection: &Connection) -> io::Result<()> {
        /// `IP_CT_TCP_FLAG_BE_LIBERAL`, to be set, and `IP_CT_TCP_FLAG_MAXACK_SET`, to be cleared: else a late RST would be taken
        /// for forged.
        const LIBERAL: u8 = 0x08;
        const HIGHEST_KNOWN: u8 = 0x20;
        let tuple = connection.original;
        let flags: Vec<u8> = TCP_FLAGS
            .into_iter()
            .flat_map(|direction| attribute(direction, &[LIBERAL, LIBERAL | HIGHEST_KNOWN]))
            .collect();
        let state = attribute(PROTOCOL_STATE | NESTED, &attribute(TCP | NESTED, &flags));
        let whose = attribute(ORIGINAL | NESTED, &tuple_attributes(tuple));
        self.socket.change(NEW, 0, &[&header(tuple)[..], &whose, &state].concat())
    }
}

/// struct nfgenmsg.
fn header(tuple: Tuple) -> [u8; 4] {
    const IPV4: u8 = 2;
    const IPV6: u8 = 10;
    [if tuple.source.is_ipv4() { IPV4 } else { IPV6 }, 0, 0, 0]
}

fn tuple_attributes(tuple: Tuple) -> Vec<u8> {
    let of = |address, [ipv4, ipv6]: [u16; 2]| match address {
        IpAddr::V4(address) => attribute(ipv4, &address.octets()),
        IpAddr::V6(address) => attribute(ipv6, &address.octets()),
    };
    let addresses = [of(tuple.source, [1, 3]), of(tuple.destination, [2, 4])].concat();
    let [from, to] = tuple.ports.map(u16::to_be_bytes);
    let protocol = [attribute(1, &[tuple.protocol]), attribute(2, &from), attribute(3, &to)].concat();
    [attribute(ADDRESSES | NESTED, &addresses), attribute(PROTOCOL | NESTED, &protocol)].concat()
}

fn read_tuple(value: &[u8]) -> Option<Tuple> {
    let (mut source, mut destination) = (None, None);
    let (mut number, mut from, mut to) = (None, None, None);
    for nested in NlasIterator::new(value).flatten() {
        for inner in NlasIterator::new(nested.value()).flatten() {
            let value = inner.value();
            let port = || value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
            match (nested.kind(), inner.kind()) {
                (ADDRESSES, 1 | 3) => source = address(value),
                (ADDRESSES, 2 | 4) => destination = address(value),
                (PROTOCOL, 1) => number = value.first().copied(),
                (PROTOCOL, 2) => from = port(),
                (PROTOCOL, 3) => to = port(),
                _ => {}
            }
        }
    }
    Some(Tuple { source: source?, destination: destination?, ports: [from?, to?], protocol: number? })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let ipv4 = || <[u8; 4]>::try_from(value).map(IpAddr::from);
    ipv4().or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

/// A connection as the kernel tells of it (`net/netfilter/nf_conntrack_netlink.c: ctnetlink_fill_info`).
fn read(body: &[u8]) -> Option<Connection> {
    /// enum ip_conntrack_status: assured; its end, or others that handle it (`IPS_SEQ_ADJUST`, `IPS_DYING`, `IPS_TEMPLATE`,
    /// `IPS_NAT_CLASH`, `IPS_HELPER`, `IPS_OFFLOAD`, `IPS_HW_OFFLOAD`).
    const ASSURED: u32 = 1 << 2;
    const NOT_PLAIN: u32 = 1 << 6 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;
    /// `TCP_CONNTRACK_ESTABLISHED`
    const ESTABLISHED: u8 = 3;
    let (_, attributes) = body.split_first_chunk::<4>()?;
    let (mut original, mut reply, mut status, mut tcp_state, mut is_plain) = (None, None, 0, None, true);
    for attribute in NlasIterator::new(attributes).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            ORIGINAL => original = read_tuple(value),
            REPLY => reply = read_tuple(value),
            STATUS => status = value.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)),
            PROTOCOL_STATE => tcp_state = read_tcp_state(value),
            HELPER => is_plain = false,
            // It has them only if it counts; they can be read and set to zero, and not be set to anything else.
            kind if COUNTERS.contains(&kind) => is_plain = false,
            // Connections that were put in by netlink have it, too, but empty.
            SYNPROXY => is_plain &= is_empty(value),
            kind if SEQUENCE_ADJUSTMENT.contains(&kind) => is_plain = false,
            _ => {}
        }
    }
    let (original, reply) = (original?, reply?);
    let is_at_work = original.protocol != IpProtocol::TCP.0 || tcp_state == Some(ESTABLISHED);
    let is_established = is_plain && is_at_work && status & ASSURED != 0 && status & NOT_PLAIN == 0;
    Some(Connection { original, reply, is_established })
}

/// Whether all attributes in this one are zero.
fn is_empty(value: &[u8]) -> bool {
    NlasIterator::new(value).flatten().all(|nested| nested.value().iter().all(|byte| *byte == 0))
}

fn read_tcp_state(value: &[u8]) -> Option<u8> {
    let tcp = NlasIterator::new(value).flatten().find(|nested| nested.kind() == TCP)?;
    let state = NlasIterator::new(tcp.value()).flatten().find(|nested| nested.kind() == TCP_STATE)?;
    state.value().first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuple(from: &str, to: &str, ports: [u16; 2]) -> Tuple {
        Tuple { source: from.parse().unwrap(), destination: to.parse().unwrap(), ports, protocol: 6 }
    }

    /// A connection behind masquerading, as the kernel tells of it.
    fn told(status: u32, state: u8, more: &[u8]) -> Connection {
        let original = tuple("192.0.2.2", "198.51.100.2", [1000, 80]);
        let reply = tuple("198.51.100.2", "203.0.113.1", [80, 2000]);
        let state = attribute(TCP | NESTED, &attribute(TCP_STATE, &[state]));
        let body = [
            header(original).to_vec(),
            attribute(ORIGINAL | NESTED, &tuple_attributes(original)),
            attribute(REPLY | NESTED, &tuple_attributes(reply)),
            attribute(STATUS, &status.to_be_bytes()),
            attribute(PROTOCOL_STATE | NESTED, &state),
            more.to_vec(),
        ]
        .concat();
        let connection = read(&body).unwrap();
        assert_eq!((connection.original, connection.reply), (original, reply));
        connection
    }

    #[test]
    fn only_what_is_plain_and_at_work_is_established() {
        assert!(told(0x19e, 3, &[]).is_established);
        // Not assured; closing; about to be deleted; with a helper, said in two ways; counted.
        assert!(!told(0x19a, 3, &[]).is_established);
        assert!(!told(0x19e, 4, &[]).is_established);
        assert!(!told(0x39e, 3, &[]).is_established);
        assert!(!told(0x219e, 3, &[]).is_established);
        assert!(!told(0x19e, 3, &attribute(HELPER | NESTED, &attribute(1, b"ftp\0"))).is_established);
        let counted = attribute(COUNTERS[0] | NESTED, &attribute(1, &7_u64.to_be_bytes()));
        assert!(!told(0x19e, 3, &counted).is_established);
        let synproxy = |start: u32| attribute(SYNPROXY | NESTED, &attribute(1, &start.to_be_bytes()));
        assert!(told(0x19e, 3, &synproxy(0)).is_established && !told(0x19e, 3, &synproxy(7)).is_established);
    }

    #[test]
    fn tuples_of_both_families_are_read_as_written() {
        for [from, to] in [["192.0.2.2", "198.51.100.2"], ["2001:db8::1", "2001:db8::2"]] {
            let tuple = tuple(from, to, [1, 65535]);
            assert_eq!(read_tuple(&tuple_attributes(tuple)), Some(tuple));
            assert_eq!(tuple.inverse().inverse(), tuple);
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
