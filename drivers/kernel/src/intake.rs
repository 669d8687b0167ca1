//! From frames as the kernel hands them out to packets: copies them into buffers, puts stripped VLAN tags back, and notes
//! what senders left to hardware. Both receivers use it.

use std::ops::Range;

use warmlane_driver_common::virtio_net::{self, HEADER_LENGTH, Unusable};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{CountDropped as _, QueueCounters};

use crate::drops::ReceiveDrop;

/// The longest frame we take: a 64 KiB packet (what TCP and UDP can make without BIG TCP) and its link headers.
pub(crate) const LONGEST_FRAME: usize = 65_536 + 64;

/// Bytes in front of an Ethernet frame's VLAN tag or type: the two addresses.
const ADDRESSES: usize = 12;

/// How many polls a frame waits for buffers. There may never be enough: all of them may be in packets that wait for others.
const MAXIMUM_ATTEMPTS: u32 = 1_024;

/// A VLAN tag as it stands on the wire: type and tag control information (IEEE 802.1Q clause 9).
pub(crate) type Tag = [u8; 4];

/// Why no packet came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPacket {
    /// The pool is empty: try again later.
    NoBuffer,
    /// Never.
    Drop(ReceiveDrop),
}

impl NoPacket {
    /// Why the frame is dropped, if it is not to be tried again.
    const fn reason(self) -> ReceiveDrop {
        match self {
            Self::NoBuffer => ReceiveDrop::NoBuffer,
            Self::Drop(reason) => reason,
        }
    }
}

impl From<Unusable> for NoPacket {
    fn from(unusable: Unusable) -> Self {
        Self::Drop(match unusable {
            Unusable::Checksum => ReceiveDrop::ChecksumUnknown,
            Unusable::Segmentation => ReceiveDrop::GsoUnknown,
        })
    }
}

/// A frame that was read from the kernel, and waits in `Intake::storage` for buffers.
pub(crate) struct Waiting {
    /// Its beginning, if that is in a buffer already; the rest is hung behind it.
    pub(crate) head: Option<Packet>,
    /// Where the rest is in the storage.
    pub(crate) rest: Range<usize>,
    pub(crate) tag: Option<Tag>,
    /// What is left to do.
    pub(crate) header: [u8; HEADER_LENGTH],
    pub(crate) timestamp: u64,
}

/// The common part of the receivers.
pub(crate) struct Intake {
    pub(crate) pool: Pool,
    pub(crate) counters: QueueCounters<ReceiveDrop>,
    /// Where long frames are read to.
    pub(crate) storage: Box<[u8]>,
    /// Frames of the kernel's tunnels may be left to be cut inside.
    has_tunnels: bool,
    waiting: Option<Waiting>,
    /// Polls in which there were no buffers for it.
    fruitless: u32,
}

impl Intake {
    /// With `space` bytes of storage beyond the longest frame; of a kernel whose own tunnels may leave frames to be cut inside, if it `has_tunnels`.
    pub(crate) fn new(pool: &Pool, space: usize, has_tunnels: bool) -> Self {
        Self {
            pool: pool.clone(),
            counters: QueueCounters::new(),
            storage: vec![0; LONGEST_FRAME + space].into_boxed_slice(),
            has_tunnels,
            waiting: None,
            fruitless: 0,
        }
    }

    /// Drops a frame of which so much is there.
    pub(crate) fn drop_frame(&self, reason: ReceiveDrop, frame: &[u8]) {
        self.counters.drops().count_frame(reason, frame);
    }

