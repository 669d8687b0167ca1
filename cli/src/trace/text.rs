//! A traced packet for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use warmlane::assembly::trace::{Counted, TracedPacket, TracedStep};

pub(super) fn of(number: u64, packet: &TracedPacket) -> String {
    // Writing to a string cannot fail.
    let mut text = String::new();
    let _ = writeln!(text, "{number}. {}", summary(&packet.fields, packet.length));
    let _ = writeln!(text, "   in by {} to {}", packet.input, packet.lane);
    for step in &packet.steps {
        write_step(&mut text, step);
    }
    let last = packet.steps.last().map_or("", |step| step.stage.as_str());
    let output = packet.output.as_deref().unwrap_or_default();
    let _ = match packet.end.as_str() {
        "sent" => writeln!(text, "   => out by {output}\n"),
        "lane" => writeln!(text, "   => to another lane by {output}\n"),
        "dropped" => {
            let (reason, help) = (packet.reason.as_deref(), packet.help.as_deref());
            writeln!(text, "   => dropped: {}: {}\n", reason.unwrap_or_default(), help.unwrap_or_default())
        }
        "kept" => writeln!(text, "   => {last} has it\n"),
        "replaced" => writeln!(text, "   => {last} sent others in its place\n"),
        "unknown" => writeln!(text, "   => {last} would get it, and can't say without it what it would do\n"),
        _ => writeln!(text, "   => out of sight\n"),
    };
    text
}

/// The most important fields in a line.
fn summary(fields: &BTreeMap<String, String>, length: usize) -> String {
    let get = |name: &str| fields.get(name).map(String::as_str);
    let with_port = |address: &str, port: &str| match (get(address), get(port)) {
        (Some(address), Some(port)) if address.contains(':') => format!("[{address}]:{port}"),
        (Some(address), Some(port)) => format!("{address}:{port}"),
        (Some(address), None) => address.to_owned(),
        (None, _) => get(&format!("{address}-mac")).unwrap_or("?").to_owned(),
    };
    let mut text =
        format!("{} > {}", with_port("source", "source-port"), with_port("destination", "destination-port"));
    for (name, label) in [
        ("protocol", ""),
        ("arp", ""),
        ("icmp-type", "type "),
        ("ttl", "TTL "),
        ("hop-limit", "hop limit "),
        ("vlan", "VLAN "),
        ("ethertype", "EtherType "),
        ("header-checksum", "header checksum "),
    ] {
        if let Some(value) = get(name) {
            let _ = write!(text, ", {label}{value}");
        }
    }
    let _ = write!(text, ", {length} bytes");
    text
}

fn write_step(text: &mut String, step: &TracedStep) {
    let _ = writeln!(text, "   {}", step.stage);
    for (name, value) in &step.found {
        line(text, &name.replace('-', " "), value);
    }
    let counted: Vec<String> =
        step.counted.iter().filter(|counted| is_telling(counted)).map(in_words).collect();
    if !counted.is_empty() {
        line(text, "counted", &counted.join(", "));
    }
    for (name, [before, after]) in &step.changed {
        let value = match (before.as_str(), after.as_str()) {
            ("", after) => format!("{after}, new"),
            (before, "") => format!("{before} taken off"),
            (before, after) => format!("{before} -> {after}"),
        };
        line(text, &name.replace('-', " "), &value);
    }
    for others in &step.others {
        line(text, "sends besides", &format!("{} to {}", others.packets, others.to));
    }
    if let Some(to) = &step.to {
        let by = step.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        line(text, "goes on", &format!("to {to}{by}"));
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "     {name:<16} {value}");
}

/// That a packet came is known already.
fn is_telling(counted: &Counted) -> bool {
    counted.name != "received"
}

fn in_words(counted: &Counted) -> String {
    let name = counted.reason.as_ref().unwrap_or(&counted.name);
    let times = if counted.by == 1 { String::new() } else { format!(" {} times", counted.by) };
    format!("{} {name}{times}", counted.set)
}
