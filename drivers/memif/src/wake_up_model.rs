//! A model of how a receiver goes to sleep and its sender wakes it up, of which all interleavings are tried.
//!
//! The steps are those of `Ring::wants_event` and `Ring::want_events`, and of whoever calls them: the sender publishes its index, has a fence, reads
//! the flag, and signals if the receiver wants that; the receiver writes the flag, has a fence, looks at the index once more, and sleeps
//! until the event is signalled. Each side's store reaches the other late, unless a fence waits for it, as with a processor's store
//! buffer. An event stays signalled until the receiver clears it.

use std::collections::HashSet;

/// Packets that are sent, one after the other.
const PACKETS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sender {
    Publishes,
    Fences,
    Reads,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Receiver {
    Polls,
    Arms,
    Fences,
    LooksAgain,
    Sleeps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    sender: Sender,
    receiver: Receiver,
    /// What the other side sees, and what is on its way there.
    index: u8,
    index_late: Option<u8>,
    is_wanted: bool,
    is_wanted_late: Option<bool>,
    is_signalled: bool,
    sent: u8,
    taken: u8,
}

const BEGIN: State = State {
    sender: Sender::Publishes,
    receiver: Receiver::Polls,
    index: 0,
    index_late: None,
    is_wanted: false,
    is_wanted_late: None,
    is_signalled: false,
    sent: 0,
    taken: 0,
};

impl State {
    /// All that can happen next; `fenced` says whether the two sides have fences.
    fn next(self, [sender_fences, receiver_fences]: [bool; 2]) -> Vec<Self> {
        let mut next = Vec::new();
        if let Some(index) = self.index_late {
            next.push(Self { index, index_late: None, ..self });
        }
        if let Some(is_wanted) = self.is_wanted_late {
            next.push(Self { is_wanted, is_wanted_late: None, ..self });
        }
        match self.sender {
            // One store of a kind at a time is on its way: the later one overtakes nothing.
            Sender::Publishes if self.index_late.is_none() => {
                let sent = self.sent + 1;
                next.push(Self { sender: Sender::Fences, index_late: Some(sent), sent, ..self });
            }
            Sender::Fences if !sender_fences || self.index_late.is_none() => {
                next.push(Self { sender: Sender::Reads, ..self });
            }
            Sender::Reads => {
                let sender = if self.sent == PACKETS { Sender::Done } else { Sender::Publishes };
                next.push(Self { sender, is_signalled: self.is_signalled || self.is_wanted, ..self });
            }
            _ => {}
        }
        match self.receiver {
            Receiver::Polls if self.index > self.taken => next.push(Self { taken: self.index, ..self }),
            Receiver::Polls => next.push(Self { receiver: Receiver::Arms, ..self }),
            Receiver::Arms if self.is_wanted_late.is_none() => {
                next.push(Self { receiver: Receiver::Fences, is_wanted_late: Some(true), ..self });
            }
            Receiver::Fences if !receiver_fences || self.is_wanted_late.is_none() => {
                next.push(Self { receiver: Receiver::LooksAgain, ..self });
            }
            Receiver::LooksAgain => {
                let receiver = if self.index > self.taken { Receiver::Polls } else { Receiver::Sleeps };
                next.push(Self { receiver, ..self });
            }
            // Awake, it takes the event back and wants none while it polls.
            Receiver::Sleeps if self.is_signalled && self.is_wanted_late.is_none() => {
                next.push(Self {
                    receiver: Receiver::Polls,
                    is_signalled: false,
                    is_wanted_late: Some(false),
                    ..self
                });
            }
            _ => {}
        }
        next
    }

    /// It sleeps, with packets that nobody will tell it of.
    fn is_lost(self, fences: [bool; 2]) -> bool {
        self.receiver == Receiver::Sleeps && self.taken < self.sent && self.next(fences).is_empty()
    }
}

/// A state in which a wake-up was lost, if one can be reached.
fn lost(fences: [bool; 2]) -> Option<State> {
    let (mut seen, mut open) = (HashSet::from([BEGIN]), vec![BEGIN]);
    while let Some(state) = open.pop() {
        if state.is_lost(fences) {
            return Some(state);
        }
        open.extend(state.next(fences).into_iter().filter(|next| seen.insert(*next)));
    }
    None
}

#[test]
fn no_wake_up_is_lost_with_both_fences_and_some_are_without_either() {
    assert_eq!(lost([true, true]), None);
    for fences in [[false, true], [true, false], [false, false]] {
        assert!(lost(fences).is_some(), "{fences:?}");
    }
}
