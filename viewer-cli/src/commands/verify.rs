//! `trace-cli verify`: whether a trace holds what its footer says, and what its inputs hold.

use std::io::Write;
use std::path::PathBuf;

use annals_merger::{ClockOffsets, Mismatch, Verification, VerifyOptions, no_progress};
use clap::Args;

use crate::output::{self, Finding};
use crate::table::safe;
use crate::views::numbered;

/// Checks every event of a trace against its counts, hashes and inputs.
///
/// Reads everything. A trace proves, stream by stream, that it has all the events that the merge read, in their order;
/// with the recordings as further arguments, that the events are theirs. For recordings, only the counts are checked.
/// Exit code 0 when all holds and nothing was lost, 3 when it holds and something was lost or a file is damaged, 1 when
/// it does not hold.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// A trace, a recording, or a directory of recordings
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// The recordings that the trace was merged from, or directories of them
    #[arg(value_name = "RECORDING")]
    recordings: Vec<PathBuf>,

    /// Offsets between hosts, the file that was given to trace-merge
    #[arg(long, value_name = "FILE")]
    clock_offsets: Option<PathBuf>,

    /// Results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &VerifyArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let offsets = arguments.clock_offsets.as_deref();
    let offsets = offsets.map(ClockOffsets::read).transpose()?;
    let mut options = VerifyOptions::new();
    options.recordings = arguments.recordings.clone();
    options.clock_offsets = offsets;
    let found = options.verify(&arguments.input, no_progress)?;
    if arguments.json {
        output::json(out, &found)?;
    } else {
        print(&found, out)?;
    }
    Ok(Finding {
        has_loss: found.has_loss() || !found.damage.is_empty(),
        has_failed: !found.holds(),
        ..Finding::FINE
    })
}

fn print(found: &Verification, out: &mut dyn Write) -> anyhow::Result<()> {
    for damage in &found.damage {
        writeln!(out, "damaged: byte {}: {}", damage.offset, damage.what)?;
    }
    for mismatch in &found.mismatches {
        writeln!(out, "DOES NOT HOLD: {}", describe(mismatch))?;
    }
    write!(
        out,
        "{}: {} in {}; order hash of {} checked",
        found.kind,
        numbered(found.events, "event"),
        numbered(found.streams, "stream"),
        numbered(found.proved_streams, "stream")
    )?;
    if let Some(inputs) = found.compared_inputs {
        write!(out, "; compared with {}", numbered(inputs, "recording"))?;
    }
    let verdict = match (found.holds(), found.has_loss()) {
        (false, _) => "it does not hold",
        (true, true) if found.has_lost_events() => {
            "it holds; events were lost, see `trace-cli dropped`"
        }
        (true, true) => {
            "it holds; a rank is missing, or an input ended early, see `trace-cli info`"
        }
        (true, false) if !found.damage.is_empty() => {
            "it holds, and no event is lost, but there is damage"
        }
        (true, false) => "it holds, and nothing is lost",
    };
    writeln!(out, "; {verdict}")?;
    Ok(())
}

fn describe(mismatch: &Mismatch) -> String {
    let rank = mismatch.rank.map(|rank| format!("rank {rank}"));
    let names = [&mismatch.source, &mismatch.location];
    let names = names.into_iter().flatten().map(|name| safe(name));
    let place: Vec<String> = rank.into_iter().chain(names).collect();
    let place = if place.is_empty() {
        String::new()
    } else {
        format!("{}: ", place.join(", "))
    };
    format!(
        "{place}{}: expected {}, found {}",
        safe(&mismatch.what),
        mismatch.expected,
        mismatch.found
    )
}
