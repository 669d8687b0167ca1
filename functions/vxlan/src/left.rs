//! What of a packet is left to who transmits it, when headers of a tunnel are put around it or taken off.

use warmlane_mem::{Checksum, LayerOffsets, Packet, Segmentation};
use warmlane_wire::ethernet;

use crate::reason::Reason;

/// A checksum to be completed, or a packet to be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// Where the checksum starts, and how far behind that its field is.
    partial: Option<(u16, u8)>,
    segmentation: Option<Segmentation>,
    layers: LayerOffsets,
}

impl Left {
    /// What is left of the packet; of most, nothing.
    #[inline(always)]
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        if packet.has_work_left() { Some(Self::read(packet)) } else { None }
    }

    #[cold]
    fn read(packet: &Packet) -> Self {
        let partial = match packet.checksum() {
            Checksum::Partial { start, offset } => Some((start, offset)),
            _ => None,
        };
        Self { partial, segmentation: packet.segmentation(), layers: packet.layer_offsets() }
    }

    /// Notes it of the packet that has so many bytes more in front now: an Ethernet header, an IP header up to `outer`, and what is behind.
    ///
    /// # Errors
    /// The packet has too many headers, or it is to be cut inside another tunnel.
    #[cold]
    pub(crate) fn note_around(self, packet: &mut Packet, outer: usize, more: usize) -> Result<(), Reason> {
        if self.layers.inner_l3 > 0 && self.segmentation.is_some() {
            return Err(Reason::Nested);
        }
        let more = more as u16;
        if let Some((start, offset)) = self.partial {
            let start = start.checked_add(more).ok_or(Reason::TooLong)?;
            packet.set_checksum(Checksum::Partial { start, offset });
        }
        packet.set_segmentation(self.segmentation);
        // What is not known stays so; but where an untagged packet begins is known.
        let moved = |offset: u16| if offset > 0 { offset.saturating_add(more) } else { 0 };
        let LayerOffsets { l3, l4, payload, .. } = self.layers;
        packet.set_layer_offsets(LayerOffsets {
            l3: ethernet::HEADER_LENGTH as u16,
            l4: outer as u16,
            inner_l3: moved(if l3 > 0 { l3 } else { ethernet::HEADER_LENGTH as u16 }),
            inner_l4: moved(l4),
            payload: moved(payload),
        });
        Ok(())
    }

    /// Notes of the packet that so many bytes are gone from the front of, and nothing else is known of, how it is to be cut.
    ///
    /// # Errors
    /// It isn't the frame inside that is to be cut, but the datagrams: several were one.
    #[cold]
    pub(crate) fn note_inside(self, packet: &mut Packet, gone: usize) -> Result<(), Reason> {
        if self.segmentation.is_none() {
            return Ok(());
        }
        let LayerOffsets { inner_l3, inner_l4, payload, .. } = self.layers;
        let moved = |offset: u16| usize::from(offset).checked_sub(gone).map(|offset| offset as u16);
        let l3 = moved(inner_l3).ok_or(Reason::Merged)?;
        packet.set_segmentation(self.segmentation);
        packet.set_layer_offsets(LayerOffsets {
            l3,
            l4: moved(inner_l4).unwrap_or(0),
            payload: moved(payload).unwrap_or(0),
            ..LayerOffsets::default()
        });
        Ok(())
    }
}
