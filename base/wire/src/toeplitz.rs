//! The Toeplitz hash, by which network cards spread flows over queues (receive-side scaling, RSS).
//!
//! Each one among the bits of the input adds, without carries, the 32 bits of the key that begin at its place. What the 256 values
//! of a byte add is computed beforehand for every byte of the input, so that a hash takes one lookup a byte. A burst of them is a
//! product of bits for processors that have such a thing ([`warmlane_sys::bit_matrix`]).
//!
//! The input is what Microsoft's specification says ("RSS hashing types"): source address, destination address and, for TCP and UDP,
//! source port and destination port, all as they are on the wire.

use std::net::IpAddr;

use warmlane_sys::bit_matrix::{self, BitMatrix};

use crate::Flow;

/// Bytes of a key: enough for the longest input.
pub const KEY_LENGTH: usize = 40;

/// Bytes of the longest input: two IPv6 addresses and two ports.
pub const LONGEST_INPUT: usize = bit_matrix::LONGEST_INPUT;

/// The key of Microsoft's verification suite, which most cards start with.
pub const MICROSOFT_KEY: [u8; KEY_LENGTH] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key that repeats after 16 bits, so that both directions of a flow have one hash (Woo and Park, "Scalable TCP session monitoring
/// with symmetric receive-side scaling", KAIST 2012). It spreads worse: the hash has only 16 bits of its own.
pub const SYMMETRIC_KEY: [u8; KEY_LENGTH] = {
    let mut key = [0x6d; KEY_LENGTH];
    let mut at = 1;
    while at < KEY_LENGTH {
        key[at] = 0x5a;
        at += 2;
    }
    key
};

/// A key, made ready to hash with.
///
/// ```
/// use warmlane_wire::toeplitz::{MICROSOFT_KEY, SYMMETRIC_KEY, Toeplitz};
///
/// let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
/// // From 66.9.149.187:2794 to 161.142.100.80:1766.
/// assert_eq!(toeplitz.hash(&[66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6]), 0x51cc_c178);
///
/// let symmetric = Toeplitz::new(&SYMMETRIC_KEY);
/// assert_eq!(symmetric.hash(&[66, 9, 149, 187, 161, 142, 100, 80]), symmetric.hash(&[161, 142, 100, 80, 66, 9, 149, 187]));
/// ```
#[derive(Clone)]
pub struct Toeplitz {
    /// By place and value of a byte.
    tables: Box<[[u32; 256]; LONGEST_INPUT]>,
    /// The same for many inputs at once.
    matrix: BitMatrix,
}

impl Toeplitz {
    /// Computes the tables, 36 KiB, of which inputs without IPv6 use the first 12.
    #[expect(clippy::large_stack_arrays, reason = "36 KiB, once for a key, not for a packet")]
    pub fn new(key: &[u8; KEY_LENGTH]) -> Self {
        let mut tables = Box::new([[0; 256]; LONGEST_INPUT]);
        for (place, table) in tables.iter_mut().enumerate() {
            // The key from this byte on: what its top bit adds is on top, that of the next bit one further down.
            let window = key[place..].iter().take(5).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
            for (value, entry) in table.iter_mut().enumerate() {
                let bits = (0..8).filter(|bit| value & (0x80 >> bit) != 0);
                *entry = bits.fold(0, |hash, bit| hash ^ (window >> (8 - bit)) as u32);
            }
        }
        let matrix = BitMatrix::new(|place, bit| tables[place][1 << bit]);
        Self { tables, matrix }
    }

    /// The hash of an input, whose first [`LONGEST_INPUT`] bytes count: `[u8; 8]` or `[u8; 32]` for addresses, `[u8; 12]` or
    /// `[u8; 36]` with ports.
    #[inline(always)]
    pub fn hash<const BYTES: usize>(&self, input: &[u8; BYTES]) -> u32 {
        self.tables.iter().zip(input).fold(0, |hash, (table, byte)| hash ^ table[usize::from(*byte)])
    }

    /// The hashes of as many inputs as there is room for.
    #[inline]
    pub fn hash_burst<const BYTES: usize>(&self, inputs: &[[u8; BYTES]], hashes: &mut [u32]) {
        let done = self.matrix.multiply(inputs, hashes);
        for (hash, input) in hashes.iter_mut().zip(inputs).skip(done) {
            *hash = self.hash(input);
        }
    }

    /// The hash of a flow, with its ports if it has any: as a card hashes that is told to look at those of TCP, UDP and SCTP.
    pub fn flow(&self, flow: &Flow) -> u32 {
        self.hash(&Self::input(flow))
    }

    /// What of a flow is hashed. Behind it are bytes of zero, which add nothing, so that it need not be told how long it is.
    #[inline]
    pub fn input(flow: &Flow) -> [u8; LONGEST_INPUT] {
        let mut input = [0; LONGEST_INPUT];
        let addresses = match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                input[..4].copy_from_slice(&source.octets());
                input[4..8].copy_from_slice(&destination.octets());
                8
            }
            (source, destination) => {
                for (to, address) in input.as_chunks_mut::<16>().0.iter_mut().zip([source, destination]) {
                    *to = match address {
                        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                        IpAddr::V6(address) => address.octets(),
                    };
                }
                32
            }
        };
        let (source, destination) = flow.ports.unwrap_or_default();
        input[addresses..addresses + 2].copy_from_slice(&source.to_be_bytes());
        input[addresses + 2..addresses + 4].copy_from_slice(&destination.to_be_bytes());
        input
    }
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IpProtocol;
    use proptest::prelude::*;
    use warmlane_sys::random::Random;

    /// Microsoft's definition, bit for bit: the key moves one to the left for every bit of the input.
    fn reference(key: &[u8; KEY_LENGTH], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let mut hash = 0;
        for at in (0..input.len() * 8).filter(|at| bit(input, *at) == 1) {
            hash ^= (at..at + 32).fold(0_u32, |window, at| window << 1 | u32::from(bit(key, at)));
        }
        hash
    }

    /// As one by one, and no more of them than there is space for.
    fn same_hashes<const BYTES: usize>(toeplitz: &Toeplitz, inputs: &[[u8; LONGEST_INPUT]], space: usize) {
        let inputs: Vec<[u8; BYTES]> = inputs.iter().map(|input| *input.first_chunk().unwrap()).collect();
        let mut hashes = vec![7; space];
        toeplitz.hash_burst(&inputs, &mut hashes);
        let expected = inputs.iter().map(|input| toeplitz.hash(input)).chain(std::iter::repeat(7));
        assert_eq!(hashes, expected.take(space).collect::<Vec<_>>(), "{BYTES} bytes");
    }

    #[test]
    fn microsofts_verification_suite() {
        // Destination, source, hash of the addresses, hash with the ports.
        let vectors = [
            ("161.142.100.80", 1_766, "66.9.149.187", 2_794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4_739, "199.92.111.2", 14_230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38_024, "24.19.198.95", 12_898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2_217, "38.27.205.30", 48_228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1_303, "153.39.163.191", 44_251, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:3::1", 1_766, "3ffe:2501:200:1fff::7", 2_794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4_739, "3ffe:501:8::260:97ff:fe40:efab", 14_230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38_024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44_251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for (destination, destination_port, source, source_port, addresses, ports) in vectors {
            let flow = Flow {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                protocol: IpProtocol::TCP,
                ports: None,
            };
            assert_eq!(toeplitz.flow(&flow), addresses, "{flow:?}");
            let flow = Flow { ports: Some((source_port, destination_port)), ..flow };
            assert_eq!(toeplitz.flow(&flow), ports, "{flow:?}");
        }
    }

    proptest! {
        #[test]
        fn any_key_and_input_as_defined(
            key: [u8; 32], more: [u8; 8], input: [u8; 32], ports: [u8; 4],
        ) {
            let key: [u8; KEY_LENGTH] = *[&key[..], &more].concat().first_chunk().unwrap();
            let input: [u8; LONGEST_INPUT] = *[&input[..], &ports].concat().first_chunk().unwrap();
            let toeplitz = Toeplitz::new(&key);
            prop_assert_eq!(toeplitz.hash(&input), reference(&key, &input));
            let short: &[u8; 12] = input.first_chunk().unwrap();
            let mut hashes = [1; 3];
            toeplitz.hash_burst(&[*short, [0; 12]], &mut hashes);
            prop_assert_eq!(hashes, [reference(&key, short), 0, 1]);
        }

        #[test]
        fn bursts_have_the_same_hashes(key: [u8; 32], more: [u8; 8], seed: u64, count in 0_usize..70, space in 0_usize..70) {
            let key: [u8; KEY_LENGTH] = *[&key[..], &more].concat().first_chunk().unwrap();
            let toeplitz = Toeplitz::new(&key);
            let mut random = Random::new(seed);
            let inputs: Vec<[u8; LONGEST_INPUT]> =
                (0..count).map(|_| std::array::from_fn(|_| random.bits() as u8)).collect();
            same_hashes::<8>(&toeplitz, &inputs, space);
            same_hashes::<12>(&toeplitz, &inputs, space);
            same_hashes::<20>(&toeplitz, &inputs, space);
            same_hashes::<32>(&toeplitz, &inputs, space);
            same_hashes::<36>(&toeplitz, &inputs, space);
        }

        #[test]
        fn the_symmetric_key_is(source: u128, destination: u128, ports: Option<(u16, u16)>, ipv6: bool) {
            let address = |bits: u128| -> IpAddr {
                if ipv6 { std::net::Ipv6Addr::from_bits(bits).into() } else { std::net::Ipv4Addr::from_bits(bits as u32).into() }
            };
            let flow = Flow { source: address(source), destination: address(destination), protocol: IpProtocol::UDP, ports };
            let toeplitz = Toeplitz::new(&SYMMETRIC_KEY);
            prop_assert_eq!(toeplitz.flow(&flow), toeplitz.flow(&flow.reversed()));
        }
    }
}
