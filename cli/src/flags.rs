//! The forwarder's configuration from the command line: the same keys as in the file, as flags.

use anyhow::{Context as _, bail};
use clap::Args;
use std::path::PathBuf;
use toml::{Table, Value};
use warmlane::functions::forward::control::Config;

/// What to forward, by file, by flags, or by both: flags are added to what the file says.
#[derive(Args, Debug, Default)]
pub(crate) struct ConfigFlags {
    /// A TOML file with ports, neighbours and routes (see docs/forward.md).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A port: `NAME=DRIVER` or `NAME=DRIVER:KEY=VALUE,...`.
    ///
    /// Drivers: `pcap:read=FILE,write=FILE,format=pcap|pcapng`, `replay:file=FILE,rounds=N`, `null`,
    /// `tap:interface=NAME`, `packet:interface=NAME`, `xdp:interface=NAME,mode=best|zero-copy|copy|generic,
    /// steering=all|router,take_all=true,busy_poll=true,ring=N`. A word without `=` is the interface's name, as in
    /// `west=xdp:eth0`.
    #[arg(long = "port", value_name = "PORT")]
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
    /// A station whose Ethernet address is known: `192.0.2.2=02:00:00:00:00:02@PORT`.
    #[arg(long = "neighbour", value_name = "ADDRESS=MAC@PORT")]
    neighbours: Vec<String>,
    /// A route: `PREFIX via NEIGHBOUR[,NEIGHBOUR...]`, `PREFIX port PORT`, `PREFIX drop` or `PREFIX unreachable`.
    #[arg(long = "route", value_name = "ROUTE")]
    routes: Vec<String>,
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

impl ConfigFlags {
    /// Reads and checks the whole configuration.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        let file = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                Some((text, path.display().to_string()))
            }
            None => None,
        };
        if let Some((text, name)) = &file
            && self.adds_nothing()
        {
            return Config::from_toml(text).with_context(|| format!("configuration {name}"));
        }
        anyhow::ensure!(
            file.is_some() || !self.ports.is_empty(),
            "no ports: name some with --port, or a file that has some with --config (--help has examples)"
        );
        let table = self.table(file.as_ref().map(|(text, name)| (text.as_str(), name.as_str())))?;
        // Places in a text that nobody has written help nobody.
        Config::from_toml(&toml::to_string(&table)?).map_err(|error| error.problem.into())
    }

    /// What the file says, and the flags added to it.
    fn table(&self, file: Option<(&str, &str)>) -> anyhow::Result<Table> {
        let mut table = match file {
            Some((text, name)) => text.parse::<Table>().with_context(|| format!("configuration {name}"))?,
            None => Table::new(),
        };
        self.add_to(&mut table)?;
        Ok(table)
    }

    fn adds_nothing(&self) -> bool {
        let lists = [
            &self.ports,
            &self.addresses,
            &self.macs,
            &self.mtus,
            &self.neighbours,
            &self.routes,
            &self.full_table,
        ];
        let numbers = [self.lanes, self.burst, self.buffers];
        lists.iter().all(|list| list.is_empty()) && numbers.iter().all(Option::is_none)
    }

    fn add_to(&self, table: &mut Table) -> anyhow::Result<()> {
        for text in &self.ports {
            list(table, "port")?.push(Value::Table(port(text)?));
        }
        for text in &self.addresses {
            let (name, address) = split(text, '=', "--address", "PORT=ADDRESS/LENGTH")?;
            let addresses =
                port_of(table, name)?.entry("addresses").or_insert_with(|| Value::Array(Vec::new()));
            addresses.as_array_mut().context("'addresses' in the file is no list")?.push(address.into());
        }
        for text in &self.macs {
            let (name, mac) = split(text, '=', "--mac", "PORT=MAC")?;
            port_of(table, name)?.insert("mac".to_owned(), mac.into());
        }
        for text in &self.mtus {
            let (name, mtu) = split(text, '=', "--mtu", "PORT=BYTES")?;
            port_of(table, name)?.insert("mtu".to_owned(), scalar(mtu));
        }
        for text in &self.neighbours {
            let expected = "ADDRESS=MAC@PORT";
            let (address, rest) = split(text, '=', "--neighbour", expected)?;
            let (mac, port) = split(rest, '@', "--neighbour", expected)?;
            let entries = [("address", address), ("mac", mac), ("port", port)];
            let neighbour = entries.map(|(key, value)| (key.to_owned(), Value::from(value)));
            list(table, "neighbour")?.push(Value::Table(neighbour.into_iter().collect()));
        }
        for text in &self.routes {
            list(table, "route")?.push(Value::Table(route(text)?));
        }
        if !self.full_table.is_empty() {
            let family = |ipv6: bool| -> Value {
                self.full_table
                    .iter()
                    .filter(|text| text.contains(':') == ipv6)
                    .cloned()
                    .collect::<Vec<_>>()
                    .into()
            };
            let spread = [("ipv4".to_owned(), family(false)), ("ipv6".to_owned(), family(true))];
            table.insert("full_table".to_owned(), Value::Table(spread.into_iter().collect()));
        }
        for (key, value) in [("lanes", self.lanes), ("burst", self.burst)] {
            if let Some(value) = value {
                table.insert(key.to_owned(), value.into());
            }
        }
        if let Some(buffers) = self.buffers {
            let pool = table.entry("pool").or_insert_with(|| Value::Table(Table::new()));
            pool.as_table_mut()
                .context("'pool' in the file is no table")?
                .insert("buffers".to_owned(), buffers.into());
        }
        Ok(())
    }
}

