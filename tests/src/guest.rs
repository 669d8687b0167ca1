//! A virtual machine with Debian's kernel, that boots into a memory disk: for tests of what the kernel here may lack, which then run in it
//! themselves, and as a neighbour of the command.

mod state;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use warmlane_sys::clock::Clock;
use warmlane_testkit::process::{COMMAND_VARIABLE, Finished, Process, warmlane};
use warmlane_testkit::requirements;

use crate::command::{LONG, SHORT};
use crate::router_lab::PROGRAMS as ROUTER_PROGRAMS;

const QEMU: &str = "qemu-system-x86_64";

/// Another one, for devices that the installed one may not have.
const NEWER_QEMU: &str = "WARMLANE_TEST_QEMU";

/// Modules of VFIO for machines without an IOMMU, which the kernel's own aren't.
const NOIOMMU_MODULES: &str = "WARMLANE_TEST_NOIOMMU_MODULES";

/// What makes the memory disk, on this side.
const MAKERS: [&str; 5] = [QEMU, "modprobe", "ldd", "strip", "cpio"];

/// What its start needs inside, besides what the tests run.
const BASICS: [&str; 8] = ["bash", "mount", "mkdir", "insmod", "ip", "kill", "cat", "sleep"];

/// A function of its shell: `load` and names of modules loads them with what they need, unless they are loaded.
const LOAD: &str = "load() {\n\
         for module; do\n\
             while read -r file; do\n\
                 [ -e /modules/$file.loaded ] && continue\n\
                 insmod /modules/$file && : >/modules/$file.loaded || return\n\
             done </modules/$module\n\
         done\n\
     }";

/// What it says first: nothing but the kernel and the emulator has had a part in it.
const BOOTED: &str = "guest has booted";

/// What it says last.
const END: &str = "guest ended with";

/// The port of what is said inside. One of its own: on the console the kernel's messages get in between.
pub const PORT: &str = "/dev/ttyS1";

/// The module that [`OBEY`] needs, besides that of virtio devices.
pub const OBEY_MODULE: &str = "virtio_console";

/// The last of what a machine's start does, if it has [`Machine::add_commands`]: it does what [`Machine::tell`] says. Nothing of that can get lost, as on a serial
/// port, which forgets what came before it was opened: a port of virtio leaves it with the emulator until somebody reads. It can be opened but once, and while
/// nobody is at its other end it reads as if it were at its end.
pub const OBEY: &str = "exec 3<>/dev/vport0p1\n\
     while :; do\n\
         if read -r line <&3; then\n\
             eval \"$line\" >&3 2>&1\n\
             echo \"status $?\" >&3\n\
         else\n\
             sleep 0.2\n\
         fi\n\
     done";

/// It needs its library besides.
const PYTHON: &str = "python3";

/// How long it may take: it is emulated, on a machine that may be busy. There it takes up to ten minutes.
const LIMIT: Duration = Duration::from_secs(2400);

/// How often it is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Kernels, by the names that Debian gives them.
const KERNELS: &str = "/boot";

/// A kernel of this machine's.
struct Kernel<'a> {
    release: String,
    /// Where modules are that are taken in place of its own of the same names.
    replacements: Option<&'a Path>,
}

impl Kernel<'_> {
    /// The newest one that has these modules. `None` where there is none, which is said.
    fn newest(modules: &str) -> Option<Self> {
        if !requirements::programs(&["modprobe"]) {
            return None;
        }
        let release = newest_kernel(modules);
        if release.is_none() {
            requirements::missing(&format!(
                "a kernel in /boot with the modules {modules} (Debian's linux-image-cloud-amd64)"
            ));
        }
        Some(Self { release: release?, replacements: None })
    }
}

/// A kernel and a memory disk, to be booted.
#[derive(Debug)]
pub struct Machine {
    directory: tempfile::TempDir,
    release: String,
}

impl Machine {
    /// Whether there is a kernel with these modules; without the programs that a machine needs, there is none.
    pub fn has_kernel(modules: &str) -> bool {
        requirements::find("modprobe").is_some() && newest_kernel(modules).is_some()
    }

