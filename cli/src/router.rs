//! `warmlane router`

mod answer;
mod ask;
mod capabilities;
mod control;
mod path;
mod reload;
mod service;
pub(crate) mod settings;

use crate::control_socket::{self, ControlSocketFlags};
use crate::messages;
use crate::metrics;
use crate::run::{self, RunFlags};
use anyhow::{Context as _, bail};
use control::Control;
use service::Service;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use warmlane::assembly::router::{
    Interfaces, LaneQueues, LeftInterfaces, PathSettings, Remark, UserPorts, on_user_path, spare_ports,
};
use warmlane::assembly::{Assembly, LaneSettings, RunError, SharedCpu, Signals, shared_cpus};
use warmlane::drivers::common::{Interface, InterfaceName};
use warmlane::drivers::xdp::{Steering, XdpOptions};
use warmlane::functions::router::control::{Follower, RouterSettings};
use warmlane::functions::router::datapath::HoldLimits;
use warmlane::functions::router::paths::{Plan, remove_left_behind};
use warmlane::mem::{Pool, PoolConfig};
use warmlane::sys::random::system_seed;

/// Take over forwarding from the kernel, by the kernel's own routes.
///
/// Packets between the given interfaces are forwarded where that is best: by lanes in user space, in the driver, or in the
/// kernel's stack (--path). The kernel stays the control plane: addresses, routes, neighbours, VLANs and VRFs are its own and are
/// followed as they change, so FRR, BIRD and `ip route` work as before, and everything that is for the box itself goes on: SSH,
/// ping, ARP, neighbour discovery, BGP, OSPF. No driver is changed.
/// When this ends, however it does, the kernel forwards again.
#[derive(clap::Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    override_usage = "warmlane router [OPTIONS] INTERFACE...\n       warmlane router [OPTIONS] --config FILE\n       warmlane router --clean [--json]\n       warmlane router COMMAND [--socket PATH] [--json]"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    request: Option<ask::Request>,
    /// A TOML file with `interfaces`, `path`, `lanes`, `cpus`, `mode`, `buffers`, `pending-neighbours`, `icmp-rate`, `urpf`,
    /// `spin`, `busy-poll`, `machine`, `pass-expiring`, `bypass-netfilter`, `offload-established`; flags count more. It is read
    /// again on SIGHUP and by `warmlane router reload`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take away what routers left behind that were killed, and do nothing else. Each start does so, too. Only kernels before
    /// Linux 6.6 keep anything, on path tc, and two seconds after the kill that forwards nothing any more.
    #[arg(long, conflicts_with = "config")]
    clean: bool,
    /// Say more at the start: what was obtained of each interface, and why not more.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    settings: settings::Settings,
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    control: ControlSocketFlags,
}

const EXAMPLES: &str = "\
Examples:
  Forward between two interfaces (as root), by the kernel's routes:
    warmlane router eth0 eth1

  Ask a running router:
    warmlane router status
    warmlane router routes 203.0.113.7
    warmlane router verify

  Drop packets whose sources are not reached by the interface that they come
  in by (RFC 3704), but on eth1 only those that are not reached at all:
    warmlane router eth0 eth1 --urpf strict --urpf eth1=loose

  Offer what it counts to Prometheus, at http://localhost:9469/metrics:
    warmlane router eth0 eth1 --metrics 9469

  See what it follows:
    ip route; ip neighbour; birdc show protocols";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.request {
        Some(_) if !arguments.settings.interfaces.is_empty() => {
            bail!(
                "a running router is asked without naming interfaces: `warmlane router COMMAND`, see --help"
            )
        }
        _ if arguments.clean
            && (arguments.request.is_some() || !arguments.settings.interfaces.is_empty()) =>
        {
            bail!("--clean is said alone: `warmlane router --clean`")
        }
        Some(_) if arguments.control.metrics.are_given() => {
            bail!("--metrics is for the router itself, not for a question to it")
        }
        Some(request) => ask::run(request, &arguments.control.path_of(NAME)?, arguments.run.json),
        None if arguments.clean => clean(arguments.run.json),
        None => route(arguments),
    }
}

