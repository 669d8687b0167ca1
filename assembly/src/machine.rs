//! What lanes ask of the machine besides CPUs, and what it did to them meanwhile.

use std::sync::Arc;

use serde::Serialize;
use warmlane_counters::{Description, Entry, Labels, Registry, Role, Source};
use warmlane_lane::{IdlePolicy, LaneCountersView, LaneView, most_on_one_cpu};
use warmlane_sys::cgroup::{CpuGroup, Throttled};
use warmlane_sys::energy::{EnergyReading, NoMeter};
use warmlane_sys::frequency::{Clamp, CpuFrequency, FrequencyError};
use warmlane_sys::resctrl::{CacheGroup, Mask, NoShares, Resctrl};

/// What lanes ask of the machine. Nothing, unless it is said: what is changed for a CPU is everybody's who runs there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSettings {
    /// Their share of the last-level cache.
    pub cache: CacheShare,
    /// The cpufreq governor of their CPUs, while they run.
    pub governor: Option<String>,
    /// The energy preference of their CPUs, while they run.
    pub energy_preference: Option<String>,
    /// What the scheduler takes them to need of a CPU's speed.
    pub clamp: Option<Clamp>,
}

/// A lane's share of the last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheShare {
    /// It isn't looked at.
    #[default]
    Unwatched,
    /// It is counted.
    Watched,
    /// It is counted, and only these ways are filled.
    Masked(Mask),
}

/// Why the machine refuses what lanes ask of it. What it merely lacks is a [note](crate::Assembly::notes) instead.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Of the cache.
    #[error(transparent)]
    Cache(#[from] NoShares),
    /// Of the frequency.
    #[error(transparent)]
    Frequency(#[from] FrequencyError),
}

/// What lanes have. Dropped, the machine is as it was.
pub(crate) struct Machine {
    pub(crate) notes: Vec<String>,
    energy: Result<EnergyReading, NoMeter>,
    group: Option<CpuGroup>,
    throttled: Throttled,
    _frequency: Option<CpuFrequency>,
}

impl Machine {
    /// For lanes that run already.
    pub(crate) fn prepare(
        settings: &MachineSettings,
        idle: IdlePolicy,
        lanes: &[LaneView],
        registry: &Registry,
    ) -> Result<Self, MachineError> {
        let mut notes = watch_caches(settings.cache, lanes, registry)?;
        let cpus: Vec<usize> = lanes.iter().filter_map(|lane| lane.cpu).collect();
        let (governor, preference) = (settings.governor.as_deref(), settings.energy_preference.as_deref());
        let frequency = match CpuFrequency::set(&cpus, governor, preference) {
            Ok(frequency) => Some(frequency),
            Err(error @ FrequencyError::Unknown { .. }) => return Err(error.into()),
            Err(error) => {
                notes.push(error.to_string());
                None
            }
        };
        if let Some(clamp) = settings.clamp {
            let refused = lanes.iter().find_map(|lane| clamp.set(lane.thread).err());
            notes.extend(refused.map(|error| format!("the scheduler takes no clamps (uclamp): {error}")));
        }
        let group = CpuGroup::of_this_process();
        let together = most_on_one_cpu(&cpus);
        if together > 1 {
            notes.push(format!(
                "{together} lanes share a CPU: each leaves it to the others when it finds nothing"
            ));
        }
        notes.extend(group.as_ref().and_then(|group| about_quota(group, idle, cpus.len())));
        let throttled = group.as_ref().map(CpuGroup::throttled).unwrap_or_default();
        Ok(Self { notes, energy: EnergyReading::now(), group, throttled, _frequency: frequency })
    }

    /// What it did since then.
    pub(crate) fn report(&self, seconds: f64, registry: &Registry) -> MachineReport {
        let lanes = registry.views::<LaneCountersView>();
        let sum =
            |cycles: fn(&LaneCountersView) -> u64| lanes.iter().map(|(_, lane)| cycles(lane)).sum::<u64>();
        let all = sum(LaneCountersView::busy_cycles) + sum(LaneCountersView::idle_cycles);
        let awake = all.saturating_sub(sum(LaneCountersView::asleep_cycles));
        let now = self
            .energy
            .as_ref()
            .map_err(|reason| *reason)
            .and_then(|before| EnergyReading::now().map(|now| now.joules_since(before)));
        MachineReport {
            awake_percent: 100.0 * awake as f64 / all.max(1) as f64,
            joules: now.ok(),
            watts: now.ok().filter(|_| seconds > 0.0).map(|joules| joules / seconds),
            no_meter: now.err().map(|reason| reason.to_string()),
            group: self.group.as_ref().map(|group| self.group_report(group)),
        }
    }

    fn group_report(&self, group: &CpuGroup) -> CpuGroupReport {
        let now = group.throttled();
        CpuGroupReport {
            name: group.name().to_owned(),
            is_gone: group.is_gone(),
            weight: group.weight(),
            quota_cpus: group.quota().map(|quota| quota.cpus()),
            throttled_periods: now.periods.saturating_sub(self.throttled.periods),
            throttled_seconds: now.time.saturating_sub(self.throttled.time).as_secs_f64(),
        }
    }
}

/// What these lanes meet who may use only so much time.
fn about_quota(group: &CpuGroup, idle: IdlePolicy, lanes: usize) -> Option<String> {
    let quota = group.quota()?;
    let (cpus, period) = (quota.cpus(), quota.period);
    let stopped = quota.stopped(lanes.max(1))?;
    let never_sleep = matches!(idle, IdlePolicy::Spin | IdlePolicy::Latency);
    let when = if never_sleep { "as they never sleep" } else { "when they are busy all the time" };
    Some(format!(
        "the control group {} gives {cpus:.2} CPUs' time: {when}, all lanes are stopped for {stopped:?} of every {period:?}, and what doesn't fit \
         into the receive rings meanwhile is lost",
        group.name()
    ))
}

/// Puts each lane into a group of its own, and its counts into the registry; says why there are none.
fn watch_caches(share: CacheShare, lanes: &[LaneView], registry: &Registry) -> Result<Vec<String>, NoShares> {
    let mask = match share {
        CacheShare::Unwatched => return Ok(Vec::new()),
        CacheShare::Watched => None,
        CacheShare::Masked(mask) => Some(mask),
    };
    let resctrl = match Resctrl::open() {
        Ok(resctrl) => resctrl,
        Err(reason) => return Ok(vec![format!("no cache shares: {reason}")]),
    };
    for lane in lanes {
        let group = resctrl.group(&lane.name, lane.thread, mask)?;
        registry.add(Labels::new().with("lane", &lane.name), CacheCounters(Arc::new(group)));
    }
    Ok(Vec::new())
}

/// What a lane has of the last-level cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheCounters(Arc<CacheGroup>);

impl Source for CacheCounters {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let of = |name, help, role| Description { set: "cache", name, unit: "bytes", help, role };
        let usage = self.0.usage();
        if let Some(bytes) = usage.occupancy {
            each(Entry::of(
                of("occupancy", "What the lane occupies of the last-level cache.", Role::Gauge),
                bytes,
            ));
        }
        if let Some(bytes) = usage.memory_bytes {
            each(Entry::of(of("memory-bytes", "What the lane moved from and to memory.", Role::Note), bytes));
        }
    }
}

