//! `warmlane forward`

use crate::control_socket::ControlSocketFlags;
use crate::flags::ConfigFlags;
use crate::idle::IdleFlags;
use crate::machine::MachineFlags;
use crate::messages;
use crate::run::{self, RunFlags};
use warmlane::assembly::ports::{
    AddressFollower, DriverSettings, Opener, PortEvents, PortSettings, check_captures,
};
use warmlane::assembly::{Assembly, LaneSettings, Signals, offloads};
use warmlane::functions::forward::control::Config;
use warmlane::functions::forward::control::config::PortConfig;
use warmlane::mem::Pool;
use warmlane::port::Port;

/// Forward packets between ports, by longest-prefix match, and single flows by exact match.
///
/// Reads a configuration from a file, from flags, or from both. Ends when no port has anything more to receive (captures
/// have been read), after --duration or --count, or on Ctrl-C; then lets what is under way leave, and prints a report that
/// accounts for every packet. SIGUSR1 prints one in between.
#[derive(clap::Args, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Open the ports, say what each of them does for packets and what software has to do, and end.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    config: ConfigFlags,
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    idle: IdleFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    control: ControlSocketFlags,
}

const EXAMPLES: &str = "\
Examples:
  Route a capture into two others, by the full Internet table (no root):
    warmlane forward --port in=pcap:read=in.pcap \\
      --port a=pcap:write=a.pcap --port b=pcap:write=b.pcap \\
      --mac a=02:00:00:00:01:01 --mac b=02:00:00:00:01:02 \\
      --neighbour 192.0.2.1=02:00:00:00:02:01@a \\
      --neighbour 192.0.2.2=02:00:00:00:02:02@b \\
      --full-table 192.0.2.1,192.0.2.2

  Between two interfaces (as root), which keep their drivers:
    warmlane forward --port west=xdp:eth0 --port east=xdp:eth1 \\
      --address west=192.0.2.1/24 --address east=198.51.100.1/24 \\
      --neighbour 192.0.2.2=02:00:00:00:00:02@west \\
      --neighbour 198.51.100.2=02:00:00:00:00:03@east";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (config, drivers) = arguments.config.read()?;
    if arguments.explain {
        return explain(&config, drivers, arguments.run.json);
    }
    let signals = Signals::catch()?;
    let socket = arguments.control.open("forward")?;
    let pool = Pool::new(&config.pool.pool_config("packets"))?;
    let Opened { ports, mut follower, mut events } =
        signals.while_opening(|| open_ports(&config, drivers, &pool))?;
    let idle = arguments.idle.policy()?;
    if let Some(note) = arguments.idle.note() {
        messages::note(note);
    }
    let settings =
        LaneSettings { lanes: config.lanes, cpus: Vec::new(), idle, machine: arguments.machine.settings()? };
    let assembly = Assembly::forward(config, pool, ports, &settings)?;
    events.register(assembly.registry());
    let _service = socket.serve_assembly(&assembly)?;
    run::print_notes(&assembly);
    run::print_warnings(&assembly);
    let ended = run::to_the_end_with(assembly, &arguments.run, &signals, |_, timeout| {
        messages::tell_events(&mut events);
        signals.sleep(timeout);
        if let Some(Err(error)) = follower.as_mut().map(AddressFollower::follow) {
            messages::complain(format_args!("the kernel's addresses can't be followed: {error}"));
        }
    });
    messages::tell_events(&mut events);
    ended
}

/// Prints who does what for packets, once ports are open and it is known.
fn explain(config: &Config, drivers: Vec<DriverSettings>, as_json: bool) -> anyhow::Result<()> {
    let pool = Pool::new(&config.pool.pool_config("packets"))?;
    let Opened { ports, mut events, .. } = open_ports(config, drivers, &pool)?;
    messages::tell_events(&mut events);
    let explained = offloads(&ports, !config.overlays.is_empty());
    if as_json {
        messages::print(format_args!("{}\n", serde_json::to_string(&explained)?))?;
    } else {
        explained.iter().try_for_each(|port| messages::print(format_args!("{port}")))?;
    }
    Ok(())
}

/// Ports, and what is to be called while they are open.
struct Opened {
    ports: Vec<Port>,
    /// Follows the kernel's addresses for them.
    follower: Option<AddressFollower>,
    events: PortEvents,
}

/// Opens the ports that `config` describes.
fn open_ports(config: &Config, drivers: Vec<DriverSettings>, pool: &Pool) -> anyhow::Result<Opened> {
    let named = config.ports.iter().zip(drivers);
    let settings: Vec<PortSettings> =
        named.map(|(port, driver)| PortSettings { name: port.name.clone(), driver }).collect();
    check_captures(&settings)?;
    let lanes = config.lanes;
    let mut opener = Opener::new(pool, lanes);
    let open = |(config, settings): (&PortConfig, &PortSettings)| {
        let port = opener.open(settings, Some(config.mtu.into()))?.steered(&config.steering(lanes)?);
        Ok(if config.gro { port.merging() } else { port })
    };
    let ports = config.ports.iter().zip(&settings).map(open).collect::<anyhow::Result<_>>()?;
    let events = opener.take_events();
    Ok(Opened { ports, follower: opener.into_follower(), events })
}
