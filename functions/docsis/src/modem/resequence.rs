//! The packets of a bonded service flow come by several channels; their sequence numbers put them into order again
//! (MULPI section 8.2.3).

use warmlane_mem::Packet;
use warmlane_wire::docsis::Sequencing;

/// Packets that may be ahead of one that is missing. A power of two.
const WINDOW: usize = 256;

/// The order of one DSID.
#[derive(Debug)]
pub struct Resequencer {
    next: Option<Sequencing>,
    held: Box<[Option<Packet>]>,
    count: usize,
    /// Since when a packet is missing, in cycles.
    since: u64,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resequenced {
    /// It is in order, or waits for those before it; this many before it were given up.
    Taken {
        /// Numbers that no packet came for.
        missing: u16,
    },
    /// Its turn was over, or it came twice.
    Late,
}

/// What would become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is delivered at once, and with it those that wait for it.
    Now {
        /// How many those are, with it.
        count: usize,
    },
    /// It waits for others.
    Later,
    /// Its turn was over, or it came twice.
    Over,
}

impl Default for Resequencer {
    fn default() -> Self {
        Self { next: None, held: (0..WINDOW).map(|_| None).collect(), count: 0, since: 0 }
    }
}

impl Resequencer {
    /// Takes a packet at the time `now`, in cycles; those whose turn it is go to `deliver`.
    pub fn push(
        &mut self,
        packet: Packet,
        sequencing: Sequencing,
        now: u64,
        mut deliver: impl FnMut(Packet),
    ) -> Resequenced {
        let mut missing = 0;
        let mut next = match self.next {
            Some(next) if next.change_count == sequencing.change_count => next.sequence,
            // The first one, or numbering has begun anew: what waits for lost ones need not any more.
            _ => {
                missing += self.let_go(&mut deliver);
                // Numbers start at 0, and the first may come behind another by a faster channel.
                if usize::from(sequencing.sequence) < WINDOW { 0 } else { sequencing.sequence }
            }
        };
        let ahead = sequencing.sequence.wrapping_sub(next);
        if ahead >= 0x8000 {
            return Resequenced::Late;
        }
        self.next = Some(Sequencing { sequence: next, ..sequencing });
        if usize::from(ahead) >= WINDOW {
            // The window moves on: what it leaves behind is given up.
            let first = sequencing.sequence.wrapping_sub(WINDOW as u16 - 1);
            missing += self.move_to(&mut next, first, &mut deliver);
        }
        let slot = &mut self.held[usize::from(sequencing.sequence) % WINDOW];
        if slot.is_some() {
            return Resequenced::Late;
        }
        if self.count == 0 {
            self.since = now;
        }
        *slot = Some(packet);
        self.count += 1;
        self.deliver_ready(&mut next, now, &mut deliver);
        self.next = Some(Sequencing { sequence: next, ..sequencing });
        Resequenced::Taken { missing }
    }

    /// Whose turn it is; `None` before the first packet.
    pub const fn next(&self) -> Option<Sequencing> {
        self.next
    }

    /// What would become of a packet while it is `next`'s turn, which goes on by that. Nothing is taken.
    pub fn turn(&self, next: &mut Option<Sequencing>, sequencing: Sequencing) -> Turn {
        let of_same = next.filter(|next| next.change_count == sequencing.change_count);
        let began_anew = of_same.is_none();
        let mut turn = of_same.map_or_else(
            || if usize::from(sequencing.sequence) < WINDOW { 0 } else { sequencing.sequence },
            |next| next.sequence,
        );
        // What waited is let go when numbering begins anew.
        let waits = |sequence: u16| !began_anew && self.held[usize::from(sequence) % WINDOW].is_some();
        let ahead = sequencing.sequence.wrapping_sub(turn);
        if ahead >= 0x8000 || usize::from(ahead) < WINDOW && waits(sequencing.sequence) {
            return Turn::Over;
        }
        let mut count = 0;
        if usize::from(ahead) >= WINDOW {
            turn = sequencing.sequence.wrapping_sub(WINDOW as u16 - 1);
        }
        if turn == sequencing.sequence {
            (count, turn) = (1, turn.wrapping_add(1));
            while waits(turn) && count < WINDOW {
                (count, turn) = (count + 1, turn.wrapping_add(1));
            }
        }
        *next = Some(Sequencing { sequence: turn, ..sequencing });
        if count > 0 { Turn::Now { count } } else { Turn::Later }
    }

    /// Gives up what has been missing since before `then`, in cycles. Says how many numbers no packet came for.
    pub fn expire(&mut self, then: u64, now: u64, mut deliver: impl FnMut(Packet)) -> u16 {
        let Some(next) = self.next.filter(|_| self.count > 0 && self.since < then) else { return 0 };
        let mut sequence = next.sequence;
        let mut missing = 0;
        while self.held[usize::from(sequence) % WINDOW].is_none() {
            sequence = sequence.wrapping_add(1);
            missing += 1;
        }
        self.deliver_ready(&mut sequence, now, &mut deliver);
        self.next = Some(Sequencing { sequence, ..next });
        missing
    }

    /// Delivers all that is held, in order. Says how many were missing in between.
    pub fn let_go(&mut self, mut deliver: impl FnMut(Packet)) -> u16 {
        let mut missing = 0;
        while self.count > 0 {
            missing += self.expire(u64::MAX, u64::MAX, &mut deliver);
        }
        missing
    }

    /// How many packets wait for others.
    pub const fn waiting(&self) -> usize {
        self.count
    }

    /// Delivers what is held before the number `first`. Says how many were missing.
    fn move_to(&mut self, next: &mut u16, first: u16, deliver: &mut impl FnMut(Packet)) -> u16 {
        let mut missing = 0;
        let steps = first.wrapping_sub(*next);
        for step in 0..steps {
            if self.count == 0 {
                missing += steps - step;
                break;
            }
            match self.take(next.wrapping_add(step)) {
                Some(packet) => deliver(packet),
                None => missing += 1,
            }
        }
        *next = first;
        missing
    }

    fn deliver_ready(&mut self, next: &mut u16, now: u64, deliver: &mut impl FnMut(Packet)) {
        while let Some(packet) = self.take(*next) {
            deliver(packet);
            *next = next.wrapping_add(1);
            // What is missing now is missing since now.
            self.since = now;
        }
    }

    fn take(&mut self, sequence: u16) -> Option<Packet> {
        let packet = self.held[usize::from(sequence) % WINDOW].take()?;
        self.count -= 1;
        Some(packet)
    }
}
