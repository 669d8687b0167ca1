//! No capture is lost by mistake.

use super::PortSettings;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file that one port would replace while another uses it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("port '{port}' would overwrite {}, which port '{other}' {does}: name another file", file.display())]
pub struct CaptureClash {
    /// The port that writes it.
    pub port: String,
    /// The file.
    pub file: PathBuf,
    /// The port that uses it.
    pub other: String,
    /// How.
    pub does: &'static str,
}

/// Refuses ports that lose a capture: a file that is written is replaced when the run ends.
///
/// # Errors
/// [`CaptureClash`]: the first file that is written by one port and used by another, or by the same.
pub fn check_captures<'a>(
    ports: impl IntoIterator<Item = &'a PortSettings> + Clone,
) -> Result<(), CaptureClash> {
    let mut used: Vec<(&str, PathBuf, &'static str)> = Vec::new();
    for port in ports.clone() {
        let reads = port.driver.files().reads.into_iter().filter_map(regular_file);
        used.extend(reads.map(|file| (port.name.as_str(), file, "reads")));
    }
    for port in ports {
        for file in port.driver.files().writes.into_iter().filter_map(regular_file) {
            if let Some((other, _, does)) = used.iter().find(|(_, other, _)| *other == file) {
                let (port, other) = (port.name.clone(), (*other).to_owned());
                return Err(CaptureClash { port, file, other, does });
            }
            used.push((&port.name, file, "writes"));
        }
    }
    Ok(())
}

/// One name for each regular file, whether it exists or is yet to be made; none for pipes and devices.
fn regular_file(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return path.canonicalize().ok().filter(|path| path.is_file());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Some(directory.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ports: &[&str]) -> Result<(), CaptureClash> {
        let ports: Vec<PortSettings> = ports
            .iter()
            .enumerate()
            .map(|(index, driver)| PortSettings {
                name: format!("p{index}"),
                driver: driver.parse().unwrap(),
            })
            .collect();
        check_captures(&ports)
    }

    #[test]
    fn a_capture_that_would_be_lost_is_named() {
        // Cargo.toml is a file that exists.
        for clash in [
            &["pcap:read=Cargo.toml,write=./Cargo.toml"][..],
            &["pcap:write=Cargo.toml", "replay:src/../Cargo.toml"],
            &["pcap:write=new.pcap", "pcap:write=src/../new.pcap"],
        ] {
            let error = check(clash).unwrap_err().to_string();
            assert!(error.contains("would overwrite") && error.contains("port 'p"), "{error}");
        }
        check(&["pcap:Cargo.toml,write=new.pcap", "pcap:Cargo.toml"]).unwrap();
        check(&["pcap:write=/dev/null", "pcap:write=/dev/null"]).unwrap();
    }
}
