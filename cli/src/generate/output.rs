//! Where results go.

use super::progress::Progress;
use crate::messages;
use anyhow::Context as _;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub(super) struct OutputFlags {
    /// Print the result as one JSON object on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file too.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Print no progress line.
    #[arg(long)]
    quiet: bool,
}

/// For commands whose result can be shown as a page, too.
#[derive(clap::Args, Debug)]
pub(super) struct ResultFlags {
    #[command(flatten)]
    pub(super) output: OutputFlags,
    /// Write a self-contained HTML page with tables and plots to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl OutputFlags {
    /// Whether a person is told how far it is.
    pub(super) const fn shows_progress(&self) -> bool {
        !self.quiet && !self.json
    }

    /// The progress line, shown or not.
    pub(super) fn progress(&self) -> Progress {
        Progress::new(self.shows_progress())
    }

    /// Prints and writes a result.
    pub(super) fn deliver(
        &self,
        result: &impl serde::Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.result {
            let text = serde_json::to_string_pretty(result)?;
            std::fs::write(path, text)
                .with_context(|| format!("cannot write the result to {}", path.display()))?;
        }
        if self.json {
            messages::print(format_args!("{}\n", serde_json::to_string(result)?))?;
        } else {
            messages::print(text())?;
        }
        Ok(())
    }
}

impl ResultFlags {
    /// Writes the page, if one was asked for.
    pub(super) fn write_page(&self, page: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        std::fs::write(path, page()?)
            .with_context(|| format!("cannot write the report to {}", path.display()))
    }
}
