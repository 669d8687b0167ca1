//! What a running router answers, for people.

use super::ask::Request;
use serde_json::Value;

/// The answer in words and tables.
pub(super) fn text(request: &Request, value: &Value) -> String {
    let mut lines = match request {
        Request::Routes { address, .. } => routes(value, address.is_some()),
        Request::Neighbours { .. } => {
            table(&["interface", "address", "mac", "state"], &list(value, "neighbours"))
        }
        Request::Verify if value["equal"] == true => {
            // Paths inside the kernel decide, and lanes have routes.
            let counts = [("decisions", "decisions of late"), ("routes", "routes")];
            let counts = counts.map(|(field, name)| (value[field].as_u64().unwrap_or(0), name));
            let said: Vec<String> = match counts.iter().filter(|(count, _)| *count > 0).collect::<Vec<_>>() {
                some if some.is_empty() => vec!["no decisions of late, all else".to_owned()],
                some => some.into_iter().map(|(count, name)| format!("{count} {name}")).collect(),
            };
            vec![format!("equal: {} are as the kernel's", said.join(" and "))]
        }
        Request::Verify => list(value, "first").iter().map(word).collect(),
        Request::Reload => match &list(value, "changed")[..] {
            [] => vec!["nothing is different".to_owned()],
            changed => changed.iter().map(word).collect(),
        },
        Request::Status => status(value),
        Request::Counters => counters(value),
    };
    lines.push(String::new());
    lines.join("\n")
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value[name].as_array().cloned().unwrap_or_default()
}

/// A value as a table has it.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(all) if all.is_empty() => "-".to_owned(),
        Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The named fields of each value, below their names, as wide as they have to be.
fn table(fields: &[&str], rows: &[Value]) -> Vec<String> {
    let heading = fields.iter().map(|field| field.replace('_', " ")).collect();
    let cells: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.iter().map(|row| fields.iter().map(|field| word(&row[*field])).collect()))
        .collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..fields.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

fn routes(value: &Value, is_of_one_address: bool) -> Vec<String> {
    let routes = list(value, "routes");
    if routes.is_empty() && is_of_one_address {
        return vec!["no route: packets to it are dropped, and their sender is told".to_owned()];
    }
    let mut lines = table(&["prefix", "leads_to", "gateways", "protocol"], &routes);
    if !is_of_one_address {
        lines.push(format!("{} of {} routes", routes.len(), value["total"]));
    }
    lines
}

fn status(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let paths = list(value, "paths");
    if !paths.is_empty() {
        lines.extend(table(&["interface", "path"], &paths));
        lines.push(String::new());
    }
    let ports = list(value, "ports");
    if !ports.is_empty() {
        lines.extend(table(&["interface", "up", "mtu", "mac", "table", "urpf", "addresses"], &ports));
        lines.push(String::new());
    }
    let tunnels: Vec<Value> = list(value, "tunnels").into_iter().map(with_packets).collect();
    if !tunnels.is_empty() {
        let fields =
            ["device", "vni", "local", "network", "remotes", "by_lanes", "packets_sent", "packets_received"];
        lines.extend(table(&fields, &tunnels));
        lines.push(String::new());
    }
    // Of lanes.
    if let Some(routes) = value.get("routes") {
        lines.push(format!(
            "{} IPv4 and {} IPv6 routes, {} next hops; {} routes in the kernel",
            routes["ipv4"], routes["ipv6"], value["next_hops"], value["kernel_routes"]
        ));
    }
    lines.extend(list(value, "warnings").iter().map(|warning| format!("warning: {}", word(warning))));
    lines
}

/// A tunnel with its counts of packets beside its other fields.
fn with_packets(mut tunnel: Value) -> Value {
    for (to, from) in [("packets_sent", "encapsulated"), ("packets_received", "decapsulated")] {
        tunnel[to] = tunnel[from]["packets"].clone();
    }
    tunnel
}

/// Paths as a table, and each other counter that is not zero with its name, below the name of what it belongs to.
fn counters(value: &Value) -> Vec<String> {
    let paths = list(value, "paths");
    let mut lines = if paths.is_empty() {
        Vec::new()
    } else {
        table(&["interface", "path", "received", "forwarded", "passed", "dropped"], &paths)
    };
    for path in &paths {
        for (reasons, action) in [("passes", "passed"), ("drops", "dropped")] {
            let interface = word(&path["interface"]);
            let reasons = path[reasons].as_object().into_iter().flatten();
            lines.extend(reasons.map(|(reason, count)| format!("  {interface} {action} {reason}: {count}")));
        }
    }
    // Without lanes there is a pool all the same, of which nothing is ever taken.
    let has_lanes = !list(value, "lanes").is_empty();
    let others = value.as_object().into_iter().flatten().filter(|(section, _)| match section.as_str() {
        "paths" | "seconds" => false,
        "pools" => has_lanes || paths.is_empty(),
        _ => true,
    });
    for (section, value) in others {
        let mut found = Vec::new();
        collect(String::new(), value, &mut found);
        if found.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(section.replace('_', " "));
        let width = found.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        lines.extend(found.into_iter().map(|(name, count)| format!("  {name:<width$}  {count:>14}")));
    }
    lines
}

