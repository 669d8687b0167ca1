//! Hints that a cache line is about to be used.
//!
//! A prefetch of any address, mapped or not, is defined to do nothing worse than be ignored: it raises no fault
//! (Intel SDM volume 2, PREFETCHh and PREFETCHW; Arm ARM, PRFM), and it reads no value into the program.
//! Hence these functions are safe, even for a raw pointer that points nowhere.

/// Asks for the first cache line of `value`, to be read soon.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(value: &T) {
    prefetch_read_at(std::ptr::from_ref(value).cast());
}

/// Asks for the first cache line of `value` in a state that can be written at once: the line is taken away from
/// other cores' caches already now.
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(value: &T) {
    prefetch_write_at(std::ptr::from_ref(value).cast());
}

/// Asks for the cache line at `address`, to be read soon. Any address will do; one that isn't mapped is ignored.
#[inline(always)]
#[cfg_attr(
    all(target_arch = "aarch64", not(miri)),
    expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "a prefetch reads and writes nothing that the program sees"
    )
)]
pub fn prefetch_read_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHT0 is part of SSE, which every x86_64 processor has, and never faults (see the module).
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint of the base instruction set that never faults and changes no register or flag.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nomem, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for the cache line at `address`, to be written soon. Any address will do; one that isn't mapped is ignored.
#[inline(always)]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "a prefetch reads and writes nothing that the program sees"
    )
)]
pub fn prefetch_write_at(address: *const u8) {
    // The intrinsic with the write hint compiles to PREFETCHT0 unless the whole program is built for processors
    // with PREFETCHW; so the instruction is written here. Intel processors that lack it run it as a no-op.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHW never faults (see the module) and changes no register or flag.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nomem, nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint of the base instruction set that never faults and changes no register or flag.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nomem, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_faults_and_no_value_changes() {
        for address in [0_usize, 1, 0xdead_beef_f00d, 0x8000_0000_0000_0000, usize::MAX] {
            prefetch_read_at(std::ptr::without_provenance(address));
            prefetch_write_at(std::ptr::without_provenance(address));
        }
        let values = [1_u64, 2, 3];
        prefetch_read(&values);
        prefetch_write(&values);
        prefetch_read("text");
        assert_eq!(values, [1, 2, 3]);
    }
}
