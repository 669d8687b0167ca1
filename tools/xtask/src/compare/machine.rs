//! Where a comparison was made.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use warmlane_sys::machine::MachineFacts;

/// The machine and the sources, for the record beside the results.
pub(crate) fn fingerprint(root: &Path, cpus: &[usize]) -> Value {
    let facts = MachineFacts::read();
    let huge_pages: Vec<Value> = facts
        .huge_pages
        .iter()
        .map(|pool| json!({"page_bytes": pool.page_bytes, "total": pool.total, "free": pool.free}))
        .collect();
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    json!({
        "cpu": facts.cpu_model,
        "microcode": facts.microcode,
        "cpus": facts.cpus,
        "simultaneous_threads": facts.simultaneous_threads,
        "governor": facts.governor,
        "boost": facts.boost,
        "kernel": facts.kernel,
        "hypervisor": facts.hypervisor,
        "product": facts.product,
        "memory_bytes": facts.memory,
        "huge_pages": huge_pages,
        "transparent_huge_pages": facts.transparent.private,
        "cycles_per_second": facts.cycles_per_second,
        "measured_on_cpus": cpus,
        "commit": git(&["rev-parse", "HEAD"]),
        "changed_since_commit": git(&["status", "--porcelain", "--untracked-files=no"]).map(|files| !files.is_empty()),
    })
}
