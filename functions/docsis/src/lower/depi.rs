//! R-DEPI: MAC frames of a channel as a stream of PSP segments in L2TPv3 packets to the remote PHY.

use thiserror::Error;
use warmlane_mem::{Packet, Pool};
use warmlane_wire::checksum::Addresses;
use warmlane_wire::psp::{self, ENTRY_LENGTH, MAXIMUM_SEGMENT, MAXIMUM_SEGMENTS};
use warmlane_wire::{
    EtherType, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress, ethernet, ipv4, ipv6, l2tpv3,
};

use super::reason::LowerDrop;

/// The smallest MTU that carries IPv6 (RFC 8200 section 5).
pub const MINIMUM_MTU: u16 = 1_280;

/// The two ends of a tunnel: the source is the CMTS core, the destination the remote PHY.
pub type TunnelAddresses = Addresses;

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// Our Ethernet address.
    pub source: MacAddress,
    /// The Ethernet address of the remote PHY, or of the router towards it.
    pub destination: MacAddress,
    /// IP addresses.
    pub addresses: TunnelAddresses,
    /// The differentiated services code point of all packets (CM-SP-R-DEPI recommends expedited forwarding).
    pub dscp: u8,
    /// Bytes that an IP packet may have.
    pub mtu: u16,
}

/// A tunnel that can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TunnelError {
    /// An MTU that IPv6 forbids.
    #[error("an MTU of {mtu} bytes: 1280 are the least")]
    Mtu {
        /// What was asked for.
        mtu: u16,
    },
    /// Session 0 is that of control messages.
    #[error("session 0 is that of L2TPv3's control messages")]
    Session,
    /// PSP has eight flows.
    #[error("{flow} is no PSP flow: they go from 0 to 7")]
    Flow {
        /// What was asked for.
        flow: u8,
    },
}

/// Ethernet, IPv6, L2TPv3 and PSP: the most that stands in front of the segment table.
const LONGEST_HEADERS: usize =
    ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + l2tpv3::HEADER_LENGTH + psp::HEADER_LENGTH;

/// Cuts the MAC frames of one pseudowire into packets.
#[derive(Debug)]
pub struct Segmenter {
    /// Ethernet, IP and L2TPv3 headers, the lengths in them still zero.
    headers: [u8; LONGEST_HEADERS - psp::HEADER_LENGTH],
    headers_length: usize,
    /// Bytes of segments and their entries that a packet holds.
    capacity: usize,
    flow: u8,
    sequence: u16,
    /// The packet being filled: only its segments so far.
    open: Option<Packet>,
    /// When it got its first segment, in cycles.
    since: u64,
    entries: [[u8; ENTRY_LENGTH]; MAXIMUM_SEGMENTS],
    segments: usize,
}

/// A packet as it leaves.
#[derive(Debug)]
pub struct Finished {
    /// The packet.
    pub packet: Packet,
    /// How many segments are in it.
    pub segments: usize,
}

impl Segmenter {
    /// A pseudowire: an L2TPv3 session and a PSP flow in it.
    ///
    /// # Errors
    /// [`TunnelError`].
    pub fn new(tunnel: &Tunnel, session: u32, flow: u8) -> Result<Self, TunnelError> {
        if session == 0 {
            return Err(TunnelError::Session);
        }
        if flow > 7 {
            return Err(TunnelError::Flow { flow });
        }
        if tunnel.mtu < MINIMUM_MTU {
            return Err(TunnelError::Mtu { mtu: tunnel.mtu });
        }
        let mut headers = [0; LONGEST_HEADERS - psp::HEADER_LENGTH];
        let (link, network) = headers.split_at_mut(ethernet::HEADER_LENGTH);
        let (ethertype, network_length) = match tunnel.addresses {
            TunnelAddresses::V4 { source, destination } => {
                let traffic_class = tunnel.dscp << 2;
                let dont_fragment = true;
                let fields =
                    Ipv4Fields { traffic_class, dont_fragment, ..Ipv4Fields::new(source, destination) };
                network[..ipv4::HEADER_LENGTH].copy_from_slice(&fields.header(IpProtocol::L2TP, 0));
                (EtherType::IPV4, ipv4::HEADER_LENGTH)
            }
            TunnelAddresses::V6 { source, destination } => {
                let traffic_class = tunnel.dscp << 2;
                let fields = Ipv6Fields { traffic_class, ..Ipv6Fields::new(source, destination) };
                network[..ipv6::HEADER_LENGTH].copy_from_slice(&fields.header(IpProtocol::L2TP, 0));
                (EtherType::IPV6, ipv6::HEADER_LENGTH)
            }
        };
        if let Some(link) = link.first_chunk_mut() {
            ethernet::write(link, tunnel.destination, tunnel.source, ethertype);
        }
        network[network_length..network_length + l2tpv3::HEADER_LENGTH]
            .copy_from_slice(&l2tpv3::header(session));
        let around = network_length + l2tpv3::HEADER_LENGTH + psp::HEADER_LENGTH;
        Ok(Self {
            headers,
            headers_length: ethernet::HEADER_LENGTH + network_length + l2tpv3::HEADER_LENGTH,
            capacity: usize::from(tunnel.mtu) - around,
            flow,
            sequence: 0,
            open: None,
            since: 0,
            entries: [[0; ENTRY_LENGTH]; MAXIMUM_SEGMENTS],
            segments: 0,
        })
    }

