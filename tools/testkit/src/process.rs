//! Programs that a test runs, and the `warmlane` command above all.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::SIGINT;

use crate::promise::Stat;

/// How often, while it says nothing, a process is asked whether it is still there.
const POLL: Duration = Duration::from_millis(100);

/// The environment variable with the path of a command that is there already, for tests where none can be built.
pub const COMMAND_VARIABLE: &str = "WARMLANE_TEST_COMMAND";

/// The `warmlane` command, built like the test that asks for it.
///
/// # Panics
/// If it can't be built.
pub fn warmlane() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os(COMMAND_VARIABLE) {
            return path.into();
        }
        let test = std::env::current_exe().expect("a test knows its path");
        // target/PROFILE/deps/test-hash
        let profile = test.ancestors().nth(2).expect("tests are in a target directory");
        let target = profile.parent().expect("profiles are in a target directory");
        // Cargo doesn't rebuild a package's programs for the tests of another one. Asked for together with the system tests, its
        // dependencies have the features that they were built with for those.
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "build",
            "--quiet",
            "--package",
            "warmlane-cli",
            "--package",
            "warmlane-system-tests",
            "--profile",
        ]);
        cargo.arg(if profile.ends_with("release") { "release" } else { "test" });
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = cargo.status().expect("cargo starts");
        assert!(status.success(), "cargo could not build the warmlane command");
        profile.join("warmlane")
    })
}

/// A copy of the `warmlane` command in a directory, for users who can't reach the original.
///
/// Another program makes it: a file that this process had open for writing could not be executed while a child of another
/// thread, forked meanwhile, still holds a copy of the descriptor (`ETXTBSY`).
///
/// # Panics
/// If it can't be made.
#[track_caller]
pub fn install_warmlane(directory: &Path) -> PathBuf {
    let copy = directory.join("warmlane");
    let mut install = Command::new("install");
    install.args(["--mode", "755"]).arg(warmlane()).arg(&copy);
    Process::run(&mut install, Duration::from_secs(60)).expect_success("install");
    copy
}

/// Shells start what is in the background with the signal of Ctrl+C ignored, and so would be all that we start, which is to end by it.
/// A signal that is caught is not handed on, other than one that is ignored (POSIX, `exec`): so it is caught, and nothing done.
fn hand_on_no_ignored_interrupt() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        if ignored_signals() & 1 << (SIGINT - 1) != 0 {
            signal_hook::flag::register(SIGINT, Arc::default()).expect("it can be caught");
        }
    });
}

/// The signals that this process ignores, a bit for each from the first (proc(5), `SigIgn`).
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// What a process said, and how it ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub errors: String,
}

impl Finished {
    /// Checks that it ended well, and returns its standard output.
    ///
    /// # Panics
    /// If it didn't, with all that it said.
    #[track_caller]
    pub fn expect_success(&self, what: &str) -> &str {
        assert!(self.status.success(), "{what}: {}\n{}\n{}", self.status, self.output, self.errors);
        &self.output
    }

    /// Both outputs.
    pub fn text(&self) -> String {
        format!("{}{}", self.output, self.errors)
    }
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Becomes readable when it ends.
    end: OwnedFd,
    said: Arc<Said>,
}

