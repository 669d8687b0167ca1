//! `warmlane forward`

use crate::assembly;
use crate::flags::ConfigFlags;
use crate::run::{self, RunFlags, Signals};
use warmlane::lane::IdlePolicy;
use warmlane::mem::Pool;

/// Forward packets between ports, by longest-prefix match.
///
/// Reads a configuration from a file, from flags, or from both. Ends when all ports have come to their end (captures
/// are read), after --duration or --count, or on Ctrl-C; then lets what is under way leave, and prints a report that
/// accounts for every packet. SIGUSR1 prints one in between.
#[derive(clap::Args, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Poll without rest, also when there is no traffic: the lowest latency, and a whole core for each lane.
    #[arg(long)]
    spin: bool,
}

const EXAMPLES: &str = "\
Examples:
  Route a capture into two others, by the full Internet table (no privilege needed):
    warmlane forward --port in=pcap:read=in.pcap --port a=pcap:write=a.pcap --port b=pcap:write=b.pcap \\
      --mac a=02:00:00:00:01:01 --mac b=02:00:00:00:01:02 \\
      --neighbour 192.0.2.1=02:00:00:00:02:01@a --neighbour 192.0.2.2=02:00:00:00:02:02@b \\
      --full-table 192.0.2.1,192.0.2.2

  Between two interfaces (as root), which keep their drivers:
    warmlane forward --port west=xdp:eth0 --port east=xdp:eth1 \\
      --address west=192.0.2.1/24 --address east=198.51.100.1/24 \\
      --neighbour 192.0.2.2=02:00:00:00:00:02@west --neighbour 198.51.100.2=02:00:00:00:00:03@east";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = arguments.config.read()?;
    let signals = Signals::catch()?;
    let pool = Pool::new(&config.pool.pool_config("packets"))?;
    let ports = assembly::open_ports(&config, &pool)?;
    let idle = if arguments.spin { IdlePolicy::Spin } else { IdlePolicy::Ramp };
    let assembly = assembly::start(config, pool, ports, idle)?;
    for port in &assembly.ports {
        for note in &port.notes {
            eprintln!("note: port '{}': {note}", port.name);
        }
    }
    run::to_the_end(assembly, &arguments.run, &signals)
}
