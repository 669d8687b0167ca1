//! The forwarder's settings from the command line: flags fill the same structs as the file, and are added to what it says.

use anyhow::{Context as _, anyhow};
use clap::Args;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use warmlane::assembly::ports::{self, DriverSettings, PortSettings};
use warmlane::functions::forward::control::Config;
use warmlane::functions::forward::control::config::{
    ConfigProblem, FlowEntry, ForwardSettings, FullTableEntry, NeighbourEntry, Network, OrText, PortEntry,
    Protocol, RouteEntry, RuleEntry, Via, ViaEntry,
};
use warmlane::settings::{Located, SettingsError, from_toml};

/// What to forward, by file, by flags, or by both: flags are added to what the file says.
#[derive(Args, Debug, Default)]
pub(crate) struct ConfigFlags {
    /// A TOML file with ports, neighbours and routes (see docs/forward.md).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A port: `NAME=DRIVER` or `NAME=DRIVER:KEY=VALUE,...`, as in `west=xdp:eth0`.
    #[arg(long = "port", value_name = "PORT", long_help = port_help())]
    ports: Vec<String>,
    /// An address of ours on a port, with the length of its prefix: `PORT=192.0.2.1/24`.
    #[arg(long = "address", value_name = "PORT=ADDRESS/LENGTH")]
    addresses: Vec<String>,
    /// A port's Ethernet address: `PORT=02:00:00:00:00:01`. Ports on interfaces know their own.
    #[arg(long = "mac", value_name = "PORT=MAC")]
    macs: Vec<String>,
    /// The largest IP packet that a port's link carries, in bytes: `PORT=1500`.
    #[arg(long = "mtu", value_name = "PORT=BYTES")]
    mtus: Vec<String>,
    /// Merge the TCP segments and UDP datagrams of a flow that a port receives together, for ports that send such packets whole or cut
    /// them themselves (TAP devices, virtual machines).
    #[arg(long = "gro", value_name = "PORT")]
    merging: Vec<String>,
    /// Spread the flows that a port receives over the lanes, in software, by a hash with this key: `PORT=microsoft`, or `PORT=symmetric`, by
    /// which both directions of a flow go to one lane.
    #[arg(long = "rss", value_name = "PORT=KEY")]
    rss: Vec<String>,
    /// A rule for what a port receives: which packets, and `queue=LANE`, `mark=NUMBER` or `drop`. Packets by any of `mac`, `protocol`, `from`,
    /// `from-port`, `to`, `to-port` and `vni`, as in `west,protocol=udp,to-port=53,queue=1`. The first that fits counts.
    #[arg(long = "rule", value_name = "PORT,KEY=VALUE,...")]
    rules: Vec<String>,
    /// A neighbour whose Ethernet address is known: `192.0.2.2=02:00:00:00:00:02@PORT`.
    #[arg(long = "neighbour", visible_alias = "neighbor", value_name = "ADDRESS=MAC@PORT")]
    neighbours: Vec<String>,
    /// A route: `PREFIX via NEIGHBOUR[,NEIGHBOUR...]`, `PREFIX port PORT`, `PREFIX drop` or `PREFIX unreachable`.
    #[arg(long = "route", value_name = "ROUTE")]
    routes: Vec<String>,
    /// A flow that doesn't go by its route: `PROTOCOL from ADDRESS:PORT to ADDRESS:PORT` and where to, as for a route: `via NEIGHBOUR`, `drop`
    /// or `unreachable`. The protocol is tcp, udp or sctp.
    #[arg(long = "flow", value_name = "FLOW")]
    flows: Vec<String>,
    /// Spread the embedded full Internet table (901,899 IPv4 and 160,147 IPv6 prefixes) over these neighbours.
    #[arg(long, value_name = "NEIGHBOUR,...", value_delimiter = ',')]
    full_table: Vec<String>,
    /// How many lanes (pinned threads) share the ports' queues.
    #[arg(long, value_name = "COUNT")]
    lanes: Option<i64>,
    /// How many packets a lane gathers before it works on them.
    #[arg(long, value_name = "PACKETS")]
    burst: Option<i64>,
    /// How many packet buffers there are.
    #[arg(long, value_name = "COUNT")]
    buffers: Option<i64>,
}

