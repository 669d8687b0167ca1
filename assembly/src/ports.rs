//! Opens ports by the name of their driver: the one place that knows all drivers.
//!
//! [`DriverSettings`] holds the options of one driver, typed. They are read from a text, as in
//! `xdp:eth0,mode=copy,busy-poll`, or from a configuration file, as the same text or a table of one entry:
//! `{ xdp = { interface = "eth0", mode = "copy", busy-poll = true } }`.

mod captures;
mod help;
mod registry;
mod replay;
mod settings;

use thiserror::Error;
use warmlane_driver_common::{Environment, OptionError};
use warmlane_mem::Pool;
use warmlane_port::Port;

pub use captures::{CaptureClash, check_captures};
pub use help::help;
pub use registry::DriverSettings;
pub use replay::{ReplayDriver, ReplayOptions};
pub use settings::PortSettings;
pub use warmlane_driver_common::{AddressFollower, Direction, Driver, DriverHelp, Files, OptionHelp};
pub use warmlane_driver_common::{PortEvents, Severity};

/// Why a text is no port's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParsePortError {
    /// It is not of the form `NAME=DRIVER[:OPTIONS]`.
    #[error("'{text}' is not of the form NAME=DRIVER or NAME=DRIVER:KEY=VALUE,...")]
    Form {
        /// The text.
        text: String,
    },
    /// There is no such driver.
    #[error("unknown driver '{name}': known are {known}")]
    UnknownDriver {
        /// What was asked for.
        name: String,
        /// The names there are, separated by commas.
        known: String,
    },
    /// An option is wrong.
    #[error("{driver}: {problem} ({hint})")]
    Option {
        /// The driver.
        driver: &'static str,
        /// What is wrong.
        problem: OptionError,
        /// What that option is, or a use of the driver that works.
        hint: String,
    },
}

/// A port that could not be opened.
#[derive(Debug, Error)]
#[error("port '{port}' ({driver})")]
pub struct OpenError {
    /// The port's name.
    pub port: String,
    /// Its driver's.
    pub driver: &'static str,
    /// What the driver says: what is wrong, and the remedy.
    pub source: warmlane_driver_common::OpenError,
}

/// Opens the ports of one program.
#[derive(Debug)]
pub struct Opener<'a> {
    environment: Environment<'a>,
}

impl<'a> Opener<'a> {
    /// Ports receive into buffers of `pool`, and have queues for `lanes` lanes, as far as their drivers do.
    pub fn new(pool: &'a Pool, lanes: usize) -> Self {
        Self { environment: Environment::new(pool, lanes) }
    }

    /// Opens a port. `mtu` is what it should carry at least, for drivers that can choose, in bytes of an IP packet.
    ///
    /// # Errors
    /// [`OpenError`], with what the driver says.
    pub fn open(&mut self, port: &PortSettings, mtu: Option<u32>) -> Result<Port, OpenError> {
        self.open_for(port, mtu, Direction::Both)
    }

    /// What happens to the ports that were opened since the last time.
    pub fn take_events(&mut self) -> PortEvents {
        self.environment.shared.take().unwrap_or_default()
    }

    /// What follows the kernel's own addresses for the opened ports, if any of them needs it: its
    /// [`follow`](AddressFollower::follow) is to be called for as long as they are open.
    pub fn into_follower(mut self) -> Option<AddressFollower> {
        self.environment.shared.take::<AddressFollower>().filter(|follower| !follower.is_idle())
    }

    /// Opens a port for one direction, or both.
    ///
    /// # Errors
    /// [`OpenError`], with what the driver says.
    pub fn open_for(
        &mut self,
        port: &PortSettings,
        mtu: Option<u32>,
        direction: Direction,
    ) -> Result<Port, OpenError> {
        self.environment.name.clone_from(&port.name);
        (self.environment.mtu, self.environment.direction) = (mtu, direction);
        let opened = port.driver.open(&mut self.environment);
        let mut opened = opened.map_err(|source| OpenError {
            port: port.name.clone(),
            driver: port.driver.name(),
            source,
        })?;
        opened.name.clone_from(&port.name);
        Ok(opened)
    }
}
