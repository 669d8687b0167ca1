//! The stage: whose a packet is, where its frame goes, and copies for several.

use std::borrow::Cow;

use warmlane_counters::Source;
use warmlane_forward::control::config::{IcmpLimits, VxlanConfig};
use warmlane_forward::datapath::TokenBucket;
use warmlane_lane::{Outputs, Stage};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool, Vlan};
use warmlane_port::{Layered, TransmitOffloads, Transports};
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::{EtherType, EthernetHeader, LinkLayer, MacAddress, VlanTag, ethernet, vlan};

use crate::outer::{self, Outer};
use crate::reason::{Reason, VxlanCounters, VxlanCountersView};
use crate::stations::{Learned, Place, Stations};
use crate::too_big;

/// What the gateway has to know of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortFacts {
    /// Our Ethernet address; `None` takes frames whoever they are for.
    pub mac: Option<MacAddress>,
    /// Longest IP packet that its link carries, in bytes.
    pub mtu: u16,
}

/// Bridges VXLAN networks; see the [crate].
///
/// The outputs are named `bridge0`, `bridge1` and so on, one for each port, by the ports' numbers.
pub struct Gateway {
    networks: Vec<VxlanConfig>,
    ports: Vec<PortFacts>,
    pool: Pool,
    /// One for each network, each with its own age.
    stations: Vec<Stations>,
    counters: VxlanCounters,
    /// Of ICMP errors.
    limiter: TokenBucket,
    /// What is at work while the burst is filled anew.
    work: Option<Box<Burst>>,
}