fn split<'a>(text: &'a str, at: char, flag: &str, expected: &str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once(at).with_context(|| format!("{flag} '{text}' is not of the form {expected}"))
}

fn list<'a>(table: &'a mut Table, key: &str) -> anyhow::Result<&'a mut Vec<Value>> {
    let value = table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    value.as_array_mut().with_context(|| format!("'{key}' in the file is no list: write [[{key}]]"))
}

fn port_of<'a>(table: &'a mut Table, name: &str) -> anyhow::Result<&'a mut Table> {
    let ports = list(table, "port")?;
    let known = ports.iter().filter_map(|port| port.get("name")?.as_str()).collect::<Vec<_>>().join(", ");
    ports
        .iter_mut()
        .filter_map(Value::as_table_mut)
        .find(|port| port.get("name").and_then(Value::as_str) == Some(name))
        .with_context(|| format!("there is no port '{name}': known are {known}"))
}

/// A number or a truth value if it reads as one, else text.
fn scalar(text: &str) -> Value {
    text.parse::<i64>()
        .map(Value::from)
        .or_else(|_| text.parse::<bool>().map(Value::from))
        .unwrap_or_else(|_| Value::from(text))
}

/// `NAME=DRIVER` or `NAME=DRIVER:KEY=VALUE,...`; a word that is no pair is an interface's name
pub(crate) fn port(text: &str) -> anyhow::Result<Table> {
    let (name, rest) = split(text, '=', "--port", "NAME=DRIVER[:KEY=VALUE,...]")?;
    let (driver, keys) = rest.split_once(':').unwrap_or((rest, ""));
    let mut options = Table::new();
    for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or(("interface", pair));
        options.insert(key.to_owned(), scalar(value));
    }
    let mut port = Table::new();
    port.insert("name".to_owned(), name.into());
    port.insert("driver".to_owned(), driver.into());
    port.insert("options".to_owned(), options.into());
    Ok(port)
}

/// `PREFIX via NEIGHBOUR[,NEIGHBOUR...]`, `PREFIX port PORT`, `PREFIX drop`, `PREFIX unreachable`
fn route(text: &str) -> anyhow::Result<Table> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut route = Table::new();
    match *words.as_slice() {
        [prefix, "via", neighbours] => {
            let hops: Vec<&str> = neighbours.split(',').collect();
            let via = match *hops.as_slice() {
                [one] => Value::from(one),
                _ => hops
                    .iter()
                    .map(|hop| Value::Table([("via".to_owned(), Value::from(*hop))].into_iter().collect()))
                    .collect::<Vec<_>>()
                    .into(),
            };
            route.insert("prefix".to_owned(), prefix.into());
            route.insert("via".to_owned(), via);
        }
        [prefix, "port", port] => {
            route.insert("prefix".to_owned(), prefix.into());
            route.insert("port".to_owned(), port.into());
        }
        [prefix, key @ ("drop" | "unreachable")] => {
            route.insert("prefix".to_owned(), prefix.into());
            route.insert(key.to_owned(), true.into());
        }
        _ => bail!(
            "--route '{text}' is not of the form 'PREFIX via NEIGHBOUR', 'PREFIX port PORT', 'PREFIX drop' or 'PREFIX unreachable'"
        ),
    }
    Ok(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_the_file_says() {
        let flags = ConfigFlags {
            ports: vec![
                "in=pcap:read=a.pcap".into(),
                "out=replay:file=b.pcap,rounds=3".into(),
                "link=xdp:eth0,busy_poll=true".into(),
            ],
            addresses: vec!["in=192.0.2.1/24".into(), "in=2001:db8::1/64".into()],
            macs: vec!["out=02:00:00:00:00:01".into()],
            mtus: vec!["out=1400".into()],
            neighbours: vec!["2001:db8::2=02:00:00:00:00:02@in".into()],
            routes: vec!["10.0.0.0/8 via 192.0.2.2,192.0.2.3".into(), "::/0 drop".into()],
            full_table: vec!["192.0.2.2".into(), "2001:db8::2".into()],
            lanes: Some(2),
            ..ConfigFlags::default()
        };
        let table = flags.table(None).expect("well formed");
        let expected: Table = r#"
            lanes = 2
            [full_table]
            ipv4 = ["192.0.2.2"]
            ipv6 = ["2001:db8::2"]
            [[port]]
            name = "in"
            driver = "pcap"
            options = { read = "a.pcap" }
            addresses = ["192.0.2.1/24", "2001:db8::1/64"]
            [[port]]
            name = "out"
            driver = "replay"
            options = { file = "b.pcap", rounds = 3 }
            mac = "02:00:00:00:00:01"
            mtu = 1400
            [[port]]
            name = "link"
            driver = "xdp"
            options = { interface = "eth0", busy_poll = true }
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
        "#
        .parse()
        .expect("well formed");
        assert_eq!(table, expected);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let error = |change: fn(&mut ConfigFlags)| {
            let mut flags = ConfigFlags { ports: vec!["a=null".into()], ..ConfigFlags::default() };
            change(&mut flags);
            flags.table(None).expect_err("malformed").to_string()
        };
        assert!(error(|flags| flags.ports.push("b".into())).contains("'b'"));
        assert!(error(|flags| flags.mtus.push("c=1500".into())).contains("no port 'c': known are a"));
        assert!(error(|flags| flags.routes.push("10.0.0.0/8 by x".into())).contains("by x"));
        assert!(error(|flags| flags.neighbours.push("1.2.3.4=02:00:00:00:00:02".into())).contains("@PORT"));
    }
}
