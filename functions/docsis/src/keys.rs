//! Security associations and their keys (CM-SP-SECv3.1): each has two that are alive, so that a modem can still read what was
//! encrypted before a key changed.

use thiserror::Error;
use warmlane_crypto::TrafficKey;
use warmlane_sync::mailbox::Receiver;

/// How many security association identifiers there are: 14 bits.
const IDENTIFIERS: usize = 1 << 14;

/// The entry of an association that there isn't.
const NONE: u16 = u16::MAX;

/// A key that can't be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyringError {
    /// Identifiers have 14 bits.
    #[error("{said} is no security association identifier: they go to 16383")]
    Identifier {
        /// What was asked for.
        said: u16,
    },
    /// Sequence numbers have 4 bits.
    #[error("{sequence} is no key sequence number: they go from 0 to 15")]
    Sequence {
        /// What was asked for.
        sequence: u8,
    },
}

/// A key and its number.
#[derive(Debug, Clone)]
struct Numbered {
    sequence: u8,
    key: TrafficKey,
}

/// The keys of an association: those of even and of odd sequence numbers.
#[derive(Debug, Clone, Default)]
struct Association {
    by_toggle: [Option<Numbered>; 2],
    /// Which of them was installed last.
    newest: usize,
}

/// The keys of all associations. One lane has it; keys come to it from elsewhere.
#[derive(Debug, Clone)]
pub struct Keyring {
    /// Where each association is.
    places: Box<[u16]>,
    associations: Vec<Association>,
}

impl Default for Keyring {
    fn default() -> Self {
        Self { places: vec![NONE; IDENTIFIERS].into(), associations: Vec::new() }
    }
}

impl Keyring {
    /// Without a key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs a key in place of the association's key before last. From now on it is the one to encrypt with.
    ///
    /// # Errors
    /// [`KeyringError`], if a number has too many bits.
    pub fn install(&mut self, said: u16, sequence: u8, key: TrafficKey) -> Result<(), KeyringError> {
        if sequence > 15 {
            return Err(KeyringError::Sequence { sequence });
        }
        let place = self.places.get_mut(usize::from(said)).ok_or(KeyringError::Identifier { said })?;
        if *place == NONE {
            // There are at most 16384.
            *place = self.associations.len() as u16;
            self.associations.push(Association::default());
        }
        if let Some(association) = self.associations.get_mut(usize::from(*place)) {
            association.newest = usize::from(sequence & 1);
            association.by_toggle[association.newest] = Some(Numbered { sequence, key });
        }
        Ok(())
    }

    /// The key to encrypt with and its sequence number.
    #[inline]
    pub fn newest(&self, said: u16) -> Option<(u8, &TrafficKey)> {
        let association = self.association(said)?;
        association.by_toggle[association.newest].as_ref().map(|key| (key.sequence, &key.key))
    }

    /// The key that a frame with this toggle bit was encrypted with, and its sequence number.
    #[inline]
    pub fn by_toggle(&self, said: u16, toggle: bool) -> Option<(u8, &TrafficKey)> {
        let association = self.association(said)?;
        association.by_toggle[usize::from(toggle)].as_ref().map(|key| (key.sequence, &key.key))
    }

    #[inline]
    fn association(&self, said: u16) -> Option<&Association> {
        self.associations.get(usize::from(*self.places.get(usize::from(said))?))
    }
}

/// A key for a lane that is running.
#[derive(Debug)]
pub struct KeyChange {
    /// The security association.
    pub said: u16,
    /// The key's sequence number.
    pub sequence: u8,
    /// The key.
    pub key: TrafficKey,
}

/// A keyring on a lane, and where its changes come from. Only changes that [`Keyring::install`] takes may be sent.
pub(crate) struct LaneKeys {
    pub(crate) keys: Keyring,
    changes: Option<Receiver<KeyChange>>,
}

impl LaneKeys {
    pub(crate) const fn new(keys: Keyring, changes: Option<Receiver<KeyChange>>) -> Self {
        Self { keys, changes }
    }

    /// Takes a change if there is one; says whether there was. At most one a poll, as a key takes as long as some packets.
    #[inline]
    pub(crate) fn change(&mut self) -> bool {
        let Some(change) = self.changes.as_mut().and_then(|changes| changes.receive().ok()) else {
            return false;
        };
        self.keys.install(change.said, change.sequence, change.key).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> TrafficKey {
        TrafficKey::new(&[byte; 16], [0; 16]).unwrap()
    }

    /// What a key makes of zeros tells keys apart.
    fn mark(key: &TrafficKey) -> [u8; 16] {
        let mut region = [0; 16];
        key.encrypt(&mut region);
        region
    }

    #[test]
    fn two_keys_are_alive_and_the_newest_encrypts() {
        let mut keys = Keyring::new();
        assert!(keys.newest(7).is_none());
        for sequence in 0..40_u8 {
            keys.install(7, sequence & 15, key(sequence)).unwrap();
            let (number, newest) = keys.newest(7).unwrap();
            assert_eq!((number, mark(newest)), (sequence & 15, mark(&key(sequence))));
            if sequence > 0 {
                let (number, former) = keys.by_toggle(7, sequence & 1 == 0).unwrap();
                assert_eq!((number, mark(former)), ((sequence - 1) & 15, mark(&key(sequence - 1))));
            }
        }
        assert!(keys.newest(8).is_none());
    }

    #[test]
    fn numbers_of_too_many_bits_are_refused() {
        let mut keys = Keyring::new();
        assert_eq!(keys.install(0x4000, 0, key(0)), Err(KeyringError::Identifier { said: 0x4000 }));
        assert_eq!(keys.install(1, 16, key(0)), Err(KeyringError::Sequence { sequence: 16 }));
        assert!(keys.newest(u16::MAX).is_none());
    }
}
