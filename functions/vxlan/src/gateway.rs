//! The stage: whose a packet is, where its frame goes, and copies for several.

use std::borrow::Cow;
use std::net::IpAddr;

use warmlane_counters::Source;
use warmlane_forward::control::TunnelProtocol;
use warmlane_forward::control::config::{IcmpLimits, OverlayConfig};
use warmlane_forward::datapath::TokenBucket;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, WakeUps};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool, Vlan};
use warmlane_port::software_offload::longest_part;
use warmlane_port::{Layered, TransmitOffloads, Transports};
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::{LinkLayer, MacAddress, Truncated, ethernet};

use crate::directory::Directory;
use crate::dropped::{Dropped, or_drop};
use crate::encapsulation::OVER_IPV4;
use crate::inner_frame::InnerFrame;
use crate::membership::Memberships;
use crate::network::{Network, To, group_mac};
use crate::outer::Outer;
use crate::plain::{self, Plain};
use crate::reason::{Reason, VxlanCounters, VxlanCountersView};
use crate::stations::{Learned, Place, at};
use crate::tags::{tag_bytes, tag_of, vlan_of, without_tag};
use crate::ways::{Ways, encapsulate};

/// The numbers of a network, and of the access in it.
type Access = Option<(u16, u16)>;

/// Frames without a tag, behind those of each VLAN.
const UNTAGGED: usize = 4_096;
const VLANS: usize = UNTAGGED + 1;

/// What the gateway has to know of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortFacts {
    /// Our Ethernet address; `None` takes frames whoever they are for.
    pub mac: Option<MacAddress>,
    /// Longest IP packet that its link carries, in bytes.
    pub mtu: u16,
}

impl PortFacts {
    /// The Ethernet address that frames come from by the port of this number, as the forwarder has it.
    pub(crate) fn own_address(&self, number: u16) -> MacAddress {
        let [high, low] = number.to_be_bytes();
        self.mac.unwrap_or(MacAddress([0x02, 0, 0, 0, high, low]))
    }

    /// Destination and source of a frame from the port to itself.
    fn own_addresses(&self, number: u16) -> [u8; 12] {
        let MacAddress([a, b, c, d, e, f]) = self.own_address(number);
        [a, b, c, d, e, f, a, b, c, d, e, f]
    }
}

/// A tunnel end of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    address: IpAddr,
    udp_port: u16,
    /// What all datagrams to it are.
    pub(crate) protocol: TunnelProtocol,
}

/// Bridges VXLAN and GENEVE networks; see the [crate].
///
/// The outputs are named `bridge0`, `bridge1` and so on, one for each port, by the ports' numbers.
pub struct Gateway {
    pub(crate) networks: Box<[Network]>,
    /// Our tunnel ends.
    pub(crate) ends: Box<[End]>,
    /// The same as [numbers](plain::end); of IPv6 or GENEVE no number is one.
    ends_ipv4: Box<[u64]>,
    /// The networks' places, by our tunnel end and their identifier.
    pub(crate) identifiers: Directory<u64>,
    /// The accesses of each port, by VLAN; [`UNTAGGED`] is without. Empty if it has none.
    accesses: Box<[Vec<Access>]>,
    ports: Vec<PortFacts>,
    /// For each port, the Ethernet addresses of what is encapsulated.
    pub(crate) own: Box<[[u8; 12]]>,
    pub(crate) pool: Pool,
    /// In the networks' groups.
    pub(crate) memberships: Memberships,
    pub(crate) counters: VxlanCounters,
    /// Of ICMP errors.
    pub(crate) limiter: TokenBucket,
    /// What is at work while the burst is filled anew.
    work: Option<Box<Burst>>,
}

impl Gateway {
    /// Checksums that are left to hardware stay so, whatever is around them, and so does how frames are to be cut. But UDP in no tunnel may be
    /// several of a tunnel's datagrams in one.
    pub const ACCEPTS: TransmitOffloads = TransmitOffloads {
        segmentation: Layered {
            outer: Transports { udp4: false, udp6: false, ..Transports::ALL },
            inner: Transports::ALL,
        },
        ..TransmitOffloads::WITHOUT_TAGS
    };

    /// What was left of a frame is left of what is inside a tunnel, and the other way round.
    pub const LEAVES: TransmitOffloads = TransmitOffloads::WITHOUT_TAGS;

