//! What programs inside the kernel decide is what the kernel would: `verify` asks it.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;

use crate::sysctls::{FLOWS, know_gateways, received, send_burst};

fn start(choice: &str) -> Option<(RouterLab, Process)> {
    let lab = RouterLab::new(1500, &[])?;
    lab.hosts_take_redirected();
    let process = lab.start("w0 e0", &format!("--path {choice}"));
    Some((lab, process))
}

fn finish(process: Process) {
    RouterLab::end(process);
}

fn forwarded(lab: &RouterLab) -> u64 {
    let counters = lab.ask("counters");
    let west = counters["paths"].as_array().expect("a list").iter().find(|path| path["interface"] == "w0");
    west.expect("it is there")["forwarded"].as_u64().expect("a number")
}

#[test]
fn the_kernel_is_asked_about_them() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = start(choice) else { return };
        let nothing = lab.verify();
        assert_eq!((nothing["routes"].as_u64(), nothing["decisions"].as_u64()), (Some(0), Some(0)));
        // Several paths, a route of its own MTU, a gateway of the other family, and one that leads nowhere.
        for family in ["ipv4", "ipv6"] {
            lab.router.set(&format!("net.{family}.fib_multipath_hash_policy"), "1");
        }
        lab.router.ip("route add 203.0.113.0/24 nexthop via 198.51.100.2 nexthop via 198.51.100.3");
        lab.router.ip("route add 2001:db8:9::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:2::3");
        lab.router.ip("route add 203.0.113.9/32 via 198.51.100.2 mtu 1300");
        lab.router.ip("route add 203.0.113.10/32 via inet6 2001:db8:2::2");
        lab.router.ip("route add blackhole 203.0.113.11/32");
        let mut addresses = vec!["198.51.100.2".to_owned(), "2001:db8:2::2".to_owned()];
        for last in 1..=11 {
            addresses.push(format!("203.0.113.{last}"));
            addresses.push(format!("2001:db8:9::{last}"));
        }
        for address in &addresses {
            lab.west.run(&format!("ping -n -c 1 -W 0.02 -s 1200 {address}"));
        }
        let answer = lab.verify();
        // Of two packets in the same tick of the clock only one is noted.
        assert!(answer["decisions"].as_u64() > Some(10), "{choice}: {answer:#}");
        finish(process);
    }
}

/// Writes into the maps that a process's programs note decisions in: UDP from 192.0.2.2 that comes in by one interface goes to 203.0.113.7
/// by 198.51.100.9, out of another. It is later than anything that the kernel tells, and the process doesn't take part in it.
const PLANT: &str = r"import ctypes,os,socket,struct,sys
pid,west,east=map(int,sys.argv[1:])
libc=ctypes.CDLL(None,use_errno=True)
number={'x86_64':321,'aarch64':280}[os.uname().machine]
def bpf(command,attributes):
    result=libc.syscall(number,command,ctypes.create_string_buffer(attributes,128),128)
    if result<0: raise OSError(ctypes.get_errno(),os.strerror(ctypes.get_errno()))
    return result
cpus=int(open('/sys/devices/system/cpu/possible').read().replace(',','-').split('-')[-1])+1
address=lambda text: socket.inet_aton(text)
decision=struct.pack('=Q16s16s16s4sIII4sHBBB7x',2**63,address('192.0.2.2'),address('203.0.113.7'),
    address('198.51.100.9'),b'',west,east,0,b'\x30\x39\x00\x09',100,17,2,2)
value=ctypes.create_string_buffer(decision*cpus,len(decision)*cpus)
planted=set()
for file in os.listdir(f'/proc/{pid}/fdinfo'):
    try: lines=open(f'/proc/{pid}/fdinfo/{file}').read().splitlines()
    except FileNotFoundError: continue
    about=dict(line.split(':\t',1) for line in lines if ':\t' in line)
    if (about.get('map_type'),about.get('max_entries'),about.get('value_size'))!=('6','64',str(len(decision))): continue
    opened=bpf(14,struct.pack('=III',int(about['map_id']),0,0))
    for slot in range(64):
        key=ctypes.create_string_buffer(struct.pack('=I',slot),4)
        bpf(2,struct.pack('=IIQQQ',opened,0,ctypes.addressof(key),ctypes.addressof(value),0))
    planted.add(about['map_id'])
print(len(planted))";

/// The kernel's number of one of the router's interfaces.
fn number(lab: &RouterLab, interface: &str) -> String {
    let file = format!("/sys/class/net/{interface}/ifindex");
    lab.router.run(&format!("cat {file}")).expect_success(&file).trim().to_owned()
}

