//! Groups of next hops that share the traffic of a route (equal and unequal cost multipath).
//!
//! A group is an array of buckets, each holding one next hop; the flow hash picks the bucket. As in "resilient hashing"
//! (RFC 2992 names the problem: which flows change their path when the set of next hops changes), a change of members
//! rewrites only the buckets it has to, so flows in all others stay where they are.

use thiserror::Error;
use warmlane_table::NextHopId;

/// Fewest buckets of a group. Shares are then right to 0.4 percentage points.
const MINIMUM_BUCKETS: usize = 256;

/// Buckets for each unit of weight that a group aims at.
const BUCKETS_PER_UNIT: usize = 16;

/// Most buckets of a group.
const MAXIMUM_BUCKETS: usize = 1 << 16;

/// One next hop of a group and its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Where the traffic goes.
    pub hop: NextHopId,
    /// How many parts of the traffic, relative to the other members' weights.
    pub weight: u16,
}

/// Why a group cannot have these members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GroupError {
    /// No members at all.
    #[error("a group of next hops needs at least one member")]
    Empty,
    /// A member that would get nothing.
    #[error("member {index} of the group has weight 0: give it at least 1, or leave it out")]
    NoWeight {
        /// Which member, from zero.
        index: usize,
    },
    /// The same next hop twice.
    #[error("member {index} of the group is there already: add up the weights instead")]
    Repeated {
        /// Which member, from zero.
        index: usize,
    },
    /// More units of weight than buckets.
    #[error(
        "the weights of the group add up to {total}, more than {maximum}: use smaller ones in the same ratio"
    )]
    TooHeavy {
        /// Sum of the weights.
        total: usize,
        /// Most units that can be told apart.
        maximum: usize,
    },
}

/// Buckets filled with next hops by weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// Always a power of two, so that a mask picks one.
    buckets: Vec<NextHopId>,
}

impl Group {
    /// A group with these members.
    ///
    /// # Errors
    /// [`GroupError`], naming the member that cannot be.
    pub fn new(members: &[Member]) -> Result<Self, GroupError> {
        let mut group = Self { buckets: Vec::new() };
        group.set_members(members)?;
        Ok(group)
    }

    /// Changes the members. Buckets change hands only where a member's share grew or shrank.
    ///
    /// # Errors
    /// [`GroupError`]; the group is then as before.
    pub fn set_members(&mut self, members: &[Member]) -> Result<(), GroupError> {
        let total = check(members)?;
        self.grow_to((total * BUCKETS_PER_UNIT).next_power_of_two().clamp(MINIMUM_BUCKETS, MAXIMUM_BUCKETS));
        let mut open = shares(members, total, self.buckets.len());

        // Each member keeps buckets it has up to its share. The rest is free: those of members that left, those above
        // a share that shrank.
        let mut free = Vec::new();
        for (index, bucket) in self.buckets.iter().enumerate() {
            match members.iter().position(|member| member.hop == *bucket) {
                Some(member) if open[member] > 0 => open[member] -= 1,
                _ => free.push(index),
            }
        }
        let takers =
            members.iter().zip(open).flat_map(|(member, open)| std::iter::repeat_n(member.hop, open));
        for (index, hop) in free.into_iter().zip(takers) {
            self.buckets[index] = hop;
        }
        Ok(())
    }

    /// The next hop of a flow.
    #[inline]
    pub fn pick(&self, hash: u32) -> NextHopId {
        let mask = self.buckets.len().wrapping_sub(1);
        self.buckets.get(hash as usize & mask).copied().unwrap_or(NextHopId::NONE)
    }

    /// The next hop of each bucket.
    pub fn buckets(&self) -> &[NextHopId] {
        &self.buckets
    }

    /// More buckets, if there are fewer. Repeating the present ones keeps every flow in place: the bits of the hash
    /// that are new in the mask choose between copies of the same bucket.
    fn grow_to(&mut self, count: usize) {
        if self.buckets.is_empty() {
            self.buckets.resize(count, NextHopId::NONE);
        }
        while self.buckets.len() < count {
            self.buckets.extend_from_within(..);
        }
    }
}

/// The sum of the weights, if the members are in order.
fn check(members: &[Member]) -> Result<usize, GroupError> {
    if members.is_empty() {
        return Err(GroupError::Empty);
    }
    for (index, member) in members.iter().enumerate() {
        if member.weight == 0 {
            return Err(GroupError::NoWeight { index });
        }
        if members[..index].iter().any(|other| other.hop == member.hop) {
            return Err(GroupError::Repeated { index });
        }
    }
    let total = members.iter().map(|member| usize::from(member.weight)).sum();
    if total > MAXIMUM_BUCKETS {
        return Err(GroupError::TooHeavy { total, maximum: MAXIMUM_BUCKETS });
    }
    Ok(total)
}

