//! Opening whatever a user names: a trace, a recording, a directory of recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use annals_format::{
    Cause, Definitions, EventTypeId, FileKind, FormatError, Problem, ReadAt, RegionStatistics,
    Snapshot, StreamId, StreamTotals, Trace, TraceChunk, TraceIndexEntry, TraceLoss, TraceSnapshot,
};

use crate::ahead;
use crate::calls::region_types::RegionTypes;
use crate::calls::stacks::Stacks;
use crate::clocks::offsets::ClockOffsets;
use crate::error::{MergeError, Result};
use crate::input::earlier::InputTrace;
use crate::input::symbols::Symbols;
use crate::input::{FileAt, Found, InputRecording, RejectedInput, find, header_of, kind_of};
use crate::merge::Merge;
use crate::messages::causality::Causality;
use crate::report::{Report, is_complete};
use crate::window::Window;

/// Something with events, in global order.
#[derive(Debug)]
pub struct Opened {
    /// Definitions.
    pub definitions: Definitions,
    /// Inputs that could not be used.
    pub rejected: Vec<RejectedInput>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Trace(Box<OpenedTrace>),
    Recordings(Box<Merge>),
}

#[derive(Debug)]
struct OpenedTrace {
    path: PathBuf,
    file: FileAt,
    bytes: u64,
    /// What the definitions and losses say.
    is_complete: bool,
    /// All of it but the definitions.
    trace: Trace,
}

/// What reading the events showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Totals of every stream.
    pub totals: Vec<StreamTotals>,
    /// Every loss.
    pub losses: Vec<TraceLoss>,
    /// Whether nothing was skipped or truncated and no rank is missing.
    pub complete: bool,
    /// Whether this very read had to skip something.
    pub has_skipped_now: bool,
    /// Damage met, with the file it is in.
    pub damage: Vec<(PathBuf, Problem)>,
    /// The report of the merge, when recordings were merged to be read.
    pub report: Option<Report>,
}

/// What a trace or a set of recordings is, as a file.
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

/// What must be read beside a window, though snapshots would do without it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reach {
    /// All before it: for who counts from the beginning.
    pub from_start: bool,
    /// All behind it: for who looks at some streams of a location only, of which snapshots do not tell.
    pub to_end: bool,
}

/// Opens recordings; those that cannot be used come back as rejected.
///
/// # Errors
/// If none of them can be used.
pub fn open_recordings(paths: &[PathBuf]) -> Result<(Vec<InputRecording>, Vec<RejectedInput>)> {
    open_each(paths, |input| input.check_has_process())
}

/// The same, with something done to each at once.
fn open_each(
    paths: &[PathBuf],
    mut each: impl FnMut(&mut InputRecording) -> Result<()>,
) -> Result<(Vec<InputRecording>, Vec<RejectedInput>)> {
    let mut inputs = Vec::new();
    let mut rejected = Vec::new();
    for path in paths {
        let opened = InputRecording::open(path).and_then(|mut input| {
            each(&mut input)?;
            Ok(input)
        });
        match opened {
            Ok(input) => inputs.push(input),
            Err(error) => rejected.push(RejectedInput {
                path: path.clone(),
                why: error.without_path(),
            }),
        }
    }
    Ok((inputs, rejected))
}

/// Of more recordings than this the definitions are packed until all of them are opened.
const MOST_UNPACKED: usize = 256;

fn nothing_readable(rejected: &[RejectedInput]) -> MergeError {
    MergeError::NothingReadable {
        count: rejected.len(),
        first: rejected.first().map_or_else(String::new, |input| {
            format!("{}: {}", input.path.display(), input.why)
        }),
    }
}

/// Opens recordings for merging, and traces that are named themselves.
///
/// # Errors
/// If a path does not exist, the output is a recording, or none of the files can be used.
pub fn plan_merge(paths: &[PathBuf], output: Option<&Path>) -> Result<(Merge, Vec<RejectedInput>)> {
    plan_merge_with_symbols(paths, output, &Symbols::default())
}

/// The same, with names for functions that have none yet.
///
/// # Errors
/// As [`plan_merge`].
pub fn plan_merge_with_symbols(
    paths: &[PathBuf],
    output: Option<&Path>,
    symbols: &Symbols,
) -> Result<(Merge, Vec<RejectedInput>)> {
    plan_merge_with_offsets(paths, output, symbols, None)
}

