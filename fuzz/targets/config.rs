//! The configurations of `warmlane forward` and of `warmlane router`, in any text: what they say, or an error that says something.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_forward::control::{Config, Routes};

/// The command's own: a program has no library to take it from.
#[path = "../../cli/src/router/settings.rs"]
#[expect(dead_code, reason = "what only the command does with them")]
mod settings;

#[path = "../../cli/src/idle.rs"]
#[expect(dead_code, reason = "what only the command does with them")]
mod idle;
#[path = "../../cli/src/machine.rs"]
mod machine;

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
    match settings::Settings::from_toml(text) {
        Ok(settings) => assert!(settings.changes(&settings).is_ok_and(|changes| changes.is_empty())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
