//! What is the 82576's own in a card played by a program.

use super::chip::Igb;
use super::descriptor::{
    CONTEXT, DATA, FRAME_SHIFT, IPV4, LENGTH, NETWORK_SHIFT, SEGMENT, SIZE_SHIFT, TCP, TRANSPORT_SHIFT,
    UDP_CHECKSUM,
};
use super::registers::{
    BYTES, HASH_IN_DESCRIPTOR, HashKey, InterruptCause, InterruptMask, InterruptMode, InterruptUnmask,
    OtherVectors, QUEUES, QueueVectors, ReceiveBaseLow, ReceiveBuffers, ReceiveDescriptors, ReceiveHead,
    ReceiveLength, ReceiveTail, Redirection, SPREAD, TransmitBaseLow, TransmitDescriptors, TransmitHead,
    TransmitLength, TransmitTail, VectorAutoClear, VectorCause, VectorMask, VectorUnmask,
};
use crate::intel::descriptor::TCP_CHECKSUM;
use crate::intel::memory::Side;
use crate::intel::model::{Cause, Kind, Model, Played, RingPlaces, Segmenter, State, Told};
use crate::intel::registers::{ReceiveChecksums, ReceiveQueues, Register};
use warmlane_wire::toeplitz::{KEY_LENGTH, Toeplitz};

/// The bits that say of which kind a descriptor for sending is (7.2.2): the extension, and the type.
const KINDS: u64 = 1 << 29 | 0xf << 20;

#[derive(Debug)]
struct Playing;

impl Played for Igb<Model> {
    const KIND: &'static dyn Kind = &Playing;
}

/// The bit of a vector, if the entry says that it counts.
const fn vector(entry: u32) -> u32 {
    if entry & 0x80 == 0 { 0 } else { 1 << (entry & 0x1f) }
}

/// Changes something, and interrupts for causes that come up by that.
fn change(state: &mut State, change: impl FnOnce(&mut State)) {
    let causes = |state: &State| state.get::<InterruptCause>().bits() & state.get::<InterruptUnmask>().bits();
    let vectors = |state: &State| state.get::<VectorCause>().bits() & state.get::<VectorUnmask>().bits();
    let before = (causes(state), vectors(state));
    change(state);
    if causes(state) & !before.0 != 0 {
        let other = vector(state.get::<OtherVectors>().bits() >> 8 & 0xff);
        state.set(state.get::<VectorCause>() | VectorCause::new(other));
    }
    let raised = vectors(state) & !before.1;
    if raised != 0 {
        assert!(state.get::<InterruptMode>().has(InterruptMode::SEVERAL_VECTORS));
    }
    for number in (0..state.interrupts.len()).filter(|number| raised & 1 << number != 0) {
        state.interrupts[number] += 1;
    }
    let cleared = VectorCause::new(raised & state.get::<VectorAutoClear>().bits());
    state.set(state.get::<VectorCause>().without(cleared));
}

/// The hash of a packet, if it is of IPv4 or IPv6: of its addresses, and of the ports of TCP and UDP.
fn hash(state: &State, frame: &[u8]) -> Option<u32> {
    let (addresses, protocol, ports) = match frame.get(12..15)? {
        [8, 0, version] => (26..34, frame[23], 14 + 4 * usize::from(version & 0xf)),
        [0x86, 0xdd, _] => (22..54, frame[20], 54),
        _ => return None,
    };
    let ports = if matches!(protocol, 6 | 17) { ports..ports + 4 } else { 0..0 };
    let mut key = [0; KEY_LENGTH];
    for (number, bytes) in key.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *bytes = state.get_at::<HashKey>(number).bits().to_le_bytes();
    }
    let (toeplitz, input) = (Toeplitz::new(&key), [frame.get(addresses)?, frame.get(ports)?].concat());
    match input.len() {
        8 => input.first_chunk::<8>().map(|input| toeplitz.hash(input)),
        12 => input.first_chunk::<12>().map(|input| toeplitz.hash(input)),
        32 => input.first_chunk::<32>().map(|input| toeplitz.hash(input)),
        _ => input.first_chunk::<36>().map(|input| toeplitz.hash(input)),
    }
}

impl Kind for Playing {
    fn bytes(&self) -> u32 {
        BYTES
    }

    fn queues(&self) -> usize {
        QUEUES
    }

