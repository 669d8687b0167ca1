//! What whoever runs `warmlane router` is told, and can ask for.

use std::process::Command;
use std::time::Duration;

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::process::warmlane;
use warmlane_testkit::promise::Watch;

#[test]
fn it_says_how_full_its_pool_is() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "--buffers 8192");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let counters = lab.ask("counters");
    let pool = |name: &str| counters["pools"][0][name].as_u64().unwrap_or_else(|| panic!("{counters:#}"));
    // Receive queues hold some, so there were never all of them.
    assert!(pool("available") < pool("buffers") && pool("lowest") < pool("buffers"), "{counters:#}");
    assert_eq!(pool("refused"), 0, "{counters:#}");
    let report = RouterLab::finish(process);
    assert_eq!(report.number("/pools/0/available"), 8192, "{:#}", report.value());
    assert!(report.number("/pools/0/lowest") < 8192, "{:#}", report.value());
}

#[test]
fn expiring_packets_are_the_kernels_if_it_is_to_answer() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    // Everybody answers all that they are asked.
    for namespace in [&lab.router, &lab.east] {
        namespace.set("net.ipv4.icmp_ratelimit", "0");
        namespace.set("net.ipv6.icmp.ratelimit", "0");
    }
    // By way of the lanes, or past them.
    for (options, punted) in [("", 2), ("--pass-expiring", 0)] {
        let process = lab.start("w0 e0", options);
        for (address, hop) in [("198.51.100.2", "192.0.2.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
            let line = format!("traceroute -n -q 1 -w 5 {address}");
            let trace = lab.west.run(&line).output;
            let hops: Vec<_> =
                trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(hops, [hop, address], "{options}: {trace}");
        }
        let report = RouterLab::finish(process);
        assert_eq!(report.number("/forward/icmp_errors"), 0, "{options}: {:#}", report.value());
        assert_eq!(report.number("/forward/punted"), punted, "{options}: {:#}", report.value());
    }
}

#[test]
fn it_polls_the_interfaces_itself_if_asked() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\nbusy-poll = true\n").expect("a writable directory");
    let mut process = lab.spawn("", &format!("--verbose --config {}", file.display()));
    process.wait_for("busy polling", SHORT);
    process.wait_for("note: forwarding between", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::finish(process);
}

/// More in one answer than a socket holds, and questions behind it.
#[test]
fn questions_in_one_write_are_all_answered_also_to_who_reads_slowly() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("routes");
    let route =
        |number: u32| format!("route add 203.{}.{}.0/24 via 198.51.100.2\n", number / 250, number % 250);
    let routes: Vec<String> = (0..20_000).map(route).collect();
    std::fs::write(&file, routes.concat()).expect("a writable directory");
    lab.router.ip(&format!("-batch {}", file.display()));
    let process = lab.start("w0 e0", "");
    let mut client = std::os::unix::net::UnixStream::connect(lab.socket()).expect("it listens");
    client
        .write_all(b"{\"ask\":\"routes\",\"limit\":100000}\n{\"ask\":\"status\"}\n{\"ask\":\"verify\"}\n")
        .expect("it reads");
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Meanwhile others are answered.
    lab.verify();
    let lines: Vec<serde_json::Value> = BufReader::new(client)
        .lines()
        .take(3)
        .map(|line| serde_json::from_str(&line.expect("it answers")).expect("JSON"))
        .collect();
    let routes = lines[0]["routes"].as_array().expect("a list");
    assert!(routes.len() > 20_000 && lines[0]["total"] == routes.len(), "{}", routes.len());
    let protocol = |prefix: &str| {
        let route = routes.iter().find(|route| route["prefix"] == prefix);
        route.map(|route| route["protocol"].clone())
    };
    assert_eq!(protocol("203.0.7.0/24"), Some("boot".into()));
    assert_eq!(protocol("192.0.2.0/24"), Some("kernel".into()));
    assert!(lines[1]["ports"].is_array() && lines[2]["equal"] == true);

    // Who doesn't read at all is let go.
    let mut client = std::os::unix::net::UnixStream::connect(lab.socket()).expect("it listens");
    client.write_all(b"{\"ask\":\"routes\",\"limit\":100000}\n").expect("it reads");
    client.set_nonblocking(true).expect("our own end");
    RouterLab::wait_until("it is let go", SHORT, || {
        lab.verify();
        client.write(b"\n").is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    });
    RouterLab::finish(process);
}