impl Gateway {
    /// A gateway of `networks` between `ports`, whose numbers the networks' accesses name. Copies of frames for several come from `pool`,
    /// and so do ICMP errors, of which it makes no more than `limits` allow.
    pub fn new(networks: Vec<VxlanConfig>, ports: Vec<PortFacts>, pool: Pool, limits: IcmpLimits) -> Self {
        let clock = Clock::calibrated();
        let stations = networks.iter().map(|network| {
            let nanoseconds = u64::from(network.age_seconds).saturating_mul(1_000_000_000);
            let mut stations = Stations::new(clock.cycles_for(nanoseconds));
            for (mac, remote) in &network.stations {
                // The configuration has fewer than a bucket holds, or they collide; then they are learned.
                stations.set(*mac, Place::Remote(*remote as u16));
            }
            stations
        });
        let stations = stations.collect();
        Self {
            networks,
            ports,
            pool,
            stations,
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
    fn access(&self, port: u16, vlan: Option<u16>) -> Option<(usize, u16)> {
        self.networks.iter().enumerate().find_map(|(number, network)| {
            let is_it = |access: &(usize, Option<u16>)| *access == (usize::from(port), vlan);
            network.access.iter().position(is_it).map(|access| (number, access as u16))
        })
    }

    /// One packet; `after` more come, so that copies have to leave space for them.
    fn one(
        &mut self,
        mut packet: Packet,
        now: u64,
        after: usize,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
    ) {
        let tag = LinkLayer::parse(packet.data()).ok().and_then(|link| link.outer).map(VlanTag::id);
        let vlan = match packet.vlan() {
            Vlan::Stripped(beside) | Vlan::Insert(beside) => Some(beside.control & 0xfff),
            Vlan::None => tag,
        };
        let arrival = if let Some((network, access)) = self.access(packet.port(), vlan) {
            self.counters.from_access().add(1);
            if packet.vlan() == Vlan::None && tag.is_some() {
                take_tag_off(&mut packet);
            }
            packet.set_vlan(Vlan::None);
            Ok((packet, network, Place::Access(access)))
        } else if let Some(outer) = self.tunnelled(&packet) {
            self.counters.from_tunnels().add(1);
            self.unpack(packet, &outer)
        } else {
            // There is space: it was one of the burst's, and copies leave it.
            return drop(burst.push(packet));
        };
        let bridged = arrival.and_then(|(packet, network, from)| {
            let mut ways = Ways { burst, outputs, after };
            self.bridge(packet, network, from, now, &mut ways)
        });
        if let Err(reason) = bridged {
            self.counters.drops().count(reason, 1);
        }
    }

    /// The headers of a datagram for one of our tunnel ends.
    fn tunnelled(&self, packet: &Packet) -> Option<Outer> {
        let outer = Outer::of(packet)?;
        let facts = self.ports.get(usize::from(packet.port()))?;
        let is_ours = facts.mac.is_none_or(|mac| mac == outer.destination_mac);
        (is_ours && self.networks.iter().any(|network| ends_here(network, &outer))).then_some(outer)
    }

    /// The frame in a datagram, its network, and the tunnel end that it is from.
    fn unpack(&self, mut packet: Packet, outer: &Outer) -> Result<(Packet, usize, Place), Reason> {
        let identifier = outer.check(&packet)?;
        let is_it = |network: &VxlanConfig| network.identifier == identifier && ends_here(network, outer);
        let number = self.networks.iter().position(is_it).ok_or(Reason::UnknownNetwork)?;
        let network = &self.networks[number];
        if outer.source == network.local {
            return Err(Reason::Recursion);
        }
        let remote = network.remotes.iter().position(|remote| *remote == outer.source);
        let remote = remote.ok_or(Reason::UnknownRemote)?;
        outer.strip(&mut packet, network.inner_checksums)?;
        Ok((packet, number, Place::Remote(remote as u16)))
    }

    /// Learns where a frame's sender is, and sends the frame to where its destination is.
    fn bridge(
        &mut self,
        packet: Packet,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Reason> {
        let (header, _) = EthernetHeader::parse(packet.data()).map_err(|_| Reason::BadSource)?;
        let (destination, source) = (header.destination(), header.source());
        if !source.is_unicast() || source.0 == [0; 6] {
            return Err(Reason::BadSource);
        }
        // 01:80:c2:00:00:00 to 0f: spanning tree, pauses, LLDP.
        if let [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f] = destination.0 {
            return Err(Reason::LinkLocal);
        }
        if outer::source(packet.data()) == Some(self.networks[network].local) {
            return Err(Reason::Recursion);
        }
        match self.stations[network].learn(source, from, now) {
            Learned::Known => {}
            Learned::New => self.counters.learned().add(1),
            Learned::Moved => self.counters.moved().add(1),
            Learned::Full => self.counters.not_learned().add(1),
        }
        let known =
            if destination.is_multicast() { None } else { self.stations[network].find(destination, now) };
        match (known, from) {
            (Some(to), _) if to == from => Err(Reason::SamePort),
            (Some(Place::Remote(_)), Place::Remote(_)) => Err(Reason::SplitHorizon),
            (Some(to), _) => {
                self.tell(&packet, self.mtu(network, to), network, from, now, ways);
                self.send(packet, network, to, ways)
            }
            (None, _) => {
                // Other tunnel ends have a copy, too, and an error in the name of a station that was never seen here would teach the sender's
                // end that it is.
                if matches!(from, Place::Access(_)) {
                    let mtu = self.everybody_else(network, from).map(|to| self.mtu(network, to)).min();
                    self.tell(&packet, mtu.unwrap_or(u16::MAX), network, from, now, ways);
                }
                self.flood(packet, network, from, ways)
            }
        }
    }

    /// To everybody but where it came from; what came from a tunnel end goes to no other.
    fn flood(
        &mut self,
        packet: Packet,
        network: usize,
        from: Place,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Reason> {
        self.counters.flooded().add(1);
        let mut last = None;
        for place in self.everybody_else(network, from) {
            let Some(before) = last.replace(place) else { continue };
            // A copy for the one before; the frame itself is for the last.
            let Some(copy) = packet.copy_in(&self.pool) else {
                self.counters.copied().add(1);
                self.counters.drops().count(Reason::NoBuffer, 1);
                continue;
            };
            self.counters.copied().add(1);
            if let Err(reason) = self.send(copy, network, before, ways) {
                self.counters.drops().count(reason, 1);
            }
        }
        self.send(packet, network, last.ok_or(Reason::NobodyElse)?, ways)
    }

    /// Where broadcast, multicast and unknown unicast frames go.
    fn everybody_else(&self, network: usize, from: Place) -> impl Iterator<Item = Place> + use<> {
        let VxlanConfig { access, remotes, .. } = &self.networks[network];
        let remotes = if matches!(from, Place::Access(_)) { remotes.len() } else { 0 };
        let places = (0..access.len()).map(|access| Place::Access(access as u16));
        let places = places.chain((0..remotes).map(|remote| Place::Remote(remote as u16)));
        places.filter(move |place| *place != from)
    }

    /// Longest IP packet that goes there.
    fn mtu(&self, network: usize, to: Place) -> u16 {
        let network = &self.networks[network];
        match to {
            Place::Remote(_) => network.mtu,
            Place::Access(access) => {
                let (port, _) = network.access[usize::from(access)];
                self.ports.get(port).map_or(0, |facts| facts.mtu)
            }
        }
    }

    /// Tells the sender of a frame, which came from there, that no more than `mtu` bytes of IP fit, if they don't.
    fn tell(
        &mut self,
        frame: &Packet,
        mtu: u16,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) {
        if fits(frame, mtu) {
            return;
        }
        let (limiter, counters) = (&mut self.limiter, &self.counters);
        let may = || {
            let may = limiter.take(now);
            counters.errors_limited().add(u64::from(!may));
            may
        };
        let Some(error) = too_big::error(frame, mtu, &self.pool, may) else { return };
        self.counters.errors().add(1);
        if let Err(reason) = self.send(error, network, from, ways) {
            self.counters.drops().count(reason, 1);
        }
    }

    fn send(
        &self,
        mut packet: Packet,
        network: usize,
        to: Place,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Reason> {
        if !fits(&packet, self.mtu(network, to)) {
            return Err(Reason::TooLong);
        }
        let network = &self.networks[network];
        match to {
            Place::Access(access) => {
                let (port, vlan) = network.access[usize::from(access)];
                if let Some(vlan) = vlan {
                    put_tag_on(&mut packet, vlan)?;
                }
                self.counters.to_access().add(1);
                ways.outputs.send(port, packet);
            }
            Place::Remote(remote) => {
                let facts = self.ports.get(usize::from(packet.port()));
                // Any address of one host will do where the forwarder doesn't know its own.
                let own = facts.and_then(|facts| facts.mac).unwrap_or(MacAddress([2, 0, 0, 0, 0, 0]));
                outer::wrap(&mut packet, network, network.remotes[usize::from(remote)], own)?;
                if ways.burst.space() <= ways.after || ways.burst.push(packet).is_err() {
                    return Err(Reason::NoSpace);
                }
                self.counters.to_tunnels().add(1);
            }
        }
        Ok(())
    }
}

/// Where packets can go.
struct Ways<'a, 'b> {
    /// To the forwarder.
    burst: &'a mut Burst,
    /// To access ports.
    outputs: &'a mut Outputs<'b>,
    /// Packets that are still to come and need space in the burst.
    after: usize,
}

/// Fragments may have no ports, so any from one of the network's tunnel ends counts as the network's.
fn ends_here(network: &VxlanConfig, outer: &Outer) -> bool {
    network.local == outer.destination
        && if outer.is_fragment {
            network.remotes.contains(&outer.source)
        } else {
            network.udp_port == outer.destination_port
        }
}

/// Whether the IP packet in an untagged frame is no longer than `mtu`.
fn fits(packet: &Packet, mtu: u16) -> bool {
    packet.packet_length() <= usize::from(mtu) + ethernet::HEADER_LENGTH
}

/// Notes where layer 3 is, so that what is left to hardware can move along with it.
fn note_l3_offset(packet: &mut Packet) {
    let offset = LinkLayer::parse(packet.data()).map_or(ethernet::HEADER_LENGTH, |link| link.header_length());
    packet.set_l3_offset(offset as u8);
}

/// Moves the addresses over the tag.
fn take_tag_off(packet: &mut Packet) {
    note_l3_offset(packet);
    packet.data_mut().copy_within(..ADDRESSES, vlan::TAG_LENGTH);
    // It was there, as the link layer was read.
    let _ = packet.trim_front(vlan::TAG_LENGTH);
    packet.move_l3_offset(packet.l3_offset().saturating_sub(vlan::TAG_LENGTH as u8));
}

fn put_tag_on(packet: &mut Packet, id: u16) -> Result<(), Reason> {
    note_l3_offset(packet);
    packet.prepend(vlan::TAG_LENGTH).map_err(|_| Reason::NoHeadroom)?;
    packet.move_l3_offset(packet.l3_offset().saturating_add(vlan::TAG_LENGTH as u8));
    let data = packet.data_mut();
    data.copy_within(vlan::TAG_LENGTH..vlan::TAG_LENGTH + ADDRESSES, 0);
    let [high, low] = id.to_be_bytes();
    let [first, second] = EtherType::VLAN.0.to_be_bytes();
    data[ADDRESSES..ADDRESSES + vlan::TAG_LENGTH].copy_from_slice(&[first, second, high, low]);
    Ok(())
}

/// Bytes of both Ethernet addresses.
const ADDRESSES: usize = 12;

impl Stage for Gateway {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let now = clock::cycles();
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

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("vxlan")
    }

    /// Checksums that are left to hardware stay so, whatever is around them. Of a super-frame a tunnel would make one datagram.
    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads { checksums: Layered::OUTER, ..TransmitOffloads::NONE }
    }

    /// Behind the headers of a tunnel they are inner ones.
    fn leaves(&self) -> TransmitOffloads {
        let checksums = Layered { outer: Transports::NONE, inner: Transports::ALL };
        TransmitOffloads { checksums, ..TransmitOffloads::NONE }
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
}