/// Takes away what other routers left behind, and says what that was.
fn clean(as_json: bool) -> anyhow::Result<()> {
    let removed = remove_left_behind()?;
    if as_json {
        messages::print(format_args!("{}\n", serde_json::json!({ "removed": removed })))?;
    } else if removed.is_empty() {
        messages::print("nothing was left behind\n")?;
    } else {
        messages::print(format_args!("{}\n", removed.join("\n")))?;
    }
    Ok(())
}

fn route(arguments: &Arguments) -> anyhow::Result<()> {
    let asked = arguments.settings.with_file(arguments.config.as_deref())?;
    let lane_count = asked.lane_count();
    let settings = asked.changeable()?;
    let signals = Signals::catch()?;
    if arguments.config.is_some() {
        signals.catch_reload()?;
    }
    let path_settings = asked.path_settings()?;
    let mut tell = path::each_once(path::tell);
    let mut plans = path_settings.plan(&asked.interfaces, &BTreeSet::new(), &mut tell)?;
    let options = XdpOptions {
        pass_expiring: asked.pass_expiring,
        busy_poll: asked.busy_poll,
        mode: asked.mode.unwrap_or_default(),
        steering: Steering::Transit,
        ring: asked.ring(),
        ..XdpOptions::new("")
    };
    let left = LeftInterfaces::leave_occupied(&mut plans, &path_settings, &options, lane_count, &mut tell)?;
    tidy_up()?;

    let mut server = arguments.control.open_always(NAME)?;
    let metrics = arguments.control.metrics.open()?;
    let open = |plans: &[Plan], tell: &mut dyn FnMut(Remark)| {
        ForLanes::open(plans, &asked, &path_settings, &settings, &options, tell)
    };
    let plan_again = |refused: &BTreeSet<String>, tell: &mut dyn FnMut(Remark)| {
        anyhow::Ok(path_settings.plan(&left.without(&asked.interfaces), refused, tell)?)
    };
    let is_best = |name: &str| path_settings.is_best(name);
    let (plans, refused, for_lanes) = path::open_by(plans, is_best, open, plan_again, &mut tell)?;
    let ForLanes { pool, hold_limits, mut follower, user_ports, queues } = for_lanes;
    let on_user_path = on_user_path(&plans);
    if !on_user_path.is_empty() && arguments.verbose {
        let (ipv4, ipv6) = follower.fib().route_counts();
        messages::note(format_args!("{ipv4} IPv4 and {ipv6} IPv6 routes taken over from the kernel"));
    }

    let idle = asked.idle_flags().policy()?;
    if let Some(note) = asked.idle_flags().note() {
        messages::note(note);
    }
    let lane_settings = LaneSettings {
        lanes: lane_count,
        cpus: asked.cpus.clone(),
        idle,
        machine: asked.machine.settings()?,
    };
    let start = || Assembly::route(pool, &lane_settings, queues, &mut follower, hold_limits, settings.icmp);
    // What lanes touch comes from the network.
    let assembly = capabilities::without(start)??;
    let interfaces = Interfaces::open(
        plans,
        (left, refused),
        path_settings,
        settings.offload_established,
        &mut follower,
        assembly.registry(),
        &mut tell,
    )?;
    if arguments.verbose {
        run::print_notes(&assembly);
    }
    capabilities::drop_most(!on_user_path.is_empty())
        .context("capabilities that aren't needed any more can't be given up")?;
    // It reads what comes from the network, too.
    let serve = || metrics::of_assembly(metrics, NAME, &assembly);
    let _metrics = capabilities::to_read_maps(serve)??;
    path::print_notes(interfaces.plans(), assembly.ports());
    let names: Vec<&str> = interfaces.plans().iter().map(|plan| plan.interface.as_str()).collect();
    messages::note(format_args!("forwarding between {}", names.join(", ")));
    run::print_warnings(&assembly);
    for SharedCpu { cpu, process } in shared_cpus(&run::cpus(&assembly)) {
        messages::note(format_args!(
            "CPU {cpu} has a lane of another warmlane already (process {process}), and both wait for each other there: say --cpus with others"
        ));
    }
    for warning in follower.warnings() {
        messages::note(warning);
    }
    let views = interfaces.views();
    let mut control = Control {
        service: Service::ready(interfaces.sentence()),
        running: reload::Running { arguments, now: asked, interfaces },
        follower: &mut follower,
        common: control_socket::of_router(&server, &assembly, views),
        server: &mut server,
        user_ports: user_ports.with_waker(assembly.waker()),
        signals: &signals,
    };
    let losses = RefCell::new(Vec::new());
    let noted = &losses;
    // The paths in the kernel end with this.
    let ended = run::to_the_end_with(assembly, &arguments.run, &signals, move |assembly, timeout| {
        control.poll(assembly, timeout);
        noted.replace(control.running.interfaces.losses());
    });
    end_with(&losses.take(), ended)
}

