//! `warmlane top` on a terminal, as somebody sees it: tmux has the terminal, and types.

use std::path::{Path, PathBuf};
use std::process::Command;

use warmlane_system_tests::{SHORT, assert_refused};
use warmlane_testkit::process::{Process, warmlane};

use super::forwarder::{
    Forwarder, forwarder_beside_others, forwarder_with, stats, sum, time_stages, wait_until,
};

/// A terminal of 80 columns and 24 lines. It goes with what runs in it, or with this.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(directory: &Path, name: &str, line: &str) -> Self {
        let tmux = Self { socket: directory.join(name) };
        let arguments = ["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", line];
        let finished = tmux.run(&arguments);
        assert!(finished.0, "{}", finished.1);
        tmux
    }

    /// Whether it went well, and what was said.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(arguments).env("LC_ALL", "C.UTF-8");
        let finished = Process::run(&mut command, SHORT);
        (finished.status.success(), finished.text())
    }

    fn shown(&self) -> String {
        self.run(&["capture-pane", "-p"]).1
    }

    /// With the sequences for colours and weights.
    fn styled(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"]).1
    }

    fn press(&self, keys: &[&str]) {
        let finished = self.run(&[&["send-keys"], keys].concat());
        assert!(finished.0, "{}", finished.1);
    }

    fn resize(&self, columns: u16, lines: u16) {
        let finished = self.run(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
        assert!(finished.0, "{}", finished.1);
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} is shown"), || self.shown().contains(text));
    }

    fn has_ended(&self) -> bool {
        !self.run(&["has-session"]).0
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.run(&["kill-server"]);
    }
}

/// The words of the first line that begins with one.
fn words(text: &str, first: &str) -> Option<Vec<String>> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(first))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// What it says of packets without a route: how many there were so far.
fn lost(text: &str) -> Option<String> {
    words(text, "no-route")?.get(2).cloned()
}

/// tmux shows a colour of letters so.
fn has_colour(text: &str) -> bool {
    text.contains("\u{1b}[38;5;")
}

#[test]
fn it_shows_what_stats_say_and_obeys_keys() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tmux"]) else { return };
    let line =
        format!("env -u NO_COLOR {} top {} --interval 0.2", warmlane().display(), forwarder.socket.display());
    let tmux = Tmux::start(directory.path(), "tmux", &line);
    tmux.wait_for("f (forward");
    tmux.wait_for("west");
    let count = forwarder.send_to("203.0.113.1", 300, "10kpps", 64);
    tmux.wait_for("drops of no-route: ");
    wait_until("its totals are those of stats", || lost(&tmux.shown()) == Some(count.to_string()));
    let buffers = sum(&stats(&forwarder.socket), "pool", "buffers", ("pool", "packets")).to_string();
    wait_until("it knows the pool", || {
        words(&tmux.shown(), "packets").is_some_and(|words| words.contains(&buffers))
    });
    assert!(has_colour(&tmux.styled()), "{:?}", tmux.styled());
    tmux.wait_for("q quit");
    let shown = tmux.shown();
    assert!(shown.lines().count() <= 24, "{shown}");

    tmux.press(&["4"]);
    tmux.wait_for("drops, by rate");
    wait_until("only drops are shown", || !tmux.shown().contains("west"));
    tmux.press(&["s", "Space"]);
    tmux.wait_for("drops, as listed  FROZEN");
    let more = forwarder.send_to("203.0.113.1", 100, "10kpps", 64);
    assert_eq!(lost(&tmux.shown()), Some(count.to_string()), "it is frozen");
    tmux.press(&["Space"]);
    wait_until("it goes on", || lost(&tmux.shown()) == Some((count + more).to_string()));
    tmux.press(&["?"]);
    tmux.wait_for("this help");
    tmux.press(&["x"]);
    wait_until("the help is closed", || !tmux.shown().contains("this help"));
    tmux.resize(60, 10);
    tmux.wait_for("too small: 60 by 10");
    tmux.resize(80, 24);
    tmux.wait_for("no-route");

    // An instance that ends is said to be gone, and `q` still ends the command.
    forwarder.finish();
    tmux.wait_for("NO ANSWER");
    tmux.wait_for("nobody answers at");
    tmux.press(&["q"]);
    wait_until("it ends", || tmux.has_ended());
}

