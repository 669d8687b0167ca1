//! One key, and what is done with it to one region.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use std::fmt;
use thiserror::Error;

#[cfg(target_arch = "x86_64")]
use crate::interleaved::Rounds;

/// Bytes that AES encrypts at once.
pub const BLOCK: usize = 16;

/// A key that can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Eight bytes are a key of DES.
    #[error(
        "a key of 8 bytes is one of DES, which anyone can break and which is refused; use AES with 16 bytes"
    )]
    Des,
    /// No cipher here has keys of this length.
    #[error("a key of {length} bytes: AES needs 16 or 32")]
    Length {
        /// Bytes of the key.
        length: usize,
    },
}

/// A traffic encryption key with its initialisation vector. Each frame begins anew with the vector (CM-SP-SECv3.1 section 7).
#[derive(Clone)]
pub struct TrafficKey {
    schedule: Schedule,
    vector: [u8; BLOCK],
}

/// The round keys.
#[derive(Clone)]
enum Schedule {
    Aes128 {
        cipher: Box<Aes128>,
        /// For several frames at once, where the processor can do that.
        #[cfg(target_arch = "x86_64")]
        rounds: Option<Box<Rounds>>,
    },
    Aes256(Box<Aes256>),
}

impl fmt::Debug for TrafficKey {
    /// Says nothing about the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficKey").finish_non_exhaustive()
    }
}

impl TrafficKey {
    /// A key of 16 bytes, which BPI+ has, or of 32.
    ///
    /// # Errors
    /// [`KeyError`] for any other length.
    pub fn new(key: &[u8], vector: [u8; BLOCK]) -> Result<Self, KeyError> {
        if let Ok(key) = key.try_into() {
            return Ok(Self::aes128(key, vector));
        }
        match key.len() {
            8 => Err(KeyError::Des),
            length => {
                let cipher = Aes256::new_from_slice(key).map_err(|_| KeyError::Length { length })?;
                Ok(Self { schedule: Schedule::Aes256(Box::new(cipher)), vector })
            }
        }
    }

    /// A key of 16 bytes.
    pub fn aes128(key: &[u8; 16], vector: [u8; BLOCK]) -> Self {
        let schedule = Schedule::Aes128 {
            cipher: Box::new(Aes128::new(key.into())),
            #[cfg(target_arch = "x86_64")]
            rounds: Rounds::new(key, vector).map(Box::new),
        };
        Self { schedule, vector }
    }

    /// The key for several frames at once, if it has 16 bytes and the processor can do that.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn rounds(&self) -> Option<&Rounds> {
        match &self.schedule {
            Schedule::Aes128 { rounds, .. } => rounds.as_deref(),
            Schedule::Aes256(_) => None,
        }
    }

    #[inline]
    fn encrypt_block(&self, block: &mut Block) {
        match &self.schedule {
            Schedule::Aes128 { cipher, .. } => cipher.encrypt_block(block),
            Schedule::Aes256(cipher) => cipher.encrypt_block(block),
        }
    }

    #[inline]
    fn decrypt_block(&self, block: &mut Block) {
        match &self.schedule {
            Schedule::Aes128 { cipher, .. } => cipher.decrypt_block(block),
            Schedule::Aes256(cipher) => cipher.decrypt_block(block),
        }
    }

    /// Encrypts a region in place.
    pub fn encrypt(&self, region: &mut [u8]) {
        let mut chain = Block::from(self.vector);
        let (blocks, rest) = region.as_chunks_mut::<BLOCK>();
        for block in blocks {
            xor(&mut chain, block);
            self.encrypt_block(&mut chain);
            *block = chain.into();
        }
        self.terminate(chain, rest);
    }

    /// Decrypts a region in place.
    pub fn decrypt(&self, region: &mut [u8]) {
        let mut chain = Block::from(self.vector);
        let (blocks, rest) = region.as_chunks_mut::<BLOCK>();
        for block in blocks {
            let mut clear = Block::from(*block);
            self.decrypt_block(&mut clear);
            xor(&mut clear, &chain);
            chain = Block::from(*block);
            *block = clear.into();
        }
        self.terminate(chain, rest);
    }

    /// Residual block termination, the same in both directions: what is left is combined with the last encrypted block, or the
    /// vector if there was none, encrypted once more.
    fn terminate(&self, mut chain: Block, rest: &mut [u8]) {
        if rest.is_empty() {
            return;
        }
        self.encrypt_block(&mut chain);
        xor(rest, &chain);
    }
}

/// Combines `bytes` with as many of `with`.
#[inline]
fn xor(bytes: &mut [u8], with: &[u8]) {
    for (byte, with) in bytes.iter_mut().zip(with) {
        *byte ^= with;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_of_other_lengths_are_refused() {
        assert_eq!(TrafficKey::new(&[0; 8], [0; 16]).unwrap_err(), KeyError::Des);
        assert_eq!(TrafficKey::new(&[0; 24], [0; 16]).unwrap_err(), KeyError::Length { length: 24 });
        assert!(KeyError::Des.to_string().contains("DES"));
    }

    #[test]
    fn a_key_does_not_show_itself() {
        let key = TrafficKey::new(&[0x5a; 16], [0xa5; 16]).unwrap();
        assert_eq!(format!("{key:?}"), "TrafficKey { .. }");
    }

    proptest! {
        #[test]
        fn what_is_encrypted_can_be_decrypted(
            key in any::<[u8; 16]>(),
            vector in any::<[u8; 16]>(),
            region in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let key = TrafficKey::new(&key, vector).unwrap();
            let mut bytes = region.clone();
            key.encrypt(&mut bytes);
            prop_assert!(region.len() < 8 || bytes != region);
            key.decrypt(&mut bytes);
            prop_assert_eq!(bytes, region);
        }
    }
}
