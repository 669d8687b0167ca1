//! The stage that packets go through on their way into and out of tunnels.
//!
//! It stands in front of the forwarder. What comes in from outside passes, but for datagrams with frames that are to be routed, and for IP packets in others: these are taken out, and go
//! on as if they had come in by the network that they are from. What the forwarder sends into a tunnel comes back
//! here, and goes on as a datagram that the forwarder routes.
//!
//! A datagram that is not taken passes as it was, and the kernel gets it, as it does whatever is for an address of the box: it bridges, learns,
//! answers, puts fragments together and knows other networks.

mod explain;
mod table;
mod taken_out;

use std::borrow::Cow;

use warmlane_counters::{Source, counters};
use warmlane_forward::control::{Hops, LaneRoutes, Tunnel, TunnelProtocol};
use warmlane_forward::datapath::mark_of_table;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, WakeUps};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_port::{Reason as _, TransmitOffloads};
use warmlane_vxlan::{Gateway, Outer, OuterIpv4, Reason};
use warmlane_wire::{
    EtherType, EthernetHeader, IpProtocol, LinkLayer, MacAddress, ethernet, ipv4, ipv6, vxlan,
};

pub(crate) use table::{AllCounts, Tunnels};
use table::{Count, Inward, PacketInward, TunnelCounts};
pub(crate) use taken_out::put_back;
use taken_out::{SAVED, TakenOut, save};

counters! {
    /// The accounting of one lane's tunnels: between two bursts its balance is zero.
    pub struct TunnelCounters => TunnelCountersView, drops by Reason {
        /// Datagrams of tunnels with frames that are to be routed.
        arrived: In, "packets";
        /// Packets that are to be sent into tunnels.
        entered: In, "packets";
        /// Packets taken out of datagrams.
        decapsulated: Out, "packets";
        /// Datagrams made.
        encapsulated: Out, "packets";
    }
}

/// The input by which packets come that are to be encapsulated.
const ENTRANCE: usize = 1;

/// Destination and source of datagrams' frames, which the forwarder replaces: any address of one host will do.
const NOBODY: [u8; 12] = [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0];

/// What is done with a packet.
enum Verdict {
    Stays,
    Dropped,
}

/// Takes packets out of tunnels, and sends them into tunnels.
pub struct TunnelEnds {
    routes: LaneRoutes,
    counters: TunnelCounters,
    /// Of the next datagram.
    identification: u16,
    /// What is done only seems to be done.
    is_rehearsing: bool,
}

impl TunnelEnds {
    /// Of the lane of this number, by what comes with these routes.
    pub fn new(routes: LaneRoutes, lane: u16) -> Self {
        // Lanes have a tunnel in common: they begin far apart.
        let identification = lane.wrapping_mul(0x9e37);
        Self { routes, counters: TunnelCounters::new(), identification, is_rehearsing: false }
    }

    /// What it counts, for tests and programs.
    pub fn counters_view(&self) -> TunnelCountersView {
        self.counters.view()
    }

    fn drop_one(
        counters: &TunnelCounters,
        reason: Reason,
        packet: &Packet,
        outputs: &Outputs<'_>,
    ) -> Verdict {
        counters.drops().count(reason, 1);
        if outputs.shows_drops() {
            outputs.show_drop(&Reason::ALL[reason.index()], packet);
        }
        Verdict::Dropped
    }

    /// What comes from outside.
    #[inline]
    fn arrive(&mut self, burst: &mut Burst, outputs: &Outputs<'_>) {
        let hops = self.routes.hops();
        let Some(tunnels) = hops.beside::<Tunnels>().filter(|tunnels| !tunnels.takes_nothing()) else {
            return;
        };
        let (counters, mut run) = (&self.counters, Run::new(self.is_rehearsing));
        each(burst, |packet| {
            let Some(found) = find(packet, tunnels, hops) else { return Verdict::Stays };
            counters.arrived().add(1);
            match take_out(packet, &found, hops) {
                Ok(bytes) => {
                    run.add(&found.counts().decapsulated, bytes);
                    Verdict::Stays
                }
                Err(reason) => Self::drop_one(counters, reason, packet, outputs),
            }
        });
        counters.decapsulated().add(run.finish());
    }

