//! Huge pages for both sides, or for neither.

use std::fs;

use warmlane_sys::huge_pages::{self, HugePagePool};

const SIZE: u64 = 2 << 20;
const CONTROL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// What the sides will get. Pages that were added for the comparison are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    enough: bool,
    /// Why a comparison wouldn't be fair, if so.
    pub(crate) unfair: Option<String>,
    /// The pool's size before we changed it.
    before: Option<u64>,
}

impl Pages {
    /// Sees to it that `bytes` are free in huge pages of 2 MiB, if this process may.
    pub(crate) fn provide(bytes: u64) -> Self {
        let needed = bytes.div_ceil(SIZE);
        let found = pool();
        if found.obtainable() >= needed {
            return Self { enough: true, unfair: None, before: None };
        }
        let total = found.total_for(needed);
        // The kernel adds as many as it can find, and tells no error if those are fewer.
        let written = fs::write(CONTROL, total.to_string()).is_ok();
        let now = pool();
        let before = (written && now.total != found.total).then_some(found.total);
        let enough = now.obtainable() >= needed;
        let unfair = (!enough && now.obtainable() > 0).then(|| {
            format!(
                "{} huge pages are free, enough for one side only: {}, or 0 for none on both sides",
                now.obtainable(),
                huge_pages::reserve_command(SIZE, total)
            )
        });
        if !enough && unfair.is_none() {
            eprintln!(
                "xtask: no huge pages, both sides run on normal ones; better: {}",
                huge_pages::reserve_command(SIZE, total)
            );
        }
        Self { enough, unfair, before }
    }

    /// Whether the sides have huge pages.
    pub(crate) fn huge(&self) -> bool {
        self.enough
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = fs::write(CONTROL, before.to_string())
        {
            eprintln!("xtask: cannot give the huge pages back ({error}): {before} were in {CONTROL} before");
        }
    }
}

fn pool() -> HugePagePool {
    huge_pages::machine_pools().into_iter().find(|pool| pool.page_bytes == SIZE).unwrap_or(HugePagePool {
        page_bytes: SIZE,
        total: 0,
        free: 0,
        reserved: 0,
    })
}
