//! The kinds of cards of the machine, and what the forwarder is told of them.

use super::wire::Medium;
use super::{HOST_ADDRESSES, HOSTS, PORT_ADDRESSES};

/// A kind of cards, of which the machine has two.
pub(super) struct Kind {
    /// The kernel's driver.
    pub(super) driver: &'static str,
    /// Where they are in the machine.
    pub(super) cards: [&'static str; 2],
    /// How the emulator makes each, besides where it is and what it is at.
    pub(super) devices: [&'static str; 2],
    /// What their wires are.
    pub(super) medium: Medium,
    /// They spread flows over their queues as they are told to.
    pub(super) has_rss: [bool; 2],
    /// Options of the ports.
    pub(super) options: [&'static str; 2],
    /// Bytes of the longest packet.
    pub(super) mtu: usize,
    /// They cut long packets of TCP.
    pub(super) cuts: bool,
    /// They are reset when the kernel is asked to.
    pub(super) resets: bool,
}

pub(super) static VIRTIO: Kind = Kind {
    driver: "virtio-pci",
    cards: ["0000:01:00.0", "0000:02:00.0"],
    devices: [
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,packed=off",
        // With event indices, QEMU 7.2 forgets to ask for notifications of packed rings once its peer has been busy; the kernel's driver would wait for ever.
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,packed=on,event_idx=off",
    ],
    medium: Medium::Socket,
    has_rss: [false, false],
    options: ["", ",packed=true"],
    mtu: 1500,
    // Not where what they are at doesn't take such packets.
    cuts: false,
    resets: true,
};

/// One of the cards reaches the pool.
pub(super) static E1000E: Kind = Kind {
    driver: "e1000e",
    cards: ["0000:03:00.0", "0000:04:00.0"],
    devices: ["e1000e", "e1000e"],
    medium: Medium::Socket,
    has_rss: [false, false],
    options: [",zero-copy=true", ",ring-size=64,promiscuous=true"],
    mtu: 9000,
    // QEMU 7.2 cuts by IP what it can't leave to others, and not by TCP.
    cuts: true,
    // The kernel's reset of QEMU's changes nothing that the port could notice.
    resets: false,
};

/// Of another machine, whose emulator is newer.
pub(super) static IGB: Kind = Kind {
    driver: "igb",
    cards: ["0000:01:00.0", "0000:02:00.0"],
    devices: ["igb", "igb"],
    medium: Medium::Socket,
    has_rss: [true, true],
    options: ["", ",ring-size=64,promiscuous=true,zero-copy=true"],
    mtu: 9000,
    cuts: true,
    resets: true,
};

/// Of virtio, with several queues, and a pool that they reach. The first leaves it to the TAP interface that it is at how flows are spread, and has shorter rings
/// than it is asked for.
pub(super) static VIRTIO_QUEUES: Kind = Kind {
    driver: "virtio-pci",
    cards: ["0000:01:00.0", "0000:02:00.0"],
    devices: [
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,packed=off,mq=on",
        "virtio-net-pci,disable-legacy=on,iommu_platform=on,packed=on,event_idx=off,mq=on,rss=on",
    ],
    medium: Medium::Tap { queues: 2 },
    has_rss: [false, true],
    options: [",zero-copy=true,ring-size=512", ",packed=true,zero-copy=true"],
    mtu: 1500,
    // TAP devices take long packets as they are.
    cuts: false,
    resets: true,
};

/// Options of cards that are taken already, or by the ports.
pub(super) const TAKEN: &str = "";
pub(super) const TAKE: &str = ",take";

/// Instead of options: the first card is taken, and the kernel is in place of the second.
pub(super) const TAP: &str = "-tap";

/// Instead of options: the cards are taken, and two lanes share them.
pub(super) const TWO_LANES: &str = "-two-lanes";

impl Kind {
    /// What the forwarder is told of a card's port.
    pub(super) fn port(&self, side: usize, more: &str) -> String {
        let driver = format!("pci:{}{more}{}", self.cards[side], self.options[side]);
        port(side, &driver, self.mtu)
    }

    pub(super) fn config(&self, how: &str) -> String {
        let (lanes, ports) = match how {
            TAP => (1, self.port(0, TAKEN) + &port(1, "tap:t0", 1500)),
            TWO_LANES => (2, self.port(0, TAKEN) + &self.port(1, TAKEN)),
            how => (1, self.port(0, how) + &self.port(1, how)),
        };
        format!("lanes = {lanes}\n{ports}")
    }

    /// A file with that.
    pub(super) fn config_file(&self, how: &str) -> String {
        format!("/{}{how}.toml", self.driver)
    }
}

/// A port, and the host at its other end.
fn port(side: usize, driver: &str, mtu: usize) -> String {
    let name = ["west", "east"][side];
    let (address, host) = (dotted(PORT_ADDRESSES[side]), dotted(HOST_ADDRESSES[side]));
    format!(
        "[[port]]\nname = \"{name}\"\ndriver = \"{driver}\"\naddresses = [\"{address}/24\"]\nmtu = {mtu}\n\
         [[neighbour]]\naddress = \"{host}\"\nmac = \"{}\"\nport = \"{name}\"\n",
        colons(HOSTS[side])
    )
}

pub(super) fn dotted(address: [u8; 4]) -> String {
    address.map(|byte| byte.to_string()).join(".")
}

pub(super) fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
