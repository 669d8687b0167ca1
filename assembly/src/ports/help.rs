//! Help for people, made of what the drivers say.

use super::registry::HELP;
use std::fmt::Write as _;

/// What can follow `NAME=` in `--port`: each driver, its options and examples.
pub fn help() -> String {
    let mut text = String::from(
        "A first word without a key is the value of the first option below; any other one turns a switch on.\n",
    );
    for driver in HELP {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}: {}\n", driver.name, driver.summary);
        for option in driver.options {
            let form = match option.value {
                "" => option.key.to_owned(),
                value => format!("{}={value}", option.key),
            };
            let _ = writeln!(text, "  {form}: {}", option.meaning);
        }
        let _ = writeln!(text, "  as in {}", driver.examples.join(" or "));
    }
    text
}