/// The same, with hosts related by what the user measured.
///
/// # Errors
/// As [`plan_merge`].
pub fn plan_merge_with_offsets(
    paths: &[PathBuf],
    output: Option<&Path>,
    symbols: &Symbols,
    offsets: Option<&ClockOffsets>,
) -> Result<(Merge, Vec<RejectedInput>)> {
    if let Some(path) = output
        && path.is_file()
        && matches!(kind_of(path), Ok(FileKind::Recording))
    {
        let path = path.to_owned();
        return Err(MergeError::OutputIsRecording { path });
    }
    let Found {
        recordings,
        traces,
        archives,
        mut rejected,
    } = find(paths, output)?;
    // In a directory, a trace beside recordings is an earlier merge of them; named itself, or beside traces only, it is
    // an input.
    let others = recordings.iter().chain(&archives);
    let others = others.chain(rejected.iter().map(|input| &input.path));
    let with_others: BTreeSet<_> = others.filter_map(|path| path.parent()).collect();
    let is_alone = |trace: &Path| trace.parent().is_some_and(|at| !with_others.contains(at));
    let traces = traces
        .into_iter()
        .filter(|trace| paths.contains(trace) || is_alone(trace));
    let traces: Vec<PathBuf> = traces.collect();
    if recordings.is_empty() && traces.is_empty() && archives.is_empty() && rejected.is_empty() {
        return Err(MergeError::NoRecordings {
            path: paths.first().cloned().unwrap_or_default(),
        });
    }
    let name_functions = |input: &mut InputRecording| {
        let definitions = &mut input.recording.definitions;
        let found = symbols.resolve(definitions);
        found.into_iter().for_each(|record| definitions.add(record));
    };
    let is_packed = recordings.len() > MOST_UNPACKED;
    let (mut inputs, more) = open_each(&recordings, |input| {
        input.check_unread()?;
        name_functions(input);
        if is_packed {
            input.pack_definitions();
        }
        Ok(())
    })?;
    rejected.extend(more);
    let copies = reject_without_process(&mut inputs, &mut rejected);
    for path in archives {
        match crate::otf2::open(&path) {
            Ok(mut processes) => {
                processes.iter_mut().for_each(name_functions);
                inputs.extend(processes);
            }
            Err(error) => rejected.push(RejectedInput {
                why: error.without_path(),
                path,
            }),
        }
    }
    let mut opened = Vec::new();
    for path in traces {
        match InputTrace::open(&path) {
            Ok(input) if input.trace.definitions.processes.is_empty() => {
                let why = "its definitions are lost: no process is in it".to_owned();
                rejected.push(RejectedInput { path, why });
            }
            Ok(input) if input.trace.definitions.slice.is_some() => {
                let why = "a slice of a merge: put all of them together first (--join)".to_owned();
                rejected.push(RejectedInput { path, why });
            }
            Ok(mut input) => {
                let definitions = &mut input.trace.definitions;
                let found = symbols.resolve(definitions);
                found.into_iter().for_each(|record| definitions.add(record));
                definitions.apply_symbols();
                opened.push(input);
            }
            Err(error) => rejected.push(RejectedInput {
                why: error.without_path(),
                path,
            }),
        }
    }
    if inputs.is_empty() && opened.is_empty() {
        return Err(nothing_readable(&rejected));
    }
    let mut merge = Merge::plan_all(inputs, opened, offsets);
    merge.duplicates.extend(copies);
    rejected.extend(differing(&mut merge));
    for (path, taken, id) in std::mem::take(&mut merge.parts) {
        let why = format!(
            "it holds other events of recording {id} than {}, and a recording is taken from one trace: merge the \
             recordings themselves, or write parts as slices (--slice), which --join puts together",
            taken.display()
        );
        rejected.push(RejectedInput { path, why });
    }
    Ok((merge, rejected))
}

/// Rejects recordings that do not name their process. Returns the files of those that may be copies of others, cut soon
/// after their start.
fn reject_without_process(
    inputs: &mut Vec<InputRecording>,
    rejected: &mut Vec<RejectedInput>,
) -> Vec<PathBuf> {
    let id_of = |input: &InputRecording| input.recording.header.recording_id;
    let (named, unnamed): (Vec<_>, Vec<_>) = std::mem::take(inputs)
        .into_iter()
        .partition(|input| input.check_has_process().is_ok());
    let ids: BTreeSet<_> = named.iter().map(id_of).collect();
    let mut copies = Vec::new();
    for input in unnamed {
        match input.check_has_process() {
            Err(error) if !ids.contains(&id_of(&input)) => rejected.push(RejectedInput {
                why: error.without_path(),
                path: input.path,
            }),
            _ => copies.push(input.path),
        }
    }
    *inputs = named;
    copies
}

