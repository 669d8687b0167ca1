//! What `warmlane bench NAME --pieces N` does, in a program that takes a fraction of the time to build: `cargo xtask gate --planted` counts
//! it, built from changed sources.

use std::error::Error;

use warmlane_lab::bench;
use warmlane_lab::setting::Setting;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, name, option, pieces] = &arguments[..] else { return Err(USAGE.into()) };
    if (command.as_str(), option.as_str()) != ("bench", "--pieces") {
        return Err(USAGE.into());
    }
    let bench = bench::find(name)?;
    println!("{}", bench.count(&Setting::default(), pieces.parse()?)?);
    Ok(())
}

const USAGE: &str = "usage: pieces bench NAME --pieces N";
