//! What a lane knows of tunnels, ready for packets. It is made anew whenever something of it changes, and comes to lanes together with
//! ports and next hops, so that these fit each other.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmlane_forward::control::{Around, IpTunnel, NextHop};
use warmlane_mem::Packet;
use warmlane_table::NextHopId;
use warmlane_vxlan::{Directory, Encapsulation, InnerFrame, PacketEncapsulation, Reason};
use warmlane_wire::MacAddress;

use crate::control::tunnels::{Arrival, Arrivals, PacketArrival};

/// What was sent and received by a tunnel, of all lanes.
#[derive(Debug, Default)]
pub(crate) struct TunnelCounts {
    pub(crate) encapsulated: Count,
    pub(crate) decapsulated: Count,
}

/// Packets, and bytes of the frames inside.
#[derive(Debug, Default)]
pub(crate) struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// So many more.
    pub(super) fn add(&self, packets: u64, bytes: u64) {
        // Nothing else is read by these.
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The counts of each device, by the kernel's number.
pub(crate) type AllCounts = HashMap<u32, Arc<TunnelCounts>>;

/// A tunnel that frames are taken out of.
#[derive(Debug)]
pub(super) struct Inward {
    pub(super) is: Arrival,
    pub(super) counts: Arc<TunnelCounts>,
}

/// A tunnel that packets are taken out of.
#[derive(Debug)]
pub(super) struct PacketInward {
    pub(super) is: PacketArrival,
    pub(super) counts: Arc<TunnelCounts>,
}

/// What is put around what is sent.
#[derive(Debug, Clone)]
pub(super) enum Wrapping {
    Frame(Encapsulation),
    Packet(PacketEncapsulation),
}

impl Wrapping {
    fn new(around: &Around) -> Self {
        match around {
            Around::Frame(around) => Self::Frame(Encapsulation::new(around)),
            Around::Packet(around) => Self::Packet(PacketEncapsulation::new(around)),
        }
    }

    /// Puts it around a frame, or around the packet in that.
    #[inline]
    pub(super) fn wrap(
        &self,
        packet: &mut Packet,
        own: &[u8; 12],
        identification: u16,
    ) -> Result<(), Reason> {
        match self {
            Self::Frame(around) => {
                let inside = InnerFrame::of(packet.data())?;
                around.wrap(packet, &inside, own, identification)
            }
            Self::Packet(around) => around.wrap(packet, own),
        }
    }
}

/// A tunnel end that packets are sent to.
#[derive(Debug, Clone)]
pub(super) struct Outward {
    pub(super) wrapping: Wrapping,
    /// The network's Ethernet address, which frames come from.
    pub(super) source: MacAddress,
    pub(super) counts: Arc<TunnelCounts>,
}

/// The number of a tunnel end that stands for any.
const ANY: u16 = u16::MAX - 1;

/// Tunnels.
#[derive(Debug)]
pub(crate) struct Tunnels {
    /// Ports with lower numbers are those that lanes send by; this one is what leads into tunnels.
    entrance: u16,
    /// Our tunnel ends.
    locals: Vec<(IpAddr, u16)>,
    /// Tunnels' places in the list below, by our tunnel end and their identifier.
    identifiers: Directory<u64>,
    inward: Vec<Inward>,
    /// The places of tunnels that carry packets in the list below, by the other end's number and what is between the headers.
    packet_places: Directory<u64>,
    packets: Vec<PacketInward>,
    /// The numbers of other tunnel ends.
    ends_ipv4: Directory<u64>,
    ends_ipv6: Directory<u128>,
    /// By these: the ports that they may be heard by.
    masks: Vec<u64>,
    /// The numbers of the tunnel ends that stations are behind, by the place of the tunnel and the station's address.
    stations: Directory<u64>,
    /// By the number of the next hop.
    outward: Vec<Option<Outward>>,
}

const fn identifier_key(local: usize, identifier: u32) -> u64 {
    (local as u64) << 32 | identifier as u64
}

const fn packet_key(end: u16, tunnel: IpTunnel) -> u64 {
    let between = match tunnel {
        IpTunnel::Plain => 0,
        IpTunnel::Gre(None) => 1 << 32,
        IpTunnel::Gre(Some(key)) => 2 << 32 | key as u64,
    };
    (end as u64) << 40 | between
}

const fn station_key(tunnel: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    (tunnel as u64) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Tunnels {
    /// Of these arrivals and next hops. What devices count goes on in `counts`.
    pub(crate) fn new(entrance: u16, arrivals: &Arrivals, hops: &[NextHop], counts: &mut AllCounts) -> Self {
        let mut locals: Vec<_> = arrivals.tunnels.iter().map(|of| (of.local, of.udp_port)).collect();
        locals.sort_unstable();
        locals.dedup();
        let mut count = |device| Arc::clone(counts.entry(device).or_default());
        let place = |of: &Arrival| locals.binary_search(&(of.local, of.udp_port)).unwrap_or(0);
        let keys = arrivals.tunnels.iter().map(|of| identifier_key(place(of), of.identifier));
        let identifiers = Directory::new(keys.zip(0..));
        let numbered = || (0..ANY).zip(arrivals.ends.keys());
        let ends_ipv4 = numbered().filter_map(|(number, end)| match end {
            IpAddr::V4(address) => Some((address.to_bits().into(), number)),
            IpAddr::V6(_) => None,
        });
        let ends_ipv6 = numbered().filter_map(|(number, end)| match end {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits(), number)),
        });
        let numbers: HashMap<&IpAddr, u16> = numbered().map(|(number, end)| (end, number)).collect();
        let stations = arrivals.stations.iter().filter_map(|((tunnel, mac), end)| {
            let number = end.as_ref().map_or(Some(ANY), |end| numbers.get(end).copied());
            Some((station_key(*tunnel, *mac), number?))
        });
        let outward = hops.iter().map(|hop| match hop {
            NextHop::Tunnel(tunnel) => Some(Outward {
                wrapping: Wrapping::new(&tunnel.around),
                source: tunnel.inner.source,
                counts: count(tunnel.device),
            }),
            _ => None,
        });
        let outward = outward.collect();
        let inward = arrivals.tunnels.iter().map(|of| Inward { is: of.clone(), counts: count(of.device) });
        let inward = inward.collect();
        let packets = arrivals.packets.iter();
        let packets = packets.map(|of| PacketInward { is: of.clone(), counts: count(of.device) });
        let packets: Vec<_> = packets.collect();
        let keys = (0..ANY).zip(&packets).filter_map(|(place, PacketInward { is, .. })| {
            let end = numbers.get(&IpAddr::V4(is.remote))?;
            Some((packet_key(*end, is.tunnel), place))
        });
        Self {
            entrance,
            identifiers,
            inward,
            packet_places: Directory::new(keys),
            packets,
            ends_ipv4: Directory::new(ends_ipv4),
            ends_ipv6: Directory::new(ends_ipv6),
            masks: arrivals.ends.values().copied().collect(),
            stations: Directory::new(stations),
            outward,
            locals,
        }
    }

    /// Whether a port is one that packets come in by from outside.
    #[inline]
    pub(super) fn is_outside(&self, port: u16) -> bool {
        port < self.entrance
    }

    /// What leads into tunnels, as the port that datagrams come in by.
    pub(super) fn entrance(&self) -> u16 {
        self.entrance
    }

    /// Whether there is nothing to be taken out of datagrams.
    #[inline]
    pub(super) fn takes_nothing(&self) -> bool {
        self.inward.is_empty() && self.packets.is_empty()
    }

    /// The number of our tunnel end at this address and UDP port.
    #[inline]
    pub(super) fn local(&self, address: IpAddr, port: u16) -> Option<usize> {
        self.locals.iter().position(|local| *local == (address, port))
    }

    /// The tunnel of this identifier at the tunnel end of ours with this number, and its place.
    #[inline]
    pub(super) fn inward(&self, local: usize, identifier: u32) -> Option<(u16, &Inward)> {
        let place = self.identifiers.get(identifier_key(local, identifier))?;
        Some((place, self.inward.get(usize::from(place))?))
    }

    /// The tunnel whose packets come from there to that address of ours, with this between the headers. Of several devices with the same there, to
    /// different addresses of ours, one is known.
    #[inline]
    pub(super) fn packet_inward(&self, end: u16, local: Ipv4Addr, tunnel: IpTunnel) -> Option<&PacketInward> {
        let place = self.packet_places.get(packet_key(end, tunnel))?;
        self.packets.get(usize::from(place)).filter(|tunnel| tunnel.is.local == local)
    }

    /// Whether tunnels that carry packets end at an address of ours.
    pub(super) fn takes_packets_at(&self, local: Ipv4Addr) -> bool {
        self.packets.iter().any(|tunnel| tunnel.is.local == local)
    }

    /// The number of another tunnel end, if it may be heard by this port.
    #[inline]
    pub(super) fn end(&self, address: IpAddr, port: u16) -> Option<u16> {
        let number = match address {
            IpAddr::V4(address) => self.ends_ipv4.get(address.to_bits().into()),
            IpAddr::V6(address) => self.ends_ipv6.get(address.to_bits()),
        }?;
        let mask = self.masks.get(usize::from(number)).copied().unwrap_or(0);
        (port < 64 && mask >> port & 1 != 0).then_some(number)
    }

    /// Whether the kernel knows a station behind the tunnel at this place, at this tunnel end.
    #[inline]
    pub(super) fn knows_station(&self, tunnel: u16, mac: MacAddress, end: u16) -> bool {
        let known = self.stations.get(station_key(tunnel, mac.0));
        known.is_some_and(|known| known == end || known == ANY)
    }

    /// The tunnel end that a next hop is.
    #[inline]
    pub(super) fn outward(&self, hop: NextHopId) -> Option<&Outward> {
        self.outward.get(hop.index())?.as_ref()
    }
}
