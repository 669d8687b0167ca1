//! A full Internet routing table that ships with the crate: every prefix announced at one time, without next hops.
//!
//! Benchmarks and demonstrations need a table that looks like the real one, and not every machine has a BGP session.
//! The two files under `data/` are made by `examples/pack_table.rs`; source and licence stand in `data/README.md`.
//!
//! Format of a file: a zlib stream (RFC 1950, so it ends in a check sum) of
//! - the number of prefixes, 32 bits, little endian;
//! - one byte for each prefix: its length in bits;
//! - one number for each prefix, 7 bits a byte, low bits first, high bit set when more follow: how far its address is
//!   behind that of the prefix before it. The unit is the size of the prefix itself, and the address before is rounded
//!   down to that size.
//!
//! Prefixes stand in the order of their addresses, then their lengths. Lengths apart from distances make both columns
//! repetitive, which is what deflate lives on: about four bits a prefix are left.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use thiserror::Error;
use warmlane_table::{Address, Ipv4Prefix, Ipv6Prefix, Prefix};

static IPV4: &[u8] = include_bytes!("../../data/ipv4.table");
static IPV6: &[u8] = include_bytes!("../../data/ipv6.table");

/// More bytes than this make no routing table: 16 million prefixes of 20 bytes each.
const MAXIMUM_UNPACKED: u64 = 320 << 20;

/// Why packed prefixes could not be unpacked. The embedded tables give none of these; files of other origin may.
#[derive(Debug, Error)]
pub enum FullTableError {
    /// The zlib stream is damaged.
    #[error("packed prefix table is damaged: {0}; make it again with the pack_table example")]
    Compression(#[from] std::io::Error),
    /// The data ends inside a prefix.
    #[error(
        "packed prefix table ends at prefix {index} of {count}; make it again with the pack_table example"
    )]
    Truncated {
        /// Number of the prefix that is not complete, from zero.
        index: usize,
        /// How many prefixes the table claims to have.
        count: usize,
    },
    /// A prefix is longer than an address, lies beyond the last address, or doesn't come after the one before it.
    #[error(
        "prefix {index} of the packed table has length {length} and distance {distance}, which leads out of \
             the address space or backwards; make the table again with the pack_table example"
    )]
    Prefix {
        /// Number of the prefix, from zero.
        index: usize,
        /// Its length in bits.
        length: u8,
        /// The distance that was read.
        distance: u128,
    },
    /// Bytes are left over after the last prefix.
    #[error(
        "packed prefix table has {count} bytes after its last prefix; make it again with the pack_table example"
    )]
    Surplus {
        /// How many.
        count: usize,
    },
}

/// All IPv4 prefixes of the embedded table (901,899), sorted by address, then length.
///
/// # Errors
/// [`FullTableError`] only if the file compiled in is damaged.
pub fn ipv4() -> Result<Vec<Ipv4Prefix>, FullTableError> {
    unpack_ipv4(IPV4)
}

/// All IPv6 prefixes of the embedded table (160,147), sorted by address, then length.
///
/// # Errors
/// [`FullTableError`] only if the file compiled in is damaged.
pub fn ipv6() -> Result<Vec<Ipv6Prefix>, FullTableError> {
    unpack_ipv6(IPV6)
}

/// Unpacks what [`pack`] made of IPv4 prefixes.
///
/// # Errors
/// [`FullTableError`] for bytes that [`pack`] doesn't make.
pub fn unpack_ipv4(packed: &[u8]) -> Result<Vec<Ipv4Prefix>, FullTableError> {
    unpack(packed, |address| u32::try_from(address).ok())
}

/// Unpacks what [`pack`] made of IPv6 prefixes.
///
/// # Errors
/// [`FullTableError`] for bytes that [`pack`] doesn't make.
pub fn unpack_ipv6(packed: &[u8]) -> Result<Vec<Ipv6Prefix>, FullTableError> {
    unpack(packed, Some)
}

