//! `trace-cli recover`: one clean recording out of what a killed process left.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use annals_format::{CompressionLevel, Ended};
use annals_merger::{InputRecording, MergeError, Symbols, find, recover};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::output::Finding;
use crate::table::safe;
use crate::views::numbered;

/// Folds the live files of killed processes into their recordings.
///
/// Each recording is then complete and has its footer; its live file is removed. Events, counts and losses are the same
/// as before, when readers read both files. Chunks that a recorder stored as rows (`record --compression later`, `none`) are
/// compressed, without --output also those of complete recordings; other complete recordings are not changed, nor are those
/// of processes that still run. A live file is only removed if the result, read back, has every event that was raised and not
/// dropped: otherwise, without --output, both files stay unchanged. Exit code 3 when a recording ends early and has no live file, or when a part cannot be read; 1 when a recording
/// could not be compressed, and is as it was. Chunks that a footer lists are only read if there are rows to compress: `verify`
/// checks them.
#[derive(Clone, Debug, Args)]
pub struct RecoverArguments {
    /// Recordings, or directories with recordings
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// Write the recordings to this directory, and leave the original recordings and live files
    /// unchanged
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Results as JSON, a line for each recording
    #[arg(long)]
    json: bool,
}

/// The result for one recording.
#[derive(Debug, Serialize)]
struct Line {
    /// Its file.
    path: PathBuf,
    /// `recovered`, `whole`, `compressed`, `running`, `truncated`, `incomplete` or `unreadable`.
    state: &'static str,
    /// The recording that was written.
    output: Option<PathBuf>,
    /// Events that were in the live file only.
    events: u64,
    /// Its problem.
    why: Option<String>,
    /// Whether the recording itself is damaged.
    #[serde(skip)]
    is_damaged: bool,
    /// Whether it should have been compressed, and could not be.
    #[serde(skip)]
    is_not_compressed: bool,
}

/// Runs the command.
///
/// # Errors
/// If an input does not exist, or a recording cannot be written.
pub fn run(arguments: &RecoverArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let found = find(&arguments.inputs, None)?;
    let (mut has_loss, mut has_failed) = (false, false);
    let unreadable = found.rejected.into_iter();
    let mut lines: Vec<Line> = unreadable
        .map(|input| Line {
            path: input.path,
            state: "unreadable",
            output: None,
            events: 0,
            why: Some(input.why),
            is_damaged: false,
            is_not_compressed: false,
        })
        .collect();
    for path in found.recordings {
        lines.push(recover_one(path, arguments)?);
    }
    for line in lines {
        has_loss |= line.is_damaged;
        has_failed |= line.is_not_compressed;
        has_loss |= matches!(line.state, "truncated" | "incomplete" | "unreadable");
        if arguments.json {
            serde_json::to_writer(&mut *out, &line)?;
            writeln!(out)?;
        } else {
            let path = line.path.display().to_string();
            write!(out, "{}: {}", safe(&path), line.state)?;
            if line.output.is_some() {
                write!(
                    out,
                    ", with {} of its live file",
                    numbered(line.events, "event")
                )?;
            }
            match line.why {
                Some(why) => writeln!(out, ": {}", safe(&why))?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(Finding {
        has_loss,
        has_failed: has_failed && !has_loss,
        ..Finding::FINE
    })
}

fn recover_one(path: PathBuf, arguments: &RecoverArguments) -> anyhow::Result<Line> {
    let mut line = Line {
        path,
        state: "whole",
        output: None,
        events: 0,
        why: None,
        is_damaged: false,
        is_not_compressed: false,
    };
    let mut input = match InputRecording::open(&line.path) {
        Ok(input) => input,
        Err(error) => {
            line.state = "unreadable";
            line.why = Some(error.without_path());
            return Ok(line);
        }
    };
    if let Err(error) = input.check_has_process() {
        line.state = match input.recording.ended {
            Ended::Running => "running",
            _ => "unreadable",
        };
        line.why = Some(error.without_path());
        return Ok(line);
    }
    if let Some(problem) = input.recording.damage().next() {
        line.is_damaged = true;
        line.why = Some(format!(
            "damaged at byte {}, {}: {}",
            problem.offset,
            numbered(problem.length, "byte"),
            problem.what
        ));
    }
    if input.live_path.is_some() {
        // The program may not be there any more when the recording is read.
        let definitions = Arc::make_mut(&mut input.recording.definitions);
        Symbols::of_host().name_functions(definitions);
    }
    let recovered = match recover(&input, arguments.output.as_deref()) {
        Err(error @ MergeError::LiveFileUnread { .. }) => {
            line.state = "incomplete";
            line.why = Some(format!("{error}; --output DIR writes what can be read"));
            return Ok(line);
        }
        outcome => outcome?,
    };
    match recovered {
        Some(recovered) => {
            line.state = "recovered";
            if let Some(what) = recovered.missing {
                line.state = "incomplete";
                line.why = Some(format!("the recording and its live file have {what}"));
            }
            line.events = recovered.events;
            line.output = Some(recovered.path);
        }
        None if input.recording.ended == Ended::Running => line.state = "running",
        None if !input.recording.has_footer => line.state = "truncated",
        None => {}
    }
    compress_rows(&mut line, arguments);
    Ok(line)
}

/// Compresses what a recorder stored as rows, of a recording that is whole now. If that fails, the recording stays as it is.
fn compress_rows(line: &mut Line, arguments: &RecoverArguments) {
    let path = match &line.output {
        Some(output) => output,
        // The original recordings stay.
        None if arguments.output.is_some() => return,
        None => &line.path,
    };
    let level = CompressionLevel::default();
    let compressed = InputRecording::open(path)
        .and_then(|input| annals_merger::compress(&input, level, |_| ControlFlow::Continue(())));
    match compressed {
        Ok(Some(_)) if line.state == "whole" => line.state = "compressed",
        Ok(_) => {}
        Err(error) => {
            line.is_damaged |= matches!(error, MergeError::Format { .. });
            line.is_not_compressed = true;
            let why = format!("not compressed: {}", error.without_path());
            line.why.get_or_insert(why);
        }
    }
}
