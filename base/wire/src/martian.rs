//! Addresses that a router doesn't forward from or to (RFC 1812 section 5.3.7, RFC 6890).
//!
//! Documentation and benchmark networks (192.0.2.0/24, 2001:db8::/32, ..) are *not* martian here, though RFC 6890
//! marks some of them "not forwardable": Linux forwards them, laboratories use them, and filtering them is a
//! matter of the operator's configuration. Private networks (RFC 1918) and fc00::/7 are forwarded as well.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether no packet from `address` may be forwarded: 0.0.0.0/8, 127.0.0.0/8, multicast 224.0.0.0/4, reserved
/// 240.0.0.0/4 with the broadcast address (RFC 1812 sections 4.2.2.11 and 5.3.7).
#[inline]
pub const fn ipv4_source_is_martian(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    // 0 wraps to 255, so one comparison takes 0 and 224 to 255.
    first.wrapping_sub(1) >= 223 || first == 127
}

/// Whether no packet to `address` may be forwarded: 0.0.0.0/8, 127.0.0.0/8, reserved 240.0.0.0/4 with the
/// broadcast address. Multicast is no martian, but isn't for a unicast table either.
#[inline]
pub const fn ipv4_destination_is_martian(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    let multicast = first & 0xf0 == 224;
    (first.wrapping_sub(1) >= 223 && !multicast) || first == 127
}

/// Whether `address` has a meaning on one link only: 169.254.0.0/16 (RFC 3927 section 7) and the local control
/// block of multicast, 224.0.0.0/24 (RFC 5771 section 4). No packet from or to it is forwarded.
#[inline]
pub const fn ipv4_stays_on_link(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    bits >> 16 == 0xa9fe || bits >> 8 == 0x00e0_0000
}

/// Whether no packet from `address` may be forwarded: the unspecified address, loopback, multicast, IPv4-mapped
/// ::ffff:0:0/96 (RFC 4291 sections 2.5.2, 2.5.3, 2.7; RFC 6890 table 20).
#[inline]
pub const fn ipv6_source_is_martian(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    bits >> 120 == 0xff || is_special(bits)
}

/// Whether no packet to `address` may be forwarded: the unspecified address, loopback, IPv4-mapped ::ffff:0:0/96,
/// and multicast of reserved scope ff00::/16 (RFC 4291 section 2.7).
#[inline]
pub const fn ipv6_destination_is_martian(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    // The flags (bits 20 to 23 of the address' top 32) don't change the scope.
    (bits >> 112) & 0xff0f == 0xff00 || is_special(bits)
}

/// Whether `address` has a meaning on one link only: fe80::/10, and multicast of interface-local and link-local
/// scope (RFC 4291 sections 2.5.6 and 2.7, RFC 4007 section 9). No packet from or to it is forwarded.
#[inline]
pub const fn ipv6_stays_on_link(address: Ipv6Addr) -> bool {
    let top = address.to_bits() >> 112;
    let multicast_scope = top & 0xff0f;
    top & 0xffc0 == 0xfe80 || multicast_scope == 0xff01 || multicast_scope == 0xff02
}

/// `::`, `::1` and ::ffff:0:0/96.
#[inline(always)]
const fn is_special(bits: u128) -> bool {
    bits >> 1 == 0 || bits >> 32 == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells for each address whether it is martian as source, martian as destination, and bound to its link.
    fn v4(text: &str) -> (bool, bool, bool) {
        let address = text.parse().unwrap();
        (ipv4_source_is_martian(address), ipv4_destination_is_martian(address), ipv4_stays_on_link(address))
    }

    fn v6(text: &str) -> (bool, bool, bool) {
        let address = text.parse().unwrap();
        (ipv6_source_is_martian(address), ipv6_destination_is_martian(address), ipv6_stays_on_link(address))
    }

    #[test]
    fn ipv4_at_the_edges_of_each_block() {
        for (address, expected) in [
            ("0.0.0.0", (true, true, false)),
            ("0.255.255.255", (true, true, false)),
            ("1.0.0.0", (false, false, false)),
            ("126.255.255.255", (false, false, false)),
            ("127.0.0.0", (true, true, false)),
            ("127.255.255.255", (true, true, false)),
            ("128.0.0.0", (false, false, false)),
            ("169.253.255.255", (false, false, false)),
            ("169.254.0.0", (false, false, true)),
            ("169.254.255.255", (false, false, true)),
            ("169.255.0.0", (false, false, false)),
            ("192.0.2.1", (false, false, false)),
            ("192.168.1.1", (false, false, false)),
            ("223.255.255.255", (false, false, false)),
            ("224.0.0.0", (true, false, true)),
            ("224.0.0.255", (true, false, true)),
            ("224.0.1.0", (true, false, false)),
            ("239.255.255.255", (true, false, false)),
            ("240.0.0.0", (true, true, false)),
            ("255.255.255.255", (true, true, false)),
        ] {
            assert_eq!(v4(address), expected, "{address}");
        }
    }

    #[test]
    fn ipv6_at_the_edges_of_each_block() {
        for (address, expected) in [
            ("::", (true, true, false)),
            ("::1", (true, true, false)),
            ("::2", (false, false, false)),
            ("::fffe:ffff:ffff", (false, false, false)),
            ("::ffff:0:0", (true, true, false)),
            ("::ffff:192.0.2.1", (true, true, false)),
            ("::ffff:255.255.255.255", (true, true, false)),
            ("::1:0:0:0", (false, false, false)),
            ("64:ff9b::192.0.2.1", (false, false, false)),
            ("2001:db8::1", (false, false, false)),
            ("fd00::1", (false, false, false)),
            ("fe7f:ffff::", (false, false, false)),
            ("fe80::1", (false, false, true)),
            ("febf::1", (false, false, true)),
            ("fec0::1", (false, false, false)),
            ("feff::1", (false, false, false)),
            ("ff00::1", (true, true, false)),
            ("ff70::1", (true, true, false)),
            ("ff01::1", (true, false, true)),
            ("ff02::1", (true, false, true)),
            ("ff12::1", (true, false, true)),
            ("ff05::2", (true, false, false)),
            ("ff0e::101", (true, false, false)),
        ] {
            assert_eq!(v6(address), expected, "{address}");
        }
    }
}