/// One that the kernel would not make ends `verify` with another exit status, and says which it is.
#[test]
fn a_wrong_one_is_told() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = start(choice) else { return };
        if !requirements::programs(&["python3"]) {
            return;
        }
        lab.router.ip("route add 203.0.113.0/24 via 198.51.100.2");
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        lab.verify();
        let mut command = Command::new("python3");
        command.args(["-c", PLANT, &process.id().to_string(), &number(&lab, "w0"), &number(&lab, "e0")]);
        let planted = Process::run(&mut command, SHORT);
        assert_eq!(planted.expect_success("planting").trim(), "2", "a map for each interface");
        let told = lab.try_ask("verify");
        assert_refused(&told, &["not as the kernel: 1 difference(s)", "decisions compared"]);
        let answer: serde_json::Value = serde_json::from_str(&told.output).expect("JSON");
        assert_eq!((answer["equal"].as_bool(), answer["differences"].as_u64()), (Some(false), Some(1)));
        let sentence = answer["first"][0].as_str().expect("a sentence");
        for part in ["from 192.0.2.2 to 203.0.113.7", "come in by w0", "out of e0 to 198.51.100.9"] {
            assert!(sentence.contains(part), "{choice}: {sentence}");
        }
        assert!(sentence.ends_with("would do otherwise: out of e0 to 198.51.100.2"), "{choice}: {sentence}");
        // Once the kernel would, too, all is equal again.
        lab.router.ip("route replace 203.0.113.0/24 via 198.51.100.9");
        lab.verify();
        finish(process);
    }
}

/// Routes change all the time, also those of packets that come.
#[test]
fn they_are_right_while_routes_change() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = start(choice) else { return };
        let flood = lab.west.spawn("ping -n -q -i 0.002 203.0.113.1");
        let file = lab.directory().join("batch");
        let mut lines = String::new();
        for number in 0..5_000 {
            let gateway = ["198.51.100.2", "198.51.100.3"][number % 2];
            writeln!(lines, "route replace 203.0.113.1 via {gateway}").expect("a string takes all");
            writeln!(lines, "route replace 10.{}.{}.0/24 via {gateway}", number / 256, number % 256)
                .expect("a string takes all");
        }
        fs::write(&file, lines).expect("a writable directory");
        let mut flaps = lab.router.spawn(&format!("ip -batch {}", file.display()));
        let mut rounds = 0;
        while !flaps.has_ended() {
            lab.verify();
            rounds += 1;
        }
        flaps.finish(SHORT).expect_success("ip -batch");
        RouterLab::wait_until("decisions that can be compared", SHORT, || {
            lab.verify()["decisions"].as_u64() > Some(0)
        });
        assert!(rounds > 0);
        flood.interrupt();
        flood.finish(SHORT);
        finish(process);
    }
}

/// Sends UDP from the west, to ports 9 and 10 of an address in turn, dozens in each tick of the kernel's clock.
fn send_to(lab: &RouterLab, address: &str) -> Process {
    let family = if address.contains(':') { "AF_INET6" } else { "AF_INET" };
    let program = format!(
        "import socket as s,time\no=s.socket(s.{family},s.SOCK_DGRAM)
while True:
    for n in range(16): o.sendto(b'x',('{address}',9+n%2))
    time.sleep(0.0005)"
    );
    Process::spawn(lab.west.command("python3").args(["-c", &program]))
}

/// The Ethernet addresses that the next packets for ports 9 and 10 of an address have when they reach the east.
fn ways(lab: &RouterLab, address: &str) -> [String; 2] {
    let (family, kind, to, port) =
        if address.contains(':') { ("AF_INET6", 0x86dd, 38, 56) } else { ("AF_INET", 0x800, 30, 36) };
    let program = format!(
        "import socket as s
a=s.inet_pton(s.{family},'{address}'); r=s.socket(s.AF_PACKET,s.SOCK_RAW,s.htons({kind})); r.bind(('e0',{kind}))
seen=[set(),set()]; n=0
while n<400:
    f=r.recv(2000)
    if f[{to}:{to}+len(a)]==a and f[{port}:{port}+2] in (b'\\0\\x09',b'\\0\\x0a'):
        seen[f[{port}+1]-9].add(f[:6].hex(':')); n+=1
for ways in seen: print(','.join(sorted(ways)))"
    );
    let mut command = lab.east.command("python3");
    let finished = Process::run(command.args(["-c", &program]), SHORT);
    let mut lines = finished.expect_success("ways").lines().map(str::to_owned);
    [(); 2].map(|()| lines.next().expect("a line for each port"))
}

