//! IPv4 and IPv6 forwarding as a network function
