//! Memory for packet buffers: shareable between processes, on the largest pages that can be had.
//!
//! A [`Mapping`] is a memfd mapped `MAP_SHARED`, so that the same bytes can be AF_XDP UMEM, a memif region and
//! vhost-user memory. Every page is allocated before it can be used: what doesn't fit is an error at start, not a
//! page fault, a SIGBUS or the out-of-memory killer under traffic. The file is sealed against resizing, so a peer
//! that gets its descriptor can't pull pages away from under us (memfd_create(2), "File sealing").

#![cfg_attr(
    miri,
    allow(dead_code, unused_variables, reason = "Miri knows no memory files and no huge pages")
)]

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::huge_pages::{self, HugePagePool};
use crate::memory;
use crate::text::format_bytes;

mod address_space;
mod error;
mod file;
mod resident;
mod table_memory;

use address_space::{AddressRange, advise};
pub use error::MappingError;
pub(crate) use file::Refusal;
use file::{create_file, populate};
pub use table_memory::{TableEntry, TableMemory};

/// The large page of x86_64, and of Arm with 4 KiB base pages; every mapping is aligned to it.
pub const HUGE_2M_BYTES: usize = 2 << 20;
/// The largest page.
pub const HUGE_1G_BYTES: usize = 1 << 30;
/// The kernel's limit for the name of a memfd (`MFD_NAME_MAX_LEN`, mm/memfd.c).
const LONGEST_NAME: usize = 249;

/// The pages that a mapping got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageSize {
    /// Reserved pages of 1 GiB.
    Huge1G,
    /// Reserved pages of 2 MiB.
    Huge2M,
    /// Pages of 2 MiB that the kernel put together from ordinary memory, and may split again.
    Transparent,
    /// The base pages: 4 KiB on x86_64.
    Plain,
}

impl PageSize {
    /// Bytes that one entry of the translation cache (TLB) covers.
    pub fn bytes(self) -> usize {
        match self {
            Self::Huge1G => HUGE_1G_BYTES,
            Self::Huge2M | Self::Transparent => HUGE_2M_BYTES,
            Self::Plain => base_page_bytes(),
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Huge1G => f.write_str("1 GiB huge pages"),
            Self::Huge2M => f.write_str("2 MiB huge pages"),
            Self::Transparent => f.write_str("transparent huge pages"),
            Self::Plain => write!(f, "{} pages", format_bytes(base_page_bytes() as u64)),
        }
    }
}

/// The pages that a mapping should get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PagePreference {
    /// The largest that can be had and aren't larger than the mapping, then the next; the mapping says what it cost.
    #[default]
    Best,
    /// 1 GiB pages or an error.
    Huge1G,
    /// 2 MiB pages or an error.
    Huge2M,
    /// Transparent huge pages for all of it, or an error.
    Transparent,
    /// Base pages only: the baseline to measure against.
    Plain,
}

/// What to map.
#[derive(Debug, Clone)]
pub struct MappingRequest {
    /// What `/proc/PID/maps` and every error call it.
    pub name: String,
    /// Bytes; rounded up to whole pages.
    pub length: usize,
    /// Which pages.
    pub pages: PagePreference,
}

/// Shared memory, all of it resident, zeroed, aligned to at least 2 MiB. Unmapped when dropped; the file lives on as
/// long as someone has its descriptor.
///
/// The memory comes from the NUMA node that the creating thread runs on: pin it first. A process that is forked off does
/// not have it.
#[derive(Debug)]
pub struct Mapping {
    range: AddressRange,
    file: OwnedFd,
    page_size: PageSize,
    fallback: Option<String>,
}

/// Why one kind of page didn't work.
struct Shortfall {
    reason: String,
    remedy: String,
}

enum Attempt {
    /// The pages are there. The sentence says what is less than perfect about them.
    Done(AddressRange, OwnedFd, Option<Shortfall>),
    Short(Shortfall),
}