/// A line that starts the command, and the file in which its process's number then is.
fn numbered(directory: &Path, forwarder: &Forwarder) -> (String, PathBuf) {
    let number = directory.join("number");
    let (top, socket) = (warmlane().display(), forwarder.socket.display());
    (format!("sh -c 'echo $$ > {}; exec {top} top {socket}'", number.display()), number)
}

#[test]
fn it_leaves_the_terminal_as_it_was_however_it_ends() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tmux"]) else { return };
    let (top, number) = numbered(directory.path(), &forwarder);
    // What the shell says before and after, and then nothing more.
    let line = format!("echo before; {top}; echo \"ended with $?\"; stty -a; exec cat");
    for end in ["q", "HUP", "INT", "TERM"] {
        let tmux = Tmux::start(directory.path(), end, &line);
        tmux.wait_for("q quit");
        if end == "q" {
            tmux.press(&["q"]);
        } else {
            let process = std::fs::read_to_string(&number).expect("the shell has written it");
            let mut kill = Command::new("kill");
            kill.args(["-s", end, process.trim()]);
            Process::run(&mut kill, SHORT).expect_success("kill");
        }
        tmux.wait_for("ended with 0");
        tmux.wait_for("icanon");
        let shown = tmux.shown();
        assert!(shown.contains("before") && !shown.contains("q quit"), "{end}: {shown}");
        assert!(!shown.contains("-icanon") && !shown.contains("-echo "), "{end}: {shown}");
    }
    forwarder.finish();
}

#[test]
fn it_ends_with_its_terminal() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tmux"]) else { return };
    let (line, number) = numbered(directory.path(), &forwarder);
    let tmux = Tmux::start(directory.path(), "tmux", &line);
    tmux.wait_for("q quit");
    let process = std::fs::read_to_string(&number).expect("the shell has written it");
    let process = Path::new("/proc").join(process.trim());
    assert!(process.exists());
    drop(tmux);
    wait_until("it is gone", || !process.exists());
    forwarder.finish();
}

#[test]
fn it_has_stages_timed_as_soon_as_one_of_four_others_has_ended() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tmux"]) else { return };
    let mut others: Vec<_> = (0..4).map(|_| time_stages(&forwarder.socket).1).collect();
    let line = format!("{} top {} --interval 0.1", warmlane().display(), forwarder.socket.display());
    let tmux = Tmux::start(directory.path(), "tmux", &line);
    // It was refused before it showed anything.
    tmux.wait_for("west");
    drop(others.pop());
    // Each look takes the turn if it is free, and gives it back a moment later: one refusal may be due to the look before.
    let mut refused = 0;
    wait_until("it has the turn", || {
        refused = if time_stages(&forwarder.socket).0["error"].is_string() { refused + 1 } else { 0 };
        refused == 4
    });
    tmux.press(&["q"]);
    wait_until("it has left it", || time_stages(&forwarder.socket).0["error"].is_null());
    forwarder.finish();
}

#[test]
fn there_are_no_colours_if_they_are_not_wanted() {
    let Some((_turn, directory, forwarder)) = forwarder_with(&["tmux"]) else { return };
    let line = format!("{} top {}", warmlane().display(), forwarder.socket.display());
    for (name, line) in [("flag", format!("{line} --no-color")), ("variable", format!("NO_COLOR=1 {line}"))] {
        let tmux = Tmux::start(directory.path(), name, &line);
        tmux.wait_for("west");
        assert!(!has_colour(&tmux.styled()), "{:?}", tmux.styled());
    }
    forwarder.finish();
}

#[test]
fn a_pipe_gets_one_page_and_needs_to_ask_for_it() {
    let (_turn, _directory, forwarder) = forwarder_beside_others();
    let count = forwarder.send_to("203.0.113.1", 100, "10kpps", 64);
    let top = |arguments: &[&str]| {
        Process::run(Command::new(warmlane()).arg("top").arg(&forwarder.socket).args(arguments), SHORT)
    };
    // Packets that are on their way through a lane at the end are counted a moment later.
    wait_until("all are dropped", || {
        sum(&stats(&forwarder.socket), "forward", "drops", ("lane", "lane0")) == count
    });
    let finished = top(&["--once", "--interval", "0.1"]);
    let text = finished.expect_success("top");
    assert_eq!(lost(text), Some(count.to_string()), "{text}");
    for part in ["port ", "lane0", "west", "notice", "busy"] {
        assert!(text.contains(part), "nothing of {part:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_refused(&top(&[]), &["no terminal", "--once"]);
    forwarder.finish();
}
