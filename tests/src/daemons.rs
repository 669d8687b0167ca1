//! Routing daemons in namespaces: BIRD and FRR, each as one end of a BGP session for IPv4 and one for IPv6.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

use crate::command::SHORT;

/// Where Debian has FRR's daemons.
const ZEBRA: &str = "/usr/lib/frr/zebra";
const BGPD: &str = "/usr/lib/frr/bgpd";

/// The programs that daemons and their clients are.
pub const DAEMONS: [&str; 6] = ["bird", "birdc", "vtysh", ZEBRA, BGPD, "python3"];

/// Routes that a daemon announces, by family.
pub const ANNOUNCED: [usize; 2] = [60_000, 40_000];

/// How long either end waits for a word from the other before it gives the session up.
pub const HOLD: Duration = Duration::from_secs(9);

/// The prefix of that number, below [`ANNOUNCED`] for its family.
fn prefix(is_ipv6: bool, number: usize) -> String {
    if is_ipv6 {
        format!("2001:db8:{:x}::/48", 0x1000 + number)
    } else {
        format!("10.{}.{}.0/24", number / 256, number % 256)
    }
}

/// The first host's address in the prefix of that number.
pub fn address_in(is_ipv6: bool, number: usize) -> String {
    let prefix = prefix(is_ipv6, number);
    let end = if is_ipv6 { "/48" } else { "0/24" };
    format!("{}1", prefix.trim_end_matches(end))
}

/// One end of a session.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The number of its autonomous system.
    pub autonomous_system: u32,
    /// Its IPv4 address, which is its router identifier, too.
    pub ipv4: &'static str,
    /// Its IPv6 address.
    pub ipv6: &'static str,
}

/// A daemon that speaks BGP, learns what the other end announces into its host's kernel, and announces 100,000 routes when asked to.
pub trait Speaker {
    /// What there is to say of its two sessions while both are established; another text if one of them was interrupted.
    fn sessions(&self) -> Option<String>;
    /// Starts to announce its routes.
    fn announce(&self);
    /// Withdraws them.
    fn withdraw(&self);
}

/// BIRD.
#[derive(Debug)]
pub struct Bird<'a> {
    host: &'a Namespace,
    socket: PathBuf,
    _process: Process,
}

impl<'a> Bird<'a> {
    /// Starts it in this namespace, with its files in this directory.
    ///
    /// # Panics
    /// If that isn't possible.
    pub fn start(host: &'a Namespace, directory: &Path, own: End, peer: End) -> Self {
        let directory = directory.join("bird");
        fs::create_dir(&directory).expect("a writable directory");
        let mut config = format!(
            "router id {};\nlog stderr all;\ntimeformat protocol iso long;\nprotocol device {{ }}\n",
            own.ipv4
        );
        for (family, is_ipv6, [near, far]) in
            [("4", false, [own.ipv4, peer.ipv4]), ("6", true, [own.ipv6, peer.ipv6])]
        {
            let routes = directory.join(format!("routes{family}"));
            let mut lines = String::new();
            for number in 0..ANNOUNCED[usize::from(is_ipv6)] {
                writeln!(lines, "route {} blackhole;", prefix(is_ipv6, number)).expect("a string takes all");
            }
            fs::write(&routes, lines).expect("a writable directory");
            // What is announced is nowhere in the kernel.
            write!(
                config,
                "protocol kernel kernel{family} {{\n\
                   ipv{family} {{ import none; export where source = RTS_BGP; }};\n\
                 }}\n\
                 protocol static routes{family} {{\n\
                   disabled;\n\
                   ipv{family};\n\
                   include \"{}\";\n\
                 }}\n\
                 protocol bgp far{family} {{\n\
                   local {near} as {};\n\
                   neighbor {far} as {};\n\
                   hold time {hold};\n\
                   keepalive time {keepalive};\n\
                   connect delay time 1;\n\
                   connect retry time 1;\n\
                   error wait time 1,2;\n\
                   ipv{family} {{ import all; export where source = RTS_STATIC; }};\n\
                 }}\n",
                routes.display(),
                own.autonomous_system,
                peer.autonomous_system,
                hold = HOLD.as_secs(),
                keepalive = HOLD.as_secs() / 3,
            )
            .expect("a string takes all");
        }
        let file = directory.join("bird.conf");
        fs::write(&file, config).expect("a writable directory");
        let socket = directory.join("bird.ctl");
        let mut command = host.command("bird");
        command
            .arg("-f")
            .arg("-c")
            .arg(file)
            .arg("-s")
            .arg(&socket)
            .arg("-P")
            .arg(directory.join("bird.pid"));
        let mut process = Process::spawn(&mut command);
        process.wait_for("Started", SHORT);
        Self { host, socket, _process: process }
    }

