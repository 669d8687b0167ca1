//! Which pages a pool would get on this machine, as it is now.

use serde::Serialize;
use warmlane::sys::huge_pages::{self, HugePagePool, TransparentHugePages};
use warmlane::sys::memory;
use warmlane::sys::pages::{HUGE_1G_BYTES, HUGE_2M_BYTES, PageSize};

/// What a mapping would come out as. It is not tried: that would take the memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Forecast {
    /// The pages' name.
    pub(super) pages: String,
    /// Bytes that one of them covers.
    pub(super) page_bytes: usize,
    /// How many the pool takes.
    pub(super) page_count: usize,
    /// What to do for better ones.
    pub(super) remedy: Option<String>,
    /// How many bytes of memory are available, if that is too little for the pool, so that there would be none.
    pub(super) only_available_bytes: Option<u64>,
}

pub(super) fn forecast(length: usize) -> Forecast {
    of(length, &huge_pages::machine_pools(), &huge_pages::transparent(), memory::available())
}

/// The same order that [`Mapping`](warmlane::sys::pages::Mapping) tries.
fn of(
    length: usize,
    pools: &[HugePagePool],
    transparent: &TransparentHugePages,
    available: Option<u64>,
) -> Forecast {
    let pool = |bytes: usize| pools.iter().find(|pool| pool.page_bytes == bytes as u64);
    let obtainable = |bytes: usize| pool(bytes).map_or(0, HugePagePool::obtainable);
    let needed = |bytes: usize| length.div_ceil(bytes) as u64;
    // Shared memory, which pools are made of, has its own setting. Where that is `never`, pools collapse their pages
    // themselves (Linux 6.1); `deny` refuses that too.
    let merged = transparent.shared.as_deref().is_some_and(|setting| setting != "deny");
    let pages = if length >= HUGE_1G_BYTES && obtainable(HUGE_1G_BYTES) >= needed(HUGE_1G_BYTES) {
        PageSize::Huge1G
    } else if obtainable(HUGE_2M_BYTES) >= needed(HUGE_2M_BYTES) {
        PageSize::Huge2M
    } else if merged {
        PageSize::Transparent
    } else {
        PageSize::Plain
    };
    // Huge pages that are reserved are not of that memory.
    let reserved = matches!(pages, PageSize::Huge1G | PageSize::Huge2M);
    let only_available_bytes = available.filter(|&available| !reserved && available < length as u64);
    let remedy = match pool(HUGE_2M_BYTES) {
        Some(pool) if !reserved && only_available_bytes.is_none() => {
            let total = pool.total_for(needed(HUGE_2M_BYTES));
            Some(huge_pages::reserve_command(HUGE_2M_BYTES as u64, total))
        }
        _ => None,
    };
    let page_bytes = pages.bytes();
    let page_count = length.div_ceil(page_bytes);
    Forecast { pages: pages.to_string(), page_bytes, page_count, remedy, only_available_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(page_bytes: usize, total: u64, free: u64) -> HugePagePool {
        HugePagePool { page_bytes: page_bytes as u64, total, free, reserved: 0 }
    }

    fn transparent(shared: &str) -> TransparentHugePages {
        TransparentHugePages { private: None, shared: Some(shared.to_owned()), page_bytes: None }
    }

    #[test]
    fn the_largest_pages_that_suffice() {
        let pools = [pool(HUGE_2M_BYTES, 64, 20), pool(HUGE_1G_BYTES, 1, 1)];
        let pages = |length| of(length, &pools, &transparent("advise"), None);
        assert_eq!((&*pages(40 << 20).pages, pages(40 << 20).page_count), ("2 MiB huge pages", 20));
        assert_eq!(pages(1 << 30).pages, "1 GiB huge pages");
        // 21 pages are one too many.
        let short = pages((40 << 20) + 1);
        assert_eq!(short.pages, "transparent huge pages");
        assert!(short.remedy.unwrap().contains("65"));
        assert_eq!(of(8 << 20, &[], &transparent("never"), None).pages, "transparent huge pages");
    }

    #[test]
    fn plain_pages_are_what_is_left() {
        let plain = of(8 << 20, &[], &transparent("deny"), None);
        assert_eq!(plain.page_count, (8 << 20) / plain.page_bytes);
        assert_eq!((plain.pages.ends_with(" pages"), plain.remedy), (true, None));
    }
    #[test]
    fn what_does_not_fit_is_said() {
        let pools = [pool(HUGE_2M_BYTES, 64, 20)];
        let short = |length| {
            let forecast = of(length, &pools, &transparent("advise"), Some(64 << 20));
            (forecast.only_available_bytes, forecast.remedy.is_some())
        };
        assert_eq!(short(64 << 20), (None, true));
        assert_eq!(short(65 << 20), (Some(64 << 20), false));
        // Of huge pages that are reserved.
        assert_eq!(short(40 << 20), (None, false));
    }
}