impl Mapping {
    /// Maps, allocates and zeroes the memory. That takes a few tenths of a second to a few seconds per GiB.
    ///
    /// # Errors
    /// [`MappingError::Unavailable`] with the remedy if demanded pages can't be had; [`PagePreference::Best`] fails
    /// only if not even plain pages can.
    pub fn new(request: &MappingRequest) -> Result<Self, MappingError> {
        let name = checked_name(&request.name)?;
        if request.length == 0 {
            return Err(MappingError::ZeroLength { name: request.name.clone() });
        }
        let mapping = match request.pages {
            PagePreference::Best => Self::best(request, &name),
            PagePreference::Huge1G => Self::exactly(PageSize::Huge1G, request, &name),
            PagePreference::Huge2M => Self::exactly(PageSize::Huge2M, request, &name),
            PagePreference::Transparent => Self::exactly(PageSize::Transparent, request, &name),
            PagePreference::Plain => Self::exactly(PageSize::Plain, request, &name),
        }?;
        // A child would share the memory: what it drops on its way out, it would drop for its parent.
        advise(&mapping.range, libc::MADV_DONTFORK)
            .map_err(|source| Refusal { call: "madvise(MADV_DONTFORK)", source }.into_error(request))?;
        Ok(mapping)
    }

    fn exactly(pages: PageSize, request: &MappingRequest, name: &CString) -> Result<Self, MappingError> {
        match attempt(pages, request, name)? {
            Attempt::Done(range, file, None) => Ok(Self { range, file, page_size: pages, fallback: None }),
            Attempt::Done(_, _, Some(Shortfall { reason, remedy }))
            | Attempt::Short(Shortfall { reason, remedy }) => Err(MappingError::Unavailable {
                name: request.name.clone(),
                pages,
                length: request.length,
                reason,
                remedy,
            }),
        }
    }

    fn best(request: &MappingRequest, name: &CString) -> Result<Self, MappingError> {
        let mut tried = Vec::new();
        let mut order = vec![PageSize::Huge2M, PageSize::Transparent, PageSize::Plain];
        if request.length >= HUGE_1G_BYTES {
            order.insert(0, PageSize::Huge1G);
        }
        for pages in order {
            match attempt(pages, request, name)? {
                Attempt::Done(range, file, imperfect) => {
                    tried.extend(
                        imperfect.map(|shortfall| tried_sentence(pages, "came out only in part", &shortfall)),
                    );
                    let fallback = (!tried.is_empty()).then(|| {
                        format!(
                            "{}: {}; so it is on {pages}: {}",
                            request.name,
                            tried.join("; "),
                            cost(pages)
                        )
                    });
                    return Ok(Self { range, file, page_size: pages, fallback });
                }
                Attempt::Short(shortfall) => tried.push(tried_sentence(pages, "can't be had", &shortfall)),
            }
        }
        Err(MappingError::Unavailable {
            name: request.name.clone(),
            pages: PageSize::Plain,
            length: request.length,
            reason: tried.join("; "),
            remedy: "ask for less memory, or free some".to_owned(),
        })
    }

    /// The first byte. Valid for [`length`](Self::length) bytes until the mapping is dropped. Whoever was given the
    /// file may write at any time, so no reference into memory shared with a peer may be kept.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.range.start()
    }

    /// Bytes mapped: what was asked for, rounded up to whole pages.
    pub fn length(&self) -> usize {
        self.range.length()
    }

    /// The pages that it is on.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// If better pages were tried in vain: one sentence with what was tried, why it failed, the remedy and the cost.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// The memory's file, to be mapped by another process or given to a driver. Its offset 0 is the first byte.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn tried_sentence(pages: PageSize, outcome: &str, shortfall: &Shortfall) -> String {
    format!("{pages} {outcome} ({}; remedy: {})", shortfall.reason, shortfall.remedy)
}

/// What falling back to these pages costs.
fn cost(pages: PageSize) -> &'static str {
    match pages {
        PageSize::Huge1G | PageSize::Huge2M => "more entries of the translation cache (TLB) are needed",
        PageSize::Transparent => {
            "as fast, but the kernel may split them when memory is short, and a device can't be given their \
             physical addresses"
        }
        PageSize::Plain => {
            "each page needs its own entry of the translation cache (TLB), so buffers spread over more than a few \
             MiB cost page walks"
        }
    }
}

fn checked_name(name: &str) -> Result<CString, MappingError> {
    let invalid = || MappingError::InvalidName { name: name.to_owned() };
    if name.len() > LONGEST_NAME {
        return Err(invalid());
    }
    CString::new(name).map_err(|_| invalid())
}

