//! The messages of vhost-user (its specification, `docs/interop/vhost-user.rst` of QEMU).
//!
//! Each has a header of 12 bytes and a payload, in the byte order of the machine; some carry descriptors. Both ends are on one machine. The
//! front end, which has the memory, asks; the back end, which moves the packets, answers.

use thiserror::Error;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;

/// Bytes of the longest payload: a configuration space and what belongs to it.
pub const LONGEST_PAYLOAD: usize = 512;

/// Regions in one message, and descriptors with it.
pub const MAXIMUM_REGIONS: usize = 8;

/// The version, in the lowest two bits of the flags.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// It is an answer.
const REPLY: u32 = 1 << 2;
/// An answer is wanted.
const NEED_REPLY: u32 = 1 << 3;

/// Beside a ring's index: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// What is wrong with a message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    /// It is of another version.
    #[error("a message with flags {0:#x}: this side speaks version 1")]
    Flags(u32),
    /// The payload is too long.
    #[error("message {request} with {length} bytes: at most {LONGEST_PAYLOAD} are possible")]
    TooLong {
        /// Its number.
        request: u32,
        /// Bytes of its payload.
        length: u32,
    },
    /// The payload has not the length that this message has.
    #[error("message {request} with {length} bytes")]
    Length {
        /// Its number.
        request: u32,
        /// Bytes of its payload.
        length: usize,
    },
    /// It is not known.
    #[error("message {0}, which is not known")]
    Unknown(u32),
    /// It has more regions than there can be.
    #[error("{0} regions of memory: at most {MAXIMUM_REGIONS} are possible")]
    Regions(u32),
}

/// What a message starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message it is.
    pub request: u32,
    /// It is an answer.
    pub is_reply: bool,
    /// An answer is wanted, though this message has none of its own.
    pub needs_reply: bool,
    /// Bytes that follow.
    pub length: u32,
}

impl Header {
    /// As it is sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let flags =
            VERSION | if self.is_reply { REPLY } else { 0 } | if self.needs_reply { NEED_REPLY } else { 0 };
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip([self.request, flags, self.length]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// # Errors
    /// [`MessageError::Flags`], [`MessageError::TooLong`].
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, MessageError> {
        let mut fields = Fields(&bytes);
        let [request, flags, length] = [fields.u32(), fields.u32(), fields.u32()];
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Flags(flags));
        }
        if length as usize > LONGEST_PAYLOAD {
            return Err(MessageError::TooLong { request, length });
        }
        Ok(Self { request, is_reply: flags & REPLY != 0, needs_reply: flags & NEED_REPLY != 0, length })
    }
}

/// Reads numbers one after the other. Who uses it has checked the length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *field
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}

/// A region of the front end's memory. Its file comes as a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Its address for the driver, which descriptors have.
    pub guest: u64,
    /// Bytes.
    pub length: u64,
    /// Its address in the front end's process, which messages have.
    pub user: u64,
    /// Where in the file it starts.
    pub offset: u64,
}

impl MemoryRegion {
    const BYTES: usize = 32;

    fn read(fields: &mut Fields<'_>) -> Self {
        let [guest, length, user, offset] = [fields.u64(), fields.u64(), fields.u64(), fields.u64()];
        Self { guest, length, user, offset }
    }

    fn write(&self, payload: &mut Vec<u8>) {
        for word in [self.guest, self.length, self.user, self.offset] {
            payload.extend(word.to_ne_bytes());
        }
    }
}

/// A number about a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Which ring.
    pub index: u32,
    /// The number.
    pub value: u32,
}

/// Where the parts of a ring are, by addresses of the front end's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// Which ring.
    pub index: u32,
    /// Bit 0: what is written to the used ring is logged.
    pub flags: u32,
    /// Descriptors.
    pub descriptors: u64,
    /// The used ring; of a packed one, the device's event suppression.
    pub used: u64,
    /// The available ring; of a packed one, the driver's event suppression.
    pub available: u64,
    /// Where writes to the used ring are logged, by addresses of the driver.
    pub log: u64,
}

/// A ring, and whether a descriptor comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingDescriptor {
    /// Which ring.
    pub index: u8,
    /// A descriptor comes.
    pub has_descriptor: bool,
}

