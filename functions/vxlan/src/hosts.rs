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

use crate::directory::Directory;
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
    /// Its word goes before what others have said (RFC 4861's override flag); that of a proxy doesn't.
    replaces: bool,
}

/// What a frame says or asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    says: Option<(IpAddr, Word)>,
    pub(crate) asks: Option<Question>,
}

/// What is said of an address.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// It is the sender's.
    Is(Host),
    /// It is somebody's for whom the sender speaks. That is not believed, and neither is what was known before.
    Doubtful,
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
                    replace: host.replaces,
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
    // Tags inside a network tell other networks apart, of which nothing is known here.
    if link.outer.is_some() {
        return None;
    }
    let sender = link.header.source();
    match link.ethertype {
        EtherType::ARP => {
            let arp = ArpPacket::parse(link.payload).ok()?;
            let host = Host { station: sender.into(), is_router: false, replaces: true };
            let word = if arp.sender_mac == sender { Word::Is(host) } else { Word::Doubtful };
            let says = (!arp.sender_ip.is_unspecified()).then_some((arp.sender_ip.into(), word));
            // Who asks for its own address tells others of it (RFC 5227 section 3).
            let is_question = arp.operation == ArpOperation::Request
                && arp.sender_ip != arp.target_ip
                && arp.sender_mac == sender;
            Some(Heard { says, asks: is_question.then_some(Question::Arp(arp)) })
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
                    Heard { says: None, asks: Some(question) }
                }
                NeighbourMessage::Advertisement { target, target_link_layer, router, replace, .. } => {
                    let host = Host { station: sender.into(), is_router: router, replaces: replace };
                    let is_its_own = target_link_layer.is_none_or(|mac| mac == sender);
                    let word = if is_its_own { Word::Is(host) } else { Word::Doubtful };
                    Heard { says: Some((target.into(), word)), asks: None }
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
    /// When its host said so last.
    heard: u64,
}

const WAYS: usize = 4;
const BUCKETS: usize = 1 << 12;

/// Whose addresses are.
pub(crate) struct Hosts {
    /// Those that are known beforehand, whatever is heard; the numbers are of `known`.
    known_addresses: Directory<u128>,
    known: Box<[Host]>,
    buckets: Box<[[Slot; WAYS]]>,
    /// Cycles after which what was not said again is forgotten.
    age: u64,
    /// Which slot of a full bucket is next to go.
    turn: usize,
    /// Whether what is heard is kept.
    pub(crate) learns: bool,
}

impl Hosts {
    /// Those that are known beforehand may be routers.
    pub(crate) fn new(known: &[(IpAddr, MacAddress)], age: u64) -> Self {
        let free = Slot { address: 0, host: None, heard: 0 };
        let numbered = (0..u16::MAX).zip(known).map(|(number, (address, _))| (bits(*address), number));
        let host = |(_, mac): &(IpAddr, MacAddress)| Host {
            station: (*mac).into(),
            is_router: true,
            replaces: true,
        };
        Self {
            known_addresses: Directory::new(numbered),
            known: known.iter().map(host).collect(),
            buckets: vec![[free; WAYS]; BUCKETS].into(),
            age,
            turn: 0,
            learns: true,
        }
    }

    /// Learns what a host says. Says whether it was known, or is of no account: then others need not hear it.
    pub(crate) fn learn(&mut self, heard: &Heard, now: u64) -> bool {
        let Some((address, word)) = heard.says else { return true };
        let before = self.find(address, now);
        let address = bits(address);
        if self.known_addresses.get(address).is_some() {
            return true;
        }
        match (word, before) {
            (Word::Doubtful, _) => self.set(address, None, now),
            (Word::Is(host), Some(before)) if before.station != host.station && !host.replaces => {}
            (Word::Is(host), _) => self.set(address, Some(host), now),
        }
        matches!((word, before), (Word::Is(host), Some(before)) if host == before)
    }

    fn set(&mut self, address: u128, host: Option<Host>, now: u64) {
        let Some(bucket) = self.buckets.get_mut(bucket_of(address)).filter(|_| self.learns) else { return };
        let at = |wanted: &dyn Fn(&Slot) -> bool| bucket.iter().position(wanted);
        let own = at(&|slot| slot.host.is_some() && slot.address == address);
        let place = match host {
            None => own,
            Some(_) => own.or_else(|| at(&|slot| slot.host.is_none())).or_else(|| {
                self.turn = (self.turn + 1) % WAYS;
                Some(self.turn)
            }),
        };
        if let Some(place) = place {
            bucket[place] = Slot { address, host, heard: now };
        }
    }

    /// Whose an address is, if that was said not too long ago.
    pub(crate) fn find(&self, address: IpAddr, now: u64) -> Option<Host> {
        let address = bits(address);
        if let Some(number) = self.known_addresses.get(address) {
            return self.known.get(usize::from(number)).copied();
        }
        let slot = self.buckets.get(bucket_of(address))?.iter().find(|slot| slot.address == address)?;
        slot.host.filter(|_| now.saturating_sub(slot.heard) <= self.age)
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