fn port_help() -> String {
    format!(
        "A port: `NAME=DRIVER` or `NAME=DRIVER:KEY=VALUE,...`, as in `west=xdp:eth0`.\n\n{}",
        ports::help()
    )
}

/// A forwarder, and its ports' drivers.
pub(crate) type Forwarding = (Config, Vec<DriverSettings>);

type Settings = ForwardSettings<DriverSettings>;

/// What is in a configuration file.
pub(crate) fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))
}

impl ConfigFlags {
    /// Reads and checks the whole configuration.
    pub(crate) fn read(&self) -> anyhow::Result<Forwarding> {
        let file = match &self.config {
            Some(path) => Some((path.as_path(), text_of(path)?)),
            None => None,
        };
        self.with_file(file.as_ref().map(|(path, text)| (*path, text.as_str())))
    }

    /// What a file says by itself, whose text is `text`.
    pub(crate) fn of_file(path: &Path, text: &str) -> anyhow::Result<Forwarding> {
        Self::default().with_file(Some((path, text)))
    }

    /// What the file says, and the flags added to it.
    fn with_file(&self, file: Option<(&Path, &str)>) -> anyhow::Result<Forwarding> {
        let (mut settings, text) = match file {
            Some((path, text)) => {
                let settings = from_toml::<Settings>(text).map_err(SettingsError::cast);
                (settings.map_err(|error| in_file(error, Some(path)))?, text)
            }
            None => (Settings::default(), ""),
        };
        anyhow::ensure!(
            file.is_some() || !self.ports.is_empty(),
            "no ports: name some with --port, or a file that has some with --config (--help has examples)"
        );
        self.add_to(&mut settings)?;
        settings.check().map_err(|fault| in_file(fault.in_text(text), file.map(|(path, _)| path)))
    }

    fn add_to(&self, settings: &mut Settings) -> anyhow::Result<()> {
        for text in &self.ports {
            let PortSettings { name, driver } = text.parse().with_context(|| format!("--port '{text}'"))?;
            let name = Located::flag("--port", text, name);
            let (addresses, mtu, mac, gro, rss) = (Vec::new(), None, None, false, None);
            settings.ports.push(PortEntry { name, driver, addresses, mtu, mac, gro, rss });
        }
        for text in &self.addresses {
            let flag = Flag { name: "--address", text, form: "PORT=ADDRESS/LENGTH" };
            let (port, address) = flag.split(text, '=')?;
            flag.port(settings, port)?.addresses.push(flag.value(address)?);
        }
        for text in &self.macs {
            let flag = Flag { name: "--mac", text, form: "PORT=MAC" };
            let (port, mac) = flag.split(text, '=')?;
            flag.port(settings, port)?.mac = Some(flag.value(mac)?);
        }
        for text in &self.mtus {
            let flag = Flag { name: "--mtu", text, form: "PORT=BYTES" };
            let (port, bytes) = flag.split(text, '=')?;
            let bytes = bytes.parse().map_err(|_| flag.malformed())?;
            flag.port(settings, port)?.mtu = Some(flag.located(bytes));
        }
        for text in &self.merging {
            let flag = Flag { name: "--gro", text, form: "PORT" };
            flag.port(settings, text)?.gro = true;
        }
        for text in &self.rss {
            let flag = Flag { name: "--rss", text, form: "PORT=KEY" };
            let (port, key) = flag.split(text, '=')?;
            flag.port(settings, port)?.rss = Some(*flag.parsed(key)?);
        }
        for text in &self.rules {
            settings.rules.push(rule(text)?);
        }
        for text in &self.neighbours {
            let flag = Flag { name: "--neighbour", text, form: "ADDRESS=MAC@PORT" };
            let (address, behind) = flag.split(text, '=')?;
            let (mac, port) = flag.split(behind, '@')?;
            settings.neighbours.push(NeighbourEntry {
                address: flag.value(address)?,
                mac: flag.value(mac)?,
                port: flag.located(port.to_owned()),
                vlan: None,
            });
        }
        for text in &self.routes {
            settings.routes.push(route(text)?);
        }
        for text in &self.flows {
            settings.flows.push(flow(text)?);
        }
        if !self.full_table.is_empty() {
            let all =
                self.full_table.iter().map(|text| Flag { name: "--full-table", text, form: "" }.value(text));
            let all: Vec<Located<std::net::IpAddr>> = all.collect::<anyhow::Result<_>>()?;
            let (ipv6, ipv4) = all.into_iter().partition(|address| address.is_ipv6());
            settings.full_table = FullTableEntry { ipv4, ipv6 };
        }
        let number = |name, number: i64| Located::flag(name, &number.to_string(), number);
        settings.lanes = self.lanes.map(|lanes| number("--lanes", lanes)).or(settings.lanes.take());
        settings.burst = self.burst.map(|burst| number("--burst", burst)).or(settings.burst.take());
        let buffers = self.buffers.map(|buffers| number("--buffers", buffers));
        settings.pool.buffers = buffers.or(settings.pool.buffers.take());
        Ok(())
    }
}

