//! The interface between drivers and the rest of the program.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Debug};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use warmlane_mem::Pool;
use warmlane_port::Port;

use crate::addresses::AddressFollower;
use crate::events::{PortEvents, Reporter};
use crate::peer::ConnectionStatus;

/// A kind of port.
///
/// The registry (`warmlane_assembly::ports`) lists each driver in one line. Help, parsing and opening follow from this trait.
pub trait Driver {
    /// Its name, its options and what help says of both.
    const HELP: DriverHelp;

    /// Its options; keys are in kebab-case, and unknown ones are refused.
    type Options: Clone + Debug + PartialEq + Serialize + DeserializeOwned;

    /// Opens a port.
    ///
    /// # Errors
    /// [`OpenError`]: what is wrong, what was expected, and the remedy.
    fn open(options: &Self::Options, environment: &mut Environment<'_>) -> Result<Port, OpenError>;

    /// The files that a port with these options reads and writes.
    fn files(_options: &Self::Options) -> Files<'_> {
        Files::default()
    }
}

/// What a driver is called, and its help.
#[derive(Clone, Copy, Debug)]
pub struct DriverHelp {
    /// Its name, as in `--port NAME=DRIVER:OPTIONS`.
    pub name: &'static str,
    /// One sentence: what its ports are, and the privileges that they need.
    pub summary: &'static str,
    /// Uses that can be copied, as they stand behind `--port NAME=`.
    pub examples: &'static [&'static str],
    /// Its options, in the order of the help. A bare word in front sets the first: `xdp:eth0` is `xdp:interface=eth0`.
    pub options: &'static [OptionHelp],
}

impl DriverHelp {
    /// The key of the option that a bare word in front sets.
    pub fn main_option(&self) -> Option<&'static str> {
        self.options.first().map(|option| option.key)
    }

    /// What helps who got an option wrong: what that one is, or else a use that works.
    pub fn hint(&self, key: Option<&str>) -> String {
        let is_meant = |option: &&OptionHelp| Some(option.key) == key && key != self.main_option();
        match self.options.iter().find(is_meant) {
            Some(OptionHelp { key, value, meaning }) => format!("{key}={value}: {meaning}"),
            None => format!("as in {}", self.examples.first().unwrap_or(&self.name)),
        }
    }
}

/// Help for one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionHelp {
    /// Its key.
    pub key: &'static str,
    /// The form of its value, such as `FILE` or `best|copy`; empty for a switch.
    pub value: &'static str,
    /// What it does, and what holds without it.
    pub meaning: &'static str,
}

/// A driver's [`DriverHelp`]: its name and summary, examples, then a line for each option, as in [`OptionHelp`].
///
/// ```
/// # use warmlane_driver_common::{DriverHelp, driver_help};
/// const HELP: DriverHelp = driver_help! {
///     "tap": "Makes a TAP device. Needs CAP_NET_ADMIN.";
///     examples: "tap", "tap:tap0";
///     "interface" "NAME": "its name; without it, the kernel chooses";
/// };
/// assert_eq!(HELP.main_option(), Some("interface"));
/// ```
#[macro_export]
macro_rules! driver_help {
    (
        $name:literal: $summary:literal;
        examples: $($example:literal),+;
        $($key:literal $value:literal: $meaning:literal;)*
    ) => {
        $crate::DriverHelp {
            name: $name,
            summary: $summary,
            examples: &[$($example),+],
            options: &[$($crate::OptionHelp { key: $key, value: $value, meaning: $meaning }),*],
        }
    };
}

/// Files that a port needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files<'a> {
    /// They are read.
    pub reads: Vec<&'a Path>,
    /// They are replaced.
    pub writes: Vec<&'a Path>,
}

/// Which way packets go through a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// They come in and go out.
    #[default]
    Both,
    /// They only come in.
    Receive,
    /// They only go out.
    Transmit,
}

