//! Opens a port on an interface.

use crate::bpf::{LeftFamilies, Program, Steering, TunnelEnds};
use crate::error::XdpError;
use crate::find;
use crate::left_checksum::SampleCountersView;
use crate::local::LocalFilter;
use crate::options::{XdpMode, XdpOptions};
use crate::receive::{self, XdpReceive};
use crate::socket::{self, Channel, Opened, Request, Rings, XdpCostCountersView, XdpStatistics};
use crate::transmit::{self, ETHERNET, TAG, XdpTransmit};
use crate::umem::Umem;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use warmlane_bpf::{AttachPoint, BpfError};
use warmlane_driver_common::{Interface, SystemError};
use warmlane_port::{Capabilities, Layered, Offloads, Port, ReceiveQueue, TransmitOffloads, TransmitQueue};
use warmlane_sys::pages::PageSize;

mod check;

pub use check::check;
use check::check_link;

/// What a port got of what it asked for.
#[expect(clippy::struct_excessive_bools, reason = "a list of what may or may not have been obtained")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// The program runs in the interface's driver, and not in the network stack.
    pub native: bool,
    /// Packets are not copied between the kernel and us.
    pub zero_copy: bool,
    /// Packets may come in and leave in several buffers.
    pub multi_buffer: bool,
    /// Our system calls do the interface's work.
    pub busy_poll: bool,
    /// Buffers are at their planned stride, and not at a power of two.
    pub planned_stride: bool,
    /// The kernel's registration of the memory is that of another port.
    pub shared_registration: bool,
    /// Receive queues.
    pub queues: u32,
}

/// System calls and copies that a port has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// System calls to wake the kernel up for receiving.
    pub receive_calls: u64,
    /// System calls to wake the kernel up for sending.
    pub transmit_calls: u64,
    /// Packets copied because their buffers were not in the shared memory.
    pub copied: u64,
}

/// What can be looked at while a port's queues are with their lanes.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// What the port got.
    pub obtained: Obtained,
    /// Which addresses are the kernel's; packets to them stay with it. With [`Steering::Transit`] only.
    pub local: LocalFilter,
    channels: Vec<Weak<Channel>>,
    costs: Costs,
    samples: Vec<SampleCountersView>,
}

/// What the queues cost.
#[derive(Clone, Debug, Default)]
struct Costs {
    receive: Vec<XdpCostCountersView>,
    transmit: Vec<XdpCostCountersView>,
}

impl Monitor {
    /// What the kernel has counted, socket by socket; those that are closed are left out.
    pub fn statistics(&self) -> Vec<XdpStatistics> {
        self.channels.iter().filter_map(|channel| channel.upgrade()?.statistics()).collect()
    }

    /// What the queues have cost.
    pub fn cost(&self) -> Cost {
        let Costs { receive, transmit } = &self.costs;
        Cost {
            receive_calls: receive.iter().map(XdpCostCountersView::wake_calls).sum(),
            transmit_calls: transmit.iter().map(XdpCostCountersView::wake_calls).sum(),
            copied: transmit.iter().map(XdpCostCountersView::copied).sum(),
        }
    }