/// The error, with the file's name if it is about a place there.
fn in_file(error: SettingsError<ConfigProblem>, file: Option<&Path>) -> anyhow::Error {
    let place = error.position().and(file).map(|path| format!("configuration {}", path.display()));
    let error = anyhow::Error::from(error);
    match place {
        Some(place) => error.context(place),
        None => error,
    }
}

/// One use of a flag.
struct Flag<'a> {
    name: &'a str,
    text: &'a str,
    /// What it looks like.
    form: &'a str,
}

impl Flag<'_> {
    fn malformed(&self) -> anyhow::Error {
        anyhow!("{} '{}' is not of the form {}", self.name, self.text, self.form)
    }

    fn split<'t>(&self, text: &'t str, at: char) -> anyhow::Result<(&'t str, &'t str)> {
        text.split_once(at).ok_or_else(|| self.malformed())
    }

    fn located<T>(&self, value: T) -> Located<T> {
        Located::flag(self.name, self.text, value)
    }

    /// An address, a prefix or the like.
    fn value<'t, T>(&self, text: &'t str) -> anyhow::Result<Located<T>>
    where
        &'t str: OrText<T>,
    {
        self.located_or(text.value())
    }

    /// The same of a type that is never given but as a text.
    fn parsed<T: FromStr<Err: Display>>(&self, text: &str) -> anyhow::Result<Located<T>> {
        self.located_or(text.parse())
    }

    fn located_or<T>(&self, value: Result<T, impl Display>) -> anyhow::Result<Located<T>> {
        let wrong = |error: String| self.located(()).fault::<ConfigProblem>(error).in_text("");
        Ok(self.located(value.map_err(|error| wrong(error.to_string()))?))
    }

    /// The neighbours of a list.
    fn via(&self, neighbours: &str) -> anyhow::Result<Located<Via>> {
        let hop = |text| Ok(ViaEntry { via: self.value(text)?, weight: None });
        let hops = neighbours.split(',').map(hop).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(self.located(Via(hops)))
    }

    /// The port of this name.
    fn port<'s>(
        &self,
        settings: &'s mut Settings,
        name: &str,
    ) -> anyhow::Result<&'s mut PortEntry<DriverSettings>> {
        let known = settings.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let problem = ConfigProblem::UnknownPort { name: name.to_owned(), known };
        let found = settings.ports.iter_mut().find(|port| *port.name == name);
        found.ok_or_else(|| self.located(()).fault::<ConfigProblem>(problem).in_text("").into())
    }
}

