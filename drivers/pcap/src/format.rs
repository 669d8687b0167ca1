use std::{fmt, path::Path};

use serde::{Deserialize, Serialize};

/// The two capture file formats.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Classic pcap: one file header, then frames; what every tool reads.
    #[default]
    Pcap,
    /// pcapng: blocks, with several interfaces.
    Pcapng,
}

impl Format {
    /// What a file of this name is expected to hold: pcapng if it ends in `.pcapng` or `.ntar`, otherwise pcap.
    pub fn of_name(path: &Path) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some(name) if name.eq_ignore_ascii_case("pcapng") || name.eq_ignore_ascii_case("ntar") => {
                Self::Pcapng
            }
            _ => Self::Pcap,
        }
    }
}

impl fmt::Display for Format {
    /// The word that Wireshark's tools take with `-F`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
        })
    }
}
