//! `warmlane pool`: where buffers would stand in memory, and what the caches make of it.

mod cache;
mod histogram;
mod pages;

use anyhow::{Context as _, bail};
use cache::Cache;
use pages::Forecast;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use warmlane::mem::plan::{CacheShape, Plan};
use warmlane::mem::{LINE_BYTES, MAXIMUM_BUFFERS, PoolConfig};
use warmlane_lab::plot;

/// Plan how far apart buffers stand, and show how that uses the caches.
///
/// Forwarding touches two lines of each buffer: its header and the first line of its data. The distance between
/// buffers, the stride, decides into which sets of a cache these lines fall. With a stride of 2,048 bytes they all
/// fall into a few sets, which can't hold them, while the others stay empty; with an odd number of lines they spread
/// over all. This shows the stride that a pool would choose for this machine's caches, or for caches described with
/// --cache, and how others compare. No memory is taken.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many buffers.
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAXIMUM_BUFFERS)))]
    buffers: u32,
    /// Bytes for data in each buffer; longer packets are chained.
    #[arg(long, value_name = "BYTES", default_value_t = 2_048, value_parser = clap::value_parser!(u16).range(1..))]
    room: u16,
    /// Bytes kept free in front of the data, for headers that are put on later.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    headroom: u16,
    /// Look at this stride instead of the planned one.
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
    /// Strides to set side by side with the planned one, such as 2048,2304,2368.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    compare: Vec<usize>,
    /// A cache to plan for instead of this machine's: level, size, ways and bytes per line, such as L2:1M:8:64. May
    /// be given several times. Only caches that are indexed by address bits come out true: most first- and
    /// second-level ones; third-level ones hash.
    #[arg(long, value_name = "LEVEL:SIZE:WAYS:LINE")]
    cache: Vec<Cache>,
    /// Draw the histogram of sets into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The longest stride that is looked at: far beyond the largest buffer, and small enough for any arithmetic.
const LONGEST_STRIDE: usize = 1 << 20;
/// As wide as the help texts.
const WIDTH: usize = 100;

#[derive(Serialize)]
struct Report {
    buffers: u32,
    needed: usize,
    stride: usize,
    planned_stride: usize,
    data_offset: usize,
    memory_bytes: usize,
    #[serde(flatten)]
    pages: Forecast,
    caches: Vec<CacheReport>,
    compared: Vec<Compared>,
    explanation: String,
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
    let text = if arguments.json { serde_json::to_string(&report)? + "\n" } else { text(&report, &plan)? };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn plan(arguments: &Arguments) -> anyhow::Result<(Report, Plan)> {
    let config = PoolConfig {
        buffers: arguments.buffers,
        room: usize::from(arguments.room),
        headroom: usize::from(arguments.headroom),
        ..PoolConfig::default()
    };
    let (needed, headroom) = (config.buffer_bytes(), config.headroom);
    if needed > usize::from(u16::MAX) {
        bail!(
            "--headroom {} and --room {} make a buffer of {needed} bytes with its header, more than the {} that one \
             can have: longer packets are chained, so less room will do",
            config.headroom,
            config.room,
            u16::MAX
        );
    }
    let caches: Vec<CacheShape> = if arguments.cache.is_empty() {
        CacheShape::of_this_machine()
    } else {
        arguments.cache.iter().map(|cache| cache.0).collect()
    };
    let planned = Plan::new(needed, headroom, &caches);
    let plan = match arguments.stride {
        Some(stride) => {
            check_stride("--stride", stride)?;
            if stride < needed {
                bail!(
                    "--stride {stride} is less than the {needed} bytes that a buffer needs: header, headroom and room"
                );
            }
            Plan::with_stride(needed, headroom, stride, &caches)
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
        planned_stride: planned.stride,
        data_offset: plan.data_offset,
        memory_bytes: memory(plan.stride),
        pages: pages::forecast(memory(plan.stride)),
        caches: caches.collect(),
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

fn text(report: &Report, plan: &Plan) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for sentence in report.explanation.lines() {
        wrap(&mut text, sentence)?;
    }
    if report.stride != report.planned_stride {
        wrap(&mut text, &format!("The planner would have chosen {} bytes.", report.planned_stride))?;
    }
    let pages = &report.pages;
    wrap(
        &mut text,
        &format!(
            "{} buffers take {:.1} MiB. On this machine they would get {}, {} of them.",
            report.buffers,
            mebibytes(report.memory_bytes),
            pages.pages,
            pages.page_count
        ),
    )?;
    if let Some(remedy) = &pages.remedy {
        wrap(&mut text, &format!("For pages that stay huge: {remedy}."))?;
    }
    for spread in &plan.spreads {
        text.push('\n');
        histogram::draw(&mut text, spread)?;
    }
    if report.compared.len() > 1 {
        text.push('\n');
        table(&mut text, report)?;
    }
    Ok(text)
}

fn table(text: &mut String, report: &Report) -> std::fmt::Result {
    write!(text, "{:>8} {:>6}", "stride", "lines")?;
    for cache in &report.caches {
        write!(text, " {:>9} {:>11}", format!("L{} kept", cache.level), "unused sets")?;
    }
    writeln!(text, " {:>12}", "memory")?;
    for row in &report.compared {
        write!(text, "{:>8} {:>6}", row.stride, row.stride / LINE_BYTES)?;
        for cache in &row.caches {
            write!(text, " {:>7.1} % {:>11}", cache.kept * 100.0, cache.unused_sets)?;
        }
        write!(text, " {:>8.1} MiB", mebibytes(row.memory_bytes))?;
        let note = match row {
            row if row.stride == report.planned_stride => "  planned".to_owned(),
            Compared { fits: false, .. } => format!("  too small (needs {})", report.needed),
            _ => String::new(),
        };
        writeln!(text, "{note}")?;
    }
    Ok(())
}

fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Adds a paragraph, broken between words.
fn wrap(text: &mut String, words: &str) -> std::fmt::Result {
    let mut column = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    writeln!(text)
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
        let text = text(&report, &plan).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let row = |stride: &str| {
            text.lines().find(|line| line.trim_start().starts_with(stride)).unwrap().to_owned()
        };
        assert!(row("2048 ").contains("6.2 %") && row("2048 ").ends_with("too small (needs 2240)"), "{text}");
        assert!(row("2304 ").contains("50.0 %"), "{text}");
        assert!(row("2368 ").contains("100.0 %"), "{text}");
        assert!(row(&report.planned_stride.to_string()).ends_with("planned"), "{text}");
    }

    #[test]
    fn a_given_stride_is_looked_at() {
        let (report, plan) = super::plan(&arguments(&format!("{CACHES} --stride 4096"))).unwrap();
        assert_eq!(report.stride, 4_096);
        let text = text(&report, &plan).unwrap();
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
        assert!(error("--stride 2048").contains("less than the 2240 bytes"));
        assert!(error("--compare 0").ends_with("such as 64"));
        assert!(error("--compare 18446744073709551552").ends_with("such as 1048576"));
        assert!(error("--room 65535 --headroom 65535").contains("131134 bytes"));
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_the_parser() {
        for line in
            ["pool --buffers 0", "pool --buffers 16777217", "pool --room 0", "pool --cache L1:32K:12:64"]
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
        assert!(json["pages"].is_string() && json["page_bytes"].is_u64());
    }
}