/// `PREFIX via NEIGHBOUR[,NEIGHBOUR...]`, `PREFIX port PORT`, `PREFIX drop`, `PREFIX unreachable`
fn route(text: &str) -> anyhow::Result<RouteEntry> {
    let form = "'PREFIX via NEIGHBOUR', 'PREFIX port PORT', 'PREFIX drop' or 'PREFIX unreachable'";
    let flag = Flag { name: "--route", text, form };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (&prefix, way) = words.split_first().ok_or_else(|| flag.malformed())?;
    let prefix = flag.value(prefix)?;
    let route = RouteEntry { prefix, via: None, port: None, drop: false, unreachable: false };
    Ok(match way {
        ["via", neighbours] => RouteEntry { via: Some(flag.via(neighbours)?), ..route },
        ["port", port] => RouteEntry { port: Some(flag.located((*port).to_owned())), ..route },
        ["drop"] => RouteEntry { drop: true, ..route },
        ["unreachable"] => RouteEntry { unreachable: true, ..route },
        _ => return Err(flag.malformed()),
    })
}

/// `PORT,KEY=VALUE,...,drop`
fn rule(text: &str) -> anyhow::Result<RuleEntry> {
    let form =
        "PORT,KEY=VALUE,... with mac, protocol, from, from-port, to, to-port or vni, and queue, mark or drop";
    let flag = Flag { name: "--rule", text, form };
    let mut parts = text.split(',');
    let mut rule = RuleEntry::of(flag.located(parts.next().unwrap_or_default().to_owned()));
    let mut seen = Vec::new();
    for part in parts {
        let (key, value) = if part == "drop" { (part, "true") } else { flag.split(part, '=')? };
        if seen.contains(&key) {
            anyhow::bail!("--rule '{text}' says `{key}` twice: give it once");
        }
        seen.push(key);
        let of = |error: anyhow::Error| error.context(format!("`{key}` of --rule '{text}'"));
        let number = || flag.parsed(value).map(Some).map_err(of);
        let prefix = || {
            let network: anyhow::Result<Located<Network>> = flag.parsed(value);
            network.map(|network| Some(network.map(|Network(prefix)| prefix))).map_err(of)
        };
        match key {
            "drop" if part == "drop" => rule.drop = true,
            "mac" => rule.mac = Some(flag.parsed(value).map_err(of)?),
            "protocol" => {
                let named: Located<Protocol> = flag.parsed(value).map_err(of)?;
                rule.protocol = Some(named.map(|Protocol(protocol)| protocol));
            }
            "from" => rule.from = prefix()?,
            "from-port" => rule.from_port = number()?,
            "to" => rule.to = prefix()?,
            "to-port" => rule.to_port = number()?,
            "vni" => rule.vni = number()?,
            "queue" => rule.queue = number()?,
            "mark" => rule.mark = number()?,
            _ => return Err(flag.malformed()),
        }
    }
    Ok(rule)
}

