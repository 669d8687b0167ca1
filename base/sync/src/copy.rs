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

    /// Copies blocks of so many elements, and what is left one by one: loads and gathers with instructions that name the address `from` and
    /// registers, and stores registers at these places of the block.
    macro_rules! copy_blocks {
        (
            ($from:ident, $to:ident, $count:ident), $elements:expr,
            [$($load:literal,)+] in $($register:ident)+,
            $($stored:ident at $place:literal),+
        ) => {
            while $count >= $elements {
                // SAFETY: a block is left on both sides. Nothing but it and the registers named is touched.
                unsafe {
                    asm!(
                        $($load,)+
                        $(concat!("movups [{to} + ", $place, "], {", stringify!($stored), "}"),)+
                        from = in(reg) $from,
                        to = in(reg) $to,
                        $($register = out(xmm_reg) _,)+
                        options(nostack, preserves_flags)
                    );
                    ($from, $to, $count) = ($from.add($elements), $to.add($elements), $count - $elements);
                }
            }
            // SAFETY: `count` elements are left on both sides.
            unsafe { one_by_one($from, $to, $count) };
        };
    }

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn gather_8(mut from: *const Bits<u64>, mut to: *mut Bits<u64>, mut count: usize) {
        copy_blocks!(
            (from, to, count), 8,
            [
                "movq {a}, [{from}]",
                "movq {b}, [{from} + 16]",
                "movq {c}, [{from} + 32]",
                "movq {d}, [{from} + 48]",
                "movhps {a}, [{from} + 8]",
                "movhps {b}, [{from} + 24]",
                "movhps {c}, [{from} + 40]",
                "movhps {d}, [{from} + 56]",
            ] in a b c d,
            a at 0, b at 16, c at 32, d at 48
        );
    }

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn gather_4(mut from: *const Bits<u32>, mut to: *mut Bits<u32>, mut count: usize) {
        copy_blocks!(
            (from, to, count), 8,
            [
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
            ] in a b c d e f g h,
            a at 0, e at 16
        );
    }

    /// # Safety
    /// As for [`std::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(super) unsafe fn wide<T>(mut from: *const Bits<T>, mut to: *mut Bits<T>, mut count: usize) {
        copy_blocks!(
            (from, to, count), 64 / size_of::<T>(),
            [
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
            ] in a b c d,
            a at 0, b at 16, c at 32, d at 48
        );
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
