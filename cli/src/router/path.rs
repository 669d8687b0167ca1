//! Which way packets of each interface take, as it is opened and said.

use crate::messages;
use std::collections::{BTreeSet, HashSet};
use warmlane::assembly::router::{Remark, UserPortsError};
use warmlane::drivers::xdp::XdpError;
use warmlane::functions::router::paths::Plan;
use warmlane::port::PortView;

/// Says what there is to say.
pub(super) fn tell(remark: Remark) {
    match remark {
        Remark::Note(sentence) => messages::note(sentence),
        Remark::Warning(sentence) => messages::complain(sentence),
    }
}

/// Lets `tell` say each remark once: what is opened anew gives cause for the same again.
pub(super) fn each_once(mut tell: impl FnMut(Remark)) -> impl FnMut(Remark) {
    let mut said = HashSet::new();
    move |remark| {
        if said.insert(remark.clone()) {
            tell(remark);
        }
    }
}

/// What AF_XDP says, if that is what is in the way of a port.
fn of_xdp(error: &anyhow::Error) -> Option<&XdpError> {
    match error.downcast_ref()? {
        UserPortsError::Xdp(error) => Some(error),
        _ => None,
    }
}

/// Opens by these plans what lanes need. Where they would be best, as the driver can exchange packets without copies, and it then refuses
/// that, all is planned again without lanes there, and opened anew. Returns what was opened, with the plans that hold and what was refused.
/// What there is to say goes to `tell` at once.
///
/// # Errors
/// What is in the way of opening, or of planning again.
pub(super) fn open_by<T>(
    mut plans: Vec<Plan>,
    is_best: impl Fn(&str) -> bool,
    mut open: impl FnMut(&[Plan], &mut dyn FnMut(Remark)) -> anyhow::Result<T>,
    mut plan_again: impl FnMut(&BTreeSet<String>, &mut dyn FnMut(Remark)) -> anyhow::Result<Vec<Plan>>,
    tell: &mut dyn FnMut(Remark),
) -> anyhow::Result<(Vec<Plan>, BTreeSet<String>, T)> {
    let mut refused = BTreeSet::new();
    loop {
        let error = match open(&plans, tell) {
            Ok(opened) => return Ok((plans, refused, opened)),
            Err(error) => error,
        };
        let (name, reason) = match of_xdp(&error) {
            Some(XdpError::NoZeroCopy { name, reason }) => (name, reason.clone()),
            Some(XdpError::NoXdp { name, source, .. }) => (name, source.to_string()),
            _ => return Err(error),
        };
        // Each once, so that this ends.
        if !is_best(name) || !refused.insert(name.clone()) {
            return Err(error);
        }
        tell(Remark::Note(format!(
            "interface '{name}': lanes would get copies of packets ({reason}), so it takes no part in path user, unless --path {name}=user says so"
        )));
        plans = plan_again(&refused, tell)?;
    }
}

/// Says which way each takes and why, a line each. `ports` are those of the user path.
pub(super) fn print_notes(plans: &[Plan], ports: &[PortView]) {
    for Plan { interface, path, reason, .. } in plans {
        let port = ports.iter().find(|port| port.name == *interface);
        // Of what was obtained, the first two words are how packets are exchanged with the kernel.
        let obtained = port.and_then(|port| port.notes.first()).map_or(String::new(), |note| {
            let words: Vec<&str> = note.split(", ").take(2).collect();
            format!("; {}", words.join(", "))
        });
        messages::note_of(
            interface,
            format_args!("interface '{interface}': path {path}: {reason}{obtained}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::functions::router::paths::Path;

    /// Two interfaces, of which the second is on path user.
    fn plans(path: Path) -> Vec<Plan> {
        let plan = Plan { interface: "eth0".to_owned(), link: 1, path, reason: "as the test says" };
        let second = Plan { interface: "eth1".to_owned(), path: Path::User, ..plan.clone() };
        vec![plan, second]
    }

    /// A driver that says it can, and can't: without huge pages, say.
    fn open(plans: &[Plan], tell: &mut dyn FnMut(Remark)) -> anyhow::Result<usize> {
        tell(Remark::Note("eth1 is slow".to_owned()));
        match plans.iter().find(|plan| plan.interface == "eth0" && plan.path == Path::User) {
            Some(plan) => Err(UserPortsError::from(XdpError::NoZeroCopy {
                name: plan.interface.clone(),
                reason: "set up huge pages".to_owned(),
            })
            .into()),
            None => Ok(plans.iter().filter(|plan| plan.path == Path::User).count()),
        }
    }

    fn never(_: &BTreeSet<String>, _: &mut dyn FnMut(Remark)) -> anyhow::Result<Vec<Plan>> {
        panic!("it isn't planned again")
    }

    #[test]
    fn what_a_driver_refuses_is_planned_again_without_lanes() {
        let again = |refused: &BTreeSet<String>, _: &mut dyn FnMut(Remark)| {
            assert_eq!(refused.iter().collect::<Vec<_>>(), ["eth0"]);
            Ok(plans(Path::Xdp))
        };
        let mut said = Vec::new();
        let mut tell = each_once(|remark| said.push(remark));
        let (taken, refused, lanes) = open_by(plans(Path::User), |_| true, open, again, &mut tell).unwrap();
        drop(tell);
        // What gave cause for a remark twice is said once, also if it comes before what is refused.
        assert!(
            matches!(&said[..], [Remark::Note(slow), Remark::Note(copies)]
                if slow == "eth1 is slow" && copies.contains("copies of packets")),
            "{said:?}"
        );
        assert_eq!((taken, lanes), (plans(Path::Xdp), 1));
        assert!(refused.contains("eth0") && refused.len() == 1, "{refused:?}");
        // Who gets it all the same, or asks for path user, is told why that can't be.
        let all_the_same = |_: &BTreeSet<String>, _: &mut dyn FnMut(Remark)| Ok(plans(Path::User));
        let stubborn = open_by(plans(Path::User), |_| true, open, all_the_same, &mut |_| {});
        let asked_for = open_by(plans(Path::User), |_| false, open, never, &mut |_| {});
        for refused in [stubborn, asked_for] {
            let sentence = refused.unwrap_err().to_string();
            assert!(sentence.contains("\"eth0\"") && sentence.contains("huge pages"), "{sentence}");
        }
        // What is wrong with others than the driver stays an error.
        let other = |_: &[Plan], _: &mut dyn FnMut(Remark)| Err::<(), _>(anyhow::anyhow!("no memory"));
        let refused = open_by(plans(Path::User), |_| true, other, never, &mut |_| {});
        assert_eq!(refused.unwrap_err().to_string(), "no memory");
    }
}
