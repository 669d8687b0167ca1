//! On a tree of files and links that has the kernel's shape. Where the kernel acts on what is written, a thread does, which reads from pipes of those names.

use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::symlink;
use std::thread;

const PLAIN: &str = "0000:00:03.0";
const CARRIED: &str = "0000:00:04.0";
const DISK: &str = "0000:00:05.0";

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for driver in ["e1000e", "virtio-pci", VFIO] {
            fs::create_dir_all(tree.sys().join("bus/pci/drivers").join(driver)).unwrap();
        }
        fs::create_dir_all(tree.sys().join("bus/pci/devices")).unwrap();
        fs::create_dir_all(tree.0.path().join("proc/net")).unwrap();
        fs::create_dir_all(tree.0.path().join("run")).unwrap();
        tree.add(PLAIN, ("0x020000", "0x8086", "0x10d3"), "e1000e", "net/eth0");
        tree.add(CARRIED, ("0x020000", "0x1af4", "0x1041"), "virtio-pci", "virtio1/net/eth1");
        tree.add(DISK, ("0x010000", "0x1af4", "0x1042"), "virtio-pci", "virtio2/block");
        tree
    }

    fn sys(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    fn bus(&self) -> Bus {
        Bus::at(self.0.path())
    }

    fn add(&self, address: &str, (class, vendor, device): (&str, &str, &str), driver: &str, inside: &str) {
        let folder = self.sys().join("devices/pci0000:00").join(address);
        fs::create_dir_all(folder.join(inside)).unwrap();
        for (file, text) in
            [("class", class), ("vendor", vendor), ("device", device), ("driver_override", "(null)")]
        {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
        symlink(&folder, self.sys().join("bus/pci/devices").join(address)).unwrap();
        let group = self.sys().join("kernel/iommu_groups").join(&address[8..10]);
        fs::create_dir_all(group.join("devices")).unwrap();
        symlink(&folder, group.join("devices").join(address)).unwrap();
        symlink(group, folder.join("iommu_group")).unwrap();
        symlink(self.sys().join("bus/pci/drivers").join(driver), folder.join("driver")).unwrap();
    }

    fn routes(&self, ipv4: &str, ipv6: &str) {
        let header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
        fs::write(self.0.path().join("proc/net/route"), format!("{header}\n{ipv4}\n")).unwrap();
        fs::write(self.0.path().join("proc/net/ipv6_route"), format!("{ipv6}\n")).unwrap();
    }

    /// Does what the kernel does when something is written to a driver's `unbind` or the bus's `drivers_probe`; `refuses`: no device comes to that driver.
    fn act(&self, home: &'static str, refuses: &'static str) {
        let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let (drivers, devices) = (self.sys().join("bus/pci/drivers"), self.sys().join("bus/pci/devices"));
        for driver in names(&drivers) {
            let unbind = drivers.join(driver).join("unbind");
            pipe(&unbind);
            let devices = devices.clone();
            thread::spawn(move || {
                while let Ok(address) = text(&unbind) {
                    fs::remove_file(devices.join(address).join("driver")).unwrap();
                }
            });
        }
        let probe = self.sys().join("bus/pci/drivers_probe");
        pipe(&probe);
        thread::spawn(move || {
            while let Ok(address) = text(&probe) {
                let folder = devices.join(&address);
                // A file keeps what was longer, the kernel doesn't.
                let only = fs::read_to_string(folder.join("driver_override")).unwrap();
                let only = only.lines().next().unwrap_or_default();
                let driver = if only.is_empty() { home } else { only };
                if driver != refuses {
                    symlink(drivers.join(driver), folder.join("driver")).unwrap();
                }
            }
        });
    }
}

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

fn driver(bus: &Bus, address: &str) -> String {
    bus.driver(at(address)).unwrap_or_default()
}

#[test]
fn network_devices_are_listed_with_whose_they_are() {
    let tree = Tree::new();
    let devices = tree.bus().devices().unwrap();
    let [plain, carried] = &devices[..] else { panic!("{devices:?}") };
    let expected = NetworkDevice {
        address: at(PLAIN),
        vendor: 0x8086,
        device: 0x10d3,
        driver: Some("e1000e".to_owned()),
        group: Some("03".to_owned()),
        interfaces: vec!["eth0".to_owned()],
        taken_from: None,
        holder: None,
        user: None,
    };
    assert_eq!(*plain, expected);
    assert_eq!((&carried.interfaces[..], carried.device), (&["eth1".to_owned()][..], 0x1041));
    assert!(matches!(tree.bus().device(at(DISK)), Err(PciError::NotNetwork { class: 0x01_0000, .. })));
    assert!(matches!(tree.bus().device(at("0000:01:00.0")), Err(PciError::NoDevice { .. })));
    assert!(Bus::at(Path::new("/nowhere")).devices().is_err());
}

#[test]
fn what_carries_the_default_route_stays() {
    let tree = Tree::new();
    tree.act("e1000e", "");
    let bus = tree.bus();
    let zero = "0".repeat(32);
    let through = |interface: &str| {
        let ipv4 = format!("{interface}\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0");
        let ipv6 = format!(
            "{zero} 00 {zero} 00 fe80{} 00000400 00000001 00000000 00000003 {interface}",
            "0".repeat(28)
        );
        (ipv4, ipv6)
    };
    let below = tree.sys().join("class/net/bond0");
    fs::create_dir_all(&below).unwrap();
    symlink("../eth0", below.join("lower_eth0")).unwrap();
    let ((eth0, eth0_v6), (bond, _)) = (through("eth0"), through("bond0"));
    for (ipv4, ipv6) in [(eth0.as_str(), ""), ("", eth0_v6.as_str()), (bond.as_str(), "")] {
        tree.routes(ipv4, ipv6);
        let error = bus.take(at(PLAIN), false).unwrap_err();
        assert!(matches!(error, PciError::DefaultRoute { .. }), "{error}");
        assert_eq!(driver(&bus, PLAIN), "e1000e");
    }
    // Not by those: a route that refuses, a route to a network, another interface.
    let refuses = format!("{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00000201 eth0");
    let network = "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
    tree.routes(&format!("{network}\n{}", through("eth1").0), &refuses);
    bus.take(at(PLAIN), false).unwrap();
    bus.give(at(PLAIN)).unwrap();
    tree.routes(&eth0, "");
    bus.take(at(PLAIN), true).unwrap();
    assert_eq!(driver(&bus, PLAIN), VFIO);
}

#[test]
fn what_is_taken_is_noted_and_given_back() {
    let tree = Tree::new();
    tree.act("virtio-pci", "");
    let bus = tree.bus();
    bus.take(at(CARRIED), false).unwrap();
    let device = bus.device(at(CARRIED)).unwrap();
    assert_eq!((device.driver.as_deref(), device.taken_from.as_deref()), (Some(VFIO), Some("virtio-pci")));
    assert_eq!(device.holder, None, "until somebody gives it back");
    // Nobody's who has ended.
    assert!(bus.recover().is_empty());
    bus.give(at(CARRIED)).unwrap();
    assert_eq!(driver(&bus, CARRIED), "virtio-pci");
    assert!(names(&bus.notes).is_empty());
    let error = bus.give(at(CARRIED)).unwrap_err();
    assert!(matches!(&error, PciError::NotOurs { driver, .. } if driver == "virtio-pci"), "{error}");
}

#[test]
fn what_a_killed_process_took_is_given_back_by_the_next() {
    let tree = Tree::new();
    tree.act("virtio-pci", "");
    let bus = tree.bus();
    let stat = tree.0.path().join("proc").join(std::process::id().to_string());
    fs::create_dir_all(&stat).unwrap();
    let running = |started: u64| {
        let fields = "S ".to_owned() + &"0 ".repeat(18);
        fs::write(stat.join("stat"), format!("1 (a ) b) {fields}{started} 0\n")).unwrap();
    };
    running(77);
    let taken = bus.take_for_now(at(CARRIED), false).unwrap();
    assert!(bus.recover().is_empty(), "its holder runs");
    assert_eq!(bus.device(at(CARRIED)).unwrap().holder, Some(std::process::id()));
    // Another process has its number now, and a device was pulled out.
    running(78);
    fs::write(
        bus.notes.join("0000:07:00.0.json"),
        r#"{"driver":"e1000e","holder":{"number":1,"started":5}}"#,
    )
    .unwrap();
    let recovered = bus.recover();
    assert!(recovered.len() == 2 && recovered.iter().all(|one| one.result.is_ok()), "{recovered:?}");
    assert_eq!(driver(&bus, CARRIED), "virtio-pci");
    assert!(names(&bus.notes).is_empty());
    // The holder notices nothing, and takes nothing from who has it next.
    bus.take(at(CARRIED), false).unwrap();
    drop(taken);
    assert_eq!(driver(&bus, CARRIED), VFIO);
    bus.give(at(CARRIED)).unwrap();
    running(77);
    drop(bus.take_for_now(at(CARRIED), false).unwrap());
    assert_eq!(driver(&bus, CARRIED), "virtio-pci");
}

#[test]
fn a_device_that_vfio_refuses_goes_back() {
    let tree = Tree::new();
    tree.act("virtio-pci", VFIO);
    let bus = tree.bus();
    let error = bus.take(at(CARRIED), false).unwrap_err();
    assert!(matches!(&error, PciError::NotBound { found, .. } if found == "no driver"), "{error}");
    assert_eq!(driver(&bus, CARRIED), "virtio-pci");
    fs::remove_dir_all(bus.drivers().join(VFIO)).unwrap();
    assert!(matches!(bus.take(at(CARRIED), false), Err(PciError::NoVfio)));
}

#[test]
fn what_could_not_be_driven_stays_unless_forced() {
    let tree = Tree::new();
    tree.act("virtio-pci", "");
    tree.add("0000:00:06.0", ("0x020000", "0x8086", "0x100e"), "e1000e", "net/eth2");
    let bus = tree.bus();
    let unknown = at("0000:00:06.0");
    assert!(matches!(bus.take(unknown, false), Err(PciError::Unknown { device: 0x100e, .. })));
    // Digits of features, the lowest first: that of VIRTIO_F_ACCESS_PLATFORM is the 34th.
    let features = tree.sys().join("bus/pci/devices").join(CARRIED).join("virtio1/features");
    fs::write(&features, "1".repeat(33) + "01\n").unwrap();
    let error = bus.take(at(CARRIED), false).unwrap_err().to_string();
    assert!(error.contains("IOMMU"), "{error}");
    assert_eq!(driver(&bus, CARRIED), "virtio-pci");
    bus.take(unknown, true).unwrap();
    bus.take(at(CARRIED), true).unwrap();
    bus.give(at(CARRIED)).unwrap();
    fs::write(&features, "0".repeat(33) + "10\n").unwrap();
    bus.take(at(CARRIED), false).unwrap();
}

#[test]
fn without_an_iommu_the_remedy_is_one_that_this_kernel_has() {
    let tree = Tree::new();
    tree.act("virtio-pci", "");
    let bus = tree.bus();
    fs::remove_file(tree.sys().join("bus/pci/devices").join(CARRIED).join("iommu_group")).unwrap();
    assert!(matches!(bus.take(at(CARRIED), false), Err(PciError::NoIommu { .. })));
    let mode = tree.sys().join("module/vfio/parameters");
    fs::create_dir_all(&mode).unwrap();
    fs::write(mode.join("enable_unsafe_noiommu_mode"), "N\n").unwrap();
    assert!(matches!(bus.take(at(CARRIED), false), Err(PciError::NoGroup { .. })));
    fs::write(mode.join("enable_unsafe_noiommu_mode"), "Y\n").unwrap();
    bus.take(at(CARRIED), false).unwrap();
}
