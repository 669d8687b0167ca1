//! A forwarder between the ports of one lane.

use warmlane_lane::{EdgeTo, GraphError, LanePort, OutputId, Pipeline, PipelineBuilder, Stage, StageId};

/// A pipeline in which `stage` forwards between `ports`, which are in the same order as the ports of the routes. The stage is a
/// [`Forwarder`](crate::datapath::Forwarder), or a tuple of stages that ends with one. Stages that are to see packets after the forwarder
/// go between its outputs and the ports: see [`connect_ports_through`].
///
/// # Errors
/// [`GraphError`]: two ports of one name, a stage without the forwarder's outputs, or a row with something behind it.
pub fn pipeline(stage: impl Stage + 'static, ports: Vec<LanePort>) -> Result<Pipeline, GraphError> {
    let mut builder = Pipeline::builder();
    let name = stage.name().into_owned();
    let stage = builder.stage(name, stage);
    connect_ports(&mut builder, stage, ports);
    builder.build()
}

/// Connects `ports` with such a stage of a pipeline that has other stages, too.
pub fn connect_ports(builder: &mut PipelineBuilder, stage: StageId, ports: Vec<LanePort>) {
    connect_ports_through(builder, stage, ports, |_, _, output| output.into());
}

/// Like [`connect_ports`], with other stages between the forwarder's outputs and the ports. For each port that can transmit, `egress` gets
/// the port's name and its output, and returns where packets for this port go: usually to a stage that `egress` has added and
/// connected with that output.
///
/// ```
/// use warmlane_forward::connect_ports_through;
/// use warmlane_lane::{LanePort, PipelineBuilder, StageId, per_packet};
///
/// fn connect(builder: &mut PipelineBuilder, forwarder: StageId, ports: Vec<LanePort>) {
///     connect_ports_through(builder, forwarder, ports, |builder, port, output| {
///         let only_short = builder.stage(format!("egress {port}"), per_packet(|packet| packet.len() < 1_000));
///         builder.connect(only_short, output);
///         only_short.into()
///     });
/// }
/// ```
pub fn connect_ports_through(
    builder: &mut PipelineBuilder,
    stage: StageId,
    ports: Vec<LanePort>,
    mut egress: impl FnMut(&mut PipelineBuilder, &str, OutputId) -> EdgeTo,
) {
    for (number, port) in ports.into_iter().enumerate() {
        let queues = port.receive.len();
        for (queue, receive) in port.receive.into_iter().enumerate() {
            let name = if queues == 1 { port.name.clone() } else { format!("{}.{queue}", port.name) };
            let input = builder.port_input(name, number as u16, receive);
            builder.connect(input, stage);
        }
        if let Some(transmit) = port.transmit {
            let output = builder.output(port.name.clone(), transmit);
            let target = egress(builder, &port.name, output);
            builder.connect((stage, format!("port{number}")), target);
        }
    }
}
