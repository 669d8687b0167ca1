//! The ports of the user path, which are opened again where an interface is made again.

use super::punt;
use anyhow::{Context as _, bail};
use std::sync::Arc;
use warmlane::counters::Registry;
use warmlane::drivers::common::{Interface, InterfaceName, LocalSink as _};
use warmlane::drivers::xdp::{self, LeftFamilies, LocalFilter, Reentry, Umem, XdpOptions, XdpPort};
use warmlane::functions::router::control::Follower;
use warmlane::functions::router::control::kernel::Link;
use warmlane::port::Port;
use warmlane::port::replaceable::{self, Replacer};

/// All of them.
pub(super) struct UserPorts {
    ports: Vec<UserPort>,
    umem: Umem,
    /// How many queues to send by each has at least.
    queues: u32,
}

/// One, without its queues, which lanes have.
struct UserPort {
    options: XdpOptions,
    filter: LocalFilter,
    replacer: Replacer,
    /// By which interface the kernel gets its packets, and what leads them back to it.
    punt: String,
    reentry: Option<Reentry>,
}

impl UserPorts {
    /// Of ports that were just opened with these options, in their order; `punts` are the interfaces by which the kernel gets their packets.
    pub(super) fn new(
        opened: Vec<(XdpOptions, XdpPort)>,
        punts: Vec<(String, Option<Reentry>)>,
        umem: Umem,
        queues: u32,
    ) -> anyhow::Result<(Self, Vec<Port>)> {
        let (mut ports, mut of_lanes) = (Vec::new(), Vec::new());
        for ((options, XdpPort { port, monitor }), (punt, reentry)) in opened.into_iter().zip(punts) {
            let (port, replacer) = replaceable::wrap(port)?;
            of_lanes.push(port);
            ports.push(UserPort { options, filter: monitor.local, replacer, punt, reentry });
        }
        Ok((Self { ports, umem, queues }, of_lanes))
    }

    /// Tells each port's program what is the kernel's own.
    pub(super) fn set_local(&self, follower: &Follower) -> std::io::Result<()> {
        let addresses = follower.local_addresses();
        for UserPort { options, filter, .. } in &self.ports {
            let name = &options.interface;
            filter.set_addresses(&addresses)?;
            let [ipv4, ipv6] = [false, true].map(|is_ipv6| follower.is_left(name, is_ipv6));
            filter.set_own(follower.local_mac(name), LeftFamilies { ipv4, ipv6 })?;
        }
        Ok(())
    }

    /// Closes what lanes have given back.
    pub(super) fn collect(&mut self) {
        self.ports.iter_mut().for_each(|port| port.replacer.collect());
    }

    /// Opens a port again, whose interface was made again, and lets lanes go on with it.
    ///
    /// # Errors
    /// It can't be as it was; its packets stay with the kernel.
    pub(super) fn take_again(
        &mut self,
        link: &Link,
        follower: &mut Follower,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<()> {
        let Self { ports, umem, queues } = self;
        let port = ports.iter_mut().find(|port| port.options.interface == link.name);
        let port = port.context("it has never been a port")?;
        xdp::check(&port.options, *queues)?;
        // Those of the last time lead to nowhere, and stand in the way.
        let had_reentry = port.reentry.take().is_some();
        let opened = xdp::open(&port.options, *queues, umem, &follower.local_addresses())?;
        if !port.replacer.fits(&opened.port) {
            bail!(
                "it has another number of queues than before, for which the router has to be started again"
            );
        }
        if had_reentry {
            let reentry = punt::reentry(&port.punt, &opened).map_err(anyhow::Error::msg);
            port.reentry = Some(reentry.context(
                "what only the kernel can forward can't be led back to it, for which the router has to be started again",
            )?);
        }
        let mtu = Interface::find(&InterfaceName::new(&link.name)?)?.mtu;
        follower.set_port(&link.name, link.index, mtu);
        opened.port.view().register(registry);
        port.filter = opened.monitor.local;
        port.replacer.replace(opened.port);
        self.set_local(follower)?;
        Ok(())
    }
}
