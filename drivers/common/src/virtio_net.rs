//! The header that says what a frame's maker left to hardware: `virtio_net_hdr`, which TAP devices and packet
//! sockets put in front of a frame if asked (virtio 1.2 section 5.1.6; `include/uapi/linux/virtio_net.h`).
//!
//! [`note`] writes down in a packet what a header says, having checked it: who made it may be lying. [`header_of`] is the way
//! back. Beside it a device can report a packet's hash: [`note_hash`], [`hash_report`].

mod hash_report;

pub use hash_report::{HASH_REPORT_LENGTH, hash_report, note_hash};

use warmlane_mem::{Checksum, LayerOffsets, Packet, Segmentation, SegmentationKind};
use warmlane_port::software_offload::{complete_sctp, is_sctp};
use warmlane_wire::LinkLayer;
use warmlane_wire::merge::Around;
use warmlane_wire::segment::{Cut, MAXIMUM_HEADERS, SuperFrame, Transport, Tunnel};

/// Bytes of the header in its classic form, which is what both devices use unless told otherwise.
pub const HEADER_LENGTH: usize = 10;

/// A header that says: nothing is left to do.
pub const NOTHING_LEFT: [u8; HEADER_LENGTH] = [0; HEADER_LENGTH];

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set beside the type if CWR is set in the TCP header.
const GSO_ECN: u8 = 0x80;

/// Why a header is not to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The checksum's field is not in the packet's first buffer.
    Checksum,
    /// The packet can't be cut like that, or its headers are not in its first buffer.
    Segmentation,
}

/// Notes what a header says of a packet. `shift` bytes were put in front of where the checksum starts since it was written.
/// Its numbers are in this machine's byte order: no device is switched to another.
///
/// A packet to be segmented has a partial checksum afterwards, whatever the header said, unless its protocol does without.
///
/// # Errors
/// [`Unusable`]: the packet is not to be used.
pub fn note(packet: &mut Packet, header: [u8; HEADER_LENGTH], shift: u16) -> Result<(), Unusable> {
    note_from(packet, header, shift, false)
}

/// The same of a kernel whose own tunnels may leave to others what is inside them: VXLAN and GENEVE, by their ports.
///
/// # Errors
/// [`Unusable`]: the packet is not to be used.
pub fn note_with_tunnels(
    packet: &mut Packet,
    header: [u8; HEADER_LENGTH],
    shift: u16,
) -> Result<(), Unusable> {
    note_from(packet, header, shift, true)
}

fn note_from(
    packet: &mut Packet,
    header: [u8; HEADER_LENGTH],
    shift: u16,
    has_tunnels: bool,
) -> Result<(), Unusable> {
    let [flags, gso, _, _, size_low, size_high, start_low, start_high, offset_low, offset_high] = header;
    let start = u16::from_ne_bytes([start_low, start_high]).saturating_add(shift);
    let is_partial = flags & NEEDS_CHECKSUM != 0;
    let transport = match gso & !GSO_ECN {
        GSO_NONE if is_partial => {
            let offset = u8::try_from(u16::from_ne_bytes([offset_low, offset_high]));
            return note_checksum(packet, start, offset.map_err(|_| Unusable::Checksum)?);
        }
        GSO_NONE => {
            if flags & DATA_VALID != 0 {
                packet.set_checksum(Checksum::Good);
            }
            return Ok(());
        }
        GSO_TCP4 | GSO_TCP6 => Transport::Tcp,
        GSO_UDP => Transport::Udp,
        _ => return Err(Unusable::Segmentation),
    };
    let size = u16::from_ne_bytes([size_low, size_high]);
    let front = packet.data().get(..MAXIMUM_HEADERS).unwrap_or(packet.data());
    let tunnel = if has_tunnels && is_partial { tunnel(front, packet.packet_length()) } else { None };
    let tunnel = tunnel.filter(|(_, tunnel)| usize::from(start) > tunnel.inside);
    let headers = tunnel.map(|(_, tunnel)| tunnel);
    let cut = Cut { transport, size, checksum_start: is_partial.then_some(start), tunnel: headers };
    // Headers that go on in another buffer are not seen here, and refused.
    let plan = SuperFrame::parse(front, packet.packet_length(), cut).map_err(|_| Unusable::Segmentation)?;
    let pseudo_header_sum = plan.pseudo_header_sum(front);
    let layer = |offset| u16::try_from(offset).map_err(|_| Unusable::Segmentation);
    let start = layer(plan.transport())?;
    let (l3, payload) = (layer(plan.network())?, layer(plan.headers())?);
    packet.set_layer_offsets(match headers {
        None => LayerOffsets { l3, l4: start, payload, ..LayerOffsets::default() },
        Some(tunnel) => LayerOffsets {
            l3: layer(tunnel.network)?,
            l4: layer(tunnel.transport)?,
            inner_l3: l3,
            inner_l4: start,
            payload,
        },
    });
    if let Some(sum) = pseudo_header_sum {
        let offset = transport.checksum_offset();
        note_checksum(packet, start, offset as u8)?;
        let field = plan.transport() + offset;
        let place = packet.data_mut().get_mut(field..field + 2).ok_or(Unusable::Checksum)?;
        place.copy_from_slice(&sum.to_be_bytes());
        if let Some((around, _)) = tunnel {
            // Around a super-frame the kernel leaves that one, too, without a word (`net/ipv4/udp.c: udp_set_csum`).
            let length = packet.packet_length();
            around.finish(packet.data_mut(), length, start.into(), field);
        }
    }
    if plan.count() > 1 {
        let kind = match (transport, plan.is_ipv6()) {
            (Transport::Tcp, false) => SegmentationKind::Tcp4,
            (Transport::Tcp, true) => SegmentationKind::Tcp6,
            (Transport::Udp, _) => SegmentationKind::Udp,
        };
        packet.set_segmentation(Some(Segmentation { kind, size, congestion: gso & GSO_ECN != 0 }));
    }
    Ok(())
}

