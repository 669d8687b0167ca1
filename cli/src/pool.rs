//! `warmlane pool`: where buffers would lie in memory, and what the caches make of it.

mod cache;
mod histogram;
mod pages;
mod port_kind;
mod text;

use anyhow::{Context as _, bail};
use cache::Cache;
use pages::Forecast;
use port_kind::PortKind;
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;
use warmlane::mem::plan::{CacheShape, ChannelSpread, Demands, MemoryChannels, Plan, Request};
use warmlane::mem::{LINE_BYTES, MAXIMUM_BUFFERS, PoolConfig};
use warmlane_lab::plot;

/// Plan how far apart buffers lie, and show how that uses the caches.
///
/// Forwarding touches two lines of each buffer: its header and the first line of its data. The distance between
/// buffers, the stride, decides into which sets of a cache these lines fall. With a stride of 2,048 bytes they all
/// fall into a few sets, which can't hold them, while the others stay empty; with an odd number of lines they spread
/// over all. This shows the stride that a pool would choose for this machine's caches, or for caches described with
/// --cache, why, and how others compare; also for memory channels that only you know, and for ports that demand something
/// of where buffers lie. No memory is taken.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// How many buffers.
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAXIMUM_BUFFERS)))]
    buffers: u32,
    /// Bytes for data in each buffer; longer packets are chained.
    #[arg(long, value_name = "BYTES", default_value_t = 2_048, value_parser = clap::value_parser!(u16).range(1..))]
    data_size: u16,
    /// Bytes kept free in front of the data, for headers that are put on later.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    headroom: u16,
    /// Examine this stride instead of the planned one.
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
    /// Strides to set side by side with the planned one, such as 2048,2304,2368.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    compare: Vec<usize>,
    /// A cache to plan for instead of this machine's: level, size, ways and bytes per line, such as L2:1M:8:64. May
    /// be given several times. Levels 1 and 2 are planned for; from level 3 on caches hash, and are only named.
    #[arg(long, value_name = "LEVEL:SIZE:WAYS:LINE")]
    cache: Vec<Cache>,
    /// Memory channels to spread headers over; no machine tells them to a program (`dmidecode -t memory` does to root).
    #[arg(long, value_name = "N")]
    channels: Option<usize>,
    /// Ranks on each memory channel.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "channels")]
    ranks: usize,
    /// Bytes that stay on one memory channel before the next one follows.
    #[arg(long, value_name = "BYTES", default_value_t = 64, requires = "channels")]
    interleave: usize,
    /// A kind of port that shall use this memory, for what it demands of it. May be given several times.
    #[arg(long, value_name = "KIND")]
    port: Vec<PortKind>,
    /// Plan for memory of your own, whose buffers need not lie at one distance as a pool's do: padding after every so
    /// many buffers may then waste less than a longer stride.
    #[arg(long)]
    padding: bool,
    /// Draw the histogram of sets into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  warmlane pool
  warmlane pool --buffers 65536 --data-size 4096 --compare 4416,4608
  warmlane pool --cache L1:32K:8:64 --cache L2:1M:8:64 --svg sets.svg
  warmlane pool --port xdp --channels 12 --ranks 2 --json";

/// The longest stride that a pool can have: offsets inside a buffer have 16 bits.
const LONGEST_STRIDE: usize = 1 << 16;

#[derive(Serialize)]
struct Report {
    buffers: u32,
    needed: usize,
    stride: usize,
    /// Set if buffers don't all lie at one distance.
    padding: Option<PaddingReport>,
    planned_stride: usize,
    data_offset: usize,
    /// Bytes per buffer that are nobody's.
    waste: f64,
    memory_bytes: usize,
    #[serde(flatten)]
    pages: Forecast,
    caches: Vec<CacheReport>,
    /// Caches that hash, which are not planned for.
    hashed: Vec<HashedCache>,
    /// The share of the memory's parallelism that headers use, if channels are given.
    channels_used: Option<f64>,
    compared: Vec<Compared>,
    explanation: String,
}

#[derive(Serialize)]
struct PaddingReport {
    every: u64,
    bytes: usize,
}

#[derive(Serialize)]
struct HashedCache {
    level: u8,
    bytes: usize,
    ways: usize,
}

#[derive(Serialize)]
struct CacheReport {
    level: u8,
    sets: usize,
    ways: usize,
    line: usize,
    kept: f64,
    lost: usize,
    unused_sets: usize,
    histogram: Vec<u32>,
}