/// What names an element of a list, the best first.
const NAMES: [&str; 5] = ["name", "interface", "lane", "stage", "port"];

fn collect(name: String, value: &Value, found: &mut Vec<(String, String)>) {
    let join = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name} {inner}") };
    match value {
        Value::Object(fields) => {
            for (inner, value) in fields.iter().filter(|(inner, _)| !NAMES.contains(&inner.as_str())) {
                collect(join(&inner.replace('_', " ")), value, found);
            }
        }
        Value::Array(all) => {
            for (index, value) in all.iter().enumerate() {
                let own = NAMES.iter().find_map(|field| value[*field].as_str());
                collect(join(&own.map_or_else(|| index.to_string(), str::to_owned)), value, found);
            }
        }
        Value::Number(number) if number.as_f64() != Some(0.0) => found.push((name, number.to_string())),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_as_wide_as_what_is_in_them() {
        let value = json!({ "total": 2, "routes": [
            { "prefix": "192.0.2.0/24", "leads_to": "eth0", "gateways": [], "protocol": "kernel" },
            { "prefix": "0.0.0.0/0", "leads_to": "eth1 to 02:00:00:00:00:01", "gateways": ["198.51.100.2"], "protocol": "bgp" },
        ] });
        let all = Request::Routes { address: None, limit: None, table: 0 };
        let expected = "prefix        leads to                   gateways      protocol\n\
                        192.0.2.0/24  eth0                       -             kernel\n\
                        0.0.0.0/0     eth1 to 02:00:00:00:00:01  198.51.100.2  bgp\n\
                        2 of 2 routes\n";
        assert_eq!(text(&all, &value), expected);
        let one = Request::Routes { address: Some([192, 0, 2, 1].into()), limit: None, table: 0 };
        assert!(text(&one, &json!({ "total": 2, "routes": [] })).starts_with("no route"));
    }

    #[test]
    fn counters_that_count_nothing_are_left_out() {
        let value = json!({
            "ports": [{ "name": "eth0", "receive": { "packets": 7, "drops": { "too-long": 0 } } }],
            "kernel": { "events": 0 },
        });
        assert_eq!(text(&Request::Counters, &value), "ports\n  eth0 receive packets               7\n");
    }

    #[test]
    fn paths_are_a_table_with_the_reasons_below() {
        let value = json!({
            "paths": [{
                "interface": "eth0", "path": "tc", "received": 7, "forwarded": 4, "passed": 2, "dropped": 1,
                "passes": { "not-ip": 2 }, "drops": { "blackhole": 1 },
            }],
            "ports": [], "lanes": [], "pools": [{ "name": "packets", "buffers": 64 }], "seconds": 1.5,
        });
        let expected = "interface  path  received  forwarded  passed  dropped\n\
                        eth0       tc    7         4          2       1\n  \
                        eth0 passed not-ip: 2\n  \
                        eth0 dropped blackhole: 1\n";
        assert_eq!(text(&Request::Counters, &value), expected);
    }

    #[test]
    fn tunnels_are_listed_with_what_lanes_did_for_them() {
        let text = status(&json!({ "tunnels": [{
            "device": "vx10", "vni": 10, "local": "192.0.2.1", "network": "br10", "remotes": ["192.0.2.2", "192.0.2.3"],
            "by_lanes": true, "encapsulated": { "packets": 7, "bytes": 700 }, "decapsulated": { "packets": 8, "bytes": 900 },
        }] }))
        .join("\n");
        assert!(text.contains("192.0.2.2, 192.0.2.3  yes       7             8"), "{text}");
    }

    #[test]
    fn a_status_has_its_warnings_last() {
        let value = json!({
            "paths": [{ "interface": "eth0", "path": "tc" }], "ports": [], "warnings": ["mind the gap"],
            "routes": { "ipv4": 1, "ipv6": 2 }, "next_hops": 3, "kernel_routes": 4,
        });
        let expected = "interface  path\neth0       tc\n\n\
                        1 IPv4 and 2 IPv6 routes, 3 next hops; 4 routes in the kernel\n\
                        warning: mind the gap\n";
        assert_eq!(text(&Request::Status, &value), expected);
    }
}
