//! What was published: Conor Walsh, "Optimize Memory Usage in Multithreaded Data Plane Development Kit (DPDK) Applications" (Intel).

use serde::Serialize;

/// Instances of each test.
pub const INSTANCES: [usize; 5] = [1, 2, 4, 8, 12];

/// A test of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Test {
    /// Its number there.
    pub number: usize,
    /// Whether frames get CRCs.
    pub crc: bool,
    /// Gbit/s of each instance.
    pub gbps: f64,
    /// By how much of its memory bandwidth each number of instances drops when its ring is made a stack, in per cent.
    pub drops: [f64; 5],
}

/// All four.
pub const TESTS: [Test; 4] = [
    Test { number: 1, crc: false, gbps: 5.0, drops: [95.0, 88.0, 81.0, 63.0, 42.0] },
    Test { number: 2, crc: true, gbps: 5.0, drops: [96.0, 91.0, 87.0, 65.0, 44.0] },
    Test { number: 3, crc: false, gbps: 6.3, drops: [94.0, 87.0, 78.0, 61.0, 46.0] },
    Test { number: 4, crc: true, gbps: 5.5, drops: [95.0, 91.0, 84.0, 76.0, 48.0] },
];

/// The average drop of all tests as published, in per cent.
pub const AVERAGE: f64 = 76.0;
