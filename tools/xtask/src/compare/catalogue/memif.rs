//! memif between two processes, ours and DPDK's, in all pairs.

use super::{Comparison, Lanes};
use crate::compare::setting::{Pair, Setting, Sides};

/// The header's line and a quarter of a line of descriptors go to the other CPU, and come back to be filled again.
const LINES: f64 = 2.0 * 1.25;

const SHORT: u32 = 60;
const LONG: u32 = 1_514;

const BOUND: &str = "of each packet the line of its headers and 16 bytes of descriptor move to the other CPU and back; streamed, when \
                     neither side waits for the other, a line takes 5 to 7 cycles on a Zen 4 EPYC";
const BOUND_LONG: &str = "as for memif; and 23 more lines of each packet that was copied into the ring: the receiver reads them from \
                          the sender's cache";
const BOUND_ZERO_COPY: &str = "the line of a packet's metadata and that of its headers go to the other CPU, and its descriptor; another buffer comes back in it, whose metadata are \
     rewritten on either side";

const LINK: &str = "memif";

const OURS: Pair = Pair { link: LINK, sender: "warmlane", receiver: "warmlane" };
const OURS_WITHOUT_COPIES: Pair =
    Pair { link: LINK, sender: "warmlane-zero-copy", receiver: "warmlane-zero-copy" };
const WE_SEND: Pair = Pair { link: LINK, sender: "warmlane", receiver: "testpmd" };
const WE_RECEIVE: Pair = Pair { link: LINK, sender: "testpmd", receiver: "warmlane" };
const TESTPMD: (&str, Pair) =
    ("testpmd to testpmd", Pair { link: LINK, sender: "testpmd", receiver: "testpmd" });
const COPYING: (&str, Pair) = ("warmlane with copies", OURS);

pub(super) const COMPARISONS: &[Comparison] = &[
    between("memif", 1.5, BOUND, |setting| setting.pair(OURS, SHORT, &[TESTPMD])),
    between("memif-1518", 1.5, BOUND_LONG, |setting| setting.pair(OURS, LONG, &[TESTPMD])),
    between("memif-mixed", 1.2, BOUND, |setting| setting.pair(WE_SEND, SHORT, &[TESTPMD])),
    between("memif-mixed-1518", 1.2, BOUND_LONG, |setting| setting.pair(WE_SEND, LONG, &[TESTPMD])),
    between("memif-mixed-receive", 1.2, BOUND, |setting| setting.pair(WE_RECEIVE, SHORT, &[TESTPMD])),
    between("memif-mixed-receive-1518", 1.2, BOUND_LONG, |setting| {
        setting.pair(WE_RECEIVE, LONG, &[TESTPMD])
    }),
    between("memif-zero-copy", 3.0, BOUND_ZERO_COPY, |setting| {
        setting.pair(OURS_WITHOUT_COPIES, LONG, &[COPYING])
    }),
];

/// Packets that go from one process to another.
pub(super) const fn between(
    name: &'static str,
    promise: f64,
    bound: &'static str,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    Comparison { name, unit: "cycles/packet", promise, bound, lanes: Lanes::Two { lines: LINES }, prepare }
}
