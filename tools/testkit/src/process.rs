//! Programs that a test runs, and the `warmlane` command above all.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

/// How often a process is asked whether it is still there.
const POLL: Duration = Duration::from_millis(5);

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
        // Cargo doesn't rebuild a package's programs for the tests of another one.
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "warmlane-cli", "--profile"]);
        cargo.arg(if profile.ends_with("release") { "release" } else { "test" });
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = cargo.status().expect("cargo starts");
        assert!(status.success(), "cargo could not build the warmlane command");
        profile.join("warmlane")
    })
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
    output: Collector,
    errors: Collector,
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
        let output = Collector::new(child.stdout.take().expect("piped"));
        let errors = Collector::new(child.stderr.take().expect("piped"));
        Self { name, child, output, errors }
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
        let end = Instant::now() + limit;
        loop {
            let is_over = self.has_ended();
            if self.output.contains(text) || self.errors.contains(text) {
                return;
            }
            assert!(!is_over && Instant::now() < end, "{} never said {text:?}:\n{}", self.name, self.said());
            std::thread::sleep(POLL);
        }
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
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(Instant::now() < end, "{} runs longer than {limit:?}:\n{}", self.name, self.said());
            std::thread::sleep(POLL);
        };
        Finished { status, output: self.output.all(end), errors: self.errors.all(end) }
    }

    fn said(&self) -> String {
        format!("{}\n{}", self.output.so_far(), self.errors.so_far())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an output in the background, so that the process never waits for us.
#[derive(Debug)]
struct Collector {
    text: Arc<(Mutex<Text>, Condvar)>,
    _reader: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    is_whole: bool,
}

impl Collector {
    fn new(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::<(Mutex<Text>, Condvar)>::default();
        let shared = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            loop {
                // An error ends the output like its end does; a broken pipe has no more to say either.
                let count = stream.fill_buf().map_or(0, |bytes| {
                    shared.0.lock().expect("nobody panics with it").bytes.extend_from_slice(bytes);
                    bytes.len()
                });
                if count == 0 {
                    break;
                }
                stream.consume(count);
            }
            shared.0.lock().expect("nobody panics with it").is_whole = true;
            shared.1.notify_all();
        });
        Self { text, _reader: reader }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock().expect("nobody panics with it").bytes).into_owned()
    }

    fn contains(&self, text: &str) -> bool {
        self.so_far().contains(text)
    }

    /// All of it; what a grandchild still holds open is waited for up to `end`.
    fn all(&self, end: Instant) -> String {
        let text = self.text.0.lock().expect("nobody panics with it");
        let left = end.saturating_duration_since(Instant::now());
        let (text, _) =
            self.text.1.wait_timeout_while(text, left, |text| !text.is_whole).expect("nobody panics with it");
        String::from_utf8_lossy(&text.bytes).into_owned()
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