/// Where the headers of a tunnel are, if a frame of `length` bytes that begins with `front` is in one. The kernel says of super-frames of its own
/// tunnels nothing but where the checksum inside starts (`net/packet/af_packet.c`, which has no word for more).
fn tunnel(front: &[u8], length: usize) -> Option<(Around, Tunnel)> {
    let around = Around::at(front, length)?;
    let frame = front.get(usize::from(around.inside)..)?;
    let header = LinkLayer::parse(frame).ok()?.header_length();
    let tunnel = Tunnel {
        network: around.network.into(),
        transport: around.transport.into(),
        inside: usize::from(around.inside) + header,
    };
    Some((around, tunnel))
}

fn note_checksum(packet: &mut Packet, start: u16, offset: u8) -> Result<(), Unusable> {
    if usize::from(start) + usize::from(offset) + 2 > packet.len() {
        return Err(Unusable::Checksum);
    }
    // A kernel leaves this one as if it were an Internet checksum, and no port would know it for what it is: so it is done at once.
    if is_sctp(offset.into()) {
        return if complete_sctp(packet, start.into()) { Ok(()) } else { Err(Unusable::Checksum) };
    }
    packet.set_checksum(Checksum::Partial { start, offset });
    Ok(())
}

/// The header that says what is left to do for a packet.
#[inline]
pub fn header_of(packet: &Packet) -> [u8; HEADER_LENGTH] {
    if packet.has_work_left() { header_of_work(packet) } else { NOTHING_LEFT }
}

fn header_of_work(packet: &Packet) -> [u8; HEADER_LENGTH] {
    let mut header = NOTHING_LEFT;
    let mut put = |at: usize, value: u16| [header[at], header[at + 1]] = value.to_ne_bytes();
    let partial = match packet.checksum() {
        Checksum::Partial { start, offset } => {
            put(6, start);
            put(8, offset.into());
            true
        }
        _ => false,
    };
    let segmentation = packet.segmentation();
    if let Some(segmentation) = segmentation {
        put(2, packet.layer_offsets().payload);
        put(4, segmentation.size);
    }
    header[0] = if partial { NEEDS_CHECKSUM } else { 0 };
    header[1] = segmentation.map_or(GSO_NONE, |segmentation| {
        let kind = match segmentation.kind {
            SegmentationKind::Tcp4 => GSO_TCP4,
            SegmentationKind::Tcp6 => GSO_TCP6,
            SegmentationKind::Udp => GSO_UDP,
        };
        kind | if segmentation.congestion { GSO_ECN } else { 0 }
    });
    header
}

#[cfg(test)]
mod tests;
