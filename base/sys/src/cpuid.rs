//! What the processor says about itself, on x86_64.

#[allow(
    unused_unsafe,
    reason = "CPUID became a safe function in Rust 1.93; the oldest version supported is before"
)]
mod instruction {
    use std::arch::x86_64::{__cpuid_count, CpuidResult};

    /// The registers of a leaf, or `None` if the processor doesn't have it.
    pub(crate) fn leaf(number: u32, part: u32) -> Option<CpuidResult> {
        // The first leaf of the basic (0), hypervisor (4000_0000h) and extended (8000_0000h) range holds the number
        // of the range's last leaf; some hypervisors leave it 0 and mean that their first leaf is all there is.
        let first = number & 0xc000_0000;
        // SAFETY: every x86_64 processor has the instruction; a leaf that doesn't exist gives meaningless numbers.
        let last = unsafe { __cpuid_count(first, 0) }.eax;
        if number > last && number != first {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { __cpuid_count(number, part) })
    }
}
pub(crate) use instruction::leaf;

/// One cache as leaf 4 (Intel) or 8000_001Dh (AMD) describes it; both have the same layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheLeaf {
    pub(crate) level: u8,
    /// 1 data, 2 instruction, 3 unified.
    pub(crate) kind: u32,
    pub(crate) ways: u32,
    pub(crate) line_bytes: u32,
    pub(crate) sets: u32,
    /// The largest number of logical processors that share it; rounded up to a power of two it says how many low
    /// bits of the APIC id they may differ in.
    pub(crate) sharers: u32,
}

impl CacheLeaf {
    /// Intel SDM volume 2, CPUID leaf 04H; AMD APM volume 3, Fn8000_001D. `None` ends the list.
    fn decode(eax: u32, ebx: u32, ecx: u32) -> Option<Self> {
        let kind = eax & 0x1f;
        if kind == 0 {
            return None;
        }
        let partitions = (ebx >> 12 & 0x3ff) + 1;
        Some(Self {
            level: (eax >> 5 & 0x7) as u8,
            kind,
            ways: (ebx >> 22) + 1,
            line_bytes: ((ebx & 0xfff) + 1) * partitions,
            sets: ecx.saturating_add(1),
            sharers: (eax >> 14 & 0xfff) + 1,
        })
    }

    pub(crate) fn size(&self) -> u64 {
        u64::from(self.ways) * u64::from(self.line_bytes) * u64::from(self.sets)
    }
}

/// The caches of the CPU that this runs on.
pub(crate) fn caches() -> Vec<CacheLeaf> {
    let list = |number: u32| -> Vec<CacheLeaf> {
        // No processor has more than a handful; the bound is against one whose list doesn't end.
        (0..16)
            .map_while(|part| leaf(number, part))
            .map_while(|registers| CacheLeaf::decode(registers.eax, registers.ebx, registers.ecx))
            .collect()
    };
    let intel = list(4);
    // Leaf 8000_001Dh is meaningful only with topology extensions: Fn8000_0001 ECX bit 22.
    let amd = leaf(0x8000_0001, 0).is_some_and(|registers| registers.ecx >> 22 & 1 == 1);
    if intel.is_empty() && amd { list(0x8000_001d) } else { intel }
}

/// The processor's maker in twelve letters, such as `GenuineIntel` or `AuthenticAMD` (leaf 0).
pub(crate) fn vendor() -> [u8; 12] {
    let mut letters = [0; 12];
    if let Some(registers) = leaf(0, 0) {
        let parts = [registers.ebx, registers.edx, registers.ecx];
        for (byte, letter) in letters.iter_mut().zip(parts.into_iter().flat_map(u32::to_le_bytes)) {
            *byte = letter;
        }
    }
    letters
}

/// The hypervisor's twelve-letter signature, if there is a hypervisor that says so (leaf 1 ECX bit 31).
pub(crate) fn hypervisor_signature() -> Option<String> {
    if leaf(1, 0)?.ecx >> 31 & 1 == 0 {
        return None;
    }
    let registers = leaf(0x4000_0000, 0)?;
    let letters: Vec<u8> =
        [registers.ebx, registers.ecx, registers.edx].into_iter().flat_map(u32::to_le_bytes).collect();
    let text = String::from_utf8_lossy(&letters);
    Some(text.trim_matches(|letter: char| letter == '\0' || letter == ' ').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_decoded() {
        // Skylake-SP L2: 1 MiB, 16 ways, 1024 sets, 64 byte lines, shared by two threads.
        let cache = CacheLeaf::decode(0x1c00_4143, 0x03c0_003f, 0x0000_03ff).unwrap();
        assert_eq!(cache, CacheLeaf { level: 2, kind: 3, ways: 16, line_bytes: 64, sets: 1024, sharers: 2 });
        assert_eq!(cache.size(), 1 << 20);
        // Two partitions of 32 bytes make a line of 64.
        let parts = CacheLeaf::decode(0x1c00_4143, 0x03c0_101f, 0x0000_03ff).unwrap();
        assert_eq!((parts.line_bytes, parts.size()), (64, 1 << 20));
        assert_eq!(CacheLeaf::decode(0, 0x03c0_003f, 0), None);
    }

    #[test]
    fn this_processor_answers() {
        assert!(leaf(0, 0).is_some());
        assert!(leaf(0x0fff_ffff, 0).is_none() && leaf(0x8fff_ffff, 0).is_none());
        for cache in caches() {
            assert!((1..=4).contains(&cache.level) && cache.line_bytes.is_power_of_two(), "{cache:?}");
        }
    }
}
