//! Filters of tc, which kernels before 6.6 have in place of links: they stay when their process is killed.
//!
//! Ours are known by their programs' names. Whose process lives is known by a socket, which the kernel closes with the process: as
//! long as it is there, nobody else takes away what belongs to it.

use std::ffi::CString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use aya::programs::TcAttachType;
use aya::programs::tc::{self, TcError};

use crate::attachment::AttachPoint;
use crate::error::{BpfError, sentence, system_error};

/// The right to have filters at one side of an interface. It ends when this is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

impl Claim {
    /// `None`: another process has it.
    pub(crate) fn take(interface: &str, hook: AttachPoint) -> io::Result<Option<Self>> {
        let name = CString::new(interface)?;
        // SAFETY: the call reads a text that ends with a zero, and nothing else.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // A name without a file, of the network namespace as the interface is (unix(7)).
        let address = SocketAddr::from_abstract_name(format!("{CLAIMS}{index}/{}", hook.side()))?;
        match UnixDatagram::bind_addr(&address) {
            Ok(socket) => Ok(Some(Self { _socket: socket })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What the sockets' names start with.
pub(crate) const CLAIMS: &str = "warmlane/tc/";

/// Takes away the filters with a program of this name that processes left behind at a hook which were killed: before Linux 6.6 the
/// kernel doesn't. Says whether there were any. What belongs to a process that lives stays.
///
/// # Errors
/// [`BpfError::Permission`], [`BpfError::Attach`].
pub fn remove_left_behind(program: &str, interface: &str, hook: AttachPoint) -> Result<bool, BpfError> {
    match Claim::take(interface, hook) {
        Ok(Some(_claim)) => remove(program, interface, hook),
        Ok(None) => Ok(false),
        // The interface went away, and all that was there.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(failed(interface, hook, sentence(&error), None)),
    }
}

/// The same for who has the claim.
pub(crate) fn remove(program: &str, interface: &str, hook: AttachPoint) -> Result<bool, BpfError> {
    match tc::qdisc_detach_program(interface, attach_type(hook), program) {
        Ok(()) => Ok(true),
        Err(TcError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            let source = system_error(&error);
            match source.as_ref().and_then(io::Error::raw_os_error) {
                // No clsact, or no interface any more.
                Some(libc::EINVAL | libc::ENOENT | libc::ENODEV) => Ok(false),
                Some(libc::EPERM) => Err(BpfError::Permission {
                    action: format!("taking a filter away from interface {interface:?}"),
                    source: io::Error::from_raw_os_error(libc::EPERM),
                }),
                _ => Err(failed(interface, hook, sentence(&error), source)),
            }
        }
    }
}

/// The side that a hook of tc is at.
pub(crate) fn attach_type(hook: AttachPoint) -> TcAttachType {
    if hook == AttachPoint::TcEgress { TcAttachType::Egress } else { TcAttachType::Ingress }
}

fn failed(interface: &str, hook: AttachPoint, reason: String, source: Option<io::Error>) -> BpfError {
    BpfError::Attach { interface: interface.to_owned(), hook: hook.name(), reason, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_side_of_an_interface_at_a_time() {
        let take = |hook| Claim::take("lo", hook).unwrap();
        let first = take(AttachPoint::Tc);
        assert!(first.is_some() && take(AttachPoint::Tc).is_none());
        assert!(take(AttachPoint::TcEgress).is_some());
        // What belongs to it is left alone.
        assert!(!remove_left_behind("warmlane_tc", "lo", AttachPoint::Tc).unwrap());
        drop(first);
        assert!(take(AttachPoint::Tc).is_some());
        let error = Claim::take("no such thing", AttachPoint::Tc).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
