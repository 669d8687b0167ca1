//! From frames as the kernel hands them out to packets: copies them into buffers, puts stripped VLAN tags back,
//! completes checksums and cuts super-frames. Both receivers use it.

use std::sync::Arc;

use warmlane_mem::{Burst, Checksum, Packet, Pool};
use warmlane_port::QueueCounters;

use crate::checksum;
use crate::drops::ReceiveDrop;
use crate::offload::{Partial, Work};
use crate::segment::{Cut, MAXIMUM_HEADERS, SuperFrame};

/// The longest frame we take: a 64 KiB packet (what TCP and UDP can make without BIG TCP) and its link headers.
pub(crate) const LONGEST_FRAME: usize = 65_536 + 64;

/// Bytes in front of an Ethernet frame's VLAN tag or type: the two addresses.
const ADDRESSES: usize = 12;

/// A VLAN tag as it stands on the wire: type and tag control information (IEEE 802.1Q clause 9).
pub(crate) type Tag = [u8; 4];

/// Why no packet came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The pool is empty: try again later.
    NoBuffer,
    /// Never.
    Drop(ReceiveDrop),
}

/// A super-frame in `Intake::storage` of which some segments have yet to become packets.
struct Cutting {
    plan: SuperFrame,
    next: usize,
    tag: Option<Tag>,
    timestamp: u64,
}

/// The common part of the receivers.
pub(crate) struct Intake {
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<QueueCounters>,
    /// Where super-frames are read to, and wait to be cut.
    pub(crate) storage: Box<[u8]>,
    cutting: Option<Cutting>,
}

impl Intake {
    /// With `room` bytes of storage beyond the longest frame.
    pub(crate) fn new(pool: &Pool, room: usize) -> Self {
        Self {
            pool: pool.clone(),
            counters: QueueCounters::new(ReceiveDrop::ALL),
            storage: vec![0; LONGEST_FRAME + room].into_boxed_slice(),
            cutting: None,
        }
    }

    pub(crate) fn drop_frame(&self, reason: ReceiveDrop) {
        self.counters.drops.count(reason.index(), 1);
    }

    /// Whether segments of a super-frame are waiting. As long as they do, the storage is not free, and no other
    /// frame may overtake them.
    pub(crate) const fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// Begins to cut the super-frame in the first `length` bytes of the storage; [`cut`](Self::cut) goes on.
    pub(crate) fn start_cutting(&mut self, length: usize, cut: Cut, tag: Option<Tag>, timestamp: u64) {
        match SuperFrame::parse(&self.storage[..length], cut) {
            Ok(plan) => self.cutting = Some(Cutting { plan, next: 0, tag, timestamp }),
            Err(_) => self.drop_frame(ReceiveDrop::GsoUnknown),
        }
    }

    /// Makes packets of the segments that wait, as many as `burst` has room for and the pool has buffers.
    pub(crate) fn cut(&mut self, burst: &mut Burst) {
        let Some(cutting) = &mut self.cutting else { return };
        let count = cutting.plan.count();
        let mut headers = [0; MAXIMUM_HEADERS];
        let (mut packets, mut bytes) = (0, 0);
        while cutting.next < count && burst.room() > 0 {
            let headers = cutting.plan.write_headers(&self.storage, cutting.next, &mut headers);
            let payload = &self.storage[cutting.plan.payload(cutting.next)];
            let gathered = match &cutting.tag {
                Some(tag) => {
                    gather(&self.pool, &[&headers[..ADDRESSES], tag, &headers[ADDRESSES..], payload])
                }
                None => gather(&self.pool, &[headers, payload]),
            };
            match gathered {
                Ok(mut packet) => {
                    packet.set_checksum(Checksum::Good);
                    packet.set_timestamp(cutting.timestamp);
                    packets += 1;
                    bytes += packet.packet_length() as u64;
                    // There is room: the loop asked.
                    drop(burst.push(packet));
                }
                Err(Refusal::NoBuffer) => break,
                Err(Refusal::Drop(reason)) => self.counters.drops.count(reason.index(), 1),
            }
            cutting.next += 1;
        }
        self.counters.packets.add(packets);
        self.counters.bytes.add(bytes);
        if cutting.next == count {
            self.cutting = None;
        }
    }

    /// Copies a frame into `spare`, or into a chain if it is too long for one buffer, and does the work that was
    /// left to do.
    pub(crate) fn copy(
        &self,
        mut spare: Packet,
        frame: &[u8],
        tag: Option<Tag>,
        work: Work,
    ) -> Result<Packet, Refusal> {
        let mut packet = match tag {
            None if spare.fill(frame).is_ok() => spare,
            None => gather(&self.pool, &[frame])?,
            Some(tag) => {
                let (addresses, rest) =
                    frame.split_at_checked(ADDRESSES).ok_or(Refusal::Drop(ReceiveDrop::RingCorrupt))?;
                gather(&self.pool, &[addresses, &tag, rest])?
            }
        };
        finish(&mut packet, work, if tag.is_some() { size_of::<Tag>() as u16 } else { 0 })?;
        Ok(packet)
    }
}

