//! What is known of a packet besides its bytes: what a driver or the hardware has found out, and what is left for them to do.
//!
//! All of it is in the packet's header, so it costs no other line. One word says what is known, and is reset with the rest
//! of its half when a buffer is taken; the values in the other half hold what the buffer's last user left there, and count
//! only if that word says so. Who uses none of this pays nothing for it.
//!
//! Offsets are in bytes from the first data byte, and stay as they are when bytes are put in front or removed: whoever does
//! that sets them anew.

use crate::header::{Header, PacketState};
use crate::packet::Packet;

/// What is known of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nobody looked.
    #[default]
    Unknown,
    /// Who received the packet found it right.
    Good,
    /// Who received the packet found it wrong.
    Bad,
    /// Left to hardware by who sent it: the field holds the pseudo-header's sum only, and the packet must not
    /// leave by a wire before it is completed. A packet has one of these at most; in a tunnel, `start` says whether it is
    /// the outer or the inner one.
    Partial {
        /// Where summing starts: a transport header.
        start: u16,
        /// Where the sum is stored, in bytes from `start`.
        offset: u8,
    },
}

/// What is known of the transport checksum inside a tunnel, if it is not [partial](Checksum::Partial).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InnerChecksum {
    /// Nobody looked, or there is no tunnel.
    #[default]
    Unknown,
    /// Who received the packet found it right.
    Good,
    /// Who received the packet found it wrong.
    Bad,
}

/// What a packet that is longer than a link's frames is to be cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationKind {
    /// TCP segments over IPv4.
    Tcp4,
    /// TCP segments over IPv6.
    Tcp6,
    /// UDP datagrams, over IPv4 or IPv6.
    Udp,
}

/// How a packet that is longer than a link's frames is to be cut. It concerns the innermost transport header; the bytes
/// that each segment gets a copy of end at [`LayerOffsets::payload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// What the segments are.
    pub kind: SegmentationKind,
    /// Bytes of payload in each segment but the last.
    pub size: u16,
    /// Congestion was experienced, and only the first segment may say so (TCP's CWR flag, RFC 3168).
    pub congestion: bool,
}

/// A VLAN tag that is not among the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTci {
    /// Priority, drop eligibility and number: the tag's last two bytes.
    pub control: u16,
    /// It is a service tag (EtherType 0x88a8) and not a customer's (0x8100).
    pub is_service: bool,
}

/// The VLAN tag that is kept beside the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vlan {
    /// There is none; the packet's bytes may have one all the same.
    #[default]
    None,
    /// The packet came with it, and who received it took it off.
    Stripped(VlanTci),
    /// Who transmits the packet puts it on.
    Insert(VlanTci),
}

/// Who computed a hash, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// Toeplitz over addresses and ports, with the device's key.
    Toeplitz,
    /// Toeplitz over addresses alone, with the device's key.
    ToeplitzAddresses,
    /// The device, in a way of its own.
    Device,
    /// Software, the same for all packets of a flow in this process.
    Software,
}

/// A hash of the packet's flow. Hashes of different kinds, or of different ports, say nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash {
    /// How it was computed.
    pub kind: HashKind,
    /// The hash.
    pub value: u32,
}

/// Where a packet's headers start, in bytes from the first data byte; 0 where that is not known. What is behind
/// something unknown is unknown, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerOffsets {
    /// The outermost network header, behind the link layer's.
    pub l3: u16,
    /// What is behind that and its extensions: a transport or a tunnel header.
    pub l4: u16,
    /// In a tunnel, the network header inside.
    pub inner_l3: u16,
    /// In a tunnel, the transport header inside.
    pub inner_l4: u16,
    /// Where the innermost transport header ends: so many bytes of headers there are.
    pub payload: u16,
}

/// Some bits of the word that says what is known.
#[derive(Clone, Copy)]
struct Bits {
    shift: u32,
    width: u32,
}

const fn bits(shift: u32, width: u32) -> Bits {
    Bits { shift, width }
}

const CHECKSUM: Bits = bits(0, 2);
const INNER_CHECKSUM: Bits = bits(2, 2);
const VLAN: Bits = bits(4, 2);
const SERVICE_TAG: Bits = bits(6, 1);
const SEGMENTATION: Bits = bits(7, 2);
const CONGESTION: Bits = bits(9, 1);
const HASH: Bits = bits(10, 3);
const MARK: Bits = bits(13, 1);
const TUNNEL: Bits = bits(14, 1);
/// Not about the contents: a [shared packet](crate::SharedPacket) starts with this buffer.
const SHARED: Bits = bits(15, 1);
/// Lengths of headers in words of four bytes, as IPv4 and TCP count their own. IPv6 extensions have whole words, too.
const L3_WORDS: Bits = bits(16, 6);
const INNER_L3_WORDS: Bits = bits(22, 6);
const L4_WORDS: Bits = bits(28, 4);