    /// How many of the packets that were sampled had a checksum that their sender has left to hardware that there isn't. On virtual links
    /// only, where the first packet of each burst is sampled.
    pub fn left_checksums(&self) -> u64 {
        self.samples.iter().map(SampleCountersView::left_checksums).sum()
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Channel").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// A port, and what can be looked at of it.
#[derive(Debug)]
pub struct XdpPort {
    /// Its queues go to lanes.
    pub port: Port,
    /// Stays.
    pub monitor: Monitor,
}

/// Opens a port on an interface: a socket for each of its receive queues, and the program that steers packets there.
/// It gets at least `queues` queues to send on, one for each lane. `local` are the kernel's own addresses, for
/// [`Steering::Transit`]; [`Monitor::local`] is to be told of changes.
///
/// With [`Steering::None`] it only sends, and has no receive queues.
///
/// Needs `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`, and Linux 5.11 or later. When the port's queues are dropped, or the
/// process ends, however it does, the kernel takes the interface's packets again.
///
/// # Errors
/// [`XdpError`] says what is wrong with the interface, the privileges or the configuration, and the remedy; nothing was
/// changed then.
#[expect(
    clippy::implicit_hasher,
    reason = "the addresses are those of an `AddressFollower`, which has this kind"
)]
pub fn open(
    options: &XdpOptions,
    queues: u32,
    umem: &Umem,
    local: &HashSet<IpAddr>,
) -> Result<XdpPort, XdpError> {
    let name = &options.interface;
    let entries = options.ring.unwrap_or(XdpOptions::RING);
    if !entries.is_power_of_two() || !(64..=XdpOptions::LONGEST_RING).contains(&entries) {
        return Err(XdpError::RingEntries { entries });
    }
    let link = find::interface(name)?;
    check_link(options, queues, &link)?;
    let fragments = link.mtu + ETHERNET + TAG > umem.geometry().frame;
    let receive_queues = link.receive_queues.unwrap_or(1);
    let mac = link.mac.unwrap_or_default();
    let mut program = Program::new(options.steering, options.pass_expiring, receive_queues, fragments)?;
    let system = |action: &str| {
        let action = format!("{action} for interface {name:?}");
        move |source| XdpError::from(SystemError::Failed { action, source })
    };
    // Before the program is at work: no packet for the kernel may get lost in between.
    if options.steering == Steering::Transit {
        for address in local {
            program
                .set_address(*address, Some(TunnelEnds::default()))
                .map_err(system("set the kernel's addresses"))?;
        }
        let left = LeftFamilies::default();
        program.set_own(mac, left).map_err(system("set the Ethernet address"))?;
    }
    let mut notes = Vec::new();
    let hook = attach(options, &mut program, fragments, &mut notes)?;
    let program = Arc::new(program);
    let filter = LocalFilter::new(&program, link.index, local);

    let mut opener =
        Opener { options, entries, umem, link: &link, fragments, zero_copy: None, shared: false };
    let Queues { receive, transmit, channels, costs, samples, busy_poll } =
        opener.queues(hook, &program, &mut notes)?;
    // All is ready: from here on packets come.
    let redirected = if options.steering == Steering::None { &[] } else { &channels[..] };
    for (queue, channel) in (0..).zip(redirected) {
        program.set_socket(queue, &channel.fd).map_err(system("redirect a receive queue"))?;
    }
    let obtained = Obtained {
        native: hook == AttachPoint::Xdp,
        zero_copy: opener.zero_copy == Some(true),
        multi_buffer: fragments,
        busy_poll,
        planned_stride: umem.geometry().unaligned,
        shared_registration: opener.shared,
        queues: receive_queues,
    };
    notes.insert(0, sentence(&obtained, umem));
    describe(options, &link, local.len(), &mut notes);
    let channels_seen = channels.iter().map(Arc::downgrade).collect();
    let monitor = Monitor { obtained, local: filter, channels: channels_seen, costs, samples };
    let capabilities = Capabilities {
        mac: link.mac,
        offloads: Offloads { transmit: offloads(options, &channels), ..Offloads::default() },
        mtu: Some(link.mtu),
        maximum_frame: link.mtu + ETHERNET,
        timestamps: false,
        notes,
    };
    let port = Port { name: name.clone(), driver: "xdp", capabilities, receive, transmit };
    Ok(XdpPort { port, monitor })
}

/// What is left to the kernel: checksums of what is in no tunnel, since cards may find the field by the protocol.
fn offloads(options: &XdpOptions, channels: &[Arc<Channel>]) -> TransmitOffloads {
    let completes = options.offloads && channels.iter().all(|channel| channel.completes_checksums());
    let checksums = if completes { Layered::OUTER } else { Layered::NONE };
    TransmitOffloads { checksums, ..TransmitOffloads::NONE }
}

/// Attaches the program in the best way that the configuration allows.
fn attach(
    options: &XdpOptions,
    program: &mut Program,
    fragments: bool,
    notes: &mut Vec<String>,
) -> Result<AttachPoint, XdpError> {
    let hooks: &[AttachPoint] = match options.mode {
        XdpMode::Best => &[AttachPoint::Xdp, AttachPoint::GenericXdp],
        XdpMode::ZeroCopy | XdpMode::Copy => &[AttachPoint::Xdp],
        XdpMode::Generic => &[AttachPoint::GenericXdp],
    };
    let name = options.interface.clone();
    let mut last = None;
    for &hook in hooks {
        match program.attach(&name, hook) {
            Ok(()) => {
                if let Some((_, source)) = last {
                    notes.push(format!(
                        "the driver can't run XDP programs ({source}): the network stack does, which is slower"
                    ));
                }
                return Ok(hook);
            }
            // Somebody was faster.
            Err(BpfError::Occupied { .. }) => return Err(XdpError::ProgramThere { name, program: 0 }),
            Err(BpfError::Attach { source, reason, .. }) => {
                last = Some((hook, source.unwrap_or_else(|| io::Error::other(reason))));
            }
            Err(other) => return Err(other.into()),
        }
    }
    let (hook, source) = last.unwrap_or((AttachPoint::GenericXdp, io::Error::other("no hook to try")));
    // `drivers/net/veth.c: veth_xdp_set`, and others alike.
    if source.raw_os_error() == Some(libc::ERANGE) && !fragments {
        return Err(XdpError::NoXdp {
            name,
            mode: "native",
            remedy:
                "the MTU of the interface, or of its other end, is too large: lower it, or say mode=generic"
                    .to_owned(),
            source,
        });
    }
    let (mode, remedy) = match hook {
        AttachPoint::Xdp => ("native", "leave the choice open with mode=best, or say mode=generic"),
        _ => ("generic", "use the packet driver instead"),
    };
    Err(XdpError::NoXdp { name, mode, remedy: remedy.to_owned(), source })
}