/// Memory where buffers that are under way are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflight {
    /// Bytes.
    pub length: u64,
    /// Where in the file it starts.
    pub offset: u64,
    /// Rings.
    pub rings: u16,
    /// Descriptors in each.
    pub ring_size: u16,
}

macro_rules! requests {
    ($($(#[doc = $sentence:literal])+ $name:ident $(($payload:ty))? = $number:literal,)+) => {
        /// What a front end asks.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $($(#[doc = $sentence])+ $name $(($payload))?,)+
        }

        impl Request {
            /// Its number.
            pub const fn number(&self) -> u32 {
                match self {
                    $(Self::$name { .. } => $number,)+
                }
            }

            /// # Errors
            /// [`MessageError`]: it is not known, or has another length.
            pub fn decode(number: u32, payload: &[u8]) -> Result<Self, MessageError> {
                let wrong = MessageError::Length { request: number, length: payload.len() };
                match number {
                    $($number => requests!(@decode payload wrong $name $(($payload))?),)+
                    _ => Err(MessageError::Unknown(number)),
                }
            }

            /// The payload, as it is sent.
            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::new();
                match self {
                    $(requests!(@pattern $name value $($payload)?) => {
                        requests!(@encode bytes value $($payload)?);
                    })+
                }
                bytes
            }
        }
    };
    (@decode $bytes:ident $wrong:ident $name:ident ($payload:ty)) => {
        <$payload as Payload>::decode($bytes).ok_or($wrong)?.map(Self::$name)
    };
    (@decode $bytes:ident $wrong:ident $name:ident) => {
        if $bytes.is_empty() { Ok(Self::$name) } else { Err($wrong) }
    };
    (@pattern $name:ident $value:ident $payload:ty) => { Self::$name($value) };
    (@pattern $name:ident $value:ident) => { Self::$name };
    (@encode $bytes:ident $value:ident $payload:ty) => { Payload::encode($value, &mut $bytes) };
    (@encode $bytes:ident $value:ident) => {};
}

/// What can stand behind a header.
trait Payload: Sized {
    /// `None`: the length is wrong.
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>>;
    fn encode(&self, bytes: &mut Vec<u8>);
}

impl Payload for u64 {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        Some(Ok(Self::from_ne_bytes(bytes.try_into().ok()?)))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_ne_bytes());
    }
}

impl Payload for RingState {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        (bytes.len() == 8).then(|| Ok(Self { index: fields.u32(), value: fields.u32() }))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.index.to_ne_bytes());
        bytes.extend(self.value.to_ne_bytes());
    }
}

impl Payload for RingAddresses {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        (bytes.len() == 40).then(|| {
            Ok(Self {
                index: fields.u32(),
                flags: fields.u32(),
                descriptors: fields.u64(),
                used: fields.u64(),
                available: fields.u64(),
                log: fields.u64(),
            })
        })
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.index.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        for address in [self.descriptors, self.used, self.available, self.log] {
            bytes.extend(address.to_ne_bytes());
        }
    }
}

impl Payload for RingDescriptor {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let number = u64::from_ne_bytes(bytes.try_into().ok()?);
        Some(Ok(Self { index: number as u8, has_descriptor: number & NO_DESCRIPTOR == 0 }))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let flag = if self.has_descriptor { 0 } else { NO_DESCRIPTOR };
        bytes.extend((u64::from(self.index) | flag).to_ne_bytes());
    }
}

impl Payload for Vec<MemoryRegion> {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        if bytes.len() < 8 {
            return None;
        }
        let (count, _padding) = (fields.u32(), fields.u32());
        if count as usize > MAXIMUM_REGIONS {
            return Some(Err(MessageError::Regions(count)));
        }
        let is_long_enough = fields.0.len() >= count as usize * MemoryRegion::BYTES;
        // Some send the whole table, however many regions are in it.
        is_long_enough.then(|| Ok((0..count).map(|_| MemoryRegion::read(&mut fields)).collect()))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.len() as u32).to_ne_bytes());
        bytes.extend([0; 4]);
        for region in self {
            region.write(bytes);
        }
    }
}

