//! The report that `warmlane forward --json` ends with.

use std::collections::BTreeMap;

use serde_json::Value;

/// The report of a run that is over.
#[derive(Debug, Clone)]
pub struct Report(Value);

impl Report {
    /// Reads a report.
    ///
    /// # Panics
    /// If the text isn't one JSON object and nothing else.
    pub fn parse(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => Self(value),
            other => panic!("the report is not one JSON object ({other:?}):\n{text}"),
        }
    }

    /// The object itself.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// A number, by its path as in `/forward/received`.
    ///
    /// # Panics
    /// If there is none.
    pub fn number(&self, path: &str) -> u64 {
        let number = self.0.pointer(path).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("the report has no number at {path}:\n{:#}", self.0))
    }

    /// The drops that a path as in `/forward/drops` leads to, without those that didn't happen.
    ///
    /// # Panics
    /// If there is no object of numbers.
    pub fn drops(&self, path: &str) -> BTreeMap<String, u64> {
        let drops = self.0.pointer(path).and_then(Value::as_object);
        let drops = drops.unwrap_or_else(|| panic!("the report has no drops at {path}:\n{:#}", self.0));
        let counted = drops.iter().map(|(name, count)| {
            let count = count.as_u64();
            (name.clone(), count.unwrap_or_else(|| panic!("the drops {name} at {path} are no number")))
        });
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Where a port of this name is, as the beginning of a path.
    ///
    /// # Panics
    /// If there is none.
    pub fn port(&self, name: &str) -> String {
        self.path("ports", name)
    }

    /// Bytes in each frame that a port has `received` or `transmitted`, on average.
    ///
    /// # Panics
    /// If there is no such port, or nothing of the kind is counted.
    pub fn mean_length(&self, port: &str, direction: &str) -> u64 {
        let port = self.port(port);
        let number = |name| self.number(&format!("{port}/{direction}/{name}"));
        number("bytes") / number("packets").max(1)
    }

    /// Where a stage of this name is, as the beginning of a path.
    ///
    /// # Panics
    /// If there is none.
    pub fn stage(&self, name: &str) -> String {
        self.path("stages", name)
    }

    fn path(&self, list: &str, name: &str) -> String {
        let index = self.list(list).iter().position(|entry| entry["name"] == name);
        let index = index.unwrap_or_else(|| panic!("the report has no {name} in {list}:\n{:#}", self.0));
        format!("/{list}/{index}")
    }

    /// Checks what holds at the end of every run: no buffer is missing, and each packet received is accounted for.
    ///
    /// # Panics
    /// If it doesn't hold.
    pub fn assert_balanced(&self) {
        self.assert_complete();
        let received: u64 = (0..self.list("ports").len())
            .map(|port| self.number(&format!("/ports/{port}/received/packets")))
            .sum();
        // These are in others now.
        let merged = |port: &Value| port.pointer("/counters/merge/merged").and_then(Value::as_u64);
        let merged: u64 = self.list("ports").iter().filter_map(merged).sum();
        let (made, dropped) = self.by_tunnels();
        let forwarder_got = received - merged + made - dropped;
        assert_eq!(forwarder_got, self.number("/forward/received"), "packets are missing:\n{:#}", self.0);
        // What was punted has left by the interfaces for that, or they or the stage say why not.
        let is_router = !self.list("punts").is_empty();
        let by_stage = is_router.then(|| self.drops(&format!("{}/drops", self.stage("punt"))).values().sum());
        let by_ports: u64 = (0..self.list("punts").len())
            .map(|punt| {
                let path = format!("/punts/{punt}/transmitted");
                let drops: u64 = self.drops(&format!("{path}/drops")).values().sum();
                self.number(&format!("{path}/packets")) + drops
            })
            .sum();
        let punted = by_ports + by_stage.unwrap_or(0);
        assert_eq!(punted, self.number("/forward/punted"), "punted packets are missing:\n{:#}", self.0);
    }

    /// Datagrams that a router's forwarder got from its tunnels besides the packets in them, and those from outside that were dropped before
    /// it got them.
    fn by_tunnels(&self) -> (u64, u64) {
        let mut stages = self.list("stages").iter();
        let tunnels = stages.find_map(|stage| stage.pointer("/counters/tunnel"));
        let counted = |name: &str| tunnels.and_then(|tunnels| tunnels[name].as_u64()).unwrap_or(0);
        (counted("encapsulated"), counted("arrived") - counted("decapsulated"))
    }

    /// The same of a forwarder with a VXLAN gateway in front, which gets what the ports received once software has segmented it: whatever
    /// the gateway took and copied was sent or dropped by it, and the forwarder got the rest.
    ///
    /// # Panics
    /// If it doesn't hold.
    pub fn assert_balanced_behind_vxlan(&self) {
        self.assert_complete();
        let stage = self.stage("vxlan");
        let counted = |name: &str| self.number(&format!("{stage}/counters/vxlan/{name}"));
        let dropped: u64 = self.drops(&format!("{stage}/drops")).values().sum();
        let made = counted("copied") + counted("errors");
        let (taken, given) = (counted("from_access") + counted("from_tunnels"), counted("to_tunnels"));
        let left = counted("to_access") + counted("to_groups") + given + dropped;
        assert_eq!(taken + made, left, "bridged packets are missing:\n{:#}", self.0);
        let passed = self.number(&format!("{stage}/packets")) - taken;
        assert_eq!(self.number("/forward/received"), passed + given, "packets are missing:\n{:#}", self.0);
    }

    /// Buffers are all back, and what the forwarder received is accounted for.
    fn assert_complete(&self) {
        assert!(!self.list("pools").is_empty(), "the report lists no pool:\n{:#}", self.0);
        for pool in 0..self.list("pools").len() {
            let field = |name: &str| self.number(&format!("/pools/{pool}/{name}"));
            assert_eq!(field("outstanding"), 0, "buffers are missing:\n{:#}", self.0);
            assert_eq!(field("taken"), field("freed"), "buffers are missing:\n{:#}", self.0);
        }
        let accounted: u64 = ["forwarded", "answered", "punted", "held", "dropped"]
            .iter()
            .map(|name| self.number(&format!("/forward/{name}")))
            .sum();
        assert_eq!(self.number("/forward/received"), accounted, "packets are missing:\n{:#}", self.0);
        let dropped: u64 = self.drops("/forward/drops").values().sum();
        assert_eq!(self.number("/forward/dropped"), dropped, "drops without a reason:\n{:#}", self.0);
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outstanding: u64, dropped: u64) -> Report {
        report_with(outstanding, dropped, 1)
    }

    fn report_with(outstanding: u64, dropped: u64, punt_drops: u64) -> Report {
        Report::parse(&format!(
            r#"{{"seconds":1.5,
                "ports":[{{"name":"a","driver":"null","received":{{"packets":9,"bytes":900,"drops":{{}}}}}}],
                "punts":[{{"name":"p0","driver":"tap","transmitted":{{"packets":1,"bytes":60,"drops":{{"refused":{punt_drops}}}}}}}],
                "forward":{{"received":9,"forwarded":2,"answered":1,"punted":3,"held":0,"dropped":{dropped},
                    "drops":{{"truncated":3,"no-route":0}}}},
                "stages":[{{"name":"hold","drops":{{}}}},{{"name":"punt","drops":{{"punt-refused":1}}}}],
                "pools":[{{"name":"p","taken":20,"freed":20,"outstanding":{outstanding}}}]}}"#
        ))
    }

    #[test]
    fn numbers_and_drops_are_found() {
        let report = report(0, 3);
        assert_eq!(report.number("/forward/received"), 9);
        assert_eq!(report.drops("/forward/drops"), BTreeMap::from([("truncated".to_owned(), 3)]));
        assert_eq!(report.number(&(report.port("a") + "/received/bytes")), 900);
        report.assert_balanced();
    }

    #[test]
    #[should_panic(expected = "buffers are missing")]
    fn lost_buffers_are_found() {
        report(1, 3).assert_balanced();
    }

    #[test]
    #[should_panic(expected = "packets are missing")]
    fn lost_packets_are_found() {
        report(0, 2).assert_balanced();
    }

    #[test]
    #[should_panic(expected = "punted packets are missing")]
    fn lost_punted_packets_are_found() {
        report_with(0, 3, 0).assert_balanced();
    }
}