#[derive(Serialize)]
struct Compared {
    stride: usize,
    /// Whether a buffer of the size asked for fits.
    fits: bool,
    memory_bytes: usize,
    caches: Vec<ComparedCache>,
}

#[derive(Serialize)]
struct ComparedCache {
    level: u8,
    kept: f64,
    unused_sets: usize,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (report, plan) = plan(&arguments)?;
    if let Some(path) = arguments.svg {
        std::fs::write(&path, plot::set_histogram(&plan)?)
            .with_context(|| format!("cannot write the picture to {}", path.display()))?;
    }
    let text =
        if arguments.json { serde_json::to_string(&report)? + "\n" } else { text::text(&report, &plan)? };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn plan(arguments: &Arguments) -> anyhow::Result<(Report, Plan)> {
    let config = PoolConfig {
        buffers: arguments.buffers,
        data_size: usize::from(arguments.data_size),
        headroom: usize::from(arguments.headroom),
        ..PoolConfig::default()
    };
    let (needed, headroom) = (config.buffer_bytes(), config.headroom);
    if needed > usize::from(u16::MAX) {
        bail!(
            "--headroom {} and --data-size {} make a buffer of {needed} bytes with its header, more than the {} that one \
             can have: longer packets are chained, so smaller buffers will do",
            config.headroom,
            config.data_size,
            u16::MAX
        );
    }
    let caches: Vec<CacheShape> = if arguments.cache.is_empty() {
        CacheShape::of_this_machine()
    } else {
        arguments.cache.iter().map(|cache| cache.0).collect()
    };
    let mut demands = if arguments.padding { Demands::ANY } else { Demands::POOL };
    for port in &arguments.port {
        demands = demands.and(port.demands()?);
    }
    let (ranks, interleave) = (arguments.ranks, arguments.interleave);
    let memory = arguments.channels.map(|channels| MemoryChannels { channels, ranks, interleave });
    let request = Request { needed, headroom, caches: &caches, memory, demands };
    let planned = Plan::new(&request)?;
    let plan = match arguments.stride {
        Some(stride) => {
            check_stride("--stride", stride)?;
            Plan::given(&request, stride).with_context(|| format!("--stride {stride}"))?
        }
        None => planned.clone(),
    };
    let mut strides = vec![planned.stride];
    for stride in arguments.stride.iter().chain(&arguments.compare) {
        check_stride("--compare", *stride)?;
        if !strides.contains(stride) {
            strides.push(*stride);
        }
    }
    let memory_bytes = usize::try_from(plan.region_bytes(arguments.buffers)?)?;
    let memory = |stride: usize| stride * arguments.buffers as usize;
    let compared = strides
        .into_iter()
        .map(|stride| {
            let plan = Plan::with_stride(needed, headroom, stride, &caches);
            let caches = plan.spreads.iter().map(|spread| ComparedCache {
                level: spread.shape.level,
                kept: spread.kept(),
                unused_sets: spread.unused_sets(),
            });
            Compared {
                stride,
                fits: stride >= needed,
                memory_bytes: memory(stride),
                caches: caches.collect(),
            }
        })
        .collect();
    let caches = plan.spreads.iter().map(|spread| CacheReport {
        level: spread.shape.level,
        sets: spread.shape.sets,
        ways: spread.shape.ways,
        line: spread.shape.line,
        kept: spread.kept(),
        lost: spread.lost,
        unused_sets: spread.unused_sets(),
        histogram: spread.histogram.clone(),
    });
    let report = Report {
        buffers: arguments.buffers,
        needed,
        stride: plan.stride,
        padding: plan
            .padding
            .map(|padding| PaddingReport { every: 1 << padding.every_log2, bytes: padding.bytes }),
        planned_stride: planned.stride,
        data_offset: plan.data_offset,
        waste: plan.waste(),
        memory_bytes,
        pages: pages::forecast(memory_bytes),
        caches: caches.collect(),
        hashed: plan
            .hashed
            .iter()
            .map(|shape| HashedCache { level: shape.level, bytes: shape.bytes(), ways: shape.ways })
            .collect(),
        channels_used: plan.channels.as_ref().map(ChannelSpread::used),
        compared,
        explanation: plan.explanation(),
    };
    Ok((report, plan))
}

fn check_stride(flag: &str, stride: usize) -> anyhow::Result<()> {
    if stride == 0 || !stride.is_multiple_of(LINE_BYTES) || stride > LONGEST_STRIDE {
        let near = stride.next_multiple_of(LINE_BYTES).clamp(LINE_BYTES, LONGEST_STRIDE);
        bail!(
            "{flag} {stride}: a stride is a multiple of {LINE_BYTES} up to {LONGEST_STRIDE}, such as {near}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &str) -> Arguments {
        Command::try_parse_from(line.split_whitespace()).unwrap().arguments
    }

    const CACHES: &str = "pool --cache L1:32K:8:64 --cache L2:1M:8:64";

    #[test]
    fn a_described_machine_gets_its_plan() {
        let (report, plan) = super::plan(&arguments(&format!("{CACHES} --compare 2048,2304,2368"))).unwrap();
        assert_eq!((report.needed, report.stride % 128), (2_240, 64), "an odd number of lines");
        assert_eq!(report.memory_bytes, 16_384 * report.stride);
        let text = text::text(&report, &plan).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= text::WIDTH), "{text}");
        let row = |stride: &str| {
            text.lines().find(|line| line.trim_start().starts_with(stride)).unwrap().to_owned()
        };
        assert!(row("2048 ").contains("6.2 %") && row("2048 ").ends_with("too small (needs 2240)"), "{text}");
        assert!(row("2304 ").contains("50.0 %"), "{text}");
        assert!(row("2368 ").contains("100.0 %"), "{text}");
        assert!(row(&report.planned_stride.to_string()).ends_with("planned"), "{text}");
    }

