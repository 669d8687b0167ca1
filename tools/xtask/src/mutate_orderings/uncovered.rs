//! Files with orderings that `mutate-orderings` does not weaken, and why.

/// A file below the repository's root, and what stands in the way.
pub(super) const UNCOVERED: &[(&str, &str)] = &[
    (
        "base/sys/src/barrier.rs",
        "a fence for the compiler; the barrier itself is the kernel's, which loom can't run",
    ),
    (
        "base/sys/src/device_order.rs",
        "the other side is a device, which loom can't run; tests look at the instructions that come of it",
    ),
    (
        "core/mem/src/doorbell.rs",
        "they publish an event in std's OnceLock, which loom can't see; that no signal gets lost is up to the barriers, which its model has",
    ),
    (
        "core/mem/src/primitive.rs",
        "what loom runs in place of the kernel's barriers and events: part of the models",
    ),
    ("core/mem/src/register.rs", KERNEL_OBJECTS),
    ("core/mem/src/shared_packet.rs", KERNEL_OBJECTS),
    ("core/table/src/ipv4/avx512.rs", VECTORS),
    ("core/table/src/ipv4/build.rs", VECTORS),
    ("core/table/src/ipv4/hops.rs", VECTORS),
    ("core/table/src/ipv4/portable.rs", VECTORS),
    ("core/table/src/ipv6/node.rs", VECTORS),
    ("drivers/common/src/peer/lost_memory.rs", SIGNAL),
    ("drivers/kernel/src/ring.rs", KERNEL),
    ("drivers/memif/src/link.rs", COUNTERS),
    ("drivers/memif/src/offer.rs", PROCESS),
    ("drivers/memif/src/ring.rs", PROCESS),
    (
        "drivers/pci/src/intel/model.rs",
        "the card of the driver's tests, which takes the place of what loom can't run",
    ),
    (
        "drivers/pci/src/igb/null_card.rs",
        "the card it plays runs on the lane's own thread: nothing goes on beside it",
    ),
    ("drivers/pci/src/intel/look.rs", CARD),
    ("drivers/pci/src/intel/receive.rs", CARD),
    ("drivers/pci/src/intel/transmit.rs", CARD),
    ("drivers/virtio/src/connection/control.rs", COUNTERS),
    ("drivers/virtio/src/log.rs", PROCESS),
    ("drivers/virtio/src/queue/device.rs", PROCESS),
    ("drivers/virtio/src/queue/driver/packed.rs", PROCESS),
    ("drivers/virtio/src/queue/driver/split.rs", PROCESS),
    (
        "drivers/virtio/src/queue/inflight.rs",
        "who reads it comes after this process was killed; tests kill one",
    ),
    ("drivers/virtio/src/ring/packed.rs", PROCESS),
    ("drivers/virtio/src/ring/split.rs", PROCESS),
    ("drivers/xdp/src/ring.rs", KERNEL),
    ("functions/forward/src/control/live.rs", COUNTERS),
    ("functions/gen/src/datapath/orders.rs", COUNTERS),
    ("functions/router/src/control/follow.rs", "the other side of waker.rs: see there"),
    (
        "functions/router/src/datapath/waker.rs",
        "one flag and a poll(2), which loom can't model: the socket would have to be one of loom's",
    ),
];

const KERNEL: &str =
    "the other side is the kernel, which loom can't run; its tests pass packets through the real thing";
const CARD: &str =
    "the other side is a card, which loom can't run; its tests pass packets through a model of one";
const PROCESS: &str = "the other side is another process; its tests pass packets through DPDK's and our own";
const SIGNAL: &str =
    "a signal handler reads what the thread that it interrupts has published, which loom can't model";
const COUNTERS: &str = "one number that is published after what it stands for, read once a poll: no loop, nothing to explore but itself";
const KERNEL_OBJECTS: &str = "state that lies in pages of the kernel's, where loom's atomics, which are larger, can't be; each is the usual \
                              publication of a pointer, or the reference count of std's Arc";
const VECTORS: &str = "lookups load words as vectors, which loom's atomics can't do; each is one word that is published after what it \
                       points to, and old memory waits for base/sync's RCU, which is covered";
