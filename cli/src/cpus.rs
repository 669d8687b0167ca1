//! Which CPUs a measurement runs on.

use anyhow::{Context as _, bail};
use warmlane::sys::affinity;

/// Binds this thread to the CPU that was asked for, or the last one that it may use (the first serves most interrupts);
/// returns it, and the CPU that a second lane may have.
pub(crate) fn bind(cpu: Option<usize>, second: Option<usize>) -> anyhow::Result<(usize, Option<usize>)> {
    let allowed = affinity::allowed_cpus()?;
    let cpu = cpu.or_else(|| allowed.last().copied()).context("this process may use no CPU at all")?;
    if second == Some(cpu) {
        bail!("--second-cpu {cpu} is the first lane's CPU: two lanes on one CPU would wait for each other");
    }
    affinity::pin_current_thread(cpu)?;
    Ok((cpu, second.or_else(|| allowed.into_iter().find(|&other| other != cpu))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lanes_never_share_a_cpu() {
        std::thread::spawn(|| {
            let (cpu, second) = bind(None, None).unwrap();
            assert_ne!(Some(cpu), second);
            assert!(bind(Some(cpu), Some(cpu)).unwrap_err().to_string().contains("two lanes on one CPU"));
        })
        .join()
        .unwrap();
    }
}