    /// The newest kernel in `/boot` that has them, and a memory disk whose start loads `modules` (their names, with spaces between) with what they need and runs
    /// `script`, in which `programs` can be called. `extra` are more programs, and where they are put. `None` where there is no such kernel or
    /// no emulator, which is said.
    ///
    /// # Panics
    /// If something that should work doesn't, or `CI` is set and something is missing.
    pub fn new(modules: &str, programs: &[&str], extra: &[(&Path, &str)], script: &str) -> Option<Self> {
        let kernel = Kernel::newest(modules)?;
        Self::with_modules_at_hand(kernel, modules, programs, extra, &format!("load {modules}\n{script}"))
    }

    /// The same, with modules of VFIO for machines without an IOMMU, in a folder that an environment variable names, and that is named itself by the kernel that they are
    /// for. `None` where there is none, which is said.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_noiommu(
        modules: &str,
        programs: &[&str],
        extra: &[(&Path, &str)],
        script: &str,
    ) -> Option<Self> {
        let folder = std::env::var_os(NOIOMMU_MODULES).map(PathBuf::from);
        let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
            requirements::missing(&format!(
                "{NOIOMMU_MODULES} with the path of VFIO's modules for machines without an IOMMU (`.ci/noiommu-modules` builds them)"
            ));
            return None;
        };
        let release = folder.file_name().and_then(OsStr::to_str).expect("folders have names").to_owned();
        let kernel = Kernel { release, replacements: Some(&folder) };
        Self::with_modules_at_hand(kernel, modules, programs, extra, &format!("load {modules}\n{script}"))
    }

    /// The same, but it is `script` that loads modules, when it wants them: by `load` and their names.
    fn with_modules_at_hand(
        kernel: Kernel<'_>,
        modules: &str,
        programs: &[&str],
        extra: &[(&Path, &str)],
        script: &str,
    ) -> Option<Self> {
        if !requirements::programs(&[&MAKERS[..], &BASICS, programs].concat()) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("root");
        // As Debian has it: programs and libraries are below /usr, and the old names lead there.
        for name in ["proc", "sys", "dev", "run", "tmp", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"]
        {
            fs::create_dir_all(root.join(name)).expect("a writable directory");
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).expect("a writable directory");
        }
        for (program, name) in extra {
            // Their debugging information is most of them.
            let target = root.join(&name[1..]);
            done(Command::new("strip").arg("-o").arg(&target).arg(program));
            copy_libraries(&root, program);
        }
        if programs.contains(&PYTHON) {
            copy_python(&root);
        }
        for program in BASICS.iter().chain(programs).filter(|name| **name != PYTHON) {
            let path = requirements::find(program).expect("it was there a moment ago");
            let name = root.join("usr/bin").join(program);
            fs::copy(&path, name).expect("a writable directory");
            copy_libraries(&root, &path);
        }
        copy_modules(&root, &kernel, modules);
        let start = format!(
            "#!/usr/bin/bash\n\
             export PATH=/usr/bin HOME=/\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sysfs /sys\n\
             mount -t devtmpfs devtmpfs /dev\n\
             mount -t tmpfs tmpfs /run\n\
             mount -t tmpfs tmpfs /tmp\n\
             echo '{BOOTED}' >{PORT}\n\
             ip link set lo up\n\
             {LOAD}\n\
             {script}\n\
             while :; do sleep 1; done\n"
        );
        fs::write(root.join("init"), start).expect("a writable directory");
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).expect("our own");
        let disk = directory.path().join("disk");
        let line = format!("cd {} && find . | cpio --quiet -o -H newc >{}", root.display(), disk.display());
        done(Command::new("sh").args(["-c", &line]));
        Some(Self { directory, release: kernel.release })
    }

    fn console_file(&self) -> PathBuf {
        self.directory.path().join("console")
    }

    /// What the kernel has said since the last start.
    pub fn console(&self) -> String {
        let console = fs::read(self.console_file()).unwrap_or_default();
        String::from_utf8_lossy(&console).into_owned()
    }

    /// An emulator that has this device: the installed one, or else the one that an environment variable names. `None` where neither has, which is said.
    ///
    /// # Panics
    /// If `CI` is set and there is none.
    #[track_caller]
    pub fn emulator_with(device: &str) -> Option<PathBuf> {
        let named = std::env::var_os(NEWER_QEMU).map(PathBuf::from);
        let has_device = |emulator: &PathBuf| {
            let mut command = Command::new(emulator);
            let output = command.args(["-device", &format!("{device},help")]).output();
            output.is_ok_and(|output| output.stdout.starts_with(format!("{device} options").as_bytes()))
        };
        let found = [Some(PathBuf::from(QEMU)), named].into_iter().flatten().find(has_device);
        if found.is_none() {
            requirements::missing(&format!(
                "a {QEMU} with the device {device}, or {NEWER_QEMU} with the path of one that has it (on Debian 12 `.ci/newer-qemu` fetches one)"
            ));
        }
        found
    }

    /// Starts it with so many mebibytes of memory, when more arguments are added. Its first serial port is the console, the second ([`PORT`]) the
    /// standard output.
    pub fn command(&self, memory: u32) -> Command {
        self.command_of(Path::new(QEMU), memory)
    }

    /// The same by another emulator.
    pub fn command_of(&self, emulator: &Path, memory: u32) -> Command {
        let mut command = Command::new(emulator);
        // Emulated, though `/dev/kvm` may be there: in a virtual machine of somebody else's it can't be relied on.
        // Its string instructions are emulated byte by byte, so that the kernel had better not copy by them. Linux 6.1 doesn't start without those for long
        // strings where there are fast ones for short ones, as newer emulators have them.
        let processor = if emulator == Path::new(QEMU) { "max,-erms" } else { "max" };
        command.args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            processor,
            "-smp",
            "2",
            "-m",
            &memory.to_string(),
        ]);
        command.args(["-nodefaults", "-display", "none"]);
        command.arg("-serial").arg(format!("file:{}", self.console_file().display()));
        command.args(["-serial", "stdio"]);
        command.arg("-kernel").arg(format!("{KERNELS}/vmlinuz-{}", self.release));
        command.arg("-initrd").arg(self.directory.path().join("disk"));
        // On a busy machine the emulated timer is late. The kernel would take the TSC for broken by it, or for one of another frequency, once by a factor of 2.6; the TSC is
        // the host's. And each look at the emulated clock stops both processors.
        let kilohertz = Clock::calibrated().cycles_per_second() / 1_000;
        let clock = format!("no_timer_check tsc=reliable clocksource=tsc tsc_early_khz={kilohertz}");
        // Without KASLR, addresses tell where in the kernel a processor is.
        let line = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off init_on_alloc=0 intel_iommu=on nokaslr {clock}"
        );
        command.args(["-append", &line]);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", self.state_socket().display()));
        command
    }

    /// Starts it, and waits until it says `up`. Now and then an emulator falls over a race of its own, or the processors of a machine that boots wait for ever; then the
    /// machine is started once more.
    ///
    /// # Panics
    /// If it doesn't say it then either, or doesn't though it has booted.
    #[track_caller]
    pub fn boot(&self, command: &mut Command, up: &str) -> Process {
        let first = self.try_to_boot(command, up);
        let last = match first {
            Err(failure) if failure.is_of_emulator => {
                eprintln!("the machine is started once more: {}", failure.said);
                self.try_to_boot(command, up)
            }
            other => other,
        };
        last.unwrap_or_else(|failure| panic!("{}", failure.said))
    }

    fn try_to_boot(&self, command: &mut Command, up: &str) -> Result<Process, BootFailure> {
        let mut process = Process::spawn(command);
        let has_booted = process.says_within(SHORT, BOOTED);
        if has_booted && process.says_within(LONG, up) {
            return Ok(process);
        }
        let is_of_emulator = !has_booted || process.has_ended();
        let (output, errors) = (process.output(), process.errors());
        Err(BootFailure {
            is_of_emulator,
            said: format!("it never said {up:?}: {output}{errors}\n{}", self.state()),
        })
    }

    fn command_socket(&self) -> PathBuf {
        self.directory.path().join("commands")
    }

    /// Gives it the port that it takes commands by.
    pub fn add_commands(&self, command: &mut Command) {
        let socket = self.command_socket();
        command
            .arg("-chardev")
            .arg(format!("socket,id=commands,path={},server=on,wait=off", socket.display()));
        // Without KVM, QEMU 7.2 falls over its own interrupts when a device has vectors.
        command.args(["-device", "virtio-serial-pci,vectors=0,disable-legacy=on"]);
        command.args(["-device", "virtserialport,chardev=commands"]);
    }

    /// Says something to the hypervisor's monitor at this socket, and returns its answer. The connection stays open meanwhile: a monitor forgets what it has not
    /// read by the time that nobody is there any more.
    ///
    /// # Panics
    /// If it doesn't answer.
    #[track_caller]
    pub fn monitor(path: &Path, line: &str) -> String {
        let monitor = UnixStream::connect(path).expect("the machine has this socket");
        monitor.set_read_timeout(Some(LONG)).expect("it is no zero");
        let hear = || {
            let mut said = String::new();
            while !said.contains("(qemu)") {
                let mut bytes = [0; 4096];
                let count = (&monitor).read(&mut bytes).expect("the monitor answers");
                assert!(count > 0, "{said}");
                said += &String::from_utf8_lossy(&bytes[..count]);
            }
            said
        };
        hear();
        writeln!(&monitor, "{line}").expect("it listens");
        hear()
    }

    /// Has it do something in its shell, and returns what that said. It may still be booting.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn tell(&self, line: &str) -> String {
        let mut socket = UnixStream::connect(self.command_socket()).expect("a machine with commands");
        socket.set_read_timeout(Some(LONG)).expect("it is no zero");
        writeln!(socket, "{line}").expect("it listens");
        let mut said = String::new();
        for answer in BufReader::new(&socket).lines() {
            let answer = answer
                .unwrap_or_else(|error| panic!("no answer to {line}: {error}; {said}\n{}", self.state()));
            if let Some(status) = answer.strip_prefix("status ") {
                assert_eq!(status, "0", "{line}: {said}");
                break;
            }
            said += &answer;
            said.push('\n');
        }
        said
    }
}

