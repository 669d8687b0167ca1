//! One end of a downstream between ports, so that the other one can be on another machine.

use super::group::GroupFlags;
use crate::control_socket::ControlSocket;
use crate::idle::IdleFlags;
use crate::run::{self, RunFlags};
use anyhow::Context as _;
use warmlane::assembly::ports::{Direction, DriverSettings, Opener, PortSettings, check_captures};
use warmlane::assembly::{Assembly, LaneSettings, Signals};
use warmlane::functions::docsis::control::ServiceGroup;
use warmlane::functions::docsis::{Queues, downstream, modems};
use warmlane::lane::Pipeline;
use warmlane::mem::{Pool, PoolConfig};
use warmlane::port::Port;

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
    ends.run(2, socket, |group, pool, queues| {
        let made = downstream(group, pool, queues, None)?;
        let views = made.views;
        let register =
            move |assembly: &Assembly, group: &ServiceGroup| views.register(assembly.registry(), group);
        Ok((vec![made.upper, made.lower], Box::new(register)))
    })
}

pub(super) fn receive(
    ReceiveArguments { ends }: &ReceiveArguments,
    socket: ControlSocket,
) -> anyhow::Result<()> {
    ends.run(1, socket, |group, pool, queues| {
        let (pipeline, _) = modems(group, pool, queues, None)?;
        Ok((vec![pipeline], Box::new(|_: &Assembly, _: &ServiceGroup| ())))
    })
}

/// What adds counters that are of no stage.
type Register = Box<dyn FnOnce(&Assembly, &ServiceGroup)>;

impl Ends {
    /// Runs the pipelines that `make` makes, each on a lane, to the end.
    fn run(
        &self,
        lanes: usize,
        socket: ControlSocket,
        make: impl FnOnce(&ServiceGroup, &Pool, Queues) -> anyhow::Result<(Vec<Pipeline>, Register)>,
    ) -> anyhow::Result<()> {
        let group = self.group.read()?;
        let signals = Signals::catch()?;
        let pool = Pool::new(&PoolConfig { buffers: self.buffers, ..PoolConfig::default() })?;
        let settings = [("from", &self.from), ("to", &self.to)]
            .map(|(name, driver)| PortSettings { name: name.to_owned(), driver: driver.clone() });
        check_captures(&settings)?;
        let mut opener = Opener::new(&pool, 1);
        let [from, to] = &settings;
        let mtu = Some(u32::from(group.tunnel.mtu));
        let mut from = opener.open_for(from, mtu, Direction::Receive)?;
        let mut to = opener.open_for(to, mtu, Direction::Transmit)?;
        // Lanes have different work here, so that queues aren't shared out among them.
        let views = [from.view(), to.view()];
        let queues = Queues { receive: std::mem::take(&mut from.receive), transmit: to.take_transmit()? };
        let (pipelines, register) = make(&group, &pool, queues)?;
        let mut pipelines = pipelines.into_iter();
        let settings = LaneSettings { lanes, idle: self.idle.policy()?, ..LaneSettings::default() };
        let assembly = Assembly::start(pool, &settings, without_queues([from, to]), |_| {
            Ok(pipelines.next().context("a pipeline for each lane")?)
        })?;
        for view in views {
            view.register(assembly.registry());
        }
        register(&assembly, &group);
        let _service = socket.serve(assembly.registry(), assembly.lanes().views(), None)?;
        run::print_notes(&assembly);
        run::to_the_end(assembly, &self.run, &signals)
    }
}

fn without_queues(ports: [Port; 2]) -> Vec<Port> {
    ports.map(|port| Port { receive: Vec::new(), transmit: Vec::new(), ..port }).into()
}