    /// What the forwarder sends into tunnels.
    #[inline]
    fn enter(&mut self, burst: &mut Burst, outputs: &Outputs<'_>) {
        let Self { routes, counters, identification, is_rehearsing } = self;
        counters.entered().add(burst.len() as u64);
        let tunnels = routes.hops().beside::<Tunnels>();
        let mut run = Run::new(*is_rehearsing);
        each(burst, |packet| {
            let number = header(packet.data()).and_then(Tunnel::number_at_entrance);
            let way = tunnels.and_then(|tunnels| Some((tunnels, tunnels.outward(number?)?)));
            let Some((tunnels, way)) = way else {
                return Self::drop_one(counters, Reason::Changed, packet, outputs);
            };
            if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
                addresses[6..].copy_from_slice(&way.source.0);
            }
            let bytes = packet.packet_length();
            let first = *identification;
            *identification = first.wrapping_add(datagrams(packet));
            match way.wrapping.wrap(packet, &NOBODY, first) {
                Ok(()) => {
                    packet.set_port(tunnels.entrance());
                    run.add(&way.counts.encapsulated, bytes);
                    Verdict::Stays
                }
                Err(reason) => Self::drop_one(counters, reason, packet, outputs),
            }
        });
        counters.encapsulated().add(run.finish());
    }
}

/// How many datagrams a packet becomes at most: one, unless it is to be cut.
#[inline]
fn datagrams(packet: &Packet) -> u16 {
    let parts = packet
        .segmentation()
        .map_or(1, |segmentation| packet.packet_length().div_ceil(usize::from(segmentation.size.max(1))));
    parts as u16
}

/// Packets of one tunnel, one behind the other, so that what all lanes count together is touched once for all of them.
#[derive(Default)]
struct Run<'a> {
    count: Option<&'a Count>,
    packets: u64,
    bytes: u64,
    /// Packets of all runs before.
    before: u64,
    /// Only these are counted.
    is_rehearsing: bool,
}

impl<'a> Run<'a> {
    fn new(is_rehearsing: bool) -> Self {
        Self { is_rehearsing, ..Self::default() }
    }

    #[inline]
    fn add(&mut self, count: &'a Count, bytes: usize) {
        if !self.count.is_some_and(|last| std::ptr::eq(last, count)) {
            self.flush();
            self.count = Some(count);
        }
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    fn flush(&mut self) {
        if let Some(count) = self.count.take().filter(|_| !self.is_rehearsing) {
            count.add(self.packets, self.bytes);
        }
        self.before += self.packets;
        (self.packets, self.bytes) = (0, 0);
    }

    /// How many packets there were in all.
    fn finish(mut self) -> u64 {
        self.flush();
        self.before
    }
}

/// Does something with each packet of a burst, and takes those out that are dropped.
#[inline(always)]
fn each(burst: &mut Burst, mut work: impl FnMut(&mut Packet) -> Verdict) {
    let mut dropped = [false; BURST_CAPACITY];
    let mut any = false;
    for (packet, dropped) in burst.iter_mut().zip(&mut dropped) {
        *dropped = matches!(work(packet), Verdict::Dropped);
        any |= *dropped;
    }
    if any {
        let mut dropped = dropped.iter();
        burst.retain(|_| dropped.next() == Some(&false));
    }
}

fn header(frame: &[u8]) -> Option<EthernetHeader<'_>> {
    frame.first_chunk().map(EthernetHeader)
}