/// A machine was not up in time.
struct BootFailure {
    /// Nothing else has had a part in it.
    is_of_emulator: bool,
    said: String,
}

/// Some of the tests of the program that asks a guest to run them, and what its kernel must have loaded.
#[derive(Clone, Copy, Debug)]
pub struct GuestTests {
    /// Kernel modules, with spaces between. Those of tests before these stay loaded.
    pub modules: &'static str,
    /// Parts of their names, and arguments of the test program's.
    pub tests: &'static str,
    /// How many there are.
    pub count: usize,
}

/// Boots a [`Machine`] and runs all these tests there, one group after the other; all must pass, and none be skipped. They can call the router's programs and
/// `more_programs`.
///
/// # Panics
/// If a test fails, or `CI` is set and something is missing.
#[track_caller]
pub fn check_in_a_guest(more_programs: &[&str], groups: &[GuestTests]) {
    let programs = [&ROUTER_PROGRAMS[..], more_programs].concat();
    let Some(said) = run_in_a_guest(&programs, groups) else { return };
    eprintln!("{said}");
    assert!(!said.contains("SKIPPED"), "{said}");
    let passed: Vec<&str> = said.lines().filter(|line| line.starts_with("test result: ok.")).collect();
    for (group, line) in groups.iter().zip(&passed) {
        assert!(
            line.contains(&format!(" {} passed; 0 failed", group.count)),
            "{}: {line}\n{said}",
            group.tests
        );
    }
    assert_eq!(passed.len(), groups.len(), "{said}");
}

