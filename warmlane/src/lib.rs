//! Warmlane: a userspace packet data plane for Linux
