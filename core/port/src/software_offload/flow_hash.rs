//! Hashes of flows where no device found one.

use warmlane_mem::{FlowHash, HashKind, Packet};
use warmlane_wire::Flow;

/// The packet's flow hash: what the device that it came by has noted, or else one that is computed now, noted at the packet as
/// [`HashKind::Software`], and there for all who ask again.
///
/// `seed` is the caller's, and should be the same for all packets that it compares. Fragments have the hash of their addresses. `None` for
/// what isn't IP, or whose headers aren't whole in the first buffer.
///
/// Packets of one flow may come with hashes of two kinds, if they come by several ports. So who must not reorder them compares
/// hashes of one kind only.
#[inline]
pub fn flow_hash(packet: &mut Packet, seed: u64) -> Option<FlowHash> {
    if let Some(noted) = packet.flow_hash() {
        return Some(noted);
    }
    let (flow, _) = Flow::of_front(packet.data())?;
    let value = flow.hash(seed);
    let hash = FlowHash { kind: HashKind::Software, value };
    packet.set_flow_hash(Some(hash));
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};
    use warmlane_wire::{Frame, Ipv4Fields, MacAddress};

    fn udp(pool: &Pool, port: u16) -> Packet {
        let frame = Frame::new()
            .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
            .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()))
            .udp(port, 53)
            .payload(&[7; 100])
            .to_vec()
            .unwrap();
        let mut packet = pool.take().unwrap();
        packet.fill(&frame).unwrap();
        packet
    }

    #[test]
    fn what_a_device_found_stays_and_the_rest_is_computed_once() {
        let pool = Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap();
        let (mut one, mut same, mut other) = (udp(&pool, 1), udp(&pool, 1), udp(&pool, 2));
        let hash = flow_hash(&mut one, 9).unwrap();
        assert_eq!((hash.kind, one.flow_hash()), (HashKind::Software, Some(hash)));
        assert_eq!(flow_hash(&mut same, 9), Some(hash));
        assert_ne!(flow_hash(&mut other, 9), Some(hash));
        assert_eq!(flow_hash(&mut one, 10), Some(hash), "it was noted");

        let noted = FlowHash { kind: HashKind::Toeplitz, value: 5 };
        let mut packet = udp(&pool, 1);
        packet.set_flow_hash(Some(noted));
        assert_eq!(flow_hash(&mut packet, 9), Some(noted));

        packet.fill(&[0; 60]).unwrap();
        packet.set_flow_hash(None);
        assert_eq!((flow_hash(&mut packet, 9), packet.flow_hash()), (None, None));
    }
}
