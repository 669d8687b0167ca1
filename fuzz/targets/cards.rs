//! Intel's cards that say and write anything (`drivers/pci/src/intel/liar.rs` has the format): no panic, nothing read or written outside the memory that they
//! were given, every buffer back, and a card that behaves is still served.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_pci::intel::liar::play;

fuzz_target!(|input: &[u8]| play(input));
