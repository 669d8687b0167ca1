//! Programs at an interface's hooks.

use std::io;

use aya::programs::links::FdLink;
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError};
use aya::programs::{
    LinkOrder, Program, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode, loaded_programs,
};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::error::{BpfError, sentence, system_error};
use crate::filter::{self, CLAIMS, Claim};
use crate::others::Own;

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachPoint {
    /// In the interface's driver, before the kernel has made anything of a frame.
    Xdp,
    /// In the network stack, on any interface, after the driver has made a socket buffer of the frame: XDP's generic mode.
    GenericXdp,
    /// Where the kernel's socket buffers come in.
    Tc,
    /// Where the kernel's socket buffers leave, before they are queued.
    TcEgress,
}

impl AttachPoint {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp | Self::GenericXdp => "XDP",
            Self::Tc => "tc",
            Self::TcEgress => "tc egress",
        }
    }

    /// What commands call the side that a filter of tc stands at.
    pub(crate) const fn side(self) -> &'static str {
        match self {
            Self::Xdp | Self::GenericXdp | Self::Tc => "ingress",
            Self::TcEgress => "egress",
        }
    }
}

/// A program at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Attachment {
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// The kernel takes the program away when nobody has this any more.
    Link { _link: FdLink, _own: Option<Own> },
    /// A filter, as older kernels have it; taken away when this is dropped, and then the claim to it.
    Filter { _link: SchedClassifierLink, _claim: Claim },
}

impl Attachment {
    /// Whether the program stays if the process is killed: the kernel has no links for its hook.
    pub fn outlives_process(&self) -> bool {
        matches!(self.held, Held::Filter { .. })
    }
}

/// Waits until programs that ran when they were detached have come to their end, so that what they count doesn't change any more.
pub fn wait_for_running() {
    // It waits for the grace period that programs run in (`kernel/sched/membarrier.c`). A kernel that knows no such thing refuses,
    // and then nothing was waited for.
    let _ = membarrier(MembarrierCommand::Global);
}

/// What the kernel calls the program of this number, of which it keeps 15 bytes; `None` if there is none (any more), or none that may
/// be looked at.
pub fn name_of(program: u32) -> Option<String> {
    let found = loaded_programs().filter_map(Result::ok).find(|known| known.id() == program)?;
    Some(found.name_as_str()?.to_owned())
}

/// Attaches a loaded program.
pub(crate) fn attach(
    program: &mut Program,
    name: &str,
    interface: &str,
    hook: AttachPoint,
) -> Result<Attachment, BpfError> {
    match (program, hook) {
        (Program::Xdp(program), AttachPoint::Xdp) => attach_xdp(program, interface, XdpMode::Driver),
        (Program::Xdp(program), AttachPoint::GenericXdp) => attach_xdp(program, interface, XdpMode::Skb),
        (Program::SchedClassifier(program), AttachPoint::Tc | AttachPoint::TcEgress) => {
            attach_tc(program, name, interface, hook)
        }
        _ => Err(BpfError::Object { reason: format!("{name:?} is no {} program", hook.name()) }),
    }
}

fn attach_xdp(program: &mut Xdp, interface: &str, mode: XdpMode) -> Result<Attachment, BpfError> {
    let failed = |error: &ProgramError| failed(interface, AttachPoint::Xdp, error);
    let id = program.attach(interface, mode).map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    // Where the kernel made no link, the program would stay when the process is killed: what is left of it goes here.
    let link = FdLink::try_from(link).map_err(|_| BpfError::Attach {
        interface: interface.to_owned(),
        hook: AttachPoint::Xdp.name(),
        reason: "the kernel has no links for it: Linux 5.9 or later has".to_owned(),
        source: None,
    })?;
    Ok(Attachment { held: Held::Link { _link: link, _own: None } })
}

