//! The `warmlane` command: parse, call, print.

#![forbid(unsafe_code)]
// They panic where nobody reads: `messages` doesn't.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod capture;
mod changes;
mod control_socket;
mod cpus;
mod demo;
mod docsis;
mod doctor;
#[cfg(test)]
mod examples;
mod flags;
mod forward;
mod generate;
mod idle;
mod instances;
mod lab;
mod machine;
mod measuring;
mod messages;
mod metrics;
mod pci;
mod pool;
mod router;
mod run;
mod stats;
mod top;
mod trace;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// A packet data plane in user space: bursts of packets on pinned lanes, in buffers that stay warm in cache.
///
/// Without a command it runs the demonstration, which needs no privilege and no network card.
#[derive(Parser)]
#[command(name = "warmlane", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    /// What messages on standard error look like, or systemd's journal instead; see docs/operate.md
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "auto",
        help_heading = "Messages"
    )]
    log: messages::Format,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Forward(forward::Arguments),
    Router(router::Arguments),
    Gen(generate::Arguments),
    Docsis(docsis::Arguments),
    Ls(instances::Arguments),
    Stats(stats::Arguments),
    Top(top::Arguments),
    Capture(capture::Arguments),
    Trace(trace::Arguments),
    Pool(pool::Arguments),
    Pci(pci::Arguments),
    Doctor(doctor::Arguments),
    Bench(bench::Arguments),
    Lab(lab::Arguments),
}

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let name = matches.subcommand_name().unwrap_or("demo").to_owned();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match messages::write_to(arguments.log, &name)
        .context("messages can't go to systemd's journal")
        .and_then(|()| run(arguments.command))
    {
        Ok(()) => {
            messages::tell_of_left_out();
            ExitCode::SUCCESS
        }
        Err(error) => {
            messages::tell_of_left_out();
            messages::fail(sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Option<Command>) -> anyhow::Result<()> {
    if let Err(error) = warmlane::sys::simd::check_environment() {
        messages::note(error);
    }
    match command.unwrap_or_else(|| Command::Demo(demo::Arguments::default())) {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Forward(arguments) => forward::run(&arguments),
        Command::Router(arguments) => router::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Docsis(arguments) => docsis::run(&arguments),
        Command::Ls(arguments) => instances::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Pool(arguments) => pool::run(arguments),
        Command::Pci(arguments) => pci::run(&arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
    }
}

/// The error and its causes in one line. Some errors say their cause themselves; it is not said twice.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}
