//! A router's lane: the forwarder between its ports, with tunnels' ends in front of it, and what holds and punts beside it.

use warmlane_forward::connect_ports;
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{GraphError, LanePort, Output, Pipeline};

use crate::datapath::{Hold, Punt, TunnelEnds};

/// A lane's pipeline. `punts` take what the kernel gets of each port, in the order of `ports`. Behind these is the forwarder's output that leads
/// into tunnels.
///
/// # Errors
/// [`GraphError`]: two ports of one name.
pub fn pipeline(
    (tunnels, forwarder): (TunnelEnds, Forwarder),
    hold: Hold,
    punt: Punt,
    ports: Vec<LanePort>,
    punts: Vec<(String, Output)>,
) -> Result<Pipeline, GraphError> {
    let mut builder = Pipeline::builder();
    let (forwarder, entrance) = (builder.stage("forwarder", (tunnels, forwarder)), ports.len());
    connect_ports(&mut builder, forwarder, ports);
    builder.connect((forwarder, format!("port{entrance}")), (forwarder, "entrance"));
    let hold = builder.stage("hold", hold);
    builder.connect((forwarder, "hold"), hold);
    builder.connect((hold, "resumed"), (forwarder, "resumed"));
    builder.connect((hold, "given-up"), (forwarder, "given-up"));
    builder.connect((hold, "refused"), (forwarder, "refused"));
    let punt = builder.stage("punt", punt);
    builder.connect((forwarder, "punt"), punt);
    for (number, (name, output)) in punts.into_iter().enumerate() {
        let output = builder.output(name, output);
        builder.connect((punt, format!("port{number}")), output);
    }
    builder.build()
}