/// What is to be taken out of a tunnel and routed.
enum Found<'a> {
    Frame(Outer, &'a Inward),
    Packet(OuterIpv4, &'a PacketInward),
}

impl<'a> Found<'a> {
    fn counts(&self) -> &'a TunnelCounts {
        match self {
            Self::Frame(_, tunnel) => &tunnel.counts,
            Self::Packet(_, tunnel) => &tunnel.counts,
        }
    }
}

/// Looks at a packet from outside: whether it is a datagram for a tunnel end of ours with a frame for a network's own address, from a tunnel
/// end that the kernel would hear by that port as well, and there is nothing about it that the kernel should see.
#[inline]
fn find<'a>(packet: &Packet, tunnels: &'a Tunnels, hops: &Hops) -> Option<Found<'a>> {
    if !may_be_of_tunnel(packet.data()) || !tunnels.is_outside(packet.port()) {
        return None;
    }
    look(packet, tunnels, hops).ok()
}

/// Whether a frame carries UDP, perhaps behind a tag, or what else tunnels over IPv4 are made of.
#[inline(always)]
fn may_be_of_tunnel(frame: &[u8]) -> bool {
    const IPV4_PROTOCOL: usize = ethernet::HEADER_LENGTH + 9;
    const IPV6_NEXT_HEADER: usize = ethernet::HEADER_LENGTH + 6;
    const UDP: u8 = IpProtocol::UDP.0;
    let Some(start) = frame.first_chunk::<{ ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH }>() else {
        return false;
    };
    match EtherType(u16::from_be_bytes([start[12], start[13]])) {
        EtherType::IPV4 => matches!(
            IpProtocol(start[IPV4_PROTOCOL]),
            IpProtocol::UDP | IpProtocol::IPV4 | IpProtocol::IPV6 | IpProtocol::GRE
        ),
        EtherType::IPV6 => start[IPV6_NEXT_HEADER] == UDP,
        EtherType::VLAN => true,
        _ => false,
    }
}

/// Why a packet is not taken out of a datagram; `None` of what isn't for a tunnel end of ours.
type Left = Option<&'static str>;

#[inline(never)]
fn look<'a>(packet: &Packet, tunnels: &'a Tunnels, hops: &Hops) -> Result<Found<'a>, Left> {
    let link = LinkLayer::parse(packet.data()).map_err(|_| None)?;
    match OuterIpv4::of(packet, &link) {
        Some(outer) => find_packet(packet, outer, tunnels, hops),
        None => find_in_datagram(packet, &link, tunnels, hops),
    }
}

/// Whether a frame that came in by a port is for us, and routed at all.
fn is_for_us(packet: &Packet, destination: MacAddress, hops: &Hops) -> bool {
    let port = hops.ports().get(usize::from(packet.port()));
    port.is_some_and(|port| port.mac.is_none_or(|mac| mac == destination)) && hops.table_of(packet).is_some()
}

fn find_packet<'a>(
    packet: &Packet,
    outer: OuterIpv4,
    tunnels: &'a Tunnels,
    hops: &Hops,
) -> Result<Found<'a>, Left> {
    if !is_for_us(packet, outer.destination_mac, hops) || !tunnels.takes_packets_at(outer.destination) {
        return Err(None);
    }
    let left = |why| Err(Some(why));
    let Some(end) = tunnels.end(outer.source.into(), packet.port()) else {
        return left("the kernel knows nobody at that tunnel end, or doesn't expect it by that interface");
    };
    let Some(tunnel) = tunnels.packet_inward(end, outer.destination, outer.tunnel) else {
        return left("no tunnel of lanes has these ends and this key");
    };
    let is_ipv6 = outer.inside == EtherType::IPV6;
    if !tunnel.is.carries[usize::from(is_ipv6)] {
        return left("its tunnel doesn't carry this version of IP");
    }
    // Routing protocols talk to groups, and the kernel has joined these.
    if is_for_group(packet.data().get(outer.start..).unwrap_or_default(), is_ipv6) {
        return left("the packet inside is for a group");
    }
    // Seen from where the packet's Ethernet header would be.
    let frame = outer.start.checked_sub(ethernet::HEADER_LENGTH);
    if is_ipv6 && stays_on_link(frame.and_then(|frame| packet.data().get(frame..))) {
        return left("the packet inside stays on its link");
    }
    if packet.segments() > 1 && !frame.is_some_and(|frame| ends_with_packet(packet, frame)) {
        return left("it is in several buffers, and there is padding behind the packet inside");
    }
    if packet.headroom() < ethernet::HEADER_LENGTH {
        return left("there is no space to note what is written over");
    }
    Ok(Found::Packet(outer, tunnel))
}

