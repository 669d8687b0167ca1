//! Regions, pools, packets and bursts: the memory packets live in