    fn ask(&self, question: &str) -> String {
        let mut command = self.host.command("birdc");
        command.arg("-s").arg(&self.socket).args(question.split_whitespace());
        Process::run(&mut command, SHORT).expect_success(question).to_owned()
    }
}

impl Speaker for Bird<'_> {
    fn sessions(&self) -> Option<String> {
        // Name, protocol, table, state, since when, and what of it.
        let answer = self.ask("show protocols");
        let sessions = answer.lines().filter(|line| line.starts_with("far"));
        let sessions: Vec<&str> = sessions.filter(|line| line.contains("Established")).collect();
        (sessions.len() == 2).then(|| sessions.join("\n"))
    }

    fn announce(&self) {
        self.ask("enable routes4");
        self.ask("enable routes6");
    }

    fn withdraw(&self) {
        self.ask("disable routes4");
        self.ask("disable routes6");
    }
}

/// FRR: zebra and bgpd.
#[derive(Debug)]
pub struct Frr<'a> {
    host: &'a Namespace,
    directory: PathBuf,
    _processes: Vec<Process>,
}

impl<'a> Frr<'a> {
    /// Starts both in this namespace, with their files in this directory, which everybody can read from then on.
    ///
    /// # Panics
    /// If that isn't possible.
    pub fn start(host: &'a Namespace, directory: &Path, own: End, peer: End) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("our own");
        let directory = directory.join("frr");
        fs::create_dir(&directory).expect("a writable directory");
        let mut config = format!(
            "router bgp {}\n\
             bgp router-id {}\n\
             no bgp ebgp-requires-policy\n\
             no bgp default ipv4-unicast\n\
             timers bgp {} {}\n",
            own.autonomous_system,
            own.ipv4,
            HOLD.as_secs() / 3,
            HOLD.as_secs()
        );
        for far in [peer.ipv4, peer.ipv6] {
            let number = peer.autonomous_system;
            write!(config, "neighbor {far} remote-as {number}\nneighbor {far} timers connect 1\n")
                .expect("a string takes all");
        }
        for (family, far) in [("ipv4", peer.ipv4), ("ipv6", peer.ipv6)] {
            write!(
                config,
                "address-family {family} unicast\n\
                 neighbor {far} activate\n\
                 redistribute kernel\n\
                 exit-address-family\n"
            )
            .expect("a string takes all");
        }
        fs::write(directory.join("bgpd.conf"), config).expect("a writable directory");
        fs::write(directory.join("zebra.conf"), "").expect("a writable directory");
        for verb in ["add", "del"] {
            let mut lines = String::new();
            for is_ipv6 in [false, true] {
                for number in 0..ANNOUNCED[usize::from(is_ipv6)] {
                    writeln!(lines, "route {verb} blackhole {}", prefix(is_ipv6, number))
                        .expect("a string takes all");
                }
            }
            fs::write(directory.join(verb), lines).expect("a writable directory");
        }
        Self::run(host, directory)
    }

