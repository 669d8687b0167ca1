//! Where a device is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A PCI device's place: domain, bus, device, function, as `lspci -D` writes it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(formatter, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// A number in hexadecimal digits only, no more than so many.
fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let is_one = (1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| is_one)
}

fn parse(text: &str) -> Option<PciAddress> {
    let (front, function) = text.split_once('.')?;
    let mut parts = front.rsplit(':');
    let (device, bus) = (hexadecimal(parts.next()?, 2)?, hexadecimal(parts.next()?, 2)?);
    let domain = parts.next().map_or(Some(0), |domain| hexadecimal(domain, 8))?;
    let function = hexadecimal(function, 1)?;
    let is_whole = parts.next().is_none() && device < 32 && function < 8;
    is_whole.then_some(PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 })
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!("{text:?} is no PCI address: write it as in 0000:00:04.0 (`warmlane pci` lists them)")
        })
    }
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_as_the_kernel_does() {
        for (text, whole) in [
            ("0000:00:04.0", "0000:00:04.0"),
            ("3b:1f.7", "0000:3b:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().map(|address| address.to_string()), Ok(whole.to_owned()));
        }
        for text in ["", "eth0", "00:04", "00:20.0", "00:04.8", "0:0:0:0.0", "+0:04.0", "../../x", "000:04.0"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
