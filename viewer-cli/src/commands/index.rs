//! `trace-cli index`: adds an overview to a trace.

use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;

use annals_merger::{IndexOptions, Reader};
use clap::Args;
use serde::Serialize;

use super::export::progress;
use super::useful_jobs;
use crate::file::ForceArgument;
use crate::output::{self, Finding};
use crate::table::safe;
use crate::time;

/// Writes a trace with an overview, from which `serve` shows any part of it quickly.
///
/// The overview has values of spans of time: how many calls end in each, how long calls take there, the region with the most time, the
/// longest call; how many messages pairs of ranks exchange; and what values metrics have. Everything else stays as it is. `trace-merge --index` writes traces that have one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli index run.annals -o indexed.annals")]
pub struct IndexArguments {
    /// A trace without an overview
    #[arg(value_name = "TRACE")]
    input: PathBuf,

    /// File for the trace with an overview
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Threads that read and count [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Results as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    force: ForceArgument,
}

#[derive(Serialize)]
struct IndexOut<'a> {
    path: &'a str,
    bytes: u64,
    /// Bytes of the overview.
    overview_bytes: u64,
}

/// Runs the command.
///
/// # Errors
/// If the trace cannot be read, is damaged, is a slice or has an overview already, or if the output cannot be written.
pub fn run(arguments: &IndexArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let reader = Reader::open(&arguments.input)?;
    let mut options = IndexOptions::new();
    options.force = arguments.force.force;
    if let Some(jobs) = arguments.jobs {
        options.jobs = useful_jobs(jobs.get());
    }
    let bar = progress(reader.events_before(i64::MAX), arguments.json);
    let before = reader.origin().bytes;
    let written = options.write(&arguments.input, &arguments.output, |events| {
        bar.set_position(events);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let bytes = written?;
    let path = safe(&arguments.output.display().to_string());
    let overview_bytes = bytes.saturating_sub(before);
    if arguments.json {
        let found = IndexOut {
            path: &path,
            bytes,
            overview_bytes,
        };
        output::json(out, &found)?;
    } else {
        let (all, overview) = (time::bytes(bytes), time::bytes(overview_bytes));
        writeln!(out, "{path}: {all}, of which {overview} are the overview")?;
    }
    Ok(Finding::FINE)
}
