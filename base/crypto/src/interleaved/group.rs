//! Several frames at once, one block of each after the other: CBC's blocks wait for each other within a frame, but not for those of other
//! frames. Each block is read once, for the CRC and the cipher.
//!
//! The CRC is folded block by block (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction,
//! Intel 2009): all bytes so far have the same remainder as the 16 that are kept. Multipliers are powers of x modulo the CRC's
//! polynomial, bits reversed.
//!
//! ```text
//! frame  ADDRESSES 12 | payload … | CRC 4
//! blocks               |16|16|…|16| 0 to 15 bytes and the CRC, together 4 to 19
//! ```

use super::vector::Vector;
use super::{ADDRESSES, Job, LONGEST, WIDEST};
use crate::{BLOCK, CRC_LENGTH};

/// x^(128+32) and x^(128-32): a block, one block further.
const FOLD: [u64; 2] = [0x1_7519_97d0, 0xccaa_009e];
/// x^64.
const FOLD_WORD: u64 = 0x1_63cd_6124;
/// The polynomial, and the quotient of x^64 by it.
const REDUCE: [u64; 2] = [0x1_db71_0641, 0x1_f701_1641];
const FIRST_WORD: [u64; 2] = [0xffff_ffff, 0];
const LAST_WORD: [u64; 2] = [0, 0xffff_ffff_0000_0000];

/// Rounds of AES-128, and with them its round keys but one.
const ROUNDS: usize = 10;

const fn block_of([low, high]: [u64; 2]) -> [u8; 16] {
    (low as u128 | (high as u128) << 64).to_le_bytes()
}

/// A block of each lane.
type Blocks = [[u8; BLOCK]; WIDEST];

/// An address for each lane.
type Pointers = [*mut u8; WIDEST];

/// Where the lanes' frames, keys and vectors are. Lanes without a frame have the first one's key and work on the scratch.
struct Lanes {
    /// How many have a frame.
    used: usize,
    nowhere: *mut u8,
    starts: Pointers,
    ends: Pointers,
    keys: Pointers,
    vectors: Pointers,
}

impl Lanes {
    #[inline(always)]
    fn of(jobs: &mut [Job<'_>], scratch: &mut [u8; LONGEST]) -> Self {
        let nowhere = scratch.as_mut_ptr();
        let end = nowhere.wrapping_add(2 * BLOCK);
        let mut lanes = Self {
            used: jobs.len().min(WIDEST),
            nowhere,
            starts: [nowhere; WIDEST],
            ends: [end; WIDEST],
            keys: [nowhere; WIDEST],
            vectors: [nowhere; WIDEST],
        };
        // From the last, so that the first is what those without a frame have.
        for (lane, job) in jobs.iter_mut().enumerate().take(WIDEST).rev() {
            let start = job.frame.as_mut_ptr();
            (lanes.starts[lane], lanes.ends[lane]) = (start, start.wrapping_add(job.frame.len()));
            lanes.keys[lane] = job.key.rounds.as_ptr().cast::<u8>().cast_mut();
            lanes.vectors[lane] = job.key.vector.as_ptr().cast_mut();
        }
        for lane in lanes.used..WIDEST {
            (lanes.keys[lane], lanes.vectors[lane]) = (lanes.keys[0], lanes.vectors[0]);
        }
        lanes
    }

    /// So many bytes in front of the ends.
    #[inline(always)]
    fn before_ends(&self, bytes: usize) -> Pointers {
        self.ends.map(|end| end.wrapping_sub(bytes))
    }
}

/// What a group's registers hold from beginning to end.
struct Group<V, const COUNT: usize> {
    keys: [[V; COUNT]; ROUNDS + 1],
    /// The last block of payload before the cipher gets there.
    last: [V; COUNT],
    /// What is in the place of the CRC, at the end of a block.
    found: [V; COUNT],
}

/// Encrypts frames, and writes their CRCs before if `crc` says so, in `COUNT` registers. Those with fewest blocks come first.
///
/// # Safety
/// The processor must have the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn protect<V: Vector, const COUNT: usize>(
    jobs: &mut [Job<'_>],
    scratch: &mut [u8; LONGEST],
    crc: bool,
) {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        if crc {
            protect_by::<V, COUNT, true>(jobs, scratch);
        } else {
            protect_by::<V, COUNT, false>(jobs, scratch);
        }
    }
}