/// Packs prefixes in the format described above, after sorting them and taking out doubles.
///
/// # Errors
/// None in practice: the compressor writes to memory.
pub fn pack<A: Address + Into<u128>>(mut prefixes: Vec<Prefix<A>>) -> Result<Vec<u8>, std::io::Error> {
    prefixes.sort_unstable();
    prefixes.dedup();
    let mut plain = (prefixes.len() as u32).to_le_bytes().to_vec();
    plain.extend(prefixes.iter().map(Prefix::length));
    let mut before = 0_u128;
    for prefix in &prefixes {
        let shift = u32::from(A::BITS - prefix.length());
        let first: u128 = prefix.first().into();
        // Only ::/0 shifts by all bits; its distance is zero.
        let mut distance = first.checked_shr(shift).unwrap_or(0) - before.checked_shr(shift).unwrap_or(0);
        while distance >= 0x80 {
            plain.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        plain.push(distance as u8);
        before = first;
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain)?;
    encoder.finish()
}

fn unpack<A: Address>(
    packed: &[u8],
    narrow: impl Fn(u128) -> Option<A>,
) -> Result<Vec<Prefix<A>>, FullTableError> {
    let mut plain = Vec::new();
    ZlibDecoder::new(packed).take(MAXIMUM_UNPACKED).read_to_end(&mut plain)?;

    let Some((count, rest)) = plain.split_first_chunk::<4>() else {
        return Err(FullTableError::Truncated { index: 0, count: 0 });
    };
    let count = u32::from_le_bytes(*count) as usize;
    let Some((lengths, mut distances)) = rest.split_at_checked(count) else {
        return Err(FullTableError::Truncated { index: 0, count });
    };

    let mut prefixes: Vec<Prefix<A>> = Vec::with_capacity(count);
    let mut before = 0_u128;
    for (index, &length) in lengths.iter().enumerate() {
        let distance = take_number(&mut distances).ok_or(FullTableError::Truncated { index, count })?;
        let prefix = address_at::<A>(before, length, distance)
            .and_then(|address| Some((address, Prefix::containing(narrow(address)?, length))))
            .filter(|(_, prefix)| prefixes.last().is_none_or(|last| last < prefix));
        let Some((address, prefix)) = prefix else {
            return Err(FullTableError::Prefix { index, length, distance });
        };
        prefixes.push(prefix);
        before = address;
    }
    if distances.is_empty() { Ok(prefixes) } else { Err(FullTableError::Surplus { count: distances.len() }) }
}

/// The address `distance` prefixes of this length behind `before`, if there is one.
fn address_at<A: Address>(before: u128, length: u8, distance: u128) -> Option<u128> {
    let shift = u32::from(A::BITS.checked_sub(length)?);
    let number = before.checked_shr(shift).unwrap_or(0).checked_add(distance)?;
    if number == 0 {
        return Some(0);
    }
    // The number must survive the way there and back: no bit may fall off the top.
    let address = number.checked_shl(shift)?;
    (address >> shift == number).then_some(address)
}

/// Takes one number of up to 128 bits off the front.
fn take_number(bytes: &mut &[u8]) -> Option<u128> {
    let mut number = 0_u128;
    for shift in (0..128).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u128::from(byte & 0x7f);
        if (part << shift) >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// FNV-1a, 64 bits, over the prefixes as text, a line each.
    fn digest<A: Address>(prefixes: &[Prefix<A>]) -> u64 {
        let lines = prefixes.iter().map(|prefix| format!("{prefix}\n"));
        lines.fold(0xcbf2_9ce4_8422_2325, |hash, line| {
            line.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        })
    }

    #[test]
    fn the_embedded_tables_are_what_was_packed() {
        let (v4, v6) = (ipv4().unwrap(), ipv6().unwrap());
        assert_eq!((v4.len(), v6.len()), (901_899, 160_147));
        assert!(v4.is_sorted_by(|a, b| a < b) && v6.is_sorted_by(|a, b| a < b));
        // Computed from the plain text by another program.
        assert_eq!((digest(&v4), digest(&v6)), (0x46ce_c03a_3a59_dafc, 0xd429_1c57_a6a8_8e6f));
        assert_eq!((v4[0].to_string(), v6[0].to_string()), ("1.0.0.0/24".into(), "2001:4:112::/48".into()));
    }

    #[test]
    fn damage_is_told() {
        let prefixes: Vec<Ipv4Prefix> =
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16"].iter().map(|text| text.parse().unwrap()).collect();
        let packed = pack(prefixes.clone()).unwrap();
        assert_eq!(unpack_ipv4(&packed).unwrap(), prefixes);
        assert!(matches!(unpack_ipv4(&packed[..8]), Err(FullTableError::Compression(_))));

        let zlib = |plain: &[u8]| {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        };
        let fails = |plain: &[u8]| unpack_ipv4(&zlib(plain)).unwrap_err().to_string();
        assert!(fails(&[1, 0, 0]).contains("ends at prefix 0"));
        assert!(fails(&[2, 0, 0, 0, 8]).contains("ends at prefix 0 of 2"));
        assert!(fails(&[2, 0, 0, 0, 8, 8, 1]).contains("ends at prefix 1 of 2"));
        assert!(fails(&[1, 0, 0, 0, 33, 1]).contains("length 33"));
        assert!(fails(&[1, 0, 0, 0, 8, 0x80, 2]).contains("distance 256"));
        assert!(fails(&[2, 0, 0, 0, 8, 8, 1, 0]).contains("backwards"));
        assert!(fails(&[1, 0, 0, 0, 8, 1, 1]).contains("1 bytes after"));
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_out(addresses: Vec<(u128, u8)>) {
            let mut wide: Vec<Ipv6Prefix> =
                addresses.iter().map(|&(address, length)| Prefix::containing(address, length % 129)).collect();
            let mut narrow: Vec<Ipv4Prefix> =
                addresses.iter().map(|&(address, length)| Prefix::containing(address as u32, length % 33)).collect();
            prop_assert_eq!(unpack_ipv6(&pack(wide.clone()).unwrap()).unwrap(), { wide.sort(); wide.dedup(); wide });
            prop_assert_eq!(unpack_ipv4(&pack(narrow.clone()).unwrap()).unwrap(), { narrow.sort(); narrow.dedup(); narrow });
        }

        #[test]
        fn any_bytes_are_prefixes_or_an_error(plain: Vec<u8>) {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&plain).unwrap();
            let packed = encoder.finish().unwrap();
            let _ = (unpack_ipv4(&packed), unpack_ipv6(&packed), unpack_ipv4(&plain));
        }
    }
}