/// How many of `count` buckets each member gets: rounded down, then one more for those with the largest remainder.
fn shares(members: &[Member], total: usize, count: usize) -> Vec<usize> {
    let parts = |member: &Member| usize::from(member.weight) * count;
    let mut shares: Vec<usize> = members.iter().map(|member| parts(member) / total).collect();
    let missing = count - shares.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(parts(&members[index]) % total));
    for index in order.into_iter().take(missing) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(weights: &[u16]) -> Vec<Member> {
        let numbered = weights.iter().enumerate();
        numbered.map(|(n, &weight)| Member { hop: NextHopId::new(n as u32).unwrap(), weight }).collect()
    }

    fn count(group: &Group, member: Member) -> usize {
        group.buckets().iter().filter(|hop| **hop == member.hop).count()
    }

    #[test]
    fn shares_follow_weights() {
        let members = members(&[1, 2, 5]);
        let group = Group::new(&members).unwrap();
        let counts: Vec<usize> = members.iter().map(|&member| count(&group, member)).collect();
        assert_eq!(counts, [32, 64, 160]);
        assert_eq!(group.pick(0), group.buckets()[0]);
        assert_eq!(group.pick(u32::MAX), group.buckets()[255]);
    }

    #[test]
    fn a_member_that_leaves_takes_only_its_own_flows_along() {
        for n in 2..=40 {
            let before_members = members(&vec![1; n]);
            for gone in [0, n / 2, n - 1] {
                let before = Group::new(&before_members).unwrap();
                let mut after = before.clone();
                let mut left = before_members.clone();
                let removed = left.remove(gone);
                after.set_members(&left).unwrap();
                for (old, new) in before.buckets().iter().zip(after.buckets()) {
                    assert!(old == new || *old == removed.hop);
                    assert_ne!(*new, removed.hop);
                }
            }
        }
    }

    #[test]
    fn a_new_member_takes_its_share_and_no_more() {
        for n in 1..=40 {
            let mut group = Group::new(&members(&vec![1; n])).unwrap();
            let all = members(&vec![1; n + 1]);
            let before = group.clone();
            group.set_members(&all).unwrap();
            // Where the group grew, a flow's bucket before is found with the mask before.
            let old = |index: usize| before.buckets()[index % before.buckets().len()];
            let moved: Vec<usize> =
                (0..group.buckets().len()).filter(|&i| group.buckets()[i] != old(i)).collect();
            let share = group.buckets().len().div_ceil(n + 1);
            // Where rounding gives an old member one bucket more, one more than the newcomer's share moves.
            let slack = n;
            assert!(moved.len() <= share + slack, "{n}: {} moved", moved.len());
            assert!(count(&group, all[n]) >= group.buckets().len() / (n + 1));
        }
    }

    #[test]
    fn impossible_members_are_named() {
        assert_eq!(Group::new(&[]), Err(GroupError::Empty));
        assert_eq!(Group::new(&members(&[1, 0])), Err(GroupError::NoWeight { index: 1 }));
        let twice = [members(&[1]), members(&[1])].concat();
        assert_eq!(Group::new(&twice), Err(GroupError::Repeated { index: 1 }));
        let error = Group::new(&members(&[65_535, 65_535])).unwrap_err();
        assert_eq!(error, GroupError::TooHeavy { total: 131_070, maximum: 65_536 });
    }

    proptest! {
        #[test]
        fn every_bucket_has_a_member_and_every_member_its_share(
            first in prop::collection::vec(1_u16..100, 1..30),
            second in prop::collection::vec(1_u16..100, 1..30),
        ) {
            let mut group = Group::new(&members(&first)).unwrap();
            let second = members(&second);
            group.set_members(&second).unwrap();
            let total: usize = second.iter().map(|member| usize::from(member.weight)).sum();
            let buckets = group.buckets().len();
            prop_assert!(buckets.is_power_of_two());
            let mut sum = 0;
            for member in second {
                let exact = usize::from(member.weight) * buckets / total;
                let got = count(&group, member);
                prop_assert!(got == exact || got == exact + 1);
                sum += got;
            }
            prop_assert_eq!(sum, buckets);
        }
    }
}