fn attach_tc(
    program: &mut SchedClassifier,
    name: &str,
    interface: &str,
    hook: AttachPoint,
) -> Result<Attachment, BpfError> {
    let failed = |error: &ProgramError| failed(interface, hook, error);
    let side = filter::attach_type(hook);
    match SchedClassifier::query_tcx(interface, side) {
        Ok((_, others)) if !others.is_empty() => {
            let names: Vec<_> = others.iter().filter_map(|other| other.name_as_str()).collect();
            return Err(occupied(interface, hook, format!(" ({})", names.join(", "))));
        }
        Ok(_) => return attach_tcx(program, interface, hook, side),
        // There is one that only CAP_SYS_ADMIN may look at, or nothing may be done at all: then attaching is refused as well.
        Err(error) if is_refused(&error) => {
            return match attach_tcx(program, interface, hook, side) {
                Ok(_) => Err(occupied(interface, hook, String::new())),
                refused => refused,
            };
        }
        // A kernel that knows no such hook, or an interface that is gone: the next step will tell.
        Err(_) => {}
    }
    let claim = Claim::take(interface, hook).map_err(|error| BpfError::Attach {
        interface: interface.to_owned(),
        hook: hook.name(),
        reason: error.to_string(),
        source: Some(error),
    })?;
    let Some(claim) = claim else {
        return Err(BpfError::Occupied {
            interface: interface.to_owned(),
            hook: hook.name(),
            which: " (of a process that lives)".to_owned(),
            remedy: format!("kill PROCESS` with what `ss -xap | grep {CLAIMS}` says"),
        });
    };
    match tc::qdisc_add_clsact(interface) {
        Err(error)
            if system_error(&error).is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists) =>
        {
            filter::remove(name, interface, hook)?;
        }
        Err(error) => return Err(failed(&error.into())),
        Ok(()) => {}
    }
    // The first of all filters.
    let options = NlOptions { priority: 1, ..NlOptions::default() };
    let attached = program.attach_with_options(interface, side, TcAttachOptions::Netlink(options));
    let id = attached.map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    Ok(Attachment { held: Held::Filter { _link: link, _claim: claim } })
}

/// In front of all others, by a link.
fn attach_tcx(
    program: &mut SchedClassifier,
    interface: &str,
    hook: AttachPoint,
    side: TcAttachType,
) -> Result<Attachment, BpfError> {
    let failed = |error: &ProgramError| failed(interface, hook, error);
    // Before it is there, so that nobody takes it for another's meanwhile.
    let own = Own::new(program.info().map_err(|error| failed(&error))?.id());
    let options = TcAttachOptions::TcxOrder(LinkOrder::first());
    let id = program.attach_with_options(interface, side, options).map_err(|error| failed(&error))?;
    let link = program.take_link(id).map_err(|error| failed(&error))?;
    let link = FdLink::try_from(link).map_err(|error| BpfError::Attach {
        interface: interface.to_owned(),
        hook: hook.name(),
        reason: sentence(&error),
        source: None,
    })?;
    Ok(Attachment { held: Held::Link { _link: link, _own: Some(own) } })
}

/// Somebody else's program is there.
fn occupied(interface: &str, hook: AttachPoint, which: String) -> BpfError {
    let remedy = format!("bpftool net detach tcx_{} dev {interface}", hook.side());
    BpfError::Occupied { interface: interface.to_owned(), hook: hook.name(), which, remedy }
}

fn is_refused(error: &ProgramError) -> bool {
    system_error(error).is_some_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

fn failed(interface: &str, hook: AttachPoint, error: &ProgramError) -> BpfError {
    let source = match error {
        ProgramError::TcError(TcError::AlreadyAttached) => Some(io::Error::from_raw_os_error(libc::EBUSY)),
        other => system_error(other),
    };
    match source.as_ref().and_then(io::Error::raw_os_error) {
        Some(libc::EPERM) => BpfError::Permission {
            action: format!("attaching a BPF program to interface {interface:?}"),
            source: io::Error::from_raw_os_error(libc::EPERM),
        },
        Some(libc::EBUSY | libc::EEXIST) => BpfError::Occupied {
            interface: interface.to_owned(),
            hook: hook.name(),
            which: String::new(),
            remedy: match hook {
                AttachPoint::Xdp | AttachPoint::GenericXdp => format!("ip link set {interface} xdp off"),
                AttachPoint::Tc | AttachPoint::TcEgress => {
                    format!("tc filter del dev {interface} {}", hook.side())
                }
            },
        },
        _ => {
            let reason = source.as_ref().map_or_else(|| sentence(error), ToString::to_string);
            BpfError::Attach { interface: interface.to_owned(), hook: hook.name(), reason, source }
        }
    }
}