    fn ring(&self, side: Side, queue: usize) -> RingPlaces {
        match side {
            Side::Receive => RingPlaces {
                base: ReceiveBaseLow::place(queue),
                length: ReceiveLength::place(queue),
                head: ReceiveHead::place(queue),
                tail: ReceiveTail::place(queue),
            },
            Side::Transmit => RingPlaces {
                base: TransmitBaseLow::place(queue),
                length: TransmitLength::place(queue),
                head: TransmitHead::place(queue),
                tail: TransmitTail::place(queue),
            },
        }
    }

    fn has_enabled(&self, state: &State, side: Side, queue: usize) -> bool {
        if side == Side::Transmit {
            return state.get_at::<TransmitDescriptors>(queue).has(TransmitDescriptors::ENABLE);
        }
        let is_enabled = state.get_at::<ReceiveDescriptors>(queue).has(ReceiveDescriptors::ENABLE);
        let buffers = state.get_at::<ReceiveBuffers>(queue).without(ReceiveBuffers::DROP);
        assert!(!is_enabled || buffers == ReceiveBuffers::SIZE | ReceiveBuffers::ADVANCED, "{buffers:?}");
        is_enabled
    }

    fn queue_of(&self, state: &State, frame: &[u8]) -> usize {
        let spreads = state.get::<ReceiveQueues>().bits() == SPREAD
            && state.get::<ReceiveChecksums>().has(ReceiveChecksums::new(HASH_IN_DESCRIPTOR));
        let Some(hash) = Some(frame).filter(|_| spreads).and_then(|frame| hash(state, frame)) else {
            return 0;
        };
        let entry = hash as usize % 128;
        let entries = state.get_at::<Redirection>(entry / 4).bits().to_le_bytes();
        usize::from(entries[entry % 4] & 0xf)
    }

    fn understand(&self, [first, second]: [u64; 2]) -> Told {
        if second & KINDS == DATA {
            let of = Some((second >> FRAME_SHIFT) as usize);
            let length = (second & LENGTH) as usize;
            return Told::Data { length, is_to_be_cut: second & SEGMENT != 0, of };
        }
        assert_eq!(second & KINDS, CONTEXT, "neither of data nor a context: {second:#x}");
        let network = (first >> NETWORK_SHIFT & 0x7f) as usize;
        let transport = network + (first & 0x1ff) as usize;
        let field = if second & TCP == 0 { UDP_CHECKSUM } else { TCP_CHECKSUM };
        let transport_field = transport + usize::from(field);
        let size = (second >> SIZE_SHIFT) as usize;
        if size == 0 {
            return Told::Sum(transport, transport_field);
        }
        assert_eq!(second & (IPV4 | TCP), IPV4 | TCP, "{second:#x}");
        Told::Cut(Segmenter {
            network,
            network_field: network + 10,
            network_end: transport - 1,
            transport,
            transport_field,
            headers: transport + (second >> TRANSPORT_SHIFT & 0xff) as usize,
            size,
            payload: 0,
        })
    }

    fn cause(&self, state: &mut State, cause: Cause) {
        change(state, |state| match cause {
            Cause::Link => state.set(state.get::<InterruptCause>() | InterruptCause::LINK),
            Cause::Received(queue) => {
                // Of queues n and n + 8, a byte for receiving and one for sending each.
                let entries = state.get_at::<QueueVectors>(queue % 8).bits() >> (queue / 8 * 16);
                let bit = vector(entries & 0xff);
                state.set(state.get::<VectorCause>() | VectorCause::new(bit));
            }
        });
    }

    fn write(&self, state: &mut State, offset: usize, before: u32, value: u32) {
        /// Puts back what was there, and then changes a register.
        fn alter<T: Register>(state: &mut State, alter: impl FnOnce(u32) -> u32) {
            change(state, |state| state.set(T::new(alter(state.get::<T>().bits()))));
        }
        state.put_back(offset, before);
        match offset {
            // Ones clear.
            InterruptCause::OFFSET => alter::<InterruptCause>(state, |bits| bits & !value),
            VectorCause::OFFSET => alter::<VectorCause>(state, |bits| bits & !value),
            InterruptUnmask::OFFSET => alter::<InterruptUnmask>(state, |bits| bits | value),
            InterruptMask::OFFSET => alter::<InterruptUnmask>(state, |bits| bits & !value),
            VectorUnmask::OFFSET => alter::<VectorUnmask>(state, |bits| bits | value),
            VectorMask::OFFSET => alter::<VectorUnmask>(state, |bits| bits & !value),
            _ => state.put_back(offset, value),
        }
    }

    fn reset(&self, state: &mut State) {
        // The first pair is in use by itself.
        state.set(ReceiveDescriptors::ENABLE);
        state.set(TransmitDescriptors::ENABLE);
    }
}
