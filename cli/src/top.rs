//! `warmlane top`

mod asker;
#[cfg(test)]
mod made_up;
mod model;
mod page;
mod screen;
mod timed;
mod view;

use crate::instances::{self, InstanceFlags};
use crate::messages;
use anyhow::bail;
use asker::Heard;
use model::Model;
use page::Choice;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Action, Candidate, Screen, Watched};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use view::View;
use warmlane::control::{Client, Instance, Request};

/// Watch a running instance: ports, lanes, stages, drops, pools, and what changes.
///
/// It reads what `warmlane stats` reads, by the control socket. While it looks, lanes time their stages, one burst in 61. Press ? for the
/// keys. The terminal needs 78 columns and 12 lines.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    instance: InstanceFlags,
    /// Seconds between readings.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::stats::interval)]
    interval: Duration,
    /// Take two readings, print one page as plain text, and exit.
    #[arg(long)]
    once: bool,
    /// No colours; the same if the environment variable NO_COLOR is set.
    #[arg(long, alias = "no-colour")]
    no_color: bool,
}

const EXAMPLES: &str = "\
Examples:
  Watch the only instance that runs:
    warmlane top

  What a router did in the last ten seconds, for a log:
    warmlane top router --once --interval 10";

/// How long keys are waited for before news are looked for.
const TURN: Duration = Duration::from_millis(50);
/// How long after a signal the loop may take to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// An instance that answers so much later than it should is said to be silent.
const LATE: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.once {
        return once(arguments);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("this is no terminal: use --once for plain text, or `warmlane stats --watch`");
    }
    let path = arguments.instance.path()?;
    // A mistake is told before the screen is taken. An answer may take its time on a busy machine.
    Client::connect(&path)?;
    // Not `Signals`, for which a second one ends the process at once, and leaves the terminal as it is.
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    end_without_terminal(Arc::clone(&stopped));
    let mut watching = Watching::new(asker::start(path, arguments.interval), arguments.interval);
    let no_colour = arguments.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut screen = Screen::new(!no_colour);
    // A panic restores the terminal, too: this sets the hook.
    let mut terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
    let watched = watch(&mut terminal, &mut screen, &mut watching, &stopped);
    let restored = ratatui::try_restore();
    watched.and(restored.map_err(Into::into))
}

/// Ends the program after a signal if nothing else does: of a terminal that is gone, crossterm reads the end for ever.
fn end_without_terminal(stopped: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            std::thread::sleep(TURN);
        }
        std::thread::sleep(PATIENCE);
        // There may be no terminal to be restored.
        let _ = ratatui::try_restore();
        std::process::exit(0);
    });
}

/// Two looks, and the page.
fn once(arguments: &Arguments) -> anyhow::Result<()> {
    let path = arguments.instance.path()?;
    let mut client = instances::connect(&path)?;
    // Without it, there are no cycles of stages.
    let _timing = asker::time_stages(&path);
    let mut model = Model::default();
    model.take(client.ask(&Request::Stats {})?);
    std::thread::sleep(arguments.interval);
    model.take(client.ask(&Request::Stats {})?);
    let view = model.view();
    let mut text = format!("after {}, the last {}\n\n", page::age(view.age), page::age(view.between));
    for line in view.lines(Choice::default(), usize::MAX) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.text);
    }
    Ok(messages::print(text)?)
}

/// An instance that is watched.
struct Watching {
    news: Receiver<Heard>,
    interval: Duration,
    model: Model,
    view: View,
    instance: Option<Instance>,
    /// What it is called on the screen.
    name: String,
    /// Why it can't be asked, if so.
    failure: Option<String>,
    heard: Instant,
}

impl Watching {
    fn new(news: Receiver<Heard>, interval: Duration) -> Self {
        let (model, view, name) = (Model::default(), View::default(), "waiting for an answer".to_owned());
        Self { news, interval, model, view, instance: None, name, failure: None, heard: Instant::now() }
    }

    /// Takes in what was heard; whether that was anything.
    fn listen(&mut self) -> bool {
        let mut has_heard = false;
        while let Ok(heard) = self.news.try_recv() {
            match heard {
                Heard::Instance(instance) => self.meet(instance),
                Heard::Stats(stats) => {
                    self.model.take(stats);
                    self.heard = Instant::now();
                }
                Heard::Nothing(reason) => {
                    if self.failure.is_none() {
                        self.model.note(reason.clone(), true);
                    }
                    self.failure = Some(reason);
                }
            }
            has_heard = true;
        }
        if has_heard {
            self.view = self.model.view();
        }
        has_heard
    }

    fn note(&mut self, problem: String) {
        self.model.note(problem, true);
        self.view = self.model.view();
    }

    fn meet(&mut self, instance: Instance) {
        match &self.instance {
            // Where each container counts its own processes, a new one may have the same number.
            Some(before) if (before.pid, before.since) != (instance.pid, instance.since) => {
                self.model.start_again(format!("another process: {}", instance.pid));
            }
            Some(_) => self.model.note("it answers again".to_owned(), false),
            None => {}
        }
        let Instance { name, kind, version, pid, .. } = &instance;
        self.name = format!("{name} ({kind} {version}, process {pid})");
        (self.instance, self.failure) = (Some(instance), None);
    }

    /// Why the last figures are old, if they are.
    fn silence(&self) -> Option<String> {
        if let Some(reason) = &self.failure {
            return Some(reason.clone());
        }
        let since = self.heard.elapsed();
        let is_long = since > self.interval + LATE;
        is_long.then(|| format!("nothing was heard for {} seconds", since.as_secs()))
    }
}

/// Who is looked at until keys or signals say that it is enough.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    watching: &mut Watching,
    stopped: &AtomicBool,
) -> anyhow::Result<()> {
    let (mut is_old, mut silence) = (true, None);
    let mut candidates: Option<Receiver<anyhow::Result<Vec<Candidate>>>> = None;
    while !stopped.load(Ordering::Relaxed) {
        is_old |= watching.listen();
        if let Some(Ok(found)) = candidates.as_ref().map(Receiver::try_recv) {
            (candidates, is_old) = (None, true);
            match found {
                Ok(found) => screen.choose(found),
                Err(error) => watching.note(format!("{error:#}")),
            }
        }
        let before = std::mem::replace(&mut silence, watching.silence());
        if is_old || silence != before {
            let watched = Watched { name: &watching.name, silence: silence.as_deref() };
            terminal.draw(|frame| screen.draw(frame, watched, &watching.view))?;
        }
        is_old = event::poll(TURN)?;
        if !is_old {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match screen.key(key, &watching.view) {
            Action::None => {}
            Action::Quit => return Ok(()),
            Action::Choose => {
                // Each of them is asked who it is, and one that hangs may take a minute to answer.
                let (tell, told) = sync_channel(1);
                std::thread::spawn(move || tell.send(instances::running()));
                candidates = Some(told);
            }
            Action::Switch(path) => {
                *watching = Watching::new(asker::start(path, watching.interval), watching.interval);
            }
        }
    }
    Ok(())
}
