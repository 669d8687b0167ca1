//! What the processors' packages use, by their own meters (RAPL), where the kernel shows them and this process may read them.
//!
//! Meters are those of the powercap class (Documentation/power/powercap/powercap.rst): microjoules that begin anew at a limit, one for each
//! package. Since Linux 5.10 only root may read them (CVE-2020-8694).

use std::fs;
use std::path::Path;

use crate::text::{read_number, read_text};

/// What the meters of all packages showed at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyReading {
    packages: Vec<Package>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Package {
    name: String,
    microjoules: u64,
    /// Where it begins anew.
    limit: u64,
}

/// Why there is nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMeter {
    /// The kernel shows no meter: a virtual machine, or a processor without.
    #[error("this machine shows no energy meter (RAPL): no package in /sys/class/powercap")]
    None,
    /// Others may read it.
    #[error("the energy meters (RAPL) are root's to read: /sys/class/powercap/*/energy_uj")]
    Forbidden,
}

impl EnergyReading {
    /// What they show now.
    ///
    /// # Errors
    /// [`NoMeter`], in one line.
    pub fn now() -> Result<Self, NoMeter> {
        Self::at(Path::new("/"))
    }

    /// The same on a machine whose `/sys` is below this root.
    ///
    /// # Errors
    /// [`NoMeter`].
    pub fn at(root: &Path) -> Result<Self, NoMeter> {
        let zones = fs::read_dir(root.join("sys/class/powercap")).into_iter().flatten().flatten();
        let (mut packages, mut forbidden) = (Vec::new(), false);
        for zone in zones {
            let path = zone.path();
            // Zones inside a package (core, uncore, dram) count what the package counts already, or another thing.
            let Some(name) = read_text(&path.join("name")).filter(|name| name.starts_with("package")) else {
                continue;
            };
            match (read_number(&path.join("energy_uj")), read_number(&path.join("max_energy_range_uj"))) {
                (Some(microjoules), Some(limit)) => packages.push(Package { name, microjoules, limit }),
                _ => forbidden = true,
            }
        }
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        match (packages.is_empty(), forbidden) {
            (false, _) => Ok(Self { packages }),
            (true, true) => Err(NoMeter::Forbidden),
            (true, false) => Err(NoMeter::None),
        }
    }

    /// The joules that all packages used since `before`, each meter having begun anew once at most: that takes minutes at full power.
    pub fn joules_since(&self, before: &Self) -> f64 {
        let of_package = |package: &Package| {
            let earlier = before.packages.iter().find(|earlier| earlier.name == package.name)?.microjoules;
            let used = package.microjoules.checked_sub(earlier);
            Some(used.unwrap_or_else(|| (package.limit - earlier.min(package.limit)) + package.microjoules))
        };
        let microjoules: u64 = self.packages.iter().filter_map(of_package).sum();
        microjoules as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, zone: &str, file: &str, text: &str) {
        let zone = root.join("sys/class/powercap").join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join(file), text).unwrap();
    }

    #[test]
    fn packages_are_summed_and_meters_begin_anew() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(EnergyReading::at(root), Err(NoMeter::None));
        for (zone, name, energy) in [
            ("intel-rapl:0", "package-0", "900"),
            ("intel-rapl:1", "package-1", "100"),
            ("intel-rapl:0:0", "core", "7"),
        ] {
            write(root, zone, "name", name);
            write(root, zone, "energy_uj", energy);
            write(root, zone, "max_energy_range_uj", "1000");
        }
        let before = EnergyReading::at(root).unwrap();
        write(root, "intel-rapl:0", "energy_uj", "50\n");
        write(root, "intel-rapl:1", "energy_uj", "400\n");
        let after = EnergyReading::at(root).unwrap();
        // 100 to the limit and 50 on, and 300.
        assert!((after.joules_since(&before) - 450e-6).abs() < 1e-12);
        for zone in ["intel-rapl:0", "intel-rapl:1"] {
            write(root, zone, "energy_uj", "");
        }
        assert_eq!(EnergyReading::at(root), Err(NoMeter::Forbidden));
    }
}
