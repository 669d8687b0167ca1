//! Lookups in plain Rust

use super::{FAN_KEYS, FIELD, FIRST_LINE, Line, NODE, ROOT_BITS, STRIDE_MASK, STRIDE_SHIFT};
use crate::NextHopId;

#[inline(always)]
pub(super) fn lookup(lines: &[Line], address: u128) -> NextHopId {
    let links = lines.as_flattened();
    // A link outside the memory does not occur; the answer would be a drop.
    let at = |index: usize| links.get(index).copied().unwrap_or(u32::from(NextHopId::NONE.stored()));
    let mut link = at((address >> (u128::BITS - ROOT_BITS)) as usize);
    let mut rest = address << ROOT_BITS;
    while link & NODE != 0 {
        let line = (link & FIRST_LINE) as usize;
        if link & FIELD != 0 {
            let stride = link >> STRIDE_SHIFT & STRIDE_MASK;
            link = at(line * size_of::<Line>() / size_of::<u32>() + (rest >> (u128::BITS - stride)) as usize);
            rest <<= stride;
        } else {
            let Some(fan) = lines.get(line) else { return NextHopId::NONE };
            let window = (rest >> 96) as u32;
            let before: usize = fan[..FAN_KEYS].iter().map(|&start| usize::from(start <= window)).sum();
            link = fan[FAN_KEYS + before];
            rest <<= 32;
        }
    }
    NextHopId::from_stored(link as u16)
}

/// One after the other: the processor looks ahead into the next
#[inline(always)]
pub(super) fn lookup_burst(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    for (address, answer) in addresses.iter().zip(answers) {
        *answer = lookup(lines, u128::from_be_bytes(*address));
    }
}

/// The same, compiled for processors with vectors of 32 bytes
///
/// # Safety
/// The processor must have what [`Kernel::X86V3`](crate::Kernel::X86V3) asks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_x86_v3(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    lookup_burst(lines, addresses, answers);
}