/// Tries one kind of page. An error means that no kind will work.
fn attempt(pages: PageSize, request: &MappingRequest, name: &CString) -> Result<Attempt, MappingError> {
    let too_large =
        |available| MappingError::TooLarge { name: request.name.clone(), length: request.length, available };
    let available = if cfg!(miri) { None } else { memory::available() };
    // Checked in advance because the kernel promises shared memory freely and kills someone when it has none left.
    // Reserved huge pages are counted apart: they aren't "available" memory.
    if let (PageSize::Plain | PageSize::Transparent, Some(available)) = (pages, available)
        && request.length as u64 > available
    {
        return Err(too_large(available));
    }
    let Some(length) = request.length.checked_next_multiple_of(pages.bytes()) else {
        return Err(too_large(available.unwrap_or(0)));
    };
    #[cfg(miri)]
    return interpreted_pages(length, request);
    #[cfg(not(miri))]
    match pages {
        PageSize::Huge1G | PageSize::Huge2M => reserved_pages(pages, length, request, name),
        PageSize::Transparent => transparent_pages(length, request, name),
        PageSize::Plain => plain_pages(length, request, name),
    }
}

/// For Miri, which knows no memory files and no huge pages.
#[cfg(miri)]
fn interpreted_pages(length: usize, request: &MappingRequest) -> Result<Attempt, MappingError> {
    let file = std::fs::File::open("/dev/null")
        .map_err(|source| Refusal { call: "open", source }.into_error(request))?;
    let range = AddressRange::allocated(length).map_err(|refusal| refusal.into_error(request))?;
    Ok(Attempt::Done(range, file.into(), None))
}

fn reserved_pages(
    pages: PageSize,
    length: usize,
    request: &MappingRequest,
    name: &CString,
) -> Result<Attempt, MappingError> {
    let page_bytes = pages.bytes() as u64;
    let needed = length as u64 / page_bytes;
    let Some(pool) = huge_pages::machine_pools().into_iter().find(|pool| pool.page_bytes == page_bytes)
    else {
        return Ok(Attempt::Short(Shortfall {
            reason: "the kernel has no such pages".to_owned(),
            remedy: "use a kernel and processor with huge pages of this size".to_owned(),
        }));
    };
    // MFD_HUGE_2MB and MFD_HUGE_1GB: the logarithm of the size in the upper bits (memfd_create(2)).
    let size_flag = page_bytes.trailing_zeros() << libc::MFD_HUGE_SHIFT;
    let shared = create_file(name, libc::MFD_HUGETLB | size_flag, length)
        // Without MAP_NORESERVE this reserves all the pages, or fails with ENOMEM, before the first is touched.
        .and_then(|file| Ok((AddressRange::map_huge(&file, length)?, file)))
        // A control group may still refuse a page that the pool has; this then says so (EFAULT) where a write would
        // raise SIGBUS.
        .and_then(|(range, file)| populate(&range, &file, pages.bytes()).map(|()| (range, file)));
    match shared {
        Ok((range, file)) => Ok(Attempt::Done(range, file, None)),
        Err(refusal) => match refusal.source.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSPC | libc::EFAULT | libc::EINVAL | libc::ENODEV | libc::EPERM) => {
                Ok(Attempt::Short(pool_shortfall(&pool, needed, &refusal)))
            }
            _ => Err(refusal.into_error(request)),
        },
    }
}

fn pool_shortfall(pool: &HugePagePool, needed: u64, refusal: &Refusal) -> Shortfall {
    if pool.obtainable() >= needed {
        Shortfall {
            reason: format!(
                "{} of the {needed} pages needed are free, but {} failed: {}",
                pool.obtainable(),
                refusal.call,
                refusal.source
            ),
            remedy: "check the control group's `hugetlb` limits and the NUMA node's own pool".to_owned(),
        }
    } else {
        Shortfall {
            reason: format!("{needed} needed, {} of the pool's {} free", pool.obtainable(), pool.total),
            remedy: format!(
                "{}, and more if something else wants some, too",
                huge_pages::reserve_command(pool.page_bytes, pool.total_for(needed))
            ),
        }
    }
}

