//! What the machine is and gives: topology, huge pages, affinity, clock, SIMD, prefetch
