//! What hosts send each other, as it is on the wire.

use warmlane_testkit::namespace::Namespace;

use crate::command::SHORT;
use crate::iperf::send_3_mib;

/// TCP streams from one host to the other, by each of `ways` (source and destination), and what arrives at the other's interface: frames of a
/// link's length, and tshark finds all checksums right.
///
/// # Panics
/// If that isn't so.
pub fn check_wire(from: &Namespace, (to, interface): (&Namespace, &str), ways: &[(&str, &str)]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory.path().join("wire.pcapng");
    let capture = capture.to_str().expect("a path in UTF-8");
    let mut server = to.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", SHORT);
    // Only what comes from there.
    let sources: Vec<_> = ways.iter().map(|(source, _)| format!("src host {source}")).collect();
    let line = format!("tshark -i {interface} -B 32 -w {capture} {}", sources.join(" or "));
    let mut tshark = to.spawn(&line);
    tshark.wait_for("Capture started", SHORT);
    for (_, address) in ways {
        send_3_mib(from, address, "");
    }
    tshark.interrupt();
    tshark.finish(SHORT).expect_success("tshark");
    let fields = "-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -T fields -e frame.len -e ip.checksum.status \
                  -e tcp.checksum.status -e tcp.checksum";
    let read = to.run(&format!("tshark -r {capture} {fields} -Y tcp"));
    let (mut full, mut frames) = (0, 0);
    for line in read.expect_success("tshark").lines().filter(|line| line.contains('\t')) {
        let columns: Vec<_> = line.split('\t').collect();
        let length: usize = columns[0].parse().expect("a length");
        assert!(length <= 1514, "{line}");
        // Over IPv6 there is no checksum of the header.
        assert!(["1", ""].contains(&columns[1]) && is_tcp_checksum_right(columns[2], columns[3]), "{line}");
        full += usize::from(length == 1514);
        frames += 1;
    }
    // Each transfer takes 2,173 full frames; on a busy machine the capture misses some.
    assert!(full > 500 * ways.len(), "{full} full frames of {frames}");
}

/// Whether TCP checksums are right by tshark's status of them. It calls all ones wrong (RFC 1624 section 3), which Linux writes
/// where it completes a checksum in software and gets zero (`skb_checksum_help` in net/core/dev.c). That we don't is for the tests of
/// `warmlane-wire` and `warmlane-port` to find.
pub fn is_tcp_checksum_right(status: &str, checksum: &str) -> bool {
    let mut pairs = status.split(',').zip(checksum.split(','));
    pairs.all(|(status, checksum)| status == "1" || (status == "0" && checksum == "0xffff"))
}
