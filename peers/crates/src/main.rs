//! Peers made of Rust crates: each is a bench like ours, and serves rounds like `warmlane bench NAME --serve`.

mod exact;
mod locks;
mod lpm;
mod rings;

use clap::Parser;
use warmlane_lab::bench::Bench;
use warmlane_lab::setting::Setting;
use warmlane_lab::subject;
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
    let bench = subject::find(GROUPS.iter().copied().flatten(), &name)?;
    affinity::pin_current_thread(cpu)?;
    let setting = Setting { cpu, burst, second_cpu, ..Setting::default() };
    Ok(bench.serve(&setting, std::io::stdin().lock(), std::io::stdout().lock())?)
}
