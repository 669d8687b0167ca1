//! Rings of virtio between two processes, ours and DPDK's, in all pairs: by vhost-user one of them is the device, the other the driver.

use super::Comparison;
use super::memif::between;
use crate::compare::setting::Pair;

const SHORT: u32 = 60;
const LONG: u32 = 1_514;

const BOUND: &str = "of each packet the line of its headers, with the header of virtio in front, and 16 bytes of descriptor and 10 of index entries move to \
                     the other CPU and back; streamed, when neither side waits for the other, a line takes 5 to 7 cycles on a Zen 4 EPYC";
const BOUND_LONG: &str = "as for vhost; and 23 more lines of each packet that was copied: the reader fetches them from the writer's cache";
const BOUND_ROUND: &str = "twice that of vhost: each packet goes to the guest's program and back";

const BOUND_ROUND_LONG: &str = "as for pvp; and twice 23 more lines of each packet that was copied";

/// Programs on either side of a link.
const fn pair(link: &'static str, sender: &'static str, receiver: &'static str) -> Pair {
    Pair { link, sender, receiver }
}

const OURS: &str = "warmlane";
const THEIRS: &str = "testpmd";
const VECTORIZED: &str = "testpmd-vectorized";
/// With rings as long as ours.
const LONGER: &str = "testpmd-1024";

/// Both of theirs, over the same link.
const fn theirs(link: &'static str) -> (&'static str, Pair) {
    ("testpmd to testpmd", pair(link, THEIRS, THEIRS))
}

/// Theirs whose driver looks at descriptors by vectors, which it does without mergeable buffers only. Which of the two is faster depends on the machine.
const fn vectorized(link: &'static str) -> (&'static str, Pair) {
    ("testpmd to testpmd, vectorized", pair(link, VECTORIZED, VECTORIZED))
}

/// Theirs with longer rings: the buffers of short ones stay in the other CPU's cache, from where long packets are fetched more slowly than from the
/// cache that both share.
const fn longer(link: &'static str) -> (&'static str, Pair) {
    ("testpmd to testpmd, 1,024 descriptors", pair(link, LONGER, LONGER))
}

/// A row for each size of frames: ours or a mixed pair against theirs.
macro_rules! row {
    ($name:literal, $promise:literal, $bound:expr, $link:literal, $sender:expr, $receiver:expr, $bytes:expr) => {
        between($name, $promise, $bound, |setting| {
            let others = [theirs($link), vectorized($link), longer($link)];
            setting.pair(pair($link, $sender, $receiver), $bytes, &others)
        })
    };
}

pub(super) const COMPARISONS: &[Comparison] = &[
    row!("vhost", 1.5, BOUND, "vhost", OURS, OURS, SHORT),
    row!("vhost-1518", 1.5, BOUND_LONG, "vhost", OURS, OURS, LONG),
    row!("vhost-packed", 1.5, BOUND, "vhost-packed", OURS, OURS, SHORT),
    row!("vhost-packed-1518", 1.5, BOUND_LONG, "vhost-packed", OURS, OURS, LONG),
    row!("virtio", 1.5, BOUND, "virtio", OURS, OURS, SHORT),
    row!("virtio-1518", 1.5, BOUND_LONG, "virtio", OURS, OURS, LONG),
    row!("virtio-packed", 1.5, BOUND, "virtio-packed", OURS, OURS, SHORT),
    row!("virtio-packed-1518", 1.5, BOUND_LONG, "virtio-packed", OURS, OURS, LONG),
    row!("vhost-mixed", 1.2, BOUND, "vhost", THEIRS, OURS, SHORT),
    row!("vhost-mixed-1518", 1.2, BOUND_LONG, "vhost", THEIRS, OURS, LONG),
    row!("vhost-mixed-send", 1.2, BOUND, "virtio", OURS, THEIRS, SHORT),
    row!("virtio-mixed", 1.2, BOUND, "virtio", THEIRS, OURS, SHORT),
    row!("virtio-mixed-1518", 1.2, BOUND_LONG, "virtio", THEIRS, OURS, LONG),
    row!("virtio-mixed-send", 1.2, BOUND, "vhost", OURS, THEIRS, SHORT),
    row!("vhost-packed-mixed", 1.2, BOUND, "vhost-packed", THEIRS, OURS, SHORT),
    row!("vhost-packed-mixed-1518", 1.2, BOUND_LONG, "vhost-packed", THEIRS, OURS, LONG),
    row!("virtio-packed-mixed", 1.2, BOUND, "virtio-packed", THEIRS, OURS, SHORT),
    row!("virtio-packed-mixed-1518", 1.2, BOUND_LONG, "virtio-packed", THEIRS, OURS, LONG),
    row!("pvp", 1.5, BOUND_ROUND, "pvp", OURS, OURS, SHORT),
    row!("pvp-1518", 1.5, BOUND_ROUND_LONG, "pvp", OURS, OURS, LONG),
    row!("pvp-packed", 1.5, BOUND_ROUND, "pvp-packed", OURS, OURS, SHORT),
    row!("pvp-mixed", 1.2, BOUND_ROUND, "pvp", THEIRS, OURS, SHORT),
    row!("pvp-packed-mixed", 1.2, BOUND_ROUND, "pvp-packed", THEIRS, OURS, SHORT),
];
