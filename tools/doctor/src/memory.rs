//! Memory: how much, in which pages, on which node, and how much of it may be pinned.

use crate::finding::Finding;
use crate::privilege::{self, Limit};
use crate::tree::{Tree, bytes};
use warmlane_sys::huge_pages::HugePagePool;
use warmlane_sys::topology::Topology;

const HUGE_2M: u64 = 2 << 20;
const HUGE_1G: u64 = 1 << 30;
/// Space for a pool of the default size (16,384 buffers of about 2,240 bytes: 35 MiB), its lane caches and a table.
const ENOUGH: u64 = 64 << 20;
/// What to set aside where there is nothing: 1 GiB in pages of 2 MiB.
const USUAL_PAGES: u64 = 512;
const DIRECTORY: &str = "sys/kernel/mm/hugepages";

fn pool(tree: Tree, page_bytes: u64) -> Option<HugePagePool> {
    let directory = format!("{DIRECTORY}/hugepages-{}kB", page_bytes / 1024);
    Some(HugePagePool {
        page_bytes,
        total: tree.number(&format!("{directory}/nr_hugepages"))?,
        free: tree.number(&format!("{directory}/free_hugepages"))?,
        reserved: tree.number(&format!("{directory}/resv_hugepages")).unwrap_or(0),
    })
}

pub(crate) fn free(tree: Tree) -> Finding {
    let name = "free-memory";
    let Some(available) = tree.bytes_field("proc/meminfo", "MemAvailable") else {
        return Finding::not_known(name, "/proc/meminfo does not say how much memory is available");
    };
    let found = format!("{} can be taken without swapping", bytes(available));
    let huge = pool(tree, HUGE_2M).map_or(0, |pool| pool.obtainable() * HUGE_2M);
    if available.max(huge) >= ENOUGH {
        return Finding::good(name, found);
    }
    Finding::problem(name, found, "free memory, or ask for a smaller pool (`--buffers`)")
        .worth(format!("a pool of the default size and what goes with it need about {}", bytes(ENOUGH)))
        .preventing()
}

pub(crate) fn huge_pages_2m(tree: Tree) -> Finding {
    let name = "huge-pages-2m";
    let Some(pool) = pool(tree, HUGE_2M) else {
        return Finding::good(name, "this kernel or processor has no pages of 2 MiB that could be set aside");
    };
    let found = format!("{} of {} pages of 2 MiB are free", pool.obtainable(), pool.total);
    if pool.obtainable() * HUGE_2M >= ENOUGH {
        return Finding::good(name, found);
    }
    let total = pool.total_for(USUAL_PAGES);
    Finding::better(
        name,
        found,
        format!(
            "`echo {total} > /{DIRECTORY}/hugepages-2048kB/nr_hugepages`, or `hugepagesz=2M hugepages={total}` on the \
             boot command line"
        ),
    )
    .worth(
        "a pool of 16,384 buffers (35 MiB) needs 18 entries of the translation cache (TLB) instead of about 9,000, of \
         which processors have 1,500 to 4,000; a miss is a walk through up to four levels of page tables",
    )
}

pub(crate) fn huge_pages_1g(tree: Tree) -> Finding {
    let name = "huge-pages-1g";
    match pool(tree, HUGE_1G) {
        None => Finding::good(name, "this kernel or processor has no pages of 1 GiB; few pools need them"),
        Some(pool) if pool.total == 0 => {
            Finding::good(name, "none is set aside; only pools of 1 GiB and more would use them")
        }
        Some(pool) if pool.obtainable() == 0 => Finding::better(
            name,
            format!("all {} pages of 1 GiB are in use", pool.total),
            format!("stop what holds them, or boot with `hugepagesz=1G hugepages={}`", pool.total_for(1)),
        )
        .worth("only pools of 1 GiB and more use them; these fall back to pages of 2 MiB, which cost little"),
        Some(pool) => {
            Finding::good(name, format!("{} of {} pages of 1 GiB are free", pool.obtainable(), pool.total))
        }
    }
}

