//! Lies in bytes, whatever these mean.

use warmlane_sys::random::Random;

/// Changes a field of one to eight bytes somewhere: to anything, to a limit, to a neighbour of what it was, or in one bit.
///
/// # Panics
/// If there are no bytes.
pub fn mutate(random: &mut Random, bytes: &mut [u8]) {
    let sizes: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|size| *size <= bytes.len()).collect();
    let size = random.pick(&sizes);
    let place = random.below(bytes.len() - size + 1);
    let field = &mut bytes[place..place + size];
    let mut word = [0; 8];
    word[..size].copy_from_slice(field);
    let old = u64::from_le_bytes(word);
    let bit = 1 << random.below(8 * size);
    let new = match random.below(7) {
        0 => random.bits(),
        1 => 0,
        2 => u64::MAX,
        3 => old.wrapping_add(random.between(1, 16) as u64),
        4 => old.wrapping_sub(random.between(1, 16) as u64),
        // A power of two, which sizes and offsets are.
        5 => bit,
        _ => old ^ bit,
    };
    field.copy_from_slice(&new.to_le_bytes()[..size]);
    if *field == word[..size] {
        field[0] ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_changed_and_never_none() {
        let mut random = Random::new(1);
        for length in [1, 2, 3, 12, 128] {
            let mut changed = vec![false; length];
            for _ in 0..200 * length {
                let before: Vec<u8> = (0..length).map(|place| place as u8).collect();
                let mut after = before.clone();
                mutate(&mut random, &mut after);
                assert_ne!(after, before);
                let places = after.iter().zip(&before).map(|(after, before)| after != before);
                changed.iter_mut().zip(places).for_each(|(changed, now)| *changed |= now);
            }
            assert!(changed.iter().all(|changed| *changed), "{length}: {changed:?}");
        }
    }
}