/// Takes those out of the recordings given twice that hold other bytes than the one that was taken.
fn differing(merge: &mut Merge) -> Vec<RejectedInput> {
    let (mut same, mut differing) = (Vec::new(), Vec::new());
    for path in std::mem::take(&mut merge.duplicates) {
        let id = header_of(&path).map(|header| header.recording_id).ok();
        let mut inputs = merge.inputs();
        let taken = inputs.find(|input| Some(input.recording.header.recording_id) == id);
        match taken.filter(|taken| !is_part(&path, &taken.path)) {
            None => same.push(path),
            Some(taken) => differing.push(RejectedInput {
                why: format!(
                    "it says that it is recording {}, as {} does, but holds something else",
                    taken.recording.header.recording_id,
                    taken.path.display()
                ),
                path,
            }),
        }
    }
    merge.duplicates = same;
    differing
}

/// Whether a file holds the same as another, as far as it goes. One that cannot be read does not.
fn is_part(path: &Path, of: &Path) -> bool {
    const STEP: u64 = 1 << 20;
    let is_part = || -> Result<bool> {
        let (part, whole) = (FileAt::open(path)?, FileAt::open(of)?);
        let format = |source: FormatError| MergeError::Format {
            path: path.to_owned(),
            source,
        };
        let length = part.len().map_err(format)?;
        if length > whole.len().map_err(format)? {
            return Ok(false);
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for offset in (0..length).step_by(STEP as usize) {
            for (file, bytes) in [(&part, &mut ours), (&whole, &mut theirs)] {
                bytes.resize((length - offset).min(STEP) as usize, 0);
                file.read_exact_at(offset, bytes).map_err(format)?;
            }
            if ours != theirs {
                return Ok(false);
            }
        }
        Ok(true)
    };
    is_part().unwrap_or(false)
}

impl Opened {
    /// Opens a trace, a recording, or a directory of recordings (or of one trace).
    ///
    /// # Errors
    /// If the path does not exist or nothing in it can be read.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with_symbols(path, &Symbols::default())
    }

    /// The same, with names for functions that have none yet.
    ///
    /// # Errors
    /// As [`Opened::open`].
    pub fn open_with_symbols(path: &Path, symbols: &Symbols) -> Result<Self> {
        let found = find(&[path.to_owned()], None)?;
        let only_trace = found.recordings.is_empty() && found.traces.len() == 1;
        if only_trace {
            let mut opened = Self::open_trace(&found.traces[0])?;
            let found = symbols.resolve(&opened.definitions);
            let definitions = &mut opened.definitions;
            found.into_iter().for_each(|record| definitions.add(record));
            definitions.apply_symbols();
            return Ok(opened);
        }
        if found.recordings.is_empty() && found.traces.len() > 1 {
            return Err(MergeError::IsTrace {
                path: found.traces[0].clone(),
                advice: "one of several in the directory: name the one to read",
            });
        }
        let (mut merge, rejected) = plan_merge_with_symbols(&[path.to_owned()], None, symbols)?;
        // Who only reads asks for events, not for what contradicts them.
        merge.causality = Causality::Off;
        Ok(Self {
            definitions: merge.definitions.clone(),
            rejected,
            content: Content::Recordings(Box::new(merge)),
        })
    }

    /// What a merge gives, without a trace that is written first; causality is as the merge has it.
    pub fn of_merge(merge: Merge, rejected: Vec<RejectedInput>) -> Self {
        Self {
            definitions: merge.definitions.clone(),
            rejected,
            content: Content::Recordings(Box::new(merge)),
        }
    }

    fn open_trace(path: &Path) -> Result<Self> {
        let format = |source: FormatError| MergeError::Format {
            path: path.to_owned(),
            source,
        };
        let file = FileAt::open(path)?;
        let mut trace = Trace::read(&file).map_err(format)?;
        let bytes = file.len().map_err(format)?;
        let is_complete = trace.has_footer && is_complete(&trace.definitions, &trace.losses);
        // They are needed in one place only, and many: a long run has a hundred thousand calibration points.
        let definitions = std::mem::take(&mut trace.definitions);
        Ok(Self {
            definitions,
            rejected: Vec::new(),
            content: Content::Trace(Box::new(OpenedTrace {
                path: path.to_owned(),
                file,
                bytes,
                is_complete,
                trace,
            })),
        })
    }

    /// Gives what is open before a window, and then the chunks from there on, to whoever follows region calls:
    /// of a trace with snapshots those that may hold events of the window, else all from the start to the
    /// end. Also gives the last snapshot when not all chunks to the end were read: its times tell which locations
    /// go on behind the window.
    ///
    /// # Errors
    /// Those of `consume`; if the storage fails.
    pub fn read_regions(
        &self,
        window: Window,
        reach: Reach,
        begin: impl FnOnce(&Snapshot),
        consume: impl FnMut(TraceChunk) -> Result<()>,
    ) -> Result<(Outcome, Option<Snapshot>)> {
        match &self.content {
            Content::Trace(opened) => opened.read_regions(window, reach, begin, consume),
            Content::Recordings(_) => {
                begin(&Snapshot::default());
                Ok((self.read(Window::ALL, consume)?, None))
            }
        }
    }

    /// The regions that are open at a time.
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
            self.read_regions(at, Reach::default(), begin, |chunk| {
                stacks.borrow_mut().take_until(&types, &chunk, time_ns);
                Ok(())
            })?;
        }
        Ok(stacks.into_inner().snapshot(&types))
    }

    /// Where reading can start other than at the beginning, in order; recordings have no such places.
    pub fn snapshots(&self) -> &[TraceSnapshot] {
        match &self.content {
            Content::Trace(opened) => &opened.trace.snapshots,
            Content::Recordings(_) => &[],
        }
    }

    /// Reads one of the [snapshots](Opened::snapshots).
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn load_snapshot(&self, at: &TraceSnapshot) -> Result<Snapshot> {
        match &self.content {
            Content::Trace(opened) => {
                let loaded = opened.trace.load_snapshot(&opened.file, at);
                loaded.map_err(|source| MergeError::Format {
                    path: opened.path.clone(),
                    source,
                })
            }
            Content::Recordings(_) => Ok(Snapshot::default()),
        }
    }

    /// Statistics of all calls, where the input has them stored: one whole trace, of which nothing is known to be
    /// damaged. Those that are damaged themselves are as good as none: they follow from the events.
    pub fn region_statistics(&self) -> Option<RegionStatistics> {
        self.load_region_statistics().ok()?
    }

    /// The same, with what is wrong with them.
    ///
    /// # Errors
    /// If they cannot be read or are damaged.
    pub fn load_region_statistics(&self) -> Result<Option<RegionStatistics>> {
        let Content::Trace(opened) = &self.content else {
            return Ok(None);
        };
        if !opened.trace.has_footer || !opened.trace.problems.is_empty() {
            return Ok(None);
        }
        let loaded = opened.trace.load_statistics(&opened.file);
        loaded.map_err(|source| MergeError::Format {
            path: opened.path.clone(),
            source,
        })
    }

    /// What is damaged in the parts of a trace that questions do not read.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn check_unread(&self) -> Result<Vec<Problem>> {
        let Content::Trace(opened) = &self.content else {
            return Ok(Vec::new());
        };
        let checked = opened.trace.check_unread(&opened.file);
        checked.map_err(|source| MergeError::Format {
            path: opened.path.clone(),
            source,
        })
    }

    /// Events of the chunks that begin before a time; of recordings all, for all are read anyway.
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

    /// Times that cut a trace into parts of so many bytes each, in whole chunks; none for what is not one trace.
    pub fn cuts(&self, part_bytes: u64) -> Option<Vec<i64>> {
        let Content::Trace(opened) = &self.content else {
            return None;
        };
        let chunks = &opened.trace.chunks;
        let (mut start, mut cuts) = (chunks.first().map_or(0, |first| first.offset), Vec::new());
        for (chunk, next) in chunks.iter().zip(chunks.iter().skip(1)) {
            // Chunks that begin at the same moment stay together: a window cannot tell them apart.
            let is_full = next.offset.saturating_sub(start) >= part_bytes;
            if is_full && next.first_ns > chunk.first_ns {
                cuts.push(next.first_ns);
                start = next.offset;
            }
        }
        Some(cuts)
    }

    /// When the last process ends, or the last event is if that is later: trace time, nanoseconds.
    pub fn end_ns(&self) -> i64 {
        let end_ns = self.definitions.time_zero.map_or(0, |zero| zero.end_ns);
        match &self.content {
            Content::Trace(opened) => {
                let last = opened.trace.chunks.last();
                last.map_or(end_ns, |last| last.last_ns.max(end_ns))
            }
            Content::Recordings(_) => end_ns,
        }
    }

    /// What it is, as a file.
    pub fn origin(&self) -> Origin {
        match &self.content {
            Content::Trace(opened) => Origin {
                kind: "trace",
                bytes: opened.bytes,
                files: 1,
                has_footer: opened.trace.has_footer,
            },
            Content::Recordings(merge) => Origin {
                kind: match merge.inputs().all(InputRecording::is_of_archive) {
                    true => "archive",
                    false => "recordings",
                },
                bytes: merge.input_bytes(),
                files: merge.inputs().count(),
                has_footer: merge.inputs().all(|input| input.recording.has_footer),
            },
        }
    }

    /// Totals and losses without a look at the events where the footer has them.
    ///
    /// # Errors
    /// As [`Opened::read`].
    pub fn summary(&self) -> Result<Outcome> {
        match &self.content {
            Content::Trace(opened) => Ok(opened.outcome()),
            Content::Recordings(_) => self.read(Window::ALL, |_| Ok(())),
        }
    }

    /// Gives the chunks that may hold events of a window to `consume`, in order. What cannot be
    /// decoded is skipped and counted.
    ///
    /// # Errors
    /// Those of `consume`; if the storage fails.
    pub fn read(
        &self,
        window: Window,
        mut consume: impl FnMut(TraceChunk) -> Result<()>,
    ) -> Result<Outcome> {
        match &self.content {
            Content::Trace(opened) => {
                let chunks = opened.trace.chunks.iter();
                let wanted = chunks.filter(|entry| window.overlaps(entry.first_ns, entry.last_ns));
                opened.read(wanted.collect(), consume)
            }
            Content::Recordings(merge) => {
                let jobs = std::thread::available_parallelism().map_or(1, usize::from);
                let merged = merge.run(jobs, |chunk| {
                    let first = chunk.times_ns.first().copied();
                    let last = chunk.times_ns.last().copied();
                    let is_wanted = match (first, last) {
                        (Some(first), Some(last)) => window.overlaps(first, last),
                        _ => true,
                    };
                    if is_wanted { consume(chunk) } else { Ok(()) }
                })?;
                let mut report = merged.report;
                report.reject(self.rejected.clone());
                let damage = merge.inputs().flat_map(|input| {
                    let problems = input.recording.problems.iter();
                    problems.map(|problem| (input.path.clone(), problem.clone()))
                });
                let damage: Vec<_> = damage.collect();
                let has_reader_loss = merged.losses.iter().any(|loss| !loss.cause.is_dropped());
                Ok(Outcome {
                    complete: report.complete,
                    has_skipped_now: has_reader_loss
                        || !damage.is_empty()
                        || !self.rejected.is_empty()
                        || report
                            .inputs
                            .iter()
                            .any(|input| input.unplaced != 0 || input.ended == "truncated"),
                    damage,
                    totals: merged.totals,
                    losses: merged.losses,
                    report: Some(report),
                })
            }
        }
    }
}

