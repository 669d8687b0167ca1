//! The messages of the control socket, version 2.0 of the protocol (FD.io VPP, `extras/libmemif/src/memif.h`).
//!
//! Each is a packet of 128 bytes on a `SOCK_SEQPACKET` socket, in the byte order of the machine and without padding
//! between fields; some carry a descriptor. Both ends are on one machine.

/// Bytes of each message.
pub const MESSAGE_BYTES: usize = 128;

/// The version that is spoken: 2.0.
pub const VERSION: u16 = 0x0200;

/// Bytes for a name, and for a secret, terminating zero included.
pub const NAME_BYTES: usize = 32;
/// See [`NAME_BYTES`].
pub const SECRET_BYTES: usize = 24;
const REASON_BYTES: usize = 96;

/// What packets are: whole Ethernet frames. The other modes carry IP packets.
pub const MODE_ETHERNET: u8 = 0;

const RING_TO_SERVER: u16 = 1;

/// Which way packets go through a ring. The client has the memory of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What a server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The program.
    pub name: String,
    /// The lowest version that it speaks.
    pub lowest_version: u16,
    /// The highest version that it speaks.
    pub highest_version: u16,
    /// The highest index of a region.
    pub last_region: u16,
    /// The highest index of a ring to the server.
    pub last_ring_to_server: u16,
    /// The highest index of a ring to the client.
    pub last_ring_to_client: u16,
    /// The binary logarithm of the longest ring.
    pub longest_ring: u8,
}

/// Who a client is, and what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The version that it speaks.
    pub version: u16,
    /// Which of the interfaces behind the socket it wants.
    pub id: u32,
    /// What packets are.
    pub mode: u8,
    /// The word that it was told, padded with zeros; all zeros if none.
    pub secret: [u8; SECRET_BYTES],
    /// The program.
    pub name: String,
}

/// A ring in one of the regions; with the descriptor of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Which way its packets go.
    pub direction: Direction,
    /// Its index among the rings of its direction.
    pub index: u16,
    /// The region that it lies in.
    pub region: u16,
    /// Where in that region.
    pub offset: u32,
    /// The binary logarithm of its length.
    pub log2_size: u8,
    /// Bytes in front of each packet that only some implementations know of.
    pub private_header: u16,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The server has taken what came last.
    Ack,
    /// The server, at first.
    Hello(Hello),
    /// The client, then.
    Init(Init),
    /// Memory; with the descriptor of its file.
    AddRegion {
        /// Its index.
        index: u16,
        /// Its bytes.
        size: u64,
    },
    /// A ring.
    AddRing(AddRing),
    /// The client has said all.
    Connect {
        /// The client's interface.
        interface: String,
    },
    /// The server has mapped all.
    Connected {
        /// The server's interface.
        interface: String,
    },
    /// It's over.
    Disconnect {
        /// A number.
        code: u32,
        /// Why.
        reason: String,
    },
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// There is no such type.
    #[error("a message of the unknown type {0}")]
    UnknownType(u16),
}

/// Writes fields one behind the other.
struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    length: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.length..self.length + field.len()].copy_from_slice(field);
        self.length += field.len();
        self
    }

    /// A text in a field of `size` bytes: cut, if need be, and followed by at least one zero.
    fn text(&mut self, text: &str, size: usize) -> &mut Self {
        let end = (0..size).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.bytes[self.length..self.length + end].copy_from_slice(&text.as_bytes()[..end]);
        self.length += size;
        self
    }
}

/// Reads fields one behind the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (now, later) = self.0.split_at(N.min(self.0.len()));
        field[..now.len()].copy_from_slice(now);
        self.0 = later;
        field
    }

    fn number(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// A text up to its first zero. It goes to people: what isn't to be printed is replaced.
    fn text<const N: usize>(&mut self) -> String {
        let bytes: [u8; N] = self.take();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(N);
        let text = String::from_utf8_lossy(&bytes[..end]);
        text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
    }
}