    /// A gateway of `networks` between `ports`, whose numbers the networks' accesses name. Copies of frames for several come from `pool`,
    /// and so do ICMP errors, of which it makes no more than `limits` allow.
    pub fn new(networks: Vec<OverlayConfig>, ports: Vec<PortFacts>, pool: Pool, limits: IcmpLimits) -> Self {
        let clock = Clock::calibrated();
        let mut accesses: Box<[Vec<Access>]> = ports.iter().map(|_| Vec::new()).collect();
        for (number, network) in (0..=u16::MAX).zip(&networks) {
            for (access, (port, vlan)) in (0..=u16::MAX).zip(&network.access) {
                let Some(of_port) = accesses.get_mut(*port) else { continue };
                if vlan.is_some_and(|vlan| vlan > 0xfff) {
                    continue;
                }
                of_port.resize(VLANS, None);
                let vlan = vlan.map_or(UNTAGGED, usize::from);
                of_port[vlan] = of_port[vlan].or(Some((number, access)));
            }
        }
        let mut ends: Vec<_> = networks.iter().flat_map(ends_of).collect();
        ends.sort_unstable();
        ends.dedup();
        let identifiers = (0..u16::MAX).zip(&networks).flat_map(|(number, network)| {
            // They are there.
            let numbers = ends_of(network).map(|end| ends.binary_search(&end).unwrap_or(0));
            numbers.map(move |end| (key(end, network.identifier), number))
        });
        let ends_ipv4 = ends.iter().map(|end| match (end.protocol, end.address) {
            (TunnelProtocol::Vxlan, IpAddr::V4(address)) => plain::end(address.to_bits(), end.udp_port),
            _ => u64::MAX,
        });
        let identifiers = Directory::new(identifiers);
        let networks: Box<[_]> =
            networks.into_iter().map(|network| Network::new(network, &ports, clock)).collect();
        let own_address = |port: usize| ports.get(port).map(|facts| facts.own_address(port as u16));
        let mac_of = |port: usize| own_address(port).unwrap_or(MacAddress::ZERO);
        Self {
            identifiers,
            memberships: Memberships::of(&networks, mac_of),
            ends_ipv4: ends_ipv4.collect(),
            ends: ends.into(),
            networks,
            accesses,
            own: (0..).zip(&ports).map(|(number, facts)| facts.own_addresses(number)).collect(),
            ports,
            pool,
            counters: VxlanCounters::new(),
            limiter: TokenBucket::new(limits.rate, limits.burst, clock.cycles_per_second()),
            work: Some(Box::new(Burst::with_limit(BURST_CAPACITY))),
        }
    }

    /// What it counts, for tests and programs.
    pub fn counters_view(&self) -> VxlanCountersView {
        self.counters.view()
    }

    /// The network and the access that frames of this port and VLAN belong to.
    #[inline]
    pub(crate) fn access(&self, port: u16, vlan: Option<u16>) -> Option<(usize, u16)> {
        let accesses = self.accesses.get(usize::from(port))?;
        let (network, access) = accesses.get(vlan.map_or(UNTAGGED, usize::from)).copied()??;
        Some((usize::from(network), access))
    }

    /// One packet; `after` more come, so that copies have to leave space for them.
    #[inline]
    fn one(&mut self, packet: Packet, now: u64, after: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let ways = &mut Ways { burst, outputs, after };
        let headroom = packet.headroom();
        let untagged = self.access(packet.port(), None).filter(|_| packet.vlan() == Vlan::None);
        let bridged = if let Some((network, access)) = untagged
            && let Some(inside) = InnerFrame::of_ipv4(packet.data())
        {
            self.counters.from_access().add(1);
            self.bridge(packet, &inside, network, Place::Access(access), now, ways)
        } else if untagged.is_none()
            && let Some((plain, network, remote)) = self.plain(&packet)
        {
            self.counters.from_tunnels().add(1);
            self.decapsulate_plain(packet, &plain, network, remote, now, ways)
        } else {
            self.any(packet, now, ways)
        };
        if let Err(dropped) = bridged {
            dropped.count(headroom, &self.counters, outputs);
        }
    }

    /// A plain datagram for one of our tunnel ends, if that is all right, and the numbers of its network and the tunnel end that it is from.
    #[inline(always)]
    fn plain(&self, packet: &Packet) -> Option<(Plain, usize, u16)> {
        let plain = plain::look(packet)?;
        let facts = self.ports.get(usize::from(packet.port()))?;
        let end = self.ends_ipv4.iter().position(|end| *end == plain.end)?;
        let number = self.identifiers.get(key(end, plain.identifier))?;
        let network = &self.networks[usize::from(number)];
        // Our own address might be among the remote ones.
        if facts.mac.is_some_and(|mac| mac != plain.destination_mac)
            || network.config.inner_checksums
            || network.config.local == IpAddr::V4(plain.source.into())
        {
            return None;
        }
        Some((plain, number.into(), network.remotes.number_ipv4(plain.source)?))
    }

