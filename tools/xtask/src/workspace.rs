//! What cargo says about this workspace.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

/// The answer of `cargo metadata`, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// The repository's folder.
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    #[serde(default)]
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// None for normal dependencies, else "dev" or "build".
    pub(crate) kind: Option<String>,
    /// Where it is, if it belongs to this repository.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// A call of the cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Variables for a build whose speed or instructions count. Incremental compilation, where the environment asks for it, divides code
/// into other units: the forwarder took 2 % more instructions, and the gate closed.
pub(crate) const MEASURED_BUILD: (&str, &str) = ("CARGO_INCREMENTAL", "0");

/// `cargo build --release`, of what is to be measured.
pub(crate) fn release_build() -> Command {
    let mut build = cargo();
    let (name, value) = MEASURED_BUILD;
    build.args(["build", "--release"]).env(name, value);
    build
}

/// A release build of the command as `cargo run --release` makes it. A package named would get its dependencies with fewer features, and
/// nearly all would be built again.
pub(crate) fn command_build(root: &Path) -> Command {
    let mut build = release_build();
    // In a member's folder cargo takes that for the package.
    build.current_dir(root).args(["--bin", "warmlane"]);
    build
}

/// Asks cargo about the workspace of the current directory, or of a manifest.
pub(crate) fn metadata(manifest: Option<&Path>) -> anyhow::Result<Metadata> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(manifest) = manifest {
        command.arg("--manifest-path").arg(manifest);
    }
    let output = command.output().context("cargo metadata does not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed something unexpected")
}

/// What git prints in the repository at `root`, without the end of its last line.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let text = output(Command::new("git").current_dir(root).args(arguments))?;
    // Not what comes first: a line of `git status` may begin with a space.
    Ok(text.trim_end().to_owned())
}

/// What a program prints that has to succeed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} does not start"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed something else than text"))
}

/// Runs a program to its end, with what it prints going to standard error: standard output is for results.
pub(crate) fn run_quietly(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("{name} does not start; is it installed?"))
}
