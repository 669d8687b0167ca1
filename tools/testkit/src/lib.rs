//! Fixtures for tests: namespaces, peers, traffic
