//! What a router leaves behind that was killed, where the kernel has no links for the tc hook (before Linux 6.6): its filters.

use std::io;

use thiserror::Error;
use warmlane_bpf::{AttachPoint, BpfError};

use crate::control::kernel::{OwnFilter, RequestSocket, View, own_filters};

/// Why it is still there.
#[derive(Debug, Error)]
pub enum LeftBehindError {
    /// The kernel doesn't tell what there is.
    #[error("can't list the filters of tc: {0}")]
    List(#[from] io::Error),
    /// The kernel doesn't take it away.
    #[error(transparent)]
    Remove(#[from] BpfError),
}

/// Takes away the filters of routers that were killed, at all interfaces of the calling thread's network namespace, and says which those
/// were, a sentence each. What belongs to a router that runs stays.
///
/// # Errors
/// [`LeftBehindError`]
pub fn remove_left_behind() -> Result<Vec<String>, LeftBehindError> {
    let filters = own_filters()?;
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let mut view = View::default();
    RequestSocket::new()?.list_links(|event| view.apply(event))?;
    let mut said = Vec::new();
    for OwnFilter { link, is_egress, program } in filters {
        // One that went away has taken its filters along.
        let Some(link) = view.links().get(&link) else { continue };
        let hook = if is_egress { AttachPoint::TcEgress } else { AttachPoint::Tc };
        if warmlane_bpf::remove_left_behind(&program, &link.name, hook)? {
            said.push(format!(
                "interface '{}': the filter {program} of a router that was killed is taken away",
                link.name
            ));
        }
    }
    Ok(said)
}
