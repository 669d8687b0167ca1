//! Lookups: each address from the root along its links

use warmlane_sys::prefetch::prefetch_read_at;

use super::node::{
    BRANCH_LEAVES, FAN_BITS, FAN_LINKS, KEY_BITS, LEAF_HOPS, LINKS, Line, Link, Node, ROOT_BITS,
};
use crate::NextHopId;

/// Addresses that are under way together
pub(super) const TOGETHER: usize = 64;

/// How a node is searched: how many of its last values are below a key
pub(super) trait Search {
    /// Of the 16 last values of a leaf
    fn leaf(node: &Node, key: u16) -> usize;
    /// Of the 32 of a branch
    fn branch(node: &Node, key: u16) -> usize;
    /// Of the 8 of a fan
    fn fan(node: &Node, key: u32) -> usize;
    /// Which of 64 links are of a kind, as bits
    fn of_kind(links: &[u32; TOGETHER], kind: u32) -> u64;
}

/// In plain Rust, which compilers turn into the vector instructions they may use
pub(super) struct Portable;

impl Search for Portable {
    #[inline(always)]
    fn leaf(node: &Node, key: u16) -> usize {
        usize::from(node.0[..LEAF_HOPS].iter().map(|&last| u16::from(last < key)).sum::<u16>())
    }

    #[inline(always)]
    fn branch(node: &Node, key: u16) -> usize {
        usize::from(node.0[..BRANCH_LEAVES].iter().map(|&last| u16::from(last < key)).sum::<u16>())
    }

    #[inline(always)]
    fn fan(node: &Node, key: u32) -> usize {
        node.pairs()[..FAN_LINKS].iter().map(|&last| u32::from(last < key)).sum::<u32>() as usize
    }

    #[inline(always)]
    fn of_kind(links: &[u32; TOGETHER], kind: u32) -> u64 {
        let bits = links
            .iter()
            .enumerate()
            .map(|(place, &link)| u64::from(Link::from_bits(link).kind() == kind) << place);
        bits.fold(0, |all, bit| all | bit)
    }
}

/// The next hop of one address
///
/// # Safety
/// `lines` must be those of a table: every link leads to a node that lies in them as a whole, and which is not written while
/// this runs, its links excepted if it is a field.
#[inline(always)]
pub(super) unsafe fn lookup<S: Search>(lines: &[Line], address: u128) -> NextHopId {
    let links = lines.as_flattened();
    // SAFETY: the root is complete (caller).
    let mut link = Link::load(unsafe { links.get_unchecked((address >> (u128::BITS - ROOT_BITS)) as usize) });
    let mut rest = address << ROOT_BITS;
    loop {
        let key = (rest >> 112) as u16;
        match link.kind() {
            Link::HOP => return link.next_hop(),
            Link::FIELD => {
                let slot = slot_in(link, (rest >> 64) as u64);
                rest <<= link.stride();
                // SAFETY: a field has a link for each value of `stride` bits (caller).
                link = Link::load(unsafe { links.get_unchecked(slot) });
            }
            Link::FAN => {
                // SAFETY: the line of a node lies in the memory and is not written (caller); so it is below.
                let node = unsafe { Node::of(lines.get_unchecked(link.line())) };
                link = node.link(S::fan(node, (rest >> 96) as u32));
                rest <<= FAN_BITS;
            }
            kind => {
                let mut line = link.line();
                if kind == Link::BRANCH {
                    // SAFETY: as above.
                    line += 1 + S::branch(unsafe { Node::of(lines.get_unchecked(line)) }, key);
                }
                // SAFETY: as above.
                let node = unsafe { Node::of(lines.get_unchecked(line)) };
                return node.hop(S::leaf(node, key));
            }
        }
    }
}

/// Which of all links is that for the bits in front of `rest`, in the field that `link` leads to
#[inline(always)]
fn slot_in(link: Link, rest: u64) -> usize {
    link.line() * LINKS + (rest >> ((u64::BITS - link.stride()) % u64::BITS)) as usize
}

/// Looks up many addresses; `answers[i]` becomes the answer to `addresses[i]`
///
/// # Safety
/// As for [`lookup`].
#[inline(always)]
pub(super) unsafe fn lookup_burst<S: Search>(
    lines: &[Line],
    addresses: &[[u8; 16]],
    answers: &mut [NextHopId],
) {
    for (addresses, answers) in addresses.chunks(TOGETHER).zip(answers.chunks_mut(TOGETHER)) {
        // SAFETY: as the caller promises.
        unsafe { look_up::<S>(lines, addresses, answers) };
    }
}

/// The places of a burst whose bits are set: those at the same kind of node, so that the code for it runs without a branch
/// that nobody can foresee
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (place < TOGETHER).then_some(place)
    }
}

