//! Longest-prefix-match tables for IPv4 and IPv6