impl Message {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut writer = Writer { bytes: [0; MESSAGE_BYTES], length: 0 };
        let kind: u16 = match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect { .. } => 6,
            Self::Connected { .. } => 7,
            Self::Disconnect { .. } => 8,
        };
        writer.put(&kind.to_ne_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(hello) => {
                writer.text(&hello.name, NAME_BYTES);
                for number in [
                    hello.lowest_version,
                    hello.highest_version,
                    hello.last_region,
                    hello.last_ring_to_server,
                    hello.last_ring_to_client,
                ] {
                    writer.put(&number.to_ne_bytes());
                }
                writer.put(&[hello.longest_ring]);
            }
            Self::Init(init) => {
                writer.put(&init.version.to_ne_bytes()).put(&init.id.to_ne_bytes()).put(&[init.mode]);
                writer.put(&init.secret).text(&init.name, NAME_BYTES);
            }
            Self::AddRegion { index, size } => {
                writer.put(&index.to_ne_bytes()).put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => {
                let flags = if ring.direction == Direction::ToServer { RING_TO_SERVER } else { 0 };
                for number in [flags, ring.index, ring.region] {
                    writer.put(&number.to_ne_bytes());
                }
                writer.put(&ring.offset.to_ne_bytes()).put(&[ring.log2_size]);
                writer.put(&ring.private_header.to_ne_bytes());
            }
            Self::Connect { interface } | Self::Connected { interface } => {
                writer.text(interface, NAME_BYTES);
            }
            Self::Disconnect { code, reason } => {
                writer.put(&code.to_ne_bytes()).text(reason, REASON_BYTES);
            }
        }
        writer.bytes
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, ProtocolError> {
        let mut reader = Reader(bytes);
        Ok(match reader.number() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: reader.text::<NAME_BYTES>(),
                lowest_version: reader.number(),
                highest_version: reader.number(),
                last_region: reader.number(),
                last_ring_to_server: reader.number(),
                last_ring_to_client: reader.number(),
                longest_ring: reader.take::<1>()[0],
            }),
            3 => Self::Init(Init {
                version: reader.number(),
                id: u32::from_ne_bytes(reader.take()),
                mode: reader.take::<1>()[0],
                secret: reader.take(),
                name: reader.text::<NAME_BYTES>(),
            }),
            4 => Self::AddRegion { index: reader.number(), size: u64::from_ne_bytes(reader.take()) },
            5 => {
                let flags = reader.number();
                let direction =
                    if flags & RING_TO_SERVER != 0 { Direction::ToServer } else { Direction::ToClient };
                Self::AddRing(AddRing {
                    direction,
                    index: reader.number(),
                    region: reader.number(),
                    offset: u32::from_ne_bytes(reader.take()),
                    log2_size: reader.take::<1>()[0],
                    private_header: reader.number(),
                })
            }
            6 => Self::Connect { interface: reader.text::<NAME_BYTES>() },
            7 => Self::Connected { interface: reader.text::<NAME_BYTES>() },
            8 => Self::Disconnect {
                code: u32::from_ne_bytes(reader.take()),
                reason: reader.text::<REASON_BYTES>(),
            },
            other => return Err(ProtocolError::UnknownType(other)),
        })
    }
}

/// A secret as it is sent; `None` if it is too long for that.
pub fn padded_secret(secret: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut padded = [0; SECRET_BYTES];
    // The last byte stays zero, as other implementations have it.
    padded[..SECRET_BYTES - 1].get_mut(..secret.len())?.copy_from_slice(secret.as_bytes());
    Some(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let hello = Hello {
            name: "a program".to_owned(),
            lowest_version: 0x0102,
            highest_version: 0x0304,
            last_region: 5,
            last_ring_to_server: 6,
            last_ring_to_client: 7,
            longest_ring: 8,
        };
        let secret = padded_secret("word").unwrap();
        let init = Init { version: VERSION, id: 0x0506_0708, mode: 2, secret, name: "me".to_owned() };
        let ring = AddRing {
            direction: Direction::ToServer,
            index: 1,
            region: 2,
            offset: 0x0304_0506,
            log2_size: 7,
            private_header: 8,
        };
        vec![
            Message::Ack,
            Message::Hello(hello),
            Message::Init(init),
            Message::AddRegion { index: 3, size: 0x0102_0304_0506_0708 },
            Message::AddRing(ring.clone()),
            Message::AddRing(AddRing { direction: Direction::ToClient, ..ring }),
            Message::Connect { interface: "client0".to_owned() },
            Message::Connected { interface: "server0".to_owned() },
            Message::Disconnect { code: 9, reason: "because".to_owned() },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for message in all() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    /// Places of fields, as other implementations have them.
    #[test]
    fn fields_are_where_they_should_be() {
        let bytes: Vec<_> = all().iter().map(Message::encode).collect();
        assert_eq!(bytes[1][..4], [2, 0, b'a', b' ']);
        assert_eq!(bytes[1][34..45], [2, 1, 4, 3, 5, 0, 6, 0, 7, 0, 8]);
        assert_eq!(bytes[2][2..13], [0, 2, 8, 7, 6, 5, 2, b'w', b'o', b'r', b'd']);
        assert_eq!(bytes[2][33..36], [b'm', b'e', 0]);
        assert_eq!(bytes[3][2..12], [3, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[4][2..15], [1, 0, 1, 0, 2, 0, 6, 5, 4, 3, 7, 8, 0]);
        assert_eq!(bytes[8][2..8], [9, 0, 0, 0, b'b', b'e']);
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        let message = Message::Connect { interface: "ü".repeat(40) };
        let decoded = Message::decode(&message.encode()).unwrap();
        assert_eq!(decoded, Message::Connect { interface: "ü".repeat(15) });
        let mut bytes = Message::Disconnect { code: 0, reason: String::new() }.encode();
        bytes[6..].fill(b'\x1b');
        let Ok(Message::Disconnect { reason, .. }) = Message::decode(&bytes) else { panic!("no disconnect") };
        assert!(reason.chars().all(|char| char == char::REPLACEMENT_CHARACTER) && !reason.is_empty());
        assert_eq!(Message::decode(&[0; MESSAGE_BYTES]), Err(ProtocolError::UnknownType(0)));
        assert_eq!(padded_secret(&"x".repeat(24)), None);
    }
}