/// Checks that the kernel forwards, and removes what routers that are gone have left in it.
fn tidy_up() -> anyhow::Result<()> {
    check_forwarding()?;
    for removed in remove_left_behind()? {
        messages::note(removed);
    }
    Ok(())
}

/// What lanes need.
struct ForLanes {
    pool: Pool,
    hold_limits: HoldLimits,
    follower: Follower,
    user_ports: UserPorts,
    queues: LaneQueues,
}

impl ForLanes {
    fn open(
        plans: &[Plan],
        asked: &settings::Settings,
        path_settings: &PathSettings,
        settings: &RouterSettings,
        options: &XdpOptions,
        tell: &mut dyn FnMut(Remark),
    ) -> anyhow::Result<Self> {
        let (on_user_path, lane_count) = (on_user_path(plans), asked.lane_count());
        let mut pool = PoolConfig { name: "packets".to_owned(), ..PoolConfig::default() };
        // Without lanes nobody takes any.
        pool.buffers =
            if on_user_path.is_empty() { NO_PACKETS } else { usual_buffers(asked, &on_user_path)? };
        let hold_limits = HoldLimits::share(pool.buffers, lane_count, asked.pending_neighbours());
        let pool = Pool::new(&pool)?;
        let spare = spare_ports(on_user_path.len());
        let follower = Follower::start(&on_user_path, spare, lane_count, system_seed(), settings)?;
        reload::check_names(&follower, asked, settings)?;
        let best = on_user_path.iter().filter(|name| path_settings.is_best(name)).cloned().collect();
        // The tables are full: from here on packets come.
        let (user_ports, queues) =
            UserPorts::open(&on_user_path, options.clone(), best, lane_count, &pool, &follower, tell)?;
        Ok(Self { pool, hold_limits, follower, user_ports, queues })
    }
}

/// How a router ends that has lost these interfaces. Queues may not have noticed yet, or not all.
fn end_with(losses: &[String], ended: anyhow::Result<()>) -> anyhow::Result<()> {
    let is_of_losses =
        |error: &anyhow::Error| matches!(error.downcast_ref::<RunError>(), Some(RunError::Failed { .. }));
    if !losses.is_empty() && ended.as_ref().err().is_none_or(is_of_losses) {
        bail!(losses.join("; "));
    }
    ended
}

/// How many packet buffers there are for these interfaces, unless something else is said.
fn usual_buffers(settings: &settings::Settings, on_user_path: &[String]) -> anyhow::Result<u32> {
    let queues = |name: &String| {
        let found = Interface::find(&InterfaceName::new(name)?)?;
        anyhow::Ok(found.receive_queues.unwrap_or(1))
    };
    let receive_queues: Vec<u32> = on_user_path.iter().map(queues).collect::<anyhow::Result<_>>()?;
    Ok(settings.buffer_count(&receive_queues))
}

/// What a router is called unless it is told.
const NAME: &str = "router";

/// The smallest pool.
const NO_PACKETS: u32 = 64;

/// The kernel must be a router, or nothing would be forwarded when Warmlane ends.
fn check_forwarding() -> anyhow::Result<()> {
    let is_on = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let ipv4 = is_on("/proc/sys/net/ipv4/ip_forward");
    let ipv6 = is_on("/proc/sys/net/ipv6/conf/all/forwarding");
    if !ipv4 && !ipv6 {
        bail!(
            "the kernel here is no router, so there is nothing to take over: `sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`"
        );
    }
    Ok(())
}
