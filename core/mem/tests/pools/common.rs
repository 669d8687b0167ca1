//! Small pools of all kinds, and packets that everything is known of, for tests.

use warmlane_mem::{
    Checksum, FlowHash, HashKind, InnerChecksum, LayerOffsets, Packet, Pool, PoolConfig, PoolKind,
    Segmentation, SegmentationKind, Vlan, VlanTci,
};
use warmlane_sys::pages::PagePreference;

pub(crate) const KINDS: [PoolKind; 4] =
    [PoolKind::Depot, PoolKind::Stack, PoolKind::LockFreeStack, PoolKind::Ring];

/// How often a test does something: less often for Miri, to which a packet is a tenth of a second.
pub(crate) const fn times(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(16) } else { count }
}

pub(crate) fn config(kind: PoolKind, buffers: u32) -> PoolConfig {
    PoolConfig {
        name: format!("test {kind:?}"),
        buffers,
        kind,
        magazine: Some(8),
        pages: PagePreference::Plain,
        // To plan for caches takes an interpreter minutes.
        stride: cfg!(miri).then_some(8_192),
        ..PoolConfig::default()
    }
}

pub(crate) fn pool(kind: PoolKind, buffers: u32) -> Pool {
    Pool::new(&config(kind, buffers)).expect("plain pages are always to be had")
}

pub(crate) fn take_all(pool: &Pool) -> Vec<Packet> {
    std::iter::from_fn(|| pool.take()).collect()
}

/// All that can be known of a packet besides its bytes, port and time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Everything {
    pub(crate) checksum: Checksum,
    pub(crate) inner_checksum: InnerChecksum,
    pub(crate) segmentation: Option<Segmentation>,
    pub(crate) vlan: Vlan,
    pub(crate) flow_hash: Option<FlowHash>,
    pub(crate) mark: u32,
    pub(crate) layers: LayerOffsets,
}

impl Everything {
    pub(crate) const SAMPLE: Self = Self {
        checksum: Checksum::Partial { start: 34, offset: 16 },
        inner_checksum: InnerChecksum::Bad,
        segmentation: Some(Segmentation { kind: SegmentationKind::Udp, size: 1_400, congestion: true }),
        vlan: Vlan::Insert(VlanTci { control: 0xe123, is_service: true }),
        flow_hash: Some(FlowHash { kind: HashKind::Software, value: u32::MAX }),
        mark: 0x1234_5678,
        layers: LayerOffsets {
            l3: 18,
            l4: 38,
            inner_l3: 38 + 8 + 8 + 14,
            inner_l4: 68 + 40,
            payload: 108 + 32,
        },
    };

    pub(crate) fn of(packet: &Packet) -> Self {
        Self {
            checksum: packet.checksum(),
            inner_checksum: packet.inner_checksum(),
            segmentation: packet.segmentation(),
            vlan: packet.vlan(),
            flow_hash: packet.flow_hash(),
            mark: packet.mark(),
            layers: packet.layer_offsets(),
        }
    }

    pub(crate) fn put(self, packet: &mut Packet) {
        packet.set_checksum(self.checksum);
        packet.set_inner_checksum(self.inner_checksum);
        packet.set_segmentation(self.segmentation);
        packet.set_vlan(self.vlan);
        packet.set_flow_hash(self.flow_hash);
        packet.set_mark(self.mark);
        packet.set_layer_offsets(self.layers);
    }
}