    /// Whether a frame is waiting. As long as it does, the storage is not free, and no other frame may overtake it.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Makes a packet of a frame in the storage once there are buffers: when [`resume`](Self::resume) is called.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        self.waiting = Some(waiting);
    }

    /// Appends the frame that waits to `burst`, which has space. `false`: it still waits.
    pub(crate) fn resume(&mut self, burst: &mut Burst) -> bool {
        let Some(waiting) = &mut self.waiting else { return true };
        let rest = self.storage.get(waiting.rest.clone()).unwrap_or_default();
        let drops = self.counters.drops();
        let whole = match frame(&self.pool, rest, waiting.tag) {
            Err(NoPacket::NoBuffer) if self.fruitless < MAXIMUM_ATTEMPTS => {
                self.fruitless += 1;
                return false;
            }
            Err(no_packet) => {
                // Where there is no buffer: it was read and can't be read again.
                match waiting.head.take() {
                    Some(head) => drops.count_packet(no_packet.reason(), &head),
                    None => drops.count_frame(no_packet.reason(), rest),
                }
                None
            }
            Ok(rest) => match join(waiting.head.take(), rest) {
                Ok(packet) => Some(packet),
                Err(no_packet) => {
                    drops.count(no_packet.reason(), 1);
                    None
                }
            },
        };
        if let Some(mut packet) = whole {
            let noted = note(self.has_tunnels, &mut packet, waiting.header, waiting.tag);
            match noted {
                Ok(()) => {
                    packet.set_timestamp(waiting.timestamp);
                    self.counters.count(1, packet.packet_length() as u64);
                    // There is space: the caller's.
                    drop(burst.push(packet));
                }
                Err(no_packet) => drops.count_packet(no_packet.reason(), &packet),
            }
        }
        (self.waiting, self.fruitless) = (None, 0);
        true
    }

    /// Copies a frame into `spare`, or into a chain if it is too long for one buffer, and notes what is left to do.
    pub(crate) fn copy(
        &self,
        mut spare: Packet,
        data: &[u8],
        tag: Option<Tag>,
        header: [u8; HEADER_LENGTH],
    ) -> Result<Packet, NoPacket> {
        let mut packet =
            if tag.is_none() && spare.fill(data).is_ok() { spare } else { frame(&self.pool, data, tag)? };
        note(self.has_tunnels, &mut packet, header, tag)?;
        Ok(packet)
    }
}

/// Notes what is left to do for a packet whose tag is among its bytes again.
fn note(
    has_tunnels: bool,
    packet: &mut Packet,
    header: [u8; HEADER_LENGTH],
    tag: Option<Tag>,
) -> Result<(), NoPacket> {
    let note = if has_tunnels { virtio_net::note_with_tunnels } else { virtio_net::note };
    Ok(note(packet, header, shift(tag))?)
}

/// How far a tag that is put back moves what is behind it.
const fn shift(tag: Option<Tag>) -> u16 {
    if tag.is_some() { size_of::<Tag>() as u16 } else { 0 }
}

/// Copies a frame into as few buffers as it fits, with the tag that the kernel took out.
fn frame(pool: &Pool, data: &[u8], tag: Option<Tag>) -> Result<Packet, NoPacket> {
    let Some(tag) = tag else { return gather(pool, &[data]) };
    let (addresses, rest) =
        data.split_at_checked(ADDRESSES).ok_or(NoPacket::Drop(ReceiveDrop::RingCorrupt))?;
    gather(pool, &[addresses, &tag, rest])
}

/// Copies `parts`, one behind the other, into as few buffers as they fit.
pub(crate) fn gather(pool: &Pool, parts: &[&[u8]]) -> Result<Packet, NoPacket> {
    let mut head: Option<Packet> = None;
    let mut tail = pool.take().ok_or(NoPacket::NoBuffer)?;
    for part in parts {
        let mut rest = *part;
        loop {
            let (now, later) = rest.split_at(rest.len().min(tail.tailroom()));
            if let Ok(space) = tail.append(now.len()) {
                space.copy_from_slice(now);
            }
            if later.is_empty() {
                break;
            }
            rest = later;
            let full = std::mem::replace(&mut tail, pool.take().ok_or(NoPacket::NoBuffer)?);
            head = Some(join(head, full)?);
        }
    }
    join(head, tail)
}