/// What the tests said. `None` where something is missing.
fn run_in_a_guest(programs: &[&str], groups: &[GuestTests]) -> Option<String> {
    let run: Vec<String> = groups
        .iter()
        .map(|group| format!("load {} && /test {} --nocapture --test-threads 2", group.modules, group.tests))
        .collect();
    let script = format!(
        "export CI=true {COMMAND_VARIABLE}=/usr/bin/warmlane\n\
         mount -t cgroup2 none /sys/fs/cgroup && echo +cpu >/sys/fs/cgroup/cgroup.subtree_control\n\
         # The closing of the port waits until all is sent.\n\
         {{ {}; echo \"{END} $?\"; }} >{PORT} 2>&1\n\
         echo o >/proc/sysrq-trigger",
        run.join(" && ")
    );
    let here = std::env::current_exe().expect("a test knows its path");
    let extra = [(here.as_path(), "/test"), (warmlane(), "/usr/bin/warmlane")];
    let modules = groups.iter().map(|group| group.modules).collect::<Vec<_>>().join(" ");
    let kernel = Kernel::newest(&modules)?;
    let machine = Machine::with_modules_at_hand(kernel, &modules, programs, &extra, &script)?;
    let (mut emulator, begin) = (Process::spawn(machine.command(1536).arg("-no-reboot")), Instant::now());
    while !emulator.has_ended() {
        // Whether it computes, waits or got no CPU, and what its kernel waits for.
        assert!(
            begin.elapsed() < LIMIT,
            "the guest runs after {LIMIT:?}, {:?} of them on CPUs. Its kernel said:\n{}\nand its tests:\n{}{}",
            emulator.cpu_time(),
            machine.console(),
            emulator.output(),
            emulator.errors()
        );
        std::thread::sleep(LOOK);
    }
    let Finished { output, errors, .. } = emulator.finish(SHORT);
    let text = format!("Linux {}:\n{}\n{output}{errors}", machine.release, machine.console());
    let end = output.lines().last().unwrap_or_default();
    assert_eq!(end, format!("{END} 0"), "the last line of\n{text}");
    Some(text)
}

