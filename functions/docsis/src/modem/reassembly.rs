//! From PSP segments back to MAC frames.

use warmlane_wire::docsis::{HEADER_LENGTH, MAXIMUM_EXTENDED_LENGTH};
use warmlane_wire::psp::PspPacket;

use super::reason::ModemDrop;
use crate::lower::LONGEST_PAYLOAD;

/// PSP flows in a session.
const FLOWS: usize = 8;

/// Bytes of the longest MAC frame that is put together.
const LONGEST_FRAME: usize = HEADER_LENGTH + MAXIMUM_EXTENDED_LENGTH + LONGEST_PAYLOAD;

/// Packets that a sequence number may be behind to be late: half of all numbers.
const LATE: u16 = 0x8000;

/// The frames of one session.
#[derive(Clone, Debug)]
pub struct Reassembler {
    flows: [Assembly; FLOWS],
    next: Option<u16>,
}

/// A flow's frame of which the end hasn't come.
#[derive(Clone, Debug)]
struct Assembly {
    bytes: Box<[u8]>,
    length: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next segment begins a frame.
    Between,
    /// A frame has begun.
    Within,
    /// A frame has begun of which something is missing; it is counted already.
    Broken,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets that should have come before it and didn't.
    pub missing: u16,
    /// Frames that came to nothing as segments of them are missing: those that began or ended here. Of those that were in missing
    /// packets altogether nobody knows.
    pub incomplete: u64,
}

impl Default for Reassembler {
    fn default() -> Self {
        let flow = || Assembly { bytes: vec![0; LONGEST_FRAME].into(), length: 0, state: State::Between };
        Self { flows: std::array::from_fn(|_| flow()), next: None }
    }
}

impl Reassembler {
    /// Without a packet so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what follows the L2TPv3 header; each frame that is whole now goes to `frame`.
    ///
    /// # Errors
    /// [`ModemDrop::Psp`] and [`ModemDrop::LatePacket`]: nothing of the packet was used.
    pub fn push(&mut self, bytes: &[u8], mut frame: impl FnMut(&mut [u8])) -> Result<Progress, ModemDrop> {
        let packet = PspPacket::parse(bytes).map_err(|_| ModemDrop::Psp)?;
        let mut progress = Progress { missing: self.check_sequence(packet.sequence)?, incomplete: 0 };
        if progress.missing > 0 {
            progress.incomplete += self.flows.iter_mut().map(Assembly::interrupt).sum::<u64>();
        }
        let assembly = &mut self.flows[usize::from(packet.flow) % FLOWS];
        for segment in packet.segments() {
            if segment.begins {
                progress.incomplete += assembly.interrupt();
                (assembly.length, assembly.state) = (0, State::Within);
            }
            progress.incomplete += assembly.append(segment.bytes);
            if segment.ends {
                if assembly.state == State::Within {
                    frame(&mut assembly.bytes[..assembly.length]);
                }
                assembly.state = State::Between;
            }
        }
        Ok(progress)
    }

    /// How many packets are missing before the one with this number.
    fn check_sequence(&mut self, sequence: Option<u16>) -> Result<u16, ModemDrop> {
        let Some(sequence) = sequence else { return Ok(0) };
        let missing = self.next.map_or(0, |next| sequence.wrapping_sub(next));
        if missing >= LATE {
            return Err(ModemDrop::LatePacket);
        }
        self.next = Some(sequence.wrapping_add(1));
        Ok(missing)
    }
}

impl Assembly {
    /// A segment is missing. Says how many frames that spoils.
    fn interrupt(&mut self) -> u64 {
        if self.state == State::Within {
            self.state = State::Broken;
            return 1;
        }
        0
    }

    /// Appends a segment. Says how many frames came to nothing by that.
    fn append(&mut self, segment: &[u8]) -> u64 {
        match self.state {
            // Its beginning is missing.
            State::Between => {
                self.state = State::Broken;
                return 1;
            }
            State::Broken => return 0,
            State::Within => {}
        }
        let Some(space) = self.bytes.get_mut(self.length..self.length + segment.len()) else {
            // Longer than any frame: its end must have been lost.
            self.state = State::Broken;
            return 1;
        };
        space.copy_from_slice(segment);
        self.length += segment.len();
        0
    }
}
