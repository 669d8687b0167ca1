//! Keys for a laboratory: made from a number that both ends know, instead of by BPKM.

use warmlane_crypto::{BLOCK, TrafficKey};

/// Gives both ends the same keys. Who knows the seed knows all keys: this is for tests, and no key management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeySource {
    /// What both ends know.
    pub seed: u64,
}

impl KeySource {
    /// The key that has this number of an association's keys. Its sequence number is the number's low four bits.
    pub fn key(&self, said: u16, number: u64) -> TrafficKey {
        let [key, vector] = [0_u8, 1].map(|part| {
            let mut block = [part; BLOCK];
            block[..8].copy_from_slice(&number.to_be_bytes());
            block[8..10].copy_from_slice(&said.to_be_bytes());
            self.encrypted(block)
        });
        Self::traffic_key(&key, vector)
    }

    fn encrypted(self, block: [u8; BLOCK]) -> [u8; BLOCK] {
        let mut key = [0; BLOCK];
        key[..8].copy_from_slice(&self.seed.to_be_bytes());
        let mut region = block;
        Self::traffic_key(&key, [0; BLOCK]).encrypt(&mut region);
        region
    }

    fn traffic_key(key: &[u8; BLOCK], vector: [u8; BLOCK]) -> TrafficKey {
        TrafficKey::aes128(key, vector)
    }
}