/// The newest kernel that has these modules.
fn newest_kernel(modules: &str) -> Option<String> {
    let names = fs::read_dir(KERNELS).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let releases = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    let has = |release: &str, module: &str| {
        let mut command = Command::new("modprobe");
        command.args(["--set-version", release, "--show-depends", module]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let complete = releases.filter(|release| {
        Path::new("/lib/modules").join(release).is_dir()
            && modules.split_whitespace().all(|module| has(release, module))
    });
    newest(complete)
}

/// The newest of these, by Debian's names. Real-time kernels come last: what is tested is to run on the usual ones. Of several of one version the one for clouds,
/// which is the smallest.
fn newest(releases: impl Iterator<Item = String>) -> Option<String> {
    let rank = |release: &String| -> (bool, Vec<u32>, bool) {
        let has = |flavour: &str| release.split('-').any(|part| part == flavour);
        let numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
        (!has("rt"), numbers.collect(), has("cloud"))
    };
    releases.max_by_key(rank)
}

/// Copies modules of the kernel and those that they need, and for each one its list of what to load, for [`LOAD`].
fn copy_modules(root: &Path, kernel: &Kernel<'_>, modules: &str) {
    let directory = root.join("modules");
    fs::create_dir_all(&directory).expect("a writable directory");
    for module in modules.split_whitespace() {
        let mut list = String::new();
        let mut command = Command::new("modprobe");
        // "insmod PATH OPTIONS", those that it needs first; or "builtin NAME".
        for line in done(command.args(["--set-version", &kernel.release, "--show-depends", module])).lines() {
            let Some(path) = line.strip_prefix("insmod ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let name = Path::new(path).file_name().and_then(OsStr::to_str).expect("modules have names");
            let replacement = kernel.replacements.map(|folder| folder.join(name));
            let path = replacement.filter(|path| path.exists()).unwrap_or_else(|| path.into());
            let target = directory.join(name);
            if !target.exists() {
                fs::copy(path, target).expect("a writable directory");
            }
            writeln!(list, "{name}").expect("a string takes all");
        }
        fs::write(directory.join(module), list).expect("a writable directory");
    }
}

/// Copies the libraries that a program loads.
fn copy_libraries(root: &Path, program: &Path) {
    // "NAME => PATH (ADDRESS)", and "PATH (ADDRESS)" of the loader.
    for line in done(Command::new("ldd").arg(program)).lines() {
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else { continue };
        let name = match path.strip_prefix("/usr") {
            Some(name) => name,
            None => path,
        };
        let target: PathBuf = root.join("usr").join(&name[1..]);
        if !target.exists() {
            fs::create_dir_all(target.parent().expect("it is below the root")).expect("a writable directory");
            fs::copy(path, target).expect("a writable directory");
        }
    }
}

/// Copies Python with its library to where they are here, for it finds that by its own path; its name leads there.
fn copy_python(root: &Path) {
    const WHERE: &str =
        "import os,sys,sysconfig;print(os.path.realpath(sys.executable));print(sysconfig.get_path('stdlib'))";
    let places = done(Command::new(PYTHON).args(["-c", WHERE]));
    let (program, library) = places.trim().split_once('\n').expect("two lines");
    // What isn't below /usr is put there by `copy_libraries`, so the old names lead there, too.
    for place in [program, library] {
        let top = place.split('/').nth(1).expect("it is absolute");
        let below = root.join("usr").join(top);
        if top != "usr" && !root.join(top).exists() {
            fs::create_dir_all(&below).expect("a writable directory");
            std::os::unix::fs::symlink(format!("usr/{top}"), root.join(top)).expect("a writable directory");
        }
    }
    let in_root = |place: &str| root.join(&place[1..]);
    let (target, modules) = (in_root(program), in_root(library));
    fs::create_dir_all(target.parent().expect("it is below the root")).expect("a writable directory");
    fs::create_dir_all(&modules).expect("a writable directory");
    fs::copy(program, target).expect("a writable directory");
    copy_libraries(root, Path::new(program));
    let name = root.join("usr/bin").join(PYTHON);
    if !name.exists() {
        std::os::unix::fs::symlink(program, name).expect("a writable directory");
    }
    // Not what nobody needs there, which is most of it.
    let line = format!(
        "cd {library} && find . \\( -name test -o -name site-packages -o -name idlelib -o -name ensurepip \\) -prune \
         -o \\( -name '*.py' -o -name '*.so' \\) -print | cpio --quiet -pdm {}",
        modules.display()
    );
    done(Command::new("sh").args(["-c", &line]));
    let compiled = fs::read_dir(Path::new(library).join("lib-dynload")).expect("compiled modules");
    for module in
        compiled.filter_map(Result::ok).filter(|file| file.path().extension() == Some(OsStr::new("so")))
    {
        copy_libraries(root, &module.path());
    }
}

/// The output of a command that has to work.
#[track_caller]
fn done(command: &mut Command) -> String {
    let what = format!("{command:?}");
    Process::run(command, SHORT).expect_success(&what).to_owned()
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn a_real_time_kernel_is_taken_only_if_there_is_no_other() {
        let newest = |names: &[&str]| newest(names.iter().map(|name| (*name).to_owned())).unwrap();
        let [plain, cloud, real_time] = ["6.1.0-9-amd64", "6.1.0-9-cloud-amd64", "6.1.0-9-rt-amd64"];
        assert_eq!(newest(&[plain, cloud, real_time]), cloud);
        assert_eq!(newest(&[real_time, plain]), plain);
        assert_eq!(newest(&["6.1.0-10-amd64", cloud, "6.1.0-11-rt-amd64"]), "6.1.0-10-amd64");
        assert_eq!(newest(&[real_time]), real_time);
    }
}
