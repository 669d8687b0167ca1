//! One end of a downstream between ports, so that the other one can be on another machine.

use super::group::GroupFlags;
use crate::control_socket::ControlSocket;
use crate::idle::IdleFlags;
use crate::messages;
use crate::run::{self, RunFlags};
use warmlane::assembly::docsis::DownstreamEnd;
use warmlane::assembly::ports::{Direction, DriverSettings, Opener, PortSettings, check_captures};
use warmlane::assembly::{Assembly, Signals};
use warmlane::mem::{Pool, PoolConfig};

/// Send what a port receives to a remote PHY: the upper and the lower MAC, each on a lane.
///
/// Ethernet frames come in by one port, and R-DEPI packets leave by another. Keys are not rolled, as nothing would tell the other end.
#[derive(clap::Args, Debug)]
#[command(after_long_help = SENDING)]
pub(super) struct SendArguments {
    #[command(flatten)]
    ends: Ends,
}

/// Be the remote PHY and its modems: take R-DEPI packets apart, decrypt, check and pass on the Ethernet frames.
///
/// The service group must be the one that `warmlane docsis send` has: the same flags or file, and the same key seed.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RECEIVING)]
pub(super) struct ReceiveArguments {
    #[command(flatten)]
    ends: Ends,
}

#[derive(clap::Args, Debug)]
struct Ends {
    /// Where packets come from: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT")]
    from: DriverSettings,
    /// Where packets go.
    #[arg(long, value_name = "PORT", default_value = "null")]
    to: DriverSettings,
    /// Buffers for packets.
    #[arg(long, value_name = "COUNT", default_value_t = super::BUFFERS, value_parser = clap::value_parser!(u32).range(4_096..))]
    buffers: u32,
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    idle: IdleFlags,
}

const SENDING: &str = "\
Examples:
  Make a capture of what a remote PHY would get:
    warmlane docsis send --from pcap:read=in.pcap --to pcap:write=depi.pcap

  From one interface to another (as root), for the modems of a file:
    warmlane docsis send --from xdp:eth0 --to xdp:eth1 --config group.toml";

const RECEIVING: &str = "\
Examples:
  Get the Ethernet frames back from a capture:
    warmlane docsis receive --from pcap:read=in.pcap --to pcap:write=out.pcap

  Count what comes to this machine (as root):
    warmlane docsis receive --from xdp:eth0 --duration 10";

pub(super) fn send(SendArguments { ends }: &SendArguments, socket: ControlSocket) -> anyhow::Result<()> {
    ends.run(DownstreamEnd::Sender, socket)
}

pub(super) fn receive(
    ReceiveArguments { ends }: &ReceiveArguments,
    socket: ControlSocket,
) -> anyhow::Result<()> {
    ends.run(DownstreamEnd::Receiver, socket)
}

impl Ends {
    fn run(&self, end: DownstreamEnd, socket: ControlSocket) -> anyhow::Result<()> {
        let group = self.group.read()?;
        let signals = Signals::catch()?;
        let pool = Pool::new(&PoolConfig { buffers: self.buffers, ..PoolConfig::default() })?;
        let settings = [("from", &self.from), ("to", &self.to)]
            .map(|(name, driver)| PortSettings { name: name.to_owned(), driver: driver.clone() });
        check_captures(&settings)?;
        let mut opener = Opener::new(&pool, 1);
        let [from, to] = &settings;
        let mtu = Some(u32::from(group.tunnel.mtu));
        let from = signals.while_opening(|| opener.open_for(from, mtu, Direction::Receive))?;
        let to = signals.while_opening(|| opener.open_for(to, mtu, Direction::Transmit))?;
        let mut events = opener.take_events();
        let assembly = Assembly::downstream(end, &group, pool, [from, to], self.idle.policy()?)?;
        let _service = socket.serve_assembly(&assembly)?;
        run::print_notes(&assembly);
        run::to_the_end_with(assembly, &self.run, &signals, |_, timeout| {
            messages::tell_events(&mut events);
            signals.sleep(timeout);
        })
    }
}