impl OpenedTrace {
    fn outcome(&self) -> Outcome {
        let trace = &self.trace;
        let problems = trace.problems.iter();
        Outcome {
            totals: trace.totals.clone(),
            losses: trace.losses.clone(),
            complete: self.is_complete,
            has_skipped_now: !trace.has_footer || !trace.problems.is_empty(),
            damage: problems
                .map(|problem| (self.path.clone(), problem.clone()))
                .collect(),
            report: None,
        }
    }

    /// Counts what chunks held whose heads cannot be read either: what the totals know of and no other chunk
    /// has.
    fn skip_headless(&self, outcome: &mut Outcome) {
        let mut elsewhere: BTreeMap<(StreamId, EventTypeId), u64> = BTreeMap::new();
        let mut span: Option<(i64, i64)> = None;
        for entry in &self.trace.chunks {
            let Some(head) = self.trace.head(&self.file, entry) else {
                let (from_ns, to_ns) = span.unwrap_or((entry.first_ns, entry.last_ns));
                span = Some((from_ns.min(entry.first_ns), to_ns.max(entry.last_ns)));
                continue;
            };
            for (stream, counts) in &head.counts {
                for (event_type, count) in counts {
                    let sum = elsewhere.entry((*stream, *event_type)).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        let span = span.unwrap_or((0, 0));
        for totals in &self.trace.totals {
            for row in &totals.rows {
                let here = elsewhere.get(&(totals.stream, row.event_type));
                let missing = row.present().saturating_sub(here.copied().unwrap_or(0));
                if missing != 0 {
                    skip(outcome, totals.stream, row.event_type, missing, span);
                }
            }
        }
    }

    fn damaged(&self, outcome: &mut Outcome, offset: u64, error: &FormatError) {
        outcome.complete = false;
        outcome.has_skipped_now = true;
        let problem = Problem {
            offset,
            length: 0,
            what: error.to_string(),
        };
        outcome.damage.push((self.path.clone(), problem));
    }

    /// Decodes these chunks, by several threads when there are several, and gives them to `consume` in order.
    fn read(
        &self,
        entries: Vec<&TraceIndexEntry>,
        mut consume: impl FnMut(TraceChunk) -> Result<()>,
    ) -> Result<Outcome> {
        let mut outcome = self.outcome();
        let mut has_headless = false;
        let load = |number: usize| self.trace.load(&self.file, entries[number]);
        ahead::for_each(entries.len(), load, |number, loaded| {
            let entry = entries[number];
            match loaded {
                Ok(chunk) => consume(chunk)?,
                Err((error, head)) => {
                    self.damaged(&mut outcome, entry.offset, &error);
                    match head {
                        Some(head) => skip_chunk(&mut outcome, entry, &head),
                        None if !has_headless => {
                            has_headless = true;
                            self.skip_headless(&mut outcome);
                        }
                        None => {}
                    }
                }
            }
            Ok::<(), MergeError>(())
        })?;
        Ok(outcome)
    }

    /// The last snapshot before a chunk that can be read; what cannot is noted.
    fn snapshot_before(
        &self,
        chunk: usize,
        damage: &mut Vec<(u64, FormatError)>,
    ) -> Option<(usize, Snapshot)> {
        let before = self.trace.snapshots.iter().rev();
        before.filter(|at| at.before <= chunk).find_map(|at| {
            match self.trace.load_snapshot(&self.file, at) {
                Ok(snapshot) => Some((at.before, snapshot)),
                Err(error) => {
                    damage.push((at.entry.offset, error));
                    None
                }
            }
        })
    }

    fn read_regions(
        &self,
        window: Window,
        reach: Reach,
        begin: impl FnOnce(&Snapshot),
        consume: impl FnMut(TraceChunk) -> Result<()>,
    ) -> Result<(Outcome, Option<Snapshot>)> {
        let chunks = &self.trace.chunks;
        let mut damage = Vec::new();
        let is_behind = |entry: &TraceIndexEntry| entry.last_ns >= window.from_ns;
        let first = chunks.iter().position(is_behind).unwrap_or(chunks.len());
        let usable = if reach.from_start { 0 } else { first };
        let (first, open) = self
            .snapshot_before(usable, &mut damage)
            .unwrap_or_default();
        begin(&open);
        // What is open at the window's end is so until the location's next event, if there is one.
        let last = chunks.partition_point(|entry| window.overlaps(entry.first_ns, i64::MAX));
        let mut end = None;
        if last < chunks.len() && !reach.to_end {
            let found = self.snapshot_before(chunks.len(), &mut damage);
            end = found.filter(|(before, _)| *before == chunks.len());
        }
        let last = if end.is_some() { last } else { chunks.len() };
        let wanted = chunks.get(first..last).unwrap_or_default();
        let mut outcome = self.read(wanted.iter().collect(), consume)?;
        for (offset, error) in damage {
            self.damaged(&mut outcome, offset, &error);
        }
        Ok((outcome, end.map(|(_, snapshot)| snapshot)))
    }
}

/// Counts a chunk that could not be decoded, by stream and event type as its head says.
fn skip_chunk(
    outcome: &mut Outcome,
    entry: &annals_format::TraceIndexEntry,
    head: &annals_format::TraceChunkHeader,
) {
    for (stream, counts) in &head.counts {
        for (event_type, count) in counts {
            skip(
                outcome,
                *stream,
                *event_type,
                *count,
                (entry.first_ns, entry.last_ns),
            );
        }
    }
}

fn skip(
    outcome: &mut Outcome,
    stream: StreamId,
    event_type: EventTypeId,
    count: u64,
    (from_ns, to_ns): (i64, i64),
) {
    if let Some(totals) = outcome.totals.iter_mut().find(|t| t.stream == stream) {
        totals.row(event_type).add_loss(Cause::Skipped, count);
    }
    outcome.losses.push(TraceLoss {
        stream,
        event_type: Some(event_type),
        cause: Cause::Skipped,
        count,
        is_lower_bound: false,
        from_ns,
        to_ns,
    });
}
