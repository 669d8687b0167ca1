//! How the views of headers read numbers in network byte order.

/// Accessors of a view that wraps its header's bytes: `name: type at offset`, offsets in bytes as in the RFC's diagram.
macro_rules! big_endian_fields {
    ($($(#[$meta:meta])* $name:ident: $type:ident at $offset:literal;)+) => {
        $(
            $(#[$meta])*
            #[inline]
            pub const fn $name(self) -> $type {
                $crate::fields::$type(self.0, $offset)
            }
        )+
    };
}

pub(crate) use big_endian_fields;

#[inline(always)]
pub(crate) const fn u16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

#[inline(always)]
pub(crate) const fn u32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
