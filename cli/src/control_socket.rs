//! The control socket from the command line: where it is, or that there is none.

use crate::messages;
use crate::metrics::{self, MetricsFlags};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use std::convert::Infallible;
use std::path::PathBuf;
use warmlane::assembly::capture::Capturer;
use warmlane::assembly::cycles::StageTimer;
use warmlane::assembly::router::PathViews;
use warmlane::assembly::trace::Tracer;
use warmlane::assembly::{Assembly, graphs, layout};
use warmlane::control::{self, Common, Fixed, Server, ServerError, Service};
use warmlane::counters::{Labels, Registry};
use warmlane::lane::LaneView;
use warmlane::mem::Pool;

/// Where this instance can be asked while it runs.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Control socket")]
pub(crate) struct ControlSocketFlags {
    /// What this instance is called, as in `warmlane stats NAME`. Without it the command and the number of the process;
    /// a router is `router`.
    #[arg(long, value_name = "NAME", global = true, conflicts_with_all = ["socket", "no_socket"])]
    instance: Option<String>,
    /// The Unix socket by which this instance can be asked, which only its user and root can. Without it NAME.sock in
    /// /run/warmlane, in $XDG_RUNTIME_DIR/warmlane for other users than root, or in /tmp/warmlane-NUMBER for users without that.
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "no_socket")]
    socket: Option<PathBuf>,
    /// Open no control socket.
    #[arg(long, global = true)]
    no_socket: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
}

impl ControlSocketFlags {
    /// Where the instance is that is called so if nothing else is said.
    pub(crate) fn path_of(&self, name: &str) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.socket {
            return Ok(path.clone());
        }
        let name = self.instance.as_deref().unwrap_or(name);
        ensure!(
            !name.is_empty() && !name.contains('/') && !name.starts_with('.'),
            "--instance '{name}': a name is not empty, has no slash, and no dot in front"
        );
        Ok(control::path_of(name))
    }

    /// Opens the socket of an instance that can't be without.
    pub(crate) fn open_always<L>(&self, name: &str) -> anyhow::Result<Server<L>> {
        if self.no_socket {
            bail!("a router is asked and reloaded by its control socket: leave --no-socket out");
        }
        Ok(Server::open(&self.path_of(name)?)?)
    }

    /// Opens the socket of an instance of a kind. One that is not asked for may be impossible, and the work goes on.
    pub(crate) fn open(&self, kind: &'static str) -> anyhow::Result<ControlSocket> {
        let metrics = self.metrics.open()?;
        if self.no_socket {
            return Ok(ControlSocket { kind, server: None, metrics });
        }
        let path = self.path_of(&format!("{kind}-{}", std::process::id()))?;
        let server = match Server::open(&path) {
            Err(ServerError::System { source, .. }) if self.socket.is_none() && self.instance.is_none() => {
                messages::note(format_args!("no control socket {}: {source}", path.display()));
                None
            }
            server => Some(server?),
        };
        Ok(ControlSocket { kind, server, metrics })
    }
}

/// What is answered by a router, with these interfaces on kernel paths.
pub(crate) fn of_router<L>(server: &Server<L>, assembly: &Assembly, paths: PathViews) -> Common {
    let (lanes, pool) = (assembly.lanes().views(), assembly.pool());
    common("router", server, (assembly.registry(), paths), lanes, fixed(lanes, pool), Some(pool))
}

/// What is answered by an instance of a kind with these lanes. With a pool, it can be asked about frames that never came.
fn common<L>(
    kind: &str,
    server: &Server<L>,
    (registry, paths): (&Registry, PathViews),
    lanes: &[LaneView],
    fixed: Fixed,
    pool: Option<&Pool>,
) -> Common {
    let capturer = Capturer::new(lanes, registry.clone()).with_paths(paths);
    let tracer = Tracer::new(lanes, pool.cloned());
    let timer = StageTimer::new(lanes);
    Common::new(kind, server, registry.clone(), fixed)
        .and(Box::new(move |line| capturer.try_answer(line)))
        .and(Box::new(move |line| tracer.try_answer(line)))
        .and(Box::new(move |line| timer.try_answer(line)))
}

/// What stays as it is of an instance with these lanes and this pool.
pub(crate) fn fixed(lanes: &[LaneView], pool: &Pool) -> Fixed {
    Fixed { graphs: graphs(&Labels::new(), lanes), layout: layout(&[(Labels::new(), pool.clone())]) }
}

/// A control socket, and a place for metrics, at which nobody answers yet.
pub(crate) struct ControlSocket {
    kind: &'static str,
    server: Option<Server<Infallible>>,
    metrics: Option<warmlane::metrics::Server>,
}

/// Threads that answer until this is dropped.
pub(crate) struct Services {
    _control: Option<Service>,
    _metrics: Option<Service>,
}

impl ControlSocket {
    /// Lets threads answer, away from the CPUs of lanes, until what this returns is dropped.
    pub(crate) fn serve(
        self,
        registry: &Registry,
        lanes: &[LaneView],
        pool: &Pool,
    ) -> anyhow::Result<Services> {
        self.serve_fixed(registry, lanes, fixed(lanes, pool), None)
    }

    /// The same for an instance that forwards, and that can be asked about frames that never came.
    pub(crate) fn serve_assembly(self, assembly: &Assembly) -> anyhow::Result<Services> {
        let (lanes, pool) = (assembly.lanes().views(), assembly.pool());
        self.serve_fixed(assembly.registry(), lanes, fixed(lanes, pool), Some(pool))
    }

    /// The same where lanes and pools have more labels than their names, which `fixed` has, too.
    pub(crate) fn serve_fixed(
        self,
        registry: &Registry,
        lanes: &[LaneView],
        fixed: Fixed,
        pool: Option<&Pool>,
    ) -> anyhow::Result<Services> {
        let metrics = metrics::serve(self.metrics, self.kind, registry, lanes, &fixed)?;
        let Some(server) = self.server else { return Ok(Services { _control: None, _metrics: metrics }) };
        let without_paths = (registry, PathViews::default());
        let answers = common(self.kind, &server, without_paths, lanes, fixed, pool);
        let cpus = lanes.iter().filter_map(|lane| lane.cpu).collect();
        let control = Service::start(server, answers, cpus).context("the control socket has no thread")?;
        Ok(Services { _control: Some(control), _metrics: metrics })
    }
}
