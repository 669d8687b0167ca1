//! Rings, stacks, locks and counters that lanes share, model-checked
