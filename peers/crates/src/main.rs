//! Peers made of Rust crates: each is a bench like ours, and serves rounds like `warmlane bench NAME --serve`.

mod exact;
mod locks;
mod lpm;
mod rings;

use anyhow::Context;
use clap::Parser;
use warmlane_lab::bench::{Bench, Options};
use warmlane_sys::affinity;

const GROUPS: &[&[Bench]] = &[rings::BENCHES, locks::BENCHES, lpm::BENCHES, exact::BENCHES];

#[derive(Parser)]
struct Arguments {
    /// The peer.
    name: String,
    /// The CPU of the first lane.
    #[arg(long)]
    cpu: usize,
    /// The CPU of the second lane.
    #[arg(long)]
    second_cpu: Option<usize>,
    /// Elements at a time.
    #[arg(long)]
    burst: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let Arguments { name, cpu, second_cpu, burst } = Arguments::parse();
    let known = || GROUPS.iter().copied().flatten();
    let bench = known().find(|bench| bench.name == name).with_context(|| {
        let names: Vec<_> = known().map(|bench| bench.name).collect();
        format!("there is no peer '{name}': known are {}", names.join(", "))
    })?;
    affinity::pin_current_thread(cpu)?;
    let options = Options { burst, second_cpu, ..Options::default() };
    Ok(bench.serve(&options, std::io::stdin().lock(), std::io::stdout().lock())?)
}
