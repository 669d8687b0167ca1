//! A virtual machine with Debian's kernel, for tests of what the kernel here may lack: it boots into a memory disk that holds the
//! test itself, the command, and the programs that both run.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warmlane_testkit::process::{COMMAND_VARIABLE, Finished, Process, warmlane};
use warmlane_testkit::requirements;

use crate::command::SHORT;
use crate::router_lab::PROGRAMS as ROUTER_PROGRAMS;

const QEMU: &str = "qemu-system-x86_64";

/// What makes the memory disk, on this side.
const MAKERS: [&str; 5] = [QEMU, "modprobe", "ldd", "strip", "cpio"];

/// What its start needs inside, besides what the tests run.
const BASICS: [&str; 7] = ["bash", "mount", "mkdir", "insmod", "ip", "kill", "cat"];

/// What it says last.
const END: &str = "guest ended with";

/// Where it says it. A port of its own: on the console the kernel's messages get in between.
const PORT: &str = "/dev/ttyS1";

/// How long it may take: it is emulated, on a machine that may be busy.
const LIMIT: Duration = Duration::from_secs(1800);

/// Kernels, by the names that Debian gives them.
const KERNELS: &str = "/boot";

/// Boots the newest kernel in `/boot`, loads `modules` (their names, with spaces between) with what they need, and runs those `tests` of the
/// program that asks for it there; so many must pass, and none be skipped. They can call the router's programs and `more_programs`.
/// Where there is no such kernel or no emulator, that is said.
///
/// # Panics
/// If a test fails, or `CI` is set and something is missing.
#[track_caller]
pub fn check_in_a_guest(modules: &str, more_programs: &[&str], tests: &str, count: usize) {
    let programs = [&ROUTER_PROGRAMS[..], more_programs].concat();
    let said = run_in_a_guest(modules, &programs, &format!("{tests} --nocapture --test-threads 1"));
    let Some(said) = said else { return };
    eprintln!("{said}");
    let passed = format!(" {count} passed; 0 failed");
    assert!(!said.contains("SKIPPED") && said.contains(&passed), "{said}");
}

/// What the tests said. `None` where something is missing.
fn run_in_a_guest(modules: &str, programs: &[&str], arguments: &str) -> Option<String> {
    if !requirements::programs(&[&MAKERS[..], &BASICS, programs].concat()) {
        return None;
    }
    let Some(release) = newest_kernel() else {
        requirements::missing("a kernel in /boot with its modules (Debian's linux-image-cloud-amd64)");
        return None;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().join("root");
    // As Debian has it: programs and libraries are below /usr, and the old names lead there.
    for name in ["proc", "sys", "dev", "run", "tmp", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"] {
        fs::create_dir_all(root.join(name)).expect("a writable directory");
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).expect("a writable directory");
    }
    let here = std::env::current_exe().expect("a test knows its path");
    for (program, name) in [(here.as_path(), "/test"), (warmlane(), "/usr/bin/warmlane")] {
        // Their debugging information is most of them.
        let target = root.join(&name[1..]);
        done(Command::new("strip").arg("-o").arg(&target).arg(program));
        copy_libraries(&root, program);
    }
    for program in BASICS.iter().chain(programs) {
        let path = requirements::find(program).expect("it was there a moment ago");
        let name = root.join("usr/bin").join(program);
        fs::copy(&path, name).expect("a writable directory");
        copy_libraries(&root, &path);
    }
    let load = copy_modules(&root, &release, modules);
    let start = format!(
        "#!/usr/bin/bash\n\
         export PATH=/usr/bin CI=true HOME=/ {COMMAND_VARIABLE}=/usr/bin/warmlane\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\n\
         mount -t devtmpfs devtmpfs /dev\n\
         mount -t tmpfs tmpfs /run\n\
         mount -t tmpfs tmpfs /tmp\n\
         ip link set lo up\n\
         {load}\
         # The closing of the port waits until all is sent.\n\
         {{ /test {arguments}; echo \"{END} $?\"; }} >{PORT} 2>&1\n\
         echo o >/proc/sysrq-trigger\n\
         while :; do read -t 1 <>/dev/zero; done\n"
    );
    fs::write(root.join("init"), start).expect("a writable directory");
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).expect("our own");
    let disk = directory.path().join("disk");
    let console = directory.path().join("console");
    let line = format!("cd {} && find . | cpio --quiet -o -H newc >{}", root.display(), disk.display());
    done(Command::new("sh").args(["-c", &line]));

    let mut command = Command::new(QEMU);
    // Emulated, though `/dev/kvm` may be there: in a virtual machine of somebody else's it can't be relied on.
    command.args(["-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "1536"]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.arg("-serial").arg(format!("file:{}", console.display())).args(["-serial", "stdio"]);
    command.arg("-kernel").arg(format!("{KERNELS}/vmlinuz-{release}")).arg("-initrd").arg(disk);
    command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    let Finished { output, errors, .. } = Process::run(&mut command, LIMIT);
    let console = fs::read(console).unwrap_or_default();
    let text = format!("Linux {release}:\n{}\n{output}{errors}", String::from_utf8_lossy(&console));
    let end = output.lines().last().unwrap_or_default();
    assert_eq!(end, format!("{END} 0"), "the last line of\n{text}");
    Some(text)
}

/// The newest kernel that has modules.
fn newest_kernel() -> Option<String> {
    let names = fs::read_dir(KERNELS).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let releases = names.filter_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned));
    let complete = releases.filter(|release| Path::new("/lib/modules").join(release).is_dir());
    let numbers = |release: &String| -> Vec<u32> {
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    complete.max_by_key(numbers)
}

/// Copies modules of the kernel and those that they need, and returns the lines that load them.
fn copy_modules(root: &Path, release: &str, modules: &str) -> String {
    let mut load = String::new();
    for module in modules.split_whitespace() {
        let mut command = Command::new("modprobe");
        // "insmod PATH OPTIONS", those that it needs first; or "builtin NAME".
        for line in done(command.args(["--set-version", release, "--show-depends", module])).lines() {
            let Some(path) = line.strip_prefix("insmod ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let name = Path::new(path).file_name().and_then(OsStr::to_str).expect("modules have names");
            let target = root.join(name);
            if !target.exists() {
                fs::copy(path, target).expect("a writable directory");
                writeln!(load, "insmod /{name}").expect("a string takes all");
            }
        }
    }
    load
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

/// The output of a command that has to work.
#[track_caller]
fn done(command: &mut Command) -> String {
    let what = format!("{command:?}");
    Process::run(command, SHORT).expect_success(&what).to_owned()
}