/// Hangs `tail` behind `head`, if there is one.
pub(crate) fn join(head: Option<Packet>, tail: Packet) -> Result<Packet, NoPacket> {
    match head {
        None => Ok(tail),
        Some(mut head) => match head.chain(tail) {
            Ok(()) => Ok(head),
            Err(_) => Err(NoPacket::Drop(ReceiveDrop::TooManyBuffers)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Checksum, PoolConfig};

    fn pool(buffers: u32, data_size: usize) -> Pool {
        Pool::new(&PoolConfig { buffers, data_size, magazine: Some(8), ..PoolConfig::default() }).unwrap()
    }

    fn bytes(packet: &Packet) -> Vec<u8> {
        packet.segment_data().flatten().copied().collect()
    }

    #[test]
    fn parts_fill_one_buffer_after_the_other() {
        let pool = pool(16, 100);
        let data: Vec<u8> = (0..=255).collect();
        for cut in [0, 1, 99, 100, 101, 200, 255, 256] {
            let packet = gather(&pool, &[&data[..cut], &data[cut..]]).unwrap();
            assert_eq!((packet.segments(), bytes(&packet)), (3, data.clone()));
        }
        let exact = gather(&pool, &[&data[..100]]).unwrap();
        assert_eq!((exact.segments(), exact.packet_length()), (1, 100));
    }

    #[test]
    fn a_frame_too_long_for_the_pool_is_refused_and_nothing_is_lost() {
        let few = pool(8, 100);
        let wanted = few.buffers() as usize * 100 + 1;
        assert_eq!(gather(&few, &[&vec![0; wanted]]).unwrap_err(), NoPacket::NoBuffer);
        let tiny = pool(512, 16);
        let reason = gather(&tiny, &[&[0; 16 * 256]]).unwrap_err();
        assert_eq!(reason, NoPacket::Drop(ReceiveDrop::TooManyBuffers));
        assert_eq!((few.ledger().outstanding(), tiny.ledger().outstanding()), (0, 0));
    }

    #[test]
    fn a_stripped_tag_is_put_back_and_moves_the_checksum() {
        let pool = pool(8, 200);
        let intake = Intake::new(&pool, 0, false);
        let frame = vec![7; 60];
        let header = header(1, 0, 0);
        let packet = intake.copy(pool.take().unwrap(), &frame, Some([0x81, 0, 0, 5]), header).unwrap();
        let data = bytes(&packet);
        assert_eq!(data[..18], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0x81, 0, 0, 5, 7, 7]);
        assert_eq!(packet.checksum(), Checksum::Partial { start: 38, offset: 6 });
    }

    fn header(flags: u8, gso: u8, size: u16) -> [u8; HEADER_LENGTH] {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        for (field, value) in [(4, size), (6, 34), (8, 6)] {
            header[field..field + 2].copy_from_slice(&u16::to_ne_bytes(value));
        }
        header
    }

    #[test]
    fn a_long_frame_waits_for_buffers_and_keeps_its_tag_and_time() {
        let pool = pool(8, 200);
        let mut intake = Intake::new(&pool, 0, false);
        let mut frame = vec![7; 12];
        frame.extend([8, 0, 0x45, 0, 1, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend([0, 1, 0, 2, 1, 8, 0, 0]);
        frame.extend((0..=255).collect::<Vec<u8>>());
        let waiting = |size| Waiting {
            head: None,
            rest: 0..frame.len(),
            tag: Some([0x81, 0, 0, 5]),
            header: header(1, 5, size),
            timestamp: 99,
        };
        let (mut burst, mut held) = (Burst::new(), Burst::new());
        pool.take_burst(&mut held, 7);
        intake.storage[..frame.len()].copy_from_slice(&frame);
        intake.wait(waiting(100));
        assert!(!intake.resume(&mut burst) && intake.is_waiting());
        held.clear();
        assert!(intake.resume(&mut burst) && !intake.is_waiting() && burst.len() == 1);
        let packet = &burst[0];
        let data = bytes(packet);
        assert_eq!((data[12..18].to_vec(), &data[46..]), (vec![0x81, 0, 0, 5, 8, 0], &frame[42..]));
        assert_eq!((packet.timestamp(), packet.segments()), (99, 2));
        assert_eq!(packet.segmentation().map(|segmentation| segmentation.size), Some(100));
        assert_eq!(packet.checksum(), Checksum::Partial { start: 38, offset: 6 });
        assert_eq!((intake.counters.packets().get(), intake.counters.bytes().get()), (1, 302));

        intake.wait(waiting(0));
        assert!(intake.resume(&mut burst));
        assert_eq!((burst.len(), intake.counters.drops().get(ReceiveDrop::GsoUnknown)), (1, 1));

        // Buffers that never come back are not waited for for ever.
        burst.clear();
        pool.take_burst(&mut held, 8);
        intake.wait(waiting(100));
        assert!((0..MAXIMUM_ATTEMPTS).all(|_| !intake.resume(&mut burst)));
        assert!(intake.resume(&mut burst));
        assert_eq!((burst.len(), intake.counters.drops().get(ReceiveDrop::NoBuffer)), (0, 1));
    }
}
