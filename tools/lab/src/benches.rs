//! The benches: each is a name, a sentence, and how to prepare it. A file holds those of one subject.

mod cache_model;
mod checksum;
pub(crate) mod copy;
mod docsis_crypto;
mod docsis_downstream;
pub(crate) mod exact;
pub(crate) mod fixture;
mod forward;
mod generate;
mod locks;
pub(crate) mod lpm;
mod neighbours;
mod null_card;
pub(crate) mod packed_look;
mod pcap;
mod pool;
mod ports;
mod rcu;
mod replay;
mod rings;
mod segments;
mod steering;
mod toeplitz;
mod virtual_ports;
pub(crate) mod vxlan;

use crate::bench::Bench;

pub(crate) const GROUPS: &[&[Bench]] = &[
    forward::BENCHES,
    generate::BENCHES,
    replay::BENCHES,
    steering::BENCHES,
    pool::BENCHES,
    ports::BENCHES,
    virtual_ports::BENCHES,
    packed_look::BENCHES,
    null_card::BENCHES,
    pcap::BENCHES,
    rings::BENCHES,
    locks::BENCHES,
    rcu::BENCHES,
    lpm::BENCHES,
    neighbours::BENCHES,
    exact::BENCHES,
    copy::BENCHES,
    checksum::BENCHES,
    toeplitz::BENCHES,
    segments::BENCHES,
    vxlan::BENCHES,
    docsis_crypto::BENCHES,
    docsis_downstream::BENCHES,
    cache_model::BENCHES,
];