/// The value of [`CHECKSUM`] for a partial one, and of [`VLAN`] for a tag to be inserted.
const PARTIAL: u32 = 2;
const INSERT: u32 = 2;

/// Without these bits nothing is left to do: those of [`PARTIAL`], of [`INSERT`], and of any segmentation.
const MAYBE_LEFT: u32 = PARTIAL << CHECKSUM.shift | INSERT << VLAN.shift | 3 << SEGMENTATION.shift;

/// What concerns checksums, a tag beside the packet, and segmentation: the fields below the hash.
const OFFLOADS: u32 = (1 << HASH.shift) - 1;

/// Bytes in one of these words.
const WORD: u16 = 4;

/// The word that says what is known. Zero: nothing.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Known(u32);

impl Known {
    pub(crate) const NOTHING: Self = Self(0);

    #[inline(always)]
    const fn get(self, bits: Bits) -> u32 {
        self.0 >> bits.shift & ((1 << bits.width) - 1)
    }

    #[inline(always)]
    const fn set(&mut self, bits: Bits, value: u32) {
        let mask = (1 << bits.width) - 1;
        debug_assert!(value <= mask);
        self.0 = self.0 & !(mask << bits.shift) | value << bits.shift;
    }

    #[inline(always)]
    pub(crate) const fn is_shared(self) -> bool {
        self.get(SHARED) != 0
    }

    pub(crate) const fn set_shared(&mut self, is_shared: bool) {
        self.set(SHARED, is_shared as u32);
    }

    /// What does not depend on the packet's bytes.
    #[inline(always)]
    pub(crate) const fn without_contents(self) -> Self {
        Self(self.0 & 1 << MARK.shift)
    }
}

/// How many bytes `end` is behind `start` in words, if they are whole and fit `bits`.
fn words(start: u16, end: u16, bits: Bits) -> Option<u32> {
    let length = end.checked_sub(start)?;
    let words = u32::from(length / WORD);
    (length > 0 && length.is_multiple_of(WORD) && words < 1 << bits.width).then_some(words)
}

impl Packet {
    #[inline(always)]
    fn known(&self) -> Known {
        self.header().state.known
    }

    /// Whether anything is known of the packet's checksums, it has a tag beside it, or it is to be cut: if not, it is as it was
    /// or will be on a wire.
    #[inline(always)]
    pub fn has_offloads(&self) -> bool {
        self.known().0 & OFFLOADS != 0
    }

    /// What is known of the transport checksum; of the outer one in a tunnel, unless it is partial.
    #[inline]
    pub fn checksum(&self) -> Checksum {
        let state = &self.header().state;
        match state.known.get(CHECKSUM) {
            1 => Checksum::Good,
            PARTIAL => Checksum::Partial { start: state.checksum_start, offset: state.checksum_offset },
            3 => Checksum::Bad,
            _ => Checksum::Unknown,
        }
    }

