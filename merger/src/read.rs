//! Reading: events, calls and losses of traces, recordings and archives, in global order.

pub(crate) mod calls;
pub(crate) mod chunk_events;
pub(crate) mod event;
pub(crate) mod places;
pub(crate) mod query;
mod slices;
pub(crate) mod trace_file;
mod work;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_format::{
    Definitions, EventTypeId, OrderedChunk, Problem, Snapshot, StreamId, StreamTotals, TraceChunk,
    TraceLoss,
};

use crate::analysis::{Analysis, Pass, SliceLength};
use crate::calls::Ending;
use crate::calls::region_types::RegionTypes;
use crate::calls::stacks::Stacks;
use crate::error::{MergeError, Result};
use crate::filter::Newest;
use crate::input::find::{RejectedInput, find};
use crate::input::recording::InputRecording;
use crate::merge::{Merge, inputs};
use crate::options::{ReadOptions, Share};
use crate::read::calls::{Call, CallVisitor, Calls};
use crate::read::event::{Batch, Event, Item, Scope};
use crate::read::query::Query;
use crate::read::trace_file::TraceFile;
use crate::read::work::Work;
use crate::report::Report;
use crate::window::Window;
use crate::workers::StopFlag;

/// Reads the events of a trace, a recording, a directory of recordings, an OTF2 archive, or of several of these, in global
/// order. Recordings are merged while they are read.
#[derive(Debug)]
pub struct Reader {
    definitions: Arc<Definitions>,
    rejected: Vec<RejectedInput>,
    content: Content,
    newest: Newest,
    work: Work,
}

#[derive(Clone, Debug)]
enum Content {
    Trace(Arc<TraceFile>),
    Recordings(Arc<Merge>),
}

/// The findings of a read: counts, losses and damage.
#[derive(Clone, Debug)]
pub struct ReadSummary {
    /// Totals of every stream.
    pub totals: Vec<StreamTotals>,
    /// Every loss.
    pub losses: Vec<TraceLoss>,
    /// Whether the input has everything: nothing was skipped or truncated, now or by an earlier merge, and no rank is missing.
    /// Drops of the recorder do not count; [`ReadSummary::losses`] has them.
    pub complete: bool,
    /// Whether this pass had to skip something that it found in the input: damage, mostly.
    pub has_skipped_now: bool,
    /// Damage that was met, with its file.
    pub damage: Vec<(PathBuf, Problem)>,
    /// The report of the merge. `None` for a trace, which is not merged.
    pub report: Option<Report>,
}

impl ReadSummary {
    /// Returns what is not whole, not there, or of another run, in words. `None`: nothing.
    pub fn gap(&self) -> Option<String> {
        match &self.report {
            Some(report) => report.gap(),
            None => {
                (!self.complete).then(|| "events of the trace were skipped or cut off".to_owned())
            }
        }
    }
}

/// The properties of a trace or a set of recordings as files.
#[derive(Clone, Debug)]
pub struct Origin {
    /// `trace`, `recordings` or `archive`.
    pub kind: &'static str,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of files.
    pub files: usize,
    /// Whether every file has its footer.
    pub has_footer: bool,
}

/// When an input begins and ends: trace times, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Before it there is no event: of a trace, the time of its first one.
    pub first_ns: i64,
    /// The time of the last event; of recordings, a time after which there is none.
    pub last_ns: i64,
    /// When the last process ends, or the last event is if that is later.
    pub end_ns: i64,
}

/// Parts that are read in addition to a window, although snapshots could replace them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reach {
    /// Read from the start of the trace: for counts that begin there.
    pub from_start: bool,
    /// Read to the end of the trace. Needed when the query takes only some streams of a location: snapshots describe whole
    /// locations.
    pub to_end: bool,
}