#[inline(always)]
fn first_half(address: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *address;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The 64 bits of an address after those `used`, which are not all
#[inline(always)]
fn bits_after(used: u32, address: &[u8; 16]) -> u64 {
    // In most tables the bits that matter are in the first half; the second is not even read.
    if used <= u64::BITS - KEY_BITS {
        first_half(address) << used
    } else {
        (u128::from_be_bytes(*address) << (used % u128::BITS) >> u64::BITS) as u64
    }
}

/// Up to 64 lookups that take each step together, so that the lines of one step are under way at the same time
///
/// # Safety
/// As for [`lookup`].
#[inline(always)]
unsafe fn look_up<S: Search>(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    let links = lines.as_flattened();
    let count = addresses.len().min(answers.len()).min(TOGETHER);
    let (addresses, answers) = (&addresses[..count], &mut answers[..count]);
    // Bits used so far, the 64 bits after them, and the link that they led to.
    let mut used = [0u8; TOGETHER];
    let mut rest = [0u64; TOGETHER];
    let mut found = [0u32; TOGETHER];

    for (place, address) in addresses.iter().enumerate() {
        let high = first_half(address);
        let root = (high >> (u64::BITS - ROOT_BITS)) as usize;
        // SAFETY: the root is complete (caller).
        let link = Link::load(unsafe { links.get_unchecked(root) });
        // Most links of the root lead to fields. With another, the next step finds the same link again.
        let field = link.kind() == Link::FIELD;
        let slot = if field { slot_in(link, high << ROOT_BITS) } else { root };
        let stride = if field { link.stride() } else { 0 };
        found[place] = slot as u32;
        used[place] = (ROOT_BITS + stride) as u8;
        rest[place] = high << ROOT_BITS << stride;
        prefetch_read_at(links.as_ptr().wrapping_add(slot).cast());
    }
    for found in &mut found[..count] {
        // SAFETY: a slot of the root or of a field (above).
        let link = Link::load(unsafe { links.get_unchecked(*found as usize) });
        // What is no node has no line; the first of all is never far.
        let line = if link.is_hop() { 0 } else { link.line() };
        prefetch_read_at(lines.as_ptr().wrapping_add(line).cast());
        *found = link.bits();
    }
    let (mut fields, mut fans) = (S::of_kind(&found, Link::FIELD), S::of_kind(&found, Link::FAN));
    while fields | fans != 0 {
        for place in Places(fields) {
            let field = Link::from_bits(found[place]);
            // SAFETY: a field has a link for each value of `stride` bits (caller).
            let link = Link::load(unsafe { links.get_unchecked(slot_in(field, rest[place])) });
            let line = if link.is_hop() { 0 } else { link.line() };
            prefetch_read_at(lines.as_ptr().wrapping_add(line).cast());
            found[place] = link.bits();
            used[place] += field.stride() as u8;
            rest[place] = bits_after(used[place].into(), &addresses[place]);
        }
        for place in Places(fans) {
            // SAFETY: the line of a node lies in the memory and is not written (caller); so it is below.
            let node = unsafe { Node::of(lines.get_unchecked(Link::from_bits(found[place]).line())) };
            // The 32 bits may begin in the first half and end in the second.
            let bits = u128::from_be_bytes(addresses[place]) << used[place];
            let link = node.link(S::fan(node, (bits >> (u128::BITS - FAN_BITS)) as u32));
            let line = if link.is_hop() { 0 } else { link.line() };
            prefetch_read_at(lines.as_ptr().wrapping_add(line).cast());
            found[place] = link.bits();
            // After the last bit a link leads to a next hop, and what is left of the address does not matter.
            used[place] = (used[place] + FAN_BITS as u8) % u128::BITS as u8;
            rest[place] = bits_after(used[place].into(), &addresses[place]);
        }
        (fields, fans) = (S::of_kind(&found, Link::FIELD), S::of_kind(&found, Link::FAN));
    }
    let branches = S::of_kind(&found, Link::BRANCH);
    let leaves = S::of_kind(&found, Link::LEAF) | branches;
    for (answer, &found) in answers.iter_mut().zip(&found) {
        // Of those that are at nodes yet it is a number without meaning, to be replaced at once.
        *answer = Link::from_bits(found).next_hop();
    }
    for place in Places(branches) {
        let line = Link::from_bits(found[place]).line();
        // SAFETY: as above.
        let node = unsafe { Node::of(lines.get_unchecked(line)) };
        let leaf = line + 1 + S::branch(node, (rest[place] >> (u64::BITS - KEY_BITS)) as u16);
        prefetch_read_at(lines.as_ptr().wrapping_add(leaf).cast());
        found[place] = leaf as u32;
    }
    for place in Places(leaves) {
        // SAFETY: as above.
        let node = unsafe { Node::of(lines.get_unchecked(Link::from_bits(found[place]).line())) };
        answers[place] = node.hop(S::leaf(node, (rest[place] >> (u64::BITS - KEY_BITS)) as u16));
    }
}
