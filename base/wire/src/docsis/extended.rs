//! Elements of the extended header (MULPI section 6.2.6): a nibble of type, a nibble of length, the value.

use thiserror::Error;

/// The types of elements that are known here.
const NULL: u8 = 0;
pub(super) const BP_DOWN: u8 = 4;
pub(super) const DOWNSTREAM_SERVICE: u8 = 8;
/// Announces a type and a length of a byte each.
const EXTENDED: u8 = 15;

/// One element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element<'a> {
    /// Padding.
    Null,
    /// With which key the frame is encrypted, if it is.
    Privacy(Privacy),
    /// What a modem needs to put packets of several channels into their order.
    DownstreamService(DownstreamService),
    /// Another one.
    Other {
        /// The type; for those announced by type 15, 256 and more.
        kind: u16,
        /// The value.
        value: &'a [u8],
    },
}

/// The elements of an extended header that don't fit in it, or in themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ElementError {
    /// The element goes past the extended header's end.
    #[error("element of type {kind} takes {needed} bytes of the extended header, there are {available}")]
    Truncated {
        /// The type.
        kind: u8,
        /// Bytes it takes.
        needed: usize,
        /// Bytes that are left.
        available: usize,
    },
    /// A length that this type doesn't have.
    #[error("element of type {kind} has a value of {length} bytes")]
    Length {
        /// The type.
        kind: u8,
        /// Bytes of its value.
        length: usize,
    },
}

/// The elements of an extended header one by one; ends behind the first error.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The elements in these bytes.
    pub const fn new(extended: &'a [u8]) -> Self {
        Self { rest: extended }
    }

    fn parse(&mut self, first: u8) -> Result<Element<'a>, ElementError> {
        let (kind, mut length) = (first >> 4, usize::from(first & 0x0f));
        let (mut start, mut wide) = (1, u16::from(kind));
        if kind == EXTENDED
            && let Some([_, extended_kind, extended_length]) = self.rest.first_chunk()
        {
            (start, wide, length) = (3, 256 + u16::from(*extended_kind), usize::from(*extended_length));
        }
        let (needed, available) = (start + length, self.rest.len());
        let short = ElementError::Truncated { kind, needed, available };
        let (element, rest) = self.rest.split_at_checked(needed).ok_or(short)?;
        let value = element.get(start..).ok_or(short)?;
        self.rest = rest;
        let wrong = ElementError::Length { kind, length };
        match kind {
            NULL if length == 0 => Ok(Element::Null),
            NULL => Err(wrong),
            BP_DOWN => {
                let value = value.try_into().map_err(|_| wrong)?;
                Ok(Element::Privacy(Privacy::from_bytes(value)))
            }
            DOWNSTREAM_SERVICE => {
                DownstreamService::from_bytes(value).map(Element::DownstreamService).ok_or(wrong)
            }
            _ => Ok(Element::Other { kind: wide, value }),
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, ElementError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = *self.rest.first()?;
        let element = self.parse(first);
        if element.is_err() {
            self.rest = &[];
        }
        Some(element)
    }
}

/// The BP_DOWN element (CM-SP-SECv3.1 section 7.2): which key the frame is encrypted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privacy {
    /// The key's sequence number, 4 bits.
    pub key_sequence: u8,
    /// 1 for BPI+; 4 bits.
    pub version: u8,
    /// Whether the frame is encrypted.
    pub is_encrypted: bool,
    /// Which of the two keys that are alive: the lowest bit of its sequence number.
    pub toggle: bool,
    /// The security association, 14 bits.
    pub said: u16,
}

impl Privacy {
    /// Bytes of the value.
    pub const LENGTH: usize = 4;
    /// The version of BPI+.
    pub const VERSION: u8 = 1;
    const ENABLE: u16 = 0x8000;
    const TOGGLE: u16 = 0x4000;
    const SAID: u16 = 0x3fff;

    /// A frame encrypted with the key of this sequence number.
    pub const fn encrypted(said: u16, key_sequence: u8) -> Self {
        let toggle = key_sequence & 1 == 1;
        Self { key_sequence, version: Self::VERSION, is_encrypted: true, toggle, said }
    }

    /// The value as it goes over the wire.
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        let enable = if self.is_encrypted { Self::ENABLE } else { 0 };
        let toggle = if self.toggle { Self::TOGGLE } else { 0 };
        let [high, low] = (enable | toggle | self.said & Self::SAID).to_be_bytes();
        [self.key_sequence << 4 | self.version & 0x0f, high, low, 0]
    }

    /// Reads the value. The last byte is reserved, and ignored.
    pub const fn from_bytes(value: [u8; Self::LENGTH]) -> Self {
        let word = u16::from_be_bytes([value[1], value[2]]);
        Self {
            key_sequence: value[0] >> 4,
            version: value[0] & 0x0f,
            is_encrypted: word & Self::ENABLE != 0,
            toggle: word & Self::TOGGLE != 0,
            said: word & Self::SAID,
        }
    }
}

/// The downstream service element (MULPI section 6.2.6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownstreamService {
    /// Traffic priority, 0 to 7.
    pub priority: u8,
    /// The downstream service identifier, 20 bits.
    pub dsid: Option<u32>,
    /// The packet's place among those of its DSID. Only with a DSID.
    pub sequencing: Option<Sequencing>,
}

/// A packet's place among those of its DSID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequencing {
    /// Changes where numbering begins anew.
    pub change_count: bool,
    /// One more for each packet.
    pub sequence: u16,
}

impl DownstreamService {
    const DSID: u32 = 0x000f_ffff;
    const CHANGE_COUNT: u32 = 0x0010_0000;

    /// Bytes of the value: 1, 3 or 5.
    pub const fn value_length(&self) -> usize {
        match (self.dsid, self.sequencing) {
            (None, _) => 1,
            (Some(_), None) => 3,
            (Some(_), Some(_)) => 5,
        }
    }

    /// The value as it goes over the wire, of which [`value_length`](Self::value_length) bytes count.
    pub fn to_bytes(self) -> [u8; 5] {
        let change = self.sequencing.is_some_and(|sequencing| sequencing.change_count);
        let change = if change { Self::CHANGE_COUNT } else { 0 };
        let dsid = self.dsid.map_or(0, |dsid| dsid & Self::DSID | change);
        let [_, a, b, c] = (u32::from(self.priority & 7) << 21 | dsid).to_be_bytes();
        let [d, e] = self.sequencing.map_or(0, |sequencing| sequencing.sequence).to_be_bytes();
        [a, b, c, d, e]
    }

    /// Reads the value; `None` if no value is as long.
    pub fn from_bytes(value: &[u8]) -> Option<Self> {
        let priority = value.first()? >> 5;
        let word = |a: u8, b: u8, c: u8| u32::from_be_bytes([0, a, b, c]);
        match *value {
            [_] => Some(Self { priority, dsid: None, sequencing: None }),
            [a, b, c] => Some(Self { priority, dsid: Some(word(a, b, c) & Self::DSID), sequencing: None }),
            [a, b, c, d, e] => {
                let word = word(a, b, c);
                let sequence = u16::from_be_bytes([d, e]);
                let sequencing = Some(Sequencing { change_count: word & Self::CHANGE_COUNT != 0, sequence });
                Some(Self { priority, dsid: Some(word & Self::DSID), sequencing })
            }
            _ => None,
        }
    }
}
