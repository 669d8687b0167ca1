//! Maps, programs and links of the kernel, by bpf(2).

use super::assembler::Instruction;
use super::steering::{self, Choice, LeftFamilies, Maps};
use crate::error::XdpError;
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands, kinds and flags (`include/uapi/linux/bpf.h`, `if_link.h`).
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROGRAM_LOAD: c_int = 5;
const PROGRAM_BY_NUMBER: c_int = 13;
const DESCRIBE: c_int = 15;
const LINK_CREATE: c_int = 28;
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const SOCKETS: u32 = 17;
const PROGRAM_CLASSIFIER: u32 = 3;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_INGRESS: u32 = 46;
const HAS_FRAGMENTS: u32 = 1 << 5;
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Local addresses of each family that the steering can hold.
const ADDRESSES: u32 = 65_536;

/// What our programs are called.
const PROGRAM_NAME: &[u8] = b"warmlane";

/// Bytes of the verifier's explanation that are kept.
const LOG_BYTES: usize = 16 << 10;

/// What a command is passed: plain integers that the kernel reads, and addresses that live through the call.
///
/// # Safety
/// `repr(C)` without padding that matters, laid out as the kernel expects for the command that it is used with.
unsafe trait Attributes {}

fn bpf<T: Attributes>(command: c_int, attributes: &T) -> io::Result<c_int> {
    // SAFETY: the kernel reads size_of::<T>() bytes of attributes that are laid out for the command (Attributes);
    // what they point to is alive (each caller passes addresses of its own locals).
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

fn descriptor(result: io::Result<c_int>) -> io::Result<OwnedFd> {
    // SAFETY: the kernel just made the descriptor for us, and nobody else has it.
    result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel keeps it: up to 15 bytes.
fn name(text: &[u8]) -> [u8; 16] {
    let mut name = [0; 16];
    for (target, byte) in name.iter_mut().take(15).zip(text) {
        *target = *byte;
    }
    name
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

// SAFETY: the first fields of `union bpf_attr` for BPF_MAP_CREATE.
unsafe impl Attributes for MapCreate {}

#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: `union bpf_attr` for BPF_MAP_*_ELEM.
unsafe impl Attributes for MapElement {}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

// SAFETY: the first fields of `union bpf_attr` for BPF_PROG_LOAD.
unsafe impl Attributes for ProgramLoad {}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

// SAFETY: the first fields of `union bpf_attr` for BPF_LINK_CREATE.
unsafe impl Attributes for LinkCreate {}

fn map(kind: u32, key_bytes: u32, value_bytes: u32, entries: u32, title: &[u8]) -> io::Result<OwnedFd> {
    // A hash that allocates each entry when it comes: most boxes have a handful of addresses.
    let flags = u32::from(kind == HASH);
    let attributes =
        MapCreate { kind, key_bytes, value_bytes, entries, flags, inner: 0, node: 0, name: name(title) };
    descriptor(bpf(MAP_CREATE, &attributes))
}

fn put(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let attributes = MapElement {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: key.as_ptr().addr() as u64,
        value: value.as_ptr().addr() as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE, &attributes).map(drop)
}

fn remove(map: &OwnedFd, key: &[u8]) -> io::Result<()> {
    let attributes = MapElement {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: key.as_ptr().addr() as u64,
        value: 0,
        flags: 0,
    };
    match bpf(MAP_DELETE, &attributes) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// A program that the kernel's verifier has accepted, with its maps.
#[derive(Debug)]
pub(crate) struct Program {
    descriptor: OwnedFd,
    sockets: OwnedFd,
    mac: OwnedFd,
    ipv4: OwnedFd,
    ipv6: OwnedFd,
}

impl Program {
    /// Loads the program for an interface of so many receive queues.
    pub(crate) fn load(choice: Choice, queues: u32, fragments: bool) -> Result<Self, XdpError> {
        let error = |action: &str| XdpError::bpf(action.to_owned());
        let sockets = map(SOCKETS, 4, 4, queues.max(1), b"warmlane_sock").map_err(error("make a BPF map"))?;
        let mac = map(ARRAY, 4, 8, 1, b"warmlane_mac").map_err(error("make a BPF map"))?;
        let ipv4 = map(HASH, 4, 4, ADDRESSES, b"warmlane_ipv4").map_err(error("make a BPF map"))?;
        let ipv6 = map(HASH, 16, 4, ADDRESSES, b"warmlane_ipv6").map_err(error("make a BPF map"))?;
        let maps = Maps {
            sockets: sockets.as_raw_fd(),
            mac: mac.as_raw_fd(),
            ipv4: ipv4.as_raw_fd(),
            ipv6: ipv6.as_raw_fd(),
        };
        let code = steering::program(choice, maps)
            .map_err(|_| XdpError::Program { log: "a label is not placed".to_owned() })?;
        let descriptor = load(&code, fragments)?;
        Ok(Self { descriptor, sockets, mac, ipv4, ipv6 })
    }

    /// Packets of this receive queue are redirected to this socket from now on.
    pub(crate) fn set_socket(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        put(&self.sockets, &queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Frames to this Ethernet address are the interface's own from now on, and no others; but those of families that are left.
    pub(crate) fn set_own(&self, mac: [u8; 6], left: LeftFamilies) -> io::Result<()> {
        put(&self.mac, &0_u32.to_ne_bytes(), &steering::own_value(mac, left))
    }

    /// An address that is the kernel's, or no longer.
    pub(crate) fn set_address(&self, address: std::net::IpAddr, is_local: bool) -> io::Result<()> {
        let (map, key) = match address {
            std::net::IpAddr::V4(address) => (&self.ipv4, steering::ipv4_key(address).to_vec()),
            std::net::IpAddr::V6(address) => (&self.ipv6, steering::ipv6_key(address).to_vec()),
        };
        if is_local { put(map, &key, &1_u32.to_ne_bytes()) } else { remove(map, &key) }
    }

    #[cfg(test)]
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }
}

fn load(code: &[Instruction], fragments: bool) -> Result<OwnedFd, XdpError> {
    let flags = if fragments { HAS_FRAGMENTS } else { 0 };
    load_as(PROGRAM_XDP, ATTACH_XDP, code, flags)
}

fn load_as(kind: u32, attach: u32, code: &[Instruction], flags: u32) -> Result<OwnedFd, XdpError> {
    let mut log = Vec::new();
    let attempt = |log: &mut Vec<u8>| {
        let attributes = ProgramLoad {
            kind,
            count: code.len() as u32,
            instructions: code.as_ptr().addr() as u64,
            license: c"Dual MIT/GPL".as_ptr().addr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_bytes: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
            version: 0,
            flags,
            name: name(PROGRAM_NAME),
            interface: 0,
            attach,
        };
        descriptor(bpf(PROGRAM_LOAD, &attributes))
    };
    attempt(&mut log).or_else(|source| {
        if source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error() == Some(libc::EPERM) {
            return Err(XdpError::bpf("load a BPF program".to_owned())(source));
        }
        // Once more, for the verifier's reasons.
        log.resize(LOG_BYTES, 0);
        attempt(&mut log).map_err(|error| {
            let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
            XdpError::Program { log: format!("{error}: {}", String::from_utf8_lossy(said).trim()) }
        })
    })
}

#[repr(C)]
struct ProgramNumber {
    number: u32,
    next: u32,
    flags: u32,
}

// SAFETY: `union bpf_attr` for BPF_PROG_GET_FD_BY_ID.
unsafe impl Attributes for ProgramNumber {}

/// The first fields of `struct bpf_prog_info`.
#[repr(C)]
struct Description {
    others: [u64; 8],
    name: [u8; 16],
}

#[repr(C)]
struct Describe {
    descriptor: u32,
    bytes: u32,
    description: u64,
}

// SAFETY: `union bpf_attr` for BPF_OBJ_GET_INFO_BY_FD.
unsafe impl Attributes for Describe {}

/// Whether a program is one of ours, or was and is gone. Of those that may not be looked at, that is not known: they may be.
pub(crate) fn is_ours(number: u32) -> bool {
    let attributes = ProgramNumber { number, next: 0, flags: 0 };
    let Ok(program) = descriptor(bpf(PROGRAM_BY_NUMBER, &attributes)) else { return true };
    let mut description = Description { others: [0; 8], name: [0; 16] };
    let attributes = Describe {
        descriptor: program.as_raw_fd().cast_unsigned(),
        bytes: size_of::<Description>() as u32,
        description: (&raw mut description).expose_provenance() as u64,
    };
    bpf(DESCRIBE, &attributes).is_err() || description.name == name(PROGRAM_NAME)
}

/// How the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the interface's driver, before anything is made of the packet.
    Native,
    /// In the network stack, on any interface, after the driver has made a kernel packet of it.
    Generic,
}

/// A program attached to an interface. It ends when this is dropped, or when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Attachment {
    _link: OwnedFd,
    pub(crate) program: Program,
}

impl Attachment {
    /// Attaches the program to the interface, or gives it back with the reason why not.
    pub(crate) fn new(program: Program, interface: u32, way: Way) -> Result<Self, (Program, io::Error)> {
        let flags = match way {
            Way::Native => NATIVE,
            Way::Generic => GENERIC,
        };
        let attributes = LinkCreate {
            program: program.descriptor.as_raw_fd().cast_unsigned(),
            interface,
            attach: ATTACH_XDP,
            flags,
        };
        match descriptor(bpf(LINK_CREATE, &attributes)) {
            Ok(link) => Ok(Self { _link: link, program }),
            Err(error) => Err((program, error)),
        }
    }
}

/// A program that leads packets from the entrance of one interface into that of another. It ends when this is dropped, or
/// when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Redirection {
    _link: OwnedFd,
}

impl Redirection {
    /// From and into the interfaces of these numbers.
    pub(crate) fn new(from: u32, into: u32) -> Result<Self, XdpError> {
        let code = steering::redirection(into)
            .map_err(|_| XdpError::Program { log: "a label is not placed".to_owned() })?;
        let program = load_as(PROGRAM_CLASSIFIER, ATTACH_INGRESS, &code, 0)?;
        let attributes = LinkCreate {
            program: program.as_raw_fd().cast_unsigned(),
            interface: from,
            attach: ATTACH_INGRESS,
            flags: 0,
        };
        // The link holds the program.
        let link = descriptor(bpf(LINK_CREATE, &attributes));
        Ok(Self { _link: link.map_err(XdpError::bpf("attach a BPF program".to_owned()))? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::steering::{Steering, XDP_PASS};
    use super::*;

    const TEST_RUN: c_int = 10;
    /// What the programs return here for what they would redirect.
    const XDP_TX: i32 = 3;

    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        bytes_in: u32,
        bytes_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }

    // SAFETY: the first fields of `union bpf_attr` for BPF_PROG_TEST_RUN. The kernel writes to some of them.
    unsafe impl Attributes for TestRun {}

    fn run(program: &Program, frame: &[u8]) -> i32 {
        let mut attributes = TestRun {
            program: program.descriptor().as_raw_fd().cast_unsigned(),
            bytes_in: frame.len() as u32,
            data_in: frame.as_ptr().addr() as u64,
            repeat: 1,
            ..TestRun::default()
        };
        // SAFETY: as in `bpf`, but the kernel also writes the result.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, c_long::from(TEST_RUN), &raw mut attributes, size_of::<TestRun>())
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        attributes.result.cast_signed()
    }

    /// The kernel's number of a program, by `/proc`.
    fn number(program: &Program) -> u32 {
        let path = format!("/proc/self/fdinfo/{}", program.descriptor().as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("prog_id:")).unwrap();
        line.trim().parse().unwrap()
    }

    /// The kernel's verifier accepts the programs, and the kernel decides as the interpreter does.
    #[test]
    fn the_kernel_decides_the_same() {
        if !warmlane_testkit::requirements::namespaces_and(&[]) {
            return;
        }
        for fragments in [false, true] {
            let all = Program::load(Choice::new(Steering::All, false), 4, fragments).unwrap();
            // No socket at any queue.
            assert_eq!(run(&all, &[0; 60]), XDP_PASS);
            assert!(is_ours(number(&all)));
            let choice = Choice { without_socket: XDP_TX, ..Choice::new(Steering::Transit, true) };
            let router = Program::load(choice, 4, fragments).unwrap();
            let mut frame = vec![0_u8; 60];
            frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            frame[22] = 64;
            frame[30..34].copy_from_slice(&[198, 51, 100, 1]);
            // The interface's address is all zero at first.
            assert_eq!(run(&router, &frame), XDP_TX);
            router.set_own([2, 0, 0, 0, 0, 1], LeftFamilies::default()).unwrap();
            for (mac, action) in [
                ([2, 0, 0, 0, 0, 1], XDP_TX),
                ([2, 0, 0, 0, 0, 2], XDP_PASS),
                ([2, 0, 0, 0, 1, 1], XDP_PASS),
                ([2, 0, 0, 1, 0, 1], XDP_PASS),
                ([6, 0, 0, 0, 0, 1], XDP_PASS),
            ] {
                frame[..6].copy_from_slice(&mac);
                assert_eq!(run(&router, &frame), action, "{mac:x?}");
            }
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            for (left, action) in [(true, XDP_PASS), (false, XDP_TX)] {
                router.set_own([2, 0, 0, 0, 0, 1], LeftFamilies { ipv4: left, ipv6: false }).unwrap();
                assert_eq!(run(&router, &frame), action, "{left}");
            }
            router.set_address([198, 51, 100, 1].into(), true).unwrap();
            assert_eq!(run(&router, &frame), XDP_PASS);
            router.set_address([198, 51, 100, 1].into(), false).unwrap();
            router.set_address([198, 51, 100, 1].into(), false).unwrap();
            assert_eq!(run(&router, &frame), XDP_TX);
            frame[22] = 1;
            assert_eq!(run(&router, &frame), XDP_PASS);
            frame[22] = 2;
            frame[0] = 0xff;
            assert_eq!(run(&router, &frame), XDP_PASS);
            let mut tagged = vec![0_u8; 80];
            tagged[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            tagged[12..20].copy_from_slice(&[0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0]);
            tagged[25] = 64;
            let to: std::net::Ipv6Addr = "2001:db8::7".parse().unwrap();
            tagged[42..58].copy_from_slice(&to.octets());
            assert_eq!(run(&router, &tagged), XDP_TX);
            tagged[12..14].copy_from_slice(&[0x88, 0xa8]);
            assert_eq!(run(&router, &tagged), XDP_PASS);
            tagged[12..14].copy_from_slice(&[0x81, 0]);
            router.set_address(to.into(), true).unwrap();
            assert_eq!(run(&router, &tagged), XDP_PASS);
        }
    }
}
