//! Which of lanes' tables holds the routes of which policy.

use std::collections::BTreeSet;

use warmlane_forward::control::TableNumber;

use super::policy::Policy;

/// One of lanes' tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneTable {
    pub(crate) number: TableNumber,
    /// What it is made of. The default policy asks nothing: the table is, or becomes, empty.
    pub(crate) policy: Policy,
    /// No interface's packets are looked up in it any more.
    is_idle: bool,
}

/// All of them, by their numbers.
///
/// A table goes round: in use, idle (until the next update, for lanes may still be in a burst that uses it), empty, in use
/// again for another policy.
#[derive(Debug)]
pub(crate) struct LaneTables(Vec<LaneTable>);

impl LaneTables {
    /// Table 0, of packets whose interface nothing is known of.
    pub(crate) fn new(policy: Policy) -> Self {
        Self(vec![LaneTable { number: 0, policy, is_idle: false }])
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LaneTable> {
        self.0.iter()
    }

    pub(crate) fn get(&self, number: TableNumber) -> Option<&LaneTable> {
        self.0.get(usize::from(number))
    }

    /// The table of a policy.
    pub(crate) fn find(&self, policy: &Policy) -> Option<TableNumber> {
        self.iter().find(|table| table.policy == *policy).map(|table| table.number)
    }

    /// Sees to it that each of these policies has a table, the first of them table 0: packets that are punted may come in by
    /// an interface that nothing is known of. `add` makes a table where none is to spare.
    ///
    /// Returns the tables that have another policy than before, and the error of `add`, after which some policies have none.
    pub(crate) fn assign<E>(
        &mut self,
        wanted: &[Policy],
        mut add: impl FnMut() -> Result<TableNumber, E>,
    ) -> (BTreeSet<TableNumber>, Result<(), E>) {
        let mut changed = BTreeSet::new();
        let mut result = Ok(());
        for (index, policy) in wanted.iter().enumerate() {
            let candidates = if index == 0 { 1 } else { self.0.len() };
            if self.iter().take(candidates).any(|table| table.policy == *policy) {
                continue;
            }
            let is_spare = |table: &LaneTable| table.number != 0 && !wanted.contains(&table.policy);
            let spare = if index == 0 { Some(0) } else { self.0.iter().position(is_spare) };
            if let Some(table) = spare.and_then(|spare| self.0.get_mut(spare)) {
                table.policy = policy.clone();
                changed.insert(table.number);
                continue;
            }
            match add() {
                Ok(number) => {
                    self.0.push(LaneTable { number, policy: policy.clone(), is_idle: false });
                    changed.insert(number);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for table in &mut self.0 {
            table.is_idle &= !wanted.contains(&table.policy);
        }
        (changed, result)
    }

    /// Gives tables that were idle at the end of the last update the policy of an empty one. Returns them.
    pub(crate) fn empty_idle(&mut self) -> BTreeSet<TableNumber> {
        let idle = self.0.iter_mut().filter(|table| table.is_idle && table.policy != Policy::default());
        idle.map(|table| {
            table.policy = Policy::default();
            table.number
        })
        .collect()
    }

    /// Notes which tables no interface uses from now on: those of none of these policies.
    pub(crate) fn note_idle(&mut self, wanted: &[Policy]) {
        for table in &mut self.0 {
            table.is_idle = table.number != 0 && !wanted.contains(&table.policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vrf(table: u32) -> Policy {
        let mut policy = Policy::default();
        policy.vrf = Some(table);
        policy
    }

    #[test]
    fn tables_go_round() {
        let mut tables = LaneTables::new(vrf(1));
        let mut next = 0;
        let mut assign = |tables: &mut LaneTables, wanted: &[Policy]| -> Vec<u16> {
            let add = || {
                next += 1;
                Ok::<_, ()>(next)
            };
            let (changed, result) = tables.assign(wanted, add);
            result.map(|()| changed.into_iter().collect()).unwrap()
        };
        let none: [u16; 0] = [];
        assert_eq!(assign(&mut tables, &[vrf(1), vrf(2), vrf(3)]), [1, 2]);
        assert_eq!(assign(&mut tables, &[vrf(1), vrf(2), vrf(3)]), none);
        // What isn't needed any more stays for one more update, and is then emptied.
        let wanted = [vrf(1), vrf(3)];
        assert_eq!(assign(&mut tables, &wanted), none);
        assert!(tables.empty_idle().is_empty());
        tables.note_idle(&wanted);
        assert_eq!(tables.empty_idle().into_iter().collect::<Vec<_>>(), [1]);
        assert_eq!((tables.find(&vrf(2)), tables.find(&vrf(3))), (None, Some(2)));
        // Wanted again before that, it is as it was.
        tables.note_idle(&[vrf(1)]);
        assert_eq!(assign(&mut tables, &[vrf(1), vrf(3)]), none);
        assert!(tables.empty_idle().is_empty());
        // A spare one goes before a new one, and the first policy is always table 0's.
        assert_eq!(assign(&mut tables, &[vrf(4), vrf(3), vrf(1)]), [0, 1]);
        assert_eq!(tables.find(&vrf(4)), Some(0));
    }
}