fn find_in_datagram<'a>(
    packet: &Packet,
    link: &LinkLayer<'_>,
    tunnels: &'a Tunnels,
    hops: &Hops,
) -> Result<Found<'a>, Left> {
    /// The only flags that the kernel takes without an extension.
    const FLAGS: [u8; 4] = [0x08, 0, 0, 0];

    let outer = Outer::of(packet, link).ok_or(None)?;
    let local = tunnels.local(outer.destination, outer.destination_port).ok_or(None)?;
    if !is_for_us(packet, outer.destination_mac, hops) {
        return Err(None);
    }
    let left = |why| Err(Some(why));
    let Some((checksum, header, frame)) = outer.look(packet) else { return left("it is cut short") };
    let Ok((identifier, _)) = vxlan::parse(&header) else { return left("it has no identifier") };
    if header[..4] != FLAGS || header[7] != 0 {
        return left("its header has an extension");
    }
    let Some((place, tunnel)) = tunnels.inward(local, identifier) else {
        return left("no network of lanes has its identifier");
    };
    if frame.destination().0 != tunnel.is.mac {
        return left("the frame inside is to be bridged");
    }
    if !matches!(frame.ethertype(), EtherType::IPV4 | EtherType::IPV6) {
        return left("there is no IP packet inside");
    }
    let source = frame.source();
    if !source.is_unicast() || source.0 == [0; 6] || source.0 == tunnel.is.device_mac {
        return left("the frame inside comes from nobody else");
    }
    if frame.ethertype() == EtherType::IPV6 && stays_on_link(packet.data().get(outer.length()..)) {
        return left("the packet inside stays on its link");
    }
    if packet.segments() > 1 && !ends_with_packet(packet, outer.length()) {
        return left("it is in several buffers, and there is padding behind the packet inside");
    }
    let Some(end) = tunnels.end(outer.source, packet.port()) else {
        return left("the kernel knows nobody at that tunnel end, or doesn't expect it by that interface");
    };
    if tunnel.is.learns && !tunnels.knows_station(place, source, end) {
        return left("the kernel has to learn of the station that it is from");
    }
    // RFC 6935 section 5: a node has to be told that it may.
    if checksum == 0 && outer.source.is_ipv6() && !tunnel.is.takes_no_checksum {
        return left("it has no checksum (udp6zerocsumrx)");
    }
    Ok(Found::Frame(outer, tunnel))
}

/// Whether nothing follows the IP packet in a frame. Whatever did would be taken off, and in another buffer be gone if the kernel gets the datagram after all.
fn ends_with_packet(packet: &Packet, frame: usize) -> bool {
    let start = frame + ethernet::HEADER_LENGTH;
    let length = packet.data().get(start..).and_then(|inside| inside.first_chunk()).map(
        |&[first, _, total_high, total_low, payload_high, payload_low]| match first >> 4 {
            4 => usize::from(u16::from_be_bytes([total_high, total_low])),
            _ => ipv6::HEADER_LENGTH + usize::from(u16::from_be_bytes([payload_high, payload_low])),
        },
    );
    length.is_some_and(|length| start + length == packet.packet_length())
}