impl Payload for MemoryRegion {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        (bytes.len() == 8 + Self::BYTES).then(|| {
            let _padding = fields.u64();
            Ok(Self::read(&mut fields))
        })
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend([0; 8]);
        self.write(bytes);
    }
}

impl Payload for Inflight {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        // With or without what C puts at the end.
        (bytes.len() == 20 || bytes.len() == 24).then(|| {
            Ok(Self {
                length: fields.u64(),
                offset: fields.u64(),
                rings: fields.u16(),
                ring_size: fields.u16(),
            })
        })
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.length.to_ne_bytes());
        bytes.extend(self.offset.to_ne_bytes());
        bytes.extend(self.rings.to_ne_bytes());
        bytes.extend(self.ring_size.to_ne_bytes());
        bytes.extend([0; 4]);
    }
}

/// Memory where writes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Bytes.
    pub length: u64,
    /// Where in the file it starts.
    pub offset: u64,
}

impl Payload for Log {
    fn decode(bytes: &[u8]) -> Option<Result<Self, MessageError>> {
        let mut fields = Fields(bytes);
        (bytes.len() == 16).then(|| Ok(Self { length: fields.u64(), offset: fields.u64() }))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.length.to_ne_bytes());
        bytes.extend(self.offset.to_ne_bytes());
    }
}

requests! {
    /// Which features are there?
    GetFeatures = 1,
    /// These features hold.
    SetFeatures(u64) = 2,
    /// The sender is the front end from now on.
    SetOwner = 3,
    /// It is no longer; only old front ends say so.
    ResetOwner = 4,
    /// All of the memory.
    SetMemoryTable(Vec<MemoryRegion>) = 5,
    /// Where writes are logged.
    SetLogBase(Log) = 6,
    /// What is signalled when something was logged.
    SetLogDescriptor = 7,
    /// A ring's length.
    SetRingSize(RingState) = 8,
    /// Where a ring's parts are.
    SetRingAddresses(RingAddresses) = 9,
    /// Where to go on in a ring.
    SetRingBase(RingState) = 10,
    /// Stop a ring, and say where.
    GetRingBase(RingState) = 11,
    /// What the driver signals.
    SetRingKick(RingDescriptor) = 12,
    /// What the driver wants signalled.
    SetRingCall(RingDescriptor) = 13,
    /// What is signalled when a ring is broken.
    SetRingError(RingDescriptor) = 14,
    /// Which protocol features are there?
    GetProtocolFeatures = 15,
    /// These protocol features hold.
    SetProtocolFeatures(u64) = 16,
    /// How many pairs of queues can there be?
    GetQueueCount = 17,
    /// Enable a ring, or disable it.
    SetRingEnabled(RingState) = 18,
    /// Announce this Ethernet address, after a migration.
    SendRarp(u64) = 19,
    /// The driver's MTU.
    SetMtu(u64) = 20,
    /// Memory for buffers that are under way is wanted.
    GetInflight(Inflight) = 31,
    /// Memory with buffers that are under way.
    SetInflight(Inflight) = 32,
    /// Reset the device.
    ResetDevice = 34,
    /// How many regions of memory can there be?
    GetMaximumMemorySlots = 36,
    /// One more region of memory.
    AddMemoryRegion(MemoryRegion) = 37,
    /// One region of memory less.
    RemoveMemoryRegion(MemoryRegion) = 38,
    /// The device's status (virtio 1.2 section 2.1).
    SetStatus(u64) = 39,
    /// Which status has it?
    GetStatus = 40,
}

/// What a back end answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A number. As an acknowledgement, 0 is yes.
    Number(u64),
    /// Where a ring was stopped.
    Ring(RingState),
    /// Memory for buffers that are under way.
    Inflight(Inflight),
}

impl Reply {
    /// The whole message: the answer to request `request`.
    pub fn encode(&self, request: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        match self {
            Self::Number(number) => number.encode(&mut payload),
            Self::Ring(state) => state.encode(&mut payload),
            Self::Inflight(inflight) => inflight.encode(&mut payload),
        }
        let header = Header { request, is_reply: true, needs_reply: false, length: payload.len() as u32 };
        [&header.encode()[..], &payload].concat()
    }
}

#[cfg(test)]
mod tests;