impl Direction {
    /// Whether packets may come in.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Both | Self::Receive)
    }

    /// Whether packets may go out.
    pub const fn transmits(self) -> bool {
        matches!(self, Self::Both | Self::Transmit)
    }
}

/// What the ports of one program are opened with.
#[derive(Debug)]
pub struct Environment<'a> {
    /// The next port's name.
    pub name: String,
    /// Where received packets are put.
    pub pool: &'a Pool,
    /// Queues wanted in each direction: one for each lane. A driver may have fewer to receive from.
    pub queues: usize,
    /// The largest IP packet in bytes that the next port is to carry, for drivers that can choose.
    pub mtu: Option<u32>,
    /// What the next port is for.
    pub direction: Direction,
    /// What the ports of one driver have in common.
    pub shared: Shared,
}

impl<'a> Environment<'a> {
    /// For ports of both directions with these many queues.
    pub fn new(pool: &'a Pool, queues: usize) -> Self {
        Self {
            name: String::new(),
            pool,
            queues,
            mtu: None,
            direction: Direction::Both,
            shared: Shared::default(),
        }
    }
}

impl Environment<'_> {
    /// Follows the kernel's own addresses for the ports that need it. Made when the first one asks.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn addresses(&mut self) -> std::io::Result<&mut AddressFollower> {
        self.shared.get_or_try_insert(AddressFollower::new)
    }

    /// Lets people hear what becomes of the next port's connection. `status` is asked now and then.
    pub fn watch_connection(
        &mut self,
        status: impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static,
    ) {
        let name = self.name.clone();
        self.events().add(name, status);
    }

    /// Counts the next port's connection, or link, of which the port reports itself what becomes. `status` is asked now and then.
    pub fn count_connection(
        &mut self,
        status: impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static,
    ) {
        let name = self.name.clone();
        self.events().count(name, status);
    }

    /// By which threads of the next port report what happens to it.
    pub fn reporter(&mut self) -> Reporter {
        let name = self.name.clone();
        self.events().reporter(&name)
    }

    fn events(&mut self) -> &mut PortEvents {
        let events = self.shared.get_or_try_insert(|| Ok::<_, Infallible>(PortEvents::default()));
        let Ok(events) = events;
        events
    }
}

/// What ports have in common, such as registered memory: at most one value of each type.
#[derive(Default)]
pub struct Shared(HashMap<TypeId, Box<dyn Any + Send>>);

impl Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("values", &self.0.len()).finish()
    }
}

impl Shared {
    /// The value of this type. The first who asks makes it.
    ///
    /// # Errors
    /// What `make` says.
    ///
    /// # Panics
    /// Never: each value is kept under its own type.
    pub fn get_or_try_insert<T: Any + Send, E>(
        &mut self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&mut T, E> {
        use std::collections::hash_map::Entry;
        let value = match self.0.entry(TypeId::of::<T>()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Box::new(make()?)),
        };
        Ok(value.downcast_mut().expect("each value is kept under its own type"))
    }

    /// Takes the value of this type out, if there is one.
    pub fn take<T: Any + Send>(&mut self) -> Option<T> {
        let value = self.0.remove(&TypeId::of::<T>())?;
        value.downcast().ok().map(|value| *value)
    }
}

/// Why a driver could not open a port. Its text is the driver's own, and says what to do.
#[derive(Debug)]
pub struct OpenError(Box<dyn Error + Send + Sync>);

impl OpenError {
    /// With this reason.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(reason.into())
    }

    /// The driver's own error.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_are_made_once() {
        let mut shared = Shared::default();
        *shared.get_or_try_insert(|| Ok::<_, ()>(1_u32)).unwrap() += 1;
        assert_eq!(shared.get_or_try_insert(|| Err::<u32, _>("not made again")), Ok(&mut 2));
        assert_eq!(shared.get_or_try_insert(|| Err::<u64, _>("no such value")), Err("no such value"));
        assert_eq!((shared.take::<u32>(), shared.take::<u32>()), (Some(2), None));
    }
}