/// What the machine did while lanes ran.
#[derive(Debug, Default, Serialize)]
pub struct MachineReport {
    /// The share of the lanes' time in which they had their CPUs, or wanted them. Polling lanes take all of it.
    pub awake_percent: f64,
    /// What the processors' packages used, all that runs there included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// The same for each second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Why these two are missing, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_meter: Option<String>,
    /// The control group of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<CpuGroupReport>,
}

/// What a control group gave.
#[derive(Debug, Default, Serialize)]
pub struct CpuGroupReport {
    /// Its path.
    pub name: String,
    /// It was removed while the process ran.
    pub is_gone: bool,
    /// Its weight; 1 is usual.
    pub weight: Option<f64>,
    /// Its quota in CPUs.
    pub quota_cpus: Option<f64>,
    /// Periods in which the quota was used up.
    pub throttled_periods: u64,
    /// For how long it stopped threads.
    pub throttled_seconds: f64,
}

impl MachineReport {
    /// In some lines.
    pub(crate) fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write as _;
        write!(text, "lanes were awake for {:.2} % of their time; ", self.awake_percent)?;
        let energy = match (self.joules, self.watts, &self.no_meter) {
            (Some(joules), Some(watts), _) => format!("all packages used {joules:.1} J, {watts:.1} W"),
            (_, _, reason) => reason.clone().unwrap_or_default(),
        };
        writeln!(text, "{energy}")?;
        let Some(group) = &self.group else { return Ok(()) };
        if group.is_gone {
            writeln!(text, "the control group {} was removed meanwhile", group.name)?;
        }
        if group.throttled_periods > 0 {
            writeln!(
                text,
                "the quota of the control group {} was used up in {} periods, and stopped threads for {:.3} s",
                group.name, group.throttled_periods, group.throttled_seconds
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let text = |report: &MachineReport| {
            let mut text = String::new();
            report.write(&mut text).unwrap();
            text
        };
        let metered = MachineReport {
            awake_percent: 1.5,
            joules: Some(30.0),
            watts: Some(3.0),
            ..MachineReport::default()
        };
        assert_eq!(
            text(&metered),
            "lanes were awake for 1.50 % of their time; all packages used 30.0 J, 3.0 W\n"
        );
        let group = CpuGroupReport {
            name: "/box".into(),
            throttled_periods: 4,
            throttled_seconds: 0.25,
            ..Default::default()
        };
        let throttled = MachineReport {
            no_meter: Some("no meter".into()),
            group: Some(group),
            ..MachineReport::default()
        };
        let told = text(&throttled);
        assert!(
            told.contains("no meter\n")
                && told.contains("/box was used up in 4 periods, and stopped threads for 0.250 s"),
            "{told}"
        );
    }
}