impl Process {
    /// Starts a program; nothing of what it says is lost, however much it is.
    ///
    /// # Panics
    /// If it can't be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        hand_on_no_ignored_interrupt();
        let name = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let said = Arc::<Said>::default();
        Said::collect(&said, OUTPUT, child.stdout.take().expect("piped"));
        Said::collect(&said, ERRORS, child.stderr.take().expect("piped"));
        let pid = Pid::from_child(&child);
        let end = pidfd_open(pid, PidfdFlags::empty()).expect("Linux has had pidfd_open(2) since 5.3");
        Self { name, child, end, said }
    }

    /// Runs a program to its end.
    ///
    /// # Panics
    /// If it doesn't end in time, with all that it said.
    #[track_caller]
    pub fn run(command: &mut Command, limit: Duration) -> Finished {
        Self::spawn(command).finish(limit)
    }

    /// Waits until one of its outputs contains a text.
    ///
    /// # Panics
    /// If it doesn't in time, or ends without it, with all that it said.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, limit: Duration) {
        assert!(self.says_within(limit, text), "{} never said {text:?}:\n{}", self.name, self.said());
    }

    /// Waits until one of its outputs contains a text; whether one does before the limit and its end.
    pub fn says_within(&mut self, limit: Duration, text: &str) -> bool {
        let end = Instant::now() + limit;
        let left = || end.saturating_duration_since(Instant::now());
        let has_said = |texts: &[Text; 2]| texts.iter().any(|one| one.contains(text));
        while !self.said.wait_until(POLL.min(left()), has_said) {
            if self.has_ended() {
                // What it said last may still be on its way.
                self.said.wait_until(left(), |texts| has_said(texts) || texts.iter().all(|one| one.is_whole));
                return has_said(&self.said.texts());
            }
            if left().is_zero() {
                return false;
            }
        }
        true
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends it the signal of Ctrl+C.
    ///
    /// # Panics
    /// If it is gone already.
    #[track_caller]
    pub fn interrupt(&self) {
        self.signal("INT");
    }

    /// Sends it a signal, named without `SIG`.
    ///
    /// # Panics
    /// If it is gone already.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        let status = Command::new("kill").args(arguments).status().expect("kill starts");
        assert!(status.success(), "{} is gone:\n{}", self.name, self.said());
    }

    /// The most memory that it has had resident so far, in bytes; shared and huge pages included.
    ///
    /// # Panics
    /// If it is gone already.
    #[track_caller]
    pub fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let kibibytes = |key: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        // The kernel does not count huge pages among the resident ones.
        match (kibibytes("VmHWM:"), kibibytes("HugetlbPages:")) {
            (Some(peak), Some(huge)) => (peak + huge) * 1024,
            _ => panic!("{} is gone:\n{}", self.name, self.said()),
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If that doesn't come in time, with all that it said.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let end = Instant::now() + limit;
        assert!(self.ends_within(limit), "{} runs longer than {limit:?}:\n{}", self.name, self.said());
        let status = self.child.wait().expect("a child can be waited for");
        // What a grandchild still holds open is waited for up to the limit.
        let left = end.saturating_duration_since(Instant::now());
        self.said.wait_until(left, |texts| texts.iter().all(|text| text.is_whole));
        let [output, errors] = [OUTPUT, ERRORS].map(|stream| self.said.texts()[stream].to_string());
        Finished { status, output, errors }
    }

    /// What it has written to standard output so far.
    pub fn output(&self) -> String {
        self.said.texts()[OUTPUT].to_string()
    }

    /// What it has written to standard error so far.
    pub fn errors(&self) -> String {
        self.said.texts()[ERRORS].to_string()
    }

    /// The time of CPUs that it has taken so far, without its children's.
    ///
    /// # Panics
    /// If it is gone already.
    #[track_caller]
    pub fn cpu_time(&self) -> Duration {
        match Stat::read(self.child.id()) {
            Some(stat) => stat.cpu_time(),
            None => panic!("{} is gone:\n{}", self.name, self.said()),
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))
                .expect("no such long limits");
            match poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&left)) {
                Ok(count) => return count > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("poll: {error}"),
            }
        }
    }

    fn said(&self) -> String {
        let texts = self.said.texts();
        format!("{}\n{}", texts[OUTPUT], texts[ERRORS])
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The places of standard output and standard error in [`Said`].
const OUTPUT: usize = 0;
const ERRORS: usize = 1;

/// What a process has said so far, read in the background, so that the process never waits for us.
#[derive(Debug, Default)]
struct Said {
    texts: Mutex<[Text; 2]>,
    has_grown: Condvar,
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Said {
    fn collect(said: &Arc<Self>, stream: usize, from: impl Read + Send + 'static) {
        let said = Arc::clone(said);
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                // An error ends the output like its end does; a broken pipe has no more to say either.
                let bytes = from.fill_buf().unwrap_or_default();
                let count = bytes.len();
                let text = &mut said.texts()[stream];
                text.bytes.extend_from_slice(bytes);
                text.is_whole = count == 0;
                said.has_grown.notify_all();
                if count == 0 {
                    return;
                }
                from.consume(count);
            }
        });
    }

    fn texts(&self) -> MutexGuard<'_, [Text; 2]> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds; says whether it did in time.
    fn wait_until(&self, limit: Duration, holds: impl Fn(&[Text; 2]) -> bool) -> bool {
        let waited = self.has_grown.wait_timeout_while(self.texts(), limit, |texts| !holds(texts));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Text {
    fn contains(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.bytes).contains(text)
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn what_it_says_is_heard() {
        let mut process = shell(
            "echo ready; read line </dev/null; trap 'echo bye >&2; exit 3' TERM; echo go; while :; do sleep 0.01; done",
        );
        process.wait_for("ready", LIMIT);
        process.wait_for("go", LIMIT);
        process.signal("TERM");
        let finished = process.finish(LIMIT);
        assert_eq!((finished.status.code(), finished.errors.as_str()), (Some(3), "bye\n"));
        assert_eq!(finished.output, "ready\ngo\n");
    }

    /// Runs itself once more, as a script would that starts it in the background.
    #[test]
    fn an_ignored_interrupt_is_not_handed_on() {
        const NAME: &str = "process::tests::an_ignored_interrupt_is_not_handed_on";
        const INNER: &str = "WARMLANE_TEST_IGNORES_INTERRUPT";
        if std::env::var_os(INNER).is_some() {
            let process = shell("kill -INT $$; exec sleep 60");
            assert_eq!(process.finish(LIMIT).status.signal(), Some(SIGINT));
            return;
        }
        let test = std::env::current_exe().unwrap();
        let script = "trap '' INT; exec \"$0\" --exact \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(test).arg(NAME).env(INNER, "1");
        let finished = Process::run(&mut command, LIMIT);
        assert!(finished.expect_success(NAME).contains("1 passed"), "{}", finished.text());
    }

    #[test]
    #[should_panic(expected = "never said \"never\"")]
    fn an_end_without_the_word_is_told() {
        shell("echo other").wait_for("never", LIMIT);
    }

    #[test]
    #[should_panic(expected = "runs longer")]
    fn an_end_that_does_not_come_is_told() {
        shell("exec sleep 60").finish(Duration::from_millis(50));
    }
}