/// `PROTOCOL from ADDRESS:PORT to ADDRESS:PORT via NEIGHBOUR`, `.. drop`, `.. unreachable`
fn flow(text: &str) -> anyhow::Result<FlowEntry> {
    let form = "'PROTOCOL from ADDRESS:PORT to ADDRESS:PORT' and 'via NEIGHBOUR', 'drop' or 'unreachable'";
    let flag = Flag { name: "--flow", text, form };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [protocol, "from", from, "to", to, way @ ..] = &words[..] else { return Err(flag.malformed()) };
    let flow = FlowEntry {
        protocol: flag.value(protocol)?,
        from: flag.value(from)?,
        to: flag.value(to)?,
        via: None,
        port: None,
        drop: false,
        unreachable: false,
    };
    Ok(match way {
        ["via", neighbours] => FlowEntry { via: Some(flag.via(neighbours)?), ..flow },
        ["drop"] => FlowEntry { drop: true, ..flow },
        ["unreachable"] => FlowEntry { unreachable: true, ..flow },
        _ => return Err(flag.malformed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> ConfigFlags {
        ConfigFlags {
            ports: vec!["in=pcap:read=a.pcap".into(), "out=replay:file=b.pcap,rounds=3".into()],
            addresses: vec!["in=192.0.2.1/24".into(), "in=2001:db8::1/64".into()],
            macs: vec!["out=02:00:00:00:00:01".into()],
            mtus: vec!["out=1400".into()],
            merging: vec!["in".into()],
            rss: vec!["in=symmetric".into()],
            rules: vec![
                "in,protocol=udp,from=192.0.2.0/24,from-port=9,to=192.0.2.9,to-port=53,queue=1,mark=7".into(),
                "in,mac=01:00:5e:00:00:05,vni=100,drop".into(),
            ],
            neighbours: vec![
                "192.0.2.2=02:00:00:00:00:02@in".into(),
                "192.0.2.3=02:00:00:00:00:03@out".into(),
                "2001:db8::2=02:00:00:00:00:02@in".into(),
            ],
            routes: vec!["10.0.0.0/8 via 192.0.2.2,192.0.2.3".into(), "::/0 drop".into()],
            flows: vec![
                "udp from 192.0.2.9:1 to 203.0.113.5:53 via 192.0.2.3".into(),
                "tcp from [2001:db8:9::1]:2 to [2001:db8:7::1]:443 drop".into(),
            ],
            full_table: vec!["192.0.2.2".into(), "2001:db8::2".into()],
            lanes: Some(2),
            ..ConfigFlags::default()
        }
    }

    const FILE: &str = r#"
        lanes = 2
        [full-table]
        ipv4 = ["192.0.2.2"]
        ipv6 = ["2001:db8::2"]
        [[port]]
        name = "in"
        driver = { pcap = { read = "a.pcap" } }
        gro = true
        rss = "symmetric"
        addresses = ["192.0.2.1/24", "2001:db8::1/64"]
        [[port]]
        name = "out"
        driver = { replay = { file = "b.pcap", rounds = 3 } }
        mac = "02:00:00:00:00:01"
        mtu = 1400
        [[neighbour]]
        address = "192.0.2.2"
        mac = "02:00:00:00:00:02"
        port = "in"
        [[neighbour]]
        address = "192.0.2.3"
        mac = "02:00:00:00:00:03"
        port = "out"
        [[neighbour]]
        address = "2001:db8::2"
        mac = "02:00:00:00:00:02"
        port = "in"
        [[route]]
        prefix = "10.0.0.0/8"
        via = [{ via = "192.0.2.2" }, { via = "192.0.2.3" }]
        [[route]]
        prefix = "::/0"
        drop = true
        [[rule]]
        port = "in"
        protocol = "udp"
        from = "192.0.2.0/24"
        from-port = 9
        to = "192.0.2.9"
        to-port = 53
        queue = 1
        mark = 7
        [[rule]]
        port = "in"
        mac = "01:00:5e:00:00:05"
        vni = 100
        drop = true
        [[flow]]
        protocol = "udp"
        from = "192.0.2.9:1"
        to = "203.0.113.5:53"
        via = "192.0.2.3"
        [[flow]]
        protocol = "tcp"
        from = "[2001:db8:9::1]:2"
        to = "[2001:db8:7::1]:443"
        drop = true
        "#;

    #[test]
    fn flags_say_what_the_file_says() {
        let from_file = ConfigFlags::default().with_file(Some((Path::new("f.toml"), FILE))).unwrap();
        assert_eq!(flags().with_file(None).unwrap(), from_file);
    }

    #[test]
    fn flags_are_added_to_the_file_and_go_before_it() {
        let more = ConfigFlags {
            ports: vec!["third=null".into()],
            addresses: vec!["in=203.0.113.1/24".into()],
            mtus: vec!["out=1300".into()],
            lanes: Some(3),
            ..ConfigFlags::default()
        };
        let (config, drivers) = more.with_file(Some((Path::new("f.toml"), FILE))).unwrap();
        assert_eq!((config.lanes, drivers.len(), config.ports[1].mtu), (3, 3, 1300));
        assert_eq!((config.ports[0].addresses.len(), config.routes.len()), (3, 2));
    }

    #[test]
    fn what_is_wrong_is_named_where_it_was_written() {
        let error = |change: fn(&mut ConfigFlags)| {
            let mut flags = flags();
            change(&mut flags);
            format!("{:#}", flags.with_file(None).unwrap_err())
        };
        assert!(error(|flags| flags.ports.push("b".into())).contains("'b'"));
        let unknown = error(|flags| flags.mtus.push("c=1500".into()));
        assert_eq!(unknown, "--mtu c=1500: there is no port \"c\": ports are in, out");
        assert_eq!(
            error(|flags| flags.mtus.push("in=67".into())),
            "--mtu in=67: `mtu` is 67: use 68 to 65535"
        );
        assert!(error(|flags| flags.lanes = Some(0)).starts_with("--lanes 0: `lanes` is 0"));
        assert!(error(|flags| flags.routes.push("10.0.0.0/8 by x".into())).contains("by x"));
        assert!(
            error(|flags| flags.routes.push("11.0.0.0/8 via 9.9.9.9".into()))
                .starts_with("--route 11.0.0.0/8")
        );
        let flow = "udp from 192.0.2.9:1 to 203.0.113.5:53 drop";
        assert_eq!(
            error(|flags| flags.flows.push("udp from 192.0.2.9:1 to 203.0.113.5:53 drop".into())),
            format!(
                "--flow {flow}: the flow UDP 192.0.2.9:1 to 203.0.113.5:53 is given twice: leave one of them out"
            )
        );
        assert!(
            error(|flags| flags.flows.push("192.0.2.9:1 203.0.113.5:53 drop".into()))
                .contains("not of the form")
        );
        let rule = |text: &'static str| {
            let flags = ConfigFlags { rules: vec![text.into()], ..flags() };
            format!("{:#}", flags.with_file(None).unwrap_err())
        };
        assert_eq!(rule("c,drop"), "--rule c,drop: there is no port \"c\": ports are in, out");
        assert!(rule("in,drop").contains("says nothing of which packets"));
        assert!(rule("in,protocol=udp").contains("does nothing"));
        assert!(rule("in,protocol=udp,queue=2").contains("there is no queue 2"));
        assert!(rule("in,protocol=udp,mark=1,drop").contains("leave them out"));
        assert!(rule("in,vni=16777216,drop").contains("use 0 to 16777215"));
        assert!(rule("in,protocol=quic,drop").contains("is no protocol"));
        assert!(rule("in,to-port=abc,drop").starts_with("`to-port` of --rule 'in,to-port=abc,drop'"));
        assert!(rule("in,to-port=1,to-port=2,drop").contains("`to-port` twice"));
        assert!(rule("in,by=x,drop").contains("not of the form"));
        assert!(rule("in,from=192.0.2.1/24,drop").contains("192.0.2.0/24"));
        assert!(error(|flags| flags.rss.push("in=toeplitz".into())).contains("use microsoft or symmetric"));
        assert!(error(|flags| flags.neighbours.push("1.2.3.4=02:00:00:00:00:02".into())).contains("@PORT"));
        let group = error(|flags| flags.neighbours.push("1.2.3.4=ff:ff:ff:ff:ff:ff@in".into()));
        assert!(group.starts_with("--neighbour 1.2.3.4=") && group.contains("group address"), "{group}");
        // Of the file's, the place in it.
        let more = ConfigFlags { ports: vec!["in=null".into()], ..ConfigFlags::default() };
        let twice = format!("{:#}", more.with_file(Some((Path::new("f.toml"), FILE))).unwrap_err());
        assert!(twice.starts_with("--port in=null: port name \"in\" is used twice"), "{twice}");
        let file = FILE.replace("mtu = 1400", "mtu = 67");
        let wrong = ConfigFlags::default().with_file(Some((Path::new("f.toml"), &file))).unwrap_err();
        assert!(
            format!("{wrong:#}").starts_with("configuration f.toml: line 16, column 15: `mtu`"),
            "{wrong:#}"
        );
    }
}