    /// Notes what is known of the transport checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: Checksum) {
        let state = &mut self.header_mut().state;
        let value = match checksum {
            Checksum::Unknown => 0,
            Checksum::Good => 1,
            Checksum::Partial { start, offset } => {
                (state.checksum_start, state.checksum_offset) = (start, offset);
                PARTIAL
            }
            Checksum::Bad => 3,
        };
        state.known.set(CHECKSUM, value);
    }

    /// What is known of the transport checksum inside a tunnel.
    #[inline]
    pub fn inner_checksum(&self) -> InnerChecksum {
        match self.known().get(INNER_CHECKSUM) {
            1 => InnerChecksum::Good,
            2 => InnerChecksum::Bad,
            _ => InnerChecksum::Unknown,
        }
    }

    /// Notes what is known of the transport checksum inside a tunnel.
    #[inline]
    pub fn set_inner_checksum(&mut self, checksum: InnerChecksum) {
        self.header_mut().state.known.set(INNER_CHECKSUM, checksum as u32);
    }

    /// How the packet is to be cut before it fits a link; `None` if it is not.
    #[inline]
    pub fn segmentation(&self) -> Option<Segmentation> {
        let known = self.known();
        let kind = match known.get(SEGMENTATION) {
            1 => SegmentationKind::Tcp4,
            2 => SegmentationKind::Tcp6,
            3 => SegmentationKind::Udp,
            _ => return None,
        };
        let congestion = known.get(CONGESTION) != 0;
        Some(Segmentation { kind, size: self.header().segment_size, congestion })
    }

    /// Notes how the packet is to be cut.
    #[inline]
    pub fn set_segmentation(&mut self, segmentation: Option<Segmentation>) {
        let header = self.header_mut();
        // The first kind is 0 by itself, which means here that there is none.
        let kind = segmentation.map_or(0, |segmentation| segmentation.kind as u32 + 1);
        header.state.known.set(SEGMENTATION, kind);
        if let Some(segmentation) = segmentation {
            header.state.known.set(CONGESTION, u32::from(segmentation.congestion));
            header.segment_size = segmentation.size;
        }
    }

    /// The VLAN tag that is kept beside the packet.
    #[inline]
    pub fn vlan(&self) -> Vlan {
        let known = self.known();
        let tag = || VlanTci { control: self.header().vlan, is_service: known.get(SERVICE_TAG) != 0 };
        match known.get(VLAN) {
            1 => Vlan::Stripped(tag()),
            INSERT => Vlan::Insert(tag()),
            _ => Vlan::None,
        }
    }

    /// Whether both packets have the same VLAN tag beside them, or none.
    #[inline(always)]
    pub fn has_same_tag(&self, other: &Self) -> bool {
        let tag = |packet: &Self| packet.known().get(VLAN);
        tag(self) | tag(other) == 0 || self.vlan() == other.vlan()
    }

    /// Keeps a VLAN tag beside the packet.
    #[inline]
    pub fn set_vlan(&mut self, vlan: Vlan) {
        let header = self.header_mut();
        let (value, tag) = match vlan {
            Vlan::None => (0, None),
            Vlan::Stripped(tag) => (1, Some(tag)),
            Vlan::Insert(tag) => (INSERT, Some(tag)),
        };
        header.state.known.set(VLAN, value);
        if let Some(tag) = tag {
            header.state.known.set(SERVICE_TAG, u32::from(tag.is_service));
            header.vlan = tag.control;
        }
    }

    /// The flow's hash, if somebody computed it: a device of virtio, if that was agreed on.
    #[inline]
    pub fn flow_hash(&self) -> Option<FlowHash> {
        let kind = match self.known().get(HASH) {
            1 => HashKind::Toeplitz,
            2 => HashKind::ToeplitzAddresses,
            3 => HashKind::Device,
            4 => HashKind::Software,
            _ => return None,
        };
        Some(FlowHash { kind, value: self.header().hash })
    }

    /// Notes the flow's hash.
    #[inline]
    pub fn set_flow_hash(&mut self, hash: Option<FlowHash>) {
        let header = self.header_mut();
        header.state.known.set(HASH, hash.map_or(0, |hash| hash.kind as u32 + 1));
        if let Some(hash) = hash {
            header.hash = hash.value;
        }
    }

    /// Whether something is left to who transmits the packet: a partial checksum, segmentation or a VLAN tag to be inserted.
    #[inline(always)]
    pub fn has_work_left(&self) -> bool {
        let known = self.known();
        // One test for most packets; a bad checksum passes it, too.
        known.0 & MAYBE_LEFT != 0
            && (known.get(CHECKSUM) == PARTIAL || known.get(SEGMENTATION) != 0 || known.get(VLAN) == INSERT)
    }

    /// A number that one stage leaves for a later one; 0 if none did.
    #[inline]
    pub fn mark(&self) -> u32 {
        if self.known().get(MARK) == 0 { 0 } else { self.header().mark }
    }

    /// Leaves a number for a later stage.
    #[inline]
    pub fn set_mark(&mut self, mark: u32) {
        let header = self.header_mut();
        header.state.known.set(MARK, 1);
        header.mark = mark;
    }

    /// Where layer 3 starts, in bytes from the first data byte, as the last stage that looked has noted; 0 if none did.
    #[inline]
    pub fn l3_offset(&self) -> u8 {
        self.header().state.l3_offset
    }

    /// Notes where layer 3 starts. What is known of the [layers](Self::layer_offsets) behind it moves along.
    #[inline]
    pub fn set_l3_offset(&mut self, offset: u8) {
        self.header_mut().state.l3_offset = offset;
    }

    /// Notes that layer 3, which was known, starts elsewhere now, because bytes were put in front of it or removed: a
    /// [partial checksum](Checksum::Partial) and the [layers](Self::layer_offsets) behind move along.
    pub fn move_l3_offset(&mut self, offset: u8) {
        if let Checksum::Partial { start, offset: field } = self.checksum() {
            let start = start.saturating_add(offset.into()).saturating_sub(self.l3_offset().into());
            self.set_checksum(Checksum::Partial { start, offset: field });
        }
        self.set_l3_offset(offset);
    }

    /// Where the headers start, as far as somebody has noted it.
    pub fn layer_offsets(&self) -> LayerOffsets {
        let state = &self.header().state;
        let words = |bits| state.known.get(bits) as u16 * WORD;
        let mut layers = LayerOffsets { l3: u16::from(state.l3_offset), ..LayerOffsets::default() };
        if layers.l3 == 0 || words(L3_WORDS) == 0 {
            return layers;
        }
        layers.l4 = layers.l3 + words(L3_WORDS);
        let mut transport = layers.l4;
        if state.known.get(TUNNEL) != 0 {
            layers.inner_l3 = layers.l4 + u16::from(state.tunnel_length);
            if words(INNER_L3_WORDS) == 0 {
                return layers;
            }
            layers.inner_l4 = layers.inner_l3 + words(INNER_L3_WORDS);
            transport = layers.inner_l4;
        }
        if words(L4_WORDS) > 0 {
            layers.payload = transport + words(L4_WORDS);
        }
        layers
    }

    /// Notes where the headers start. The link layer's may have up to 255 bytes, a network header with its extensions up to
    /// 252, a tunnel header with all up to the network header inside up to 255, and a transport header up to 60, the last
    /// three but the tunnel's in whole words of four bytes, as their protocols have it. Of others, and of what is behind them, nothing is kept.
    pub fn set_layer_offsets(&mut self, layers: LayerOffsets) {
        let state = &mut self.header_mut().state;
        state.l3_offset = u8::try_from(layers.l3).unwrap_or(0);
        for bits in [TUNNEL, L3_WORDS, INNER_L3_WORDS, L4_WORDS] {
            state.known.set(bits, 0);
        }
        let Some(length) = words(layers.l3, layers.l4, L3_WORDS).filter(|_| state.l3_offset > 0) else {
            return;
        };
        state.known.set(L3_WORDS, length);
        let mut transport = layers.l4;
        if layers.inner_l3 > 0 {
            let tunnel = layers.inner_l3.checked_sub(layers.l4).and_then(|length| u8::try_from(length).ok());
            let Some(tunnel) = tunnel else {
                // Not knowing of the tunnel would make the outer header the innermost.
                state.known.set(L3_WORDS, 0);
                return;
            };
            state.tunnel_length = tunnel;
            state.known.set(TUNNEL, 1);
            let Some(length) = words(layers.inner_l3, layers.inner_l4, INNER_L3_WORDS) else { return };
            state.known.set(INNER_L3_WORDS, length);
            transport = layers.inner_l4;
        }
        state.known.set(L4_WORDS, words(transport, layers.payload, L4_WORDS).unwrap_or(0));
    }

    /// Forgets all that is known of the packet's contents: layers, checksums, segmentation, VLAN tag and hash. For who has
    /// made another packet of it. Port, time and mark stay.
    #[inline(always)]
    pub fn forget_contents(&mut self) {
        let state = &mut self.header_mut().state;
        state.known = state.known.without_contents();
        state.l3_offset = 0;
    }

    /// Takes over what is known of `from` besides its bytes, all of it, and the application's own bytes. For who has copied
    /// the bytes.
    pub fn copy_metadata(&mut self, from: &Self) {
        let (target, source) = (self.header_mut(), from.header());
        let PacketState {
            l3_offset,
            port,
            mut known,
            tunnel_length,
            checksum_offset,
            checksum_start,
            timestamp,
            ..
        } = source.state;
        known.set_shared(target.state.known.is_shared());
        let state = PacketState {
            l3_offset,
            port,
            known,
            tunnel_length,
            checksum_offset,
            checksum_start,
            timestamp,
            ..target.state
        };
        let Header { application, mark, hash, vlan, segment_size, .. } = *source;
        *target = Header { state, application, mark, hash, vlan, segment_size, ..*target };
    }
}