/// Whoever reads what it says may go away, and those who ask it may have seen enough: it forwards on.
#[test]
fn it_goes_on_when_nobody_reads_what_it_says() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    for path in ["tc", "user"] {
        let mut command = lab.router.command(warmlane());
        command.args(["router", "w0", "e0", "--path", path, "--socket"]).arg(lab.socket());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines();
        let starts = errors.any(|line| line.expect("text").contains("note: forwarding between"));
        assert!(starts, "{path}");
        drop(errors);
        drop(child.stdout.take());
        // Something to say.
        lab.router.ip("link set e0 down");
        lab.router.ip("link set e0 up");
        assert!(
            Command::new("kill")
                .args(["-USR1", &child.id().to_string()])
                .status()
                .expect("kill starts")
                .success()
        );
        RouterLab::wait_until("it forwards", SHORT, || {
            lab.west.run("ping -n -c 1 -W 1 198.51.100.2").status.success()
        });
        lab.ask("status");
        let mut ask = lab.router.command(warmlane());
        ask.args(["router", "status", "--socket"]).arg(lab.socket()).stdout(Stdio::piped());
        let mut ask = ask.spawn().expect("it starts");
        drop(ask.stdout.take());
        assert!(ask.wait().expect("it ends").success());
        assert!(
            Command::new("kill")
                .args(["-INT", &child.id().to_string()])
                .status()
                .expect("kill starts")
                .success()
        );
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{path}");
    }
}

/// Nothing is polled where programs inside the kernel forward.
#[test]
fn on_paths_inside_the_kernel_it_takes_next_to_no_time_while_idle() {
    const IDLE: Duration = Duration::from_secs(5);
    const MOST: f64 = 0.002;
    let Some(lab) = RouterLab::new(1500, &["ethtool"]) else { return };
    lab.hosts_take_redirected();
    let process = lab.start("w0 e0", "--path w0=tc --path e0=xdp");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    // Nanoseconds that its threads ran.
    let ran = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("a process").flatten();
        let of_task = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).expect("a task");
            text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
        };
        tasks.map(of_task).sum()
    };
    let (watch, before) = (Watch::start(), ran());
    std::thread::sleep(IDLE);
    let share = (ran() - before) as f64 / 1e9 / watch.elapsed().as_secs_f64();
    eprintln!("{:.3} % of a CPU", share * 100.0);
    watch.check(share <= MOST, || format!("idle it takes {:.3} % of a CPU", share * 100.0));
    RouterLab::end(process);
}

#[test]
fn the_start_says_which_path_each_interface_got_and_little_else() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    for (options, lines) in [
        (
            "--path tc",
            ["interface 'w0': path tc: as it was asked for", "interface 'e0': path tc: as it was asked for"],
        ),
        (
            "--path best",
            [
                "interface 'w0': path tc: a virtual interface, where large packets of TCP stay whole",
                "interface 'e0': path tc: a virtual interface, where large packets of TCP stay whole",
            ],
        ),
        (
            "--path user",
            [
                "interface 'w0': path user: as it was asked for; native XDP, one copy in the kernel each way",
                "interface 'e0': path user: as it was asked for; native XDP, one copy in the kernel each way",
            ],
        ),
    ] {
        let process = lab.start("w0 e0", options);
        process.interrupt();
        let finished = process.finish(SHORT);
        finished.expect_success("warmlane router");
        let notes = finished.errors.lines().filter_map(|line| line.strip_prefix("note: "));
        // Other tests' routers may have lanes there.
        let said: Vec<&str> = notes.filter(|note| !note.starts_with("CPU ")).collect();
        assert_eq!(said, [&lines[..], &["forwarding between w0, e0"]].concat(), "{}", finished.errors);
        let process = lab.start("w0 e0", &format!("{options} -v"));
        process.interrupt();
        let finished = process.finish(SHORT);
        let more = finished.errors.lines().filter(|line| line.starts_with("note: ")).count();
        assert!(options != "--path user" || more > 3, "{}", finished.errors);
    }
}