/// Does what was left to do for a packet that needs no cutting. `shift` bytes were put in front of where the
/// checksum starts.
pub(crate) fn finish(packet: &mut Packet, work: Work, shift: u16) -> Result<(), Refusal> {
    match work {
        Work::None => Ok(()),
        Work::Verified => {
            packet.set_checksum(Checksum::Good);
            Ok(())
        }
        Work::Checksum(Partial { start, offset }) => {
            let partial = Partial { start: start.saturating_add(shift), offset };
            checksum::complete(packet, partial).map_err(|_| Refusal::Drop(ReceiveDrop::ChecksumUnknown))
        }
        Work::Cut(_) | Work::UnknownCut => Err(Refusal::Drop(ReceiveDrop::GsoUnknown)),
    }
}

/// Copies `parts`, one behind the other, into as few buffers as they fit.
pub(crate) fn gather(pool: &Pool, parts: &[&[u8]]) -> Result<Packet, Refusal> {
    let mut head: Option<Packet> = None;
    let mut tail = pool.take().ok_or(Refusal::NoBuffer)?;
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
            let full = std::mem::replace(&mut tail, pool.take().ok_or(Refusal::NoBuffer)?);
            head = Some(join(head, full)?);
        }
    }
    join(head, tail)
}

/// Hangs `tail` behind `head`, if there is one.
pub(crate) fn join(head: Option<Packet>, tail: Packet) -> Result<Packet, Refusal> {
    match head {
        None => Ok(tail),
        Some(mut head) => match head.chain(tail) {
            Ok(()) => Ok(head),
            Err(_) => Err(Refusal::Drop(ReceiveDrop::TooManyBuffers)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Transport;
    use warmlane_mem::PoolConfig;

    fn pool(buffers: u32, room: usize) -> Pool {
        Pool::new(&PoolConfig { buffers, room, magazine: 8, ..PoolConfig::default() }).unwrap()
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
        assert_eq!(gather(&few, &[&vec![0; wanted]]).unwrap_err(), Refusal::NoBuffer);
        let tiny = pool(512, 16);
        let refusal = gather(&tiny, &[&[0; 16 * 256]]).unwrap_err();
        assert_eq!(refusal, Refusal::Drop(ReceiveDrop::TooManyBuffers));
        assert_eq!((few.ledger().outstanding(), tiny.ledger().outstanding()), (0, 0));
    }

    #[test]
    fn a_stripped_tag_is_put_back_and_moves_the_checksum() {
        let pool = pool(8, 200);
        let intake = Intake::new(&pool, 0);
        let mut frame = vec![7; 60];
        frame[50..52].fill(0);
        let work = Work::Checksum(Partial { start: 34, offset: 16 });
        let packet = intake.copy(pool.take().unwrap(), &frame, Some([0x81, 0, 0, 5]), work).unwrap();
        let data = bytes(&packet);
        assert_eq!(data[..18], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0x81, 0, 0, 5, 7, 7]);
        assert!(warmlane_wire::checksum::Sum::new().bytes(&data[38..]).is_valid());
        assert_eq!(packet.checksum(), Checksum::Good);
    }

    #[test]
    fn segments_get_the_stripped_tag_and_the_time_of_their_super_frame() {
        let pool = pool(8, 200);
        let mut intake = Intake::new(&pool, 0);
        let mut frame = vec![7; 12];
        frame.extend([8, 0, 0x45, 0, 1, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend([0, 1, 0, 2, 1, 8, 0, 0]);
        frame.extend((0..=255).collect::<Vec<u8>>());
        intake.storage[..frame.len()].copy_from_slice(&frame);
        let cut = Cut { transport: Transport::Udp, size: 100, checksum_start: Some(34) };
        intake.start_cutting(frame.len(), cut, Some([0x81, 0, 0, 5]), 99);
        let mut burst = Burst::with_limit(2);
        intake.cut(&mut burst);
        assert!(intake.is_cutting() && burst.len() == 2);
        let mut all = Burst::new();
        burst.move_to(&mut all);
        intake.cut(&mut all);
        assert!(!intake.is_cutting() && all.len() == 3);
        let mut joined = Vec::<u8>::new();
        for packet in all.iter() {
            let data = bytes(packet);
            assert_eq!(data[12..18], [0x81, 0, 0, 5, 8, 0]);
            assert_eq!((packet.timestamp(), packet.checksum()), (99, Checksum::Good));
            joined.extend(&data[46..]);
        }
        assert_eq!(joined, frame[42..]);
        assert_eq!((intake.counters.packets.get(), intake.counters.bytes.get()), (3, 3 * 46 + 256));

        intake.start_cutting(frame.len(), Cut { size: 0, ..cut }, None, 0);
        assert_eq!(
            (intake.is_cutting(), intake.counters.drops.get(ReceiveDrop::GsoUnknown.index())),
            (false, 1)
        );
    }
}
