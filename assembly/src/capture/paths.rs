//! Packets that a router forwards in the kernel, which no lane sees: its programs copy them where they come in.

use warmlane_lane::Filter as ProbeFilter;
use warmlane_router::paths::{Action, ActionReason, PathCopies, PathCopy, PathView};

use super::{CaptureRequest, Seen};

/// An interface on a kernel path.
pub(super) struct PathSource {
    copies: PathCopies,
    filter: Option<ProbeFilter>,
    /// Whether what comes in is wanted, and what is dropped.
    seen: Vec<Seen>,
    /// How the path is called.
    path: String,
    /// The number of the capture's interface.
    pub(super) interface: u32,
    /// Packets that were wanted, until there were enough.
    pub(super) taken: u64,
}

/// Which packets of an interface on a kernel path are wanted.
pub(super) fn seen(request: &CaptureRequest, view: &PathView) -> Vec<Seen> {
    let name = view.interface();
    if !request.ports.is_empty() && !request.ports.iter().any(|port| port == name) {
        return Vec::new();
    }
    let has_edges = !request.edges.is_empty() || !request.stages.is_empty();
    let sees = |seen| match &request.see[..] {
        [] => !has_edges,
        see => see.contains(&seen),
    };
    let mut all = Vec::new();
    // Reasons are of drops only.
    if sees(Seen::In) && request.reasons.is_empty() {
        all.push(Seen::In);
    }
    if sees(Seen::Drop) {
        all.push(Seen::Drop);
    }
    all
}

/// Why programs drop packets, as the lanes' reasons are told.
pub(super) fn drop_reasons() -> impl Iterator<Item = &'static ActionReason> {
    ActionReason::ALL.iter().filter(|reason| reason.action == Action::Dropped)
}

impl PathSource {
    /// Has packets copied that come in from now on.
    pub(super) fn begin(
        request: &CaptureRequest,
        view: &PathView,
        filter: Option<ProbeFilter>,
        seen: Vec<Seen>,
        interface: u32,
    ) -> Result<Self, String> {
        let copies = view.copies(request.one_in, request.snap_length).map_err(|error| error.to_string())?;
        Ok(Self { copies, filter, seen, path: view.path().to_string(), interface, taken: 0 })
    }

    /// Gives packets that are wanted, each with a comment, among up to so many that have been copied since; says how many those were. `is_known`
    /// says whether a reason to drop is wanted.
    pub(super) fn read(
        &mut self,
        most: usize,
        is_known: impl Fn(&str) -> bool,
        mut each: impl FnMut(&PathCopy<'_>, &str) -> bool,
    ) -> usize {
        let Self { copies, filter, seen, path, taken, .. } = self;
        copies.read(most, |copy| {
            if filter.as_ref().is_some_and(|filter| !filter(copy.data, copy.length)) {
                return;
            }
            let ActionReason { action, name, help } = copy.reason;
            for seen in &*seen {
                let comment = match (seen, action) {
                    (Seen::Drop, Action::Dropped) if is_known(name) => format!("dropped: {name}: {help}"),
                    (Seen::Drop, _) => continue,
                    (_, Action::Forwarded) => format!("forwarded on path {path}: {name}: {help}"),
                    (_, Action::Passed) => format!("passed to the kernel on path {path}: {name}: {help}"),
                    (_, Action::Dropped) => format!("dropped on path {path}: {name}: {help}"),
                };
                *taken += u64::from(each(&copy, &comment));
            }
        })
    }

    /// Packets of the sample that found no space.
    pub(super) fn missed(&self) -> u64 {
        self.copies.missed()
    }
}
