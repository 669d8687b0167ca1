//! Which station has an IP address, as hosts say it of themselves, so that a question for it need not go to everybody: ARP and neighbour
//! suppression (RFC 9161 section 3).
//!
//! Four addresses for each bucket. The table never grows: where it is full, one that is newer goes in the place of another, for which is
//! asked as before then.

use std::net::IpAddr;

use warmlane_wire::arp::{ArpOperation, ArpPacket};
use warmlane_wire::neighbour::NeighbourMessage;
use warmlane_wire::{
    BuildError, EtherType, Frame, IpProtocol, Ipv6Fields, Ipv6Header, LinkLayer, MacAddress, ethernet, ipv6,
    neighbour,
};

use crate::stations::Station;

/// Bytes of the longest answer: a neighbour advertisement.
pub(crate) const LONGEST_ANSWER: usize =
    ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + neighbour::MAXIMUM_LENGTH;

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) station: Station,
    /// It says that it is a router. Whoever answers in its name says so, too: else hosts would use it as one no more (RFC 4861 section
    /// 7.2.5).
    is_router: bool,
}

/// What a frame says or asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    has: Option<(IpAddr, Host)>,
    pub(crate) asks: Option<Question>,
}

/// Who has an address?
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Arp(ArpPacket),
    Neighbour { source: std::net::Ipv6Addr, mac: MacAddress, target: std::net::Ipv6Addr },
}

impl Question {
    pub(crate) fn target(&self) -> IpAddr {
        match self {
            Self::Arp(request) => request.target_ip.into(),
            Self::Neighbour { target, .. } => (*target).into(),
        }
    }

    /// Writes the frame in which the host itself would answer, and says how many bytes it has.
    pub(crate) fn answer(&self, host: Host, to: &mut [u8; LONGEST_ANSWER]) -> Result<usize, BuildError> {
        let [_, _, mac @ ..] = host.station.bytes();
        let mac = MacAddress(mac);
        match *self {
            Self::Arp(request) => {
                let frame = Frame::new().ethernet(request.sender_mac, mac);
                frame.arp(request.reply(mac)).write(to)
            }
            Self::Neighbour { source, mac: asker, target } => {
                // Who has no address yet asks whether somebody else has it: all are told (RFC 4861 section 7.2.4).
                let (solicited, destination, receiver) = if source.is_unspecified() {
                    (false, ALL_NODES, MacAddress([0x33, 0x33, 0, 0, 0, 1]))
                } else {
                    (true, source, asker)
                };
                let fields =
                    Ipv6Fields { hop_limit: neighbour::HOP_LIMIT, ..Ipv6Fields::new(target, destination) };
                let message = NeighbourMessage::Advertisement {
                    target,
                    target_link_layer: Some(mac),
                    router: host.is_router,
                    solicited,
                    replace: true,
                };
                Frame::new().ethernet(receiver, mac).ipv6(fields).neighbour(message).write(to)
            }
        }
    }
}

/// The group of all hosts on a link (RFC 4291 section 2.7.1).
const ALL_NODES: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What an untagged frame says, if it is of ARP or neighbour discovery and right.
pub(crate) fn hear(frame: &[u8]) -> Option<Heard> {
    let link = LinkLayer::parse(frame).ok()?;
    let sender = link.header.source();
    match link.ethertype {
        EtherType::ARP => {
            let arp = ArpPacket::parse(link.payload).ok()?;
            // Nobody speaks for somebody else.
            if arp.sender_mac != sender {
                return None;
            }
            let host = Host { station: sender.into(), is_router: false };
            let has = (!arp.sender_ip.is_unspecified()).then_some((arp.sender_ip.into(), host));
            // Who asks for its own address tells others of it (RFC 5227 section 3).
            let is_question = arp.operation == ArpOperation::Request && arp.sender_ip != arp.target_ip;
            Some(Heard { has, asks: is_question.then_some(Question::Arp(arp)) })
        }
        EtherType::IPV6 => {
            let (header, payload) = link.payload.split_first_chunk::<{ ipv6::HEADER_LENGTH }>()?;
            let header = Ipv6Header(header);
            if header.version() != 6 || header.next_header() != IpProtocol::ICMPV6 {
                return None;
            }
            let message = payload.get(..usize::from(header.payload_length()))?;
            Some(match NeighbourMessage::parse(header, message).ok()? {
                NeighbourMessage::Solicitation { target, .. } => {
                    let question = Question::Neighbour { source: header.source(), mac: sender, target };
                    Heard { has: None, asks: Some(question) }
                }
                NeighbourMessage::Advertisement { target, target_link_layer, router, .. } => {
                    let host = Host { station: sender.into(), is_router: router };
                    let is_its_own = target_link_layer.is_none_or(|mac| mac == sender);
                    Heard { has: is_its_own.then_some((target.into(), host)), asks: None }
                }
            })
        }
        _ => None,
    }
}

/// An address, and whose it is.
#[derive(Clone, Copy)]
struct Slot {
    /// IPv4 ones as in `::ffff:0:0/96`.
    address: u128,
    /// `None` of a slot that is free.
    host: Option<Host>,
    /// Nothing that is heard changes it.
    is_static: bool,
}

const WAYS: usize = 4;
const BUCKETS: usize = 1 << 12;

/// Whose addresses are.
pub(crate) struct Hosts {
    buckets: Box<[[Slot; WAYS]]>,
    /// Which slot of a full bucket is next to go.
    turn: usize,
    /// Whether what is heard is kept.
    pub(crate) learns: bool,
}

impl Hosts {
    /// Those that are known beforehand are whatever is heard. They may be routers.
    pub(crate) fn new(known: &[(IpAddr, MacAddress)]) -> Self {
        let free = Slot { address: 0, host: None, is_static: false };
        let mut hosts = Self { buckets: vec![[free; WAYS]; BUCKETS].into(), turn: 0, learns: true };
        for (address, mac) in known {
            hosts.set(*address, Host { station: (*mac).into(), is_router: true }, true);
        }
        hosts
    }

    /// Learns what a host says of itself.
    pub(crate) fn learn(&mut self, heard: &Heard) {
        if let Some((address, host)) = heard.has
            && self.learns
        {
            self.set(address, host, false);
        }
    }

    fn set(&mut self, address: IpAddr, host: Host, is_static: bool) {
        let address = bits(address);
        self.turn = (self.turn + 1) % WAYS;
        let turn = self.turn;
        let Some(bucket) = self.buckets.get_mut(bucket_of(address)) else { return };
        let at = |wanted: &dyn Fn(&Slot) -> bool| bucket.iter().position(wanted);
        let place = at(&|slot| slot.host.is_some() && slot.address == address)
            .or_else(|| at(&|slot| slot.host.is_none()))
            .or_else(|| (turn..WAYS).chain(0..turn).find(|place| !bucket[*place].is_static));
        if let Some(place) = place
            && (is_static || !bucket[place].is_static)
        {
            bucket[place] = Slot { address, host: Some(host), is_static };
        }
    }

    /// Whose an address is.
    pub(crate) fn find(&self, address: IpAddr) -> Option<Host> {
        let address = bits(address);
        let bucket = self.buckets.get(bucket_of(address))?;
        bucket.iter().find(|slot| slot.address == address)?.host
    }
}

const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The number of the bucket that an address is in.
const fn bucket_of(address: u128) -> usize {
    let folded = (address as u64) ^ ((address >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros())) as usize
}
