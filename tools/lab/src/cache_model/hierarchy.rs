//! All levels of a processor, and its memory.

use super::cache::{Cache, Evicted};
use super::geometry::{Geometry, GeometryError, LINE_BYTES};
use super::holders::{Cores, Holders};

/// What the shared level has of the lines that are in second levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inclusion {
    /// All of them: what it lets go is taken from cores, too (Intel's servers before 2017).
    Inclusive,
    /// None: a line that a core takes leaves it, and comes back when the core lets it go (AMD Zen).
    Exclusive,
    /// Some: lines come to it when cores let them go, and stay when a core takes them again (Intel Skylake-SP and later).
    NonInclusive,
}

/// A processor.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Cores, each with a first and a second level; sibling threads are one core here.
    pub cores: usize,
    /// A core's first level of data.
    pub first: Geometry,
    /// A core's second level, which has all that the first has.
    pub second: Geometry,
    /// The level that they share.
    pub shared: Geometry,
    /// What is in it.
    pub inclusion: Inclusion,
    /// Into how many of its ways a device may put lines that aren't in it yet (Intel: DDIO, 2 of 11); `None`: what a device writes goes to
    /// memory.
    pub device_ways: Option<u32>,
}

/// Where an access was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The core's first level.
    First,
    /// Its second.
    Second,
    /// Another core's.
    OtherCore,
    /// The shared level.
    Shared,
    /// Memory.
    Memory,
}

/// What one core, or all devices, caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Lines that were accessed.
    pub accesses: u64,
    /// Of these, not answered by the first level.
    pub first_misses: u64,
    /// Nor by the second.
    pub second_misses: u64,
    /// Answered by another core.
    pub transfers: u64,
    /// Writes to lines that this core had and another one had, too, which loses it.
    pub upgrades: u64,
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines written to memory, because of an access of this core or device.
    pub memory_writes: u64,
}

/// The levels of one core.
#[derive(Clone, Debug)]
struct Core {
    first: Cache,
    second: Cache,
}

impl Core {
    /// Takes a line out of both; says whether it was written, if it was there.
    fn remove(&mut self, line: u64) -> Option<bool> {
        let first = self.first.remove(line);
        let second = self.second.remove(line)?;
        Some(second || first == Some(true))
    }

    fn is_dirty(&self, line: u64) -> Option<bool> {
        let second = self.second.find(line)?;
        let first = self.first.find(line).is_some_and(|place| self.first.is_dirty(place));
        Some(first || self.second.is_dirty(second))
    }

    /// Notes that it hasn't a line for itself any more: as long as it has, nobody else has it, and what the shared level has of it isn't older, so that
    /// it need tell nobody that it writes. What is dirty in the first level is its own.
    fn no_longer_exclusive(&mut self, line: u64) {
        for level in [&mut self.first, &mut self.second] {
            if let Some(place) = level.find(line) {
                level.set_exclusive(place, false);
            }
        }
    }

    /// Notes that others have what it has written to the line.
    fn clean(&mut self, line: u64) {
        for level in [&mut self.first, &mut self.second] {
            if let Some(place) = level.find(line) {
                level.set_clean(place);
            }
        }
    }
}

/// The state of all levels.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    cores: Vec<Core>,
    holders: Holders,
    shared: Cache,
    inclusion: Inclusion,
    device_ways: Option<usize>,
    traffic: Vec<Traffic>,
    devices: Traffic,
}

/// All ways.
const ANY: usize = usize::MAX;

/// Who has a line is a bit for each core.
pub(super) const MOST_CORES: usize = 64;

