//! `cargo xtask`: tasks for those who change Warmlane.
//!
//! - `layers` checks which crate depends on which, which may hold unsafe code, and which files are too long.
//! - `compare` measures us against a peer on this machine, taking turns.
//! - `gate` counts the hot paths' instructions and compares them with what is allowed.
//! - `bpf` compiles the BPF programs, or checks that they are what their sources make.
//! - `bisect` finds the commit that made a bench slower.
//! - `record` measures what documents quote and keeps all runs, and `figures` checks that they quote it as it is.
//! - `fuzz` builds and runs the fuzz targets with a stable compiler.
//! - `mutate-orderings` weakens each memory ordering of code that loom can run and sees whether a test notices.
//! - `mutants` breaks a sample of the code of each crate and sees whether its tests notice.
//!
//! It promises that standard output carries results only. Except for the
//! files that `bpf`, `gate --accept`, `record`, `figures --refill` and `mutants --record` are there to write, it does not change the working tree outside
//! `target/` and the ignored folders of `fuzz/`.

#![forbid(unsafe_code)]

mod bisect;
mod bpf;
mod compare;
mod figures;
mod file_lengths;
mod fuzz;
mod gate;
mod layers;
mod mutants;
mod mutate_orderings;
mod parallel;
mod record;
#[cfg(test)]
mod walks;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks for developers of Warmlane.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check that each crate depends only on crates that stand below it, where unsafe code may be, and that no file is too long
    Layers,
    /// Measure ours against peers, taking turns
    Compare(compare::Arguments),
    /// Count the hot paths' instructions under valgrind and compare them with perf/
    Gate(gate::Arguments),
    /// Compile the BPF programs, whose objects are committed
    Bpf(bpf::Arguments),
    /// Find the commit that made a bench slower
    Bisect(bisect::Arguments),
    /// Measure rows in announced runs and keep each in perf/figures, for documents to quote
    Record(record::Arguments),
    /// Check that figures quoted in documents are those of their records
    Figures(figures::Arguments),
    /// Build and run fuzz targets
    Fuzz(fuzz::Arguments),
    /// Weaken each memory ordering of code that loom can run in turn and see whether a test notices
    MutateOrderings(mutate_orderings::Arguments),
    /// Break a sample of each crate's code and see whether its tests notice (needs cargo-mutants)
    Mutants(mutants::Arguments),
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let result = match Arguments::parse().task {
        Task::Compare(arguments) => compare::run(&arguments),
        Task::Layers => layers::run().map(done),
        Task::Gate(arguments) => gate::run(&arguments).map(done),
        Task::Bpf(arguments) => bpf::run(&arguments).map(done),
        Task::Bisect(arguments) => bisect::run(&arguments).map(done),
        Task::Record(arguments) => record::run(&arguments).map(done),
        Task::Figures(arguments) => figures::run(&arguments).map(done),
        Task::Fuzz(arguments) => fuzz::run(&arguments).map(done),
        Task::MutateOrderings(arguments) => mutate_orderings::run(&arguments).map(done),
        Task::Mutants(arguments) => mutants::run(&arguments).map(done),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