    /// Any other packet.
    #[inline(never)]
    fn any(&mut self, packet: Packet, now: u64, ways: &mut Ways<'_, '_>) -> Result<(), Dropped> {
        let link = LinkLayer::parse(packet.data());
        let tag = tag_of(link.as_ref().ok());
        let vlan = vlan_of(&packet, link.as_ref().ok());
        if let Some((network, access)) = self.access(packet.port(), vlan) {
            self.counters.from_access().add(1);
            let inside = link.as_ref().ok().filter(|_| vlan.is_none()).map(InnerFrame::behind);
            let from = Place::Access(access);
            match inside {
                Some(inside) => self.bridge(packet, &inside, network, from, now, ways),
                None => self.bridge_tagged(packet, tag, network, from, now, ways),
            }
        } else if let Some((outer, end)) = self.tunnelled(&packet, link) {
            self.counters.from_tunnels().add(1);
            self.decapsulate(packet, &outer, end, now, ways)
        } else {
            self.memberships.hear(&packet, now);
            // There is space: it was one of the burst's, and copies leave it.
            drop(ways.burst.push(packet));
            Ok(())
        }
    }

    /// The headers of a datagram for one of our tunnel ends, and that one's number. Fragments may have no ports, so any for an end of ours
    /// from one of the ends that it sends to counts as the tunnel's.
    #[inline]
    pub(crate) fn tunnelled(
        &self,
        packet: &Packet,
        link: Result<LinkLayer<'_>, Truncated>,
    ) -> Option<(Outer, usize)> {
        let outer = Outer::of(packet, &link.ok()?)?;
        let facts = self.ports.get(usize::from(packet.port()))?;
        let is_for_group = outer.destination.is_multicast();
        if is_for_group && !self.memberships.contains(packet.port(), outer.destination) {
            return None;
        }
        let wanted = if is_for_group { Some(group_mac(outer.destination)) } else { facts.mac };
        if wanted.is_some_and(|mac| mac != outer.destination_mac) {
            return None;
        }
        let end = if outer.is_fragment {
            self.networks.iter().any(|network| network.is_between(&outer)).then_some(0)
        } else {
            let is_its =
                |end: &End| (end.address, end.udp_port) == (outer.destination, outer.destination_port);
            self.ends.iter().position(is_its)
        };
        Some((outer, end?))
    }

    /// A frame with a tag, in it or beside it, or one that is cut off.
    #[inline(never)]
    fn bridge_tagged(
        &mut self,
        packet: Packet,
        tag: Option<u16>,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let headroom = packet.headroom();
        let taken =
            if packet.vlan() == Vlan::None { tag.and_then(|_| tag_bytes(packet.data())) } else { None };
        let packet = without_tag(packet, tag);
        let bridged = match InnerFrame::of(packet.data()) {
            Ok(inside) => self.bridge(packet, &inside, network, from, now, ways),
            Err(reason) => Err(Dropped { reason, packet }),
        };
        bridged.map_err(|dropped| dropped.tagged_again(headroom, taken))
    }

    /// A datagram for the tunnel end of this number.
    #[inline]
    fn decapsulate(
        &mut self,
        mut packet: Packet,
        outer: &Outer,
        end: usize,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let frame = or_drop!(packet, outer.check(&packet, self.ends[end].protocol));
        let number = self.identifiers.get(key(end, frame.identifier));
        let number = or_drop!(packet, number.ok_or(Reason::UnknownNetwork));
        let network = &self.networks[usize::from(number)];
        if outer.source == network.config.local {
            return Err(Dropped { reason: Reason::Recursion, packet });
        }
        if network.remotes.number(outer.source).is_none() && !network.remotes.are_heard() {
            return Err(Dropped { reason: Reason::UnknownRemote, packet });
        }
        let inside = or_drop!(packet, outer.strip(&mut packet, &frame, network.config.inner_checksums));
        let Network { remotes, config, .. } = &mut self.networks[usize::from(number)];
        let remote = or_drop!(packet, remotes.hear(outer.source, config, now));
        self.bridge(packet, &inside, number.into(), Place::Remote(remote), now, ways)
    }

    /// A plain datagram from the tunnel end of this number.
    #[inline(always)]
    fn decapsulate_plain(
        &mut self,
        mut packet: Packet,
        plain: &Plain,
        network: usize,
        remote: u16,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        or_drop!(packet, packet.trim_front(OVER_IPV4).map_err(|_| Reason::OuterLength));
        if packet.packet_length() > plain.frame && !packet.truncate(plain.frame) {
            return Err(Dropped { reason: Reason::NoBuffer, packet });
        }
        packet.forget_contents();
        self.bridge(packet, &plain.inside, network, Place::Remote(remote), now, ways)
    }

