//! Slices of one merge, put together: their chunks are copied as they are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, CompressionLevel, Definitions, Footer, OrderHash, RecordingId, Slice, StreamId,
    StreamTotals, TraceIndexEntry, TraceLoss, read_stored_trace_chunk,
};

use crate::axis::proof::SortedStreams;
use crate::calls::region_types::RegionTypes;
use crate::calls::snapshots::SnapshotWriter;
use crate::error::{MergeError, Result};
use crate::input::trace::InputTrace;
use crate::merge::output::{finish_trace, start_trace};
use crate::report::{Sums, is_complete};
use crate::trace_writer::TraceWriter;
use crate::window::SliceNumber;

/// The result of a join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Totals of every stream.
    pub totals: Vec<StreamTotals>,
    /// Every loss, in the order of the trace.
    pub losses: Vec<TraceLoss>,
    /// Sums over all streams.
    pub sums: Sums,
    /// Slices.
    pub slices: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Whether nothing was skipped or truncated and no rank is missing.
    pub complete: bool,
}

fn refuse(input: &InputTrace, why: impl Into<String>) -> MergeError {
    MergeError::NoJoin {
        path: input.path.clone(),
        why: why.into(),
    }
}

fn open_slice(path: &Path) -> Result<(Slice, InputTrace)> {
    let input = InputTrace::open(path)?;
    if !input.trace.has_footer || !input.trace.problems.is_empty() {
        return Err(refuse(
            &input,
            "this slice is damaged or was not finished: write it again",
        ));
    }
    let Some(slice) = input.trace.definitions.slice else {
        return Err(refuse(&input, "this is no slice, but a whole trace"));
    };
    Ok((slice, input))
}

/// Checks that a file is the slice of a number, and that each chunk of it is whole: it need not be written again. `progress`
/// gets the number of events checked so far, and can stop the work.
///
/// # Errors
/// If it cannot be read, is damaged, or is another slice; [`MergeError::Stopped`] if `progress` stopped it.
pub fn check_slice(
    path: &Path,
    expected: SliceNumber,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let (slice, input) = open_slice(path)?;
    if (slice.number, slice.of) != (expected.number, expected.of) {
        let why = format!("this is slice {} of {}", slice.number, slice.of);
        return Err(refuse(&input, why));
    }
    let format = MergeError::format(path);
    for snapshot in &input.trace.snapshots {
        let loaded = input.trace.load_snapshot(&input.file, snapshot);
        loaded.map_err(format)?;
    }
    let mut events = 0_u64;
    for entry in &input.trace.chunks {
        read_stored_trace_chunk(&input.file, entry.offset).map_err(format)?;
        events = events.saturating_add(entry.event_count);
        if progress(events).is_break() {
            return Err(MergeError::Stopped);
        }
    }
    Ok(())
}

/// A slice. Its definitions are those of all: they may be hundreds of megabytes, and are kept once.
struct Opened {
    slice: Slice,
    input: InputTrace,
    /// It is of the same merge as the first that was opened.
    is_alike: bool,
}

/// Opens slices and brings them into their order. Returns their definitions, too.
fn in_order(paths: &[PathBuf]) -> Result<(Vec<Opened>, Definitions)> {
    let mut of_all: Option<(RecordingId, Definitions)> = None;
    let mut slices = Vec::with_capacity(paths.len());
    for path in paths {
        let (slice, mut input) = open_slice(path)?;
        let mut definitions = std::mem::take(&mut input.trace.definitions);
        definitions.slice = None;
        let id = input.trace.header.recording_id;
        let is_alike = match &of_all {
            Some(first) => first.0 == id && first.1 == definitions,
            None => {
                of_all = Some((id, definitions));
                true
            }
        };
        slices.push(Opened {
            slice,
            input,
            is_alike,
        });
    }
    slices.sort_by_key(|opened| opened.slice.number);
    Ok((slices, of_all.map(|first| first.1).unwrap_or_default()))
}

fn check(slices: &[Opened], first: &Path) -> Result<()> {
    let mut end_ns = None;
    let of = slices[0].slice.of;
    for (expected, opened) in (1..).zip(slices) {
        let Opened { slice, input, .. } = opened;
        if !opened.is_alike || slice.of != of {
            let why = format!("this is a slice of another merge than {}", first.display());
            return Err(refuse(input, why));
        }
        if slice.number < expected {
            return Err(refuse(
                input,
                format!("slice {} is there twice", slice.number),
            ));
        }
        if slice.number > expected {
            let why = format!(
                "slice {expected} of {} is missing before this one",
                slice.of
            );
            return Err(refuse(input, why));
        }
        if slice.from_ns != end_ns {
            let why =
                "this slice does not begin where the one before ends: write both with one plan";
            return Err(refuse(input, why));
        }
        end_ns = slice.to_ns;
    }
    let last = slices.last();
    if let Some(last) = last.filter(|last| last.slice.number < last.slice.of) {
        let (number, of) = (last.slice.number + 1, last.slice.of);
        return Err(refuse(
            &last.input,
            format!("slice {number} of {of} is missing after this one"),
        ));
    }
    Ok(())
}

