//! Forwarding inside the kernel: BPF programs at interfaces' hooks that look up the kernel's own routes and redirect.
//!
//! The programs are `functions/router/bpf/forward.bpf.c`. Whatever they can't forward as the kernel would, they pass to it as if
//! nothing had been there; both are counted, under an [`ActionReason`]. User space only tells them what they can't see: which interfaces
//! belong to the router, their VLANs and addresses, and how the kernel's switches are.

mod best;
mod choice;
mod copies;
mod flows;
mod interface;
mod kernel_paths;
mod knowledge;
mod layout;
mod left_behind;
mod plan;
mod reason;
mod report;
mod switches;
mod verify;

pub use choice::{Path, PathChoice, PathChoiceError, Paths};
pub use copies::{CopyError, PathCopies, PathCopy};
pub use kernel_paths::{KernelPaths, OffloadError};
pub use left_behind::{LeftBehindError, remove_left_behind};
pub use plan::{Plan, PlanError, plan};
pub use reason::{Action, ActionReason};
pub use report::{PathReport, PathView};
pub use warmlane_bpf::BpfError;
