//! Copies between a caller's array and a ring's memory.
//!
//! What a caller is about to push it has often only just written, element by element, so that the stores are still
//! on their way to the cache. A load that spans two such stores cannot be served from the store buffer: it waits
//! until both are in the cache, behind every earlier store, and among those are stores to lines that have to come
//! from the other core ("Store forwarding", Intel 64 and IA-32 Architectures Optimization Reference Manual, 3.6.5; AMD
//! "Software Optimization Guide" for Zen 4, 2.12). `memcpy` loads 16 bytes or more at once, and one stall per burst
//! is more than the rest of the push. So elements of 4 and 8 bytes are loaded one by one here, gathered in a
//! register, and stored 16 bytes at once, which keeps the number of stores low. On the way out the stores are the
//! other core's, and long done, or were made 16 bytes at once on this one: there the loads are wide too.
//!
//! Other sizes, elements that need not be aligned to their size, and other architectures until somebody measures them take
//! what `memcpy` does.

/// Copies `count` elements that this thread may just have written.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_in<T: Copy>(from: *const T, to: *mut T, count: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise is passed on; the casts keep the size of an element and its alignment.
    unsafe {
        match (size_of::<T>(), align_of::<T>()) {
            (8, 8) => return x86::gather_8(from.cast(), to.cast(), count),
            (4, 4) => return x86::gather_4(from.cast(), to.cast(), count),
            _ => {}
        }
    }
    // SAFETY: the caller's promise is passed on.
    unsafe { to.copy_from_nonoverlapping(from, count) };
}

/// Copies `count` elements that another core wrote, or this one some time ago.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_out<T: Copy>(from: *const T, to: *mut T, count: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise is passed on; the casts keep the size of an element and its alignment.
    unsafe {
        match (size_of::<T>(), align_of::<T>()) {
            (8, 8) => return x86::wide::<u64>(from.cast(), to.cast(), count),
            (4, 4) => return x86::wide::<u32>(from.cast(), to.cast(), count),
            _ => {}
        }
    }
    // SAFETY: the caller's promise is passed on.
    unsafe { to.copy_from_nonoverlapping(from, count) };
}

/// With instructions that every x86_64 has. In assembly, because the compiler would merge the loads or call `memcpy`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    /// Elements may have padding, which must not be looked at.
    type Bits<T> = MaybeUninit<T>;

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn gather_8(mut from: *const Bits<u64>, mut to: *mut Bits<u64>, mut count: usize) {
        while count >= 8 {
            // SAFETY: 8 elements are left on both sides. Nothing but them and the registers named is touched.
            unsafe {
                asm!(
                    "movq {a}, [{from}]",
                    "movq {b}, [{from} + 16]",
                    "movq {c}, [{from} + 32]",
                    "movq {d}, [{from} + 48]",
                    "movhps {a}, [{from} + 8]",
                    "movhps {b}, [{from} + 24]",
                    "movhps {c}, [{from} + 40]",
                    "movhps {d}, [{from} + 56]",
                    "movups [{to}], {a}",
                    "movups [{to} + 16], {b}",
                    "movups [{to} + 32], {c}",
                    "movups [{to} + 48], {d}",
                    from = in(reg) from,
                    to = in(reg) to,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
                (from, to, count) = (from.add(8), to.add(8), count - 8);
            }
        }
        // SAFETY: `count` elements are left on both sides.
        unsafe { one_by_one(from, to, count) };
    }

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn gather_4(mut from: *const Bits<u32>, mut to: *mut Bits<u32>, mut count: usize) {
        while count >= 8 {
            // SAFETY: 8 elements are left on both sides. Nothing but them and the registers named is touched.
            unsafe {
                asm!(
                    "movd {a}, [{from}]",
                    "movd {b}, [{from} + 4]",
                    "movd {c}, [{from} + 8]",
                    "movd {d}, [{from} + 12]",
                    "movd {e}, [{from} + 16]",
                    "movd {f}, [{from} + 20]",
                    "movd {g}, [{from} + 24]",
                    "movd {h}, [{from} + 28]",
                    "punpckldq {a}, {b}",
                    "punpckldq {c}, {d}",
                    "punpckldq {e}, {f}",
                    "punpckldq {g}, {h}",
                    "punpcklqdq {a}, {c}",
                    "punpcklqdq {e}, {g}",
                    "movups [{to}], {a}",
                    "movups [{to} + 16], {e}",
                    from = in(reg) from,
                    to = in(reg) to,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
                (from, to, count) = (from.add(8), to.add(8), count - 8);
            }
        }
        // SAFETY: `count` elements are left on both sides.
        unsafe { one_by_one(from, to, count) };
    }

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn wide<T>(mut from: *const Bits<T>, mut to: *mut Bits<T>, mut count: usize) {
        let step = 64 / size_of::<T>();
        while count >= step {
            // SAFETY: 64 bytes are left on both sides. Nothing but them and the registers named is touched.
            unsafe {
                asm!(
                    "movups {a}, [{from}]",
                    "movups {b}, [{from} + 16]",
                    "movups {c}, [{from} + 32]",
                    "movups {d}, [{from} + 48]",
                    "movups [{to}], {a}",
                    "movups [{to} + 16], {b}",
                    "movups [{to} + 32], {c}",
                    "movups [{to} + 48], {d}",
                    from = in(reg) from,
                    to = in(reg) to,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
                (from, to, count) = (from.add(step), to.add(step), count - step);
            }
        }
        // SAFETY: `count` elements are left on both sides.
        unsafe { one_by_one(from, to, count) };
    }

    /// The loads are volatile so that the compiler neither merges them nor calls `memcpy`.
    ///
    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`]; aligned.
    #[inline(always)]
    unsafe fn one_by_one<T>(from: *const Bits<T>, to: *mut Bits<T>, count: usize) {
        for index in 0..count {
            // SAFETY: the caller promised that many.
            unsafe { to.add(index).write(from.add(index).read_volatile()) };
        }
    }
}