fn transparent_pages(
    length: usize,
    request: &MappingRequest,
    name: &CString,
) -> Result<Attempt, MappingError> {
    let settings = huge_pages::transparent();
    let shared = settings.shared.as_deref().unwrap_or("missing");
    let refuse = |reason: String, remedy: &str| Shortfall { reason, remedy: remedy.to_owned() };
    match (settings.shared.as_deref(), settings.page_bytes) {
        (None, _) | (_, None) => {
            let remedy = "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE";
            return Ok(Attempt::Short(refuse("the kernel has none for shared memory".to_owned(), remedy)));
        }
        (Some(_), Some(bytes)) if bytes != HUGE_2M_BYTES as u64 => {
            let reason = format!("this kernel's are {}, not 2 MiB", format_bytes(bytes));
            return Ok(Attempt::Short(refuse(reason, "use a kernel with 4 KiB base pages")));
        }
        _ => {}
    }
    let outcome = create_file(name, 0, length)
        .and_then(|file| Ok((AddressRange::map_shared(&file, length, HUGE_2M_BYTES)?, file)))
        .and_then(|(range, file)| {
            // Needed where the setting is `advise`, harmless elsewhere; whether it worked is looked up below.
            let _ = advise(&range, libc::MADV_HUGEPAGE);
            if shared == "never" {
                // The kernel then doesn't choose huge pages by itself, but makes them when told (Linux 6.1, madvise(2),
                // MADV_COLLAPSE: "independent of any sysfs setting"), and faster while there is nothing to copy.
                let _ = advise(&range, MADV_COLLAPSE);
            }
            populate(&range, &file, base_page_bytes()).map(|()| (range, file))
        });
    let (range, file) = match outcome {
        Ok(mapped) => mapped,
        // There is no huge page to be had, or not enough memory at all: plain pages will show which.
        Err(refusal) if refusal.source.raw_os_error() == Some(libc::ENOMEM) => {
            let reason = format!("{} failed: {}", refusal.call, refusal.source);
            return Ok(Attempt::Short(refuse(reason, "`sysctl vm.compact_memory=1`, or free memory")));
        }
        Err(refusal) => return Err(refusal.into_error(request)),
    };
    let mut huge = resident::huge_bytes(&range);
    if huge != Some(length) {
        // What didn't come out huge at the first try, as with memory in fragments, may now: this compacts harder.
        let _ = advise(&range, MADV_COLLAPSE);
        huge = resident::huge_bytes(&range);
    }
    let huge = huge.unwrap_or(0);
    if huge == length {
        return Ok(Attempt::Done(range, file, None));
    }
    let shortfall = refuse(
        format!(
            "{} of {} came out huge with /sys/kernel/mm/transparent_hugepage/shmem_enabled at `{shared}`",
            format_bytes(huge as u64),
            format_bytes(length as u64)
        ),
        "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`, and if memory is fragmented `sysctl \
         vm.compact_memory=1`",
    );
    // Half of it or more on huge pages is worth keeping for whoever asked for the best.
    if huge >= length / 2 {
        Ok(Attempt::Done(range, file, Some(shortfall)))
    } else {
        Ok(Attempt::Short(shortfall))
    }
}

/// From Linux 6.1. The constant is missing where the C library is musl.
const MADV_COLLAPSE: libc::c_int = 25;

fn plain_pages(length: usize, request: &MappingRequest, name: &CString) -> Result<Attempt, MappingError> {
    create_file(name, 0, length)
        .and_then(|file| Ok((AddressRange::map_shared(&file, length, HUGE_2M_BYTES)?, file)))
        .and_then(|(range, file)| {
            // So that "plain" is plain where shmem_enabled is `always`. Refused by kernels without huge pages.
            let _ = advise(&range, libc::MADV_NOHUGEPAGE);
            populate(&range, &file, base_page_bytes()).map(|()| (range, file))
        })
        .map(|(range, file)| Attempt::Done(range, file, None))
        .map_err(|refusal| refusal.into_error(request))
}

/// Bytes of a base page.
pub(crate) fn base_page_bytes() -> usize {
    // SAFETY: only returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Linux always knows it; 4 KiB is the answer of the architectures that have one only.
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
mod tests;
