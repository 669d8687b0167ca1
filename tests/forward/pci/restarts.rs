//! Devices that come and go many times, and are reset while packets go by.

use warmlane_testkit::exchange::until;

use super::wire::Look::Before;
use super::wire::data;
use super::{Pair, TAKE, TAKEN};

/// How often a port takes its card and gives it back: a number in the environment, or a few times.
const UP_DOWNS: &str = "WARMLANE_TEST_UP_DOWNS";
const USUAL_UP_DOWNS: usize = 5;

/// What is mapped of ports: memory for their cards, and registers.
const MAPPINGS: [&str; 3] = ["pci west", "pci east", "vfio-device"];

/// How often a card is reset behind the port's back.
const RESETS: usize = 4;

impl Pair<'_> {
    /// Ports take the cards, answer, and give them back; the next time all is as it was the first time.
    pub(super) fn check_up_downs(&self) {
        let count = std::env::var(UP_DOWNS).map_or(USUAL_UP_DOWNS, |count| {
            count.parse().unwrap_or_else(|error| panic!("{UP_DOWNS}={count}: {error}"))
        });
        let free = self.free_pages();
        for number in 0..count {
            self.start(TAKE);
            self.lab.finish();
            assert_eq!(self.free_pages(), free, "huge pages, after {number}");
        }
        self.check_drivers(2, self.kind.driver, None);
        self.check_kernel();
    }

    /// Huge pages that nobody has.
    fn free_pages(&self) -> String {
        let memory = self.tell("cat /proc/meminfo");
        let line = memory.lines().find(|line| line.starts_with("HugePages_Free:"));
        line.unwrap_or_else(|| panic!("{memory}")).to_owned()
    }

    /// Somebody else resets the cards while packets go by: the port starts them again, and forwards as before.
    pub(super) fn check_resets(&self) {
        self.forward(TAKEN);
        self.reset_under_load();
        self.check_forwarding(0);
        self.check_forwarding(1);
        self.lab.finish();
    }

    /// Resets each card a few times while packets go by. All memory that they had before was given back, and is theirs again.
    pub(super) fn reset_under_load(&self) {
        let mappings = || MAPPINGS.map(|name| self.lab.count_mappings(name));
        let before = (mappings(), self.free_pages());
        let mut number = 0;
        for round in 0..RESETS {
            let side = round % 2;
            let name = ["west", "east"][side];
            let note = format!("port '{name}': the device is reset, for ");
            let before = self.lab.count_notes(&note);
            let mut send = || {
                for _ in 0..16 {
                    self.wires[0].send(&data(0, number, 200, Before));
                    number += 1;
                }
                self.wires[1].discard();
            };
            send();
            self.tell(&format!("echo 1 >/sys/bus/pci/devices/{}/reset", self.kind.cards[side]));
            until("it is started again", || {
                send();
                self.lab.count_notes(&note) > before
            });
            self.check_ping(0);
            self.check_ping(1);
        }
        // What was on its way.
        while self.wires[1].receive_forwarded().is_some() {}
        assert_eq!((mappings(), self.free_pages()), before);
    }
}
