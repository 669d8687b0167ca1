//! `cargo xtask bpf`: compiles the BPF programs, whose objects are committed beside their sources.
//!
//! Whoever builds Warmlane needs no compiler for them. That an object is what its source says is checked by compiling it again with
//! the same compiler, Debian's clang: bytes must be equal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::workspace;

/// Sources, from the workspace's root. Each is compiled to a file of the same name that ends in `.o`.
const SOURCES: &[&str] = &[
    "drivers/xdp/bpf/reentry.bpf.c",
    "drivers/xdp/bpf/steering.bpf.c",
    "functions/router/bpf/forward.bpf.c",
];

/// What sources share, from a crate's folder.
const HEADERS: &str = "../../base/bpf/include";

/// The compiler that objects are committed from: that of Debian 12.
const VERSION: &str = "14.0.6";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing: fail if an object that is committed is another than its source makes
    #[arg(long)]
    check: bool,
    /// The compiler
    #[arg(long, default_value = "clang")]
    clang: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let version = version(&arguments.clang)?;
    if !version.contains(VERSION) {
        bail!(
            "objects are compiled by clang {VERSION}, as Debian 12 has it, and this is {version:?}: say --clang with another"
        );
    }
    let root = workspace::metadata(None)?.root;
    let directory = root.join("target/bpf");
    fs::create_dir_all(&directory)?;
    let mut different = Vec::new();
    for source in SOURCES {
        let made = directory.join(Path::new(source).file_name().context("a file")?).with_extension("o");
        compile(&arguments.clang, &root, source, &made)?;
        let committed = root.join(source).with_extension("o");
        let bytes = fs::read(&made)?;
        let is_same = fs::read(&committed).is_ok_and(|committed| committed == bytes);
        match (is_same, arguments.check) {
            (true, _) => println!("{source}: {} bytes, as committed", bytes.len()),
            (false, true) => different.push(*source),
            (false, false) => {
                fs::write(&committed, &bytes)?;
                println!("{source}: {} bytes, written", bytes.len());
            }
        }
    }
    if !different.is_empty() {
        bail!(
            "the object is not what its source makes, `cargo xtask bpf` makes it anew: {}",
            different.join(", ")
        );
    }
    Ok(())
}

fn version(clang: &Path) -> anyhow::Result<String> {
    let output = Command::new(clang)
        .arg("--version")
        .output()
        .with_context(|| format!("{} is needed (`apt-get install clang llvm`)", clang.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// From the crate's folder, so that the names of files in the object are the same wherever it is.
fn compile(clang: &Path, root: &Path, source: &str, object: &Path) -> anyhow::Result<()> {
    let (room, file) = source.split_once("/bpf/").context("sources are in a crate's folder bpf")?;
    let room = root.join(room);
    let mut command = Command::new(clang);
    // Version 2 of the instructions spills whole registers only, which the verifier wants of who has no CAP_PERFMON.
    command.current_dir(&room).args(["--target=bpfel", "-mcpu=v2", "-O2", "-g"]);
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-nostdinc", "-I", HEADERS]);
    command.arg(format!("-ffile-prefix-map={}=.", room.display()));
    command.arg("-c").arg(format!("bpf/{file}")).arg("-o").arg(object);
    succeed(&mut command)?;
    // Without what is for debuggers only: the kernel's own information about types and lines stays.
    succeed(Command::new("llvm-strip").arg("-g").arg(object))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status =
        command.status().with_context(|| format!("{name} is needed (`apt-get install clang llvm`)"))?;
    if !status.success() {
        bail!("{name} failed");
    }
    Ok(())
}
