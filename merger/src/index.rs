//! Adds an overview to a trace that has none, in a copy or in another file.

use std::ops::ControlFlow;
use std::path::Path;

use annals_format::{CompressionLevel, Definitions, FileKind, Footer, ReadAt as _, TraceChunk};

use crate::calls::moves::ChunkMoves;
use crate::calls::region_types::RegionTypes;
use crate::calls::statistics::{ChunkSpan, TraceCalls};
use crate::error::{MergeError, Result};
use crate::input::trace::InputTrace;
use crate::merge::output::{finish_trace, start_trace};
use crate::messages::MessageLosses;
use crate::options::ReadOptions;
use crate::overview::event_bins::{BinSource, EventBins};
use crate::overview::groups::LaneGroups;
use crate::overview::writer::OverviewWriter;
use crate::read::Reader;
use crate::trace_writer::TraceWriter;
use crate::window::Window;
use crate::workers::default_jobs;

/// Bytes that are copied in one go.
const COPIED: usize = 1 << 20;

/// How the overview of a trace is written.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IndexOptions {
    /// Whether the events are written, too: the file is a whole trace then. Otherwise it has no events, and is used together with the trace.
    /// Default: true.
    pub with_events: bool,
    /// Compression of what is written anew.
    pub compression: CompressionLevel,
    /// Threads that read and count. Default: one for each processor.
    pub jobs: usize,
    /// Whether an existing output of another kind is replaced. Default: false.
    pub force: bool,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            with_events: true,
            compression: CompressionLevel::default(),
            jobs: default_jobs(),
            force: false,
        }
    }
}

impl IndexOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a trace, and writes it with an overview. `progress` gets the number of events read so far, and can stop the work.
    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// If it cannot be read, is no trace, is a slice, or already has an overview; if it is damaged, and its events are to be written; if the
    /// output cannot be written; [`MergeError::Stopped`] if `progress` stopped it. Nothing is left under the output's name then.
    pub fn write(
        &self,
        trace: impl AsRef<Path>,
        output: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        write(trace.as_ref(), output.as_ref(), self, progress)
    }
}

fn write(
    path: &Path,
    output: &Path,
    options: &IndexOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<u64> {
    let input = InputTrace::open(path)?;
    let refused = |why| {
        let path = path.to_owned();
        Err(MergeError::NoOverview { path, why })
    };
    let trace = &input.trace;
    if trace.header.kind != FileKind::Trace {
        return refused("is a recording: only a merge of it can have an overview");
    }
    if trace.definitions.slice.is_some() {
        return refused("is a slice: put the slices together first");
    }
    if !trace.overview.is_empty() {
        return refused("has an overview already");
    }
    let end = trace.footer_offset().filter(|_| trace.problems.is_empty());
    if options.with_events && end.is_none() {
        return refused("is damaged: merge its recordings again, or use it as it is");
    }
    let mut file = TraceWriter::create(output, options.force, 1)?;
    let level = options.compression;
    let mut footer = Footer::default();
    match end.filter(|_| options.with_events) {
        Some(end) => {
            copy(&input, end, &mut file)?;
            footer.trace_chunks.clone_from(&trace.chunks);
            footer.snapshots = trace.snapshots.iter().map(|at| at.entry).collect();
            footer.statistics = trace.statistics;
        }
        None => {
            let id = trace.header.recording_id;
            start_trace(&mut file, id, &Definitions::default(), level)?;
        }
    }
    build(path, options, output, (&mut file, &mut footer), progress)?;
    match options.with_events {
        true => {
            let (totals, losses) = (&trace.totals, &trace.losses);
            finish_trace(file, &trace.definitions, footer, totals, losses, level)
        }
        // The totals say of which events it is.
        false => finish_trace(
            file,
            &Definitions::default(),
            footer,
            &trace.totals,
            &[],
            level,
        ),
    }
}

/// Copies all blocks before the footer: they stay where they are.
fn copy(input: &InputTrace, end: u64, file: &mut TraceWriter) -> Result<()> {
    let mut bytes = vec![0; COPIED];
    while file.offset() < end {
        let length = (end - file.offset()).min(COPIED as u64) as usize;
        let read = input
            .file
            .read_exact_at(file.offset(), &mut bytes[..length]);
        read.map_err(MergeError::format(&input.path))?;
        file.write(&bytes[..length])?;
    }
    Ok(())
}

/// Counts the calls, messages and values of a trace, and writes their overview. The footer gets the lists of its blocks.
fn build(
    path: &Path,
    options: &IndexOptions,
    output: &Path,
    written: (&mut TraceWriter, &mut Footer),
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let (file, footer) = written;
    let read_options = ReadOptions {
        jobs: options.jobs,
        ..ReadOptions::new()
    };
    let reader = Reader::open_with(&[path.to_owned()], read_options)?;
    let definitions = reader.definitions();
    let types = RegionTypes::of(definitions);
    let mut calls = TraceCalls::new(&types, options.jobs, Some(LaneGroups::of(definitions)))?;
    let mut overview = OverviewWriter::new(options.compression, output)?;
    let summary = reader.summary()?;
    let losses = MessageLosses::of(definitions, &summary.totals, &summary.losses);
    let source = BinSource::of(definitions, losses);
    let mut bins = EventBins::new(&source);
    let mut events = 0_u64;
    if let Some(trace) = reader.trace()
        && let Some(at) = trace.snapshots().first().filter(|at| at.before == 0)
    {
        calls.begin(&types, &trace.load_snapshot(at)?);
    }
    reader.for_each_chunk(Window::ALL, |chunk: TraceChunk| {
        let span = ChunkSpan::of(&chunk);
        bins.take(&source.extract(&chunk));
        calls.take(ChunkMoves::of_chunk(&types, &chunk), span);
        overview.take(calls.take_rows(), file)?;
        events = events.saturating_add(span.events);
        match progress(events) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MergeError::Stopped),
        }
    })?;
    calls.end(&types);
    overview.take(calls.take_rows(), file)?;
    bins.finish().write(&mut overview, file, footer)?;
    footer.overview = overview.finish(file)?;
    Ok(())
}