    #[test]
    fn a_given_stride_is_examined() {
        let (report, plan) = super::plan(&arguments(&format!("{CACHES} --stride 4096"))).unwrap();
        assert_eq!(report.stride, 4_096);
        let text = text::text(&report, &plan).unwrap();
        assert!(
            text.contains("The planner would have chosen 2240 bytes.") && text.contains("lost ┤×"),
            "{text}"
        );
    }

    #[test]
    fn strides_that_no_pool_can_have() {
        let error =
            |line: &str| super::plan(&arguments(&format!("{CACHES} {line}"))).err().unwrap().to_string();
        assert!(error("--stride 2300").ends_with("such as 2304"));
        assert_eq!(error("--stride 2048"), "--stride 2048");
        assert!(error("--compare 0").ends_with("such as 64"));
        assert!(error("--compare 18446744073709551552").ends_with("such as 65536"));
        assert!(error("--data-size 65535 --headroom 65535").contains("131134 bytes"));
    }

    #[test]
    fn ports_and_channels_are_planned_for() {
        let report = |line: &str| super::plan(&arguments(&format!("{CACHES} {line}"))).unwrap();
        let (twelve, plan) = report("--data-size 2304 --channels 12 --compare 2496");
        assert_eq!((twelve.stride, twelve.channels_used), (2_624, Some(1.0)), "2,496 bytes are 3 × 13 lines");
        assert!(text::text(&twelve, &plan).unwrap().contains("12 channels of 1 ranks"));
        let (aligned, plan) = report("--port xdp-aligned-4096 --port memif --headroom 256");
        assert_eq!(aligned.stride, 4_096);
        assert!(text::text(&aligned, &plan).unwrap().contains("unaligned chunks would not"));
        let (padded, _) = report("--headroom 192 --padding");
        assert_eq!((padded.stride, padded.padding.is_some()), (2_304, true));
        assert!(padded.waste < 64.0 && padded.memory_bytes < 16_384 * 2_368);
        assert_eq!(report("--headroom 192").0.stride, 2_368);
        for line in [
            "--port xdp --headroom 128",
            "--port xdp-aligned-2048 --headroom 256",
            "--port memif --buffers 16777215",
            "--channels 0",
            "--cache L1:32K:8:64",
        ] {
            assert!(super::plan(&arguments(&format!("{CACHES} {line}"))).is_err(), "{line}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_the_parser() {
        for line in
            ["pool --buffers 0", "pool --buffers 16777217", "pool --data-size 0", "pool --cache L1:32K:12:64"]
        {
            assert!(Command::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }

    #[test]
    fn the_json_form_keeps_its_names() {
        let (report, _) = super::plan(&arguments(&format!("{CACHES} --compare 2304"))).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["stride"], json["planned_stride"]);
        assert_eq!(json["caches"][0]["histogram"].as_array().unwrap().len(), 64);
        assert_eq!(json["compared"][1]["caches"][1]["unused_sets"], 1_024);
        assert!(json["padding"].is_null() && json["hashed"].as_array().unwrap().is_empty());
        assert!(json["pages"].is_string() && json["page_bytes"].is_u64());
    }
}
