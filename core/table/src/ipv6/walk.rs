//! Lookups: each address from the root along its links

use warmlane_sys::prefetch::prefetch_read_at;

use super::node::{BRANCH_LEAVES, FAN_LINKS, KEY_BITS, LEAF_HOPS, LINKS, Line, Link, Node, ROOT_BITS};
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

    /// As the [`enter`] below
    ///
    /// # Safety
    /// As for that one.
    #[inline(always)]
    unsafe fn enter(lines: &[Line], addresses: &[[u8; 16]], burst: &mut Burst) {
        // SAFETY: as the caller promises.
        unsafe { enter(lines, addresses, burst, 0) };
    }
}

/// Up to 64 addresses on their way
#[repr(align(64))]
pub(super) struct Burst {
    /// The link that each has come to
    pub(super) found: [u32; TOGETHER],
    /// The bits after those that led there, from the top: 16 at least, which is as many as any step needs but one by a fan
    pub(super) next: [u32; TOGETHER],
    /// How many bits led there
    pub(super) used: [u8; TOGETHER],
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
            .map(|(index, &link)| u64::from(Link::from_bits(link).kind() == kind) << index);
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
                let slot = slot_in(link, (rest >> 96) as u32);
                rest <<= link.stride();
                // SAFETY: a field has a link for each value of `stride` bits (caller).
                link = Link::load(unsafe { links.get_unchecked(slot) });
            }
            Link::FAN => {
                // SAFETY: the line of a node lies in the memory and is not written (caller); so it is below.
                let node = unsafe { Node::of(lines.get_unchecked(link.line())) };
                let stride = link.stride();
                link = node.link(S::fan(node, (rest >> 96) as u32));
                rest <<= stride;
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

/// Which of all links is that for the bits in front of `next`, in the field that `link` leads to
#[inline(always)]
fn slot_in(link: Link, next: u32) -> usize {
    link.line() * LINKS + (next >> ((u32::BITS - link.stride()) % u32::BITS)) as usize
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

/// The indices of a burst whose bits are set: those at the same kind of node, so that the code for it runs without a branch
/// that nobody can foresee
struct Indices(u64);

impl Iterator for Indices {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let index = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (index < TOGETHER).then_some(index)
    }
}

#[inline(always)]
fn first_half(address: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *address;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The 32 bits of an address after those `used`
#[inline(always)]
fn bits_after(used: u8, address: &[u8; 16]) -> u32 {
    // After the last bit a link leads to a next hop, and what this returns does not matter.
    (u128::from_be_bytes(*address) << (u32::from(used) % u128::BITS) >> (u128::BITS - u32::BITS)) as u32
}

/// The first steps of all addresses but the first `done`, along the root and a field
///
/// # Safety
/// As for [`lookup`]. There must not be more addresses than indices.
#[inline(always)]
pub(super) unsafe fn enter(lines: &[Line], addresses: &[[u8; 16]], burst: &mut Burst, done: usize) {
    let links = lines.as_flattened();
    for (index, address) in addresses.iter().enumerate().take(TOGETHER).skip(done) {
        let high = first_half(address);
        let root = (high >> (u64::BITS - ROOT_BITS)) as usize;
        // SAFETY: the root is complete (caller).
        let link = Link::load(unsafe { links.get_unchecked(root) });
        // Most links of the root lead to fields. With another, the next step finds the same link again.
        let field = link.kind() == Link::FIELD;
        let slot = if field { slot_in(link, (high << ROOT_BITS >> 32) as u32) } else { root };
        let stride = if field { link.stride() } else { 0 };
        burst.found[index] = slot as u32;
        burst.next[index] = (high << ROOT_BITS << stride >> 32) as u32;
        burst.used[index] = (ROOT_BITS + stride) as u8;
        prefetch_read_at(links.as_ptr().wrapping_add(slot).cast());
    }
    for found in burst.found[..addresses.len().min(TOGETHER)].iter_mut().skip(done) {
        // SAFETY: a slot of the root or of a field (above).
        *found = Link::load(unsafe { links.get_unchecked(*found as usize) }).bits();
    }
}

/// Asks for the line that a link leads to
#[inline(always)]
fn prefetch(lines: &[Line], link: Link) {
    // What is no node has no line; the first of all is never far.
    let line = if link.is_hop() { 0 } else { link.line() };
    prefetch_read_at(lines.as_ptr().wrapping_add(line).cast());
}

/// Up to 64 lookups that take each step together, so that the lines of one step are under way at the same time
///
/// After the first two steps nothing is read as a vector that was written piece by piece: a processor of Intel waits then until
/// all that was written before has left for the cache, and so for all lines under way.
///
/// # Safety
/// As for [`lookup`].
#[inline(always)]
unsafe fn look_up<S: Search>(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    let links = lines.as_flattened();
    let count = addresses.len().min(answers.len()).min(TOGETHER);
    let (addresses, answers) = (&addresses[..count], &mut answers[..count]);
    let mut burst = Burst { found: [0; TOGETHER], next: [0; TOGETHER], used: [0; TOGETHER] };
    // SAFETY: as the caller promises.
    unsafe { S::enter(lines, addresses, &mut burst) };
    let Burst { found, next, used } = &mut burst;
    // The indices at each kind of link, as bits
    let mut at = [0; Link::KINDS];
    for kind in [Link::FIELD, Link::FAN, Link::LEAF, Link::BRANCH] {
        at[kind as usize] = S::of_kind(found, kind);
    }
    for (answer, &found) in answers.iter_mut().zip(&*found) {
        // Of those that are at nodes yet it is a number without meaning, to be replaced.
        *answer = Link::from_bits(found).next_hop();
    }
    // Where in the memory the lines are that links lead to. What is no node has none; the first of all is never far.
    let mut starts = found.map(|found| {
        let link = Link::from_bits(found);
        if link.is_hop() { 0 } else { start_of(link.line()) }
    });
    for &start in &starts[..count] {
        prefetch_read_at(lines.as_ptr().cast::<u8>().wrapping_add(start as usize));
    }
    loop {
        let fields = std::mem::take(&mut at[Link::FIELD as usize]);
        let fans = std::mem::take(&mut at[Link::FAN as usize]);
        if fields | fans == 0 {
            break;
        }
        // Apart from each other, so that no branch waits for memory.
        for index in Indices(fields) {
            let field = Link::from_bits(found[index]);
            // SAFETY: a field has a link for each value of `stride` bits (caller).
            let link = Link::load(unsafe { links.get_unchecked(slot_in(field, next[index])) });
            used[index] += field.stride() as u8;
            next[index] = bits_after(used[index], &addresses[index]);
            prefetch(lines, link);
            (found[index], answers[index]) = (link.bits(), link.next_hop());
            starts[index] = start_of(link.line());
            at[link.kind() as usize % Link::KINDS] |= 1 << index;
        }
        for index in Indices(fans) {
            let fan = Link::from_bits(found[index]);
            // SAFETY: the line of a node lies in the memory and is not written (caller); so it is below.
            let node = unsafe { Node::of(lines.get_unchecked(fan.line())) };
            let link = node.link(S::fan(node, bits_after(used[index], &addresses[index])));
            used[index] += fan.stride() as u8;
            next[index] = bits_after(used[index], &addresses[index]);
            prefetch(lines, link);
            (found[index], answers[index]) = (link.bits(), link.next_hop());
            starts[index] = start_of(link.line());
            at[link.kind() as usize % Link::KINDS] |= 1 << index;
        }
    }
    let key = |next: u32| (next >> (u32::BITS - KEY_BITS)) as u16;
    let branches = at[Link::BRANCH as usize];
    let leaves = at[Link::LEAF as usize] | branches;
    for index in Indices(branches) {
        // SAFETY: as above.
        let node = unsafe { node_at(lines, starts[index]) };
        let leaf = starts[index] + start_of(1 + S::branch(node, key(next[index])));
        prefetch_read_at(lines.as_ptr().cast::<u8>().wrapping_add(leaf as usize));
        starts[index] = leaf;
    }
    for index in Indices(leaves) {
        // SAFETY: as above.
        let node = unsafe { node_at(lines, starts[index]) };
        answers[index] = node.hop(S::leaf(node, key(next[index])));
    }
}

/// How many bytes before a line there are
#[inline(always)]
fn start_of(line: usize) -> u32 {
    const { assert!(Link::LINES <= (u32::MAX as usize + 1) / size_of::<Line>()) };
    (line * size_of::<Line>()) as u32
}

/// The node so many bytes from the start
///
/// # Safety
/// As for [`Node::of`], and it must be in `lines`.
#[inline(always)]
unsafe fn node_at(lines: &[Line], start: u32) -> &Node {
    // SAFETY: as the caller promises.
    unsafe { Node::of(&*lines.as_ptr().byte_add(start as usize)) }
}
