//! How the driver reaches the registers of a card that is played.

use super::{COUNTS, Model};
use crate::intel::registers::{Control, Register as _, Status};
use crate::vfio::Registers;

impl Registers for Model {
    fn read8(&self, offset: usize) -> u8 {
        panic!("read of a byte at {offset:#x}")
    }

    fn read16(&self, offset: usize) -> u16 {
        panic!("read of a word at {offset:#x}")
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut state = self.state();
        if state.is_gone {
            return u32::MAX;
        }
        state.arrive();
        match offset {
            Status::OFFSET => {
                let accesses = !state.get::<Control>().has(Control::MASTER_DISABLE);
                let bits = [
                    (state.has_link && state.has_negotiated, Status::LINK_UP),
                    (accesses, Status::MASTER_ENABLED),
                ];
                let set = bits.into_iter().filter(|(is_set, _)| *is_set);
                let status = set.fold(Status::new(0), |status, (_, bit)| status | bit);
                state.set(status);
                status.bits()
            }
            offset if COUNTS.contains(&offset) => std::mem::take(&mut state.words[offset / 4]),
            _ => state.words[offset / 4],
        }
    }

    fn write8(&self, offset: usize, _value: u8) {
        panic!("write of a byte at {offset:#x}")
    }

    fn write16(&self, offset: usize, _value: u16) {
        panic!("write of a word at {offset:#x}")
    }

    fn write32(&self, offset: usize, value: u32) {
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        state.posted.push_back((offset, value));
        if !state.is_far {
            state.arrive();
        }
    }
}
