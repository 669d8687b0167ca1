//! All drivers.

use super::ParsePortError;
use super::replay::ReplayDriver;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::fmt;
use std::str::FromStr;
use warmlane_driver_common::{Driver, DriverHelp, Environment, Files, OpenError, options};
use warmlane_kernel::{PacketDriver, TapDriver};
use warmlane_memif::MemifDriver;
use warmlane_memory::null::NullDriver;
use warmlane_pcap::PcapDriver;
use warmlane_pci::PciDriver;
use warmlane_port::Port;
use warmlane_virtio::vhost::VhostDriver;
use warmlane_virtio::virtio_user::VirtioUserDriver;
use warmlane_xdp::XdpDriver;

macro_rules! registry {
    ($($variant:ident: $driver:ty,)+) => {
        /// A driver, and its options.
        #[derive(Clone, Debug, PartialEq)]
        pub enum DriverSettings {
            $(
                #[doc = concat!("See [`", stringify!($driver), "`].")]
                $variant(<$driver as Driver>::Options),
            )+
        }

        const NAMES: &[&str] = &[$(<$driver as Driver>::HELP.name,)+];

        pub(super) const HELP: &[DriverHelp] = &[$(<$driver as Driver>::HELP,)+];

        impl DriverSettings {
            /// The driver's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$driver as Driver>::HELP.name,)+
                }
            }

            /// The files that the port will read and write.
            pub fn files(&self) -> Files<'_> {
                match self {
                    $(Self::$variant(options) => <$driver as Driver>::files(options),)+
                }
            }

            pub(super) fn open(&self, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
                match self {
                    $(Self::$variant(options) => <$driver as Driver>::open(options, environment),)+
                }
            }
        }

        /// From `DRIVER` or `DRIVER:OPTIONS`.
        impl FromStr for DriverSettings {
            type Err = ParsePortError;

            fn from_str(text: &str) -> Result<Self, ParsePortError> {
                let (name, rest) = text.split_once(':').unwrap_or((text, ""));
                $(if name == <$driver as Driver>::HELP.name {
                    return options::parse(rest, <$driver as Driver>::HELP.main_option())
                        .map(Self::$variant)
                        .map_err(|problem| ParsePortError::Option {
                            driver: <$driver as Driver>::HELP.name,
                            hint: <$driver as Driver>::HELP.hint(problem.key.as_deref()),
                            problem,
                        });
                })+
                Err(ParsePortError::UnknownDriver { name: name.to_owned(), known: NAMES.join(", ") })
            }
        }

        impl Serialize for DriverSettings {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(1))?;
                match self {
                    $(Self::$variant(options) => map.serialize_entry(<$driver as Driver>::HELP.name, options)?,)+
                }
                map.end()
            }
        }

        impl<'de> Visitor<'de> for AnyDriver {
            type Value = DriverSettings;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a driver, as in \"xdp:eth0\" or { xdp = { interface = \"eth0\" } }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DriverSettings, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DriverSettings, A::Error> {
                let name: String = map.next_key()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                $(if name == <$driver as Driver>::HELP.name {
                    let settings = DriverSettings::$variant(map.next_value()?);
                    return match map.next_key::<String>()? {
                        None => Ok(settings),
                        Some(_) => Err(de::Error::custom("a port has one driver: leave the others out")),
                    };
                })+
                let known = NAMES.join(", ");
                Err(de::Error::custom(ParsePortError::UnknownDriver { name, known }))
            }
        }
    };
}

/// Reads [`DriverSettings`].
struct AnyDriver;

impl<'de> Deserialize<'de> for DriverSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyDriver)
    }
}

// One line for each driver, in the order of the help.
registry! {
    Pcap: PcapDriver,
    Replay: ReplayDriver,
    Null: NullDriver,
    Tap: TapDriver,
    Packet: PacketDriver,
    Xdp: XdpDriver,
    Memif: MemifDriver,
    Vhost: VhostDriver,
    Virtio: VirtioUserDriver,
    Pci: PciDriver,
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_xdp::{XdpMode, XdpOptions};

    #[derive(serde::Deserialize)]
    struct Port {
        driver: DriverSettings,
    }

    #[test]
    fn text_and_table_say_the_same() {
        let expected = DriverSettings::Xdp(XdpOptions {
            mode: XdpMode::ZeroCopy,
            busy_poll: true,
            ..XdpOptions::new("eth0")
        });
        assert_eq!("xdp:eth0,mode=zero-copy,busy-poll".parse(), Ok(expected.clone()));
        for text in [
            "driver = \"xdp:eth0,busy-poll,mode=zero-copy\"",
            "driver = { xdp = { interface = \"eth0\", mode = \"zero-copy\", busy-poll = true } }",
        ] {
            assert_eq!(toml::from_str::<Port>(text).unwrap().driver, expected, "{text}");
        }
        let text = toml::to_string(&expected).unwrap();
        assert_eq!(toml::from_str::<DriverSettings>(&text).unwrap(), expected, "{text}");
    }

    /// Each example works, each option that is documented exists, and each that exists is documented.
    #[test]
    fn the_help_is_true() {
        for help in HELP {
            for example in help.examples {
                let settings = example.parse::<DriverSettings>().unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(settings.name(), help.name);
            }
            let unknown = format!("{}:no-such-option=1", help.name).parse::<DriverSettings>().unwrap_err();
            let mut known = match &unknown.to_string().split_once("known are ") {
                Some((_, list)) => {
                    list.split(" (as in").next().unwrap_or_default().split(", ").map(str::to_owned).collect()
                }
                None => Vec::new(),
            };
            let mut documented: Vec<String> =
                help.options.iter().map(|option| option.key.to_owned()).collect();
            known.sort();
            documented.sort();
            assert_eq!(known, documented, "{}: {unknown}", help.name);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<DriverSettings>().unwrap_err().to_string();
        assert_eq!(error("nil"), format!("unknown driver 'nil': known are {}", NAMES.join(", ")));
        assert_eq!(error("xdp"), "xdp: option 'interface' is missing (as in xdp:eth0)");
        assert_eq!(error("null:fast"), "null: there is no option 'fast': this driver has none (as in null)");
        let fast = error("xdp:eth0,mode=fast");
        assert!(fast.contains("option 'mode': 'fast' is unknown: expected best, zero-copy"), "{fast}");
        assert!(fast.contains("(mode=best|"), "{fast}");
        let size = error("pci:0000:00:04.0,ring-size=65536");
        assert!(size.contains("(ring-size=DESCRIPTORS: of each ring, a power of two"), "{size}");
        assert!(
            error("pci:here").ends_with("(as in pci:0000:00:04.0)"),
            "the main option is in each example"
        );
        for (text, part) in [
            ("driver = { nil = {} }", "unknown driver 'nil'"),
            ("driver = { xdp = { interface = \"a\" }, null = {} }", "one driver"),
            ("driver = 7", "a driver, as in"),
        ] {
            #[derive(Debug, serde::Deserialize)]
            struct Port {
                #[expect(dead_code, reason = "it is never read")]
                driver: DriverSettings,
            }
            let error = toml::from_str::<Port>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