pub(crate) fn transparent(tree: Tree) -> Finding {
    let name = "transparent-huge-pages";
    let directory = "sys/kernel/mm/transparent_hugepage";
    let chosen = |file: &str| {
        let text = tree.text(&format!("{directory}/{file}"))?;
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(word, _)| word.to_owned())
    };
    let (Some(private), Some(shared)) = (chosen("enabled"), chosen("shmem_enabled")) else {
        return Finding::not_known(name, "the kernel does not say how transparent huge pages are set up");
    };
    let found = format!("private memory: {private}; shared memory: {shared}");
    let tables = private == "never";
    let buffers = matches!(shared.as_str(), "never" | "deny");
    if !tables && !buffers {
        return Finding::good(name, found);
    }
    let commands = [(tables, "echo madvise", "enabled"), (buffers, "echo advise", "shmem_enabled")]
        .iter()
        .filter(|(wanted, ..)| *wanted)
        .map(|(_, command, file)| format!("`{command} > /{directory}/{file}`"))
        .collect::<Vec<_>>()
        .join(" and ");
    let worth = match (tables, buffers) {
        (true, _) => {
            "lookup tables of many MiB lie in private memory and need them most: without, nearly each random \
                      lookup misses the translation cache"
        }
        (false, _) => {
            "buffers come on huge pages even when none are set aside; as fast, but the kernel may split \
                       them when memory is short"
        }
    };
    Finding::better(name, found, commands).worth(worth)
}

pub(crate) fn nodes(tree: Tree) -> Finding {
    let name = "numa";
    let nodes = match Topology::from_root(tree.root()) {
        Ok(topology) if !topology.nodes.is_empty() => topology.nodes,
        _ => return Finding::not_known(name, "the kernel does not describe NUMA nodes"),
    };
    let described = nodes.iter().map(|node| {
        let memory = node.memory.map_or_else(|| "memory not known".to_owned(), bytes);
        format!("node {}: {} CPUs, {memory}", node.id, node.cpus.len())
    });
    let found = described.collect::<Vec<_>>().join("; ");
    let bare = nodes.iter().find(|node| !node.cpus.is_empty() && node.memory == Some(0));
    if let Some(node) = bare {
        return Finding::better(
            name,
            found,
            format!("put a memory module next to node {}, or keep lanes off its CPUs", node.id),
        )
        .worth("every buffer that a lane touches there comes over the link between the sockets");
    }
    // Pages on the wrong node are used without a word: the pool as a whole looks fine.
    let huge = |node: &warmlane_sys::topology::Node| {
        node.huge_pages.iter().find(|pool| pool.page_bytes == HUGE_2M).map_or(0, |pool| pool.free)
    };
    let total: u64 = nodes.iter().map(huge).sum();
    let dry = nodes.iter().find(|node| !node.cpus.is_empty() && huge(node) * HUGE_2M < ENOUGH);
    if let (Some(node), true, true) = (dry, nodes.len() > 1, total > 0) {
        let file =
            format!("/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages", node.id);
        return Finding::better(
            name,
            format!("{found}; but node {} has only {} free pages of 2 MiB", node.id, huge(node)),
            format!("`echo {USUAL_PAGES} > {file}`"),
        )
        .worth("a pool made on this node takes its pages from another, and its lanes reach over the link for each");
    }
    Finding::good(name, found)
}

