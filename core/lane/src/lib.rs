//! Pinned lanes, their poll loop, pipelines and counters