/// Returns the totals of all slices: each counts what is in it, and everything else as it is in the
/// whole.
fn sum(slices: &[Opened], definitions: &Definitions) -> Vec<StreamTotals> {
    let sorted = SortedStreams::of(definitions);
    let mut sums: BTreeMap<StreamId, (StreamTotals, OrderHash)> = BTreeMap::new();
    for Opened { input, .. } in slices {
        for totals in &input.trace.totals {
            let present = totals.rows.iter().map(|row| row.present());
            let present = present.fold(0, u64::wrapping_add);
            let events = if sorted.has(totals.stream) {
                0
            } else {
                present
            };
            let run = OrderHash::of_value(totals.order_hash.unwrap_or(0), events);
            let known = sums.entry(totals.stream);
            let (sum, hash) = known.or_insert_with(|| {
                let mut sum = totals.clone();
                for row in &mut sum.rows {
                    (row.skipped, row.truncated, row.filtered) = (0, 0, row.recorded);
                }
                (sum, OrderHash::default())
            });
            *hash = hash.then(run);
            for row in &totals.rows {
                let to = sum.row(row.event_type);
                to.skipped = to.skipped.saturating_add(row.skipped);
                to.truncated = to.truncated.saturating_add(row.truncated);
                let here = row.present().saturating_add(row.skipped);
                let here = here.saturating_add(row.truncated);
                to.filtered = to.filtered.saturating_sub(here);
            }
        }
    }
    let sums = sums.into_values().map(|(totals, hash)| StreamTotals {
        order_hash: Some(hash.value()),
        ..totals
    });
    sums.collect()
}

/// How slices are put together.
#[derive(Clone, Copy, Default, Debug)]
#[non_exhaustive]
pub struct JoinOptions {
    /// Compression of what is written anew: definitions, totals and index. Chunks stay as they are.
    pub compression: CompressionLevel,
    /// Whether an existing output of another kind is replaced. Default: false.
    pub force: bool,
}

impl JoinOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the slices of a merge together: the trace that it would have written in one go, but for where chunks end. `progress`
    /// gets the number of events written so far, and can stop the work.
    ///
    /// # Errors
    /// If a slice is missing, there twice, damaged or of another merge; if the output cannot be written;
    /// [`MergeError::Stopped`] if `progress` stopped it. Nothing is left under the output's name then.
    pub fn join(
        &self,
        paths: &[PathBuf],
        output: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Joined> {
        join(paths, output.as_ref(), self, progress)
    }
}

fn join(
    paths: &[PathBuf],
    output: &Path,
    options: &JoinOptions,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Joined> {
    let level = options.compression;
    let (slices, definitions) = in_order(paths)?;
    let (Some(first), Some(first_path)) = (slices.first(), paths.first()) else {
        let path = output.to_owned();
        return Err(MergeError::NoRecordings { path });
    };
    check(&slices, first_path)?;
    let mut file = TraceWriter::create(output, options.force, 1)?;
    start_trace(
        &mut file,
        first.input.trace.header.recording_id,
        &definitions,
        level,
    )?;
    let mut index: Vec<TraceIndexEntry> = Vec::new();
    let types = RegionTypes::of(&definitions);
    let mut snapshots = SnapshotWriter::new(&types, &definitions, level, output)?;
    let (mut events, mut losses) = (0_u64, Vec::new());
    let (mut head, mut block) = (Vec::new(), Vec::new());
    for Opened { input, .. } in &slices {
        let format = MergeError::format(&input.path);
        let mut of_slice = input.trace.snapshots.iter().peekable();
        let mut load = |before: usize| {
            let at = of_slice.next_if(|at| at.before == before);
            at.map(|at| input.trace.load_snapshot(&input.file, at))
                .transpose()
        };
        for (number, entry) in input.trace.chunks.iter().enumerate() {
            if let Some(snapshot) = load(number).map_err(format)? {
                snapshots.within(index.len() as u64, &snapshot, &mut file)?;
            }
            let mut chunk = read_stored_trace_chunk(&input.file, entry.offset).map_err(format)?;
            chunk.header.sequence = index.len() as u64;
            head.clear();
            chunk.header.encode(&mut head);
            block.clear();
            chunk
                .body
                .put_block(BlockKind::TraceChunk, &head, &mut block);
            index.push(TraceIndexEntry::new(file.offset(), &chunk.header));
            file.write(&block)?;
            events = events.saturating_add(chunk.header.event_count);
            if progress(events).is_break() {
                return Err(MergeError::Stopped);
            }
        }
        match load(input.trace.chunks.len()).map_err(format)? {
            Some(snapshot) => {
                snapshots.follow(&snapshot);
                snapshots.before_chunk(index.len() as u64, &mut file)?;
            }
            None => snapshots.lose(),
        }
        losses.extend_from_slice(&input.trace.losses);
    }
    let totals = sum(&slices, &definitions);
    let complete = is_complete(&definitions, &totals, &losses);
    let snapshots = snapshots.finish(index.len() as u64, None, &mut file)?;
    let bytes = finish_trace(
        file,
        &definitions,
        Footer {
            trace_chunks: index,
            snapshots,
            // Those of the slices do not know of calls that go on from one to the next.
            statistics: None,
            ..Footer::default()
        },
        &totals,
        &losses,
        level,
    )?;
    Ok(Joined {
        sums: Sums::of(&totals),
        slices: slices.len(),
        totals,
        losses,
        bytes,
        complete,
    })
}