/// An answer of the kernel's lookup is good for the rest of a tick of its clock. So routes, rules and neighbours hold from the next one on, and what looks
/// at more than destinations as soon as the router has heard of it.
#[test]
fn answers_hold_for_a_tick_only() {
    const MACS: [&str; 3] = ["02:00:00:00:09:01", "02:00:00:00:09:02", "02:00:00:00:09:03"];
    let [first, second, third] = MACS;
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = start(choice) else { return };
        for (family, destination, [one, other]) in [
            ("-4", "203.0.113.1", ["198.51.100.8", "198.51.100.9"]),
            ("-6", "2001:db8:5::1", ["2001:db8:2::8", "2001:db8:2::9"]),
        ] {
            for (gateway, mac) in [(one, first), (other, second)] {
                lab.router.neighbour("e0", gateway, mac);
            }
            lab.router.ip(&format!("route add {destination} via {one}"));
            lab.router.ip(&format!("route add {destination} via {one} table 100"));
            let sender = send_to(&lab, destination);
            RouterLab::wait_until("packets", SHORT, || ways(&lab, destination) == [first, first]);
            // No more than what the kernel itself knows: far longer than a tick.
            let check = |what: &str, expected: &str| {
                lab.router.ip(what);
                std::thread::sleep(Duration::from_secs(1));
                assert_eq!(ways(&lab, destination), [expected, expected], "{choice}: {what}");
                lab.verify();
            };
            check(&format!("route replace {destination} via {other}"), second);
            check(&format!("neighbour replace {other} lladdr {third} dev e0 nud permanent"), third);
            check(&format!("{family} rule add to {destination} lookup 100 pref 100"), first);
            check(&format!("{family} rule delete pref 100"), third);
            // Of two packets to the same destination one goes elsewhere now.
            let becomes = |what: &str, expected: [&str; 2]| {
                lab.router.ip(what);
                RouterLab::wait_until(what, SHORT, || ways(&lab, destination) == expected);
                lab.verify();
            };
            let rule = format!("to {destination} ipproto udp dport 9 lookup 100 pref 100");
            becomes(&format!("{family} rule add {rule}"), [first, third]);
            becomes(&format!("{family} rule delete pref 100"), [third, third]);
            sender.interrupt();
            sender.finish(SHORT);
        }
        RouterLab::wait_until("decisions that can be compared", SHORT, || {
            lab.verify()["decisions"].as_u64() > Some(0)
        });
        finish(process);
    }
}

/// A lookup holds for others of the same moment only if nothing but the destination tells where they go.
#[test]
fn bursts_to_one_destination_take_several_paths() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    let third = lab.third_host();
    know_gateways(&lab);
    for family in ["ipv4", "ipv6"] {
        lab.router.set(&format!("net.{family}.fib_multipath_hash_policy"), "1");
    }
    let process = lab.start("w0 e0 x0", "--path tc");
    for (prefix, destination, gateways) in [
        ("203.0.113.0/24", "203.0.113.1", ["198.51.100.9", "192.0.3.9"]),
        ("2001:db8:5::/48", "2001:db8:5::1", ["2001:db8:2::9", "2001:db8:3::9"]),
    ] {
        lab.router.ip(&format!("route add {prefix} via {}", gateways[0]));
        let [east, _] = received(&lab, &third, destination);
        assert!(east >= FLOWS, "{destination}");
        lab.router
            .ip(&format!("route replace {prefix} nexthop via {} nexthop via {}", gateways[0], gateways[1]));
        RouterLab::wait_until("both paths are taken", SHORT, || {
            received(&lab, &third, destination).into_iter().all(|packets| packets > FLOWS / 6)
        });
        lab.verify();
        // A rule for half of the flows, which go nowhere.
        lab.router.ip(&format!("route replace {prefix} via {}", gateways[0]));
        let family = if destination.contains(':') { "-6" } else { "-4" };
        lab.router
            .ip(&format!("{family} rule add to {prefix} ipproto udp dport 3000-3031 pref 100 blackhole"));
        RouterLab::wait_until("the rule holds", SHORT, || {
            let before = forwarded(&lab);
            send_burst(&lab, destination);
            forwarded(&lab) == before + FLOWS / 2
        });
    }
    finish(process);
}

#[test]
fn routes_are_the_kernels_own() {
    let Some((lab, process)) = start("tc") else { return };
    lab.router.ip("route add 203.0.113.0/24 via 198.51.100.2 proto bgp");
    let one = lab.ask("routes 203.0.113.7")["routes"][0].take();
    let expected = serde_json::json!({
        "prefix": "203.0.113.0/24", "leads_to": "e0", "gateways": ["198.51.100.2"], "protocol": "bgp",
    });
    assert_eq!(one, expected);
    assert_refused(&lab.try_ask("routes 192.0.9.1"), &["the kernel has no way there"]);
    assert_refused(&lab.try_ask("routes"), &["`ip route` shows them"]);
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let neighbours = lab.ask("neighbours").to_string();
    assert!(neighbours.contains("198.51.100.2"), "{neighbours}");
    finish(process);
}

/// What the kernel chooses one of several paths by, and its lookup for programs doesn't see.
#[test]
fn other_choices_of_paths_are_the_kernels() {
    let Some((lab, mut process)) = start("tc") else { return };
    let passed = || {
        let counters = lab.ask("counters");
        let west =
            counters["paths"].as_array().expect("a list").iter().find(|path| path["interface"] == "w0");
        west.expect("it is there")["passes"]["forwarding-off"].as_u64().unwrap_or(0)
    };
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    assert_eq!(passed(), 0);
    lab.router.set("net.ipv4.fib_multipath_hash_policy", "2");
    process.wait_for("on the paths xdp and tc IPv4 is left to the kernel", SHORT);
    assert!(lab.ask("status")["warnings"].to_string().contains("fib_multipath_hash_policy"));
    RouterLab::wait_until("IPv4 is the kernel's", SHORT, || {
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        passed() > 0
    });
    let before = passed();
    RouterLab::check_ping(&lab.west, &["2001:db8:2::2"]);
    assert_eq!(passed(), before);
    finish(process);
}