/// Makes the sockets of an interface, all in the same mode.
struct Opener<'a> {
    options: &'a XdpOptions,
    entries: u32,
    umem: &'a Umem,
    link: &'a Interface,
    fragments: bool,
    /// Decided with the first socket.
    zero_copy: Option<bool>,
    shared: bool,
}

/// An interface's queues.
struct Queues {
    receive: Vec<Box<dyn ReceiveQueue>>,
    transmit: Vec<Box<dyn TransmitQueue>>,
    channels: Vec<Arc<Channel>>,
    costs: Costs,
    samples: Vec<SampleCountersView>,
    busy_poll: bool,
}

impl Opener<'_> {
    /// A socket for each receive queue, with buffers posted; none is redirected to yet.
    fn queues(
        &mut self,
        hook: AttachPoint,
        program: &Arc<Program>,
        notes: &mut Vec<String>,
    ) -> Result<Queues, XdpError> {
        let (name, umem, link) = (&self.options.interface, self.umem, self.link);
        let (mut receive, mut transmit, mut channels) = (Vec::new(), Vec::new(), Vec::new());
        let (mut costs, mut samples) = (Costs::default(), Vec::new());
        let mut busy_poll = self.options.busy_poll;
        for queue in 0..link.receive_queues.unwrap_or(1) {
            let (channel, rings) = self.socket(queue, hook, notes)?;
            umem.add(&channel);
            if busy_poll && let Err(error) = socket::prefer_busy_poll(&channel.fd) {
                notes.push(format!("no busy polling ({error}): that needs Linux 5.11 and CAP_NET_ADMIN"));
                busy_poll = false;
            }
            let incoming = XdpReceive::new(receive::Parts {
                region: umem.region().clone(),
                geometry: umem.geometry(),
                program: Arc::clone(program),
                fill: rings.fill,
                ring: rings.receive,
                channel: Arc::clone(&channel),
                name: name.clone(),
                entries: self.entries,
                busy_poll,
                may_lack_checksums: !link.kind.is_empty(),
            });
            let mut unused = None;
            if self.options.steering == Steering::None {
                unused = Some(incoming);
            } else {
                costs.receive.push(incoming.costs());
                samples.extend(incoming.samples());
                receive.push(Box::new(incoming) as Box<dyn ReceiveQueue>);
            }
            if queue < link.transmit_queues.unwrap_or(1) {
                let mut outgoing = XdpTransmit::new(transmit::Parts {
                    region: umem.region().clone(),
                    program: Arc::clone(program),
                    ring: rings.transmit,
                    completion: rings.completion,
                    channel: Arc::clone(&channel),
                    name: name.clone(),
                    mtu: link.mtu,
                    chunk: umem.geometry().chunk,
                    busy_poll,
                });
                if let Some(unused) = unused {
                    outgoing.keep(unused);
                }
                costs.transmit.push(outgoing.costs());
                transmit.push(Box::new(outgoing) as Box<dyn TransmitQueue>);
            }
            channels.push(channel);
        }
        Ok(Queues { receive, transmit, channels, costs, samples, busy_poll })
    }

    fn socket(
        &mut self,
        queue: u32,
        hook: AttachPoint,
        notes: &mut Vec<String>,
    ) -> Result<(Arc<Channel>, Rings), XdpError> {
        let name = || self.options.interface.clone();
        let wanted = match (self.zero_copy, self.options.mode) {
            (Some(decided), _) => decided,
            (None, XdpMode::Best | XdpMode::ZeroCopy) => hook == AttachPoint::Xdp,
            (None, XdpMode::Copy | XdpMode::Generic) => false,
        };
        if wanted {
            let attempt = match self.pages_reason() {
                Some(reason) => Err(reason),
                None => self.bind(queue, true).map_err(|error| match error.raw_os_error() {
                    Some(libc::EOPNOTSUPP | libc::EINVAL) => "its driver has no such mode".to_owned(),
                    _ => error.to_string(),
                }),
            };
            match attempt {
                Ok(made) => {
                    self.zero_copy = Some(true);
                    return Ok(made);
                }
                Err(reason) if self.options.mode == XdpMode::ZeroCopy || self.zero_copy == Some(true) => {
                    return Err(XdpError::NoZeroCopy { name: name(), reason });
                }
                Err(reason) => notes.push(format!("packets are copied to and from the kernel: {reason}")),
            }
        }
        self.zero_copy = Some(false);
        let fragments = self.fragments;
        self.bind(queue, false).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => XdpError::QueueInUse { name: name(), queue },
            Some(libc::EAFNOSUPPORT) => XdpError::NoSockets { source },
            Some(libc::ENOBUFS) => XdpError::LockedMemory { source },
            Some(libc::EINVAL) if fragments => XdpError::Mtu {
                name: name(),
                mtu: self.link.mtu,
                maximum: self.umem.geometry().frame - ETHERNET - TAG,
                reason: "this kernel makes no packets of several buffers (Linux 6.6 or later does)",
            },
            _ => XdpError::raw(format!("open an AF_XDP socket on queue {queue} of interface {:?}", name()))(
                source,
            ),
        })
    }

    /// Why the pool's memory can't be used without copies: a device needs each chunk in one piece of physical memory.
    fn pages_reason(&self) -> Option<String> {
        let pages = self.umem.region().pool().page_size();
        let huge = matches!(pages, PageSize::Huge1G | PageSize::Huge2M);
        (self.umem.geometry().unaligned && !huge).then(|| {
            format!("the pool is in {pages}, in which buffers lie across page borders: set up huge pages")
        })
    }

    /// A socket that shares another one's registration if there is one, else with its own.
    fn bind(&mut self, queue: u32, zero_copy: bool) -> io::Result<(Arc<Channel>, Rings)> {
        let other = self.umem.channel(zero_copy, self.fragments);
        let request = Request {
            region: self.umem.region(),
            geometry: self.umem.geometry(),
            interface: self.link.index,
            queue,
            entries: self.entries,
            fragments: self.fragments,
            zero_copy,
            share: other.as_deref(),
        };
        let (request, made) = match socket::open(&request) {
            Ok(made) => {
                self.shared |= other.is_some();
                (request, made)
            }
            Err(error) if other.is_none() || error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            Err(_) => {
                let request = Request { share: None, ..request };
                (request, socket::open(&request)?)
            }
        };
        let Opened { fd, rings, reads_metadata } = made;
        Ok((Arc::new(Channel::new(fd, reads_metadata, &request)), rings))
    }
}

