//! The configuration of a router, in any text: routes, or an error that says something.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_forward::control::{Config, Routes};

fuzz_target!(|text: &str| {
    match Config::from_toml(text) {
        Ok(config) => {
            // The embedded table takes a second to build and adds nothing here.
            if config.full_table.ipv4.is_empty() && config.full_table.ipv6.is_empty() {
                let _ = Routes::from_config(&config);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