/// # Safety
/// As for [`protect`].
#[inline(always)]
unsafe fn protect_by<V: Vector, const COUNT: usize, const CRC: bool>(
    jobs: &mut [Job<'_>],
    scratch: &mut [u8; LONGEST],
) {
    let lanes = Lanes::of(jobs, scratch);
    let (before_check, in_last) = (lanes.before_ends(BLOCK + CRC_LENGTH), lanes.before_ends(BLOCK));
    // SAFETY: the caller vouches for the instructions. Pointers are to frames that are borrowed for us alone, to their keys, which are only
    // read, or to the scratch. Each frame is longer than its addresses, a block and a CRC, as `Batch::push` has seen to it.
    unsafe {
        let mut keys = [load(&lanes.keys, 0); ROUNDS + 1];
        for (round, key) in keys.iter_mut().enumerate().skip(1) {
            *key = load(&lanes.keys, round * BLOCK);
        }
        let group = Group::<V, COUNT> { keys, last: load(&before_check, 0), found: load(&in_last, 0) };
        let (mut chains, mut sums) = group.whole_blocks::<CRC>(jobs, &lanes);
        group.last_bytes::<CRC>(jobs, &lanes, load(&pointers(&mut chains), 0), load(&pointers(&mut sums), 0));
    }
}

impl<V: Vector, const COUNT: usize> Group<V, COUNT> {
    /// Encrypts whole blocks of payload. Gives the last ones, and what the CRC comes to by then.
    ///
    /// # Safety
    /// As for [`protect`], and `lanes` are those of `jobs`.
    #[inline(always)]
    unsafe fn whole_blocks<const CRC: bool>(&self, jobs: &[Job<'_>], lanes: &Lanes) -> (Blocks, Blocks) {
        let mut frames = lanes.starts.map(|start| start.wrapping_add(ADDRESSES));
        frames[lanes.used..].fill(lanes.nowhere);
        let (mut chains, mut all_sums) = ([[0; BLOCK]; WIDEST], [[0; BLOCK]; WIDEST]);
        let mut offset = 0;
        let mut lane = 0;
        // SAFETY: the caller vouches for the instructions and the pointers; no more blocks are read and written than all frames have
        // whose pointers still lead to them, and the scratch has as many as any.
        unsafe {
            let fold = V::splat(block_of(FOLD));
            // A CRC begins with all bits set, which is the same as the first four bytes inverted; zeros in front don't matter.
            let begin = V::splat(block_of([0xffff_ffff_0000_0000, 0]));
            let mut chain: [V; COUNT] = load(&lanes.vectors, 0);
            let mut sums: [V; COUNT] = load(&lanes.starts, 0);
            for sum in &mut sums {
                *sum = sum.move_up::<4>().xor(begin);
            }
            while lane < lanes.used {
                let end = jobs[lane].blocks() * BLOCK;
                while offset < end {
                    let plain: [V; COUNT] = load(&frames, offset);
                    for register in 0..COUNT {
                        if CRC {
                            sums[register] = folded(sums[register], fold).xor(plain[register]);
                        }
                        chain[register] = chain[register].xor(plain[register]);
                    }
                    chain = encrypted(chain, &self.keys);
                    store(&chain, &frames, offset);
                    offset += BLOCK;
                }
                // Frames that are over are put aside, and their lanes go on with the scratch.
                let (mut now, mut now_sums) = ([[0; BLOCK]; WIDEST], [[0; BLOCK]; WIDEST]);
                store(&chain, &pointers(&mut now), 0);
                store(&sums, &pointers(&mut now_sums), 0);
                while lane < lanes.used && jobs[lane].blocks() * BLOCK <= end {
                    (chains[lane], all_sums[lane]) = (now[lane], now_sums[lane]);
                    frames[lane] = lanes.nowhere;
                    lane += 1;
                }
            }
        }
        (chains, all_sums)
    }

    /// Finishes CRCs, and encrypts what is behind the whole blocks of payload: up to 15 bytes of it, and the CRC.
    ///
    /// # Safety
    /// As for [`protect`], and `lanes` are those of `jobs`.
    #[inline(always)]
    unsafe fn last_bytes<const CRC: bool>(
        &self,
        jobs: &[Job<'_>],
        lanes: &Lanes,
        mut chain: [V; COUNT],
        sums: [V; COUNT],
    ) {
        let mut rests = [[0; BLOCK]; WIDEST];
        let mut last_whole = [lanes.nowhere; WIDEST];
        for (lane, job) in jobs.iter().take(lanes.used).enumerate() {
            rests[lane] = [job.rest() as u8; BLOCK];
            let behind = (job.rest() + CRC_LENGTH) % BLOCK;
            last_whole[lane] = lanes.ends[lane].wrapping_sub(BLOCK + behind);
        }
        // SAFETY: the caller vouches for the instructions; the last whole block begins behind the addresses, for the frame has one.
        unsafe {
            let rests: [V; COUNT] = load(&pointers(&mut rests), 0);
            let numbers = V::splat(std::array::from_fn(|number| number as u8));
            let block_length = V::splat([BLOCK as u8; 16]);
            // Moves a block's bytes by as many towards its first or its last; zeros follow.
            let down =
                |block: V, by: V| block.pick_bytes(numbers.add_bytes(V::splat([0x70; 16]).add_bytes(by)));
            let up = |block: V, by: V| block.pick_bytes(numbers.subtract_bytes(by));

            // Payload and CRC, as far as they fit into the last block of all.
            let mut plain = [V::splat([0; 16]); COUNT];
            let mut longer = chain;
            for register in 0..COUNT {
                let (rest, last) = (rests[register], self.last[register]);
                let missing = block_length.subtract_bytes(rest);
                let tail = down(last, missing);
                let check = if CRC {
                    // The payload's last bytes move in from behind.
                    let front = folded(up(sums[register], missing), V::splat(block_of(FOLD)));
                    let back = down(sums[register], rest).xor(up(tail, missing));
                    crc(front.xor(back))
                } else {
                    self.found[register]
                };
                let check = check.and(V::splat(block_of(LAST_WORD)));
                plain[register] = last.move_down::<4>().xor(check);
                let over = rest.subtract_bytes(V::splat([(BLOCK - CRC_LENGTH) as u8; 16]));
                longer[register] = chain[register].xor(tail).xor(up(check, over));
            }
            // Where twelve and more bytes are left, they make another block with the CRC.
            if jobs.iter().take(lanes.used).any(|job| job.rest() >= BLOCK - CRC_LENGTH) {
                longer = encrypted(longer, &self.keys);
                for register in 0..COUNT {
                    let is_longer = rests[register].add_bytes(V::splat([CRC_LENGTH as u8; 16]));
                    let is_longer = is_longer.shift_pairs().and(V::splat([1; 16]));
                    let mask = V::splat([0; 16]).subtract_bytes(is_longer);
                    let former = chain[register];
                    chain[register] = former.xor(former.xor(longer[register]).and(mask));
                }
                // In other frames what is there is written again.
                store(&chain, &last_whole, 0);
            }
            // What remains is combined with the last block, encrypted once more (residual block termination).
            let streams = encrypted(chain, &self.keys);
            for register in 0..COUNT {
                let rest = rests[register].add_bytes(V::splat([CRC_LENGTH as u8; 16]));
                let rest = rest.and(V::splat([BLOCK as u8 - 1; 16]));
                let missing = block_length.subtract_bytes(rest);
                let residue = up(down(plain[register], missing).xor(streams[register]), missing);
                chain[register] = down(chain[register], rest).xor(residue);
            }
            store(&chain, &lanes.before_ends(BLOCK), 0);
        }
    }
}

/// The lanes' blocks at `offset`.
///
/// # Safety
/// The processor must have the instructions of `V`; there are 16 bytes to be read at the offset from each pointer.
#[inline(always)]
unsafe fn load<V: Vector, const COUNT: usize>(pointers: &Pointers, offset: usize) -> [V; COUNT] {
    let from = |register: usize| &pointers[register * V::BLOCKS..][..V::BLOCKS];
    // A closure that loads, for `array::from_fn`, would be compiled by itself, without these instructions: a call for each part of a register.
    // SAFETY: the caller vouches for both, here and below.
    let mut blocks = [unsafe { V::load(from(0), offset) }; COUNT];
    for (register, block) in blocks.iter_mut().enumerate().skip(1) {
        // SAFETY: as above.
        *block = unsafe { V::load(from(register), offset) };
    }
    blocks
}

/// Writes blocks to where [`load`] reads them.
///
/// # Safety
/// As for [`load`], and they may be written.
#[inline(always)]
unsafe fn store<V: Vector, const COUNT: usize>(blocks: &[V; COUNT], pointers: &Pointers, offset: usize) {
    for (register, block) in blocks.iter().enumerate() {
        // SAFETY: the caller vouches for it.
        unsafe { block.store(&pointers[register * V::BLOCKS..][..V::BLOCKS], offset) }
    }
}

/// Pointers to blocks.
#[inline(always)]
fn pointers(blocks: &mut Blocks) -> Pointers {
    blocks.each_mut().map(|block| block.as_mut_ptr())
}

/// Encrypts a block of each frame.
///
/// # Safety
/// The processor must have the instructions of `V`.
#[inline(always)]
unsafe fn encrypted<V: Vector, const COUNT: usize>(
    mut blocks: [V; COUNT],
    keys: &[[V; COUNT]; ROUNDS + 1],
) -> [V; COUNT] {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        for register in 0..COUNT {
            blocks[register] = blocks[register].xor(keys[0][register]);
        }
        for keys in &keys[1..ROUNDS] {
            for register in 0..COUNT {
                blocks[register] = blocks[register].aes_round(keys[register]);
            }
        }
        for register in 0..COUNT {
            blocks[register] = blocks[register].aes_last_round(keys[ROUNDS][register]);
        }
    }
    blocks
}

/// Moves a sum on by a block.
///
/// # Safety
/// The processor must have the instructions of `V`.
#[inline(always)]
unsafe fn folded<V: Vector>(sum: V, fold: V) -> V {
    // SAFETY: the caller vouches for the instructions.
    unsafe { sum.multiply::<0x00>(fold).xor(sum.multiply::<0x11>(fold)) }
}

/// The CRC that a sum stands for, in each word of the block.
///
/// # Safety
/// The processor must have the instructions of `V`.
#[inline(always)]
unsafe fn crc<V: Vector>(sum: V) -> V {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let first_word = V::splat(block_of(FIRST_WORD));
        let sum = sum.multiply::<0x10>(V::splat(block_of(FOLD))).xor(sum.move_down::<8>());
        let sum = sum
            .and(first_word)
            .multiply::<0x00>(V::splat(block_of([FOLD_WORD, 0])))
            .xor(sum.move_down::<4>());
        // Barrett's reduction.
        let reduce = V::splat(block_of(REDUCE));
        let quotient = sum.and(first_word).multiply::<0x10>(reduce).and(first_word);
        let remainder = sum.xor(quotient.multiply::<0x00>(reduce)).second_word();
        remainder.xor(V::splat([0xff; 16]))
    }
}
