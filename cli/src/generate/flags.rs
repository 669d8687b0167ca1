//! Traffic from the command line: a file, or one stream from flags.

use anyhow::{Context as _, bail};
use std::path::PathBuf;
use toml::{Table, Value};
use warmlane::functions::generator::control::Config;

/// What to send.
#[derive(clap::Args, Debug, Default, PartialEq)]
pub(super) struct TrafficFlags {
    /// A TOML file with streams (see docs/gen.md); without one, these flags describe one stream.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "from", "to", "from_mac", "to_mac", "protocol", "ports", "vlan", "payload", "unsigned", "vary", "cable"])]
    config: Option<PathBuf>,
    /// The profile of a cable operator's downstream: this many modems, each with its own addresses.
    #[arg(long, value_name = "MODEMS", num_args = 0..=1, default_missing_value = "300",
        conflicts_with_all = ["from", "to", "from_mac", "to_mac", "protocol", "ports", "vlan", "payload", "unsigned", "vary"])]
    cable: Option<i64>,
    /// Frame size in bytes with frame check sequence, or a mix: `imix`, `imix-v4`, `cable`, `genome:aaafg`, `64:7,594:4`.
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Source address, IPv4 or IPv6.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Destination address.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Source Ethernet address.
    #[arg(long, value_name = "MAC")]
    pub(super) from_mac: Option<String>,
    /// Destination Ethernet address: the device under test's.
    #[arg(long, value_name = "MAC")]
    pub(super) to_mac: Option<String>,
    /// `udp`, `tcp` or `icmp`.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Source and destination port: `1024,9`.
    #[arg(long, value_name = "SOURCE,DESTINATION")]
    ports: Option<String>,
    /// VLAN tags, the outer one first: `100` or `7,100`.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    vlan: Vec<i64>,
    /// `zeros`, `ones`, `counting`, `random`, `text:...` or `hex:...`.
    #[arg(long, value_name = "PAYLOAD")]
    payload: Option<String>,
    /// Send without a signature: nothing but the number of packets is measured then.
    #[arg(long)]
    unsigned: bool,
    /// A field that differs from packet to packet: `FIELD=count:N`, `FIELD=random:N` or `FIELD=zipf:N`.
    #[arg(long, value_name = "FIELD=ORDER:COUNT")]
    vary: Vec<String>,
}

impl TrafficFlags {
    /// Whether no flag was given.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the flags say how long frames are.
    pub(super) const fn says_size(&self) -> bool {
        self.size.is_some() || self.cable.is_some()
    }

    /// What a test of lookups sends: smallest packets from everywhere.
    pub(super) fn random_source() -> Self {
        let vary = vec!["ipv4.source=random:65536".to_owned()];
        Self { size: Some("64".to_owned()), from: Some("198.18.0.0".to_owned()), vary, ..Self::default() }
    }

    pub(super) fn read(&self) -> anyhow::Result<Config> {
        let Some(path) = &self.config else {
            let text = toml::to_string(&self.table()?)?;
            // Places in a text that nobody has written help nobody.
            return Config::from_toml(&text).map_err(|error| anyhow::Error::msg(error.problem));
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the streams {}", path.display()))?;
        Config::from_toml(&text).with_context(|| format!("streams {}", path.display()))
    }

    fn table(&self) -> anyhow::Result<Table> {
        let mut table = Table::new();
        let size = self.size.as_deref().map(scalar);
        if let Some(modems) = self.cable {
            let mut cable = Table::new();
            cable.insert("modems".to_owned(), modems.into());
            if let Some(size) = size {
                cable.insert("size".to_owned(), size);
            }
            table.insert("cable".to_owned(), cable.into());
            return Ok(table);
        }
        let mut stream = Table::new();
        stream.insert("packet".to_owned(), self.packet()?.into());
        let texts = [("size", size), ("payload", self.payload.as_deref().map(Value::from))];
        for (key, value) in texts {
            if let Some(value) = value {
                stream.insert(key.to_owned(), value);
            }
        }
        if self.unsigned {
            stream.insert("signature".to_owned(), false.into());
        }
        let vary = self.vary.iter().map(|text| vary(text)).collect::<anyhow::Result<Vec<Value>>>()?;
        stream.insert("vary".to_owned(), vary.into());
        table.insert("stream".to_owned(), vec![Value::Table(stream)].into());
        Ok(table)
    }

    fn packet(&self) -> anyhow::Result<Table> {
        let mut packet = Table::new();
        let mut ethernet = Table::new();
        for (key, mac) in [("source", &self.from_mac), ("destination", &self.to_mac)] {
            if let Some(mac) = mac {
                ethernet.insert(key.to_owned(), mac.as_str().into());
            }
        }
        packet.insert("ethernet".to_owned(), ethernet.into());
        let tags = self.vlan.iter().map(|&id| [("id".to_owned(), Value::from(id))].into_iter().collect());
        packet.insert("vlan".to_owned(), tags.map(Value::Table).collect::<Vec<_>>().into());

        let is_ipv6 =
            [&self.from, &self.to].iter().any(|text| text.as_ref().is_some_and(|a| a.contains(':')));
        // RFC 2544 appendix C.2.2 and RFC 5180 section 8: addresses for benchmarks.
        let (family, from, to) = if is_ipv6 {
            ("ipv6", "2001:2::1", "2001:2:0:8000::1")
        } else {
            ("ipv4", "198.18.0.1", "198.19.0.1")
        };
        let mut network = Table::new();
        network.insert("source".to_owned(), self.from.as_deref().unwrap_or(from).into());
        network.insert("destination".to_owned(), self.to.as_deref().unwrap_or(to).into());
        packet.insert(family.to_owned(), network.into());

        let protocol = self.protocol.as_deref().unwrap_or("udp");
        if !["udp", "tcp", "icmp"].contains(&protocol) {
            bail!("--protocol '{protocol}' is unknown: expected udp, tcp or icmp");
        }
        let mut transport = Table::new();
        if let Some(ports) = &self.ports {
            if protocol == "icmp" {
                bail!("--ports does not go with --protocol icmp, which has none");
            }
            let (source, destination) = ports
                .split_once(',')
                .and_then(|(source, destination)| {
                    Some((source.trim().parse::<i64>().ok()?, destination.trim().parse::<i64>().ok()?))
                })
                .with_context(|| format!("--ports '{ports}' is not of the form SOURCE,DESTINATION"))?;
            transport.insert("source".to_owned(), source.into());
            transport.insert("destination".to_owned(), destination.into());
        }
        packet.insert(protocol.to_owned(), transport.into());
        Ok(packet)
    }
}

/// A number if it reads as one, else text.
fn scalar(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)
}

/// `FIELD=ORDER:COUNT`
fn vary(text: &str) -> anyhow::Result<Value> {
    let parts = text.split_once('=').and_then(|(field, rest)| Some((field, rest.split_once(':')?)));
    let (field, (order, count)) =
        parts.with_context(|| format!("--vary '{text}' is not of the form FIELD=ORDER:COUNT"))?;
    let count: i64 =
        count.parse().with_context(|| format!("--vary '{text}': the count '{count}' is no number"))?;
    let entries = [("field", field.into()), ("order", order.into()), ("count", Value::from(count))];
    Ok(Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()))
}
