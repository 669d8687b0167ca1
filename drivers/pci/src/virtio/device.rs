//! A device from its reset until it runs (virtio 1.2, section 3.1).

use super::registers::{Common, NO_VECTOR, Network, status};
use crate::vfio::Registers;
use std::time::{Duration, Instant};
use warmlane_virtio::bus::{RingAreas, agree, is_ring_size};
use warmlane_virtio::features::{ACCESS_PLATFORM, MAC, MTU, ORDER_PLATFORM, PACKED, STATUS, VERSION_1};

/// How long a device may take to be reset.
const RESET: Duration = Duration::from_secs(5);

/// How often the configuration is read anew when it changes meanwhile.
const TRIES: usize = 100;

/// What is wrong, and the remedy if there is one.
pub(super) type Problem = String;

/// A device's registers.
#[derive(Debug)]
pub(super) struct Device<R> {
    pub(super) common: Common<R>,
    pub(super) network: Option<Network<R>>,
}

/// What is known of the device itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) address: Option<[u8; 6]>,
    pub(super) mtu: Option<u16>,
    pub(super) link: bool,
}

impl<R: Registers> Device<R> {
    /// As if it had never been used.
    pub(super) fn reset(&self) -> Result<(), Problem> {
        self.common.set_status(0);
        let end = Instant::now() + RESET;
        while self.common.status() != 0 {
            if Instant::now() > end {
                return Err(format!("it can't be reset: its status stays {:#x}", self.common.status()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Resets it, and asks for the features that it has.
    pub(super) fn offer(&self) -> Result<u64, Problem> {
        self.reset()?;
        self.common.set_status(status::ACKNOWLEDGE);
        self.common.set_status(status::ACKNOWLEDGE | status::DRIVER);
        Ok(self.common.offered())
    }

    /// Resets it, and agrees on features: of those `wanted`, what it has. With an IOMMU between it and memory, it has to know of that.
    pub(super) fn negotiate(&self, wanted: u64, has_iommu: bool) -> Result<u64, Problem> {
        let offered = self.offer()?;
        if offered & VERSION_1 == 0 {
            return Err("it is of the time before virtio 1.0".to_owned());
        }
        if has_iommu && offered & ACCESS_PLATFORM == 0 {
            return Err(super::BYPASSES_IOMMU.to_owned());
        }
        if wanted & !offered & PACKED != 0 {
            return Err("it has no packed rings: leave packed out (QEMU: packed=on)".to_owned());
        }
        let always = VERSION_1 | ACCESS_PLATFORM | ORDER_PLATFORM | MAC | MTU | STATUS;
        let features = agree(wanted | always, offered);
        self.common.accept(features);
        let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.common.set_status(agreed);
        if self.common.status() & status::FEATURES_OK == 0 {
            return Err(format!("it refuses what it offered (features {features:#x})"));
        }
        Ok(features)
    }

    /// Something of its configuration, all at one time (section 2.5.3).
    pub(super) fn read<T>(&self, read: impl Fn(&Network<R>) -> T) -> Result<T, Problem> {
        let network = self.network.as_ref().ok_or("it has no registers of a network device")?;
        for _ in 0..TRIES {
            let before = self.common.generation();
            let value = read(network);
            if self.common.generation() == before {
                return Ok(value);
            }
        }
        Err("its configuration changes all the time".to_owned())
    }

    /// What the device says of itself.
    pub(super) fn facts(&self, features: u64) -> Result<Facts, Problem> {
        if self.network.is_none() {
            return Ok(Facts { link: true, ..Facts::default() });
        }
        self.read(|network| Facts {
            address: (features & MAC != 0).then(|| network.address()),
            // Less can't be (virtio 1.2, section 5.1.4.1).
            mtu: (features & MTU != 0).then(|| network.mtu()).filter(|mtu| *mtu >= 68),
            link: features & STATUS == 0 || network.is_link_up(),
        })
    }

    /// The size of so many rings: the one that is wanted, or what the device has less of.
    pub(super) fn ring_size(&self, rings: u16, wanted: u16) -> Result<u16, Problem> {
        let there = self.common.queues();
        if there < rings {
            return Err(format!("it has {there} queues, {rings} are needed"));
        }
        let sizes = (0..rings).map(|ring| {
            self.common.select(ring);
            self.common.queue_size()
        });
        let longest = sizes.min().unwrap_or(0);
        let size = wanted.min(longest);
        // Packed rings can be of any size.
        let size =
            if size.is_power_of_two() { size } else { size.checked_next_power_of_two().unwrap_or(0) / 2 };
        if is_ring_size(size) {
            Ok(size)
        } else {
            Err(format!("its rings have at most {longest} descriptors, 64 are needed"))
        }
    }

    /// Tells it where a ring is, and by which interrupt it tells of used buffers. Returns where it wants to be told of available ones, in units of the
    /// multiplier.
    pub(super) fn set_up(
        &self,
        ring: u16,
        size: u16,
        areas: RingAreas,
        vector: Option<u16>,
    ) -> Result<u16, Problem> {
        self.common.select(ring);
        self.common.set_queue_size(size);
        if self.common.queue_size() != size {
            return Err(format!("it doesn't take {size} descriptors for ring {ring}"));
        }
        self.common.set_areas(areas.descriptors, areas.driver, areas.device);
        if !self.common.set_queue_vector(vector.unwrap_or(NO_VECTOR)) {
            return Err(format!("it has no interrupt for ring {ring}"));
        }
        self.common.enable_queue();
        Ok(self.common.queue_notify())
    }

    /// It may begin.
    pub(super) fn start(&self) {
        self.common.set_status(self.common.status() | status::DRIVER_OK);
    }

    /// Nothing came of it.
    pub(super) fn give_up(&self) {
        self.common.set_status(self.common.status() | status::FAILED);
    }

    /// Why it has to be started anew, if it has.
    pub(super) fn failure(&self) -> Option<&'static str> {
        let status = self.common.status();
        if status & status::NEEDS_RESET != 0 {
            return Some("it says that it can't go on");
        }
        // As root can by sysfs.
        (status & status::DRIVER_OK == 0).then_some("somebody else has reset it")
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::*;
    use warmlane_virtio::features::{CHECKSUM, GUEST_CHECKSUM, MERGEABLE};

    const OFFERED: u64 = VERSION_1 | ACCESS_PLATFORM | MAC | STATUS | MERGEABLE | CHECKSUM;

    fn device(model: &Model) -> Device<Model> {
        Device { common: Common(model.clone()), network: Some(Network(model.network())) }
    }

    fn refused(change: impl Fn(&mut super::super::model::State)) -> String {
        let model = Model::new(OFFERED);
        change(&mut model.state());
        let device = device(&model);
        let result =
            device.negotiate(OFFERED, true).and_then(|_| device.ring_size(2, 256)).and_then(|size| {
                let areas = RingAreas { descriptors: 4096, driver: 8192, device: 12288 };
                device.set_up(0, size, areas, Some(1))
            });
        result.unwrap_err()
    }

    #[test]
    fn a_device_is_brought_up_in_order() {
        let model = Model::new(OFFERED);
        let device = device(&model);
        let features = device.negotiate(CHECKSUM | GUEST_CHECKSUM | MERGEABLE, true).unwrap();
        assert_eq!(features, OFFERED, "what it has of what is wanted");
        let facts = device.facts(features).unwrap();
        assert_eq!(facts, Facts { address: Some([2, 0, 0, 0, 0, 7]), mtu: None, link: true });
        assert_eq!(device.ring_size(2, 128), Ok(128));
        assert_eq!(device.ring_size(2, 1024), Ok(256));
        let areas = RingAreas { descriptors: 1 << 32, driver: (1 << 32) + 4096, device: (1 << 32) + 8192 };
        assert_eq!(device.set_up(1, 128, areas, Some(2)), Ok(1));
        device.start();
        let state = model.state();
        assert_eq!(state.log, [0, 1, 3, 11, 15]);
        assert_eq!(
            (state.accepted, state.queues[1].areas),
            (OFFERED, [1 << 32, (1 << 32) + 4096, (1 << 32) + 8192])
        );
        assert_eq!((state.queues[1].size, state.queues[1].vector, state.queues[1].enabled), (128, 2, true));
    }

    #[test]
    fn the_link_and_what_changes_are_seen() {
        let model = Model::new(OFFERED);
        let device = device(&model);
        model.state().link = 0;
        assert!(!device.facts(OFFERED).unwrap().link);
        // Nobody says that it is down.
        assert!(device.facts(OFFERED & !STATUS).unwrap().link);
        model.state().restless = true;
        assert!(device.facts(OFFERED).unwrap_err().contains("changes all the time"));
        assert_eq!(device.failure(), None);
        for (status, reason) in [(15 | status::NEEDS_RESET, "can't go on"), (0, "somebody else")] {
            model.state().status = status;
            assert!(device.failure().is_some_and(|said| said.contains(reason)), "{reason}");
        }
    }

    #[test]
    fn devices_that_cannot_be_driven_are_refused() {
        for (said, change) in [
            (
                "before virtio 1.0",
                (|state| state.offered &= !VERSION_1) as fn(&mut super::super::model::State),
            ),
            ("iommu_platform=on", |state| state.offered &= !ACCESS_PLATFORM),
            ("refuses what it offered", |state| state.refuses = true),
            ("has 1 queues", |state| state.queues.truncate(1)),
            ("at most 32 descriptors", |state| state.queues[1].size = 32),
            ("at most 0 descriptors", |state| state.queues[1].size = 0),
            ("doesn't take", |state| state.stubborn = true),
            ("no interrupt", |state| state.vectors = 1),
        ] {
            let error = refused(change);
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
