//! `warmlane gen`

mod output;
mod page;
mod ports;
mod progress;
mod replay;
mod report;
mod self_test;
mod suite;
mod tables;
mod traffic;
mod trial;
mod values;

use crate::control_socket::{ControlSocket, ControlSocketFlags, Services};
use warmlane::assembly::Signals;
use warmlane::assembly::ports::PortEvents;
use warmlane::counters::Registry;
use warmlane::functions::generator::Tester;
use warmlane::mem::Pool;

/// Generate traffic and measure what becomes of it.
///
/// Sends streams of packets, exactly when they are due, from one port, and receives them on another (or the same) one.
/// Each packet carries a signature, by which lost, duplicated, reordered, damaged and late ones are found, and how long
/// each took. Prints a report.
///
/// A trial in which the generator itself did not keep the rate is void: the report says so, and the exit status is 1.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    control: ControlSocketFlags,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Run(Box<trial::RunArguments>),
    Soak(Box<trial::SoakArguments>),
    Replay(Box<replay::Arguments>),
    Rfc2544(Box<suite::Rfc2544Arguments>),
    Mlrsearch(Box<suite::MlrsearchArguments>),
    SelfTest(Box<self_test::Arguments>),
}

pub(crate) const EXAMPLES: &str = "\
Examples (each command's --help has more):
  What can this machine generate, and how precisely (no privilege needed):
    warmlane gen self-test

  A million packets a second from one interface to another (as root):
    warmlane gen run --transmit packet:eth0 --receive packet:eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --rate 1Mpps

  The tests of RFC 2544:
    warmlane gen rfc2544 --both packet:eth0 --to 198.51.100.9 \\
      --to-mac 02:00:00:00:01:01 --line 10Gbps --report rfc2544.html

  A capture, twice as fast as it was recorded:
    warmlane gen replay capture.pcap --transmit packet:eth0 --speed 2";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let socket = arguments.control.open("gen")?;
    match &arguments.command {
        Command::Run(arguments) => arguments.run(&signals, socket),
        Command::Soak(arguments) => arguments.run(&signals, socket),
        Command::Replay(arguments) => arguments.run(&signals, socket),
        Command::Rfc2544(arguments) => arguments.run(&signals, socket),
        Command::Mlrsearch(arguments) => arguments.run(&signals, socket),
        Command::SelfTest(arguments) => self_test::run(arguments, &signals, socket),
    }
}

/// Lets the generator be asked while it runs.
fn serve(
    socket: ControlSocket,
    tester: &Tester,
    events: &PortEvents,
    pool: &Pool,
) -> anyhow::Result<Services> {
    let registry = Registry::new();
    tester.register(&registry);
    events.register(&registry);
    pool.register(&registry);
    socket.serve(&registry, tester.lanes(), pool)
}