    /// Appends a MAC frame at the time `now`, in cycles; packets that are full go to `finished`.
    ///
    /// # Errors
    /// [`LowerDrop::NoBuffer`], if the pool has no buffer: the frame, or its rest, is lost.
    #[inline]
    pub fn push(
        &mut self,
        frame: &[u8],
        now: u64,
        pool: &Pool,
        mut finished: impl FnMut(Finished),
    ) -> Result<(), LowerDrop> {
        let (mut rest, mut begins) = (frame, true);
        while !rest.is_empty() {
            let space = self.space();
            if space == 0 {
                finished(self.finish().ok_or(LowerDrop::NoBuffer)?);
                continue;
            }
            let packet = if let Some(packet) = &mut self.open {
                packet
            } else {
                let mut packet = pool.take().ok_or(LowerDrop::NoBuffer)?;
                // The segment table is put in front of the segments once it is known.
                packet.fill(&[]).map_err(|_| LowerDrop::NoBuffer)?;
                self.since = now;
                self.open.insert(packet)
            };
            let (piece, behind) = rest.split_at(rest.len().min(space));
            packet.append(piece.len()).map_err(|_| LowerDrop::NoBuffer)?.copy_from_slice(piece);
            self.entries[self.segments] = psp::entry(begins, behind.is_empty(), piece.len() as u16);
            self.segments += 1;
            (rest, begins) = (behind, false);
        }
        Ok(())
    }

    /// Bytes that the next segment may have; 0 if there can be none.
    fn space(&self) -> usize {
        let Some(packet) = &self.open else { return self.capacity - ENTRY_LENGTH };
        let table = (self.segments + 1) * ENTRY_LENGTH;
        if self.segments == MAXIMUM_SEGMENTS
            || packet.headroom() < self.headers_length + psp::HEADER_LENGTH + table
        {
            return 0;
        }
        let space = self.capacity.saturating_sub(packet.len() + table);
        space.min(MAXIMUM_SEGMENT).min(packet.tailroom())
    }

    /// When the packet being filled got its first segment, in cycles.
    #[inline]
    pub fn waits_since(&self) -> Option<u64> {
        self.open.as_ref().map(|_| self.since)
    }

    /// Ends the packet being filled.
    pub fn finish(&mut self) -> Option<Finished> {
        let mut packet = self.open.take()?;
        let segments = std::mem::take(&mut self.segments);
        let length = self.headers_length + psp::HEADER_LENGTH + segments * ENTRY_LENGTH;
        // `space` has seen to it that they fit.
        let space = packet.prepend(length).ok()?;
        let (headers, table) = space.split_at_mut(self.headers_length);
        headers.copy_from_slice(&self.headers[..self.headers_length]);
        table[..psp::HEADER_LENGTH].copy_from_slice(&psp::header(self.flow, segments as u8, self.sequence));
        table[psp::HEADER_LENGTH..].copy_from_slice(self.entries[..segments].as_flattened());
        self.sequence = self.sequence.wrapping_add(1);
        set_ip_length(packet.data_mut());
        Some(Finished { packet, segments })
    }
}

/// Writes the IP header's length, and its checksum if it has one.
fn set_ip_length(frame: &mut [u8]) {
    let Some((_, network)) = frame.split_at_mut_checked(ethernet::HEADER_LENGTH) else { return };
    let length = network.len();
    if let Some(header) = network.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>()
        && header[0] >> 4 == 4
    {
        header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        header[10..12].fill(0);
        let checksum = warmlane_wire::checksum::ipv4_header_checksum20(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else if let Some(header) = network.first_chunk_mut::<{ ipv6::HEADER_LENGTH }>() {
        header[4..6].copy_from_slice(&((length - ipv6::HEADER_LENGTH) as u16).to_be_bytes());
    }
}
