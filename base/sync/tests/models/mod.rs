//! What the model checks have in common.

/// Runs `body` through its interleavings with up to `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides).
pub(crate) fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}