    /// Starts both as a leaf of an overlay network: EVPN with the leaves at these addresses, for all VXLAN devices of the namespace. The
    /// device of identifier `routed` is for routes of type 5; the host announces those of `own`.
    ///
    /// # Panics
    /// If that isn't possible.
    pub fn start_leaf(
        host: &'a Namespace,
        directory: &Path,
        own: (&str, &str),
        leaves: &[&str],
        routed: u32,
    ) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("our own");
        let (address, prefix) = own;
        let directory = directory.join(format!("leaf-{address}"));
        fs::create_dir(&directory).expect("a writable directory");
        let mut config = format!(
            "router bgp 65001\n\
             bgp router-id {address}\n\
             no bgp default ipv4-unicast\n\
             timers bgp {} {}\n",
            HOLD.as_secs() / 3,
            HOLD.as_secs()
        );
        for leaf in leaves {
            write!(
                config,
                "neighbor {leaf} remote-as 65001\n\
                 neighbor {leaf} timers connect 1\n\
                 neighbor {leaf} advertisement-interval 0\n"
            )
            .expect("a string takes all");
        }
        config.push_str(
            "address-family ipv4 unicast\n\
             redistribute connected route-map own\n\
             exit-address-family\n\
             address-family l2vpn evpn\n",
        );
        for leaf in leaves {
            writeln!(config, "neighbor {leaf} activate").expect("a string takes all");
        }
        write!(
            config,
            "advertise-all-vni\n\
             advertise ipv4 unicast\n\
             exit-address-family\n\
             ip prefix-list own permit {prefix}\n\
             route-map own permit 10\n\
             match ip address prefix-list own\n"
        )
        .expect("a string takes all");
        fs::write(directory.join("bgpd.conf"), config).expect("a writable directory");
        fs::write(directory.join("zebra.conf"), format!("vni {routed}\n")).expect("a writable directory");
        Self::run(host, directory)
    }

    /// Starts both with what is in a directory.
    fn run(host: &'a Namespace, directory: PathBuf) -> Self {
        // The daemons run as a user of their own, and refuse any other who is not in the group of their terminals.
        let line = format!("chown -R frr:frr {}", directory.display());
        host.run(&line).expect_success(&line);
        let processes = [ZEBRA, BGPD].map(|program| {
            let name = program.rsplit('/').next().expect("there is one part at least");
            let file = |end: &str| directory.join(format!("{name}.{end}"));
            let mut command = host.command(program);
            // No terminal by TCP, and sockets where nobody else's FRR has them.
            command.args(["--log", "stdout", "--vty_port", "0", "--vty_socket"]).arg(&directory);
            command.arg("--socket").arg(directory.join("zserv.api"));
            command.arg("--pid_file").arg(file("pid")).arg("--config_file").arg(file("conf"));
            if program == ZEBRA {
                // With less space, the kernel's news of so many routes get lost, and zebra doesn't notice. So has Debian's
                // /etc/frr/daemons.
                command.args(["--nl-bufsize", "90000000"]);
            }
            let mut process = Process::spawn(&mut command);
            process.wait_for("starting: vty", SHORT);
            process
        });
        Self { host, directory, _processes: processes.into() }
    }

    fn ask(&self, question: &str) -> Value {
        let mut command = self.host.command("vtysh");
        command.arg("--vty_socket").arg(&self.directory).args(["-d", "bgpd", "-c", question]);
        let finished = Process::run(&mut command, SHORT);
        let text = finished.expect_success(question);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{question}: {error}: {text}"))
    }

    fn batch(&self, verb: &str) {
        let file = self.directory.join(verb);
        self.host.ip(&format!("-batch {}", file.display()));
    }
}

impl Speaker for Frr<'_> {
    fn sessions(&self) -> Option<String> {
        let mut sessions = Vec::new();
        for family in ["ipv4", "ipv6"] {
            let answer = self.ask(&format!("show bgp {family} unicast summary json"));
            for (far, peer) in answer["peers"].as_object()? {
                if peer["state"] != "Established" {
                    return None;
                }
                let counts = ["connectionsEstablished", "connectionsDropped"];
                let counts = counts.map(|name| peer[name].as_u64().expect("FRR counts connections"));
                sessions.push(format!("{far}: {} made, {} dropped", counts[0], counts[1]));
            }
        }
        (sessions.len() == 2).then(|| sessions.join("\n"))
    }

    fn announce(&self) {
        self.batch("add");
    }

    fn withdraw(&self) {
        self.batch("del");
    }
}