/// What was obtained, for people.
fn sentence(obtained: &Obtained, umem: &Umem) -> String {
    let pick = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let (geometry, region) = (umem.geometry(), umem.region());
    format!(
        "{} XDP, {}, {}, {}{} queue(s), chunks of {} bytes at {} of {}{}",
        pick(obtained.native, "native", "generic"),
        pick(obtained.zero_copy, "no copy in the kernel", "one copy in the kernel each way"),
        pick(obtained.multi_buffer, "packets of several buffers", "packets of one buffer"),
        pick(obtained.busy_poll, "busy polling, ", ""),
        obtained.queues,
        geometry.chunk,
        pick(geometry.unaligned, "the planned stride", "an aligned stride"),
        region.stride(),
        pick(obtained.shared_registration, ", memory shared with another port", ""),
    )
}

/// What people should know about this interface.
fn describe(options: &XdpOptions, link: &Interface, local: usize, notes: &mut Vec<String>) {
    let name = &options.interface;
    match options.steering {
        Steering::Transit => notes.push(format!(
            "packets to the kernel's own {local} addresses, to groups, and what is not IP stay with the kernel"
        )),
        Steering::All => notes.push("all packets come here: the kernel sees none".to_owned()),
        Steering::None => notes.push("the port only sends: all packets stay with the kernel".to_owned()),
    }
    if link.strips_vlan_tags {
        notes.push(format!(
            "the interface takes VLAN tags out of packets before they come here: `ethtool -K {name} rxvlan off` if there are any"
        ));
    }
    if link.kind == "veth" {
        notes.push(
            "the other end of a veth pair must not leave checksums or tags to hardware: `ethtool -K OTHER tx off txvlan off`"
                .to_owned(),
        );
    }
}
