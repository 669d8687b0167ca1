//! All of a downstream in memory: packets of a generator go through both MACs to modems, and back to the generator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warmlane_counters::Registry;
use warmlane_docsis::control::ServiceGroup;
use warmlane_docsis::keys::KeyChange;
use warmlane_docsis::modem::ModemCountersView;
use warmlane_docsis::{DownstreamViews, KeyRoller, Queues, downstream, modems};
use warmlane_gen::{Sample, Tester, TrialConfig, TrialResult};
use warmlane_lane::{LaneConfig, LaneView, Lanes, place};
use warmlane_mem::Pool;
use warmlane_memory::ring_pair;
use warmlane_sync::mailbox;
use warmlane_sys::affinity;

use super::DocsisError;

/// Packets that each cable in memory holds.
const CABLE: usize = 8_192;
/// Changes of keys that a lane may be behind.
const CHANGES: usize = 1_024;

/// A downstream between a generator and modems, at work.
pub struct Loopback<'a> {
    group: &'a ServiceGroup,
    tester: Tester,
    lanes: Lanes,
    views: DownstreamViews,
    modems: ModemCountersView,
    keys: [mailbox::Sender<KeyChange>; 2],
    pool: Pool,
}

/// What came of it.
pub struct LoopbackResult {
    /// What the generator says.
    pub trial: TrialResult,
    /// What the downstream has counted.
    pub views: DownstreamViews,
    /// What the modems have.
    pub modems: ModemCountersView,
    /// How often all keys were changed.
    pub key_changes: u64,
}

impl<'a> Loopback<'a> {
    /// Starts the lanes of a service group that was [checked](ServiceGroup::check), with all packets in `pool`. `cpus` are those of the
    /// upper MAC, the lower MAC and the modems; what isn't there is chosen.
    ///
    /// # Errors
    /// [`DocsisError`].
    pub fn start(group: &'a ServiceGroup, pool: Pool, cpus: &[usize]) -> Result<Self, DocsisError> {
        let [mut generator, network] = ring_pair::open(["generator", "rx"], CABLE)?;
        let [mut tx, tunnel] = ring_pair::open(["tx", "remote-phy"], CABLE)?;
        let [mut delivered, receiver] = ring_pair::open(["modems", "receiver"], CABLE)?;
        let (to_lower, lower_changes) = mailbox::mailbox(CHANGES)?;
        let (to_modems, modem_changes) = mailbox::mailbox(CHANGES)?;
        let queues = Queues { receive: network.receive, transmit: tx.take_transmit()? };
        let instance = downstream(group, &pool, queues, Some(lower_changes))?;
        let queues = Queues { receive: tunnel.receive, transmit: delivered.take_transmit()? };
        let (other_end, modems) = modems(group, &pool, queues, Some(modem_changes))?;

        let available = affinity::allowed_cpus()?.len();
        let chosen = place(available.min(5))?;
        // The generator's lanes go before others on their CPUs: one of its own for both, until there are enough for all.
        let (generating, working) = chosen.split_at(if chosen.len() >= 5 { 2 } else { chosen.len().min(1) });
        let mut lanes = Lanes::new();
        let pipelines = [("upper", instance.upper), ("lower", instance.lower), ("modems", other_end)];
        for (number, (name, pipeline)) in pipelines.into_iter().enumerate() {
            let cpu = cpus.get(number).or_else(|| working.get(number % working.len().max(1))).copied();
            lanes.spawn(LaneConfig { name: name.to_owned(), cpu, ..LaneConfig::default() }, pipeline)?;
        }
        let generating = if working.is_empty() { &[] } else { generating };
        let tester = Tester::start(generator.take_transmit()?, receiver.receive, &pool, generating)?;
        let (views, keys) = (instance.views, [to_lower, to_modems]);
        Ok(Self { group, tester, lanes, views, modems, keys, pool })
    }

    /// All that it counts.
    pub fn registry(&self) -> Registry {
        let registry = Registry::new();
        self.lanes.register(&registry);
        self.tester.register(&registry);
        self.views.register(&registry, self.group);
        self.pool.register(&registry);
        registry
    }

    /// The memory that its packets live in.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its lanes, and the generator's.
    pub fn lanes(&self) -> Vec<LaneView> {
        [self.lanes.views(), self.tester.lanes()].concat()
    }

    /// Runs a trial of the generator, with changes of all keys so far apart, or none if that is zero, and ends the lanes. The wait for the last
    /// packets ends as soon as each has come back or was dropped. `progress` is called now and then; when it returns `false`, the trial ends.
    ///
    /// # Errors
    /// [`DocsisError`]: a lane broke, or the generator has no result.
    pub fn run(
        mut self,
        config: &TrialConfig,
        roll_keys: Duration,
        progress: &mut dyn FnMut(&Sample) -> bool,
    ) -> Result<LoopbackResult, DocsisError> {
        let [to_lower, to_modems] = self.keys;
        let (lower, modems) = (self.views.lower.clone(), self.modems.clone());
        let mut roller = KeyRoller { group: self.group, to_lower, to_modems, lower, modems, rolls: 0 };
        let is_over = AtomicBool::new(false);
        let trial = std::thread::scope(|scope| {
            let rolling = (!roll_keys.is_zero()).then(|| {
                scope.spawn(|| {
                    let is_over = || is_over.load(Ordering::Relaxed);
                    while !is_over() && roller.roll(&is_over) {
                        std::thread::park_timeout(roll_keys);
                    }
                })
            });
            let (views, modems) = (&self.views, &self.modems);
            let dropped = || -> u64 {
                [views.upper.drops(), views.lower.drops(), modems.drops()]
                    .iter()
                    .map(|view| view.total())
                    .sum()
            };
            let trial = self.tester.run_with_drops(config, progress, &dropped);
            is_over.store(true, Ordering::Relaxed);
            if let Some(rolling) = rolling {
                rolling.thread().unpark();
            }
            trial
        })?;
        let key_changes = roller.rolls;
        drop(roller);
        drop(self.tester);
        self.lanes.stop();
        self.lanes.join()?;
        Ok(LoopbackResult { trial, views: self.views, modems: self.modems, key_changes })
    }
}
