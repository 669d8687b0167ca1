use super::*;

/// A made-up machine: files below a temporary root.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn cpu(&self, id: usize, core: usize, package: usize, siblings: &str) -> &Self {
        let at = format!("devices/system/cpu/cpu{id}/topology");
        self.file(&format!("{at}/core_id"), &core.to_string())
            .file(&format!("{at}/physical_package_id"), &package.to_string())
            .file(&format!("{at}/thread_siblings_list"), siblings)
    }

    /// `figures`: level, type, size, ways, line, sets; an empty one has no file.
    fn cache(&self, cpu: usize, index: usize, figures: [&str; 6], shared: &str) -> &Self {
        let names =
            ["level", "type", "size", "ways_of_associativity", "coherency_line_size", "number_of_sets"];
        let at = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
        for (name, value) in names.iter().zip(figures).filter(|(_, value)| !value.is_empty()) {
            self.file(&format!("{at}/{name}"), value);
        }
        self.file(&format!("{at}/shared_cpu_list"), shared)
    }

    fn read(&self) -> Topology {
        Topology::from_root(self.0.path()).unwrap()
    }
}

/// Two sockets of two cores of two threads; Linux numbers the second threads after all the first ones.
fn two_sockets() -> Machine {
    let machine = Machine::new();
    machine
        .file("devices/system/cpu/online", "0-7")
        .file("devices/system/cpu/isolated", "2-3,6-7")
        .file("devices/system/cpu/cpufreq/boost", "1")
        .file("devices/system/node/node0/cpulist", "0-1,4-5")
        .file(
            "devices/system/node/node0/meminfo",
            "Node 0 MemTotal:       1048576 kB\nNode 0 MemFree:  512 kB",
        )
        .file("devices/system/node/node0/distance", "10 21")
        .file("devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "64")
        .file("devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "60")
        .file("devices/system/node/node1/cpulist", "2-3,6-7")
        .file("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64")
        .file("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "60")
        .file("kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "1");
    for id in 0..8 {
        let (first, package) = (id % 4, id % 4 / 2);
        let pair = format!("{first},{}", first + 4);
        let socket = if package == 0 { "0-1,4-5" } else { "2-3,6-7" };
        machine
            .cpu(id, first % 2, package, &pair)
            .cache(id, 0, ["1", "Data", "48K", "12", "64", "64"], &pair)
            .cache(id, 1, ["1", "Instruction", "32K", "8", "64", "64"], &pair)
            .cache(id, 2, ["2", "Unified", "1280K", "20", "64", "1024"], &pair)
            .cache(id, 3, ["3", "Unified", "54M", "12", "64", "73728"], socket);
    }
    machine
}

#[test]
fn a_machine_with_two_sockets() {
    let topology = two_sockets().read();
    assert_eq!(topology.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    let cpu = topology.cpu(6).unwrap();
    assert_eq!((cpu.core, cpu.package, cpu.node), (Some(0), Some(1), Some(1)));
    assert_eq!(cpu.siblings, [2, 6]);
    assert!(cpu.online && cpu.isolated && !topology.cpu(5).unwrap().isolated);
    assert_eq!(cpu.caches.len(), 4);
    assert_eq!(
        *cpu.data_cache(1).unwrap(),
        Cache {
            level: 1,
            kind: CacheKind::Data,
            size: 48 << 10,
            ways: Some(12),
            line_bytes: 64,
            sets: Some(64),
            shared_cpus: vec![2, 6]
        }
    );
    assert_eq!(cpu.data_cache(2).unwrap().size, 1280 << 10);
    let last = cpu.data_cache(3).unwrap();
    assert_eq!((last.size, last.sets, &last.shared_cpus[..]), (54 << 20, Some(73_728), &[2, 3, 6, 7][..]));
    assert_eq!(cpu.data_cache(4), None);
    assert_eq!(topology.source, CacheSource::Sysfs);
}

#[test]
fn numa_nodes_and_their_pools() {
    let topology = two_sockets().read();
    let [first, second] = &topology.nodes[..] else { panic!("{:?}", topology.nodes) };
    assert_eq!((first.id, &first.cpus[..], first.memory), (0, &[0, 1, 4, 5][..], Some(1 << 30)));
    assert_eq!(first.distances, [10, 21]);
    assert_eq!(first.huge_pages, [HugePagePool { page_bytes: 2 << 20, total: 64, free: 60, reserved: 0 }]);
    assert_eq!((second.memory, second.huge_pages.len(), second.distances.len()), (None, 0, 0));
    assert_eq!(topology.huge_pages[0].obtainable(), 59);
}

#[test]
fn a_small_virtual_machine_without_caches_or_nodes() {
    let machine = Machine::new();
    machine.file("devices/system/cpu/online", "0").cpu(0, 0, 0, "0");
    let topology = machine.read();
    assert_eq!(topology.source, CacheSource::Unknown);
    let cpu = topology.cpu(0).unwrap();
    assert_eq!((cpu.node, cpu.caches.len(), topology.nodes.len()), (None, 0, 0));
}

#[test]
fn an_offline_cpu_is_listed_but_not_described() {
    let machine = Machine::new();
    machine
        .file("devices/system/cpu/online", "0,10")
        .cpu(0, 0, 0, "0")
        .cpu(10, 1, 0, "10")
        .file("devices/system/cpu/cpu2/online", "0");
    let topology = machine.read();
    assert_eq!(topology.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>(), [0, 2, 10]);
    let offline = topology.cpu(2).unwrap();
    assert_eq!((offline.online, offline.core, &offline.siblings[..]), (false, None, &[2][..]));
    assert_eq!(topology.online().count(), 2);
}

#[test]
fn caches_that_tell_only_half() {
    let machine = Machine::new();
    machine
        .cpu(0, 0, 0, "0")
        // Sizes as other kernels write them, and each of ways and sets from the other.
        .cache(0, 0, ["1", "Data", "32K", "8", "", ""], "0")
        .cache(0, 1, ["2", "Unified", "1024K", "0", "64", "2048"], "0")
        .cache(0, 2, ["3", "Unified", "32M", "", "128", ""], "")
        .cache(0, 3, ["4", "Unified", "", "8", "64", "64"], "0")
        .cache(0, 4, ["1", "Separate", "32K", "8", "64", "64"], "0");
    let cpu = &machine.read().cpus[0];
    let figures: Vec<_> =
        cpu.caches.iter().map(|cache| (cache.size, cache.ways, cache.line_bytes, cache.sets)).collect();
    assert_eq!(
        figures,
        [(32 << 10, Some(8), 64, Some(64)), (1 << 20, Some(8), 64, Some(2048)), (32 << 20, None, 128, None)]
    );
    assert_eq!(cpu.caches[2].shared_cpus, [0], "an empty list can't be right: it shares with itself");
}

#[test]
fn nothing_at_all_is_an_error_that_names_the_place() {
    let machine = Machine::new();
    let error = Topology::from_root(machine.0.path()).unwrap_err().to_string();
    assert!(error.contains("sys/devices/system/cpu") && error.contains("is /sys mounted"), "{error}");
}

#[test]
fn this_machine() {
    let topology = Topology::read().unwrap();
    for id in affinity::allowed_cpus().unwrap() {
        let cpu = topology.cpu(id).unwrap();
        assert!(cpu.online && cpu.siblings.contains(&id));
        for cache in &cpu.caches {
            assert!(cache.shared_cpus.contains(&id) && cache.size >= 1024, "{cache:?}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod by_cpuid {
    use super::*;
    use crate::cpuid::CacheLeaf;
    use crate::skipped::skipped;

    #[test]
    fn sharers_follow_from_the_apic_ids() {
        let machine = Machine::new();
        machine.file("devices/system/cpu/online", "0-3");
        for id in 0..4 {
            machine.cpu(id, id, 0, &id.to_string());
        }
        let mut topology = machine.read();
        let leaf =
            |level, kind, sharers| CacheLeaf { level, kind, ways: 8, line_bytes: 64, sets: 64, sharers };
        let processors = "processor\t: 0\napicid\t\t: 0\n\nprocessor\t: 1\napicid\t\t: 3\n\n\
                          processor\t: 2\napicid\t\t: 1\ninitial apicid\t: 9\n\nprocessor\t: 3\napicid\t\t: 4\n";
        let apic_ids = apic_ids(processors);
        assert_eq!(apic_ids, [(0, 0), (1, 3), (2, 1), (3, 4)]);
        topology.take_caches(&[leaf(1, 1, 2), leaf(1, 2, 2), leaf(3, 3, 3)], &apic_ids);
        assert_eq!(topology.source, CacheSource::Cpuid);
        let cpu = topology.cpu(0).unwrap();
        assert_eq!(cpu.data_cache(1).unwrap().shared_cpus, [0, 2]);
        // Three sharers take two bits of the id.
        assert_eq!(cpu.data_cache(3).unwrap().shared_cpus, [0, 1, 2]);
        assert_eq!(cpu.caches[1].kind, CacheKind::Instruction);
        assert_eq!(cpu.caches[0].size, 32 << 10);

        topology.take_caches(&[leaf(3, 3, 4)], &[]);
        assert_eq!(topology.cpu(1).unwrap().data_cache(3).unwrap().shared_cpus, [1]);
    }

    #[test]
    fn the_processor_agrees_with_the_kernel() {
        let topology = Topology::read().unwrap();
        if topology.source != CacheSource::Sysfs {
            skipped(&format!("nothing to compare with: the caches' source is {}", topology.source));
            return;
        }
        let mut asked = Topology::from_root(Path::new("/")).unwrap();
        asked.ask_the_processor();
        if asked.source == CacheSource::Sysfs {
            skipped("nothing to compare with: this processor describes no caches");
            return;
        }
        // A hypervisor may hide how caches are shared, and hybrid processors differ by CPU: only the first level's
        // line is the same everywhere.
        let line = |topology: &Topology| topology.cpus[0].data_cache(1).map(|cache| cache.line_bytes);
        assert_eq!(line(&topology), line(&asked));
    }
}
