//! Drivers of cards in a virtual machine, ours and DPDK's: each sends back what it receives.

use super::{Comparison, Lanes};
use crate::compare::setting::{Setting, Sides};

const BOUND: &str = "the emulator translates each of the program's instructions into some ten, and there is no vector unit: a packet costs what its instructions cost";
const BOUND_CARD: &str =
    "the emulator's own card, which takes a frame from the kernel and gives it back by a system call each";

/// Testpmd in the machine, whose driver looks at descriptors one by one; and with longer rings.
const PLAIN: (&str, &str) = ("testpmd in the machine", "testpmd");
const LONGER: (&str, &str) = ("testpmd in the machine, 1,024 descriptors", "testpmd-1024");
/// The same by vectors, which it does without mergeable buffers and use in order only.
const VECTORIZED: (&str, &str) = ("testpmd in the machine, vectorized", "testpmd-vectorized");

/// Bytes of frames without their check sequence.
const SHORT: u32 = 60;
const LONG: u32 = 1_514;

pub(super) const COMPARISONS: &[Comparison] = &[
    in_guest("pci-virtio", 1.2, BOUND, |setting| {
        setting.guest("virtio", SHORT, &[PLAIN, LONGER, VECTORIZED])
    }),
    in_guest("pci-virtio-1518", 1.2, BOUND, |setting| {
        setting.guest("virtio", LONG, &[PLAIN, LONGER, VECTORIZED])
    }),
    in_guest("pci-virtio-packed", 1.2, BOUND, |setting| {
        setting.guest("virtio-packed", SHORT, &[PLAIN, LONGER])
    }),
    in_guest("pci-virtio-packed-1518", 1.2, BOUND, |setting| {
        setting.guest("virtio-packed", LONG, &[PLAIN, LONGER])
    }),
    in_guest("pci-e1000e", 1.0, BOUND_CARD, |setting| setting.guest("e1000e", SHORT, &[PLAIN, LONGER])),
    in_guest("pci-igb", 1.0, BOUND_CARD, |setting| setting.guest("igb", SHORT, &[PLAIN, LONGER])),
];

/// Packets that go into a virtual machine and come back.
const fn in_guest(
    name: &'static str,
    promise: f64,
    bound: &'static str,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
) -> Comparison {
    Comparison { name, unit: "cycles/packet", promise, bound, lanes: Lanes::Fed, prepare }
}
