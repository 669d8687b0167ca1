//! What a packet leaves to the card.

use super::descriptor::Context;
use super::drops::TransmitDrop;
use super::queue::Queue;
use super::transmit::TransmitCounters;
use warmlane_mem::{Checksum, Packet, Segmentation, Vlan};
use warmlane_port::software_offload::complete_checksum;

/// What it is.
pub(super) enum Requested {
    Nothing,
    Checksum(Context),
    Segmentation(Segmentation),
}

/// What a packet leaves to the card, when what that can't do is done.
#[inline(always)]
pub(super) fn requested<Q: Queue>(
    packet: &mut Packet,
    counters: &TransmitCounters,
) -> Result<Requested, TransmitDrop> {
    if packet.has_work_left() { look_closer::<Q>(packet, counters) } else { Ok(Requested::Nothing) }
}

/// Does what the card can't, but for segmentation.
#[inline(never)]
fn look_closer<Q: Queue>(
    packet: &mut Packet,
    counters: &TransmitCounters,
) -> Result<Requested, TransmitDrop> {
    if matches!(packet.vlan(), Vlan::Insert(_)) {
        return Err(TransmitDrop::NotDone);
    }
    if let Some(segmentation) = packet.segmentation() {
        return Ok(Requested::Segmentation(segmentation));
    }
    let Checksum::Partial { start, offset } = packet.checksum() else { return Err(TransmitDrop::NotDone) };
    if let Some(context) = Q::checksum(packet, start, offset) {
        return Ok(Requested::Checksum(context));
    }
    complete_checksum(packet).map_err(|_| TransmitDrop::NotDone)?;
    counters.software.checksums().add(1);
    Ok(Requested::Nothing)
}