impl Reader {
    /// Opens a trace, a recording, a directory of recordings (or of one trace), or an OTF2 archive.
    ///
    /// # Errors
    /// If the path does not exist, or nothing in it can be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(&[path.as_ref().to_owned()], ReadOptions::new())
    }

    /// Opens several inputs as one.
    ///
    /// # Errors
    /// If a path does not exist, nothing can be read, or the filter matches nothing.
    ///
    /// # Panics
    /// If the share is none of those there are.
    pub fn open_with(paths: &[PathBuf], options: ReadOptions) -> Result<Self> {
        if let Some(Share { number, of }) = options.share {
            assert!(number < of, "share {number} of {of}, from 0");
        }
        let found = find(paths, None)?;
        let is_whole = options.share.is_none();
        if let Some(trace) = found.only_trace().filter(|_| is_whole) {
            let (mut definitions, opened) = TraceFile::open(trace)?;
            let found = options.symbols.resolve(&definitions);
            found.into_iter().for_each(|record| definitions.add(record));
            definitions.apply_symbols();
            return Ok(Self {
                definitions: Arc::new(definitions),
                rejected: Vec::new(),
                content: Content::Trace(Arc::new(opened)),
                newest: Newest::default(),
                work: Work::with(options.jobs),
            });
        }
        let has_others = !found.recordings.is_empty() || !found.foreign.is_empty();
        if is_whole && !has_others && found.traces.len() > 1 && paths.len() == 1 {
            return Err(MergeError::IsTrace {
                path: found.traces[0].clone(),
                advice: "one of several in the directory: name the one to read",
            });
        }
        let options = options.into();
        let (merge, rejected) = Merge::new(inputs::open(paths, &options)?, options)?;
        Ok(Self::of_merge(merge, rejected))
    }

    /// Reads what a merge would write. Causality is as the merge has it.
    pub(crate) fn of_merge(merge: Merge, rejected: Vec<RejectedInput>) -> Self {
        Self {
            definitions: Arc::new(merge.definitions.clone()),
            rejected,
            work: Work::with(merge.jobs()),
            content: Content::Recordings(Arc::new(merge)),
            newest: Newest::default(),
        }
    }

    /// Returns a reader of the same opened input that reads no more than this number of chunks of each stream of recordings, the newest
    /// ones, and as many older ones that have events of one of these types: the others are counted as filtered in the summary. Of a trace
    /// it reads all. Also returns, of streams of which only some chunks are read, the time from which on all of them are: trace time,
    /// nanoseconds.
    pub fn newest(
        &self,
        chunks: usize,
        types: BTreeSet<EventTypeId>,
    ) -> (Self, Vec<(StreamId, i64)>) {
        let from = match &self.content {
            Content::Trace(_) => Vec::new(),
            Content::Recordings(merge) => merge.newest_from(chunks),
        };
        let reader = Self {
            newest: Newest { chunks, types },
            ..self.stopped_by(&self.work.stop)
        };
        (reader, from)
    }

    /// Returns a reader of the same opened input whose reads end when the flag says so, with [`MergeError::Stopped`].
    pub fn stopped_by(&self, stop: &StopFlag) -> Self {
        Self {
            definitions: Arc::clone(&self.definitions),
            rejected: self.rejected.clone(),
            content: self.content.clone(),
            newest: self.newest.clone(),
            work: Work {
                stop: stop.clone(),
                ..self.work.clone()
            },
        }
    }

    /// Returns the number of chunks that were decoded so far, by this reader and all that were made of it.
    pub fn decoded_chunks(&self) -> u64 {
        self.work.decoded.load(Ordering::Relaxed)
    }

    /// Returns the definitions: processes, ranks, sources, locations, event types, regions and
    /// their names.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Inputs that could not be used, with the reason.
    pub fn rejected(&self) -> &[RejectedInput] {
        &self.rejected
    }

    /// Visits events and losses in global order. The callback stops the pass with [`ControlFlow::Break`].
    ///
    /// A loss is visited between the events it lies between. What cannot be decoded is skipped, and counted in the summary.
    /// Returns `None` if the callback stopped.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn for_each_item(
        &self,
        query: &Query,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<Option<ReadSummary>> {
        let scope = Arc::new(Scope::new(&self.definitions, query));
        let visited = self.for_each_chunk(query.window(), |chunk| {
            match Batch::new(chunk, &scope).visit(&mut visit) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(MergeError::Stopped),
            }
        });
        stopped_or(visited)
    }

    /// Visits events in global order. The callback stops the pass with [`ControlFlow::Break`].
    ///
    /// Losses are in the summary; [`Reader::for_each_item`] visits them at their place. Returns `None` if the callback stopped.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn for_each_event(
        &self,
        query: &Query,
        mut visit: impl FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> Result<Option<ReadSummary>> {
        self.for_each_item(query, |item| match item {
            Item::Event(event) => visit(&event),
            Item::Loss(_) => ControlFlow::Continue(()),
        })
    }

    /// Runs an analysis of what a query chooses, with several threads. Each slice of the trace gets a state from `new`, called with
    /// the slice's number from 0; the states of later slices are [merged](Analysis::merge) into that of the first. A call
    /// that is open where a slice begins is [resumed](Analysis::resume) there.
    ///
    /// Slices follow from the trace's chunks alone: the result does not depend on the number of threads. Recordings, which are
    /// merged while they are read, are one slice.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn run<A: Analysis + Send>(
        &self,
        query: &Query,
        new: impl Fn(usize) -> A + Sync,
    ) -> Result<(A, ReadSummary)> {
        if const { matches!(A::PASS, Pass::Events) } {
            return self.run_events(query, new);
        }
        let mut calls = Calls::new(&self.definitions, query);
        match &self.content {
            Content::Trace(opened) if A::SLICES != SliceLength::Whole => {
                opened.run_calls(&calls, &self.definitions, &self.work, new)
            }
            _ => {
                let mut state = new(0);
                let summary = calls.run(self, &mut state)?;
                Ok((state, summary))
            }
        }
    }

    fn run_events<A: Analysis + Send>(
        &self,
        query: &Query,
        new: impl Fn(usize) -> A + Sync,
    ) -> Result<(A, ReadSummary)> {
        let scope = Arc::new(Scope::new(&self.definitions, query));
        let add = |state: &mut A, chunk: OrderedChunk| {
            let visit = |item: Item<'_>| {
                match item {
                    Item::Event(event) => state.event(&event),
                    Item::Loss(loss) => state.loss(loss),
                }
                ControlFlow::Continue(())
            };
            let _ = Batch::new(chunk, &scope).visit(visit);
        };
        match &self.content {
            Content::Trace(opened) if A::SLICES != SliceLength::Whole => {
                opened.run_chunks(query.window(), &self.work, new, add)
            }
            _ => {
                let mut state = new(0);
                let summary = self.for_each_chunk(query.window(), |chunk| {
                    add(&mut state, chunk);
                    Ok(())
                })?;
                Ok((state, summary))
            }
        }
    }

    /// Visits the calls that overlap the query's window, in the order of their ends. [`Call::how`] says whether a call was left: one
    /// that is still open ends with the window or with the events of its location, and is then shorter than it was. The callback stops the pass with [`ControlFlow::Break`]. Returns `None` if the callback stopped.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn for_each_call<'r>(
        &'r self,
        query: &Query,
        visit: impl FnMut(&Call<'r>) -> ControlFlow<()>,
    ) -> Result<Option<ReadSummary>> {
        let mut calls = Calls::new(&self.definitions, query);
        let mut visitor = CallVisitor::new(&self.definitions, query, calls.locations(), visit);
        let visited = calls.read(self, &mut visitor, |_, visitor| match visitor.has_stopped {
            true => Err(MergeError::Stopped),
            false => Ok(()),
        });
        stopped_or(visited)
    }

    /// Visits what is needed to follow region calls in a window: `begin` gets the regions that are open before it, `consume` the
    /// chunks after that. Of a trace with snapshots only the chunks of the window are read, otherwise all from the start to the
    /// end. Returns the last snapshot, too, if not all chunks to the end were read: its times show which locations have
    /// events after the window. Only streams for which `is_needed` returns true have to be decoded.
    fn read_regions<C: From<TraceChunk> + Send>(
        &self,
        is_needed: impl Fn(StreamId) -> bool + Sync,
        window: Window,
        reach: Reach,
        begin: impl FnOnce(&Snapshot),
        consume: impl FnMut(C) -> Result<()>,
    ) -> Result<(ReadSummary, Option<Snapshot>)> {
        match &self.content {
            Content::Trace(opened) => {
                opened.read_regions(window, reach, is_needed, &self.work, begin, consume)
            }
            Content::Recordings(_) => {
                begin(&Snapshot::default());
                Ok((self.for_each_chunk(Window::ALL, consume)?, None))
            }
        }
    }

    /// Returns the regions that are open at a time.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn open_at(&self, time_ns: i64) -> Result<Snapshot> {
        let types = RegionTypes::of(&self.definitions);
        let stacks = std::cell::RefCell::new(Stacks::new(&types, false));
        let at = Window {
            from_ns: time_ns,
            to_ns: time_ns,
        };
        let begin = |open: &Snapshot| stacks.borrow_mut().follow(&types, open);
        if time_ns != i64::MIN {
            self.read_regions(
                |_| true,
                at,
                Reach::default(),
                begin,
                |chunk: TraceChunk| {
                    stacks.borrow_mut().take_until(&types, &chunk, time_ns);
                    Ok(())
                },
            )?;
        }
        let mut open = stacks.into_inner().snapshot(&types);
        // What is open when a location ends lasts until then.
        open.locations
            .retain(|state| Ending::of(&self.definitions, state.location).is_after(time_ns));
        Ok(open)
    }

    /// Returns what only a trace has. `None` of recordings and archives.
    pub fn trace(&self) -> Option<&TraceFile> {
        match &self.content {
            Content::Trace(opened) => Some(opened),
            Content::Recordings(_) => None,
        }
    }

    /// Returns the number of events in chunks that begin before a time; for recordings of all
    /// chunks, since all are read anyway.
    pub fn events_before(&self, time_ns: i64) -> u64 {
        match &self.content {
            Content::Trace(opened) => {
                let chunks = opened.trace.chunks.iter();
                let before = chunks.filter(|entry| entry.first_ns < time_ns);
                before.fold(0, |sum: u64, entry| sum.saturating_add(entry.event_count))
            }
            Content::Recordings(merge) => merge.expected_events(),
        }
    }

    /// Returns when it begins and ends.
    pub fn extent(&self) -> Extent {
        let end_ns = self.definitions.time_zero.map_or(0, |zero| zero.end_ns);
        match &self.content {
            Content::Trace(opened) => {
                let chunks = &opened.trace.chunks;
                let mut with_events = chunks.iter().rev().filter(|chunk| chunk.event_count != 0);
                Extent {
                    first_ns: chunks.first().map_or(0, |first| first.first_ns),
                    last_ns: with_events.next().map_or(0, |last| last.last_ns),
                    end_ns: chunks
                        .last()
                        .map_or(end_ns, |last| last.last_ns.max(end_ns)),
                }
            }
            Content::Recordings(_) => Extent {
                first_ns: i64::MIN,
                last_ns: i64::MAX,
                end_ns,
            },
        }
    }

    /// Returns what it is, as a file.
    pub fn origin(&self) -> Origin {
        match &self.content {
            Content::Trace(opened) => Origin {
                kind: "trace",
                bytes: opened.bytes,
                files: 1,
                has_footer: opened.trace.has_footer,
            },
            Content::Recordings(merge) => Origin {
                kind: match merge.inputs().all(InputRecording::is_converted) {
                    true => "archive",
                    false => "recordings",
                },
                bytes: merge.input_bytes(),
                files: merge.inputs().count(),
                has_footer: merge.inputs().all(|input| input.recording.has_footer),
            },
        }
    }

    /// Returns totals and losses, without reading the events if the footer contains them.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn summary(&self) -> Result<ReadSummary> {
        match &self.content {
            Content::Trace(opened) => Ok(opened.outcome()),
            Content::Recordings(_) => self.for_each_chunk(Window::ALL, |_: TraceChunk| Ok(())),
        }
    }

    /// Visits the chunks that may hold events of a window, in order, with all their columns: as they are, stream by stream
    /// ([`TraceChunk`]), or with their global order ([`annals_format::OrderedChunk`]). What cannot be decoded is skipped and counted.
    ///
    /// # Errors
    /// Those of `consume`; if the storage fails.
    pub fn for_each_chunk<C: From<TraceChunk> + Send>(
        &self,
        window: Window,
        mut consume: impl FnMut(C) -> Result<()>,
    ) -> Result<ReadSummary> {
        self.visit_chunks(window, &mut consume)
    }

    /// Does what [`Reader::for_each_chunk`] says, compiled once for all callers: a call for each chunk costs nothing.
    fn visit_chunks<C: From<TraceChunk> + Send>(
        &self,
        window: Window,
        consume: &mut dyn FnMut(C) -> Result<()>,
    ) -> Result<ReadSummary> {
        match &self.content {
            Content::Trace(opened) => {
                let chunks = opened.trace.chunks.iter();
                let wanted = chunks.filter(|entry| window.overlaps(entry.first_ns, entry.last_ns));
                opened.read(wanted.collect(), &|_| true, &self.work, consume)
            }
            Content::Recordings(merge) => {
                let prepare = |chunk: TraceChunk| {
                    let span_ns = chunk.span_ns();
                    let is_wanted =
                        span_ns.is_none_or(|(first, last)| window.overlaps(first, last));
                    is_wanted.then(|| C::from(chunk))
                };
                let merged = merge.run(&self.newest, &prepare, &mut |chunk| {
                    self.work.stop.check()?;
                    self.work.count();
                    chunk.map_or(Ok(()), &mut *consume)
                })?;
                let mut report = merged.report;
                report.reject(self.rejected.clone());
                let damage = merge.inputs().flat_map(|input| {
                    let problems = input.recording.problems.iter();
                    problems.map(|problem| (input.path.clone(), problem.clone()))
                });
                let damage: Vec<_> = damage.chain(merged.damage).collect();
                let has_reader_loss = merged.losses.iter().any(|loss| !loss.cause.is_dropped());
                Ok(ReadSummary {
                    complete: report.complete,
                    has_skipped_now: has_reader_loss
                        || !damage.is_empty()
                        || !self.rejected.is_empty()
                        || report.inputs.iter().any(|input| {
                            input.unplaced != 0 || input.ended == annals_format::Ended::Truncated
                        }),
                    damage,
                    totals: merged.totals,
                    losses: merged.losses,
                    report: Some(report),
                })
            }
        }
    }
}

/// Returns `None` if the pass was stopped by its callback.
fn stopped_or(visited: Result<ReadSummary>) -> Result<Option<ReadSummary>> {
    match visited {
        Ok(summary) => Ok(Some(summary)),
        Err(MergeError::Stopped) => Ok(None),
        Err(error) => Err(error),
    }
}