/// Whether an IP packet is for a group, or for all. Of what is cut off before it says so, that is not known.
fn is_for_group(packet: &[u8], is_ipv6: bool) -> bool {
    const IPV4_DESTINATION: usize = 16;
    const IPV6_DESTINATION: usize = 24;
    if is_ipv6 {
        packet.get(IPV6_DESTINATION) == Some(&0xff)
    } else {
        packet.get(IPV4_DESTINATION).is_some_and(|first| *first >= 0xe0)
    }
}

/// Whether either address of the IPv6 packet in a frame is link-local (RFC 4291 section 2.5.6): most such are of neighbour discovery.
fn stays_on_link(frame: Option<&[u8]>) -> bool {
    const SOURCE: usize = ethernet::HEADER_LENGTH + 8;
    const DESTINATION: usize = SOURCE + 16;
    let is_link_local = |at: usize| {
        let first = frame.and_then(|frame| frame.get(at..)?.first_chunk());
        first.is_none_or(|[first, second]| *first == 0xfe && second & 0xc0 == 0x80)
    };
    is_link_local(SOURCE) || is_link_local(DESTINATION)
}

/// Takes out what is inside, and gives the length of its frame, or of the packet if it had none.
#[inline]
fn take_out(packet: &mut Packet, found: &Found<'_>, hops: &Hops) -> Result<usize, Reason> {
    let mut noted = TakenOut {
        length: packet.packet_length() as u32,
        mark: mark_of_table(hops.table_of(packet)),
        port: packet.port(),
        headers: 0,
    };
    let (inside, port) = match found {
        Found::Frame(outer, tunnel) => {
            let frame = outer.check(packet, TunnelProtocol::Vxlan)?;
            noted.headers = frame.start as u16;
            outer.strip(packet, &frame, false)?;
            (frame.length, tunnel.is.port)
        }
        Found::Packet(outer, tunnel) => {
            let begin = outer.start.checked_sub(ethernet::HEADER_LENGTH).ok_or(Reason::OuterLength)?;
            let headers = save(packet, begin).ok_or(Reason::NoHeadroom)?;
            noted.headers = headers as u16 | SAVED;
            let [a, b, c, d, e, f] = tunnel.is.mac;
            let source = &NOBODY[6..];
            outer.strip(
                packet,
                [a, b, c, d, e, f, source[0], source[1], source[2], source[3], source[4], source[5]],
            )?;
            (packet.packet_length() - ethernet::HEADER_LENGTH, tunnel.is.port)
        }
    };
    *packet.application_mut() = noted;
    packet.set_port(port);
    packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
    Ok(inside)
}

impl Stage for TunnelEnds {
    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        self.arrive(burst, outputs);
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        match input {
            ENTRANCE => self.enter(burst, outputs),
            _ => self.arrive(burst, outputs),
        }
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("tunnels")
    }

    fn accepts(&self) -> TransmitOffloads {
        Gateway::ACCEPTS
    }

    /// What was left of a packet is left of what is inside a tunnel, and the other way round.
    fn leaves(&self) -> TransmitOffloads {
        Gateway::LEAVES
    }

    fn input_count(&self) -> usize {
        2
    }

    fn input_name(&self, input: usize) -> Cow<'static, str> {
        Cow::Borrowed(if input == ENTRANCE { "entrance" } else { "in" })
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.view())]
    }

    fn is_polled(&self) -> bool {
        true
    }

    /// What was known of tunnels until now may go: no burst is at work.
    #[inline]
    fn poll(&mut self, _now: u64, _burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.routes.quiescent();
        0
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        self.routes.offline(|| then(wake_ups));
    }

    fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
        self.note_tunnel(input, packet, explanation);
    }

    fn rehearse(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        let counters = std::mem::take(&mut self.counters);
        let identification = self.identification;
        self.is_rehearsing = true;
        self.process_input(input, burst, outputs);
        (self.is_rehearsing, self.identification) = (false, identification);
        let rehearsed = std::mem::replace(&mut self.counters, counters);
        Some(vec![Box::new(rehearsed.view())])
    }
}

impl std::fmt::Debug for TunnelEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelEnds").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