impl Hierarchy {
    /// With nothing in it.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(machine: &Machine) -> Result<Self, GeometryError> {
        if !(1..=MOST_CORES).contains(&machine.cores) {
            return Err(GeometryError::Cores(machine.cores));
        }
        if let Some(device) = machine.device_ways
            && !(1..=machine.shared.ways).contains(&device)
        {
            return Err(GeometryError::DeviceWays { device, ways: machine.shared.ways });
        }
        let core = Core { first: Cache::new(&machine.first)?, second: Cache::new(&machine.second)? };
        Ok(Self {
            cores: vec![core; machine.cores],
            holders: Holders::default(),
            shared: Cache::new(&machine.shared)?,
            inclusion: machine.inclusion,
            device_ways: machine.device_ways.map(|ways| ways as usize),
            traffic: vec![Traffic::default(); machine.cores],
            devices: Traffic::default(),
        })
    }

    /// What a core caused; `None` if there is no such core.
    pub fn core(&self, core: usize) -> Option<&Traffic> {
        self.traffic.get(core)
    }

    /// What devices caused.
    pub const fn devices(&self) -> &Traffic {
        &self.devices
    }

    /// Lines that memory was read and written, by all together.
    pub fn memory(&self) -> (u64, u64) {
        let all = self.traffic.iter().chain([&self.devices]);
        all.fold((0, 0), |(reads, writes), of| (reads + of.memory_reads, writes + of.memory_writes))
    }

    /// Counts from zero again; what is in the levels stays.
    pub fn forget_counts(&mut self) {
        self.traffic.fill(Traffic::default());
        self.devices = Traffic::default();
    }

    /// Fills all levels with lines from `first` on that nobody uses any more and that were written, as they are after a long time. What cores have of an
    /// inclusive level would have to be in it, too: there they have nothing.
    pub fn fill(&mut self, first: u64) {
        let mut line = first;
        self.shared.fill(&mut line);
        if self.inclusion == Inclusion::Inclusive {
            return;
        }
        for (core, levels) in self.cores.iter_mut().enumerate() {
            let begin = line;
            levels.second.fill(&mut line);
            for line in begin..line {
                if let Some(place) = levels.second.find(line) {
                    levels.second.set_exclusive(place, true);
                    self.holders.add(line, core, true);
                }
            }
        }
    }

    /// A core reads bytes. An access of no bytes is none.
    #[inline]
    pub fn read(&mut self, core: usize, address: u64, bytes: u64) {
        for line in lines(address, bytes) {
            self.access(core, line, false);
        }
    }

    /// A core writes bytes, by way of its levels.
    #[inline]
    pub fn write(&mut self, core: usize, address: u64, bytes: u64) {
        for line in lines(address, bytes) {
            self.access(core, line, true);
        }
    }

    /// A core accesses a line; `core` must be one of the machine's.
    #[inline]
    pub fn access(&mut self, core: usize, line: u64, write: bool) -> Level {
        self.traffic[core].accesses += 1;
        let first = &mut self.cores[core].first;
        if let Some(place) = first.touch(line) {
            if write && !first.is_dirty(place) {
                if !first.is_exclusive(place) {
                    self.upgrade(core, line);
                    self.cores[core].first.set_exclusive(place, true);
                }
                self.cores[core].first.set_dirty(place);
            }
            return Level::First;
        }
        self.traffic[core].first_misses += 1;
        let second = &mut self.cores[core].second;
        let (level, exclusive) = if let Some(place) = second.touch(line) {
            let exclusive = second.is_exclusive(place);
            if write && !exclusive {
                self.upgrade(core, line);
            }
            (Level::Second, exclusive || write)
        } else {
            self.traffic[core].second_misses += 1;
            self.fetch(core, line, write)
        };
        let Core { first, second } = &mut self.cores[core];
        if let Some(Evicted { line, dirty: true }) = first.insert_for(line, write, exclusive)
            && let Some(place) = second.find(line)
        {
            second.set_dirty(place);
            second.set_exclusive(place, true);
        }
        level
    }

    /// A core writes to a line that it has, but maybe not for itself: others lose it.
    fn upgrade(&mut self, core: usize, line: u64) {
        let others = self.holders.add(line, core, true);
        let was_shared = self.take_from(others, line).is_some();
        self.traffic[core].upgrades += u64::from(was_shared);
        self.supersede(line);
    }

    /// Brings a line to a core's second level. Whether the core has it for itself then.
    fn fetch(&mut self, core: usize, line: u64, write: bool) -> (Level, bool) {
        let others = self.holders.add(line, core, write);
        let elsewhere = if write { self.take_from(others, line) } else { self.share(core, others, line) };
        let (level, dirty) = match (elsewhere, self.shared.touch(line)) {
            (Some(dirty), _) => {
                self.traffic[core].transfers += 1;
                // Who wrote it hands it over; what is only read stays with the shared level (`share`).
                (Level::OtherCore, dirty && write)
            }
            (None, Some(place)) => {
                let dirty = self.shared.is_dirty(place);
                let leaves = self.inclusion == Inclusion::Exclusive;
                if leaves {
                    self.shared.remove(line);
                }
                (Level::Shared, leaves && dirty)
            }
            (None, None) => {
                self.traffic[core].memory_reads += 1;
                if self.inclusion == Inclusion::Inclusive {
                    self.put_into_shared(Agent::Core(core), line, false, ANY);
                }
                (Level::Memory, false)
            }
        };
        if write && level != Level::Memory {
            self.supersede(line);
        }
        let exclusive = write || level == Level::Memory;
        if let Some(gone) = self.cores[core].second.insert_for(line, dirty, exclusive) {
            self.holders.remove(gone.line, core);
            let dirty = gone.dirty | (self.cores[core].first.remove(gone.line) == Some(true));
            self.let_go(core, Evicted { dirty, ..gone });
        }
        (level, exclusive)
    }

    /// A core writes to a line, so what the shared level has of it is old and will not be written back. Only an inclusive level keeps
    /// a place for it.
    #[inline]
    fn supersede(&mut self, line: u64) {
        if self.inclusion != Inclusion::Inclusive {
            self.shared.remove(line);
        } else if let Some(place) = self.shared.find(line) {
            self.shared.set_clean(place);
        }
    }

    /// A line has left a core's second level.
    fn let_go(&mut self, core: usize, gone: Evicted) {
        let pushed_out = self.shared.insert_or_keep(gone.line, gone.dirty);
        self.gone_from_shared(Agent::Core(core), pushed_out);
    }

    fn put_into_shared(&mut self, agent: Agent, line: u64, dirty: bool, ways: usize) {
        let pushed_out = self.shared.insert(line, dirty, ways);
        self.gone_from_shared(agent, pushed_out);
    }

    #[inline]
    fn gone_from_shared(&mut self, agent: Agent, gone: Option<Evicted>) {
        let Some(mut gone) = gone else { return };
        if self.inclusion == Inclusion::Inclusive {
            gone.dirty |= self.take_from_cores(gone.line) == Some(true);
        }
        if gone.dirty {
            self.of(agent).memory_writes += 1;
        }
    }

    const fn of(&mut self, agent: Agent) -> &mut Traffic {
        match agent {
            Agent::Core(core) => &mut self.traffic.as_mut_slice()[core],
            Agent::Device => &mut self.devices,
        }
    }

    /// Takes a line from all cores. Whether it was written, if one had it.
    fn take_from_cores(&mut self, line: u64) -> Option<bool> {
        let cores = self.holders.take(line);
        self.take_from(cores, line)
    }

    /// Takes a line from these cores. Whether it was written, if one had it.
    #[inline]
    fn take_from(&mut self, cores: Cores, line: u64) -> Option<bool> {
        let mut found = None;
        for core in cores {
            if let Some(dirty) = self.cores[core].remove(line) {
                found = Some(dirty || found == Some(true));
            }
        }
        found
    }

    /// Another core that has the line lends it, for this one reads it: what it has written goes to the shared level.
    #[inline]
    fn share(&mut self, core: usize, mut others: Cores, line: u64) -> Option<bool> {
        let owner = others.next()?;
        let dirty = self.cores[owner].is_dirty(line)?;
        self.cores[owner].no_longer_exclusive(line);
        if dirty {
            self.cores[owner].clean(line);
            self.let_go(core, Evicted { line, dirty });
        }
        Some(dirty)
    }

    /// A core writes whole lines past its levels.
    pub fn write_past_caches(&mut self, core: usize, address: u64, bytes: u64) {
        for line in lines(address, bytes) {
            self.traffic[core].accesses += 1;
            self.take_from_cores(line);
            self.shared.remove(line);
            self.traffic[core].memory_writes += 1;
        }
    }

    /// Lines will be accessed soon. What the model has of them comes from this machine's memory for all of them at the same time then, not one after the
    /// other, which is most of what an access costs otherwise.
    #[inline]
    pub fn prefetch(&self, lines: impl Iterator<Item = u64>) {
        let all = lines.map(|line| self.shared.prefetch(line) ^ self.holders.prefetch(line));
        std::hint::black_box(all.fold(0, |all, words| all ^ words));
    }

    /// A device writes. Of a line that it writes a part of, and that no level has, the rest is read from memory.
    pub fn device_write(&mut self, address: u64, bytes: u64) {
        self.prefetch(lines(address, bytes));
        for line in lines(address, bytes) {
            self.devices.accesses += 1;
            let was_near = self.take_from_cores(line).is_some();
            let place = self.shared.touch(line);
            let is_whole = line * LINE_BYTES >= address && (line + 1) * LINE_BYTES <= address + bytes;
            self.devices.memory_reads += u64::from(!is_whole && !was_near && place.is_none());
            match (self.device_ways, place) {
                (Some(_), Some(place)) => self.shared.set_dirty(place),
                (Some(ways), None) => self.put_into_shared(Agent::Device, line, true, ways),
                (None, _) => {
                    self.shared.remove(line);
                    self.devices.memory_writes += 1;
                }
            }
        }
    }

    /// A device reads lines. What isn't in any level is read from memory, and not kept.
    pub fn device_read(&mut self, address: u64, bytes: u64) {
        for line in lines(address, bytes) {
            self.devices.accesses += 1;
            let is_near = self.holders.of(line).next().is_some() || self.shared.touch(line).is_some();
            self.devices.memory_reads += u64::from(!is_near);
        }
    }
}

#[derive(Clone, Copy)]
enum Agent {
    Core(usize),
    Device,
}

/// The lines that bytes lie in.
#[inline]
fn lines(address: u64, bytes: u64) -> std::ops::Range<u64> {
    let first = address / LINE_BYTES;
    let end = if bytes == 0 { first } else { (address + bytes - 1) / LINE_BYTES + 1 };
    first..end
}

#[cfg(test)]
mod tests;
