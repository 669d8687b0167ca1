//! A machine whose program drives its network cards itself: testpmd by virtio-pci, which sends back each packet by the port that it came by.

use std::fs;
use std::path::{Path, PathBuf};

use warmlane::drivers::virtio::vhost::{VhostOptions, open};
use warmlane::drivers::virtio::{Role, VirtioPort};
use warmlane::mem::LaneThread;
use warmlane::prelude::{Pool, PoolConfig};
use warmlane_system_tests::{GUEST_PORT, LONG, Machine};
use warmlane_testkit::exchange::{exchange, lengths};
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;

const PROGRAMS: [&str; 2] = ["dpdk-testpmd", "qemu-system-x86_64"];

/// What testpmd loads by itself where it is installed.
const PLUGINS: [&str; 2] = ["librte_mempool_ring.so", "librte_net_virtio.so"];

/// Where Debian has them, in a folder of DPDK's version.
const DPDK: &str = "/usr/lib/x86_64-linux-gnu/dpdk";

/// Where they are in the machine.
fn in_guest(plugin: &str) -> String {
    format!("/usr/lib/{plugin}")
}

fn plugin(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir(DPDK).ok()?.filter_map(|entry| Some(entry.ok()?.path().join(name)));
    versions.filter(|path| path.is_file()).max()
}

/// Gives both cards to testpmd, whichever driver there is, and runs it.
fn script() -> String {
    let plugins = PLUGINS.map(|plugin| format!("-d {}", in_guest(plugin))).join(" ");
    format!(
        "mkdir /dev/hugepages\n\
         mount -t hugetlbfs none /dev/hugepages\n\
         echo 96 >/proc/sys/vm/nr_hugepages\n\
         echo 1af4 1041 >/sys/bus/pci/drivers/uio_pci_generic/new_id\n\
         dpdk-testpmd {plugins} -l 0,1 -m 128 --in-memory --no-telemetry -- --forward-mode=io --port-topology=loop \
             --auto-start --total-num-mbufs=4096 --nb-cores=1 --stats-period=5 --no-flush-rx >{GUEST_PORT} 2>&1"
    )
}

fn connected(port: &VirtioPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

#[test]
fn testpmd_in_a_machine_sends_everything_back() {
    let plugins = PLUGINS.map(plugin);
    if !requirements::programs(&PROGRAMS) {
        return;
    }
    let plugins = plugins.map(|path| path.expect("testpmd has its plugins"));
    let names = PLUGINS.map(in_guest);
    let extra: Vec<(&Path, &str)> =
        plugins.iter().map(PathBuf::as_path).zip(names.iter().map(String::as_str)).collect();
    let Some(machine) = Machine::new("uio_pci_generic", &["dpdk-testpmd"], &extra, &script()) else { return };
    let _lane = LaneThread::enter();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pool = Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).expect("memory for a pool");
    let mut command = machine.command(768);
    command.args(["-object", "memory-backend-memfd,id=m,size=768M,share=on", "-numa", "node,memdev=m"]);
    let mut ports = ["off", "on"].map(|packed| {
        let socket = directory.path().join(packed).display().to_string();
        let port = open(packed, &VhostOptions::new(&socket, Role::Server), 1, &pool).expect("a free name");
        command.args(["-chardev", &format!("socket,id=c-{packed},path={socket},reconnect=1")]);
        command.args(["-netdev", &format!("vhost-user,id=n-{packed},chardev=c-{packed}")]);
        let card =
            format!("virtio-net-pci,netdev=n-{packed},packed={packed},disable-legacy=on,romfile=,vectors=0");
        command.args(["-device", &card]);
        port
    });
    let mut process = Process::spawn(&mut command);
    process.wait_for("NIC statistics for port 1", LONG);
    let lengths: Vec<usize> = lengths().into_iter().filter(|length| (14..=1_518).contains(length)).collect();
    for port in &mut ports {
        assert!(connected(port), "{}", process.output());
        let (transmit, receive) = (&mut *port.port.transmit[0], &mut *port.port.receive[0]);
        exchange(&pool, transmit, receive, &lengths, 50);
    }
    process.signal("KILL");
    drop((process.finish(LONG), ports));
    assert_eq!(pool.ledger().outstanding(), 0);
}
