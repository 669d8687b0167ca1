//! Ports over the Linux kernel: TAP and AF_PACKET