    /// Learns where a frame's sender is, and sends the frame to where its destination is.
    #[inline(always)]
    fn bridge(
        &mut self,
        packet: Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let InnerFrame { destination, source, .. } = *inside;
        if !source.is_valid_source() {
            return Err(Dropped { reason: Reason::BadSource, packet });
        }
        if destination.is_reserved_group() {
            return Err(Dropped { reason: Reason::LinkLocal, packet });
        }
        let of = &self.networks[network];
        if inside.is_from(of.config.local) {
            return Err(Dropped { reason: Reason::Recursion, packet });
        }
        if of.hosts.is_some() {
            return self.answer_or_pass_on(packet, inside, network, from, now, ways);
        }
        self.pass_on(packet, inside, network, from, now, ways)
    }

    /// The same for a frame that may be passed on.
    #[inline(always)]
    pub(crate) fn pass_on(
        &mut self,
        packet: Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let InnerFrame { destination, source, .. } = *inside;
        let of = &mut self.networks[network];
        if let Place::Remote(remote) = from {
            of.remotes.note(remote, now);
        }
        let learned = of.stations.learn(source, from, now);
        if learned != Learned::Known {
            count_learned(&self.counters, learned);
        }
        let known = if destination.is_multicast() { None } else { of.stations.find(destination, now) };
        match (known, from) {
            (Some(to), _) if to == from => Err(Dropped { reason: Reason::SamePort, packet }),
            (Some(Place::Remote(_)), Place::Remote(_)) => {
                Err(Dropped { reason: Reason::SplitHorizon, packet })
            }
            (Some(to), _) if !fits(&packet, of.mtu(To::Place(to))) => {
                let mtu = of.mtu(To::Place(to));
                self.tell(&packet, mtu, network, from, now, ways);
                Err(Dropped { reason: Reason::TooLong, packet })
            }
            (Some(Place::Remote(remote)), _) => {
                encapsulate(packet, inside, of.remotes.encapsulation(remote), &self.own, &self.counters, ways)
            }
            (Some(to), _) => self.send(packet, inside, network, to, ways),
            (None, _) => {
                // Other tunnel ends have a copy, too, and an error in the name of a station that was never seen here would teach the sender's
                // end that it is.
                if matches!(from, Place::Access(_)) {
                    let mtu = of.everybody_else(from).map(|to| of.mtu(to)).min().unwrap_or(u16::MAX);
                    if !fits(&packet, mtu) {
                        self.tell(&packet, mtu, network, from, now, ways);
                    }
                }
                self.flood(packet, inside, network, from, ways)
            }
        }
    }
}

/// Where a network's tunnels end here.
fn ends_of(network: &OverlayConfig) -> impl Iterator<Item = End> {
    let OverlayConfig { udp_port, protocol, .. } = *network;
    network.addresses().map(move |address| End { address, udp_port, protocol })
}

/// What tells a network from others: the number of our tunnel end, and its identifier.
#[inline]
pub(crate) const fn key(end: usize, identifier: u32) -> u64 {
    (end as u64) << 32 | identifier as u64
}

/// Notes that a station isn't where it was known to be.
#[cold]
fn count_learned(counters: &VxlanCounters, learned: Learned) {
    match learned {
        Learned::Known => {}
        Learned::New => counters.learned().add(1),
        Learned::Moved => counters.moved().add(1),
        Learned::Full => counters.not_learned().add(1),
    }
}

/// Whether the IP packet in an untagged frame is no longer than `mtu`, or what it is to be cut into.
#[inline]
pub(crate) fn fits(packet: &Packet, mtu: u16) -> bool {
    longest_part(packet) <= usize::from(mtu) + ethernet::HEADER_LENGTH
}

impl Stage for Gateway {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let now = at(clock::cycles());
        // It is always there: only this takes it out, and puts it back.
        let Some(mut work) = self.work.take() else { return };
        burst.move_to(&mut work);
        let mut after = work.len();
        for packet in work.drain() {
            after -= 1;
            self.one(packet, now, after, burst, outputs);
        }
        self.work = Some(work);
    }

    fn is_polled(&self) -> bool {
        !self.memberships.is_empty()
    }

    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        if outputs.must_wait() || self.memberships.due().is_none_or(|due| due > now) {
            return 0;
        }
        self.memberships.report(now, &self.pool, &self.counters, outputs)
    }

    fn sleep(&mut self, mut wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        if let Some(due) = self.memberships.due() {
            wake_ups.by(due);
        }
        then(wake_ups);
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.memberships.leave(clock::cycles(), &self.pool, &self.counters, outputs)
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("vxlan")
    }

    fn accepts(&self) -> TransmitOffloads {
        Self::ACCEPTS
    }

    fn leaves(&self) -> TransmitOffloads {
        Self::LEAVES
    }

    fn output_count(&self) -> usize {
        self.ports.len()
    }

    fn output_name(&self, output: usize) -> Cow<'static, str> {
        Cow::Owned(format!("bridge{output}"))
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.view())]
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        self.note_way(packet, explanation);
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(self.rehearse_burst(burst, outputs))
    }
}