pub(crate) fn locked(tree: Tree) -> Finding {
    let name = "locked-memory";
    let Some(limit) = privilege::limit(tree, "Max locked memory") else {
        return Finding::not_known(name, "/proc/self/limits does not say how much memory may be pinned");
    };
    let Limit::At(limit) = limit else { return Finding::good(name, "unlimited") };
    // The kernel asks for the capability before it looks at the limit (`xdp_umem_account_pages`, net/xdp/xdp_umem.c).
    if privilege::holds(tree, privilege::IPC_LOCK) == Some(true) {
        return Finding::good(name, "unlimited for this process (CAP_IPC_LOCK)");
    }
    let found = format!("this process may pin {}", bytes(limit));
    if limit >= ENOUGH {
        return Finding::good(name, found);
    }
    Finding::problem(
        name,
        found,
        "`ulimit -l unlimited` in the shell that starts it (as root), `LimitMEMLOCK=infinity` in its systemd unit, or \
         CAP_IPC_LOCK with the other capabilities",
    )
    .worth(format!(
        "memory that the kernel or a device writes into (AF_XDP, VFIO) counts against it: binding a pool fails with \
         \"No buffer space available\" above it, and a default pool has about {}; other ports don't need it",
        bytes(36 << 20)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    fn pages(fixture: &Fixture, directory: &str, kilobytes: u64, total: u64, free: u64) {
        let directory = format!("{directory}/hugepages-{kilobytes}kB");
        fixture.write(&format!("{directory}/nr_hugepages"), &format!("{total}\n"));
        fixture.write(&format!("{directory}/free_hugepages"), &format!("{free}\n"));
    }

    #[test]
    fn too_little_memory_prevents_running() {
        let fixture = Fixture::with(&[("proc/meminfo", "MemTotal: 99999 kB\nMemAvailable:   20480 kB\n")]);
        let finding = free(fixture.tree());
        assert!(finding.prevents_running && finding.status == Status::Problem, "{finding:?}");
        assert!(finding.found.starts_with("20 MiB"));
        // Memory that was set aside is not "available", and is there all the same.
        pages(&fixture, DIRECTORY, 2_048, 64, 64);
        assert_eq!(free(fixture.tree()).status, Status::Good);
    }

    #[test]
    fn huge_pages_that_others_hold_are_added_to() {
        let fixture = Fixture::new();
        pages(&fixture, DIRECTORY, 2_048, 100, 4);
        let finding = huge_pages_2m(fixture.tree());
        assert_eq!(finding.found, "4 of 100 pages of 2 MiB are free");
        assert!(finding.remedy.unwrap().contains("`echo 608 > /sys/kernel/mm/hugepages/hugepages-2048kB/"));
        pages(&fixture, DIRECTORY, 2_048, 100, 64);
        assert_eq!(huge_pages_2m(fixture.tree()).status, Status::Good);
    }

    #[test]
    fn pages_of_1_gib_matter_only_when_used_up() {
        let fixture = Fixture::new();
        pages(&fixture, DIRECTORY, 1_048_576, 0, 0);
        assert_eq!(huge_pages_1g(fixture.tree()).status, Status::Good);
        pages(&fixture, DIRECTORY, 1_048_576, 2, 0);
        let finding = huge_pages_1g(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.remedy.unwrap().contains("hugepages=3"));
    }

    #[test]
    fn only_what_is_off_is_to_be_turned_on() {
        let directory = "sys/kernel/mm/transparent_hugepage";
        let fixture = Fixture::with(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            (
                "sys/kernel/mm/transparent_hugepage/shmem_enabled",
                "always within_size advise [never] deny force\n",
            ),
        ]);
        let finding = transparent(fixture.tree());
        assert_eq!(finding.remedy.as_deref(), Some(&*format!("`echo advise > /{directory}/shmem_enabled`")));
        fixture.expect(
            &format!("{directory}/shmem_enabled"),
            "always within_size [advise] never deny force\n",
            transparent,
            Status::Good,
        );
        fixture.write(&format!("{directory}/enabled"), "always madvise [never]\n");
        assert!(transparent(fixture.tree()).worth.unwrap().contains("lookup tables"));
    }

    #[test]
    fn a_node_without_huge_pages_of_its_own() {
        let fixture = Fixture::new();
        for node in 0..2 {
            fixture.write(&format!("sys/devices/system/cpu/cpu{node}/topology/core_id"), "0\n");
            let directory = format!("sys/devices/system/node/node{node}");
            fixture.write(&format!("{directory}/cpulist"), &format!("{node}\n"));
            fixture.write(&format!("{directory}/meminfo"), &format!("Node {node} MemTotal:  1048576 kB\n"));
            pages(&fixture, &format!("{directory}/hugepages"), 2_048, 64, 64);
        }
        let finding = nodes(fixture.tree());
        assert_eq!(finding.status, Status::Good, "{finding:?}");
        assert_eq!(finding.found, "node 0: 1 CPUs, 1 GiB; node 1: 1 CPUs, 1 GiB");
        pages(&fixture, "sys/devices/system/node/node1/hugepages", 2_048, 0, 0);
        let finding = nodes(fixture.tree());
        assert!(finding.remedy.unwrap().contains("/node1/hugepages/hugepages-2048kB/nr_hugepages"));
        fixture.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  0 kB\n");
        assert!(nodes(fixture.tree()).remedy.unwrap().contains("memory module next to node 1"));
    }

    #[test]
    fn pinning_needs_a_limit_or_a_capability() {
        let limits = |soft| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         {soft:<20} unlimited            bytes     \n"
            )
        };
        let fixture = Fixture::with(&[
            ("proc/self/limits", &limits("8388608")),
            ("proc/self/status", "CapEff:\t0000000000000000\n"),
        ]);
        let finding = locked(fixture.tree());
        assert_eq!((finding.status, &*finding.found), (Status::Problem, "this process may pin 8 MiB"));
        assert!(!finding.prevents_running, "other ports run without");
        fixture.expect("proc/self/status", "CapEff:\t0000000000004000\n", locked, Status::Good);
        fixture.write("proc/self/status", "CapEff:\t0000000000000000\n");
        fixture.expect("proc/self/limits", &limits("unlimited"), locked, Status::Good);
    }
}
